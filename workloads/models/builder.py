"""`NetworkBuilder`: makes a graph of operators and units, one call at a time; `Network` gives it layers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final

from simsched.base.errors import GraphError
from simsched.model import Edge, Operator, OpGraph
from simsched.model.graph import Work
from workloads.checks import one_of, whole
from workloads.costs import COMPUTES, Costs, intensity, nbytes_of, of_one_model, with_bytes
from workloads.retired import refusing_retired

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
class _UnitPart:
    """A part of a unit; `inputs` are earlier parts, or ~i for the unit's i-th input."""

    kind: str
    inputs: tuple[int, ...]
    works: tuple[Work, ...]
    weight_nbytes: float
    output_shape: Shape
    attributes: dict[str, Any]

    def description(self) -> dict[str, Any]:
        return {"kind": self.kind, "inputs": self.inputs, "output_shape": self.output_shape} | self.attributes


class _Unit:
    """A unit being filled."""

    def __init__(self, name: str, kind: str, attributes: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.name = name
        self.kind = kind
        self.attributes = attributes
        self.inputs: list[Tensor] = []
        self.parts: list[_UnitPart] = []

    def reads(self, x: Tensor) -> int:
        """Return how a part refers to a tensor: an earlier part, or ~i for the i-th input."""
        if x.producer == self.name and x.part is not None:
            return x.part
        self.inputs.append(x)
        return ~(len(self.inputs) - 1)


class NetworkBuilder:
    """A graph under construction; its parameters are described in `workloads.models.network.Network`."""

    @refusing_retired
    def __init__(self, name: str, dtype: str = "fp32", granularity: str = "unit") -> None:
        self.name = name
        self.costs = Costs(dtype)
        self.by_units = one_of(name, "granularity", granularity, GRANULARITIES) == "unit"
        self.block: str | None = None
        self._operators: list[Operator] = []
        self._edges: list[Edge] = []
        self._open: _Unit | None = None
        self._output: dict[str | None, int] = {}  # operator -> its last part, the one that others may read

    def input(self, *shape: int) -> Tensor:
        """Return an input of the network, such as (batch, channels, height, width)."""
        sizes = tuple(whole(self.name, "size of an input", size, most=LARGEST_SIZE) for size in shape)
        if prod(sizes) > _MOST_ELEMENTS:
            raise GraphError(f"{self.name}: an input of shape {sizes} is more than any device holds")
        return Tensor(None, sizes)

    @contextmanager
    def unit(self, name: str, kind: str, attributes: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
        """Make one operator, with further `attributes`, of all parts that are added inside; the last one is its output.

        Its `attributes["parts"]` list them in order: kind, attributes, `output_shape` and `inputs`, which
        are the numbers of earlier parts, or ~i (that is -1 - i) for input i of the operator. Each part
        has its own works and moves its own bytes. A unit of one part is that part, under the
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
        work: Work | None,
        attributes: dict[str, Any] | None = None,
        *,
        is_counted: bool = False,
        weight_nbytes: float | None = None,
    ) -> Tensor:
        """Add an operator of any kind.

        Parameters
        ----------
        work
            Its work; None if it launches nothing.
        is_counted
            Whether the work counts all bytes; else the bytes of the inputs and of the output are added.
        weight_nbytes
            Bytes of the parameters that it keeps; by default the work's.
        """
        if work is None:
            works: tuple[Work, ...] = ()
        else:
            works = (work,)
        weights = sum(part.weights for part in works)
        if not is_counted:
            width = self.costs.width
            works = with_bytes(works, sum(prod(x.shape) for x in xs) * width, weights, prod(shape) * width)
        for x in xs:
            if x.part is not None and x.part != self._output.get(x.producer, x.part):
                raise GraphError(f"{name}: cannot read from within unit {x.producer}, only its last output")
        unit = self._open or _Unit(name, kind)
        inputs = tuple(unit.reads(x) for x in xs)
        if weight_nbytes is None:
            parameter_nbytes = weights
        else:
            parameter_nbytes = weight_nbytes
        unit.parts.append(_UnitPart(kind, inputs, works, parameter_nbytes, shape, attributes or {}))
        if unit is self._open:
            return Tensor(unit.name, shape, len(unit.parts) - 1)
        self._close(unit)
        return Tensor(name, shape, 0)

    def graph(self) -> OpGraph:
        """Return the finished graph, operators in the order in which they were added."""
        return of_one_model(OpGraph(self._operators, self._edges, self.name))

    def _close(self, unit: _Unit) -> None:
        """Add the operator that a unit's parts make."""
        parts = unit.parts
        width = self.costs.width
        self._output[unit.name] = len(parts) - 1
        works = tuple(work for part in parts for work in part.works)
        first = parts[0]
        if len(parts) == 1:
            attributes = first.attributes
        else:
            attributes = {"parts": [part.description() for part in parts]}
        self._operators.append(
            Operator(
                unit.name,
                kind=first.kind if len(parts) == 1 else unit.kind,
                flops=sum(work.flops for work in works),
                nbytes=nbytes_of(works),
                weight_nbytes=sum(part.weight_nbytes for part in parts),
                time=None if works else 0.0,
                works=works,
                intensity=intensity(any(part.kind in COMPUTES for part in parts)),
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
