"""What was measured: operators, the kernels they launched, and the copies they made."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Annotated, Final

from simsched.base.codec import Among, Amount, Checked, Count, Filled, Name, brief
from simsched.base.errors import CostError
from simsched.model.graph import Kernel

COPY_KINDS: Final = ("memcpy", "memset")


def quantile(samples: Sequence[float], part: float) -> float:
    """Return the value below which lies a `part` of the samples, linear between two of them.

    >>> quantile([4.0, 1.0, 2.0], 0.5), quantile([10.0, 20.0], 0.25)
    (2.0, 12.5)
    """
    ordered = sorted(samples)
    place = part * (len(ordered) - 1)
    below = floor(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low + (high - low) * (place - below)


Times = Annotated[tuple[Amount, ...], Filled()]
"""Measured times in us, at least one."""


class _Sampled(Checked):
    """Anything that has samples."""

    __slots__ = ()
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the samples in us."""
        return quantile(self.samples, 0.5)


@dataclass(frozen=True, slots=True)
class MeasuredKernel(_Sampled):
    """A kernel that an operator launched.

    Parameters
    ----------
    name
        As the profiler prints it.
    samples
        Its time on the device in us, one per iteration, in their order.
    launch
        Blocks, threads, registers and shared memory, or None if they are not known. Its `share`
        says nothing: the part of the operator's time follows from the samples.
    stream
        The stream it ran on.

    Raises
    ------
    CostError
        If a sample is no finite time, or there is none.
    """

    SUBJECT, ERROR = "kernel {0.name!r}", CostError
    name: Name
    samples: Times
    launch: Kernel | None = brief(None)
    stream: Count = 0


@dataclass(frozen=True, slots=True)
class MeasuredCopy(_Sampled):
    """Memory that an operator had copied or set.

    Parameters
    ----------
    kind
        ``"memcpy"`` or ``"memset"``.
    name
        As the profiler prints it, such as ``"Memcpy HtoD (Pinned -> Device)"``.
    samples
        Its time on the device in us, one per iteration, in their order.
    nbytes
        Bytes moved or set, or None if they are not known.
    stream
        The stream it ran on.
    """

    SUBJECT, ERROR = "copy {0.name!r}", CostError
    kind: Annotated[str, Among(COPY_KINDS)]
    name: Name
    samples: Times
    nbytes: Amount | None = brief(None)
    stream: Count = 0


@dataclass(frozen=True, slots=True)
class MeasuredOperator(_Sampled):
    """An operator that ran at least once.

    Parameters
    ----------
    name
        That of the operator in its graph, or one that the importer made.
    samples
        Its time in us, one per iteration, in their order; 0 for one that had the device do nothing.
    kernels
        What it launched, in order; empty if it launched nothing or that is not known.
    copies
        What it had copied or set, in order.
    """

    SUBJECT, ERROR = "operator {0.name!r}", CostError
    name: Name
    samples: Times
    kernels: tuple[MeasuredKernel, ...] = brief(())
    copies: tuple[MeasuredCopy, ...] = brief(())

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        parts: tuple[MeasuredKernel | MeasuredCopy, ...] = (*self.kernels, *self.copies)
        for part in parts:
            if len(part.samples) != len(self.samples):
                raise self.refusal(
                    f"{part.name!r} has {len(part.samples)} samples where the operator has {len(self.samples)}; there "
                    "must be one per iteration"
                )
