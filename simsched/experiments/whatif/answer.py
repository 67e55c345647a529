"""`Answer`: what changes do to the makespan, as figures, a table and a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Final

from simsched.base.codec import Checked, Document, aside
from simsched.base.errors import WhatIfError
from simsched.base.units import MS
from simsched.experiments.result import Result, table_of, unit_of
from simsched.model import Cluster, CostModel, OpGraph, Schedule
from simsched.model.trace import Trace
from simsched.model.trace.trace import CriticalPath
from simsched.simulator import simulate
from simsched.simulator.baking import baked

_SAME: Final = 5e-4  # speedups that differ less from 1 are read as 1


@dataclass(frozen=True, eq=False)
class Case(Checked):
    """A schedule with its operators' times, on a cluster, and its trace.

    Parameters
    ----------
    schedule
        Each operator of its graph has as `time` what it takes on the device that it is placed on.
    cluster
        What it runs on.
    known
        What runs when, if that is known already.
    """

    SUBJECT, ERROR = "case", WhatIfError
    schedule: Schedule
    cluster: Cluster
    known: Trace | None = aside()

    @classmethod
    def of(cls, trace: Trace, plan: Schedule, cost: CostModel | None) -> "Case":
        """Return the case of a trace, the times that a cost model gave written into the graph."""
        return cls(baked(plan, trace.cluster, cost), trace.cluster, trace)

    @cached_property
    def trace(self) -> Trace:
        """What runs when; of a case from a file it is simulated when somebody asks."""
        return simulate(self.schedule, self.cluster) if self.known is None else self.known

    @property
    def graph(self) -> OpGraph:
        """What the schedule runs."""
        return self.schedule.graph

    @property
    def makespan(self) -> float:
        """That of the trace, in us."""
        return self.trace.makespan

    def critical_path(self) -> CriticalPath:
        """Return that of the trace."""
        return self.trace.critical_path()


class Outcome(Result):
    """What follows from what ran before and after changes; times in us.

    ``makespan_before + direct + rescheduling == makespan``, up to rounding. Where the plan was made anew, `kept` is
    what would run after the changes if it had stayed; None if it cannot, or was not made anew.
    """

    before: Trace | Case
    kept: Trace | Case | None
    after: Trace | Case
    changes: Sequence[Any]
    notes: tuple[str, ...]
    rescheduled: bool

    @property
    def title(self) -> str:
        """What is asked, and of what."""
        changes = ", ".join(map(str, self.changes)) or "nothing"
        return f"{self.before.graph.name} on {self.before.cluster.name}: what if {changes}"

    @property
    def runs(self) -> dict[str, Trace | Case]:
        """What runs before and after, and between them with the plan kept where it is made anew."""
        between = {} if self.kept is None else {"plan kept": self.kept}
        return {"before": self.before, **between, "after": self.after}

    @property
    def _with_the_plan_before(self) -> Trace | Case | None:
        """What would run after the changes with the plan that there was; None if it cannot."""
        return self.kept if self.rescheduled else self.after

    @property
    def makespan_before(self) -> float:
        """Makespan before the changes."""
        return self.before.makespan

    @property
    def makespan(self) -> float:
        """Makespan after the changes."""
        return self.after.makespan

    @property
    def difference(self) -> float:
        """Makespan after less before: negative if the changes help."""
        return self.makespan - self.makespan_before

    @property
    def speedup(self) -> float:
        """Makespan before over after; 1 where both are 0."""
        if self.makespan:
            return self.makespan_before / self.makespan
        return float("inf") if self.makespan_before else 1.0

    @property
    def direct(self) -> float | None:
        """Part of the difference that is there with the plan kept as it was; None if it cannot be kept."""
        same = self._with_the_plan_before
        return None if same is None else same.makespan - self.makespan_before

    @property
    def rescheduling(self) -> float | None:
        """Part of the difference that comes from re-scheduling; None if the plan cannot be kept without."""
        same = self._with_the_plan_before
        return None if same is None else self.makespan - same.makespan

    @cached_property
    def blame_before(self) -> dict[str, float]:
        """What the time of the critical path went to before (see `CriticalPath.blame`)."""
        return self.before.critical_path().blame

    @cached_property
    def blame(self) -> dict[str, float]:
        """What the time of the critical path goes to after."""
        return self.after.critical_path().blame

    @property
    def results(self) -> dict[str, Any]:
        """What follows, for other readers: times in us."""
        return {
            "makespan_before_us": self.makespan_before, "makespan_us": self.makespan, "difference_us": self.difference,
            "speedup": self.speedup if isfinite(self.speedup) else None, "direct_us": self.direct,
            "rescheduling_us": self.rescheduling, "blame_before": dict(self.blame_before), "blame": dict(self.blame),
        }  # fmt: skip

    def records(self) -> list[dict[str, Any]]:
        """Return the makespan, and what the critical path's time goes to, in us as plain values: a row for each."""
        return [
            {"part": part, **{f"{name.replace(' ', '_')}_us": each for name, each in us.items()},
             "difference_us": us["after"] - us["before"]}
            for part, us in self._parts().items()
        ]  # fmt: skip

    def _parts(self) -> dict[str, dict[str, float]]:
        """Return the us of each part in each run."""
        blames = {name: run.critical_path().blame for name, run in self.runs.items()}
        found = {"makespan": {name: run.makespan for name, run in self.runs.items()}}
        return found | {cause: {name: blame[cause] for name, blame in blames.items()} for cause in blames["after"]}

    def table(self) -> Any:
        """Return makespan and blame before and after as a table of texts."""
        unit, name = unit_of((self.makespan, self.makespan_before))
        rows = [(part, *(_number(x, unit) for x in us.values()), _number(us["after"] - us["before"], unit, "+"))
                for part, us in self._parts().items()]  # fmt: skip
        note = "\n".join([*_attribution(self, unit, name), *(f"note: {note}" for note in self.notes)])
        return table_of(self.title, (name, *self.runs, "difference"), rows, note=note, best=0)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Answer(Outcome, Document):
    """What changes do, without what asked: it can be kept in a file.

    Parameters
    ----------
    changes
        What was changed, as texts that `parse_change` reads, such as ``link.bandwidth*=2``.
    notes
        What else is to be known.
    rescheduled
        Whether the plan was made anew after the changes.
    before, after
        The plan before the changes, and the one after.
    kept
        The plan before in the changed world; None if it cannot run there, or is what stands under after.
    """

    FORMAT, INDENT, DERIVED, RETIRED = "simsched.whatif", None, ("results",), ("rescheduling_alone_us",)
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    rescheduled: bool
    before: Case
    kept: Case | None = None
    after: Case


