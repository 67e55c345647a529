"""Shapes of all tensors of an ONNX graph, and its nodes less those that are computed from constants only.

One pass over the nodes, in file order: each is inferred on its own by ONNX's rule for it, from the shapes found
so far and from the numbers of the small constants it reads. So no model is handed to ONNX whole (which fails
from 2 GB on), weights are never looked at, and the arithmetic on shapes that exporters leave in a graph is
worked out on the way.
"""

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from simsched.base.errors import FormatError, SimschedError, brief_text
from workloads.checks import whole
from workloads.formats.onnx.bodies import OLDEST_OPSET
from workloads.formats.onnx.contrib import shapes_of
from workloads.formats.onnx.inference import EVALUATED, evaluate, infer
from workloads.formats.onnx.operators import operator_of
from workloads.formats.onnx.tensors import (
    FLOAT,
    MOST_NUMBERS,
    STACK,
    Array,
    Formats,
    Shape,
    Step,
    Tensor,
    attributes_of,
    checked_shape,
    plain,
    read_inside,
    stored_nbytes,
)

if TYPE_CHECKING:
    import onnx


_STANDARD: Final = ("", "ai.onnx")  # the names of ONNX's own operator set
_RANDOM: Final = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_OF_SHAPES: Final = ("Shape", "Size")  # operators whose output does not depend on numbers
_LARGEST_SIZE: Final = 2**31 - 1
_MOST_STEPS: Final = 100_000  # that rounds of loops may make
_BOOLEAN: Final = 9
_INT64: Final = 7
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
        Bytes and number formats of its elements.
    source
        How errors name the model.

    Attributes
    ----------
    steps
        Nodes that are left, in file order; a tensor's `producer` is the index of its step.
    results
        Tensors that the graph returns.
    remarks
        Assumptions about branches and loops, a line each.

    Raises
    ------
    FormatError
        If the graph is not valid; the message names the node or the tensor.
    """

    def __init__(
        self, model: "onnx.ModelProto", shapes: Mapping[str, Sequence[int]], formats: Formats, source: str
    ) -> None:
        self._source = source
        self._path = ""  # of the body that is being read
        self._guards: tuple[Tensor, ...] = ()  # tensors that decide whether it runs
        self._first = 0  # step of it
        self.remarks: list[str] = []
        self._formats = formats
        self._graph = model.graph
        self._versions = self._opsets(model)
        self._functions = {(f.domain, f.name) for f in model.functions}
        self._given = {name: self._given_shape(name, shapes[name]) for name in shapes}
        self._tensors: ChainMap[str, Tensor] = ChainMap()
        self._symbols: dict[str, int] = {}  # sizes that a given shape has put a number to
        self._resized = False  # a size that the model fixes is given otherwise
        self.steps: list[Step] = []
        for proto in self._graph.initializer:
            self._put_constant(proto.name, proto.data_type, proto.dims, proto)
        for sparse in self._graph.sparse_initializer:
            self._put_constant(sparse.values.name, sparse.values.data_type, sparse.dims)
        infos_of_inputs = self._read_inputs()
        self._declared: MutableMapping[str, Any] = ChainMap(_declared_types(self._graph))
        for i, node in enumerate(self._graph.node):
            self._read_node(i, node)
        nameable = {name for name, tensor in self._tensors.items() if not tensor.constant or tensor.shape is None}
        nameable |= {info.name for info in infos_of_inputs}
        unused = [name for name in self._given if name not in nameable]
        if unused:
            names = [plain(info.name) for info in infos_of_inputs]
            listed = ", ".join(names[:_MOST_NAMED] + ["..."] * (len(names) > _MOST_NAMED))
            raise FormatError(f"{source}: no input {brief_text(unused[0])}; the inputs are: {listed}")
        self.results = [self._tensor(info.name, f"{source}: output") for info in self._graph.output]

    def _opsets(self, model: "onnx.ModelProto") -> dict[str, int]:
        """Return the version of each operator set; ONNX's own has the name ""."""
        from onnx import defs

        versions = {"" if one.domain in _STANDARD else one.domain: one.version for one in model.opset_import}
        newest = defs.onnx_opset_version()
        version = versions.get("", newest)
        if not OLDEST_OPSET <= version <= newest:
            if version > newest:
                remedy = "upgrade the package onnx"
            else:
                remedy = "convert it with onnx.version_converter"
            raise FormatError(f"{self._source}: opset {version} is not one of {OLDEST_OPSET} to {newest}; {remedy}")
        return versions

    def _given_shape(self, name: str, sizes: Sequence[int]) -> Shape:
        what = f"the size of {brief_text(name)}"
        shape = tuple(whole(self._source, what, size, least=0, most=_LARGEST_SIZE) for size in sizes)
        return checked_shape(self._source, name, shape, least=0)

    def _put(self, tensor: Tensor) -> None:
        if not tensor.name or not isinstance(tensor.name, str):  # protobuf returns bytes for a name that is not UTF-8
            raise FormatError(f"{self._source}: the name of a tensor is {brief_text(tensor.name)}, not a text")
        self._name(tensor.name, tensor)

    def _name(self, name: str, tensor: Tensor) -> None:
        """Have a tensor known by a name in the body that is being read."""
        if name in self._tensors.maps[0]:
            raise FormatError(f"{self._source}: tensor {brief_text(name)} is written twice")
        self._tensors[name] = tensor

    def _put_constant(
        self, name: str, elem: int, sizes: Sequence[int], proto: "onnx.TensorProto | None" = None
    ) -> None:
        shape = checked_shape(self._source, name, sizes, least=0)
        self._put(Tensor(name, elem, shape, constant=True, proto=proto))

    def _read_inputs(self) -> list["onnx.ValueInfoProto"]:
        """Put the inputs that are no initialisers, and return them."""
        infos = [info for info in self._graph.input if info.name not in self._tensors]  # an initialiser may be one too
        for info in infos:
            self._bind_symbols(info)
        questions: list[str] = []
        remedies: dict[str, str] = {}
        for info in infos:
            shape = self._given.get(info.name)
            if shape is None and info.type.HasField("tensor_type"):
                sizes, missing = self._sizes(info.type)
                if missing:
                    questions.append(
                        f"input {brief_text(info.name)} has unknown size {', '.join(map(brief_text, missing))}"
                    )
                    example = ",".join("1" if size is None else str(size) for size in sizes) or "1,3,224,224"
                    remedies[info.name] = example
                    continue
                shape = checked_shape(self._source, info.name, _without_none(sizes), least=0)
            # a tensor without elements depends on nothing, such as an empty cache
            empty = shape is not None and 0 in shape
            self._put(Tensor(info.name, info.type.tensor_type.elem_type, shape, constant=empty))
        if questions:
            if len(questions) > _MOST_NAMED:
                rest = f" (and {len(questions) - _MOST_NAMED} more)"
            else:
                rest = ""
            listed = ", ".join(questions[:_MOST_NAMED])
            remedy = self._formats.request(dict(list(remedies.items())[:_MOST_NAMED]))
            raise FormatError(f"{self._source}: {listed}{rest}; give {remedy}")
        return infos

    def _bind_symbols(self, info: "onnx.ValueInfoProto") -> None:
        """Set the named sizes of an input from a given shape."""
        shape = self._given.get(info.name)
        declared = info.type.tensor_type
        if shape is None or not declared.HasField("shape"):
            return
        if len(declared.shape.dim) != len(shape):
            raise FormatError(
                f"{self._source}: input {brief_text(info.name)} has {len(declared.shape.dim)} axes;"
                f" {len(shape)} are given"
            )
        for dim, size in zip(declared.shape.dim, shape, strict=True):
            if dim.dim_param and self._symbols.setdefault(dim.dim_param, size) != size:
                bound = self._symbols[dim.dim_param]
                raise FormatError(f"{self._source}: size {brief_text(dim.dim_param)} is given as {bound} and as {size}")
            self._resized |= dim.HasField("dim_value") and dim.dim_value != size

    def _sizes(self, declared: "onnx.TypeProto") -> tuple[tuple[int | None, ...], list[str]]:
        """Return a declared shape, None for unknown sizes, and how these are called."""
        if not declared.tensor_type.HasField("shape"):
            return (), ["shape"]
        sizes: list[int | None] = []
        missing = []
        for i, dim in enumerate(declared.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                size = dim.dim_value
            else:
                size = self._symbols.get(dim.dim_param)
            if size is None or size < 0:  # exporters write -1 for a size that is open
                size = None
                missing.append(dim.dim_param or f"axis {i}")
            sizes.append(size)
        return tuple(sizes), missing

    def _read_node(self, i: int, node: "onnx.NodeProto") -> None:
        name = node.name or next((out for out in node.output if out), "") or f"#{i}"
        if isinstance(name, str):
            name = self._path + name
        title = f"operator {brief_text(name)} ({brief_text(node.op_type)[1:-1]})"
        where = f"{self._source}: {title}"
        if not node.op_type:
            raise FormatError(f"{self._source}: operator {brief_text(name)} has no type")
        if not all(isinstance(text, str) for text in (node.name, node.op_type, node.domain, *node.output)):
            raise FormatError(f"{where}: a name in it is not UTF-8 text")
        own = (node.domain, node.op_type) in self._functions
        standard = node.domain in _STANDARD and not own
        if standard and "" not in self._versions:
            raise FormatError(f"{where}: the model does not say which version of ONNX's operator set it is of")
        if standard and node.domain:
            node = _with_short_domain(node)
        inputs = tuple(self._tensor(read, where) if read else None for read in node.input)
        if standard and self._read_bodies(where, node, name, inputs):
            return
        inside = dict.fromkeys(read_inside(node))
        captured = tuple(self._tensors[read] for read in inside if read in self._tensors and read not in node.input)
        if self._guards and not any(self._is_inside(x) for x in (*inputs, *captured)):
            captured += tuple(x for x in self._guards if x not in inputs and x not in captured)
        if standard:
            domain = ""
        else:
            domain = node.domain or "functions of the model"
        version = self._versions.get(node.domain, 0)
        attributes = attributes_of(node)
        step = Step(title, name, domain, node.op_type, version, inputs, attributes, captured, self._formats)
        if standard and node.op_type == "Constant" and "value" in attributes:
            value = attributes["value"]
            self._put_constant(node.output[0], value.data_type, value.dims, value)
            return
        inferred: Sequence[tuple[int, Shape | None]] = [(0, None)] * len(node.output)
        if not own:
            inferred = infer(where, node, inputs, self._versions)
        if any(shape is None for _, shape in inferred):
            inferred = shapes_of(step, len(node.output)) or inferred
        self._put_outputs(where, node, step, inferred)

    def _is_inside(self, tensor: Tensor | None) -> bool:
        """Say whether the body that is being read writes a tensor."""
        return tensor is not None and tensor.producer is not None and tensor.producer >= self._first

    def _read_bodies(self, where: str, node: "onnx.NodeProto", name: str, inputs: Sequence[Tensor | None]) -> bool:
        """Read the bodies of a branch or a loop, which replace it; return whether the node is one."""
        graphs = {one.name: one.g for one in node.attribute if one.HasField("g")}
        results: Sequence[Tensor]
        try:
            if node.op_type == "If" and inputs and inputs[0] is not None:
                results = self._branch(where, name, inputs[0], graphs["then_branch"], graphs["else_branch"])
            elif node.op_type == "Loop" and len(inputs) > 1:
                results = self._loop(where, name, inputs, graphs["body"])
            elif node.op_type == "Scan" and self._versions[""] > 8:
                results = self._scan(where, name, inputs, attributes_of(node), graphs["body"])
            else:
                return False
        except SimschedError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise FormatError(f"{where}: its inputs and attributes do not fit ({error})") from error
        if len(results) < len(node.output):
            raise FormatError(f"{where}: it has {len(node.output)} outputs, and its body {len(results)}")
        for out, tensor in zip(node.output, results, strict=False):
            if out:
                self._name(out, tensor)
        return True

    def _branch(self, where: str, name: str, condition: Tensor, yes: "onnx.GraphProto", no: "onnx.GraphProto") -> Any:
        if condition.constant:
            decision = condition.numbers()
        else:
            decision = None
        if decision is not None and decision.size == 1:
            return self._body(where, yes if decision.item() else no, [], name)
        first = len(self.steps)
        branches = []
        for title, graph in (("then", yes), ("else", no)):
            with self._guard(condition):
                results = self._body(where, graph, [], f"{name}.{title}")
            steps = self.steps[first:]
            del self.steps[first:]
            branches.append(_Branch(title, steps, results, *_price(steps)))
        costlier, other = branches if branches[0].weight >= branches[1].weight else branches[::-1]
        self.steps += costlier.steps
        self.remarks.append(
            f"{name}: one of two branches runs; the costlier one counts ({costlier.title}: {costlier.flops:.3g} FLOP, "
            f"{costlier.nbytes:.3g} bytes; the other: {other.flops:.3g} FLOP, {other.nbytes:.3g} bytes)"
        )
        return costlier.results

    def _loop(self, where: str, name: str, inputs: Sequence[Tensor | None], body: "onnx.GraphProto") -> Any:
        """Read the body of a loop as often as it runs, if constants say how often, and else once."""
        most, condition, *start = inputs
        if most is not None and most.constant:
            rounds = most.numbers()
        else:
            rounds = None
        if rounds is not None and rounds.size == 1:
            limit = int(rounds.item())
        else:
            limit = None
        if limit is not None and limit > _MOST_STEPS:  # exporters write the largest number for no limit
            limit = None
        values = [self._present(where, x) for x in start]
        n_kept = len(body.output) - 1 - len(values)
        written: list[Sequence[Tensor]] = []
        i = 0
        may_end = False
        while limit is None or i < limit:
            if condition is not None and condition.constant:
                decision = condition.numbers()
            else:
                decision = None
            if decision is not None and not decision.all():
                break
            decided = condition is None or decision is not None
            if i > 0 and limit is None and (most is not None or not decided):
                self.remarks.append(f"{name}: how often it runs is not known before; one round counts")
                break
            may_end |= i > 0 and not decided
            number = Tensor("", _INT64, (), constant=True, array=np.array(i, np.int64))
            goes_on = Tensor("", _BOOLEAN, (), constant=True, array=np.array(True))
            with self._guard(*([] if decided or condition is None else [condition])):
                results = self._body(where, body, [number, goes_on, *values], f"{name}[{i}]")
            condition = results[0]
            values = list(results[1 : 1 + len(values)])
            written.append(results[1 + len(values) :])
            i += 1
        if may_end:
            self.remarks.append(f"{name}: it may end before its {limit} rounds, which all count")
        return [*values, *(self._stack(where, name, k, [x[k] for x in written]) for k in range(n_kept))]

    def _scan(
        self,
        where: str,
        name: str,
        inputs: Sequence[Tensor | None],
        attributes: Mapping[str, Any],
        body: "onnx.GraphProto",
    ) -> Any:
        """Read the body of a scan for each step."""
        n_scanned = attributes["num_scan_inputs"]
        tensors = [self._present(where, x) for x in inputs]
        values = tensors[: len(tensors) - n_scanned]
        scanned = tensors[len(tensors) - n_scanned :]
        axes = attributes.get("scan_input_axes", (0,) * n_scanned)
        shapes = [self._formats.shape_of(where, x) for x in scanned]
        n_steps = shapes[0][axes[0]] if shapes else 0
        parts = []
        for tensor, shape, axis in zip(scanned, shapes, axes, strict=True):
            at = axis % len(shape)
            rest = shape[:at] + shape[at + 1 :]
            parts.append(Tensor(tensor.name, tensor.elem, rest, tensor.producer, tensor.constant))
        written: list[Sequence[Tensor]] = []
        for i in range(n_steps):
            results = self._body(where, body, [*values, *parts], f"{name}[{i}]")
            values = list(results[: len(values)])
            written.append(results[len(values) :])
        n_kept = len(body.output) - len(values)
        return [*values, *(self._stack(where, name, k, [x[k] for x in written]) for k in range(n_kept))]

    def _present(self, where: str, tensor: Tensor | None) -> Tensor:
        if tensor is None:
            raise FormatError(f"{where}: a value that it carries is missing")
        return tensor

    def _stack(self, where: str, name: str, k: int, parts: Sequence[Tensor]) -> Tensor:
        """Return the stacked outputs of the rounds of a loop, which cost nothing by themselves."""
        title = f"{name}.{k}"
        if not parts or parts[0].shape is None:
            shape = None
        else:
            shape = (len(parts), *parts[0].shape)
        constant = all(part.constant for part in parts)
        elem = parts[0].elem if parts else FLOAT
        out = Tensor(title, elem, (0,) if not parts else shape, None if constant else len(self.steps), constant)
        if not constant:
            step = Step(where.partition(": ")[2], title, "", STACK, 1, tuple(parts), {}, (), self._formats)
            step.outputs = (out,)
            self._add(step)
        return out

    def _add(self, step: Step) -> None:
        if len(self.steps) >= _MOST_STEPS and self._path:
            raise FormatError(
                f"{self._source}: loops make more than {_MOST_STEPS:,} operators; export the model with fewer rounds"
            )
        self.steps.append(step)

    def _body(self, where: str, graph: "onnx.GraphProto", given: Sequence[Tensor], path: str) -> list[Tensor]:
        """Read the nodes of a graph inside a node, and return its results."""
        outer = self._tensors, self._declared, self._path
        self._tensors = self._tensors.new_child()
        self._path = f"{path}."
        if isinstance(outer[1], ChainMap):
            self._declared = ChainMap(_declared_types(graph), *outer[1].maps)
        else:
            self._declared = outer[1]
        for proto in graph.initializer:
            self._put_constant(proto.name, proto.data_type, proto.dims, proto)
        if len(given) != len(graph.input):
            raise FormatError(f"{where}: its body takes {len(graph.input)} tensors, and it has {len(given)} for it")
        for info, tensor in zip(graph.input, given, strict=True):
            self._name(info.name, tensor)
        for i, node in enumerate(graph.node):
            self._read_node(i, node)
        results = [self._tensor(info.name, f"{where}: output") for info in graph.output]
        self._tensors, self._declared, self._path = outer
        return results

    @contextmanager
    def _guard(self, *guards: Tensor) -> Iterator[None]:
        """Let the first steps of a body wait for tensors that decide whether it runs."""
        outer = self._guards, self._first
        if guards:
            self._guards = (*outer[0], *(x for x in guards if not x.constant))
            self._first = len(self.steps)
        yield
        self._guards, self._first = outer

    def _put_outputs(
        self, where: str, node: "onnx.NodeProto", step: Step, inferred: Sequence[tuple[int, Shape | None]]
    ) -> None:
        """Put the outputs of a node, and its step unless they are constants."""
        usual = next((x.elem for x in step.given if x.elem), FLOAT)
        step.outputs = tuple(
            self._output(out, elem, shape, usual) if out else None
            for out, (elem, shape) in zip(node.output, inferred, strict=True)
        )
        standard = not step.domain
        of_numbers = all(x.constant for x in step.given) and (step.given or (standard and step.op_type == "Constant"))
        constant = bool(of_numbers and step.op_type not in _RANDOM) or (standard and step.op_type in _OF_SHAPES)
        if constant and standard:
            self._fold(where, node, step)
        for out in step.written:
            if out.shape is not None:
                out.shape = checked_shape(where, out.name, out.shape, least=0)
            # a tensor without elements depends on nothing: an empty cache, a part of length 0
            out.constant = constant or (out.shape is not None and 0 in out.shape)
            if out.constant:
                out.producer = None
            else:
                out.producer = len(self.steps)
            self._put(out)
        if not constant and not (step.written and all(out.constant for out in step.written)):
            self._add(step)

    def _tensor(self, name: str, where: str) -> Tensor:
        """Return a tensor that is read."""
        if name not in self._tensors:
            raise FormatError(f"{where}: it reads {brief_text(name)}, which nothing before it writes")
        return self._tensors[name]

    def _output(self, name: str, elem: int, shape: Shape | None, usual: int) -> Tensor:
        """Return an output as inferred, else as given, else as the model declares it for the inputs it declares.

        An element type that is nowhere to be found is the `usual` one if the shape is known.
        """
        stated = self._given.get(name, shape)
        if shape is not None and stated != shape:
            raise FormatError(f"{self._source}: tensor {brief_text(name)} has shape {shape}, not the {stated} given")
        shape = stated
        declared = self._declared.get(name)
        if declared is not None and declared.HasField("tensor_type"):
            elem = elem or declared.tensor_type.elem_type
            if shape is None and not self._resized:
                sizes, missing = self._sizes(declared)
                shape = None if missing else _without_none(sizes)
        return Tensor(name, elem if elem or shape is None else usual, shape)

    def _fold(self, where: str, node: "onnx.NodeProto", step: Step) -> None:
        """Compute a constant if it is small, and note the bytes of its weights if they are quantised."""
        if not step.outputs or (out := step.outputs[0]) is None:
            return
        if node.op_type == "DequantizeLinear" and all(x.shape is not None for x in step.given):
            out.stored = stored_nbytes(step.given[0])
        elif node.op_type in ("Identity", "Reshape", "Transpose"):
            out.stored = step.given[0].stored
        few = node.op_type == "NonZero" or (out.shape is not None and prod(out.shape) <= MOST_NUMBERS)
        if node.op_type in _OF_SHAPES:
            shape = self._formats.shape_of(where, step.given[0])
            start, end = map(step.attributes.get, ("start", "end"))
            array: Array | None = np.array(shape[start:end] if node.op_type == "Shape" else prod(shape), np.int64)
        else:
            if few and node.op_type in EVALUATED:
                array = evaluate(node, step.inputs, step.version)
            else:
                array = None
        if array is not None and array.size <= MOST_NUMBERS:
            out.array = array
            out.shape = array.shape


def _with_short_domain(node: "onnx.NodeProto") -> "onnx.NodeProto":
    """Return a node of the operator set "ai.onnx" with the other name of it, which all of ONNX's rules know."""
    copy = type(node)()
    copy.CopyFrom(node)
    copy.domain = ""
    return copy


class _Branch(NamedTuple):
    """A body that may run: its steps, its results, and its FLOP and bytes."""

    title: str
    steps: list[Step]
    results: list[Tensor]
    flops: float
    nbytes: float

    @property
    def weight(self) -> float:
        """Bytes that take about as long to move as it all: a GPU computes some 10 FLOP in fp32 for each."""
        return self.flops / 10.0 + self.nbytes


def _price(steps: Sequence[Step]) -> tuple[float, float]:
    """Return the FLOP and bytes of steps, as far as they can be costed."""
    flops = nbytes = 0.0
    for step in steps:
        try:
            operator, _ = operator_of(step, "priced")
        except SimschedError:
            continue
        flops = flops + operator.flops
        nbytes = nbytes + operator.nbytes
    return flops, nbytes


def _declared_types(graph: "onnx.GraphProto") -> dict[str, "onnx.TypeProto"]:
    return {info.name: info.type for info in (*graph.value_info, *graph.output)}


def _without_none(sizes: Sequence[int | None]) -> Shape:
    return tuple(size for size in sizes if size is not None)
