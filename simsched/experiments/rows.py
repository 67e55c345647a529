"""Rows of a comparison, one for each schedule."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from simsched.base.codec import Amount, Checked, Count, Range, Seed
from simsched.base.errors import SimulationError
from simsched.experiments.baselines import (
    EAGER,
    Baselines,
)
from simsched.experiments.evaluation import Evaluation
from simsched.model import Schedule
from simsched.simulator.demand import Jitter
from simsched.simulator.simulate import require_samples


@dataclass(frozen=True, slots=True)
class Row(Checked):
    """Result of one scheduler.

    Parameters
    ----------
    scheduler
        Its name; of a baseline the name of the deployment.
    execution
        Execution of the schedule: ``"eager"``, ``"events"``, ``"stages"`` or ``"graph"``; None if there is no schedule.
    makespan_us
        Simulated makespan in us; in sampled comparisons without jitter; None if there is no schedule.
    p50_us, p95_us, p99_us
        Percentiles of the sampled makespans in us; None if none were drawn.
    estimate_us
        The scheduler's own prediction in us, or None.
    speedup
        Makespan of the baseline over this one.
    slower_than_one_stream
        Whether one stream that is launched in the same way is faster; None where that is not known.
    makespan_low_us, makespan_high_us, speedup_low, speedup_high
        Bounds of the 90 % ranges of makespan and speedup, see `simsched.experiments.ranges`; None if there are no
        ranges.
    place
        One more than the number of schedules that are faster with 90 %: schedules whose order is not certain share a
        place.
    over_bound
        Makespan over the lower bound of the graph the schedule runs; None if the bound is 0.
    streams, devices
        In use.
    syncs
        Waits, barriers and host syncs of the program.
    peak_memory_bytes
        Peak memory of the device that needs most.
    sm_utilization, sm_efficiency
        Means over the makespan and the devices, in [0, 1].
    search_s
        Wall time of the scheduler in s, without the time to compile its native code.
    warning
        A warning, for example of more memory than the device has; None if there is none.
    reason
        Reason why there is no schedule; None if there is one.
    """

    SUBJECT = "row of {0.scheduler!r}"
    ERROR = SimulationError
    scheduler: str
    execution: str | None = None
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
    slower_than_one_stream: bool | None = None
    warning: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if (self.makespan_us is None) != (self.reason is not None):
            raise self.refusal("there is either a makespan_us or a reason why there is none")


@dataclass(frozen=True, slots=True)
class Sampling(Checked):
    """Settings of sampled makespans.

    Parameters
    ----------
    n
        Samples per schedule.
    jitter
        As in `simulate`.
    seed
        The one given; None if it was a generator.
    """

    SUBJECT = "sampling"
    ERROR = SimulationError
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
        jitter = require_samples("samples", samples, workers, jitter, rng)
        plain = {k: float(x) for k, x in jitter.items()} if isinstance(jitter, Mapping) else float(jitter)
        return cls(int(samples), plain, int(rng) if isinstance(rng, int | np.integer) else None)

    def __str__(self) -> str:
        if isinstance(self.jitter, Mapping):
            jitter = "of each operator its own"
        else:
            jitter = f"{100 * self.jitter:g} %"
        if self.seed is None:
            seed = ""
        else:
            seed = f", seed {self.seed}"
        return f"{self.n} {'sample' if self.n == 1 else 'samples'}, jitter {jitter}{seed}"


def ratio(reference: float, makespan: float | None) -> float | None:
    """Return how many times as fast as the reference something is; 1 where both take no time."""
    if makespan is None:
        return None
    if makespan:
        return reference / makespan
    return 1.0


def row_of(name: str, found: Evaluation, baseline: float | None, one: Baselines | None = None) -> Row:
    """Return the row of a schedule.

    Parameters
    ----------
    baseline
        Makespan in us that the speedup is over; None leaves it out.
    one
        Runs on one stream, to which the schedule is compared; without them, no warning says that it is slower.
    """
    plan = found.plan
    trace = found.trace
    drawn = found.samples
    assert isinstance(plan, Schedule)
    peaks = trace.peak_memory()
    full = any(need > trace.cluster[device].memory for device, need in peaks.items())
    if drawn is None:
        percentiles: Any = {}
    else:
        percentiles = {"p50_us": drawn.p50, "p95_us": drawn.p95, "p99_us": drawn.p99}
    # Warnings compute the peaks once more.
    if full:
        warnings = trace.memory_warnings()
    else:
        warnings = []
    return Row(
        scheduler=name,
        execution="eager" if name == EAGER else trace.program.execution,
        makespan_us=trace.makespan,
        estimate_us=plan.estimate,
        speedup=None if baseline is None else ratio(baseline, trace.makespan),
        over_bound=trace.makespan / found.bound_us if found.bound_us else None,
        streams=plan.n_streams,
        devices=len(plan.devices_used),
        syncs=trace.program.n_syncs,
        peak_memory_bytes=max(peaks.values()),
        sm_utilization=trace.sm_utilization(),
        sm_efficiency=trace.sm_efficiency(),
        search_s=found.search_s,
        slower_than_one_stream=None if one is None else one.is_slower(trace),
        warning="; ".join(warnings) or None,
        **percentiles,
    )


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number if it is taken."""
    numbered = (name, *(f"{name} ({i})" for i in range(2, len(taken) + 2)))
    return next(candidate for candidate in numbered if candidate not in taken)
