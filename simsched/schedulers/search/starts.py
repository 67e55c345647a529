"""What a search begins from: schedules of others, each under the executions that may be."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import CostError, SchedulerError, SimschedError
from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel
from simsched.model.graph import OpGraph
from simsched.model.program import EXECUTIONS
from simsched.model.schedule import Schedule
from simsched.schedulers.listing import readers, sources
from simsched.schedulers.protocol import Tools
from simsched.schedulers.search.candidate import dense_streams, launch_order

FAST: Final = (
    "sequential",
    "greedy",
    "lios",
    "heft",
    "peft",
    "etf",
    "hios-lp",
    "hios-mr",
    "inter-lp",
    "opara",
    "nimble",
)
"""The schedulers of which a search takes the schedules unless it is told others."""


@dataclass(frozen=True, slots=True)
class Start:
    """A schedule to begin from, who made it, its simulated makespan in us, and whether it is as it was given."""

    name: str
    plan: Schedule
    makespan: float
    given: bool


def plans(
    starts: Sequence[str | Schedule],
    also: Sequence[str | Schedule],
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    tools: Tools,
    enough: Callable[[], bool],
) -> Iterator[tuple[str, Schedule]]:
    """Yield the schedules to begin from by name; of the fast schedulers, those that refuse are left out.

    Once there are `enough` no more are made; schedules that were given are there anyway.
    """
    for start in (*(starts or FAST), *also):
        if isinstance(start, Schedule):
            yield start.scheduler, start.check(cluster)
        elif not enough():
            try:
                plan = tools.schedule(graph, cluster, start, cost)
            except CostError:
                raise  # all others would refuse too
            except SimschedError:
                if starts or start in also:
                    raise
                continue
            yield start, plan


def variants(
    name: str,
    plan: Schedule,
    cluster: Cluster,
    cost: CostModel,
    tools: Tools,
    execution: str | None,
    streams: int | None,
) -> list[Start]:
    """Return a schedule and its placement under each execution that may be, those that can run."""
    order = launch_order(plan, sources(plan.graph), readers(plan.graph))
    fits = streams is None or most_streams(plan) <= streams
    found = []
    for how in EXECUTIONS if execution is None else (execution,):
        if how == "stages" and plan.execution != "stages" and execution is None:
            continue  # no scheduler's: one operator a stage, which events do better
        given = how == plan.execution and fits
        made = plan if given else executed(plan, how, order, streams)
        try:
            found.append(Start(name, made.check(cluster), tools.makespan(made, cluster, cost), given))
        except CostError:
            raise
        except SimschedError:
            continue  # groups that share a stream now, or a copy without a way to its destination
    return found


def executed(plan: Schedule, execution: str, order: npt.NDArray[np.int64], streams: int | None) -> Schedule:
    """Return the placement of a plan under an execution, in a launch order.

    Parameters
    ----------
    streams
        Most streams per device: those beyond share the first ones; None for no limit.
    """
    place = np.empty(len(plan), np.int64)
    place[plan.op] = np.arange(len(plan))
    rows = place[order]
    device, stream, stage = plan.device[rows], plan.stream[rows], plan.stage[rows]
    if streams is not None:
        stream = dense_streams(device, stream) % streams
    if execution != "stages":
        return Schedule.from_columns(
            plan.graph, order, plan.devices, device=device, stream=stream, priority=plan.priority[rows],
            execution=execution,
        )  # fmt: skip
    if plan.execution != "stages":
        stage = _one_by_one(device)
    return Schedule.from_columns(
        plan.graph, order, plan.devices, device=device, stream=stream, stage=stage, group=stream,
        priority=plan.priority[rows], execution=execution,
    )  # fmt: skip


def most_streams(plan: Schedule) -> int:
    """Return the most streams that a schedule uses on a device."""
    device = np.unique(plan.device * np.int64(2**31) + plan.stream) >> 31
    return int(np.bincount(device).max())


def _one_by_one(device: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return stages of one operator each, in launch order on each device."""
    stage = np.zeros(len(device), np.int64)
    for d in np.unique(device).tolist():
        mine = np.flatnonzero(device == d)
        stage[mine] = np.arange(len(mine))
    return stage


def require_starts(option: str, starts: object) -> tuple[str | Schedule, ...]:
    """Return the starts as a tuple; refuse what is neither names of schedulers nor schedules."""
    given = (starts,) if isinstance(starts, str | Schedule) else starts
    if not isinstance(given, list | tuple) or not all(isinstance(start, str | Schedule) for start in given):
        raise SchedulerError(f"search: {option} must be names of schedulers or schedules, not {starts!r}")
    return tuple(given)
