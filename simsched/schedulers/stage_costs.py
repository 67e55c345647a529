"""What a stage costs: the `stage_latency` option of schedulers that work by stages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol

import numpy as np

from simsched.base.errors import SchedulerError, UnknownNameError
from simsched.base.numeric import is_number
from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel, operator_times
from simsched.model.graph import OpGraph
from simsched.schedulers.protocol import Tools

Groups = tuple[tuple[str, ...], ...]
NAMES: Final = ("simulated", "hios-sim")


class StageLatencyFunction(Protocol):
    """Anything that answers how many us a stage takes, of a user's as well."""

    def __call__(self, groups: Groups, merged: bool = False) -> float:
        """Return the latency in us of groups side by side, or of all their operators merged into one."""
        ...


@dataclass(frozen=True, slots=True)
class StageFormula:
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

    slowdown: float = 0.1
    constant: float = 3.0

    def __post_init__(self) -> None:
        for name, value in (("slowdown", self.slowdown), ("constant", self.constant)):
            if not is_number(value) or not 0 <= value < inf:
                raise SchedulerError(f"StageFormula: {name} must be finite and not negative, not {value!r}")

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
    ) -> None:
        self._scheduler = scheduler
        self._known: dict[tuple[Groups, bool], float] = {}
        self._merged_time = merged_time
        self._times: dict[str, float] = {}
        self._shares: dict[str, float] = {}
        self._asks_user = False
        if isinstance(option, str) and option == "simulated":
            self._ask: Any = tools.stage_latency(graph, cluster, cost, device=device)
        elif isinstance(option, str) and option not in NAMES:
            raise UnknownNameError("stage_latency", option, [*NAMES, "a function", "a table", "StageFormula(...)"])
        elif isinstance(option, str | StageFormula):
            on = cluster.devices[0] if device is None else cluster[device]
            self._times = dict(zip(graph.names, operator_times(graph, on, cost).tolist(), strict=True))
            if isinstance(option, StageFormula):
                self._ask = lambda groups: option.latency([self._sum(group) for group in groups])
            else:
                shares = np.nan_to_num(graph.utilization, nan=1.0)
                self._shares = dict(zip(graph.names, shares.tolist(), strict=True))
                self._ask = self._hios_sim
        elif isinstance(option, Mapping) or callable(option):
            self._asks_user = True
            self._ask = self._look_up(option) if isinstance(option, Mapping) else option
        else:
            raise SchedulerError(
                f"{scheduler}: stage_latency must be {', '.join(NAMES)}, a StageFormula, a function or a table, "
                f"not {option!r}"
            )

    def __call__(self, groups: Groups, merged: bool = False) -> float:
        """Return the latency in us of a stage."""
        key = (groups, merged)
        if key not in self._known:
            self._known[key] = self._checked(groups, merged)
        return self._known[key]

    def _checked(self, groups: Groups, merged: bool) -> float:
        if self._asks_user:
            answer = self._ask(groups, merged) if merged else self._ask(groups)
        elif merged:
            assert self._merged_time is not None, "who merges knows how long that takes"
            answer = self._merged_time(tuple(name for group in groups for name in group))
        else:
            answer = self._ask(groups)
        if not is_number(answer) or not 0 <= answer < inf:
            raise SchedulerError(
                f"{self._scheduler}: stage_latency says {answer!r} of stage {groups!r}; it must be us, finite and "
                f"not negative"
            )
        return float(answer)

    def _look_up(self, table: Mapping[Groups, float]) -> Callable[..., float]:
        def ask(groups: Groups, merged: bool = False) -> float:
            if groups not in table:
                what = "merged stage" if merged else "stage"
                raise SchedulerError(f"{self._scheduler}: the stage_latency table has no {what} {groups!r}")
            return table[groups]

        return ask

    def _sum(self, group: Sequence[str]) -> float:
        return sum(self._times[name] for name in group)

    def _hios_sim(self, groups: Groups) -> float:
        sums = [self._sum(group) for group in groups]
        if len(sums) == 1:
            return sums[0]
        busy = sum(self._times[name] * self._shares[name] for group in groups for name in group)
        return 0.5 * sum(sums) + 0.5 * max(busy, max(sums))
