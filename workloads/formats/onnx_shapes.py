"""Shapes of all tensors of an ONNX graph, and its nodes less those that are computed from constants only.

One pass over the nodes, in file order: each is inferred on its own by ONNX's rule for it, from the shapes found
so far and from the numbers of the small constants it reads. So no model is handed to ONNX whole (which fails
from 2 GB on), weights are never looked at, and the arithmetic on shapes that exporters leave in a graph is
worked out on the way.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from simsched.base.errors import FormatError, shown
from simsched.model.graph.ordering import describe_cycle, topological_order
from workloads.checks import whole
from workloads.formats.onnx_constants import RULES, evaluate
from workloads.formats.onnx_inference import STANDARD, Inference
from workloads.formats.onnx_tensors import (
    FLOAT,
    INT64,
    MOST_NUMBERS,
    STRING,
    Shape,
    Step,
    Tensor,
    attributes_of,
    checked_shape,
    known_shape,
    numpy_type,
    plain,
    read_inside,
    stored_nbytes,
)

if TYPE_CHECKING:
    import onnx

OLDEST_OPSET: Final = 7
_RANDOM: Final = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"
)  # fmt: skip
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

    def __init__(self, model: "onnx.ModelProto", shapes: Mapping[str, Sequence[int]], source: str) -> None:
        self._source = source
        self._graph = model.graph
        self._versions, imports = self._opsets(model)
        self._functions = {(f.domain, f.name) for f in model.functions}
        self._given = {name: self._given_shape(name, shapes[name]) for name in shapes}
        self._tensors: dict[str, Tensor] = {}
        self._symbols: dict[str, int] = {}  # sizes that a given shape has put a number to
        self._resized = False  # a size that the model fixes is given otherwise
        self._inference = Inference(imports, self._versions, self._functions)
        self.steps: list[Step] = []
        self._read_initialisers()
        self._read_inputs()
        self._declared = {
            info.name: info.type for infos in (self._graph.value_info, self._graph.output) for info in infos
        }
        for i, node in enumerate(self._graph.node):
            self._read_node(i, node)
        unused = [name for name in self._given if name not in self._tensors or self._tensors[name].constant]
        if unused:
            raise FormatError(f"{source}: no input {shown(unused[0])}; the inputs are: {self._inputs()}")
        self.results = [self._tensor(info.name, f"{source}: output") for info in self._graph.output]

    def _opsets(self, model: "onnx.ModelProto") -> tuple[dict[str, int], list["onnx.OperatorSetIdProto"]]:
        """Return the version of each operator set, and the sets as ONNX's rules want them."""
        from onnx import defs, helper

        imports = [one for one in model.opset_import if one.domain not in STANDARD]
        found = {one.domain: one.version for one in model.opset_import}
        version, newest = next((found[d] for d in STANDARD if d in found), None), defs.onnx_opset_version()
        if version is None:
            return found, imports
        if not OLDEST_OPSET <= version <= newest:
            remedy = "upgrade the package onnx" if version > newest else "convert it with onnx.version_converter"
            raise FormatError(f"{self._source}: opset {version} is not one of {OLDEST_OPSET} to {newest}; {remedy}")
        return {**found, **dict.fromkeys(STANDARD, version)}, [*imports, helper.make_opsetid("", version)]

    def _given_shape(self, name: str, sizes: Sequence[int]) -> Shape:
        what = f"the size of {shown(name)}"
        found = tuple(whole(self._source, what, size, most=_LARGEST_SIZE) for size in sizes)
        return checked_shape(self._source, name, found)

    def _inputs(self) -> str:
        names = [plain(info.name) for info in self._graph.input if not self._tensors[info.name].constant]
        return ", ".join(names[:_MOST_NAMED] + ["..."] * (len(names) > _MOST_NAMED))

    def _put(self, tensor: Tensor) -> None:
        if not tensor.name or not isinstance(tensor.name, str):  # protobuf gives what is not UTF-8 as bytes
            raise FormatError(f"{self._source}: the name of a tensor is {shown(tensor.name)}, not a text")
        if tensor.name in self._tensors:
            raise FormatError(f"{self._source}: tensor {shown(tensor.name)} is written twice")
        self._tensors[tensor.name] = tensor

    def _read_initialisers(self) -> None:
        for proto in self._graph.initializer:
            shape = checked_shape(self._source, proto.name, proto.dims, least=0)
            self._put(Tensor(proto.name, proto.data_type, shape, constant=True, proto=proto))
        for sparse in self._graph.sparse_initializer:
            shape = checked_shape(self._source, sparse.values.name, sparse.dims, least=0)
            self._put(Tensor(sparse.values.name, sparse.values.data_type, shape, constant=True))

    def _read_inputs(self) -> None:
        infos = [info for info in self._graph.input if info.name not in self._tensors]  # an initialiser may be one too
        for info in infos:
            self._bind_symbols(info)
        unknown: list[tuple[str, Shape, list[str]]] = []
        for info in infos:
            shape = self._given.get(info.name)
            if shape is None and info.type.HasField("tensor_type"):
                sizes, missing = self._sizes(info.type)
                if missing:
                    unknown.append((info.name, sizes, missing))
                    continue
                shape = checked_shape(self._source, info.name, sizes)
            self._put(Tensor(info.name, info.type.tensor_type.elem_type, shape))
        if unknown:
            self._refuse_unknown(unknown)

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

    def _refuse_unknown(self, unknown: list[tuple[str, Shape, list[str]]]) -> None:
        parts, remedy = [], []
        for name, sizes, missing in unknown[:_MOST_NAMED]:
            parts.append(f"input {shown(name)} has unknown size {', '.join(shown(m) for m in missing)}")
            remedy.append(f"--shape {plain(name)}={','.join(str(size or 1) for size in sizes) or '1,3,224,224'}")
        rest = f" (and {len(unknown) - len(parts)} more)" if len(unknown) > len(parts) else ""
        raise FormatError(f"{self._source}: {', '.join(parts)}{rest}; give {' '.join(remedy)}")

    def _read_node(self, i: int, node: "onnx.NodeProto") -> None:
        name = node.name or next((out for out in node.output if out), "") or f"#{i}"
        title = f"operator {shown(name)} ({shown(node.op_type)[1:-1]})"
        where = f"{self._source}: {title}"
        if not node.op_type:
            raise FormatError(f"{self._source}: operator {shown(name)} has no type")
        if not all(isinstance(text, str) for text in (node.name, node.op_type, node.domain, *node.output)):
            raise FormatError(f"{where}: a name in it is not UTF-8 text")
        inputs = tuple(self._tensor(read, where) if read else None for read in node.input)
        inside = dict.fromkeys(read_inside(node))
        captured = tuple(self._tensors[read] for read in inside if read in self._tensors and read not in node.input)
        given = [x for x in (*inputs, *captured) if x is not None]
        constant = all(x.constant for x in given) and node.op_type not in _RANDOM
        constant = constant and (bool(given) or node.op_type == "Constant")
        standard = node.domain in STANDARD and (node.domain, node.op_type) not in self._functions
        if standard and node.domain not in self._versions:
            raise FormatError(f"{where}: the model does not say which version of ONNX's operator set it is of")
        attributes = attributes_of(node)
        if standard and node.op_type in ("Shape", "Size") and given:
            return self._read_shape(where, node, known_shape(where, given[0]), attributes)
        if standard and node.op_type == "Constant":
            return self._read_constant(where, node, attributes)
        inferred = self._inference.outputs(where, node, inputs)
        usual = next((x.elem for x in given if x.elem), FLOAT)
        outputs = [self._output(out, *inferred[k], usual) if out else None for k, out in enumerate(node.output)]
        if constant:
            self._fold(node.op_type if standard else "", given, outputs, attributes)
        for out in outputs:
            if out is not None:
                if out.shape is not None:
                    out.shape = checked_shape(where, out.name, out.shape, least=0)
                # what has no elements depends on nothing: a cache that is empty, a part of length 0
                out.constant = constant or (out.shape is not None and 0 in out.shape)
                out.producer = None if out.constant else len(self.steps)
                self._put(out)
        written = [out for out in outputs if out is not None]
        if not constant and not (written and all(out.constant for out in written)):
            version = self._versions.get(node.domain, 0)
            domain = "" if standard else node.domain or "functions of the model"
            step = Step(title, name, domain, node.op_type, version, inputs, tuple(outputs), attributes, captured)
            self.steps.append(step)
        return None

    def _tensor(self, name: str, where: str) -> Tensor:
        """Return a tensor that is read."""
        if name not in self._tensors:
            self._refuse_order()
            raise FormatError(f"{where}: it reads {shown(name)}, which nothing writes")
        return self._tensors[name]

    def _refuse_order(self) -> None:
        """Refuse nodes that form a cycle, or that do not stand in topological order."""
        nodes = self._graph.node
        writer = {out: i for i, node in enumerate(nodes) for out in node.output if out}
        pairs = [(writer[x], i) for i, node in enumerate(nodes) for x in node.input if x in writer]
        late = next(((src, dst) for src, dst in pairs if src >= dst), None)
        if late is None:
            return
        ends = np.array(pairs, np.int32).reshape(-1, 2)
        _, cycle = topological_order(len(nodes), ends[:, 0], ends[:, 1])
        names = [shown(node.name or (node.output[0] if node.output else "") or f"#{i}") for i, node in enumerate(nodes)]
        if cycle:
            circle = describe_cycle([names[i] for i in cycle])
            raise FormatError(f"{self._source}: the operators form a cycle: {circle}")
        src, dst = (names[i] for i in late)
        raise FormatError(f"{self._source}: operator {dst} reads {src} but stands before it; sort them topologically")

    def _read_shape(self, where: str, node: "onnx.NodeProto", shape: Shape, attributes: Mapping[str, Any]) -> None:
        """Put the result of `Shape` or `Size`, which does not depend on numbers."""
        start, end = attributes.get("start", 0), attributes.get("end", len(shape))
        if not isinstance(start, int) or not isinstance(end, int):
            raise FormatError(f"{where}: attributes 'start' and 'end' must be whole numbers")
        part = shape[start:end]
        array = np.array(part if node.op_type == "Shape" else np.prod(shape, dtype=np.int64), np.int64)
        for name in node.output[:1]:
            self._put(Tensor(name, INT64, array.shape, constant=True, array=array))

    def _read_constant(self, where: str, node: "onnx.NodeProto", attributes: Mapping[str, Any]) -> None:
        """Put the result of `Constant`, whose number stands in one of many attributes."""
        name = next(iter(node.output), "")
        if len(attributes) != 1:
            raise FormatError(f"{where}: needs one attribute with a value, not {len(attributes)}")
        key, value = next(iter(attributes.items()))
        if key == "value" and not isinstance(value, int | float | str | tuple):
            shape = checked_shape(where, name, value.dims, least=0)
            return self._put(Tensor(name, value.data_type, shape, constant=True, proto=value))
        if key == "sparse_value" and not isinstance(value, int | float | str | tuple):
            shape = checked_shape(where, name, value.dims, least=0)
            return self._put(Tensor(name, value.values.data_type, shape, constant=True))
        elem = next((e for k, e in (("value_float", 1), ("value_int", INT64), ("value_string", STRING)) if k in key), 0)
        array = None if elem in (0, STRING) else np.asarray(value, numpy_type(elem))
        shape = (len(value),) if isinstance(value, tuple) else ()
        return self._put(Tensor(name, elem, shape, constant=True, array=array))

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

    def _fold(
        self, op_type: str, given: list[Tensor], outputs: list[Tensor | None], attributes: Mapping[str, Any]
    ) -> None:
        """Work out a constant if it is small, and note what its weights take if they are kept quantised."""
        out = outputs[0] if outputs else None
        if out is None:
            return
        if op_type == "DequantizeLinear" and all(x.shape is not None for x in given):
            out.stored = stored_nbytes(given[0])
        elif op_type in ("Identity", "Reshape", "Transpose") and given[0].stored is not None:
            out.stored = given[0].stored
        few = out.shape is not None and prod(out.shape) <= MOST_NUMBERS
        if op_type not in RULES or not (few or op_type == "NonZero"):
            return
        numbers = [x.numbers() for x in given]
        known = [x for x in numbers if x is not None]
        array = evaluate(op_type, known, attributes, out.elem) if len(known) == len(numbers) else None
        if array is not None and array.size <= MOST_NUMBERS:
            out.array, out.shape = array, array.shape
