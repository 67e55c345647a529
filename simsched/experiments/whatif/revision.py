"""The world after changes: rewired graphs, faster operators, and cost models and clusters that follow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.experiments.whatif.changes import PARAMETERS, RATES, REBUILD, Change, speed_of
from simsched.experiments.whatif.ground import Ground
from simsched.experiments.whatif.rewiring import Rewiring, fuse_operators, positions, remove_operators
from simsched.model import Cluster, CostModel, Device, Floats, Indices, Operator, OpGraph
from simsched.model.cluster import resize
from simsched.model.cluster.device import OVERHEADS
from simsched.model.cluster.sheet import device_named
from simsched.model.costmodel import USUAL, Rates, bind, default_cost, operator_times, rooflines
from simsched.model.launches import basis_of

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
    return bind(graph, ground.target)[0]


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
