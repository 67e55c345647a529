"""Launches of CUDA kernels and their arguments as plain data; their meaning is in `hwbackend.cuda.kernels.launches`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Final, TypeVar

import numpy as np

FLOAT_NBYTES: Final = 4
Size = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Input:
    """The tensor that edge `index` brings."""

    index: int


@dataclass(frozen=True, slots=True)
class Output:
    """The operator's output."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """A buffer between two launches of one operator; equal ones are the same buffer."""

    index: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class NumberArgument:
    """A number of the operator, float32, that is written once; equal ones are the same number.

    Parameters
    ----------
    name
        Name of the number.
    mean, spread
        Mean and deviation of the normal distribution that it is drawn from.
    """

    name: str
    mean: float = 0.0
    spread: float = 1.0

    @property
    def nbytes(self) -> int:
        """Bytes of the number."""
        return FLOAT_NBYTES


@dataclass(frozen=True, slots=True)
class StreamBuffer:
    """A large buffer that the operators of a device share: "source" (finite numbers) or "sink" (never read)."""

    role: str


@dataclass(frozen=True, slots=True)
class Stamps:
    """Two 64-bit words of a launch: when its first block began and its last one ended; or none."""


@dataclass(frozen=True, slots=True)
class BlockStamps:
    """Three 64-bit words for each block of a launch: when it began, when it ended, on which SM; or none."""


Address = Input | Output | Scratch | NumberArgument


@dataclass(frozen=True, slots=True)
class WordTable:
    """An array of 64-bit words in device memory, addresses and whole numbers; equal ones are the same array."""

    entries: tuple[Address | int, ...]


Argument = Address | WordTable | StreamBuffer | Stamps | BlockStamps | np.int32 | None


@dataclass(frozen=True, slots=True)
class CudaLaunch:
    """One launch of a kernel.

    Parameters
    ----------
    kernel
        Its name.
    grid, block
        Blocks of the grid and threads of a block along x, y and z.
    shared_memory
        Bytes of dynamic shared memory, besides the kernel's static shared memory.
    arguments
        In the order of the kernel's parameters.
    flops, nbytes
        FLOP, and bytes that are read and written.
    """

    kernel: str
    grid: Size
    block: Size
    shared_memory: int
    arguments: tuple[Argument, ...]
    flops: float
    nbytes: float

    @property
    def blocks(self) -> int:
        """Blocks in the grid."""
        return prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return prod(self.block)


T = TypeVar("T", Scratch, NumberArgument, WordTable)


def parameters_of(launches: Iterable[CudaLaunch]) -> tuple[NumberArgument, ...]:
    """Return the parameters in the arguments of launches, each once, in order."""
    return _distinct(launches, NumberArgument)


def scratch_of(launches: Iterable[CudaLaunch]) -> tuple[Scratch, ...]:
    """Return the scratch buffers in the arguments of launches, each once, in order."""
    return _distinct(launches, Scratch)


def tables_of(launches: Iterable[CudaLaunch]) -> tuple[WordTable, ...]:
    """Return the tables in the arguments of launches, each once, in order."""
    return _distinct(launches, WordTable)


def _distinct(launches: Iterable[CudaLaunch], wanted: type[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(argument for argument in _all_arguments(launches) if isinstance(argument, wanted)))


def _all_arguments(launches: Iterable[CudaLaunch]) -> Iterator[Argument | int]:
    for launch in launches:
        for argument in launch.arguments:
            yield argument
            if isinstance(argument, WordTable):
                yield from argument.entries
