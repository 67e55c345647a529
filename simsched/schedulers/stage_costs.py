"""What a stage costs: the `stage_latency` option of schedulers that work by stages."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol

import numpy as np

from simsched.base.codec import Amount, Checked
from simsched.base.errors import SchedulerError, UnknownNameError
from simsched.base.numeric import is_number
from simsched.model import Cluster, CostModel, Device, OpGraph, operator_times
from simsched.schedulers.protocol import Tools

Groups = tuple[tuple[str, ...], ...]
NAMES: Final = ("simulated", "hios-sim")


class StageLatencyFunction(Protocol):
    """Anything that answers how many us a stage takes, of a user's as well."""

    def __call__(self, groups: Groups, merged: bool = False) -> float:
        """Return the latency in us of groups side by side, or of all their operators merged into one."""
        ...


@dataclass(frozen=True, slots=True)
class StageFormula(Checked):
    """Latency of a stage by a formula: the longest group, longer with each further group, and a constant.

    ``max over groups of the summed times * (1 + slowdown * (groups - 1)) + constant``, in us; the
    time of merged operators is that of the merged one.

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


StageLatencyOption = str | StageFormula | StageLatencyFunction | Mapping[Groups, float]


class StageCost:
    """Latency in us of a stage of one graph on one device, each stage asked for once.

    Parameters
    ----------
    scheduler
        Who asks, for errors.
    option
        ``"simulated"``; ``"hios-sim"``: half the sum of the times plus half of the larger of the sum of
        time x utilization (1 where unknown) and the longest, of groups the sums and weighted means, and a
        single group its sum; a `StageFormula`; a function of (groups, merged=False); or a table from
        groups to us.
    graph, cluster, cost, tools
        As the scheduler has them.
    device
        Name of the device; None takes the first.
    merged_time
        Time in us of some operators merged into one, for all but functions and tables.
    class_of
        By operator; stages of equal classes, group by group, take equally long. None: operators are not alike.

    Attributes
    ----------
    known
        Latencies of the stages asked for, by classes, or if merged by names; and whether they are.

    Raises
    ------
    UnknownNameError
        If `option` is a name that is not known.
    SchedulerError
        If it is nothing of the kind, or, when asked, a table lacks a stage or an answer is no time.
    """

    def __init__(
        self,
        scheduler: str,
        option: StageLatencyOption,
        graph: OpGraph,
        cluster: Cluster,
        cost: CostModel,
        tools: Tools,
        *,
        device: str | None = None,
        merged_time: Callable[[tuple[str, ...]], float] | None = None,
        class_of: Mapping[str, Hashable] | None = None,
    ) -> None:
        self._scheduler, self._option, self._merged_time = scheduler, option, merged_time
        self._class_of = class_of
        self.known: dict[tuple[Hashable, bool], float] = {}
        self._latency: Callable[[Groups], float] | None = None
        on = cluster.devices[0] if device is None else cluster[device]
        if isinstance(option, StageFormula):
            self._latency = _by_formula(option, graph, on, cost)
        elif isinstance(option, str):
            if option not in NAMES:
                raise UnknownNameError("stage_latency", option, [*NAMES, "a function", "a table", "StageFormula(...)"])
            simulated = option == "simulated"
            self._latency = (
                tools.stage_latency(graph, cluster, cost, device=device) if simulated else _hios_sim(graph, on, cost)
            )
        elif not (isinstance(option, Mapping) or callable(option)):
            raise SchedulerError(
                f"{scheduler}: stage_latency must be {', '.join(NAMES)}, a StageFormula, a function or a table, "
                f"not {option!r}"
            )

    def _ask(self, groups: Groups, merged: bool) -> Any:
        option = self._option
        if self._latency is not None:
            if not merged:
                return self._latency(groups)
            assert self._merged_time is not None, "who merges knows how long that takes"
            return self._merged_time(tuple(name for group in groups for name in group))
        if callable(option):
            return option(groups, merged) if merged else option(groups)
        assert isinstance(option, Mapping)
        if groups not in option:
            what = "merged stage" if merged else "stage"
            raise SchedulerError(f"{self._scheduler}: the stage_latency table has no {what} {groups!r}")
        return option[groups]

    def __call__(self, groups: Groups, merged: bool = False) -> float:
        """Return the latency in us of a stage."""
        look: Hashable = groups
        if self._class_of is not None and not merged:
            look = tuple(tuple(self._class_of[name] for name in group) for group in groups)
        key = look, merged
        if key not in self.known:
            answer = self._ask(groups, merged)
            if not is_number(answer) or not 0 <= answer < inf:
                raise SchedulerError(
                    f"{self._scheduler}: stage_latency says {answer!r} of stage {groups!r}; it must be us, finite and "
                    f"not negative"
                )
            self.known[key] = float(answer)
        return self.known[key]


def _by_formula(formula: StageFormula, graph: OpGraph, device: Device, cost: CostModel) -> Callable[[Groups], float]:
    times = dict(zip(graph.names, operator_times(graph, device, cost).tolist(), strict=True))
    return lambda groups: formula.latency([sum(times[name] for name in group) for group in groups])


def _hios_sim(graph: OpGraph, device: Device, cost: CostModel) -> Callable[[Groups], float]:
    times = operator_times(graph, device, cost)
    time: dict[str, float] = dict(zip(graph.names, times.tolist(), strict=True))
    used = times * np.nan_to_num(graph.utilization, nan=1.0)
    busy: dict[str, float] = dict(zip(graph.names, used.tolist(), strict=True))

    def latency(groups: Groups) -> float:
        sums: list[float] = [sum(time[name] for name in group) for group in groups]
        if len(sums) == 1:
            return sums[0]
        return 0.5 * sum(sums) + 0.5 * max(sum(busy[name] for group in groups for name in group), max(sums))

    return latency
