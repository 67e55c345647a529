"""From the calls in a graph of torch.fx to an `OpGraph`: names, kinds, costs, edges.

Nothing here imports PyTorch: a node, a module and a tensor are what they are given as.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from simsched.base.errors import GraphError
from simsched.model import Edge, Operator, OpGraph
from workloads.checks import one_of
from workloads.costs import COMPUTES, Cost, Costs, counted, intensity, nbytes_of
from workloads.formats.fusion import fuse, without_io
from workloads.formats.torch_calls import SIZES_ONLY, VIEWS, Call, Operand, Shape, key_of, settings_of
from workloads.formats.torch_costs import RULES, cost_of, unknown
from workloads.models.builder import GRANULARITIES

_logger = logging.getLogger(__name__)

_FORMATS: Final = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "float8_e4m3fnuz": "fp8", "float8_e5m2fnuz": "fp8",
}  # fmt: skip
_MODULE_SETTINGS: Final = (
    "stride", "padding", "dilation", "groups", "kernel_size", "ceil_mode", "num_groups", "normalized_shape", "dim",
    "num_heads", "embed_dim", "batch_first", "bidirectional",
)  # fmt: skip


def graph_of(
    nodes: Any,
    values: Mapping[Any, Any],
    weights: Mapping[Any, Any],
    modules: Mapping[str, Any],
    *,
    name: str,
    granularity: str = "operator",
    include_io: bool = False,
) -> OpGraph:
    """Return the graph of nodes of torch.fx.

    Parameters
    ----------
    nodes
        In an order in which they can run.
    values
        What each node makes: a tensor or a nest of tensors and other values. Only shapes and formats are read.
    weights
        The nodes that are parameters or constants, with their tensors.
    modules
        By the names that nodes call.
    name, granularity, include_io
        See `workloads.formats.torch_fx.Options`.

    Raises
    ------
    GraphError
        If a value is out of range, a size is not a number, or nothing launches anything.
    """
    one_of(name, "granularity", granularity, GRANULARITIES)
    importer = _Importer(name, values, weights, modules, Costs())
    for node in nodes:
        importer.read(node)
    importer.warn()
    graph = OpGraph(importer.operators, importer.edges, name)
    if granularity == "unit":
        return fuse(graph, io=include_io)
    return graph if include_io else without_io(graph)


@dataclass
class _Importer:
    """The operators and edges of the nodes read so far."""

    name: str
    values: Mapping[Any, Any]
    given_weights: Mapping[Any, Any]
    modules: Mapping[str, Any]
    costs: Costs
    operators: list[Operator] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    made: dict[Any, tuple[Operand, ...]] = field(default_factory=dict)  # what each node makes, weights too

    def __post_init__(self) -> None:
        self.weights = set(self.given_weights)
        self.made.update({node: self._operands(node, self.given_weights[node], True) for node in self.given_weights})

    def read(self, node: Any) -> None:
        """Add what a node stands for."""
        if node in self.weights:
            return
        outputs = tuple(x for x in self._made_by(node) if x.n)
        if node.op in ("placeholder", "output"):
            shape = outputs[0].shape if outputs and node.op == "placeholder" else None
            self.operators.append(Operator(node.name, node.op, time=0.0, output_shape=shape))
            self._link(node, outputs)
            return
        call = self._call(node, outputs)
        if call.key in VIEWS and call.operands and all(x.is_weight for x in call.operands) and outputs:
            self.weights.add(node)
            self.made[node] = tuple(x._replace(is_weight=True) for x in outputs)
            return
        self._link(node, outputs, call.key)
        self._add(node, call)

    def warn(self) -> None:
        """Say once which operations were not known."""
        if self.unknown:
            listed = ", ".join(f"{key} ({n})" for key, n in self.unknown.items())
            n = self.unknown.total()
            _logger.warning("%s: %d operators of unknown kinds count their bytes and no FLOP: %s", self.name, n, listed)

    def _call(self, node: Any, outputs: tuple[Operand, ...]) -> Call:
        if node.op != "call_module":
            key, settings = self._function(node)
            in_place = _writes_in_place(node.target)
            return Call(key, self._reads(_read_by(settings), node, outputs), outputs, settings, in_place)
        module = self.modules[node.target]
        settings = {key: getattr(module, key) for key in _MODULE_SETTINGS if hasattr(module, key)}
        buffers = (x for x in module.buffers() if x.dim() and x.is_floating_point())
        weights = self._operands(node, [*module.parameters(), *buffers], True)
        operands = self._reads(_read_by((node.args, node.kwargs)), node, outputs)
        return Call(_module_key(module), (*operands, *weights), outputs, settings)

    def _function(self, node: Any) -> tuple[str, dict[str, Any]]:
        """Return the key of a function or method, and its arguments by name."""
        target = node.target
        key = key_of(target if isinstance(target, str) else _function_name(target))
        if key == "getitem" and any(_tensors(self.values.get(index)) for index in _read_by(node.args[1:])):
            key = "index"  # elements picked by a tensor: a copy, where numbers and slices make a view
        schema = getattr(target, "_schema", None)
        if schema is None:
            return key, settings_of(key, node.args, node.kwargs)
        names = [argument.name for argument in schema.arguments]
        return key, dict(zip(names, node.args, strict=False)) | dict(node.kwargs)

    def _add(self, node: Any, call: Call) -> None:
        """Add the operator of a call."""
        if not call.outputs:  # a size, a check, a tensor without elements
            self.operators.append(Operator(node.name, call.key, time=0.0))
            return
        dtype = next((x.dtype for x in (*call.outputs, *call.operands) if x.dtype), "fp32")
        costs = self.costs.of(dtype)
        cost = self._cost(node, call, costs)
        weight_nbytes = sum(x.nbytes for x in call.weights) if cost.works else 0.0
        read = [x for x in self._reads(node.all_input_nodes, node, call.outputs) if not x.is_weight]
        works = cost.works
        if not cost.is_counted:
            works = counted(works, _nbytes(read), weight_nbytes, _nbytes(call.outputs))
        self.operators.append(
            Operator(
                node.name,
                kind=cost.kind,
                flops=cost.flops,
                nbytes=nbytes_of(works),
                weight_nbytes=weight_nbytes,
                time=None if works else 0.0,
                works=works,
                intensity=intensity(cost.kind in COMPUTES),
                dtype=dtype,
                attributes=cost.attributes,
                input_shapes=tuple(x.shape for x in read if x.n),
                output_shape=call.output.shape,
            )
        )

    def _cost(self, node: Any, call: Call, costs: Costs) -> Cost:
        """Return what a call costs; one that does not look as expected counts as unknown."""
        try:
            found = cost_of(call, costs)
        except (ValueError, TypeError, IndexError, KeyError, ZeroDivisionError):
            _logger.debug("%s: %s: unexpected use of %s", self.name, node.name, call.key, exc_info=True)
            found = None
        if found is not None:
            return found
        self.unknown[call.key] += 1
        return unknown(call, costs)

    def _link(self, node: Any, outputs: tuple[Operand, ...], key: str = "") -> None:
        """Add an edge for each operator that a node reads, in the order of its arguments."""
        for i, producer in enumerate(node.all_input_nodes):
            if producer in self.weights:
                continue
            sizes_only = (key in SIZES_ONLY and i > 0) or (not outputs and node.op != "output")
            nbytes = 0.0 if sizes_only else sum(x.nbytes for x in self._reads([producer], node, outputs))
            self.edges.append(Edge(producer.name, node.name, nbytes))

    def _reads(self, producers: Iterable[Any], node: Any, outputs: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """Return the tensors that a node reads of others; `getitem` reads of several only what it returns."""
        found: list[Operand] = []
        for producer in producers:
            made = self._made_by(producer)
            picks = len(made) > 1 and node.op == "call_function" and key_of(_function_name(node.target)) == "getitem"
            found += outputs if picks else made
        return tuple(found)

    def _made_by(self, node: Any) -> tuple[Operand, ...]:
        """Return the tensors that a node makes, or the weights that it stands for."""
        if node not in self.made:  # of a split all parts read it
            self.made[node] = self._operands(node, self.values.get(node), False)
        return self.made[node]

    def _operands(self, node: Any, value: Any, is_weight: bool) -> tuple[Operand, ...]:
        return tuple(
            Operand(
                self._sizes(node, tensor),
                tensor.dtype.itemsize,
                _FORMATS.get(str(tensor.dtype).removeprefix("torch.")),
                tuple(_strides(tensor)),
                is_weight,
            )
            for tensor in _tensors(value)
        )

    def _sizes(self, node: Any, tensor: Any) -> Shape:
        for axis, size in enumerate(tensor.shape):
            if type(size) is not int:
                what = "input" if node.op == "placeholder" else "operator"
                raise GraphError(
                    f"{self.name}: {what} {node.name!r} has no fixed size on axis {axis} (it is {size}); give "
                    "example inputs of the sizes to schedule for (--shape on the command line)"
                )
        return tuple(tensor.shape)


def _read_by(arguments: Any) -> list[Any]:
    """Return the nodes among arguments, each as often as it stands there."""
    return _found(arguments, lambda value: hasattr(value, "all_input_nodes"))


def _tensors(value: Any) -> list[Any]:
    """Return the tensors in a value, in order."""
    return _found(value, lambda part: hasattr(part, "dtype") and hasattr(part, "shape"))


def _found(value: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    """Return the wanted values in a nest of them, in order."""
    if wanted(value):
        return [value]
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [found for part in parts for found in _found(part, wanted)]


def _strides(tensor: Any) -> Sequence[int]:
    strides: Sequence[int] = tensor.stride() if callable(tensor.stride) else tensor.stride
    return strides


def _function_name(target: Any) -> str:
    """Return the name of a function, of an overload of ATen that of the operation."""
    packet = getattr(target, "overloadpacket", target)
    return str(getattr(packet, "__name__", None) or type(packet).__name__)


def _writes_in_place(target: Any) -> bool:
    name = target if isinstance(target, str) else _function_name(target)
    return name.endswith("_") and not name.endswith("__")


def _nbytes(operands: Iterable[Operand]) -> float:
    return sum((x.nbytes for x in operands), 0.0)


def is_composite(module: Any) -> bool:
    """Say whether a layer is best looked into: it is made of others and nothing is known of it as a whole."""
    return next(module.children(), None) is not None and _module_key(module) not in RULES


def _module_key(module: Any) -> str:
    """Return the key of the layer of PyTorch that a module is, or of its class if it is none."""
    for kind in type(module).__mro__:
        if kind.__module__.startswith("torch.nn.modules") and kind.__name__ not in ("Module", "Sequential"):
            return key_of(kind.__name__)
    return key_of(type(module).__name__)
