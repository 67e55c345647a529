"""Whether this machine is quiet enough to measure on: blocks that were pushed aside tell."""

import os
from collections.abc import Callable, Sequence
from statistics import fmean, pstdev
from typing import Final, NamedTuple, Protocol, TypeVar

from hwbackend.cpu_run import Sample
from simsched.base.errors import BackendError

_LEAST_CLEAN: Final = 0.5  # of the repeats asked for
_MOST_TRIES: Final = 4  # runs for each repeat asked for
_MOST_REJECTED: Final = 0.25  # of the blocks of a probe
_MOST_VARIATION: Final = 0.25  # of their times
_LOST: Final = 0.02  # part of a block's time that may be lost
_RESOLUTION: Final = 10.0  # us; both clocks are read, one after the other
_TURN: Final = 100.0  # us that a thread may wait for its turn at Python, which is a part of how this device works


def was_preempted(sample: Sample) -> bool:
    """Return whether something else had the core for long while a block should have.

    >>> was_preempted(Sample(300.0, 299.0, 0, 0)), was_preempted(Sample(300.0, 250.0, 0, 0))
    (False, True)
    >>> was_preempted(Sample(300.0, 250.0, 0, waits=1)), was_preempted(Sample(300.0, 250.0, pushed=1, waits=1))
    (False, True)
    """
    allowed = _RESOLUTION + _LOST * sample.wall
    if not sample.pushed:
        allowed += _TURN * sample.waits
    return sample.wall - sample.cpu > allowed


def rejected(samples: Sequence[Sample]) -> float:
    """Return the part of some blocks that were preempted."""
    return sum(map(was_preempted, samples)) / max(1, len(samples))


class Probe(NamedTuple):
    """What equal blocks saw, run on all workers: part of them preempted, variation of the others' times.

    `load` is the number of threads that wanted to run in the last minute, ours among them.
    """

    rejected: float
    variation: float
    load: float
    cores: int

    @classmethod
    def of(cls, samples: Sequence[Sample], cores: int) -> "Probe":
        """Return what some blocks saw."""
        times = [sample.wall for sample in samples if not was_preempted(sample)]
        variation = pstdev(times) / fmean(times) if times else 0.0
        return cls(rejected(samples), variation, os.getloadavg()[0], cores)

    def __str__(self) -> str:
        return (
            f"{self.rejected:.0%} of probe blocks were preempted, times of the others vary by {self.variation:.0%}, "
            f"load {self.load:.1f} on {self.cores} cores"
        )

    @property
    def is_quiet(self) -> bool:
        """Whether at most a quarter of the blocks were preempted, and times vary by at most that."""
        return self.rejected <= _MOST_REJECTED and self.variation <= _MOST_VARIATION

    def require_quiet(self) -> None:
        """Refuse a machine that is busy.

        Raises
        ------
        BackendError
            If more than a quarter of the blocks were preempted, or times vary by more than that.
        """
        if not self.is_quiet:
            raise BackendError(f"the machine is busy: {self}; wait, or pass gate=False to measure anyway")


class Measured(Protocol):
    """A run of a program, with what its blocks saw."""

    samples: list[Sample]


R = TypeVar("R", bound=Measured)


def clean_runs(once: Callable[[], R], repeats: int) -> tuple[list[R], float]:
    """Run something until as many runs as wanted had no preempted block.

    Returns
    -------
    runs
        Those without, in order.
    rate
        Part of all runs that had one.

    Raises
    ------
    BackendError
        If after four runs for each one wanted fewer than half were clean.
    """
    runs: list[R] = []
    tries = 0
    while len(runs) < repeats and tries < _MOST_TRIES * repeats:
        run = once()
        tries += 1
        if not any(map(was_preempted, run.samples)):
            runs.append(run)
    rate = 1.0 - len(runs) / tries
    if len(runs) < max(1, _LEAST_CLEAN * repeats):
        raise BackendError(
            f"the machine is too busy: blocks were preempted in {rate:.0%} of {tries} runs, and {repeats} clean ones "
            "are wanted; wait, or pass gate=False to keep all"
        )
    return runs, rate
