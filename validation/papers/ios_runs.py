"""The networks of IOS under its schedules, in simulation: stages valued as its engine measures them."""

from functools import cache
from typing import Any, Final

import simsched as ss
import workloads
from simsched.base.errors import SchedulerError
from simsched.base.units import MS
from simsched.model.costmodel import default_cost
from simsched.rewriting import Draft, merge, merged_operators
from simsched.schedulers.stage_costs import Groups
from validation.hardware.graphs import part

NETWORKS: Final = {
    "inception_v3": "Inception-v3", "randwire": "RandWire", "nasnet_a_large": "NASNet-A", "squeezenet": "SqueezeNet"
}  # fmt: skip
"""Title of each."""
ALL: Final = ("sequential", "greedy", "merge", "parallel", "both")
"""What Fig. 6 and 14 compare: two baselines, and IOS with three sets of stages."""
_LARGE: Final = ("randwire", "nasnet_a_large")
_MOST_STREAMS: Final = 10  # contexts of the engine, and so the most ready operators that a greedy stage takes


class MeasuredStage:
    """Latency in us of a stage as the engine of IOS measures it, launches and barriers included.

    Parameters
    ----------
    graph, cluster
        Whose stages, and on what; the first device is used.

    Notes
    -----
    The engine repeats a stage of one group without waiting in between, so its launches hide behind its kernels: it
    takes the longer of the two. After each run of a stage of several groups it waits for the device: that takes the
    first launch, then the simulated stage or, where that ends later, some group's kernels from their launch on (groups
    are launched one after the other), then the barrier. Stages that differ in names alone are simulated once.
    """

    def __init__(self, graph: ss.OpGraph, cluster: ss.Cluster) -> None:
        self._draft, self._device = Draft.from_graph(graph), cluster.devices[0]
        self._simulated = ss.StageLatency(graph, cluster)
        looks = [(o.flops, o.nbytes, o.time, o.kernels, o.utilization, o.intensity, o.dtype) for o in graph.operators]
        numbers = {look: i for i, look in enumerate(dict.fromkeys(looks))}
        self._look = dict(zip(graph.names, (numbers[look] for look in looks), strict=True))
        self._n_launches = {op.name: max(1, len(op.kernels)) for op in graph.operators}
        self._groups: dict[tuple[str, ...], tuple[tuple[int, ...], int, float]] = {}
        self._stages: dict[tuple[tuple[int, ...], ...], float] = {}

    def __call__(self, groups: Groups, merged: bool = False) -> float:
        """Return the latency of groups side by side, or of operators merged into one."""
        device = self._device
        if merged:
            ops = merged_operators(self._draft, [name for group in groups for name in group])
            busy = sum(default_cost(op, device) + device.gap for op in ops)
            return max(busy, device.launch * sum(len(op.kernels) for op in ops))
        found = [self._groups.get(group) or self._group(group) for group in groups]
        if len(groups) == 1:
            _, launches, kernels = found[0]
            return max(kernels + device.gap, device.launch * launches)
        look = tuple([each[0] for each in found])
        longest = self._stages.get(look)
        if longest is None:
            longest = self._stages[look] = self._simulated(groups)
        before = 0
        for _, launches, kernels in found:
            longest = max(longest, device.launch * before + kernels)
            before += launches
        return device.launch + longest + device.barrier

    def _group(self, group: tuple[str, ...]) -> tuple[tuple[int, ...], int, float]:
        """Return what a group looks like, how many kernels it launches, and how long they take alone in us."""
        look = tuple(self._look[name] for name in group)
        self._groups[group] = (look, sum(self._n_launches[name] for name in group), self._simulated((group,)))
        return self._groups[group]


@cache
def network(name: str, gpu: str, batch: int = 1) -> ss.OpGraph:
    """Return a network with kernels as tiled for a device."""
    return workloads.load(name, device=gpu, batch=batch)


@cache
def device(gpu: str) -> ss.Cluster:
    """Return one device of a preset."""
    return ss.Cluster.preset(gpu)


