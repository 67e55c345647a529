"""The world that changes lead to: cluster, graph and cost model, and the plan carried over to it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from simsched.base.errors import ScheduleError, UnknownNameError, WhatIfError
from simsched.experiments.evaluate import evaluate
from simsched.experiments.whatif.changes import PARAMETERS, REBUILD, Change, speed_of
from simsched.experiments.whatif.rewiring import Rewiring, carried, fused, positions, removed
from simsched.model import Cluster, CostModel, Device, Floats, Indices, Operator, OpGraph, Schedule
from simsched.model.calibrated import Target, bare, upon
from simsched.model.cluster import widened
from simsched.model.cluster.device import OVERHEADS
from simsched.model.cluster.presets import make_device
from simsched.model.costmodel import default_cost, operator_times, rooflines
from simsched.model.trace import Trace
from simsched.schedulers import SCHEDULERS, Scheduler, schedule

_REMEDY: Final = "with reschedule=True (--reschedule)"
_OF_THE_HOST: Final = (
    *OVERHEADS, "kernel_latency", "block_spread", "interference", "interleave", "least_sm_share", "contention",
    "connections",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Ground:
    """What a question is about: all that stays the same while changes are added.

    Parameters
    ----------
    subject, target
        What runs, and on what, as given.
    scheduler, options, cost, load
        As in `what_if`.
    """

    subject: Schedule | OpGraph
    target: Target
    scheduler: str | Scheduler | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    cost: CostModel | None = None
    load: Callable[..., OpGraph] | None = None

    @property
    def by(self) -> str | Scheduler:
        """Who makes plans: who was given, else the one that made the plan, else ``lios``."""
        if self.scheduler is not None:
            return self.scheduler
        made_by = self.subject.scheduler if isinstance(self.subject, Schedule) else ""
        return made_by if made_by in SCHEDULERS else "lios"

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster itself."""
        return bare(self.target)

    @cached_property
    def graph(self) -> OpGraph:
        """What runs, with the times that were measured of a calibrated target."""
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
        """That of the schedule before any change."""
        return evaluate(self.plan, self.cluster, self.cost).trace

    def run(self, plan: Schedule, cluster: Cluster, cost: CostModel | None) -> Trace:
        """Return what would run when; the program of the first plan serves on all clusters of the same devices."""
        same = plan is self.plan and list(cluster.index) == list(self.cluster.index)
        return evaluate(self.trace.program if same else plan, cluster, cost).trace


@dataclass(frozen=True, eq=False)
class Speeds:
    """How many times as quick operators are as they were.

    Parameters
    ----------
    graph
        What `values` are of.
    values
        Shape (n_ops,).
    changes
        Those that led there; by them operators of a kind are told that a scheduler makes.
    """

    graph: OpGraph
    values: Floats
    changes: tuple[Change, ...] = ()

    def changed(self, change: Change, rows: Indices) -> "Speeds":
        """Return the speeds after a change of those of some operators."""
        values = self.values.copy()
        values[rows] = change.value if change.is_absolute else values[rows] * change.value
        return Speeds(self.graph, values, (*self.changes, change))

    @property
    def all_as_before(self) -> bool:
        """Whether no speed differs from 1."""
        return bool((self.values == 1.0).all()) and all(change.value == 1.0 for change in self.changes)

    def over(self, graph: OpGraph) -> Floats:
        """Return the speeds of the operators of any graph, shape (n_ops,): by their names, else by their kinds."""
        if graph.names == self.graph.names:
            return self.values
        return np.array([self._of(op) for op in graph.operators])

    def _of(self, op: Operator) -> float:
        if op.name in self.graph.index:
            return float(self.values[self.graph.index[op.name]])
        speed = 1.0
        for change in self.changes:
            if speed_of(change.parameter) in ((None, None), (op.kind, None)):
                speed = change.of(speed)
        return speed


def rates(device: Device) -> tuple[Any, ...]:
    """Return what the roofline time of an operator depends on."""
    return device.sms, device.bandwidth, device.saturating_warps, dict(device.peak)


