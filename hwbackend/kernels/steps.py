"""One step of an operator: the operator itself, or a part of a unit, with its tensors where they lie."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from hwbackend.kernels.arguments import (
    FLOAT_NBYTES,
    Address,
    Argument,
    CudaLaunch,
    Parameter,
    Scratch,
    Shape,
    Size,
    Stamps,
)
from simsched.base.errors import BackendError
from workloads.costs import ACTIVATION_FLOPS

THREADS: Final = 256
ACTIVATIONS: Final = (None, *ACTIVATION_FLOPS, "square")
"""Functions of one number, by their numbers in ``synth.cu``; the first leaves it as it is."""

MOST_ELEMENTS: Final = 2**30
"""Of a tensor: the kernels count in 32 bits."""
_LARGEST_GRID: Final = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A dense tensor, and where it lies."""

    at: Address
    shape: Shape

    @property
    def n(self) -> int:
        """How many elements it has."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Step:
    """What one kernel, or a few, are to compute.

    Parameters
    ----------
    operator
        Name of the operator, for errors.
    kind, attributes
        As those of an operator.
    reads, output
        Tensors that are read, and the one that is written.
    part
        Number of the part of a unit, None for an operator of one part.
    sms
        Processors of the device.
    spare
        Numbers of scratch buffers that nobody has taken yet.
    """

    operator: str
    kind: str
    attributes: Mapping[str, Any]
    reads: tuple[Tensor, ...]
    output: Tensor
    part: int | None
    sms: int
    spare: Iterator[int]

    def error(self, reason: str) -> BackendError:
        """Return what to raise if there is no kernel for it."""
        where = "" if self.part is None else f", part {self.part}"
        return BackendError(
            f"operator {self.operator!r}{where} of kind {self.kind!r}: {reason}; replace it by one of kind 'synth'"
        )

    def need_reads(self, least: int, most: int | None = None) -> None:
        """Refuse another number of inputs: at least `least`, and no more unless `most` says so."""
        most = least if most is None else most
        if not least <= len(self.reads) <= most:
            raise self.error(f"the CUDA kernel does not read {len(self.reads)} tensors")

    def activation(self) -> np.int32:
        """Return the number of the activation that is applied to what is written."""
        return self.number_of(self.attributes.get("activation"))

    def number_of(self, activation: str | None) -> np.int32:
        """Return the number of an activation."""
        if activation not in ACTIVATIONS:
            raise self.error(f"there is no CUDA code for activation {activation!r}")
        return np.int32(ACTIVATIONS.index(activation))

    def parameter(self, name: str, shape: Sequence[int], mean: float = 0.0, spread: float = 1.0) -> Tensor:
        """Return a parameter of the operator."""
        return Tensor(Parameter(name, tuple(shape), mean, spread, self.part), tuple(shape))

    def scratch(self, shape: Sequence[int]) -> Tensor:
        """Return a tensor between two launches."""
        return Tensor(Scratch(next(self.spare), FLOAT_NBYTES * prod(shape)), tuple(shape))

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        threads: int,
        arguments: Sequence[Argument | int | float],
        *,
        flops: float,
        moved: Sequence[Tensor | None],
    ) -> CudaLaunch:
        """Return a launch; `moved` are the tensors that it reads or writes, for its bytes; stamps come last."""
        x, y, z = (*grid, 1, 1, 1)[:3]
        for size, most in zip((x, y, z), _LARGEST_GRID, strict=True):
            if size > most:
                raise self.error(f"a grid of {x} x {y} x {z} blocks is larger than a CUDA grid can be")
        for tensor in moved:
            if tensor is not None and tensor.n > MOST_ELEMENTS:
                raise self.error(f"a tensor of {tensor.n} elements is larger than the CUDA kernels can count")
        # a tensor of no axes is just a number
        nbytes = float(FLOAT_NBYTES * sum(tensor.n for tensor in moved if tensor is not None and tensor.shape))
        block: Size = (threads, 1, 1)
        given = (*map(as_argument, arguments), Stamps())
        return CudaLaunch(kernel, (x, y, z), block, 0, given, float(flops), nbytes)

    def over_elements(self, n: int) -> tuple[int, int]:
        """Return blocks, and elements for each thread: the most of 4, 2 and 1 that gives every processor a block."""
        items = next((many for many in (4, 2) if -(-n // (THREADS * many)) >= self.sms), 1)
        return -(-n // (THREADS * items)), items


def as_argument(value: Argument | int | float) -> Argument:
    """Return a number as a kernel takes it."""
    if type(value) is int:
        return np.int32(value)
    return np.float32(value) if type(value) is float else value  # type: ignore[return-value]


def address_of(tensor: Tensor | None) -> Address | None:
    """Return where a tensor lies, None (a null pointer) if there is none."""
    return None if tensor is None else tensor.at