def searched(graph: ss.OpGraph, cluster: ss.Cluster, **options: Any) -> ss.Schedule:
    """Return the schedule of IOS's released search, by default as its figures were made: r = 3, s = 8, one root."""
    defaults: dict[str, Any] = {"endings": "single_root", "stage_latency": MeasuredStage(graph, cluster)}
    return ss.schedule(graph, cluster, "ios", **defaults | options)


@cache
def ios_plan(name: str, gpu: str, batch: int = 1, *, quick: bool = False, **options: Any) -> ss.Schedule:
    """Return IOS's schedule of a network; a quick one of a large network has groups of one operator."""
    return searched(network(name, gpu, batch), device(gpu), **options | ({"r": 1} if quick and name in _LARGE else {}))


@cache
def plan(name: str, gpu: str, how: str, batch: int = 1, quick: bool = False) -> ss.Schedule:
    """Return the schedule of a network by one of `ALL`."""
    graph, cluster = network(name, gpu, batch), device(gpu)
    if how in ("sequential", "greedy"):
        streams: dict[str, Any] = {"streams": _MOST_STREAMS} if how == "greedy" else {}
        return ss.schedule(graph, cluster, how, **streams)
    both = ios_plan(name, gpu, batch, quick=quick)
    if how == "both" or (how == "parallel" and both.search["merged_transitions"] == 0):
        return both  # nothing can be merged: the same search
    try:
        return ios_plan(name, gpu, batch, quick=quick, strategy=how)
    except SchedulerError:  # nothing can be merged, so that only stages of one operator are left
        return plan(name, gpu, "sequential", batch)


def milliseconds(schedule: ss.Schedule, gpu: str) -> float:
    """Return the simulated latency of a schedule in ms."""
    return ss.simulate(schedule, device(gpu)).makespan / MS


def speedup(name: str, gpu: str, how: str, batch: int = 1, quick: bool = False) -> float:
    """Return by how much a schedule is faster than one operator after the other."""
    slow, fast = plan(name, gpu, "sequential", batch), plan(name, gpu, how, batch, quick)
    return milliseconds(slow, gpu) / milliseconds(fast, gpu)


def stages_of(schedule: ss.Schedule, original: ss.OpGraph) -> list[tuple[list[list[str]], bool]]:
    """Return the stages of a schedule by operators of the graph it was made for: groups, and whether they are merged.

    What reads a part of a merged operator stands for itself in the graph that was made; it belongs to the merging.
    """
    rewritten = schedule.graph is not original
    stages: dict[int, dict[int, list[str]]] = {}
    merged: dict[int, bool] = {}
    for row in schedule.placements:
        groups = stages.setdefault(row.stage, {})
        if row.op not in original.index:
            groups[row.group] = row.op.split("+")
            merged[row.stage] = True
        elif not (rewritten and schedule.graph[row.op].kind == "slice"):
            groups.setdefault(row.group, []).append(row.op)
    return [(list(groups.values()), merged.get(stage, False)) for stage, groups in stages.items()]


def carried(schedule: ss.Schedule, original: ss.OpGraph, graph: ss.OpGraph) -> ss.Schedule:
    """Return a schedule for another graph of the same operators, as of another batch, the same ones merged."""
    stages = stages_of(schedule, original)
    rewritten, replaced = merge(graph, [groups[0] for groups, merged in stages if merged])
    new = iter(replaced)
    rows = [
        ss.Placement(name, schedule.devices[0], stream=g, stage=k, group=g)
        for k, (groups, merged) in enumerate(stages)
        for g, group in enumerate([list(next(new))] if merged else groups)
        for name in group
    ]
    return ss.Schedule(rewritten, rows, execution="stages", scheduler=schedule.scheduler)


@cache
def piece(name: str, gpu: str, batch: int, number: int) -> ss.OpGraph:
    """Return a block of a network behind the operator that it reads from, as a graph of its own."""
    graph = network(name, gpu, batch)
    inside = set(graph.blocks[number])
    return part(graph, inside.union(edge.src for edge in graph.edges if edge.dst in inside))


def time_behind(schedule: ss.Schedule, gpu: str) -> float:
    """Return the time in us of a `piece` under a schedule, without the operator that it reads from."""
    trace = ss.simulate(schedule, device(gpu))
    (entry,) = schedule.graph.inputs
    return trace.makespan - trace.operator_times()[entry][1]
