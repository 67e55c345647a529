"""What a comparison consists of: a row per scheduler, and how makespans were sampled."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
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

    scheduler: str
    makespan_us: float | None = None
    p50_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    estimate_us: float | None = None
    speedup: float | None = None
    over_bound: float | None = None
    streams: int | None = None
    devices: int | None = None
    syncs: int | None = None
    peak_memory_bytes: float | None = None
    sm_utilization: float | None = None
    sm_efficiency: float | None = None
    search_s: float | None = None
    warning: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
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

    n: int
    jitter: float | dict[str, float]
    seed: int | None

    def __str__(self) -> str:
        jitter = "of each operator its own" if isinstance(self.jitter, dict) else f"{100 * self.jitter:g} %"
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.n} {'sample' if self.n == 1 else 'samples'}, jitter {jitter}{seed}"


@dataclass(frozen=True, slots=True)
class Draws:
    """What is drawn anew for every schedule, alike for all.

    Parameters
    ----------
    jitter
        As in `simulate`.
    seed
        Of the generator that each schedule begins with.
    """

    jitter: float | dict[str, float]
    seed: int
