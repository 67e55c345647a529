"""`Builder`: makes a graph of operators and units, one call at a time; `Network` gives it layers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final

from simsched.base.errors import GraphError
from simsched.model import Device, Edge, Kernel, Operator, OpGraph
from workloads.checks import one_of, whole
from workloads.costs import COMPUTES, Costs, Work, launched, make_kernel

Shape = tuple[int, ...]

GRANULARITIES: Final = ("unit", "operator")
LARGEST_SIZE: Final = 2**31 - 1
"""Of one axis of an input."""
_MOST_ELEMENTS: Final = 2**40  # of an input: more than any device holds


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operator's output, or (`producer` None) an input of the network; `part` is its place in an open unit."""

    producer: str | None
    shape: Shape
    part: int | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """One kernel's worth of a unit; `inputs` are earlier parts, or ~i for the unit's i-th input."""

    kind: str
    inputs: tuple[int, ...]
    work: Work
    nbytes: float
    output_shape: Shape
    attributes: dict[str, Any]

    def described(self) -> dict[str, Any]:
        return {"kind": self.kind, "inputs": self.inputs, "output_shape": self.output_shape} | self.attributes


class _Unit:
    """A unit being filled."""

    def __init__(self, name: str, kind: str, attributes: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.name = name
        self.kind = kind
        self.attributes = attributes
        self.inputs: list[Tensor] = []
        self.parts: list[_Part] = []

    def reads(self, x: Tensor) -> int:
        """Return how a part refers to a tensor: an earlier part, or ~i for the i-th input."""
        if x.producer == self.name and x.part is not None:
            return x.part
        self.inputs.append(x)
        return ~(len(self.inputs) - 1)


class Builder:
    """A graph under construction; the parameters are those of `workloads.models.network.Network`."""

    def __init__(
        self, name: str, dtype: str = "fp32", granularity: str = "unit", device: str | Device | None = None
    ) -> None:
        self.name = name
        self.costs = Costs(dtype, device)
        self.by_units = one_of(name, "granularity", granularity, GRANULARITIES) == "unit"
        self.block: str | None = None
        self._operators: list[Operator] = []
        self._edges: list[Edge] = []
        self._open: _Unit | None = None
        self._output: dict[str | None, int] = {}  # operator -> its last part, which is what others may read

    def input(self, *shape: int) -> Tensor:
        """Return an input of the network, such as (batch, channels, height, width)."""
        sizes = tuple(whole(self.name, "size of an input", size, most=LARGEST_SIZE) for size in shape)
        if prod(sizes) > _MOST_ELEMENTS:
            raise GraphError(f"{self.name}: an input of shape {sizes} is more than any device holds")
        return Tensor(None, sizes)

    @contextmanager
    def unit(self, name: str, kind: str, attributes: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
        """Make one operator, with `attributes` more, of all that is added inside; its output is that of the last.

        Its `attributes["parts"]` list them in order: kind, attributes, `output_shape` and `inputs`, which
        are the numbers of earlier parts, or ~i (that is -1 - i) for input i of the operator. Each part
        launches its own kernels and moves its own bytes. A unit of one part is that part, under the
        name of the unit. At granularity "operator" this does nothing.
        """
        if not self.by_units:
            yield
            return
        if self._open is not None:
            raise GraphError(f"{name}: unit {self._open.name} is still open")
        self._open = unit = _Unit(name, kind, attributes)
        try:
            yield
        finally:
            self._open = None
        if not unit.parts:
            raise GraphError(f"{name}: the unit is empty")
        self._close(unit)

    def add_operator(
        self,
        name: str,
        kind: str,
        xs: Sequence[Tensor],
        shape: Shape,
        work: Work,
        attributes: dict[str, Any] | None = None,
        *,
        nbytes: float | None = None,
    ) -> Tensor:
        """Add an operator of any kind; `nbytes` defaults to inputs, weights and output."""
        width = self.costs.width
        if nbytes is None:
            nbytes = float((sum(prod(x.shape) for x in xs) + work.n_weights + prod(shape)) * width)
        launched(name, work.kernel)
        for x in xs:
            if x.part is not None and x.part != self._output.get(x.producer, x.part):
                raise GraphError(f"{name}: cannot read from within unit {x.producer}, only its last output")
        unit = self._open or _Unit(name, kind)
        inputs = tuple(unit.reads(x) for x in xs)
        unit.parts.append(_Part(kind, inputs, work, nbytes, shape, attributes or {}))
        if unit is self._open:
            return Tensor(unit.name, shape, len(unit.parts) - 1)
        self._close(unit)
        return Tensor(name, shape, 0)

    def graph(self) -> OpGraph:
        """Return what was built, operators in the order in which they were added."""
        return OpGraph(self._operators, self._edges, self.name)

    def _close(self, unit: _Unit) -> None:
        """Add the operator that a unit's parts make."""
        parts, width = unit.parts, self.costs.width
        self._output[unit.name] = len(parts) - 1
        flops, nbytes = sum(part.work.flops for part in parts), sum(part.nbytes for part in parts)
        computes = any(part.kind in COMPUTES for part in parts)
        kernels = self._kernels(unit)
        first = parts[0]
        attributes = first.attributes if len(parts) == 1 else {"parts": [part.described() for part in parts]}
        self._operators.append(
            Operator(
                unit.name,
                kind=first.kind if len(parts) == 1 else unit.kind,
                flops=flops,
                nbytes=nbytes,
                weight_nbytes=float(sum(part.work.n_weights for part in parts) * width),
                time=None if kernels else 0.0,
                kernels=kernels,
                intensity=self.costs.intensity(computes, flops, nbytes),
                dtype=self.costs.dtype,
                attributes={**attributes, **unit.attributes},
                input_shapes=tuple(x.shape for x in unit.inputs),
                output_shape=parts[-1].output_shape,
                block=self.block,
            )
        )
        for x in unit.inputs:
            if x.producer is not None:
                self._edges.append(Edge(x.producer, unit.name, nbytes=float(prod(x.shape) * width)))

    def _kernels(self, unit: _Unit) -> tuple[Kernel, ...]:
        """Return the kernels of the parts, each with its share of the operator's time and what all reach together."""
        launched = [(kernel, part) for part in unit.parts if (kernel := part.work.kernel) is not None]
        if len(launched) < 2:
            return tuple(kernel for kernel, _ in launched)
        times = [self.costs.duration(part.work.flops, part.nbytes, kernel.efficiency) for kernel, part in launched]
        flops = sum(part.work.flops for _, part in launched)
        efficiency = flops / sum(part.work.flops / kernel.efficiency for kernel, part in launched) if flops else 1.0
        total = sum(times)
        return tuple(
            make_kernel(kernel.blocks, kernel.threads, kernel.registers, kernel.shared_memory, time / total, efficiency)
            for (kernel, _), time in zip(launched, times, strict=True)
        )
