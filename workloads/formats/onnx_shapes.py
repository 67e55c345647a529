"""Shapes of all tensors of an ONNX graph, and its nodes less those that are computed from constants only.

One pass over the nodes, in file order: each is inferred on its own by ONNX's rule for it, from the shapes found
so far and from the numbers of the small constants it reads. So no model is handed to ONNX whole (which fails
from 2 GB on), weights are never looked at, and the arithmetic on shapes that exporters leave in a graph is
worked out on the way.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from simsched.base.errors import FormatError, shown
from workloads.checks import whole
from workloads.formats.onnx_inference import EVALUATED, evaluate, infer
from workloads.formats.onnx_tensors import (
    FLOAT,
    MOST_NUMBERS,
    Array,
    Formats,
    Shape,
    Step,
    Tensor,
    attributes_of,
    checked_shape,
    known_shape,
    plain,
    read_inside,
    stored_nbytes,
)

if TYPE_CHECKING:
    import onnx

OLDEST_OPSET: Final = 7
_STANDARD: Final = ("", "ai.onnx")  # the names of ONNX's own operator set
_RANDOM: Final = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"
)  # fmt: skip
_OF_SHAPES: Final = ("Shape", "Size")  # what these write does not depend on numbers
_LARGEST_SIZE: Final = 2**31 - 1
_MOST_NAMED: Final = 8


class ShapeReader:
    """Reads one graph.

    Parameters
    ----------
    model
        The decoded model.
    shapes
        Shapes given by the caller, by the name of an input or of a tensor that inference cannot size.
    formats
        What its elements count.
    source
        How errors name the model.

    Attributes
    ----------
    steps
        Nodes that are left, in file order; a tensor's `producer` is the index of its step.
    results
        Tensors that the graph returns.

    Raises
    ------
    FormatError
        If the graph is not what it should be; the message names the node or the tensor.
    """

    def __init__(
        self, model: "onnx.ModelProto", shapes: Mapping[str, Sequence[int]], formats: Formats, source: str
    ) -> None:
        self._source = source
        self._formats = formats
        self._graph = model.graph
        self._versions = self._opsets(model)
        self._functions = {(f.domain, f.name) for f in model.functions}
        self._given = {name: self._given_shape(name, shapes[name]) for name in shapes}
        self._tensors: dict[str, Tensor] = {}
        self._symbols: dict[str, int] = {}  # sizes that a given shape has put a number to
        self._resized = False  # a size that the model fixes is given otherwise
        self.steps: list[Step] = []
        for proto in self._graph.initializer:
            self._put_constant(proto.name, proto.data_type, proto.dims, proto)
        for sparse in self._graph.sparse_initializer:
            self._put_constant(sparse.values.name, sparse.values.data_type, sparse.dims)
        self._read_inputs()
        self._declared = {info.name: info.type for info in (*self._graph.value_info, *self._graph.output)}
        for i, node in enumerate(self._graph.node):
            self._read_node(i, node)
        unused = [name for name in self._given if name not in self._tensors or self._tensors[name].constant]
        if unused:
            names = [plain(info.name) for info in self._graph.input if not self._tensors[info.name].constant]
            listed = ", ".join(names[:_MOST_NAMED] + ["..."] * (len(names) > _MOST_NAMED))
            raise FormatError(f"{source}: no input {shown(unused[0])}; the inputs are: {listed}")
        self.results = [self._tensor(info.name, f"{source}: output") for info in self._graph.output]

    def _opsets(self, model: "onnx.ModelProto") -> dict[str, int]:
        """Return the version of each operator set, that of ONNX's own as ""."""
        from onnx import defs

        found = {"" if one.domain in _STANDARD else one.domain: one.version for one in model.opset_import}
        newest = defs.onnx_opset_version()
        version = found.get("", newest)
        if not OLDEST_OPSET <= version <= newest:
            remedy = "upgrade the package onnx" if version > newest else "convert it with onnx.version_converter"
            raise FormatError(f"{self._source}: opset {version} is not one of {OLDEST_OPSET} to {newest}; {remedy}")
        return found

    def _given_shape(self, name: str, sizes: Sequence[int]) -> Shape:
        what = f"the size of {shown(name)}"
        found = tuple(whole(self._source, what, size, most=_LARGEST_SIZE) for size in sizes)
        return checked_shape(self._source, name, found)

    def _put(self, tensor: Tensor) -> None:
        if not tensor.name or not isinstance(tensor.name, str):  # protobuf gives what is not UTF-8 as bytes
            raise FormatError(f"{self._source}: the name of a tensor is {shown(tensor.name)}, not a text")
        if tensor.name in self._tensors:
            raise FormatError(f"{self._source}: tensor {shown(tensor.name)} is written twice")
        self._tensors[tensor.name] = tensor

    def _put_constant(
        self, name: str, elem: int, sizes: Sequence[int], proto: "onnx.TensorProto | None" = None
    ) -> None:
        shape = checked_shape(self._source, name, sizes, least=0)
        self._put(Tensor(name, elem, shape, constant=True, proto=proto))

    def _read_inputs(self) -> None:
        infos = [info for info in self._graph.input if info.name not in self._tensors]  # an initialiser may be one too
        for info in infos:
            self._bind_symbols(info)
        questions, remedies = [], []
        for info in infos:
            shape = self._given.get(info.name)
            if shape is None and info.type.HasField("tensor_type"):
                sizes, missing = self._sizes(info.type)
                if missing:
                    questions.append(f"input {shown(info.name)} has unknown size {', '.join(map(shown, missing))}")
                    example = ",".join(str(size or 1) for size in sizes) or "1,3,224,224"
                    remedies.append(f"--shape {plain(info.name)}={example}")
                    continue
                shape = checked_shape(self._source, info.name, sizes)
            self._put(Tensor(info.name, info.type.tensor_type.elem_type, shape))
        if questions:
            rest = f" (and {len(questions) - _MOST_NAMED} more)" if len(questions) > _MOST_NAMED else ""
            listed, remedy = ", ".join(questions[:_MOST_NAMED]), " ".join(remedies[:_MOST_NAMED])
            raise FormatError(f"{self._source}: {listed}{rest}; give {remedy}")

    def _bind_symbols(self, info: "onnx.ValueInfoProto") -> None:
        """Take from a given shape what the names of its sizes stand for."""
        given, declared = self._given.get(info.name), info.type.tensor_type
        if given is None or not declared.HasField("shape"):
            return
        if len(declared.shape.dim) != len(given):
            raise FormatError(
                f"{self._source}: input {shown(info.name)} has {len(declared.shape.dim)} axes; {len(given)} are given"
            )
        for dim, size in zip(declared.shape.dim, given, strict=True):
            if dim.dim_param and self._symbols.setdefault(dim.dim_param, size) != size:
                known = self._symbols[dim.dim_param]
                raise FormatError(f"{self._source}: size {shown(dim.dim_param)} is given as {known} and as {size}")
            self._resized |= dim.HasField("dim_value") and dim.dim_value != size

    def _sizes(self, declared: "onnx.TypeProto") -> tuple[Shape, list[str]]:
        """Return a declared shape, 0 for unknown sizes, and how these are called."""
        if not declared.tensor_type.HasField("shape"):
            return (), ["shape"]
        sizes, missing = [], []
        for i, dim in enumerate(declared.tensor_type.shape.dim):
            size = dim.dim_value if dim.HasField("dim_value") else self._symbols.get(dim.dim_param, 0)
            if size == 0:
                missing.append(dim.dim_param or f"axis {i}")
            sizes.append(size)
        return tuple(sizes), missing

    def _read_node(self, i: int, node: "onnx.NodeProto") -> None:
        name = node.name or next((out for out in node.output if out), "") or f"#{i}"
        title = f"operator {shown(name)} ({shown(node.op_type)[1:-1]})"
        where = f"{self._source}: {title}"
        if not node.op_type:
            raise FormatError(f"{self._source}: operator {shown(name)} has no type")
        if not all(isinstance(text, str) for text in (node.name, node.op_type, node.domain, *node.output)):
            raise FormatError(f"{where}: a name in it is not UTF-8 text")
        own = (node.domain, node.op_type) in self._functions
        standard = node.domain in _STANDARD and not own
        if standard and "" not in self._versions:
            raise FormatError(f"{where}: the model does not say which version of ONNX's operator set it is of")
        if standard and node.domain:
            node = _with_short_domain(node)
        inputs = tuple(self._tensor(read, where) if read else None for read in node.input)
        inside = dict.fromkeys(read_inside(node))
        captured = tuple(self._tensors[read] for read in inside if read in self._tensors and read not in node.input)
        domain = "" if standard else node.domain or "functions of the model"
        version, attributes = self._versions.get(node.domain, 0), attributes_of(node)
        step = Step(title, name, domain, node.op_type, version, inputs, attributes, captured, self._formats)
        if standard and node.op_type == "Constant" and "value" in attributes:
            value = attributes["value"]
            self._put_constant(node.output[0], value.data_type, value.dims, value)
        else:
            inferred = [(0, None)] * len(node.output) if own else infer(where, node, inputs, self._versions)
            self._put_outputs(where, node, step, inferred)

    def _put_outputs(
        self, where: str, node: "onnx.NodeProto", step: Step, inferred: Sequence[tuple[int, Shape | None]]
    ) -> None:
        """Put what a node writes, and the step that it is unless that is known already."""
        usual = next((x.elem for x in step.given if x.elem), FLOAT)
        step.outputs = tuple(
            self._output(out, *found, usual) if out else None for out, found in zip(node.output, inferred, strict=True)
        )
        standard = not step.domain
        of_numbers = all(x.constant for x in step.given) and (step.given or (standard and step.op_type == "Constant"))
        constant = bool(of_numbers and step.op_type not in _RANDOM) or (standard and step.op_type in _OF_SHAPES)
        if constant and standard:
            self._fold(where, node, step)
        for out in step.written:
            if out.shape is not None:
                out.shape = checked_shape(where, out.name, out.shape, least=0)
            # what has no elements depends on nothing: a cache that is empty, a part of length 0
            out.constant = constant or (out.shape is not None and 0 in out.shape)
            out.producer = None if out.constant else len(self.steps)
            self._put(out)
        if not constant and not (step.written and all(out.constant for out in step.written)):
            self.steps.append(step)

    def _tensor(self, name: str, where: str) -> Tensor:
        """Return a tensor that is read."""
        if name not in self._tensors:
            raise FormatError(f"{where}: it reads {shown(name)}, which nothing before it writes")
        return self._tensors[name]

    def _output(self, name: str, elem: int, shape: Shape | None, usual: int) -> Tensor:
        """Return an output as inferred, else as given, else as the model declares it for the inputs it declares.

        An element type that is nowhere to be found is the `usual` one if the shape is known.
        """
        given = self._given.get(name, shape)
        if shape is not None and given != shape:
            raise FormatError(f"{self._source}: tensor {shown(name)} has shape {shape}, not the {given} given")
        shape = given
        declared = self._declared.get(name)
        if declared is not None and declared.HasField("tensor_type"):
            elem = elem or declared.tensor_type.elem_type
            if shape is None and not self._resized:
                sizes, missing = self._sizes(declared)
                shape = None if missing else sizes
        return Tensor(name, elem if elem or shape is None else usual, shape)

    def _fold(self, where: str, node: "onnx.NodeProto", step: Step) -> None:
        """Work out a constant if it is small, and note what its weights take if they are kept quantised."""
        if not step.outputs or (out := step.outputs[0]) is None:
            return
        if node.op_type == "DequantizeLinear" and all(x.shape is not None for x in step.given):
            out.stored = stored_nbytes(step.given[0])
        elif node.op_type in ("Identity", "Reshape", "Transpose"):
            out.stored = step.given[0].stored
        few = node.op_type == "NonZero" or (out.shape is not None and prod(out.shape) <= MOST_NUMBERS)
        if node.op_type in _OF_SHAPES:
            shape, (start, end) = known_shape(where, step.given[0]), map(step.attributes.get, ("start", "end"))
            array: Array | None = np.array(shape[start:end] if node.op_type == "Shape" else prod(shape), np.int64)
        else:
            array = evaluate(node, step.inputs, step.version) if few and node.op_type in EVALUATED else None
        if array is not None and array.size <= MOST_NUMBERS:
            out.array, out.shape = array, array.shape


def _with_short_domain(node: "onnx.NodeProto") -> "onnx.NodeProto":
    """Return a node of the operator set "ai.onnx" with the other name of it, which all of ONNX's rules know."""
    found = type(node)()
    found.CopyFrom(node)
    found.domain = ""
    return found
