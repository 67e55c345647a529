"""HIOS-LP, longest paths onto devices, and HIOS-MR, mappings recorded for each; with stages or without."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from simsched.base.codec import Size
from simsched.model import Cluster, CostModel, OpGraph, Schedule, default_cost
from simsched.model.graph.columns import edges_by_end
from simsched.schedulers.hios import native
from simsched.schedulers.hios.native import NONE, Mapping, Stage
from simsched.schedulers.instance import Instance, by_priority, place_of, require_finite
from simsched.schedulers.protocol import Mode, Tools
from simsched.schedulers.stage_costs import Groups, StageCost, StageLatencyOption


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
        n = len(self.graph)
        number = place_of(self.order).astype(np.int32)
        src = number[self.graph.src]
        dst = number[self.graph.dst]
        (in_ptr, inputs) = self.edges(dst, src)
        (out_ptr, outputs) = self.edges(src, dst)
        ops = np.zeros(n, native.MappedOperator.dtype)
        ops["device"] = NONE
        ops["mean_us"] = self.mean_time[self.order]
        ops["n_inputs"] = np.diff(in_ptr)
        return Mapping(
            **numbers,
            released=released,
            n_ops=n,
            n_devices=len(self.devices),
            ops=ops,
            in_ptr=in_ptr,
            inputs=inputs,
            out_ptr=out_ptr,
            outputs=outputs,
            time=np.ascontiguousarray(self.times[:, self.order]),
            latency=self.latency,
            bandwidth=self.bandwidth,
            order=number if released else np.arange(n, dtype=np.int32),
        )


class Stages:
    """Operators device by device, at first one stage each.

    Parameters
    ----------
    instance
        Operators, devices and times.
    found
        Result of the mapping: the device of each operator, and each device's operators by priority.
    costs
        Latency of a stage by device (as numbered in the instance), for stages of one operator, too; None: stages of one
        operator take the operator's time.
    """

    def __init__(
        self, instance: Ranked, found: Mapping, costs: Callable[[int], Callable[[Groups], float]] | None = None
    ) -> None:
        n = found.n_ops
        graph = instance.graph
        by_priority = found["ops"]["device"]
        count = np.arange(n, dtype=np.int32)
        by_device = np.argsort(by_priority, kind="stable")
        self._instance = instance
        self._op = instance.order[by_device]
        self._device = by_priority[by_device]
        place = place_of(self._op)
        number = place_of(by_device).astype(np.int32)
        src = place[graph.src]
        dst = place[graph.dst]
        us = instance.moving(slice(None), self._device[src], self._device[dst])
        ptr, edges = edges_by_end(dst, n)
        self._stages = stages = np.zeros(n, Stage.dtype)
        stages["time"] = instance.times[self._device, self._op]
        if costs is not None:
            rows = zip(self._device.tolist(), self._op.tolist(), strict=True)
            stages["time"] = [costs(position)(((graph.names[op],),)) for position, op in rows]
        stages["size"] = 1
        stages["first"] = count
        stages["place"][number] = count
        stages["previous"] = np.where(np.diff(self._device, prepend=NONE) > 0, NONE, count - 1)
        last = count[np.diff(self._device, append=len(instance.devices)) > 0]
        self._windows = native.WindowTable(
            n_ops=n,
            n_devices=len(last),
            stages=stages,
            ptr=ptr,
            source=src[edges].astype(np.int32),
            us=us[edges],
            order=number.copy(),
            turns=number,
            last=last,  # order is topological, windows in turn by falling priority
        )
        native.run_alone(self._windows)

    @property
    def latency(self) -> float:
        """The makespan in us."""
        return self._windows.latency

    def parallelize(self, w: int, costs: Callable[[int], Callable[[Groups], float]]) -> dict[str, int]:
        """Join neighbours on a device to stages of up to `w` operators, by Algorithm 2; return statistics.

        `costs` has the latency of stages by device, as numbered in the instance.
        """
        windows = self._windows
        questions = 0
        names = tuple(self._instance.graph.names)
        groups = [(names[i],) for i in self._op.tolist()]
        on = self._device.data
        windows.width = min(w, len(groups))
        native.next_stage(windows)
        while windows.turn < windows.n_ops:
            first = windows.first
            windows.answer = costs(on[first])(tuple(groups[first : first + windows.taken]))
            questions += 1
            native.next_stage(windows)
        return {"stages_tried": questions, "stages_merged": windows.n_merged, "stages_refused": windows.n_refused}

    def schedule(self, scheduler: str, search: dict[str, Any]) -> Schedule:
        """Return the stages as a schedule, their operators launched stage by stage in a topological order."""
        instance = self._instance
        on = self._device
        order = self._windows["order"]
        is_first = self._stages["first"] == np.arange(len(on))
        heads = order[is_first[order]]  # only the first operator of a stage need follow it in the order
        sizes = self._stages["size"][heads]
        group = np.arange(len(on)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = np.repeat(heads, sizes) + group
        opens = np.cumsum(is_first)  # stages up to an operator's own
        before = opens[np.searchsorted(on, np.arange(len(instance.devices)))[on]]  # of the device's first stage
        return Schedule.from_columns(
            instance.graph,
            self._op[rows],
            [device.name for device in instance.cluster.devices],
            device=np.array(instance.devices)[on[rows]],
            stream=group,
            stage=(opens - before)[rows],
            group=group,
            execution="stages",
            estimate=self.latency,
            scheduler=scheduler,
            search=search,
        )


def schedule_mapping(
    scheduler: str,
    map_all: Callable[[Ranked, bool], tuple[Mapping, dict[str, int]]],
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    mode: str,
    w: int = 1,
    stage_latency: StageLatencyOption = "executed",
    tools: Tools | None = None,
) -> Schedule:
    """Return the schedule of a mapping, after Algorithm 2 if there are `tools` to ask for latencies of stages.

    Devices that differ in the name alone share a `StageCost`, unless the cost model distinguishes them by name.

    Parameters
    ----------
    map_all
        Maps all operators, in one mode as the released code does; returns the contents of `search`.
    """
    instance = Ranked(graph, cluster, cost)
    mapping, search = map_all(instance, mode == "impl")
    if tools is None:
        stages = Stages(instance, mapping)
        require_finite(scheduler, stages.latency)
        return stages.schedule(scheduler, search)
    if cost is default_cost:
        kinds = cluster.kind.tolist()
    else:
        kinds = list(range(len(cluster)))

    @cache
    def of_kind(kind: int) -> StageCost:
        device = cluster.devices[kinds.index(kind)]
        return StageCost(scheduler, stage_latency, graph, cluster, cost, tools, device)

    def costs(position: int) -> StageCost:
        return of_kind(kinds[instance.devices[position]])

    of_kind(kinds[0])  # an option of no use is refused even where no stage is asked for
    stages = Stages(instance, mapping, costs if stage_latency == "executed" else None)
    require_finite(scheduler, stages.latency)
    search |= stages.parallelize(w, costs)
    return stages.schedule(scheduler, search)


def hios_lp(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    *,
    tools: Tools,
    stage_latency: StageLatencyOption = "executed",
    w: Size = 2,
    mode: Mode = "paper",
) -> Schedule:
    """Map longest paths onto devices as `inter_lp` does, then run neighbours on a device side by side.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Time of an operator alone on a device, in us.
    stage_latency
        Latency of a stage of two operators or more, each a separate group, see `StageCost`; an operator alone takes its
        `cost`, and needs no latency. With ``"hios-sim"`` an operator without a utilization counts as one that fills the
        device.
    w
        Operators in a window, at least 1; with 1 every operator stays a separate stage.
    mode
        As in `inter_lp`.

    Returns
    -------
    Schedule
        A schedule with ``execution="stages"``, the operators of a stage on streams 0, 1, ...; `estimate` is the
        makespan if a stage starts when its device is free and all inputs of all its operators are there, and takes its
        latency; without launch and synchronisation. `search` holds ``paths``, ``stages_tried`` (latencies asked for),
        ``stages_merged`` and ``stages_refused`` (operators that must not be one stage).

    Raises
    ------
    SchedulerError
        If an option is out of range.

    Notes
    -----
    HIOS [1]_, Algorithms 1 and 2. Algorithm 2: operators in falling priority; a window starts at each that is not yet
    in a stage of several, and holds it and up to `w` - 1 that follow it on its device, as long as they are in no such
    stage either. Its first 2, 3, ... `w` operators are tried as one stage; the one of least makespan is kept if that is
    strictly less than without, on ties the smallest. Apart from that, the order of a device never changes.

    The operators of a stage must not depend on each other, and merging them must close no cycle. The paper looks for
    one in the dependencies alone. Its check accepts stages for which an in-order execution waits for ever: A, B on one
    device, C, D on another, A -> C, D -> B; {A, B} waits for D, which is queued after C, which waits for A. Here the
    orders of the devices count as well.

    Each stage tried is evaluated from its place in the order on, until the makespan cannot be less any more: O(V (V +
    E)) in all without Algorithm 1, and up to V (w - 1) questions for a latency.

    The released Algorithm 2 evaluates with the clock of a device instead of finish times and in the order of
    numbers that are not topological, sums parallel edges between stages, accepts stages that gain
    nothing and such as never finish. ``mode="impl"`` has none of that: its stages could not always run.

    References
    ----------
    .. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
       Learning Models on Multiple GPUs", IEEE CLUSTER 2023.

    Examples
    --------
    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator(name, time=5.0, utilization=0.5) for name in "abc"])
    >>> plan = ss.schedule(graph, ss.Cluster.preset("a40"), hios_lp, stage_latency="hios-sim")
    >>> [row.stage for row in plan.placements], plan.estimate, dict(plan.search)
    ([0, 0, 1], 12.5, {'paths': 3, 'stages_tried': 1, 'stages_merged': 1, 'stages_refused': 0})
    """
    return schedule_mapping("hios-lp", _by_paths, graph, cluster, cost, mode, w, stage_latency, tools)


def inter_lp(graph: OpGraph, cluster: Cluster, cost: CostModel, *, mode: Mode = "paper") -> Schedule:
    """Map the longest remaining path onto the device that gives the least latency, until all is mapped.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Time of an operator alone on a device, in us.
    mode
        ``"paper"``: the algorithm as printed; ``"impl"``: the mapping of the released code (see Notes),
        with the stages, the order and the estimate of the paper.

    Returns
    -------
    Schedule
        One operator per stage, ``execution="stages"``; `estimate` is the makespan of the list schedule
        below, without launch, synchronisation and contention. `search` holds ``paths``, their number.

    Raises
    ------
    SchedulerError
        If an option is out of range.

    Notes
    -----
    HIOS [1]_, Algorithm 1 (HIOS-LP) without Algorithm 2. A path is valid if no operator of it but the first and the
    last is next to a mapped one; its length counts operators, the edges between them, and the longest edge from the
    mapped part to the first and from the last to the mapped part. The longest is found by a dynamic program with two
    states (first operator or not), O(V + E), instead of the paper's O(V^2 E). Each device is tried: mapped operators in
    falling priority (longest path to an output, transfers included), each after the others of its device (the worked
    example has no insertion) and when its inputs are there. Only operators from the path's first one on are evaluated
    again, and only until the device cannot be the best any more. O(paths x devices x (V + E)) in all.

    Ties: priorities by topological position; equal paths continue rather than end, and then take the
    operator of higher priority, from their first operators on; equal latencies take the lowest device, the first path
    device 0.

    On unequal devices priorities and lengths use the mean time over devices and, where links differ, the mean transfer
    over pairs of devices; the evaluation uses each device's and link's own times. Devices that links do not join to
    earlier devices get no operator, unless all transfers are given as exact times. On one device transfers count
    nothing.

    The released code peels edges rather than operators, so that a path may lead through mapped ones, does not count the
    first operator of a path, gives ties to the last device, tries devices for the first path too, and evaluates in the
    order of the operators given, with the clock of a device instead of the finish times on it; this is ``mode="impl"``.
    Its rounding of slack to whole ms, for which it never ends on some graphs, and its operators without edges, which it
    maps nowhere, are not followed (the latter go to device 0).

    References
    ----------
    .. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
       Learning Models on Multiple GPUs", IEEE CLUSTER 2023.

    Examples
    --------
    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator(name, time=5.0) for name in "abc"])
    >>> plan = ss.schedule(graph, ss.Cluster.preset("a40", 2), inter_lp)
    >>> [row.device for row in plan.placements], plan.estimate
    (['gpu0', 'gpu1', 'gpu0'], 10.0)
    """
    return schedule_mapping("inter-lp", _by_paths, graph, cluster, cost, mode)


def _by_paths(instance: Ranked, released: bool) -> tuple[Mapping, dict[str, int]]:
    """Return the operators on their devices by Algorithm 1, and statistics of the search."""
    mapping = instance.mapping(released=released, n_open=len(instance.graph.src if released else instance.graph))
    while mapping.n_open:
        native.map_paths(mapping)
    if released:
        mapping["ops"]["device"] = np.maximum(mapping["ops"]["device"], 0)  # operators without edges
    return mapping, {"paths": mapping.n_paths}


def hios_mr(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    *,
    tools: Tools,
    stage_latency: StageLatencyOption = "executed",
    w: Size = 2,
    mode: Mode = "paper",
) -> Schedule:
    """Map operators by the mappings of earlier operators as `inter_mr` does, then join neighbours to stages.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Time of an operator alone on a device, in us.
    stage_latency, w
        As in `hios_lp`.
    mode
        As in `inter_mr`.

    Returns
    -------
    Schedule
        As of `hios_lp`, without ``paths``.

    Raises
    ------
    SchedulerError
        If an option is out of range.

    Notes
    -----
    HIOS [1]_, Algorithms 3 and 2: `inter_mr`, then the windows of `hios_lp`, which see.

    References
    ----------
    .. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
       Learning Models on Multiple GPUs", IEEE CLUSTER 2023.
    """
    return schedule_mapping("hios-mr", _by_records, graph, cluster, cost, mode, w, stage_latency, tools)


def inter_mr(graph: OpGraph, cluster: Cluster, cost: CostModel, *, mode: Mode = "paper") -> Schedule:
    """Map operators one by one, with a mapping of all before recorded for each device that the last is on.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Time of an operator alone on a device, in us.
    mode
        ``"paper"``: the algorithm as printed; ``"impl"``: the mapping of the released code (see Notes),
        with the order and the estimate of the paper.

    Returns
    -------
    Schedule
        One operator per stage, ``execution="stages"``; `estimate` is the makespan of the list schedule
        of the mapping, without launch, synchronisation and contention.

    Raises
    ------
    SchedulerError
        If an option is out of range.

    Notes
    -----
    HIOS [1]_, Algorithm 3 (HIOS-MR) without Algorithm 2. Operators in falling priority (see `inter_lp`); the i-th may
    go to the first i devices. State (i, j) is the i-th operator on device j: of the mappings recorded in the states (i
    - 1, k) it extends the one after which the operator ends first, where it starts after all operators of this mapping
    on device j and when its inputs are there. Ties take the first k; of the last operator's states, the mapping of
    least makespan is taken, on ties the first j (on a graph of one output this is the earliest end of the last
    operator, as printed).

    O(M^2 (V + E)) for the times, with M devices, and O(M V^2) for copying the recorded mappings.

    Unequal devices and links are treated as in `inter_lp`. In the released code only the first producer of an operator
    counts, the first operator takes no time, the second may go to any device, and the earliest end recorded for the
    last operator decides; this is ``mode="impl"``.

    References
    ----------
    .. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
       Learning Models on Multiple GPUs", IEEE CLUSTER 2023.
    """
    return schedule_mapping("inter-mr", _by_records, graph, cluster, cost, mode)


def _by_records(instance: Ranked, released: bool) -> tuple[Mapping, dict[str, int]]:
    """Return the operators on their devices by Algorithm 3."""
    mapping = instance.mapping(released=released, n_states=1)
    while mapping.at < mapping.n_ops:
        native.record(mapping)
    n_devices = mapping.n_devices
    free = mapping["free"].reshape(2, n_devices, n_devices)[mapping.at % 2, : mapping.n_states]
    best = int(np.argmin(free.diagonal() if released else free.max(axis=1)))
    mapping["ops"]["device"] = mapping["mapped"].reshape(2, n_devices, mapping.n_ops)[mapping.at % 2, best]
    return mapping, {}
