"""Measurements: the device, operators, the kernels they launched, and the copies they made."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Annotated, Final

from simsched.base.codec import Among, Amount, Checked, Count, Filled, Name, Rate, Size, brief
from simsched.base.errors import CostError
from simsched.model.cluster import DEVICES, Device
from simsched.model.cluster.presets import make_device
from simsched.model.graph import Kernel

_WORDS = re.compile(r"[a-z0-9]+")
_BRANDS: Final = ("nvidia", "tesla", "geforce", "quadro")
# suffixes of a preset's name that name the same product: form factor, size of memory, generation and edition
_FORM = re.compile(r"sxm\d?|pcie|nvl|hbm\d?e?|oam|ac|\d+gb|blackwell|workstation|server|edition|generation")
_PRESETS: Final = {name.replace("-", ""): name for name in DEVICES}
_LIMITS = ("sms", "threads_per_sm", "registers_per_sm", "shared_memory_per_sm", "shared_memory_per_block", "memory")


@dataclass(frozen=True, slots=True)
class MeasuredDevice(Checked):
    """A device by its name and its known limits.

    Parameters
    ----------
    name
        As the driver calls it, such as ``"NVIDIA A100-SXM4-40GB"``.
    sms
        Streaming multiprocessors.
    compute_capability
        Such as ``"8.0"``.
    threads_per_sm, registers_per_sm, shared_memory_per_sm
        Capacity of an SM (shared memory in bytes).
    shared_memory_per_block
        Most bytes of shared memory a block may ask for (opt-in limit).
    memory
        DRAM bytes.

    Examples
    --------
    >>> MeasuredDevice("Tesla V100-SXM2-32GB", sms=80, memory=34e9).to_device().memory
    34000000000.0
    """

    SUBJECT = "device {0.name!r}"
    ERROR = CostError
    name: Name
    sms: Size | None = brief(None)
    compute_capability: str | None = brief(None)
    threads_per_sm: Size | None = brief(None)
    registers_per_sm: Size | None = brief(None)
    shared_memory_per_sm: Size | None = brief(None)
    shared_memory_per_block: Size | None = brief(None)
    memory: Rate | None = brief(None)

    @property
    def preset(self) -> str | None:
        """Name of the preset of this product, or None if there is none with as many SMs."""
        words = _WORDS.findall(self.name.lower())
        while words and words[0] in _BRANDS:
            del words[0]
        for end in range(len(words), 0, -1):
            name = _PRESETS.get("".join(words[:end]))
            if name is not None and all(_FORM.fullmatch(word) for word in words[end:]):
                if self.sms in (None, DEVICES[name]["sms"]):
                    return name
                return None
        return None

    def to_device(self, name: str = "gpu0") -> Device | None:
        """Return the preset of this product with the limits that were measured, or None if there is no preset.

        Rates and overheads remain the preset's: a profiler does not report them.
        """
        preset = self.preset
        if preset is None:
            return None
        limits = {key: getattr(self, key) for key in _LIMITS if getattr(self, key) is not None}
        return replace(make_device(preset, name), **limits)


def quantile(samples: Sequence[float], part: float) -> float:
    """Return the value below which lies a `part` of the samples, linear between two of them.

    >>> quantile([4.0, 1.0, 2.0], 0.5), quantile([10.0, 20.0], 0.25)
    (2.0, 12.5)
    """
    ordered = sorted(samples)
    place = part * (len(ordered) - 1)
    below = floor(place)
    low = ordered[below]
    high = ordered[min(below + 1, len(ordered) - 1)]
    return low + (high - low) * (place - below)


Times = Annotated[tuple[Amount, ...], Filled()]
"""Measured times in us, at least one."""


class _Sampled(Checked):
    """An object that has samples."""

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
        Blocks, threads, registers and shared memory, or None if they are not known. Its `share` is not used: the part
        of the operator's time follows from the samples.
    stream
        The stream it ran on.

    Raises
    ------
    CostError
        If a sample is no finite time, or there is none.
    """

    SUBJECT = "kernel {0.name!r}"
    ERROR = CostError
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

    SUBJECT = "copy {0.name!r}"
    ERROR = CostError
    kind: Annotated[str, Among(("memcpy", "memset"))]
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
        Name of the operator in its graph, or one that the importer made.
    samples
        Its time in us, one per iteration, in their order; 0 for one that had the device do nothing.
    kernels
        Its kernels, in order; empty if it launched none or they are not known.
    copies
        Its copies and memory sets, in order.
    """

    SUBJECT = "operator {0.name!r}"
    ERROR = CostError
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
