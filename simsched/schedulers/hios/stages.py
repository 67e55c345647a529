"""From a mapping to a schedule in stages: Algorithm 2 around its compiled part, and the list evaluation of stages."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from simsched.base.errors import SchedulerError
from simsched.base.numeric import is_count
from simsched.model.costmodel import CostModel, default_cost
from simsched.model.graph.ordering import grouped
from simsched.model.schedule import Schedule
from simsched.schedulers.hios.instance import Instance
from simsched.schedulers.hios.placement import NONE, Mapping, insert_mapped
from simsched.schedulers.hios.windows import Stage, Windows, next_stage, run_alone
from simsched.schedulers.listing import require_choice, require_finite, require_flag
from simsched.schedulers.protocol import Tools
from simsched.schedulers.stage_costs import StageCost, StageLatencyOption

MODES: Final = ("paper", "impl")
StageCosts = Callable[[int], StageCost]


def require_options(scheduler: str, *, w: Any = 2, insertion: Any = False, mode: Any = "paper") -> None:
    """Refuse options that are of no use."""
    if not is_count(w, 1):
        raise SchedulerError(f"{scheduler}: w must be a whole number of operators, at least 1, not {w!r}")
    require_flag(scheduler, "insertion", insertion)
    require_choice(scheduler, "mode", mode, MODES)


def finished(
    scheduler: str, stages: "Stages", search: dict[str, int], w: int = 1, costs: StageCosts | None = None
) -> Schedule:
    """Return the schedule, after Algorithm 2 if latencies of stages are given."""
    require_finite(scheduler, stages.latency)
    if costs is not None:
        search |= stages.parallelize(w, costs)
    return stages.schedule(scheduler, search)


def stage_costs(
    scheduler: str, option: StageLatencyOption, instance: Instance, cost: CostModel, tools: Tools
) -> StageCosts:
    """Return what gives the `StageCost` of a device, by its position among those of the instance.

    Devices that differ in the name alone share one, unless a cost model of the user's may tell them apart.
    """
    graph, cluster = instance.graph, instance.cluster
    made: dict[int, StageCost] = {}

    def of(position: int) -> StageCost:
        d = instance.devices[position]
        kind = int(cluster.kind[d]) if cost is default_cost else d
        if kind not in made:
            made[kind] = StageCost(scheduler, option, graph, cluster, cost, tools, device=cluster.devices[d].name)
        return made[kind]

    of(0)  # an option of no use is refused even where no stage is asked for
    return of


class Stages:
    """Operators device by device, each a stage of its own at first.

    Parameters
    ----------
    instance
        What is scheduled.
    found
        Where its operators run; those of a device by priority, or in the order of a listing with insertion.
    """

    def __init__(self, instance: Instance, found: Mapping) -> None:
        n, ops = found.n_ops, found["ops"]
        count = np.arange(n, dtype=np.int32)
        if found.inserts:
            insert_mapped(found)
        # topological, and followed by each device
        sequence = np.lexsort((count, ops["finish"], ops["start"])) if found.inserts else count
        self._instance = instance
        self._op = sequence[np.argsort(ops["device"][sequence], kind="stable")]  # device by device
        self._device = ops["device"][self._op]
        number = np.empty(n, np.int32)
        number[self._op] = count
        src, dst, us = instance.placed_edges(number, self._device)
        ptr, edges = grouped(dst, n)
        order = number[sequence]
        self._stages = stages = np.zeros(n, Stage.dtype)
        stages["time"], stages["size"] = instance.times[self._device, self._op], 1
        stages["first"], stages["place"][order] = count, count
        stages["previous"] = np.where(np.diff(self._device, prepend=NONE) > 0, NONE, count - 1)
        last = count[np.diff(self._device, append=len(instance.devices)) > 0]
        self._windows = Windows(
            n_ops=n,
            n_devices=len(last),
            stages=stages,
            ptr=ptr,
            source=src[edges],
            us=us[edges],
            order=order,
            turns=number,  # by falling priority
            last=last,
        )
        run_alone(self._windows)

    @property
    def latency(self) -> float:
        """The makespan in us."""
        return self._windows.latency

    def parallelize(self, w: int, costs: StageCosts) -> dict[str, int]:
        """Join neighbours on a device to stages of up to `w` operators, by Algorithm 2; return what was done."""
        windows, asked, names = self._windows, 0, self._instance.graph.names
        op, on = self._instance.order[self._op].tolist(), self._device.data
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
        heads = order[is_first[order]]
        sizes = self._stages["size"][heads]
        group = np.arange(len(on)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = np.repeat(heads, sizes) + group
        opens = np.cumsum(is_first)  # stages up to an operator's own
        before = opens[np.searchsorted(on, np.arange(len(instance.devices)))[on]]  # of the device's first stage
        return Schedule.from_columns(
            instance.graph,
            instance.order[self._op[rows]],
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