def _attribution(answer: Outcome, unit: float, name: str) -> list[str]:
    lines = [_speed(answer.speedup)]
    if answer.rescheduled and answer.direct is None:
        lines.append("the plan before cannot run after the changes")
    elif answer.rescheduled:
        direct, again = (f"{_number(us or 0.0, unit)} {name}" for us in (answer.direct, answer.rescheduling))
        lines.append(f"{direct} by the changes, {again} by re-scheduling")
    return lines


def _speed(speedup: float) -> str:
    """Return in words how quick it is.

    >>> _speed(2.0), _speed(0.25), _speed(1.004), _speed(1.0)
    ('2 times as fast', 'takes 4 times as long', '1.004 times as fast', 'as fast as before')
    """
    if abs(speedup - 1) < _SAME:
        return "as fast as before"
    text, factor = ("{} times as fast", speedup) if speedup > 1 else ("takes {} times as long", 1 / speedup)
    return text.format(f"{factor:.{3 if factor >= 1.05 else 4}g}")


def _number(us: float, unit: float, sign: str = "-") -> str:
    """Return a time, `sign` before it as in formats; what rounds to 0 has none.

    >>> _number(7.26, 1.0, "+"), _number(-7.26, 1.0), _number(-0.01, 1.0, "+")
    ('+7.3', '-7.3', '0.0')
    """
    digits = 3 if unit == MS else 1
    text = f"{us / unit:{sign}.{digits}f}"
    return text if float(text) else f"{0:.{digits}f}"
