"""`Answer`: what changes do to the makespan, as figures, a table and a file."""

import os
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Final

from simsched.base.errors import FormatError
from simsched.base.io import Record, document, dump_json, naming, read_json, write_file
from simsched.base.shown import as_html
from simsched.base.units import MS
from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel
from simsched.model.schedule import Schedule
from simsched.model.trace import Trace
from simsched.simulator import simulate
from simsched.simulator.baking import baked

FORMAT, VERSION = "simsched.whatif", 1
_SAME: Final = 5e-4  # speedups that differ less from 1 are read as 1
_RESULTS: Final = ("makespan_before_us", "makespan_us", "difference_us", "speedup", "direct_us", "rescheduling_us",
                   "blame_before", "blame")  # fmt: skip


class Outcome:
    """What follows from the traces before and after changes; times in us.

    ``makespan_before + direct + rescheduling == makespan``, up to rounding.
    """

    @property
    @abstractmethod
    def trace_before(self) -> Trace:
        """What ran when before the changes."""

    @property
    @abstractmethod
    def trace_kept(self) -> Trace | None:
        """What would run when after the changes if the plan stayed; None if it cannot."""

    @property
    @abstractmethod
    def trace_after(self) -> Trace:
        """What would run when after the changes."""

    @property
    @abstractmethod
    def rescheduling_alone(self) -> float:
        """What re-scheduling would do without any change: the makespan then, less the one before; us."""

    _repr_html_ = as_html

    @property
    def makespan_before(self) -> float:
        """Makespan before the changes."""
        return self.trace_before.makespan

    @property
    def makespan(self) -> float:
        """Makespan after the changes."""
        return self.trace_after.makespan

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
        kept = self.trace_kept
        return None if kept is None else kept.makespan - self.makespan_before

    @property
    def rescheduling(self) -> float | None:
        """Part of the difference that comes from re-scheduling; None if the plan cannot be kept without."""
        kept = self.trace_kept
        return None if kept is None else self.makespan - kept.makespan

    @cached_property
    def blame_before(self) -> dict[str, float]:
        """What the time of the critical path went to before (see `CriticalPath.blame`)."""
        return self.trace_before.critical_path().blame

    @cached_property
    def blame(self) -> dict[str, float]:
        """What the time of the critical path goes to after."""
        return self.trace_after.critical_path().blame

    def _results(self) -> dict[str, Any]:
        speedup = self.speedup if isfinite(self.speedup) else None
        values = (self.makespan_before, self.makespan, self.difference, speedup, self.direct, self.rescheduling,
                  dict(self.blame_before), dict(self.blame))  # fmt: skip
        return dict(zip(_RESULTS, values, strict=True))


