"""The world after changes: rewired graphs, faster operators, and cost models and clusters that follow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.base.numeric import sum_in_order
from simsched.experiments.evaluation import evaluate
from simsched.experiments.whatif.changes import PARAMETERS, RATES, REBUILD, Change, speed_of
from simsched.model import Cluster, CostModel, Device, Floats, Indices, Operator, OpGraph, Schedule, Target, Work
from simsched.model.cluster import resize
from simsched.model.cluster.device import OVERHEADS
from simsched.model.cluster.sheet import device_named
from simsched.model.costmodel import USUAL, Rates, bare, default_cost, operator_times, roofline, rooflines, upon
from simsched.model.graph.columns import column, describe_cycle, topological_order
from simsched.model.graph.rearranged import rearrange
from simsched.model.launches import basis_of, same_kernels
from simsched.model.trace import Trace
from simsched.schedulers import SCHEDULERS, Scheduler, schedule

_OF_THE_HOST: Final = (
    *OVERHEADS,
    "kernel_latency",
    "block_spread",
    "interference",
    "interleave",
    "least_sm_share",
    "contention",
    "connections",
)


@dataclass(frozen=True, eq=False)
class Ground:
    """Subject of a question: all that stays the same while changes are added.

    Parameters
    ----------
    subject, target
        The schedule or graph, and the cluster or calibration, as given.
    scheduler, options, cost, load
        As in `what_if`.
    """

    subject: Schedule | OpGraph
    target: Target
    scheduler: str | Scheduler | None
    options: Mapping[str, Any]
    cost: CostModel | None
    load: Callable[..., OpGraph] | None

    @property
    def by(self) -> str | Scheduler:
        """The scheduler: the given one, else the one that made the given schedule, else ``lios``."""
        if self.scheduler is not None:
            return self.scheduler
        if isinstance(self.subject, Schedule):
            made_by = self.subject.scheduler
        else:
            made_by = ""
        return made_by if made_by in SCHEDULERS else "lios"

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster, of a calibration, too."""
        return bare(self.target)

    @cached_property
    def graph(self) -> OpGraph:
        """The graph, with measured times if the target is a calibration."""
        return upon(self.target, self.subject if isinstance(self.subject, OpGraph) else self.subject.graph)[0]

    @cached_property
    def plan(self) -> Schedule:
        """The schedule before any change."""
        if isinstance(self.subject, Schedule):
            return upon(self.target, self.subject)[0]
        plan = schedule(self.graph, self.target, self.by, self.cost, **self.options)
        return upon(self.target, plan)[0]

    @cached_property
    def trace(self) -> Trace:
        """Simulated run of the schedule before any change."""
        return evaluate(self.plan, self.cluster, self.cost).trace

    def run(self, plan: Schedule, cluster: Cluster, cost: CostModel | None) -> Trace:
        """Return a simulated run; the first schedule's program is used again where devices launch the same."""
        same = plan is self.plan and list(cluster.index) == list(self.cluster.index)
        same = same and same_kernels(plan.graph, cluster, self.cluster)
        return evaluate(self.trace.program if same else plan, cluster, cost).trace


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


@dataclass(frozen=True, eq=False)
class Revision:
    """A graph after changes, and its operators' speeds relative to the given ones.

    Parameters
    ----------
    base
        The graph before it was rewired.
    graph
        After that.
    speeds
        Speeds of its operators, shape (n_ops,).
    changes
        The changes that led to it; they also set the speed of operators by kind that a scheduler makes.
    rewirings
        How the graph came about.
    rates
        Factors of the terms of estimated times.
    """

    base: OpGraph
    graph: OpGraph
    speeds: Floats
    changes: tuple[Change, ...]
    rewirings: tuple[Rewiring, ...]
    rates: Rates = USUAL

    @property
    def made(self) -> list[str]:
        """Names of operators that changes made, which a cost model does not know: they have their own `time`."""
        return [rewiring.made for rewiring in self.rewirings if rewiring.made is not None]

    def speeds_over(self, graph: OpGraph) -> Floats:
        """Return the speeds of the operators of any graph, shape (n_ops,): by their names, else by their kinds."""
        if graph.names == self.graph.names:
            return self.speeds
        speeds = np.ones(len(graph))
        for i, op in enumerate(graph.operators):
            if op.name in self.graph.index:
                speeds[i] = self.speeds[self.graph.index[op.name]]
                continue
            for change in self.changes:
                if speed_of(change.parameter) in ((None, None), (op.kind, None)):
                    speeds[i] = change.of(speeds[i])
        return speeds


