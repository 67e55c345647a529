"""Tensors and nodes of an ONNX graph as the importer holds them: shapes and formats, hardly ever numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import FormatError, brief_text
from simsched.model import DTYPE_NBYTES
from workloads.costs import Costs

if TYPE_CHECKING:
    import onnx

Shape = tuple[int, ...]
Array = npt.NDArray[Any]

MOST_NUMBERS: Final = 4096  # of a constant that is computed with; shapes, axes and pads are far smaller
_MOST_ELEMENTS: Final = 2**40  # of a tensor: more than any device holds
_MOST_AXES: Final = 64
_MOST_NAME_SHOWN: Final = 200

# ONNX's element types: bytes of an element, and the number format of that size in which a device computes with it
_ELEMENTS: Final[Mapping[int, tuple[float, str]]] = {
    1: (4, "fp32"),
    2: (1, "int8"),
    3: (1, "int8"),
    4: (2, "fp16"),
    5: (2, "fp16"),
    6: (4, "fp32"),
    7: (8, "fp64"),
    9: (1, "int8"),
    10: (2, "fp16"),
    11: (8, "fp64"),
    12: (4, "fp32"),
    13: (8, "fp64"),
    14: (8, "fp64"),
    15: (16, "fp64"),
    16: (2, "bf16"),
    17: (1, "fp8"),
    18: (1, "fp8"),
    19: (1, "fp8"),
    20: (1, "fp8"),
    21: (0.5, "int8"),
    22: (0.5, "int8"),
    23: (0.5, "fp8"),
    24: (1, "fp8"),
    25: (0.25, "int8"),
    26: (0.25, "int8"),
    27: (0.75, "fp8"),
    28: (0.75, "fp8"),
}
_REAL_ELEMENTS: Final = (1, 10, 11, 16, 17, 18, 19, 20, 23, 24, 27, 28)
STACK: Final = "simsched.Stack"
"""Type of a step that stacks the outputs of the rounds of a loop."""
FLOAT: Final = 1
WHOLE: Final = (6, 7, 9)  # of 4 and 8 bytes, and booleans
_COMPUTABLE: Final = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)  # those that numpy itself knows


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor: its element type (0 if unknown), its shape if known, and which step writes it.

    `constant` says that it depends on no input of the network; `stored` are the bytes that its weights
    take in the file if their own element type takes other ones (quantised weights). `strides` is None
    if its elements lie one after the other (see `workloads.formats.onnx.views`).
    """

    name: str
    elem: int = 0
    shape: Shape | None = None
    producer: int | None = None
    constant: bool = False
    proto: "onnx.TensorProto | None" = None
    array: Array | None = None
    stored: float | None = None
    strides: Shape | None = None

    def numbers(self) -> Array | None:
        """Return the elements of a small constant in the file itself, None of any other tensor."""
        if self.array is None and self.proto is not None:
            from onnx import TensorProto, numpy_helper

            proto = self.proto
            self.proto = None
            here = proto.data_location != TensorProto.EXTERNAL and proto.data_type in _COMPUTABLE
            if here and len(proto.dims) <= 32 and prod(proto.dims) <= MOST_NUMBERS:
                try:
                    self.array = np.asarray(numpy_helper.to_array(proto))
                except (TypeError, ValueError):  # fewer numbers than the shape says
                    return None
        return self.array


class Formats:
    """Costs of the elements of a model: bytes, number formats, rules of cost.

    Parameters
    ----------
    dtype
        Counts all floating-point tensors in this number format; None keeps the model's own formats.
    in_memory
        Whether the model is one in memory, for which sizes are given in Python.
    """

    def __init__(self, dtype: str | None, *, in_memory: bool = False) -> None:
        self._costs = Costs(dtype or "fp32")
        self._dtype = dtype
        self._in_memory = in_memory

    def request(self, sizes: Mapping[str, str]) -> str:
        """Return how sizes are given, by the name of the tensor."""
        if self._in_memory:
            listed = ", ".join(f'"{plain(name)}": [{text.replace(",", ", ")}]' for name, text in sizes.items())
            return f"shapes={{{listed}}}"
        return " ".join(f"--shape {plain(name)}={text}" for name, text in sizes.items())

    def shape_of(self, where: str, tensor: "Tensor") -> Shape:
        """Return a tensor's shape, or refuse to go on without."""
        if tensor.shape is None:
            remedy = self.request({tensor.name: "1,3,224,224"})
            raise FormatError(
                f"{where}: the shape of {brief_text(tensor.name)} cannot be inferred; give it too: {remedy}"
            )
        return tensor.shape

    def costs(self, elem: int) -> Costs:
        """Return the rules of cost for an element type."""
        if elem not in _ELEMENTS or (self._dtype is not None and elem in _REAL_ELEMENTS):
            return self._costs
        return self._costs.of(_ELEMENTS[elem][1])

    def nbytes(self, tensor: Tensor) -> float:
        """Return the bytes of a tensor, 0 if its shape or element type is not known."""
        if tensor.shape is None or tensor.stored is not None:
            return tensor.stored or 0.0
        if self._dtype is not None and tensor.elem in _REAL_ELEMENTS:
            return float(n_stored(tensor) * DTYPE_NBYTES[self._dtype])
        return stored_nbytes(tensor)