@dataclass(frozen=True, eq=False)
class ChangedCost:
    """A cost model that follows changes of devices and operators.

    Parameters
    ----------
    given
        The model as it was.
    before
        By the name of a device what stood in its place before.
    speeds
        Of operators; their times are divided by them.
    made
        Names of operators that changes made, of which the given model knows nothing: they have their `time`.

    Notes
    -----
    With t(op, device) the model as it was, r the roofline and s the speed, an operator takes on a device d that
    stands in the place of d0::

        t(op, d) / s                          where t(op, d) differs from t(op, d0): the model follows by itself
        t(op, d0) * r(op, d) / r(op, d0) / s  where it does not

    A pure latency, without FLOP and bytes, has the same roofline time everywhere and stays as it is.
    """

    given: CostModel
    before: Mapping[str, Device]
    speeds: Speeds
    made: tuple[str, ...] = ()

    def __call__(self, op: Operator, device: Device) -> float:
        """Return the time of an operator alone on a device in us."""
        return float(self.operator_times(OpGraph([op]), device, np.zeros(1, np.int64))[0])

    def operator_times(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        """Return the times in us of operators of a graph, given by index, on a device, shape of `ops`."""
        before = self.before.get(device.name, device)
        times = self._given(graph, device, ops)
        if rates(before) != rates(device):
            as_before = np.flatnonzero(times == self._given(graph, before, ops))
            rows = ops[as_before]
            times[as_before] *= rooflines(graph, rows, device) / rooflines(graph, rows, before)
        return times / self.speeds.over(graph)[ops]

    def _given(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        made = np.array([graph.index[name] for name in self.made if name in graph.index], np.int64)
        if self.given is default_cost or not len(made):
            return operator_times(graph, device, self.given, ops)
        own, times = np.isin(ops, made), np.empty(len(ops))
        times[own] = operator_times(graph, device, None, ops[own])
        times[~own] = operator_times(graph, device, self.given, ops[~own])
        return times


@dataclass(frozen=True, eq=False, repr=False)
class World:
    """What changes make of the ground.

    Parameters
    ----------
    ground
        What there was.
    changes
        Changes of different kinds are made in this order, whatever the order they were asked for in; of one kind,
        one after the other: ``rebuild``; ``fuse``, ``remove`` and speeds of operators; ``gpus``; ``device`` presets;
        all other numbers. So those that have nothing to do with each other can be asked for in any order.
    """

    ground: Ground
    changes: tuple[Change, ...] = ()

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster after the changes."""
        return changed_cluster(self.ground.cluster, self.changes)

    @property
    def graph(self) -> OpGraph:
        """The graph after the changes, before a scheduler rewrites it."""
        return self.speeds.graph

    @property
    def speeds(self) -> Speeds:
        """How many times as quick operators are."""
        return self._graph_and_speeds[0]

    @cached_property
    def cost(self) -> CostModel | None:
        """The cost model after the changes; None is the default one."""
        return self._changed(self.ground.cost)

    @cached_property
    def _graph_and_speeds(self) -> tuple[Speeds, list[Rewiring]]:
        """Speeds of the operators, and how their graph came about, once it was rebuilt."""
        ground = self.ground
        rebuilt = {c.parameter.removeprefix(REBUILD): c.value for c in self.changes if c.parameter.startswith(REBUILD)}
        graph = _rebuilt(ground, rebuilt) if rebuilt else ground.graph
        speeds, rewirings = Speeds(graph, np.ones(len(graph))), list[Rewiring]()
        for change in self.changes:
            if change.parameter in ("fuse", "remove"):
                rewirings.append(_rewired(ground, speeds.graph, change))
                speeds = _speeds_over(ground, speeds, rewirings[-1])
            elif speed_of(change.parameter) is not None:
                speeds = speeds.changed(change, selected(speeds.graph, change))
        return speeds, rewirings

    def _changed(self, given: CostModel | None) -> CostModel | None:
        """Return a cost model after the changes: the given one where they make no difference."""
        (speeds, rewirings), old, new = self._graph_and_speeds, self.ground.cluster, self.cluster
        made = tuple(each.made for each in rewirings if each.made is not None)
        before = {device.name: old.devices[i if i < len(old) else 0] for i, device in enumerate(new.devices)}
        same = all(rates(before[device.name]) == rates(device) for device in new.devices)
        if same and speeds.all_as_before and (given is None or not made):
            return given
        return ChangedCost(default_cost if given is None else given, before, speeds, made)

    def _executed(self, plan: Schedule) -> Schedule:
        how = next((c.value for c in reversed(self.changes) if c.parameter == "execution"), plan.execution)
        return plan if plan.execution == how else plan.like(execution=how)

    @cached_property
    def kept_plan(self) -> Schedule:
        """The plan that there was, carried over.

        Raises
        ------
        WhatIfError
            If it cannot be, or cannot run there.
        """
        plan, cluster, rewirings = self.ground.plan, self.cluster, self._graph_and_speeds[1]
        gone = ", ".join(name for name in plan.devices_used if name not in cluster.index)
        if gone:
            raise WhatIfError(f"the plan uses {gone}, which {cluster.name!r} does not have; ask {_REMEDY}")
        graph = rewirings[0].before if rewirings else self.graph
        try:
            if graph is not self.ground.graph or rewirings:
                plan = plan.over(graph)
            for rewiring in rewirings:
                plan = carried(plan, rewiring)
            plan = self._executed(plan)
            return plan if plan is self.ground.plan else plan.check()
        except ScheduleError as error:
            raise WhatIfError(f"the plan cannot be kept: {error}; ask {_REMEDY}") from error

    def _reschedule(self) -> Schedule:
        """Return the plan that the scheduler makes of the changed graph on the changed cluster."""
        ground, cost = self.ground, self.cost
        if ground.cost is None and not isinstance(ground.target, Cluster):  # what a scheduler makes is as measured
            cost = self._changed(ground.target)
        plan = schedule(self.graph, self.cluster, ground.by, cost, **ground.options)
        if plan.graph is not self.graph:  # operators that the scheduler made were not measured
            plan = upon(ground.target, plan)[0]
        return self._executed(plan)


def changed_cluster(cluster: Cluster, changes: Sequence[Change]) -> Cluster:
    """Return a cluster after changes, the same if they make no difference to it."""
    original = cluster
    last = {change.parameter: change.value for change in changes}
    if "gpus" in last:
        cluster = widened(cluster, last["gpus"])
    if "device" in last:
        cluster = _of_model(cluster, last["device"])
    for change in changes:
        if change.parameter in PARAMETERS:
            cluster = PARAMETERS[change.parameter].changed(cluster, change)
        elif change.parameter == "contention":
            cluster = cluster.replace_devices(contention=change.value)
    same = cluster.devices == original.devices and cluster.links == original.links
    return original if same else cluster


def _of_model(cluster: Cluster, model: str) -> Cluster:
    """Return a cluster of another card: limits and rates change, what host and model say of the old one stays."""
    devices = [
        replace(make_device(model, old.name), **{name: getattr(old, name) for name in _OF_THE_HOST})
        for old in cluster.devices
    ]
    return replace(cluster, devices=tuple(devices), name=f"{cluster.name} as {model}")


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


def _rewired(ground: Ground, graph: OpGraph, change: Change) -> Rewiring:
    if change.parameter == "remove":
        return removed(graph, change.value)
    device = ground.cluster.devices[0]
    times = operator_times(graph, device, ground.cost)
    return fused(graph, change.value, times, device, measured=ground.cost is not None)


def _speeds_over(ground: Ground, speeds: Speeds, rewiring: Rewiring) -> Speeds:
    """Return the speeds after a rewiring; members of one operator take the time that they would take one by one."""
    times = operator_times(speeds.graph, ground.cluster.devices[0], ground.cost)
    values = np.ones(len(rewiring.graph))
    for i, rows in enumerate(map(list, rewiring.members)):
        mine, whole = speeds.values[rows], times[rows].sum()
        values[i] = mine[0] if (mine == mine[0]).all() or not whole else whole / (times[rows] / mine).sum()
    return Speeds(rewiring.graph, values, speeds.changes)


def selected(graph: OpGraph, change: Change) -> Indices:
    """Return the operators whose speed a change is of; a name or kind that is not there is refused."""
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