def revise(ground: Ground, changes: Sequence[Change]) -> Revision:
    """Return the graph after changes: rebuilt, then rewired and made quicker in the order of these."""
    rebuilt = {c.parameter.removeprefix(REBUILD): c.value for c in changes if c.parameter.startswith(REBUILD)}
    if rebuilt:
        base = _rebuilt(ground, rebuilt)
    else:
        base = ground.graph
    for change in changes:
        if change.parameter == "ranks":
            base = with_ranks(base, change.value)
    graph = base
    speeds = np.ones(len(graph))
    device = ground.cluster.devices[0]
    faster: list[Change] = []
    rewirings: list[Rewiring] = []
    rates = USUAL
    for change in changes:
        if change.parameter in ("fuse", "remove"):
            times = operator_times(graph, device, ground.cost)
            if change.parameter == "remove":
                rewiring = remove_operators(graph, change.value)
            else:
                rewiring = fuse_operators(graph, change.value, times, device, measured=ground.cost is not None)
            graph = rewiring.graph
            before = speeds
            speeds = np.ones(len(rewiring.graph))
            for i, own in enumerate(map(list, rewiring.members)):  # as long as they would take one by one
                own_times = before[own]
                whole = times[own].sum()
                alike = (own_times == own_times[0]).all() or not whole
                if alike:
                    speeds[i] = own_times[0]
                else:
                    speeds[i] = whole / (times[own] / own_times).sum()
            rewirings.append(rewiring)
        elif speed_of(change.parameter) is not None:
            rows = operators_of(graph, change)
            if change.is_absolute:
                speeds[rows] = change.value
            else:
                speeds[rows] = speeds[rows] * change.value
            faster.append(change)
        elif change.parameter in RATES:
            if ground.cost is not None or not np.isnan(graph.time).any():
                raise WhatIfError(f"{change.parameter} changes estimated times, and no operator has one: all are given")
            rates = rates._replace(**{change.parameter: change.of(getattr(rates, change.parameter))})
    return Revision(base, graph, speeds, tuple(faster), tuple(rewirings), rates)


def with_ranks(graph: OpGraph, ranks: int) -> OpGraph:
    """Return a graph whose symmetric collectives have another number of ranks; each rank's computation stays.

    Raises
    ------
    WhatIfError
        If it has no symmetric collective.
    """
    symmetric = {meeting.members[0] for meeting in graph.meetings if meeting.is_symmetric}
    if not symmetric:
        raise WhatIfError(f"ranks: graph {graph.name!r} has no symmetric collective whose ranks could be others")
    operators = [
        replace(op, collective=replace(op.collective, ranks=ranks)) if i in symmetric and op.collective else op
        for i, op in enumerate(graph.operators)
    ]
    return OpGraph(operators, graph.edges, graph.name)


def _rebuilt(ground: Ground, parameters: Mapping[str, Any]) -> OpGraph:
    if ground.load is None:
        raise WhatIfError("rebuild: pass `load`, a function of such parameters that returns an OpGraph")
    try:
        graph = ground.load(**parameters)
    except TypeError as error:
        raise WhatIfError(f"rebuild: {error}") from error
    if not isinstance(graph, OpGraph):
        raise WhatIfError(f"rebuild: `load` returned {type(graph).__name__}, not an OpGraph")
    return upon(ground.target, graph)[0]


