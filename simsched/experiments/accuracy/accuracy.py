"""What a validation consists of: predicted and measured makespans, round by round, and what follows from them."""

import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from simsched.base.codec import Checked, Document, aside, brief, write
from simsched.base.errors import BackendError
from simsched.base.kinds import Amount, Count, Filled
from simsched.calibration import Calibration
from simsched.experiments.result import Later, Result, printed, table_of, time_text, unit_of
from simsched.model.cluster import Cluster
from simsched.model.profile import Replay
from simsched.model.program import Program
from simsched.model.trace import Trace
from simsched.simulator import simulate

NAME: Final = "accuracy.json"
NOT_DEFINED = "-"
TRUSTED: Final = 0.1
"""Error of latencies, 9 of 10 within it, up to which they are trusted."""
CHEAP: Final = 0.03
"""Regret up to which the simulator may choose a scheduler."""


@dataclass(frozen=True, slots=True)
class Outcome(Checked):
    """One schedule, as it was predicted and as it was measured.

    Parameters
    ----------
    scheduler
        Who made it; ``"random-1"`` and so on are schedules drawn at random.
    predicted_us
        Makespan simulated on the calibrated cluster.
    measured_us, measured_p10_us, measured_p90_us
        Median, 10th and 90th percentile of the measured latencies.
    no_contention_us
        The same prediction where kernels never slow each other down.
    uncalibrated_us
        Simulated on the backend's cluster before anything was fitted.
    rank_predicted, rank_measured
        1 is the least makespan of the round; equal ones share a rank.
    held_out
        Whether no fit has seen the schedule, so that its error counts.
    max_relative_error
        Of its outputs, see `Replay`.
    reason
        Why there is no schedule or no measurement; the rest is None then.
    """

    SUBJECT, ERROR, DERIVED = "row of {0.scheduler!r}", BackendError, ("error",)
    scheduler: str
    predicted_us: Amount | None = None
    measured_us: Amount | None = None
    measured_p10_us: Amount | None = None
    measured_p90_us: Amount | None = None
    no_contention_us: Amount | None = None
    uncalibrated_us: Amount | None = None
    rank_predicted: Count | None = None
    rank_measured: Count | None = None
    held_out: bool = False
    max_relative_error: Amount | None = None
    reason: str | None = brief(None)

    @classmethod
    def of(
        cls, scheduler: str, program: Program, trace: Trace, replay: Replay, calibration: Calibration,
        uncalibrated: Cluster, *, held_out: bool,
    ) -> "Outcome":  # fmt: skip
        """Return what was measured beside the prediction, and beside those by less than the calibration."""
        bare = replace(calibration, cluster=calibration.cluster.replace_devices(contention=False))
        summary = replay.summary
        return cls(
            scheduler, predicted_us=trace.makespan, measured_us=summary.median, measured_p10_us=summary.p10,
            measured_p90_us=summary.p90, no_contention_us=simulate(program, bare).makespan,
            uncalibrated_us=simulate(program, uncalibrated).makespan, held_out=held_out,
            max_relative_error=replay.max_relative_error,
        )  # fmt: skip

    @property
    def is_random(self) -> bool:
        """Whether it was drawn at random."""
        return self.scheduler.startswith(RANDOM)

    @property
    def error(self) -> float | None:
        """Distance of the prediction from the measurement as a fraction of the measurement."""
        return relative_error(self.predicted_us, self.measured_us)


RANDOM = "random-"
"""What the names of schedules drawn at random begin with."""


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """Return ``|predicted - measured| / measured``, or None where that is not defined.

    >>> relative_error(90.0, 100.0)
    0.1
    """
    return abs(predicted - measured) / measured if predicted is not None and measured else None


FIGURES: Final = ("mean_error", "p90_error", "no_contention_error", "uncalibrated_error", "kendall_tau", "regret")
"""What is said of a round, fractions all."""


