"""`Answer`: what changes do to the makespan, as figures, a table and a file."""

from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Final, Protocol

from simsched.base.codec import Checked, Document, aside
from simsched.base.errors import WhatIfError
from simsched.base.shown import as_html
from simsched.base.units import MS
from simsched.experiments.result import table_of
from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel
from simsched.model.schedule import Schedule
from simsched.model.trace import Trace
from simsched.model.trace.blame import CriticalPath
from simsched.simulator import simulate
from simsched.simulator.baking import baked

_SAME: Final = 5e-4  # speedups that differ less from 1 are read as 1
_RESULTS: Final = ("makespan_before_us", "makespan_us", "difference_us", "speedup", "direct_us", "rescheduling_us",
                   "blame_before", "blame")  # fmt: skip


class Ran(Protocol):
    """A trace, or what has one."""

    @property
    def makespan(self) -> float:
        """In us."""
        ...

    def critical_path(self) -> CriticalPath:
        """See `Trace.critical_path`."""
        ...


class Outcome:
    """What follows from what ran before and after changes; times in us.

    ``makespan_before + direct + rescheduling == makespan``, up to rounding. `kept` is what would run after the changes
    if the plan stayed, None if it cannot; `rescheduling_alone` what re-scheduling would do without any change: the
    makespan then, less the one before.
    """

    before: Ran
    kept: Ran | None
    after: Ran
    rescheduling_alone: float

    _repr_html_ = as_html

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
        return None if self.kept is None else self.kept.makespan - self.makespan_before

    @property
    def rescheduling(self) -> float | None:
        """Part of the difference that comes from re-scheduling; None if the plan cannot be kept without."""
        return None if self.kept is None else self.makespan - self.kept.makespan

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
        speedup = self.speedup if isfinite(self.speedup) else None
        values = (self.makespan_before, self.makespan, self.difference, speedup, self.direct, self.rescheduling,
                  dict(self.blame_before), dict(self.blame))  # fmt: skip
        return dict(zip(_RESULTS, values, strict=True))


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
    def makespan(self) -> float:
        """That of the trace, in us."""
        return self.trace.makespan

    def critical_path(self) -> CriticalPath:
        """Return that of the trace."""
        return self.trace.critical_path()


@dataclass(kw_only=True)
class _File:
    """A schedule before and after changes.

    Parameters
    ----------
    changes
        What was changed, such as ``link.bandwidth*=2``.
    notes
        What else is to be known.
    rescheduled
        Whether the plan was made anew after the changes.
    rescheduling_alone_us
        What re-scheduling would do without any change, in us: makespan then less the one before.
    before, after
        The plan before the changes, and the one after.
    kept
        The plan before in the changed world; null if it cannot run there, or is what stands under after.
    """

    changes: tuple[str, ...]
    notes: tuple[str, ...]
    rescheduled: bool
    rescheduling_alone_us: float
    before: Case
    kept: Case | None = None
    after: Case


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Outcome, Document):
    """What changes do, without what asked: it can be kept in a file.

    Parameters
    ----------
    before, after
        The plan before the changes, and the one after.
    kept
        The plan before the changes, in the changed world; None if it cannot run there. Where nothing was
        re-scheduled, `after` itself.
    changes
        As texts that `parse_change` reads.
    notes
        What else is to be known.
    rescheduled
        Whether the plan was made anew after the changes.
    rescheduling_alone
        See `Outcome`.
    """

    FORMAT, INDENT, FILE, DERIVED = "simsched.whatif", None, _File, ("results",)
    before: Case
    kept: Case | None
    after: Case
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    rescheduled: bool
    rescheduling_alone: float

    def __repr__(self) -> str:
        return (
            f"Answer({self.before.schedule.graph.name!r}, {', '.join(self.changes) or 'no change'}: "
            f"{self.makespan_before:.6g} us -> {self.makespan:.6g} us)"
        )

    def table(self) -> Any:
        """Return makespan and blame before and after as a `rich.table.Table`."""
        unit, name = (MS, "ms") if max(self.makespan, self.makespan_before) >= MS else (1.0, "us")
        title = f"{self.before.schedule.graph.name} on {self.before.cluster.name}"
        runs = [("before", self.makespan_before, self.blame_before), ("after", self.makespan, self.blame)]
        if self.rescheduled and self.kept is not None:
            runs.insert(1, ("plan kept", self.kept.makespan, self.kept.critical_path().blame))
        parts = {"makespan": [us for _, us, _ in runs]}
        parts |= {cause: [blame[cause] for _, _, blame in runs] for cause in self.blame}
        return table_of(
            f"{title}: what if {', '.join(self.changes) or 'nothing'}",
            (name, *(heading for heading, _, _ in runs), "difference"),
            [(part, *(_number(x, unit) for x in us), _number(us[-1] - us[0], unit, "+")) for part, us in parts.items()],
            note="\n".join([*_attribution(self, unit, name), *(f"note: {note}" for note in self.notes)]),
            best=0,
        )

    def to_file(self) -> _File:
        """Return it as its file has it."""
        return _File(
            changes=self.changes, notes=self.notes, rescheduled=self.rescheduled, after=self.after, before=self.before,
            rescheduling_alone_us=self.rescheduling_alone, kept=self.kept if self.rescheduled else None,
        )  # fmt: skip

    @classmethod
    def from_file(cls, rescheduling_alone_us: float, kept: Case | None = None, **own: Any) -> "Answer":
        """Make one of what its file has."""
        kept = kept if own["rescheduled"] else own["after"]
        return cls(**own, kept=kept, rescheduling_alone=rescheduling_alone_us)


def _attribution(answer: Answer, unit: float, name: str) -> list[str]:
    lines = [_speed(answer.speedup)]
    if answer.rescheduled:
        direct, rescheduling = answer.direct, answer.rescheduling
        if direct is None or rescheduling is None:
            lines.append("the plan before cannot run after the changes")
        else:
            lines.append(
                f"{_number(direct, unit)} {name} by the changes, {_number(rescheduling, unit)} {name} by re-scheduling"
            )
        lines.append(f"re-scheduling without the changes: {_number(answer.rescheduling_alone, unit)} {name}")
    return lines


def _speed(speedup: float) -> str:
    """Return in words how quick it is.

    >>> _speed(2.0), _speed(0.25), _speed(1.0)
    ('2 times as fast', 'takes 4 times as long', 'as fast as before')
    """
    if abs(speedup - 1) < _SAME:
        return "as fast as before"
    return f"{speedup:.3g} times as fast" if speedup > 1 else f"takes {1 / speedup:.3g} times as long"


def _number(us: float, unit: float, sign: str = "-") -> str:
    """Return a time, `sign` before it as in formats; what rounds to 0 has none.

    >>> _number(7.26, 1.0, "+"), _number(-7.26, 1.0), _number(-0.01, 1.0, "+")
    ('+7.3', '-7.3', '0.0')
    """
    digits = 3 if unit == MS else 1
    text = f"{us / unit:{sign}.{digits}f}"
    return text if float(text) else f"{0:.{digits}f}"