def operators_of(graph: OpGraph, change: Change) -> Indices:
    """Return the operators whose speed a change sets; a name or kind that does not exist is refused."""
    kind, name = speed_of(change.parameter) or (None, None)
    if name is not None:
        return np.array(positions(graph, [name]))
    if kind is None:
        return np.arange(len(graph))
    codes, kinds = graph.labels("kind")
    rows = np.flatnonzero(codes == (kinds.index(kind) if kind in kinds else -1))
    if not len(rows):
        raise UnknownNameError("kind", kind, sorted(text for text in kinds if text))
    return rows


def rates(device: Device) -> tuple[Any, ...]:
    """Return the numbers that the roofline time of an operator depends on."""
    basis = basis_of(device)
    fields = basis.sms, basis.clock, basis.bandwidth, basis.l2, basis.saturating_warps, basis.capability
    return *fields, dict(basis.peak)


@dataclass(frozen=True, eq=False)
class ChangedCost:
    """A cost model that follows changes of devices and operators.

    Parameters
    ----------
    given
        The model as it was.
    before
        By the name of a device, the device that it replaced.
    revision
        Times of operators are divided by its speeds.

    Notes
    -----
    With t(op, device) the given model, r the roofline and s the speed, an operator takes on a device d that replaces
    d0::

        t(op, d) / s                          where t(op, d) differs from t(op, d0): the model follows by itself
        t(op, d0) * r(op, d) / r(op, d0) / s  where it does not

    A pure latency, without FLOP and bytes, stays unchanged. Times that the roofline itself estimates are then taken at
    the revision's factors of its terms.
    """

    given: CostModel
    before: Mapping[str, Device]
    revision: Revision

    def __call__(self, op: Operator, device: Device) -> float:
        """Return the time of an operator alone on a device in us."""
        return float(self.operator_times(OpGraph([op]), device, np.zeros(1, np.int64))[0])

    def operator_times(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        """Return the times in us of operators of a graph, given by index, on a device, shape of `ops`."""
        before = self.before.get(device.name, device)
        times = self._given_times(graph, device, ops)
        is_load = (graph.flops[ops] > 0) | (graph.nbytes[ops] > 0)
        if rates(before) != rates(device):
            as_before = np.flatnonzero((times == self._given_times(graph, before, ops)) & is_load)
            rows = ops[as_before]
            times[as_before] *= rooflines(graph, rows, device) / rooflines(graph, rows, before)
        if self.revision.rates != USUAL:
            estimated = np.flatnonzero(np.isnan(graph.time[ops]) & is_load)
            rows = ops[estimated]
            times[estimated] *= rooflines(graph, rows, device, self.revision.rates) / rooflines(graph, rows, device)
        return times / self.revision.speeds_over(graph)[ops]

    def _given_times(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        indices = np.array([graph.index[name] for name in self.revision.made if name in graph.index], np.int64)
        if self.given is default_cost or not len(indices):
            return operator_times(graph, device, self.given, ops)
        own = np.isin(ops, indices)
        times = np.empty(len(ops))
        times[own] = operator_times(graph, device, None, ops[own])
        times[~own] = operator_times(graph, device, self.given, ops[~own])
        return times


def changed_cluster(cluster: Cluster, changes: Sequence[Change]) -> Cluster:
    """Return a cluster after changes, the same if they make no difference to it."""
    original = cluster
    last = {change.parameter: change.value for change in changes}
    if "gpus" in last:
        cluster = resize(cluster, last["gpus"])
    if "device" in last:
        devices = [  # limits and rates change; the old card's host costs and models stay
            replace(device_named(last["device"], old.name), **{name: getattr(old, name) for name in _OF_THE_HOST})
            for old in cluster.devices
        ]
        cluster = replace(cluster, devices=tuple(devices), name=f"{cluster.name} as {last['device']}")
    for change in changes:
        if change.parameter in PARAMETERS:
            cluster = PARAMETERS[change.parameter].change_cluster(cluster, change)
        elif change.parameter == "contention":
            cluster = cluster.replace_devices(contention=change.value)
    same = cluster.devices == original.devices and cluster.links == original.links
    same &= [device.topology for device in cluster.devices] == [device.topology for device in original.devices]
    return original if same else cluster
