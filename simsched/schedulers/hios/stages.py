"""From a mapping to a schedule in stages: Algorithm 2 around its compiled part, and the list evaluation of stages."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.costmodel import CostModel, default_cost
from simsched.errors import SchedulerError
from simsched.graph.ordering import grouped
from simsched.numeric import is_count
from simsched.schedulers.hios import layout
from simsched.schedulers.hios.instance import Instance, Mapping, address, fill, machine_code
from simsched.schedulers.listing import require_choice, require_finite, require_flag
from simsched.schedulers.protocol import Tools
from simsched.schedulers.stage_costs import StageCost, StageLatencyOption
from simsched.schedules import Schedule

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
        Where its operators run.
    inserted
        Whether devices follow the times in `found`, rather than the priorities.
    """

    def __init__(self, instance: Instance, found: Mapping, inserted: bool) -> None:
        n, device = len(found.device), found.device
        sequence = found.sequence() if inserted else np.arange(n)  # topological, and followed by each device
        self._instance = instance
        self._run = machine_code()
        rows = np.argsort(device[sequence], kind="stable")  # device by device
        self._op = sequence[rows]
        number = np.empty(n, np.int32)
        number[self._op] = np.arange(n, dtype=np.int32)
        src, dst, us = instance.placed_edges(number, device[self._op])
        ptr, edges = grouped(dst, n)
        on = device[self._op]
        order = number[sequence]
        last = np.full(len(instance.devices), layout.NONE, np.int32)
        last[on] = np.arange(n, dtype=np.int32)  # the last of equal ones stays
        numbered = np.arange(n, dtype=np.int32)
        place = np.empty(n, np.int32)
        place[order] = numbered
        self._columns: dict[int, npt.NDArray[Any]] = {
            layout.W_PTR: ptr.astype(np.int32),
            layout.W_FROM: src[edges],
            layout.W_US: us[edges],
            layout.W_DEVICE: on,
            layout.STAGE_OF: numbered.copy(),
            layout.SIZE: np.ones(n, np.int32),
            layout.GROUPED: np.zeros(2 * n, np.int32),  # and room for a part of the order
            layout.ORDER: order,
            layout.PLACE: place,
            layout.TURNS: number,  # by falling priority
            layout.MARK: np.zeros(n, np.int32),
            layout.LAST: last,
            layout.STAGE_TIME: instance.times[on, self._op],
            layout.ENDS_AT: np.zeros(n),
            layout.TRIAL: np.zeros(n),
            layout.NUMBERS: np.zeros(4),
        }
        self._table = table = np.zeros(layout.WINDOW_SIZE, np.int64)
        table[layout.W_OPS], table[layout.W_DEVICES] = n, len(last)
        table[layout.PHASE] = layout.BEGIN
        fill(self._run, table, self._columns)

    @property
    def latency(self) -> float:
        """The makespan in us."""
        return float(self._columns[layout.NUMBERS][layout.LATENCY_NOW])

    def parallelize(self, w: int, costs: StageCosts) -> dict[str, int]:
        """Join neighbours on a device to stages of up to `w` operators, by Algorithm 2; return what was done."""
        table, numbers = self._table.data, self._columns[layout.NUMBERS]
        on, names = self._columns[layout.W_DEVICE].data, self._instance.graph.names
        op = self._instance.order[self._op].tolist()
        table[layout.WIDTH], table[layout.PHASE] = min(w, len(op)), layout.WINDOWS
        run, where, asked = self._run, address(self._table), 0
        run(where)
        while table[layout.STATUS] == layout.ASKS:
            first = table[layout.FIRST]
            groups = tuple((names[i],) for i in op[first : first + table[layout.TAKEN]])
            numbers[layout.ANSWER] = costs(on[first])(groups)
            asked += 1
            run(where)
        return {
            "stages_tried": asked,
            "stages_merged": table[layout.N_MERGED],
            "stages_refused": table[layout.N_REFUSED],
        }

    def schedule(self, scheduler: str, search: dict[str, Any]) -> Schedule:
        """Return the stages as a schedule, their operators launched stage by stage in a topological order."""
        instance, columns = self._instance, self._columns
        order, size, on = columns[layout.ORDER], columns[layout.SIZE], columns[layout.W_DEVICE]
        heads = order[order >= 0]
        sizes = size[heads]
        group = np.arange(len(self._op)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = np.repeat(heads, sizes) + group
        opens = np.cumsum(columns[layout.STAGE_OF] == np.arange(len(self._op)))  # stages up to an operator's own
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