@dataclass(frozen=True, eq=False)
class Case:
    """A schedule with its operators' times, on a cluster, and its trace.

    Parameters
    ----------
    schedule
        Each operator of its graph has as `time` what it takes on the device that it is placed on.
    cluster, trace
        What it runs on, and what runs when.
    """

    schedule: Schedule
    cluster: Cluster
    trace: Trace

    @classmethod
    def of(cls, trace: Trace, plan: Schedule, cost: CostModel | None) -> "Case":
        """Return the case of a trace, the times that a cost model gave written into the graph."""
        return cls(baked(plan, trace.cluster, cost), trace.cluster, trace)

    def to_dict(self) -> dict[str, Any]:
        """Return the case as JSON values; the trace follows from them."""
        return {"schedule": self.schedule.to_dict(), "cluster": self.cluster.to_dict()}

    @classmethod
    def read(cls, record: Record) -> "Case":
        """Make a case from a JSON object, and simulate it again."""
        plan = Schedule.from_dict(record.take("schedule", dict), f"{record.where}: schedule")
        cluster = Cluster.from_dict(record.take("cluster", dict), f"{record.where}: cluster")
        record.done()
        with naming(record.where):
            return cls(plan, cluster, simulate(plan, cluster))


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Outcome):
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
    alone_us
        See `Outcome.rescheduling_alone`.
    """

    before: Case
    kept: Case | None
    after: Case
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    rescheduled: bool
    alone_us: float

    @property
    def trace_before(self) -> Trace:
        """What ran when before the changes."""
        return self.before.trace

    @property
    def trace_kept(self) -> Trace | None:
        """What would run when after the changes if the plan stayed; None if it cannot."""
        return None if self.kept is None else self.kept.trace

    @property
    def trace_after(self) -> Trace:
        """What would run when after the changes."""
        return self.after.trace

    @property
    def rescheduling_alone(self) -> float:
        """What re-scheduling would do without any change: the makespan then, less the one before; us."""
        return self.alone_us

    def __repr__(self) -> str:
        return (
            f"Answer({self.before.schedule.graph.name!r}, {', '.join(self.changes) or 'no change'}: "
            f"{self.makespan_before:.6g} us -> {self.makespan:.6g} us)"
        )

    def table(self) -> Any:
        """Return makespan and blame before and after as a `rich.table.Table`."""
        return table_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a JSON document, format ``simsched.whatif`` version 1."""
        own = self.rescheduled and self.kept is not None
        return {
            "format": FORMAT,
            "version": VERSION,
            "changes": list(self.changes),
            "notes": list(self.notes),
            "rescheduled": self.rescheduled,
            "rescheduling_alone_us": self.alone_us,
            "results": self._results(),
            "before": self.before.to_dict(),
            "kept": self.kept.to_dict() if own and self.kept is not None else None,
            "after": self.after.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Any, source: str = "answer") -> "Answer":
        """Make an answer from a decoded ``simsched.whatif`` document; `source` names it in errors.

        The cases are simulated again; the results that the document holds are for other readers.
        """
        top = document(data, FORMAT, VERSION, source)
        top.take("results", dict, {})
        rescheduled = top.take("rescheduled", bool)
        texts = {key: tuple(top.take(key, list)) for key in ("changes", "notes")}
        for key, values in texts.items():
            if not all(isinstance(text, str) for text in values):
                raise FormatError(f"{source}: field {key!r} must be a list of texts")
        before, after = (Case.read(Record(top.take(key, dict), f"{source}: {key}")) for key in ("before", "after"))
        own = top.take("kept", dict, None)
        kept = None if own is None else Case.read(Record(own, f"{source}: kept"))
        return top.build(
            cls, before=before, kept=kept if rescheduled else after, after=after, rescheduled=rescheduled,
            alone_us=top.take("rescheduling_alone_us", float), **texts,
        )  # fmt: skip

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the answer to a JSON file, whole or not at all."""
        write_file(path, dump_json(self.to_dict(), indent=None))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Answer":
        """Read an answer from a JSON file."""
        return cls.from_dict(read_json(path), str(path))


def table_of(answer: Answer) -> Any:
    """Return makespan and blame before, with the plan kept, and after as a `rich.table.Table`."""
    from rich.markup import escape
    from rich.table import Table

    unit, name = (MS, "ms") if max(answer.makespan, answer.makespan_before) >= MS else (1.0, "us")
    before = answer.before
    title = f"{before.schedule.graph.name} on {before.cluster.name}: what if {', '.join(answer.changes) or 'nothing'}"
    caption = escape("\n".join([*_attribution(answer, unit, name), *(f"note: {note}" for note in answer.notes)]))
    table = Table(title=escape(title), title_justify="left", caption=caption or None, caption_justify="left")
    table.add_column(name)
    columns = [("before", answer.makespan_before, answer.blame_before), ("after", answer.makespan, answer.blame)]
    if answer.rescheduled and answer.kept is not None:
        kept = answer.kept.trace
        columns.insert(1, ("plan kept", kept.makespan, kept.critical_path().blame))
    for heading, _, _ in columns:
        table.add_column(heading, justify="right")
    table.add_column("difference", justify="right")
    for row in ("makespan", *answer.blame):
        values = [makespan if row == "makespan" else blame[row] for _, makespan, blame in columns]
        cells = [_number(us, unit) for us in values]
        table.add_row(
            row, *cells, _number(values[-1] - values[0], unit, "+"), style="bold" if row == "makespan" else None
        )
    return table


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
