"""Graphs with other operators: fused and removed ones, and schedules that are carried over to them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.base.numeric import sum_in_order
from simsched.model import Device, Floats, Operator, OpGraph, Schedule, Work
from simsched.model.costmodel import roofline
from simsched.model.graph.columns import column, describe_cycle, topological_order
from simsched.model.graph.rearranged import rearrange


class Rewiring(NamedTuple):
    """A graph made from another one.

    Parameters
    ----------
    graph
        The new one.
    members
        For each of its operators the operators of the old graph that it replaces, by index, rising.
    made
        Name of the operator that is new, or None.
    """

    graph: OpGraph
    members: tuple[tuple[int, ...], ...]
    made: str | None = None


def positions(graph: OpGraph, names: Sequence[str]) -> list[int]:
    """Return the indices of operators by name, rising; an unknown name is refused."""
    for name in names:
        if name not in graph.index:
            raise UnknownNameError("operator", name, list(graph.names))
    return sorted(graph.index[name] for name in names)


def fuse_operators(
    graph: OpGraph, names: Sequence[str], times: Floats, device: Device, *, measured: bool = False
) -> Rewiring:
    """Make one operator of several.

    Parameters
    ----------
    graph, names
        A graph, and the names of at least two of its operators.
    times
        Time in us of each operator of the graph, shape (n_ops,).
    device
        The device whose roofline gives the time that fusing saves.
    measured
        Whether `times` hold measured times, which replace an operator's own `time` or roofline.

    Returns
    -------
    Rewiring
        The new operator is called by its members' names with ``+`` between, and takes the place of the first. FLOP,
        bytes and weights of its members add up; the bytes of the tensors inside are taken off: once for each member
        that reads one, once for its member that writes it if no operator outside reads it. It launches one kernel: its
        grid, utilization, intensity and dtype are taken from the member that takes longest (on ties the first). Its
        time is::

            sum of the members' times * roofline(new operator) / sum of the members' rooflines

        or without the quotient where a member has neither FLOP nor bytes. It is left to be estimated where no member
        has a `time` and none was `measured`. Outer edges stay; equal edges into it become one.

    Raises
    ------
    WhatIfError
        If a path leads out of them and back in; the message has it.
    """
    inside = positions(graph, names)
    exchanging = next((name for name in names if graph[name].collective is not None), None)
    if exchanging is not None:
        raise WhatIfError(f"fuse: {exchanging!r} is a collective, which stays an operator of its own; leave it out")
    left = [row for row in range(len(graph)) if row not in inside[1:]]
    members = tuple((row,) if row != inside[0] else tuple(inside) for row in left)
    place = np.zeros(len(graph), np.int64)
    place[left] = np.arange(len(left))
    place[inside] = at = int(place[inside[0]])
    src = place[graph.src]
    dst = place[graph.dst]
    outer = src != dst
    cycle = topological_order(len(left), src[outer], dst[outer])[1][:-1]
    if cycle:  # through the new operator, which would wait for itself
        start = cycle.index(at)
        between = [left[i] for i in (*cycle[start + 1 :], *cycle[:start])]
        out = next(i for i in inside if between[0] in graph.dst[graph.src == i])
        back = next(i for i in inside if between[-1] in graph.src[graph.dst == i])
        texts = describe_cycle([graph.names[i] for i in (out, *between, back)])
        raise WhatIfError(f"fuse: {texts} leads out of the operators and back in; fuse those between as well")
    into = np.flatnonzero(outer & (dst == at))  # input of the new operator: each tensor once
    transfer = np.nan_to_num(graph.edge_transfer[into], nan=-1.0)
    _, first = np.unique([src[into], graph.edge_nbytes[into], transfer], axis=1, return_index=True)
    outer[into] = np.isin(np.arange(len(into)), first)
    whole = _fused_operator(graph, inside, times, device, measured)
    rows = [row if row != inside[0] else len(graph) for row in left]
    rewired = rearrange(
        graph, rows, src[outer], dst[outer], graph.edge_nbytes[outer], graph.edge_transfer[outer], whole
    )
    return Rewiring(rewired, members, whole.name)


def _fused_operator(graph: OpGraph, inside: list[int], times: Floats, device: Device, measured: bool) -> Operator:
    rows = [graph.operator(i) for i in inside]
    longest = rows[int(np.argmax(times[inside]))]
    kernel = max(longest.kernels, key=lambda kernel: kernel.share, default=None)
    leads_in = np.isin(graph.dst, inside)
    read_outside = {*graph.src[~leads_in].tolist()}
    within = leads_in & np.isin(graph.src, inside)
    ends = [op for i, op in zip(inside, rows, strict=True) if i in read_outside or i not in graph.src]
    saved = float(graph.edge_nbytes[within].sum())  # bytes that need not go through DRAM
    for i in inside:
        written = graph.edge_nbytes[within & (graph.src == i)]
        if i in read_outside:
            saved += 0.0
        else:
            saved += float(written.max(initial=0.0))
    kinds = tuple(dict.fromkeys(op.kind for op in rows))
    name = "+".join(op.name for op in rows)
    nbytes = max(0.0, sum(op.nbytes for op in rows) - saved)
    flops = sum(op.flops for op in rows)
    weight_nbytes = sum(op.weight_nbytes for op in rows)
    while name in graph.index:
        name += "'"
    whole = Operator(
        name,
        kind="+".join(kinds),
        flops=flops,
        nbytes=nbytes,
        weight_nbytes=weight_nbytes,
        works=_fused_works(longest, flops, nbytes, weight_nbytes),
        host=max(op.host for op in rows),
        kernels=() if kernel is None else (replace(kernel, share=1.0),),
        utilization=longest.utilization,
        intensity=longest.intensity,
        dtype=longest.dtype,
        block=rows[0].block,
        output_shape=ends[0].output_shape if len(ends) == 1 else None,
    )
    if not measured and all(op.time is None for op in rows):
        return whole
    time = float(times[inside].sum())
    if all(op.flops or op.nbytes for op in rows):
        time *= roofline(whole, device) / sum_in_order(roofline(op, device) for op in rows)
    return replace(whole, time=time)


def _fused_works(longest: Operator, flops: float, nbytes: float, weight_nbytes: float) -> tuple[Work, ...]:
    """Return the work of the member that takes longest, with the FLOP and bytes of the new operator."""
    if longest.kernels or not longest.works:
        return ()
    work = max(longest.works, key=lambda work: (work.flops, work.reads + work.writes))
    weights = min(weight_nbytes, nbytes)
    writes = min(work.writes, nbytes - weights)
    return (replace(work, flops=flops, reads=nbytes - weights - writes, weights=weights, writes=writes),)


def remove_operators(graph: OpGraph, names: Sequence[str]) -> Rewiring:
    """Take operators out: each producer of one is joined to each of its consumers.

    The new edges carry the removed operator's input (bytes, exact transfer), as if its output were its input. An edge
    that exists already is not doubled; inputs and outputs of the graph are removed without replacement.

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
    nbytes = column(edge.nbytes for edge in edges)
    transfer = column(edge.transfer for edge in edges)
    return Rewiring(rearrange(graph, left, src, dst, nbytes, transfer), tuple((row,) for row in left))


def carry_over(plan: Schedule, rewiring: Rewiring) -> Schedule:
    """Return a schedule of the old graph as a schedule of the new graph.

    An operator gets the placement of the first operator that it replaces and that the schedule launches. The launch
    order stays; where it was topological, and an operator would then precede one that it reads from, it waits for it
    (stable topological order). The result is not checked: it may be unable to run, for example because of its stages.
    """
    launched = plan.position
    before = plan.graph
    lead = np.array([min(launched[list(rows)]) for rows in rewiring.members])  # rows of the plan's columns
    order = np.argsort(lead, kind="stable")
    if (launched[before.src] < launched[before.dst]).all():  # on other devices, too
        place = np.argsort(order)
        order = order[topological_order(len(lead), place[rewiring.graph.src], place[rewiring.graph.dst])[0]]
    return plan.like(lead[order], graph=rewiring.graph, op=order)