@dataclass(eq=False)
class Step:
    """A node that is not folded away: `inputs` and `outputs` have None where the node leaves one out."""

    where: str
    name: str
    domain: str
    op_type: str
    version: int
    inputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any]
    captured: tuple[Tensor, ...]
    formats: Formats
    outputs: tuple[Tensor | None, ...] = ()

    @cached_property
    def given(self) -> tuple[Tensor, ...]:
        """All that it reads, by graphs inside it too."""
        return tuple(x for x in (*self.inputs, *self.captured) if x is not None)

    @cached_property
    def read(self) -> tuple[Tensor, ...]:
        """The tensors that it reads of other operators or from outside, in order."""
        return tuple(x for x in self.given if not x.constant)

    @cached_property
    def written(self) -> tuple[Tensor, ...]:
        """The outputs that are not left out."""
        return tuple(x for x in self.outputs if x is not None)

    def input(self, i: int) -> Tensor | None:
        """Return an input, None if it is left out."""
        if i < len(self.inputs):
            return self.inputs[i]
        return None

    def shape_in(self, i: int) -> Shape:
        """Return the shape of an input that the operator's costs need."""
        tensor = self.input(i)
        if tensor is None:
            raise FormatError(f"{self.where}: input {i} is missing")
        return self.formats.shape_of(self.where, tensor)

    def shape_out(self) -> Shape:
        """Return the shape of the first output; for a split the shape of its input.

        If it is not known, an input of unknown shape is to blame.
        """
        if self.op_type == "Split":
            return self.shape_in(0)
        out = self.written[0]
        unknown = (x for x in (*self.given, out) if x.shape is None)
        return self.formats.shape_of(self.where, out if out.shape is not None else next(unknown))

    def nbytes(self, *tensors: Tensor) -> float:
        """Return the bytes of tensors; a tensor of unknown shape or element type has 0."""
        return sum(map(self.formats.nbytes, tensors), 0.0)

    def axis(self, default: int, rank: int) -> int:
        """Return attribute `axis`, counted from the front."""
        axis: int = self.attributes.get("axis", default)
        if not -rank <= axis <= rank:
            raise FormatError(f"{self.where}: axis {axis} is not one of {rank}")
        return axis + rank if axis < 0 else axis


def n_stored(tensor: Tensor) -> int:
    """Return the number of stored elements of a tensor of known shape: an expansion stores each element once."""
    assert tensor.shape is not None
    if tensor.strides is None:
        return prod(tensor.shape)
    return prod(size for size, step in zip(tensor.shape, tensor.strides, strict=True) if step)


def stored_nbytes(tensor: Tensor) -> float:
    """Return the bytes of a tensor of known shape in its own element type, 0 if the type is unknown."""
    return float(n_stored(tensor) * _ELEMENTS.get(tensor.elem, (0.0, ""))[0])


def checked_shape(where: str, name: str, sizes: Sequence[int], *, least: int = 1) -> Shape:
    """Return a shape whose sizes are at least `least` and that a device can hold."""
    shape = tuple(sizes)
    if len(shape) > _MOST_AXES:
        raise FormatError(f"{where}: {brief_text(name)} has {len(shape)} axes; at most {_MOST_AXES} are read")
    if min(shape, default=least) < least:
        raise FormatError(f"{where}: {brief_text(name)} has shape {brief_text(shape)}; sizes must be at least {least}")
    if prod(shape) > _MOST_ELEMENTS:
        raise FormatError(f"{where}: {brief_text(name)} of shape {brief_text(shape)} is more than any device holds")
    return shape


def plain(name: str) -> str:
    """Return a name as it is typed, on one line of limited length."""
    return repr(name)[1:-1][:_MOST_NAME_SHOWN]


def attributes_of(node: "onnx.NodeProto") -> dict[str, Any]:
    """Return a node's attributes as Python values: texts and tuples instead of bytes and lists."""
    from onnx import helper

    def value(given: Any) -> Any:
        if isinstance(given, list):
            return tuple(map(value, given))
        if isinstance(given, bytes):
            return given.decode(errors="replace")
        return given

    return {one.name: value(helper.get_attribute_value(one)) for one in node.attribute if not one.ref_attr_name}


def read_inside(node: "onnx.NodeProto") -> Iterator[str]:
    """Yield the names of tensors that the graphs of a control-flow node read, its own among them."""
    graphs = [graph for one in node.attribute for graph in (one.g, *one.graphs) if graph.node or graph.output]
    for graph in graphs:
        for inner in graph.node:
            yield from inner.input
            yield from read_inside(inner)
        for output in graph.output:
            yield output.name
