"""Latencies of stages: the `stage_latency` option of schedulers that work by stages."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import numpy as np

from simsched.base.codec import Amount, Checked
from simsched.base.errors import SchedulerError, UnknownNameError
from simsched.base.numeric import is_number, sum_in_order
from simsched.model import Cluster, CostModel, Device, Operator, OpGraph, operator_times
from simsched.model.launches import kernels_on, launches_of
from simsched.schedulers.protocol import Tools

Groups = tuple[tuple[str, ...], ...]
NAMES: Final = ("executed", "simulated", "hios-sim")


@dataclass(frozen=True, slots=True)
class StageFormula(Checked):
    """Latency of a stage by a formula: the longest group, longer with each further group, and a constant.

    ``max over groups of the summed times * (1 + slowdown * (groups - 1)) + constant``, in us; merged operators count
    with the merged operator's time.

    Parameters
    ----------
    slowdown
        Part by which every further group slows the stage down, 0 or more.
    constant
        us that any stage costs, 0 or more.

    Raises
    ------
    SchedulerError
        If a value is out of range.
    """

    SUBJECT = "StageFormula"
    ERROR = SchedulerError
    slowdown: Amount = 0.1
    constant: Amount = 3.0

    def latency(self, group_times: Sequence[float]) -> float:
        """Return the latency in us of groups that take so long each."""
        return max(group_times) * (1 + self.slowdown * (len(group_times) - 1)) + self.constant


# a function of (groups, merged=False): the us that groups take side by side, or all their operators merged into one
StageLatencyOption = str | StageFormula | Callable[..., float] | Mapping[Groups, float]


class StageCost:
    """Latency in us of a stage of one graph on one device, each stage asked for once.

    Parameters
    ----------
    scheduler
        Name of the scheduler, for errors.
    option
        ``"executed"``, see `ExecutedStage`; ``"simulated"``, without launches and barrier; ``"hios-sim"``: half the
        sum of the times plus half of the larger of the sum of time x utilization (1 where unknown) and the longest, of
        groups the sums and weighted means, and a single group its sum; a `StageFormula`; a function of
        (groups, merged=False); or a table from groups to us.
    graph, cluster, cost, tools
        As the scheduler has them.
    device
        Where the stage runs.
    merged_time
        Time in us of the operators of a stage merged into one, for all but functions and tables.
    class_of
        Class by operator; stages of equal classes, group by group, take equally long. None: every operator is its own
        class.

    Attributes
    ----------
    known
        Latencies of the stages asked for, by classes, or if merged by names; and whether they are.

    Raises
    ------
    UnknownNameError
        If `option` is a name that is not known.
    SchedulerError
        If the option has another type, a table lacks a stage, or an answer is no time.
    """

    def __init__(
        self,
        scheduler: str,
        option: StageLatencyOption,
        graph: OpGraph,
        cluster: Cluster,
        cost: CostModel,
        tools: Tools,
        device: Device,
        *,
        merged_time: Callable[[Groups], float] | None = None,
        class_of: Mapping[str, Hashable] | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._class_of = class_of
        self.known: dict[tuple[Hashable, bool], float] = {}
        self._ask: Callable[[Groups, bool], Any] = self._look_up
        if isinstance(option, str) and option not in NAMES:
            raise UnknownNameError("stage_latency", option, [*NAMES, "a function", "a table", "StageFormula(...)"])
        if isinstance(option, str | StageFormula):
            latency = _latency_of(option, graph, cluster, cost, tools, device)
            if merged_time is None:
                self._ask = lambda groups, _merged: latency(groups)
            else:
                self._ask = lambda groups, merged: merged_time(groups) if merged else latency(groups)
        elif callable(option):
            self._ask = lambda groups, merged: option(groups, merged) if merged else option(groups)
        elif isinstance(option, Mapping):
            self._table = option
        else:
            raise SchedulerError(
                f"{scheduler}: stage_latency must be {', '.join(NAMES)}, a StageFormula, a function or a table, "
                f"not {option!r}"
            )

    def _look_up(self, groups: Groups, merged: bool) -> float:
        if groups not in self._table:
            what = "merged stage" if merged else "stage"
            raise SchedulerError(f"{self._scheduler}: the stage_latency table has no {what} {groups!r}")
        return self._table[groups]

    def __call__(self, groups: Groups, merged: bool = False) -> float:
        """Return the latency in us of a stage."""
        look: Hashable = groups
        if self._class_of is not None and not merged:
            look = tuple(tuple(self._class_of[name] for name in group) for group in groups)
        key = look, merged
        known = self.known.get(key)
        if known is None:
            answer = self._ask(groups, merged)
            if not (type(answer) is float or is_number(answer)) or not 0 <= answer < inf:
                raise SchedulerError(
                    f"{self._scheduler}: stage_latency says {answer!r} of stage {groups!r}; it must be us, finite and "
                    f"not negative"
                )
            known = self.known[key] = float(answer)
        return known


class ExecutedStage:
    """Latency in us of a stage as an engine measures it on the device: launches and barrier included.

    Parameters
    ----------
    graph
        Whose stages.
    device
        Where they run.
    cost
        Times of operators alone, as in `simulate`: the latency of a group of one, without launches.
    simulated
        Latency of any other stage in us, without launches and barrier, such as `simsched.simulator.StageLatency`.

    Notes
    -----
    The engine repeats a stage of one group without waiting in between, so that its launches overlap its kernels: it
    takes the longer of the two, with the gap after the last kernel. After each run of a stage of several groups it
    waits for the device. Such a stage takes the first launch; then the simulated stage or, where that ends later, the
    kernels of some group from their launch on, as groups are launched one after the other; then the barrier.
    """

    def __init__(
        self, graph: OpGraph, device: Device, cost: CostModel | None, simulated: Callable[[Groups], float]
    ) -> None:
        self._device = device
        self._simulated = simulated
        n_launches = np.diff(kernels_on(graph, device).ptr).tolist()
        self._n_launches: dict[str, int] = dict(zip(graph.names, n_launches, strict=True))
        alone = zip(graph.names, n_launches, operator_times(graph, device, cost).tolist(), strict=True)
        self._known: dict[tuple[str, ...], tuple[int, float]] = {(name,): (count, time) for name, count, time in alone}

    def __call__(self, groups: Groups) -> float:
        """Return the latency of groups side by side."""
        device = self._device
        if len(groups) == 1:
            n_launches, kernels = self._known.get(groups[0]) or self._group(groups[0])
            return max(kernels + device.gap, device.launch * n_launches)
        alone = [self._known.get(group) or self._group(group) for group in groups]
        longest = self._simulated(groups)
        before = 0
        for n_launches, kernels in alone:
            longest = max(longest, device.launch * before + kernels)
            before += n_launches
        return device.launch + longest + device.barrier_many

    def _group(self, group: tuple[str, ...]) -> tuple[int, float]:
        """Return how many kernels a group launches, and how long they take alone in us."""
        n_launches = sum(self._n_launches[name] for name in group)
        self._known[group] = (n_launches, self._simulated((group,)))
        return self._known[group]


def executed_in_turn(ops: Sequence[Operator], times: Sequence[float], device: Device) -> float:
    """Return the latency in us of operators one after the other, as `ExecutedStage` computes it for one group.

    Parameters
    ----------
    ops, times
        The operators, and the time of each alone in us.
    """
    n_launches = sum(1 for op in ops for launch in launches_of(op, device) if launch.blocks)  # a view has none
    return max(sum_in_order(time + device.gap for time in times), device.launch * n_launches)


def _latency_of(
    option: str | StageFormula, graph: OpGraph, cluster: Cluster, cost: CostModel, tools: Tools, device: Device
) -> Callable[[Groups], float]:
    """Return the latency of a stage by its name or a formula."""
    if option not in ("executed", "simulated"):
        return _of_times(option, graph, device, cost)
    simulated = tools.stage_latency(graph, cluster, cost, device=device.name)
    if option == "simulated":
        return simulated
    return ExecutedStage(graph, device, cost, simulated)


def _of_times(option: str | StageFormula, graph: OpGraph, device: Device, cost: CostModel) -> Callable[[Groups], float]:
    """Return the latency of a stage by a formula, or as HIOS simulates it, from the times of the operators."""
    times = operator_times(graph, device, cost)
    time: dict[str, float] = dict(zip(graph.names, times.tolist(), strict=True))
    used = times * np.nan_to_num(graph.utilization, nan=1.0)
    busy: dict[str, float] = dict(zip(graph.names, used.tolist(), strict=True))

    def latency(groups: Groups) -> float:
        sums: list[float] = [sum_in_order(time[name] for name in group) for group in groups]
        if isinstance(option, StageFormula):
            return option.latency(sums)
        if len(sums) == 1:
            return sums[0]
        return 0.5 * sum_in_order(sums) + 0.5 * max(
            sum_in_order(busy[name] for group in groups for name in group), max(sums)
        )

    return latency
