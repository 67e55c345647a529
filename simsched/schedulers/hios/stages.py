"""What all HIOS schedulers do: the instance, and from a mapping to stages by Algorithm 2 and its compiled part."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, piece
from simsched.model import Cluster, CostModel, OpGraph, Schedule, default_cost
from simsched.model.graph.ordering import grouped
from simsched.schedulers.hios.placement import NONE, Mapping, Operator
from simsched.schedulers.instance import Instance
from simsched.schedulers.listing import by_priority, place_of, require_finite
from simsched.schedulers.protocol import Tools
from simsched.schedulers.stage_costs import StageCost, StageLatencyOption


class Stage(Row):
    """An operator, and the stage that begins with it."""

    time: f8  # that the stage takes
    end: f8
    first: i4  # operator of the stage that this one is in
    size: i4
    place: i4  # in the order
    previous: i4  # operator on the device, or -1
    mark: i4  # the last search that met it


class Windows(Table):
    """Operators device by device, and the window that slides over them."""

    n_ops: i8
    n_devices: i8  # with operators
    width: i8
    turn: i8
    first: i8  # operator in the window
    taken: i8  # operators to be one stage
    best_taken: i8
    stamp: i8  # of the search that marks
    n_merged: i8
    n_refused: i8
    answer: f8  # what the stage asked for takes
    latency: f8  # of the whole
    best: f8
    best_time: f8
    stages: Rows[Stage]
    ptr: Column[i8]
    source: Column[i4]  # of each input
    us: Column[f8]
    order: Column[i4]  # topological
    turns: Column[i4]  # first operators of the windows, one after the other
    last: Column[i4]  # operator of each device
    followers: Column[i4] = length("n_ops")


def stage_of(t: Windows, i: int) -> Stage:
    """Return the stage that an operator is in."""
    return t.stages[t.stages[i].first]


def end_of(t: Windows, s: int) -> float:
    """Return when a stage ends: it starts when the one before it on its device and all inputs are there."""
    stage, start = t.stages[s], 0.0
    if stage.previous >= 0:
        start = stage_of(t, stage.previous).end
    for e in range(t.ptr[s], t.ptr[s + stage.size]):
        start = max(start, stage_of(t, t.source[e]).end + t.us[e])
    return start + stage.time


def evaluate(t: Windows, begin: int) -> float:
    """Find the ends of stages from a place in the order on; return when the last device is done.

    What does not follow the stage of that place, wherever it stands in the order, ends as before.
    """
    makespan = 0.0
    for at in range(begin, t.n_ops):
        stage = t.stages[t.order[at]]
        if stage.first == t.order[at]:
            stage.end = end_of(t, stage.first)
    for d in range(t.n_devices):
        makespan = max(makespan, stage_of(t, t.last[d]).end)
    return makespan


def reads_marked(t: Windows, s: int) -> bool:
    """Return whether a stage has an input from one that is marked."""
    for e in range(t.ptr[s], t.ptr[s + t.stages[s].size]):
        if stage_of(t, t.source[e]).mark == t.stamp:
            return True
    return False


def can_merge(t: Windows, taken: int) -> bool:
    """Mark what follows from the first of `taken` operators up to the last; return whether none of these does.

    What follows in the data, in another device's order, or in both by turns: an in-order execution
    would wait for ever if operators of one stage waited for each other so.
    """
    first, after = t.first, t.first + taken
    t.stamp += 1
    t.stages[first].mark = t.stamp
    for at in range(t.stages[first].place + 1, t.stages[after - 1].place + 1):
        s = t.order[at]
        stage = t.stages[s]
        if stage.first != s:
            continue
        follows, inside = reads_marked(t, s), first < s and s < after
        if follows and inside:
            return False
        if follows or inside or (stage.previous >= 0 and stage_of(t, stage.previous).mark == t.stamp):
            stage.mark = t.stamp
    return True


def set_stage(t: Windows, size: int, us: float) -> None:
    """Make the first `size` operators of the window a stage that takes `us`, the others stages of their own."""
    for k in range(t.taken):
        t.stages[t.first + k].first = t.first if k < size else t.first + k
    stage = t.stages[t.first]
    stage.size, stage.time = size, us


def rearrange(t: Windows, taken: int) -> None:
    """Put the joined stage into the order: behind what does not follow it, before what does."""
    begin, end = t.stages[t.first].place, t.stages[t.first + taken - 1].place
    at, n_followers = begin, 0
    for place in range(begin, end + 1):
        stage = t.stages[t.order[place]]
        if stage.mark != t.stamp:
            t.order[at] = t.order[place]
            at += 1
        elif stage.first != t.first:
            t.followers[n_followers] = t.order[place]
            n_followers += 1
    for k in range(taken):
        t.order[at + k] = t.first + k
    for k in range(n_followers):
        t.order[at + taken + k] = t.followers[k]
    for place in range(begin, end + 1):
        t.stages[t.order[place]].place = place


def try_stage(t: Windows) -> None:
    """Take the answer to the question asked, and note the stage if the makespan with it is the least so far."""
    alone, begin = t.stages[t.first].time, t.stages[t.first].place
    set_stage(t, t.taken, t.answer)
    makespan = evaluate(t, begin)
    set_stage(t, 1, alone)
    evaluate(t, begin)
    if makespan < t.best:
        t.best, t.best_time, t.best_taken = makespan, t.answer, t.taken


def can_widen(t: Windows) -> bool:
    """Return whether the window has room for the operator after it, and both are in no stage of several."""
    after = t.first + t.taken
    if t.taken >= t.width or after >= t.n_ops or t.stages[after].previous < 0:
        return False
    return stage_of(t, t.first).size == 1 and stage_of(t, after).size == 1


def close(t: Windows) -> None:
    """Keep the best stage of the window, if any is better than none."""
    if t.best_taken > 1:
        can_merge(t, t.best_taken)
        set_stage(t, t.best_taken, t.best_time)
        t.latency = evaluate(t, t.stages[t.first].place)
        rearrange(t, t.best_taken)
        t.n_merged += 1
    t.turn += 1
    t.taken = 0


@piece("HIOS schedulers")
def run_alone(t: Windows) -> None:
    """Evaluate every operator as a stage of its own."""
    t.latency = evaluate(t, 0)


@piece("HIOS schedulers")
def next_stage(t: Windows) -> None:
    """Go on to the next stage whose latency has to be asked for, or to the end of the turns."""
    if t.taken > 0:
        try_stage(t)
    while t.turn < t.n_ops:
        if t.taken == 0:
            t.first, t.taken, t.best_taken, t.best = t.turns[t.turn], 1, 1, t.latency
        if can_widen(t):
            if can_merge(t, t.taken + 1):
                t.taken += 1
                return
            t.n_refused += 1
        close(t)


class Ranked(Instance):
    """Operators numbered by falling priority.

    The priority is the longest path to an output, with the mean time over devices and the mean transfer over pairs of
    them; equal ones keep the topological order.

    Attributes
    ----------
    order
        The operators, shape (n_ops,).
    """

    def __init__(self, graph: OpGraph, cluster: Cluster, cost: CostModel) -> None:
        super().__init__(graph, cluster, cost)
        self.order = by_priority(graph, self.upward_rank())

    def mapping(self, *, released: bool = False, **numbers: int) -> Mapping:
        """Return a table of operators that are not mapped yet, and of `numbers`."""
        n, number = len(self.graph), place_of(self.order).astype(np.int32)
        src, dst = number[self.graph.src], number[self.graph.dst]
        (in_ptr, inputs), (out_ptr, outputs) = self.edges(dst, src), self.edges(src, dst)
        ops = np.zeros(n, Operator.dtype)
        ops["device"], ops["mean_us"], ops["n_inputs"] = NONE, self.mean_time[self.order], np.diff(in_ptr)
        return Mapping(
            **numbers, released=released, n_ops=n, n_devices=len(self.devices), ops=ops, in_ptr=in_ptr, inputs=inputs,
            out_ptr=out_ptr, outputs=outputs, time=np.ascontiguousarray(self.times[:, self.order]),
            latency=self.latency, bandwidth=self.bandwidth,
            order=number if released else np.arange(n, dtype=np.int32),
        )  # fmt: skip


StageCosts = Callable[[int], StageCost]


def scheduled(
    scheduler: str,
    map_all: Callable[[Ranked, bool], tuple[Mapping, dict[str, int]]],
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    mode: str,
    w: int = 1,
    stage_latency: StageLatencyOption = "simulated",
    tools: Tools | None = None,
) -> Schedule:
    """Return the schedule of a mapping, after Algorithm 2 if there are `tools` to ask for latencies of stages.

    Parameters
    ----------
    map_all
        Maps all operators, if told so as the released code does; says what `search` holds.
    """
    instance = Ranked(graph, cluster, cost)
    found, search = map_all(instance, mode == "impl")
    stages = Stages(instance, found)
    costs = None if tools is None else stage_costs(scheduler, stage_latency, instance, cost, tools)
    require_finite(scheduler, stages.latency)
    if costs is not None:
        search |= stages.parallelize(w, costs)
    return stages.schedule(scheduler, search)


def stage_costs(
    scheduler: str, option: StageLatencyOption, instance: Ranked, cost: CostModel, tools: Tools
) -> StageCosts:
    """Return what gives the `StageCost` of a device, by its position among those of the instance.

    Devices that differ in the name alone share one, unless a cost model of the user's may tell them apart.
    """
    graph, cluster = instance.graph, instance.cluster
    kinds = cluster.kind.tolist() if cost is default_cost else list(range(len(cluster)))

    @cache
    def of_kind(kind: int) -> StageCost:
        device = cluster.devices[kinds.index(kind)].name
        return StageCost(scheduler, option, graph, cluster, cost, tools, device=device)

    of_kind(kinds[0])  # an option of no use is refused even where no stage is asked for
    return lambda position: of_kind(kinds[instance.devices[position]])


class Stages:
    """Operators device by device, each a stage of its own at first.

    Parameters
    ----------
    instance
        What is scheduled.
    found
        Where its operators run; those of a device by priority.
    """

    def __init__(self, instance: Ranked, found: Mapping) -> None:
        n, graph, by_priority = found.n_ops, instance.graph, found["ops"]["device"]
        count = np.arange(n, dtype=np.int32)
        by_device = np.argsort(by_priority, kind="stable")
        self._instance, self._op, self._device = instance, instance.order[by_device], by_priority[by_device]
        place, number = place_of(self._op), place_of(by_device).astype(np.int32)
        src, dst = place[graph.src], place[graph.dst]
        us = instance.moving(slice(None), self._device[src], self._device[dst])
        ptr, edges = grouped(dst, n)
        self._stages = stages = np.zeros(n, Stage.dtype)
        stages["time"], stages["size"] = instance.times[self._device, self._op], 1
        stages["first"], stages["place"][number] = count, count
        stages["previous"] = np.where(np.diff(self._device, prepend=NONE) > 0, NONE, count - 1)
        last = count[np.diff(self._device, append=len(instance.devices)) > 0]
        self._windows = Windows(
            n_ops=n, n_devices=len(last), stages=stages, ptr=ptr, source=src[edges].astype(np.int32), us=us[edges],
            order=number.copy(), turns=number, last=last,  # order is topological, windows in turn by falling priority
        )  # fmt: skip
        run_alone(self._windows)

    @property
    def latency(self) -> float:
        """The makespan in us."""
        return self._windows.latency

    def parallelize(self, w: int, costs: StageCosts) -> dict[str, int]:
        """Join neighbours on a device to stages of up to `w` operators, by Algorithm 2; return what was done."""
        windows, asked, names = self._windows, 0, self._instance.graph.names
        op, on = self._op.tolist(), self._device.data
        windows.width = min(w, len(op))
        next_stage(windows)
        while windows.turn < windows.n_ops:
            first = windows.first
            groups = tuple((names[i],) for i in op[first : first + windows.taken])
            windows.answer = costs(on[first])(groups)
            asked += 1
            next_stage(windows)
        return {"stages_tried": asked, "stages_merged": windows.n_merged, "stages_refused": windows.n_refused}

    def schedule(self, scheduler: str, search: dict[str, Any]) -> Schedule:
        """Return the stages as a schedule, their operators launched stage by stage in a topological order."""
        instance, on, order = self._instance, self._device, self._windows["order"]
        is_first = self._stages["first"] == np.arange(len(on))
        heads = order[is_first[order]]  # those of a stage behind its first need not follow it in the order
        sizes = self._stages["size"][heads]
        group = np.arange(len(on)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = np.repeat(heads, sizes) + group
        opens = np.cumsum(is_first)  # stages up to an operator's own
        before = opens[np.searchsorted(on, np.arange(len(instance.devices)))[on]]  # of the device's first stage
        return Schedule.from_columns(
            instance.graph, self._op[rows], [device.name for device in instance.cluster.devices],
            device=np.array(instance.devices)[on[rows]], stream=group, stage=(opens - before)[rows], group=group,
            execution="stages", estimate=self.latency, scheduler=scheduler, search=search,
        )  # fmt: skip