@dataclass(frozen=True)
class Round(Checked):
    """The schedules of one round; errors are fractions and over those held out, None where there are none.

    Parameters
    ----------
    schedules
        Those of the schedulers, then those at random, in the order in which they were measured.
    """

    SUBJECT, ERROR, DERIVED = "a round", BackendError, FIGURES
    schedules: tuple[Outcome, ...]

    @classmethod
    def of(cls, rows: Sequence[Outcome]) -> "Round":
        """Return a round with the ranks of its rows filled in."""
        done = [row for row in rows if row.measured_us is not None]
        predicted, measured = (
            sorted(row.predicted_us or 0.0 for row in done),
            sorted(row.measured_us or 0.0 for row in done),
        )
        return cls(tuple(
            row if row.measured_us is None else
            replace(row, rank_predicted=1 + bisect_left(predicted, row.predicted_us or 0.0),
                    rank_measured=1 + bisect_left(measured, row.measured_us))
            for row in rows
        ))  # fmt: skip

    @property
    def held_out(self) -> tuple[Outcome, ...]:
        """The rows whose errors count."""
        return tuple(row for row in self.schedules if row.held_out and row.error is not None)

    def _errors(self, of: str) -> list[float]:
        """Return the errors of a column of the rows that count, where they are defined."""
        errors = (relative_error(getattr(row, of), row.measured_us) for row in self.held_out)
        return [error for error in errors if error is not None]

    @property
    def mean_error(self) -> float | None:
        """Mean error of the calibrated prediction."""
        return _mean(self._errors("predicted_us"))

    @property
    def p90_error(self) -> float | None:
        """90th percentile of the error, linear between two rows."""
        errors = self._errors("predicted_us")
        return float(np.quantile(errors, 0.9)) if errors else None

    @property
    def no_contention_error(self) -> float | None:
        """Mean error without contention."""
        return _mean(self._errors("no_contention_us"))

    @property
    def uncalibrated_error(self) -> float | None:
        """Mean error before calibration."""
        return _mean(self._errors("uncalibrated_us"))

    @property
    def kendall_tau(self) -> float | None:
        """Kendall's tau-b of the predicted against the measured makespans.

        1: in the same order; None: fewer than two rows, or all of one kind equal.
        """
        rows = self.held_out
        if len(rows) < 2:
            return None
        times = np.array([(row.predicted_us, row.measured_us) for row in rows])  # (n, 2)
        predicted, measured = np.sign(times.T[:, :, None] - times.T[:, None, :])  # of each two, which takes longer
        pairs = np.sqrt(np.count_nonzero(predicted) * np.count_nonzero(measured))
        return float((predicted * measured).sum() / pairs) if pairs else None  # scipy.stats takes seconds to import

    @property
    def chosen(self) -> Outcome | None:
        """Of the schedulers' rows the one that is predicted to be the fastest, of equal ones the first."""
        rows = [row for row in self.schedules if row.measured_us is not None and not row.is_random]
        return min(rows, key=lambda row: row.predicted_us or 0.0, default=None)

    @property
    def regret(self) -> float | None:
        """How much slower the simulator's choice among the schedulers is than the fastest, measured, as a fraction."""
        chosen = self.chosen
        if chosen is None:
            return None
        rows = [row for row in self.schedules if row.measured_us is not None and not row.is_random]
        least = min(row.measured_us or 0.0 for row in rows)
        return (chosen.measured_us or 0.0) / least - 1.0 if least else None


def _mean(errors: Sequence[float]) -> float | None:
    return sum(errors) / len(errors) if errors else None


