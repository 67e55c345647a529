"""What a comparison consists of: a row per scheduler, and how makespans were sampled."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from simsched.base.codec import Amount, Checked, Count, Range, Seed
from simsched.base.errors import SimulationError
from simsched.base.numeric import is_count
from simsched.simulator.workload import Jitter


@dataclass(frozen=True, slots=True)
class Row(Checked):
    """What one scheduler came to.

    Parameters
    ----------
    scheduler
        Its name.
    makespan_us
        Simulated makespan in us, of sampled comparisons without jitter; None where there is no schedule.
    p50_us, p95_us, p99_us
        Percentiles of the sampled makespans in us; None if none were drawn.
    estimate_us
        The scheduler's own prediction in us, or None.
    speedup
        Makespan of ``sequential`` on the same cluster over this one.
    makespan_low_us, makespan_high_us, speedup_low, speedup_high
        Between what both lie with 90 %, see `simsched.experiments.ranges`; None where that was not found.
    place
        One more than the number of schedules that are faster with 90 %: those whose order is not certain share it.
    over_bound
        Makespan over the lower bound of the graph the schedule runs; None if the bound is 0.
    streams, devices
        In use.
    syncs
        Waits, barriers and host syncs of the program.
    peak_memory_bytes
        On the device that needs most.
    sm_utilization, sm_efficiency
        Means over the makespan and the devices, in [0, 1].
    search_s
        Wall time of the scheduler in s, without that of compiling it where it has not been yet.
    warning
        Such as more memory than the device has; None if there is nothing to say.
    reason
        Why there is no schedule; None if there is one.
    """

    SUBJECT, ERROR = "row of {0.scheduler!r}", SimulationError
    scheduler: str
    makespan_us: Amount | None = None
    p50_us: Amount | None = None
    p95_us: Amount | None = None
    p99_us: Amount | None = None
    estimate_us: Amount | None = None
    speedup: Amount | None = None
    makespan_low_us: Amount | None = None
    makespan_high_us: Amount | None = None
    speedup_low: Amount | None = None
    speedup_high: Amount | None = None
    place: Count | None = None
    over_bound: Amount | None = None
    streams: Count | None = None
    devices: Count | None = None
    syncs: Count | None = None
    peak_memory_bytes: Amount | None = None
    sm_utilization: Amount | None = None
    sm_efficiency: Amount | None = None
    search_s: Amount | None = None
    warning: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if (self.makespan_us is None) != (self.reason is not None):
            raise self.refusal("there is either a makespan_us or a reason why there is none")


@dataclass(frozen=True, slots=True)
class Sampling(Checked):
    """How makespans were sampled.

    Parameters
    ----------
    n
        Samples per schedule.
    jitter
        As in `simulate`.
    seed
        The one given; None if it was a generator.
    """

    SUBJECT, ERROR = "sampling", SimulationError
    n: Annotated[int, Range(1, 100_000_000)]
    jitter: float | Mapping[str, float]
    seed: Seed | None

    @classmethod
    def of(cls, samples: int, jitter: Jitter | None, rng: np.random.Generator | int | None, workers: int) -> "Sampling":
        """Return how samples are to be drawn.

        Raises
        ------
        SimulationError
            If there are fewer than one, or of `jitter` and `rng` one is missing.
        """
        for name, count in (("samples", samples), ("workers", workers)):
            if not is_count(count, 1):
                raise SimulationError(f"{name} must be a whole number of at least 1, not {count!r}")
        if jitter is None:
            raise SimulationError("samples without jitter would all be alike: pass `jitter`, such as 0.02")
        if rng is None:
            raise SimulationError("samples are random: pass `rng`, a numpy Generator or a seed")
        return cls(int(samples), plain(jitter), int(rng) if isinstance(rng, int | np.integer) else None)

    def __str__(self) -> str:
        jitter = "of each operator its own" if isinstance(self.jitter, Mapping) else f"{100 * self.jitter:g} %"
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.n} {'sample' if self.n == 1 else 'samples'}, jitter {jitter}{seed}"


@dataclass(frozen=True, slots=True)
class Doubt(Checked):
    """What ranges come from, and what they depend on.

    Parameters
    ----------
    draws
        Worlds that were drawn.
    basis
        ``"uncalibrated"``, or ``"calibrated"`` and the date.
    model_error
        Standard deviation of simulated over true time that is added, as a fraction.
    depends_on, correlation
        The parameter with which the speedup of the best schedule goes, in rank correlation; None if with no single one.
    settled_by
        The measurement that would make the ranges narrower.
    """

    SUBJECT, ERROR = "doubt", SimulationError
    draws: Count
    basis: str
    model_error: Amount
    depends_on: str | None
    correlation: float | None
    settled_by: str

    def __str__(self) -> str:
        on = (
            "no single parameter"
            if self.depends_on is None
            else f"{self.depends_on} (rank correlation {self.correlation:+.2f})"
        )
        return f"the speedup depends most on {on}; {self.settled_by} would settle it"


def plain(jitter: Jitter) -> float | dict[str, float]:
    """Return a jitter of Python's own numbers."""
    return {name: float(x) for name, x in jitter.items()} if isinstance(jitter, Mapping) else float(jitter)


def unused(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number if it is taken."""
    numbered = (name, *(f"{name} ({i})" for i in range(2, len(taken) + 2)))
    return next(candidate for candidate in numbered if candidate not in taken)
