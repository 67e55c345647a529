"""Graphs with operators fused or taken out, and schedules carried over to them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.model import Device, Operator, OpGraph, Schedule, roofline
from simsched.model.feasibility import launch_position
from simsched.model.graph.columns import Floats, column
from simsched.model.graph.derived import rearranged
from simsched.model.graph.ordering import describe_cycle, topological_order


@dataclass(frozen=True, eq=False)
class Rewiring:
    """A graph made of another one.

    Parameters
    ----------
    before, graph
        The old one and the new one.
    members
        For each of its operators the operators of the old one that it stands for, by index, rising.
    made
        Name of the operator that is new, or None.
    """

    before: OpGraph
    graph: OpGraph
    members: tuple[tuple[int, ...], ...]
    made: str | None = None


def positions(graph: OpGraph, names: Sequence[str]) -> list[int]:
    """Return the indices of operators by name, rising; an unknown name is refused."""
    for name in names:
        if name not in graph.index:
            raise UnknownNameError("operator", name, list(graph.names))
    return sorted(graph.index[name] for name in names)


def fused(graph: OpGraph, names: Sequence[str], times: Floats, device: Device, *, measured: bool = False) -> Rewiring:
    """Make one operator of several.

    Parameters
    ----------
    graph, names
        At least two operators of a graph.
    times
        Time in us of each operator of the graph, shape (n_ops,).
    device
        The one whose roofline says what fusing saves.
    measured
        Whether `times` say more than the operators do: a `time`, or else a roofline.

    Returns
    -------
    Rewiring
        The new operator is called by its members' names with ``+`` between, and stands in place of the first. FLOP,
        bytes and weights of its members add up; of the bytes the tensors inside are taken off: once for each member
        that reads one, once for its member that writes it if nobody else reads it. It launches one kernel: its grid,
        utilization, intensity and dtype are those of the member that takes longest (the first of equal ones). Its
        time is::

            sum of the members' times * roofline(new operator) / sum of the members' rooflines

        or without the quotient where a member has neither FLOP nor bytes. It is left to be estimated where no member
        has a `time` and none was `measured`.
        Outer edges stay, those into it that are alike as one.

    Raises
    ------
    WhatIfError
        If a path leads out of them and back in; the message has it.
    """
    inside = positions(graph, names)
    _require_convex(graph, inside)
    whole = _fused_operator(graph, inside, times, device, measured)
    left = [row for row in range(len(graph)) if row not in inside[1:]]
    members = tuple((row,) if row != inside[0] else tuple(inside) for row in left)
    place = np.zeros(len(graph), np.int64)
    place[left] = np.arange(len(left))
    place[inside] = at = int(place[inside[0]])
    src, dst = place[graph.src], place[graph.dst]
    kept = src != dst
    seen: set[tuple[int, float, float | None]] = set()  # of tensors read by the new operator
    for e in np.flatnonzero(kept & (dst == at)).tolist():
        edge = graph.edge(e)
        row = (int(src[e]), edge.nbytes, edge.transfer)
        kept[e] = row not in seen
        seen.add(row)
    rows = [row if row != inside[0] else len(graph) for row in left]
    made = rearranged(graph, rows, src[kept], dst[kept], graph.edge_nbytes[kept], graph.edge_transfer[kept], whole)
    return Rewiring(graph, made, members, whole.name)


def _fused_operator(graph: OpGraph, inside: list[int], times: Floats, device: Device, measured: bool) -> Operator:
    rows = [graph.operator(i) for i in inside]
    longest = rows[int(np.argmax(times[inside]))]
    kernel = max(longest.kernels, key=lambda kernel: kernel.share, default=None)
    ends = [op for i, op in zip(inside, rows, strict=True) if i not in graph.src or _is_read_outside(graph, i, inside)]
    kinds = tuple(dict.fromkeys(op.kind for op in rows))
    name = "+".join(op.name for op in rows)
    while name in graph.index:
        name += "'"
    whole = Operator(
        name, kind="+".join(kinds), flops=sum(op.flops for op in rows),
        nbytes=max(0.0, sum(op.nbytes for op in rows) - _inner_nbytes(graph, inside)),
        weight_nbytes=sum(op.weight_nbytes for op in rows), host=max(op.host for op in rows),
        kernels=() if kernel is None else (replace(kernel, share=1.0),), utilization=longest.utilization,
        intensity=longest.intensity, dtype=longest.dtype, block=rows[0].block,
        output_shape=ends[0].output_shape if len(ends) == 1 else None,
    )  # fmt: skip
    if not measured and all(op.time is None for op in rows):
        return whole
    time = float(times[inside].sum())
    if all(op.flops or op.nbytes for op in rows):
        time *= roofline(whole, device) / sum(roofline(op, device) for op in rows)
    return replace(whole, time=time)


def _is_read_outside(graph: OpGraph, i: int, inside: list[int]) -> bool:
    return any(reader not in inside for reader in graph.dst[graph.src == i].tolist())


def _inner_nbytes(graph: OpGraph, inside: list[int]) -> float:
    """Return the bytes of tensors that need not go through DRAM between some operators."""
    within = np.isin(graph.src, inside) & np.isin(graph.dst, inside)
    saved = float(graph.edge_nbytes[within].sum())
    for i in inside:
        mine = within & (graph.src == i)
        if mine.any() and not _is_read_outside(graph, i, inside):
            saved += float(graph.edge_nbytes[mine].max())
    return saved


def _require_convex(graph: OpGraph, inside: list[int]) -> None:
    """Refuse operators between which a path leads through others: as one they would wait for themselves."""
    ptr, edges = graph.outgoing
    came_from: dict[int, int] = {}
    queue = deque((i, j) for i in inside for j in graph.dst[edges[ptr[i] : ptr[i + 1]]].tolist() if j not in inside)
    while queue:
        i, j = queue.popleft()
        if j in inside:
            path = [j, i]
            while path[-1] not in inside:
                path.append(came_from[path[-1]])
            texts = describe_cycle([graph.names[k] for k in reversed(path)])
            raise WhatIfError(f"fuse: {texts} leads out of the operators and back in; fuse those between as well")
        if j not in came_from:
            came_from[j] = i
            queue.extend((j, k) for k in graph.dst[edges[ptr[j] : ptr[j + 1]]].tolist())


def removed(graph: OpGraph, names: Sequence[str]) -> Rewiring:
    """Take operators out: each producer of one is joined to each of its consumers.

    The new edges carry what the operator read (bytes, exact transfer), as if its output were its input. An edge that
    is already there is not doubled; inputs and outputs of the graph simply go.

    Raises
    ------
    WhatIfError
        If nothing would be left.
    """
    gone = positions(graph, names)
    if len(gone) == len(graph):
        raise WhatIfError(f"remove: nothing of graph {graph.name!r} would be left")
    edges = list(graph.edges)
    for name in (graph.names[i] for i in gone):
        read = [edge for edge in edges if edge.dst == name]
        written = [edge for edge in edges if edge.src == name]
        edges = [edge for edge in edges if name not in (edge.src, edge.dst)]
        joined = [replace(into, dst=out.dst) for out in written for into in read]
        edges += [edge for edge in dict.fromkeys(joined) if edge not in edges]
    left = [row for row in range(len(graph)) if row not in gone]
    place = {graph.names[row]: i for i, row in enumerate(left)}
    src, dst = (np.array([place[getattr(edge, end)] for edge in edges], np.int64) for end in ("src", "dst"))
    nbytes, transfer = column(edge.nbytes for edge in edges), column(edge.transfer for edge in edges)
    return Rewiring(graph, rearranged(graph, left, src, dst, nbytes, transfer), tuple((row,) for row in left))


def carried(plan: Schedule, rewiring: Rewiring) -> Schedule:
    """Return a schedule over the graph that became of its own.

    An operator has the placement of the first of those it stands for that the plan launches. The launch order stays;
    where it was topological, and an operator would then precede one that it reads from, it waits for it (stable
    topological order). Whether it can run, in its stages for one, is not checked.
    """
    launched, before = launch_position(plan), plan.graph
    lead = np.array([min(launched[list(rows)]) for rows in rewiring.members])  # rows of the plan's columns
    order = np.argsort(lead, kind="stable")
    if (launched[before.src] < launched[before.dst]).all():  # on other devices, too
        place = np.argsort(order)
        order = order[topological_order(len(lead), place[rewiring.graph.src], place[rewiring.graph.dst])[0]]
    return plan.like(lead[order], graph=rewiring.graph, op=order)
