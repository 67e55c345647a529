"""Rounds of a validation: predicted and measured makespans of schedules, and the errors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from simsched.base.codec import Amount, Checked, Count, brief
from simsched.base.errors import BackendError
from simsched.base.numeric import sum_in_order
from simsched.calibration import Calibration
from simsched.model import Cluster, Program
from simsched.model.profile import Replay
from simsched.model.trace import Trace
from simsched.simulator import simulate

NOT_DEFINED = "-"
RANDOM: Final = "random-"
"""What the names of schedules drawn at random begin with."""
FIGURES: Final = ("mean_error", "p90_error", "no_contention_error", "uncalibrated_error", "kendall_tau", "regret")
"""What is said of a round, fractions all."""


@dataclass(frozen=True, slots=True)
class Outcome(Checked):
    """One schedule, as it was predicted and as it was measured.

    Parameters
    ----------
    scheduler
        The scheduler's name; ``"random-1"`` and so on are schedules drawn at random.
    predicted_us
        Makespan simulated on the calibrated cluster.
    measured_us, measured_p10_us, measured_p90_us
        Median, 10th and 90th percentile of the measured latencies.
    no_contention_us
        The same prediction where kernels never slow each other down.
    uncalibrated_us
        Makespan in us, simulated on the backend's cluster before anything was fitted.
    rank_predicted, rank_measured
        1 is the least makespan of the round; equal ones share a rank.
    held_out
        Whether no fit has seen the schedule, so that its error counts.
    max_relative_error
        Largest relative error of the outputs, see `Replay`.
    reason
        Reason why the schedule or the measurement is missing; the other fields are None then.
    """

    SUBJECT = "row of {0.scheduler!r}"
    ERROR = BackendError
    DERIVED = ("error",)
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
        cls,
        scheduler: str,
        program: Program,
        trace: Trace,
        replay: Replay,
        calibration: Calibration,
        uncalibrated: Cluster,
        *,
        held_out: bool,
    ) -> "Outcome":
        """Return the row of a measurement, with its prediction and predictions by parts of the calibration."""
        bare = replace(calibration, cluster=calibration.cluster.replace_devices(contention=False))
        summary = replay.summary
        return cls(
            scheduler,
            predicted_us=trace.makespan,
            measured_us=summary.median,
            measured_p10_us=summary.p10,
            measured_p90_us=summary.p90,
            no_contention_us=simulate(program, bare).makespan,
            uncalibrated_us=simulate(program, uncalibrated).makespan,
            held_out=held_out,
            max_relative_error=replay.max_relative_error,
        )

    @property
    def is_random(self) -> bool:
        """Whether the schedule was drawn at random."""
        return self.scheduler.startswith(RANDOM)

    @property
    def error(self) -> float | None:
        """Distance of the prediction from the measurement as a fraction of the measurement."""
        return relative_error(self.predicted_us, self.measured_us)


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """Return ``|predicted - measured| / measured``, or None where that is not defined.

    >>> relative_error(90.0, 100.0)
    0.1
    """
    if predicted is not None and measured:
        return abs(predicted - measured) / measured
    return None


@dataclass(frozen=True)
class Round(Checked):
    """Schedules of one round; errors are fractions over held-out schedules, None where there are none.

    Parameters
    ----------
    schedules
        The schedulers' schedules, then the random ones, in the order of their measurement.
    """

    SUBJECT = "a round"
    ERROR = BackendError
    DERIVED = FIGURES
    schedules: tuple[Outcome, ...]

    @classmethod
    def of(cls, rows: Sequence[Outcome]) -> "Round":
        """Return a round with the ranks of its rows filled in."""
        done = [row for row in rows if row.measured_us is not None]

        def rank(row: Outcome, of: str) -> int:
            return 1 + sum(bool(getattr(other, of) < getattr(row, of)) for other in done)

        return cls(
            tuple(
                row
                if row.measured_us is None
                else replace(row, rank_predicted=rank(row, "predicted_us"), rank_measured=rank(row, "measured_us"))
                for row in rows
            )
        )

    @property
    def held_out(self) -> tuple[Outcome, ...]:
        """Rows that count in the errors."""
        return tuple(row for row in self.schedules if row.held_out and row.error is not None)

    def _mean_error(self, of: str) -> float | None:
        """Return the mean error of a column of the rows that count, where it is defined."""
        row_errors = (relative_error(getattr(row, of), row.measured_us) for row in self.held_out)
        errors = [error for error in row_errors if error is not None]
        if errors:
            return sum_in_order(errors) / len(errors)
        return None

    @property
    def mean_error(self) -> float | None:
        """Mean error of the calibrated prediction."""
        return self._mean_error("predicted_us")

    @property
    def p90_error(self) -> float | None:
        """90th percentile of the error, linear between two rows."""
        errors = [row.error or 0.0 for row in self.held_out]
        if errors:
            return float(np.quantile(errors, 0.9))
        return None

    @property
    def no_contention_error(self) -> float | None:
        """Mean error without contention."""
        return self._mean_error("no_contention_us")

    @property
    def uncalibrated_error(self) -> float | None:
        """Mean error before calibration."""
        return self._mean_error("uncalibrated_us")

    @property
    def kendall_tau(self) -> float | None:
        """Kendall's tau-b of the predicted against the measured makespans.

        1: in the same order; None: fewer than two rows, or all of one kind equal.
        """
        rows = self.held_out
        if len(rows) < 2:
            return None
        times = np.array([(row.predicted_us, row.measured_us) for row in rows])  # (n, 2)
        predicted, measured = np.sign(times.T[:, :, None] - times.T[:, None, :])  # of each pair, the longer
        pairs = np.sqrt(np.count_nonzero(predicted) * np.count_nonzero(measured))
        # By hand: scipy.stats takes seconds to import.
        if pairs:
            return float((predicted * measured).sum() / pairs)
        return None

    @property
    def rivals(self) -> tuple[Outcome, ...]:
        """Rows of the schedulers that were measured."""
        return tuple(row for row in self.schedules if row.measured_us is not None and not row.is_random)

    @property
    def chosen(self) -> Outcome | None:
        """The schedulers' row with the least prediction; on ties the first."""
        return min(self.rivals, key=lambda row: row.predicted_us or 0.0, default=None)

    @property
    def regret(self) -> float | None:
        """Loss by the simulator's choice: its measured makespan over the fastest scheduler's, minus 1."""
        chosen = self.chosen
        if chosen is None:
            return None
        least = min(row.measured_us or 0.0 for row in self.rivals)
        if least:
            return (chosen.measured_us or 0.0) / least - 1.0
        return None


def percent(fraction: float | None) -> str:
    """Return a fraction in per cent, or a dash.

    >>> percent(0.0415), percent(None)
    ('4.2 %', '-')
    """
    if fraction is None:
        return NOT_DEFINED
    return f"{100 * fraction:.1f} %"