@dataclass(frozen=True, repr=False, eq=False)
class Accuracy(Result, Checked, Document):
    """How well predictions met measurements; prints as a table.

    Parameters
    ----------
    graph
        Name of the graph.
    backend, device, environment
        What ran it, on what, and with which versions; see `Replay`.
    seed
        The one given; None if it was a generator.
    rounds
        Each predicted with what the measurements before it had taught.
    runs
        Names of the files of measured runs by scheduler, of the last round, beside the file of this.
    calibration
        What the last round was predicted with.
    traces
        Of the last round, the simulated trace and the measured run by scheduler.
    """

    SUBJECT, ERROR, FORMAT, INDENT = "validation", BackendError, "simsched.accuracy", None
    graph: str
    backend: str
    device: str
    environment: Mapping[str, str]
    seed: int | None
    rounds: Annotated[tuple[Round, ...], Filled()]
    runs: Mapping[str, str]
    calibration: Calibration
    traces: Mapping[str, tuple[Trace, Replay]] = aside()

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not all(each.schedules for each in self.rounds):
            raise self.refusal("rounds must have a schedule each")
        for scheduler, name in self.runs.items():
            if Path(name).name != name:
                raise self.refusal(f"runs of {scheduler!r} must be a file beside it, not {name!r}")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Accuracy":
        """Read what a validation came to; nothing is measured, and simulated only what somebody asks for.

        Parameters
        ----------
        path
            The folder that `validate` was given, or `save`; or the file in it.

        Raises
        ------
        FileError
            If it holds no such file.
        FormatError
            If the file is damaged.
        """
        path = Path(path, NAME) if Path(path).is_dir() else Path(path)
        found, folder = super().load(path), path.parent

        def trace(scheduler: str) -> tuple[Trace, Replay]:
            replay = Replay.load(folder / found.runs[scheduler])
            return simulate(replay.program, found.calibration), replay

        return replace(found, traces=Later(found.runs, trace))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what the validation came to into a folder that is there, with measured runs that are not there yet."""
        for name, (_, replay) in self.traces.items():
            run = Path(path, self.runs[name])
            if not run.exists():
                replay.save(run)
        super().save(Path(path, NAME))

    def records(self) -> list[dict[str, Any]]:
        """Return all rows as plain values by column, with their round."""
        return [{"round": i, **write(row)} for i, each in enumerate(self.rounds, 1) for row in each.schedules]

    def table(self) -> Any:
        """Return the schedules of the last round as a table of texts."""
        rows, chosen = self.rounds[-1].schedules, self.rounds[-1].chosen
        unit, name = unit_of(row.measured_us for row in rows)
        headings = ("scheduler", f"predicted {name}", f"measured {name}", "p10 - p90", "error", "no con-\ntention",
                    "uncali-\nbrated", "rank\npredicted", "rank\nmeasured", "held\nout")  # fmt: skip
        return table_of(
            f"{self.graph} on {self.backend} ({self.device}), round {len(self.rounds)} of {len(self.rounds)}",
            headings, [_cells(row, unit) for row in rows], best=-1 if chosen is None else rows.index(chosen),
            note="\n".join(f"{row.scheduler}: not measured: {row.reason}" for row in rows if row.reason),
        )  # fmt: skip

    def summary(self) -> Any:
        """Return the rounds as a table of texts, one line each."""
        headings = ("round", "held out", "mean error", "p90 error", "no contention", "uncalibrated", "Kendall tau",
                    "regret")  # fmt: skip
        rows = []
        for i, each in enumerate(self.rounds, 1):
            errors = (each.mean_error, each.p90_error, each.no_contention_error, each.uncalibrated_error)
            tau = NOT_DEFINED if each.kendall_tau is None else f"{each.kendall_tau:.2f}"
            rows.append((str(i), str(len(each.held_out)), *map(percent, errors), tau, percent(each.regret)))
        note = "errors: of held-out schedules, seen by no fit; regret: of the scheduler ranked first"
        return table_of("rounds", headings, rows, note=note)

    def verdict(self) -> tuple[str, ...]:
        """Return in sentences what the predictions of the last round are good for, and what to measure next.

        Latencies are trusted where 9 of 10 held-out ones are within 10 %, a choice where it costs at most 3 %.
        """
        last = self.rounds[-1]
        p90, regret, chosen = last.p90_error, last.regret, last.chosen
        if p90 is None or chosen is None or regret is None:
            return ("No verdict: nothing was held out, or no scheduler's schedule was measured; measure some.",)
        trusts = "Trust" if p90 <= TRUSTED else "Do not trust"
        said = [f"{trusts} its latencies: 9 of 10 schedules that no fit has seen are within {percent(p90)}."]
        costs = f"its choice, {chosen.scheduler}, takes {percent(regret)} more than the fastest that was measured"
        said.append(f"{'Trust' if regret <= CHEAP else 'Do not trust'} it to choose a scheduler: {costs}.")
        most = (1 + p90) * (chosen.predicted_us or 0.0)
        rivals = [
            row for row in last.schedules if row.measured_us is not None and not row.is_random and row is not chosen
        ]
        near = [row.scheduler for row in rivals if (row.predicted_us or 0.0) <= most]
        worst = max(last.held_out, key=lambda row: row.error or 0.0)
        noise = ((worst.measured_p90_us or 0.0) - (worst.measured_p10_us or 0.0)) / (worst.measured_us or 1.0)
        again = ", whose runs vary by more: repeat them more often" if noise > (worst.error or 0.0) else ""
        said.append(
            (f"It does not tell {chosen.scheduler} from {', '.join(near)}: measure those. " if near else "")
            + f"It is furthest off on {worst.scheduler}, {percent(worst.error)}{again}."
        )
        return tuple(said)

    def __repr__(self) -> str:
        return "\n".join((printed(self.table()), printed(self.summary()), *self.verdict()))


def _cells(row: Outcome, unit: float) -> Sequence[str]:
    if row.measured_us is None:
        return (row.scheduler,)
    predictions = (row.predicted_us, row.no_contention_us, row.uncalibrated_us)
    return (
        row.scheduler,
        *(time_text(us, unit) for us in (row.predicted_us, row.measured_us)),
        f"{time_text(row.measured_p10_us, unit)} - {time_text(row.measured_p90_us, unit)}",
        *(percent(relative_error(us, row.measured_us)) for us in predictions),
        *map(str, (row.rank_predicted, row.rank_measured)),
        "yes" if row.held_out else "no",
    )


def percent(fraction: float | None) -> str:
    """Return a fraction in per cent, or a dash.

    >>> percent(0.0415), percent(None)
    ('4.2 %', '-')
    """
    return NOT_DEFINED if fraction is None else f"{100 * fraction:.1f} %"
