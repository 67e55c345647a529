"""From the calls in a graph of torch.fx to an `OpGraph`: names, kinds, costs, edges.

Nothing here imports PyTorch: nodes, modules and tensors come in as arguments.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from simsched.base.errors import GraphError
from simsched.model import Edge, Operator, OpGraph
from simsched.model.graph import UNKNOWN, Work
from workloads.checks import one_of
from workloads.costs import COMPUTES, Cost, Costs, intensity, nbytes_of, with_bytes
from workloads.formats.torch.calls import PRODUCTS, SIZES_ONLY, VIEWS, Call, Operand, Shape, key_of, settings_of
from workloads.formats.torch.costs import RULES, cost_of, unknown
from workloads.formats.torch.run import Effect, Inner, Run
from workloads.formats.torch.writes import Writes
from workloads.fusion import SIZE, fuse, without_io
from workloads.models.builder import GRANULARITIES

LOGGER: Final = "workloads.formats.torch_graph"
"""Name of the logger of the readers of PyTorch; filters of users name it."""
_logger = logging.getLogger(LOGGER)

_FORMATS: Final = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int8": "int8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8",
}
_OWN: Final = ("torch", "_operator", "operator", "math", "builtins")
"""Packages whose functions have the names that rules use."""
_PREPARED: Final = ("linear", "matmul", "einsum", "embeddingbag")
"""Operators that PyTorch makes of one kernel, before and after which others may run."""
_PREPARATIONS: Final = ("clone", "copy", "add")
"""Copies of scattered elements, and a bias that the kernel cannot add."""
_MODULE_SETTINGS: Final = (
    "stride",
    "padding",
    "dilation",
    "groups",
    "kernel_size",
    "ceil_mode",
    "num_groups",
    "normalized_shape",
    "dim",
    "num_heads",
    "embed_dim",
    "batch_first",
    "bidirectional",
)


def graph_of(
    nodes: Any,
    run: Run,
    weights: Mapping[Any, Any],
    modules: Mapping[str, Any],
    *,
    name: str,
    granularity: str = "operator",
    include_io: bool = False,
    state: Collection[Any] = (),
    guards: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> OpGraph:
    """Return the graph of nodes of torch.fx.

    Parameters
    ----------
    nodes
        In an order in which they can run.
    run
        Results and effects of each node. Of tensors only shapes, formats and storages are read.
    weights
        The nodes that are parameters, buffers or constants, with their tensors. Those that a node writes to are none.
    modules
        By the names that nodes call.
    name, granularity, include_io
        See `workloads.formats.torch.fx.Options`.
    state
        Nodes of `weights` that are none, since they do not stay as they are.
    guards
        By the name of a node names of nodes that it waits for though it does not read them.

    Raises
    ------
    GraphError
        If a value is out of range, a size is not a number, or nothing launches anything.
    """
    one_of(name, "granularity", granularity, GRANULARITIES)
    nodes = list(nodes)
    importer = _Importer(name, nodes, run, weights, modules, Costs(), frozenset(state), guards)
    for node in nodes:
        importer.read(node)
    importer.warn()
    graph = OpGraph(importer.operators, importer.edges, name)
    if granularity == "unit":
        return fuse(graph, io=include_io)
    if include_io:
        return graph
    return without_io(graph)


@dataclass
class _Importer:
    """The operators and edges of the nodes read so far."""

    name: str
    nodes: Sequence[Any]
    run: Run
    given_weights: Mapping[Any, Any]
    modules: Mapping[str, Any]
    costs: Costs
    state: frozenset[Any]
    guards: Mapping[str, Sequence[str]]
    operators: list[Operator] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    made: dict[Any, tuple[Operand, ...]] = field(default_factory=dict)  # results of each node, also weights

    def __post_init__(self) -> None:
        self.values = self.run.values
        self.writes = Writes(self.nodes, self.run, writes_in_place)
        self.names: set[str] = set()
        written = self.run.written
        constant: set[int] = set()  # storages
        self.silent: set[Any] = set()  # nodes that are not operators: weights, and nodes of memory
        for node, value in self.given_weights.items():
            operands = self._operands(node, value, True)
            if node in self.state or any(x.place is not None and x.place[0] in written for x in operands):
                operands = tuple(x._replace(is_weight=False) for x in operands)
            else:
                constant.update(x.place[0] for x in operands if x.place is not None)
            self.silent.add(node)
            self.made[node] = operands
        for node in self.nodes:
            if node.op == "call_module":
                places = (x.place for x in self._operands(node, self._parameters(node), True))
                constant.update(place[0] for place in places if place is not None)
        self.constant = frozenset(constant - written)

    def read(self, node: Any) -> None:
        """Add the operator of a node."""
        if node in self.silent:
            return
        outputs = tuple(x for x in self._made_by(node) if x.n)
        if node.op in ("placeholder", "output"):
            if outputs and node.op == "placeholder":
                shape = outputs[0].shape
            else:
                shape = None
            self.operators.append(Operator(node.name, node.op, time=0.0, output_shape=shape))
            self._link(node, outputs)
            return
        call = self._call(node, outputs)
        if call.key in VIEWS and call.operands and all(x.is_weight for x in call.operands) and outputs:
            self.silent.add(node)
            self.made[node] = tuple(x._replace(is_weight=True) for x in outputs)
            return
        self._link(node, outputs, call.key)
        self._add(node, call)

    def warn(self) -> None:
        """Say once which operations were not known, and which part of all bytes is theirs."""
        if self.writes.is_guessed:
            _logger.warning(
                "%s: the graph cannot be run, so operators that may write (%s) are ordered after all before them and "
                "before all after them; give example inputs",
                self.name,
                ", ".join(self.writes.guessed_writers),
            )
        if self.unknown:
            listed = ", ".join(f"{key} ({n})" for key, n in self.unknown.items())
            total = sum(op.nbytes for op in self.operators)
            if total:
                share = sum(op.nbytes for op in self.operators if UNKNOWN in op.attributes) / total
            else:
                share = 1.0
            n = self.unknown.total()
            _logger.warning(
                "%s: %d operators of unknown kinds count their bytes and no FLOP, %.3g %% of all bytes: %s",
                self.name,
                n,
                100 * share,
                listed,
            )

    def _call(self, node: Any, outputs: tuple[Operand, ...]) -> Call:
        if node.op != "call_module":
            key, settings = self._function(node)
            in_place = writes_in_place(node.target)
            return Call(key, self._reads(_read_by(settings), node, outputs), outputs, settings, in_place)
        module = self.modules[node.target]
        settings = {key: getattr(module, key) for key in _MODULE_SETTINGS if hasattr(module, key)}
        weights = self._operands(node, self._parameters(node), True)
        operands = self._reads(_read_by((node.args, node.kwargs)), node, outputs)
        return Call(_module_key(module), (*operands, *weights), outputs, settings)

    def _parameters(self, node: Any) -> list[Any]:
        """Return the parameters of the layer that a node calls, and the buffers that are more than a number."""
        module = self.modules[node.target]
        buffers = (x for x in module.buffers() if x.dim() and x.is_floating_point())
        return [*module.parameters(), *buffers]

    def _function(self, node: Any) -> tuple[str, dict[str, Any]]:
        """Return the key of a function or method, and its arguments by name."""
        target = node.target
        key = _key_of_function(target)
        if key == "getitem" and any(_tensors(self.values.get(index)) for index in _read_by(node.args[1:])):
            key = "index"  # elements picked by a tensor: a copy, where numbers and slices make a view
        schema = getattr(target, "_schema", None)
        if schema is None:
            return key, settings_of(key, node.args, node.kwargs)
        names = [argument.name for argument in schema.arguments]
        return key, dict(zip(names, node.args, strict=False)) | dict(node.kwargs)

    def _add(self, node: Any, call: Call) -> None:
        """Add the operator of a call."""
        if not call.outputs:
            effect = self.run.effects.get(node)
            written = effect.writes if effect is not None else {}
            if not written and not (self.writes.is_guessed and call.in_place):  # a size, a check, no elements
                self.operators.append(Operator(node.name, SIZE, time=0.0))
                return
            alone = call.operands[:1] if len(written) < 2 else ()
            call = replace(call, outputs=alone or tuple(_bytes_alone(nbytes) for nbytes in written.values()))
        works: tuple[Work, ...]
        dtype = _format(call)
        cost = self._cost(node, call, self.costs.of(dtype))
        if isinstance(cost, _Composite):
            cost, dtype, works, weight_nbytes = cost
        else:
            if cost.works:
                weight_nbytes = sum(x.nbytes for x in call.weights)
            else:
                weight_nbytes = 0.0
            works = cost.works
        read = _once(x for x in self._reads(node.all_input_nodes, node, call.outputs) if not x.is_weight)
        if not cost.is_counted:
            works = with_bytes(works, _nbytes(read), weight_nbytes, _nbytes(call.outputs))
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

    def _cost(self, node: Any, call: Call, costs: Costs) -> "Cost | _Composite":
        """Return the cost of a call; an unexpected call is looked into, or else counts as unknown."""
        try:
            cost = cost_of(call, costs)
        except (ValueError, TypeError, IndexError, KeyError, ZeroDivisionError):
            _logger.debug("%s: %s: unexpected use of %s", self.name, node.name, call.key, exc_info=True)
            cost = None
        inner = self.run.inner.get(node)
        if cost is not None and not (inner and self._has_more(node, call, inner)):
            return cost
        if inner is not None and not _is_itself(node, inner):
            return self._composite(node, call, cost, inner)
        if cost is not None:
            return cost
        self.unknown[call.key] += 1
        return unknown(call, costs)

    def _has_more(self, node: Any, call: Call, inner: Sequence[Inner]) -> bool:
        """Return whether more runs in a node than its rule knows.

        Casts of autocast, and `_PREPARATIONS`. Of an einsum of three tensors the best order counts, which need not be
        the one that runs.
        """
        if node.name in self.run.regions and any(map(_casts, inner)):
            return True
        if call.key not in _PREPARED or (call.key == "einsum" and len(call.operands) > 2):
            return False
        return any(key_of(_function_name(one.target)) in _PREPARATIONS for one in inner)

    def _composite(self, node: Any, call: Call, known: Cost | None, inner: Sequence[Inner]) -> "_Composite":
        """Return the cost of all calls inside a node, in order."""
        works: list[Work] = []
        weights: dict[Any, float] = {}
        if known is not None:
            attributes = dict(known.attributes)
        else:
            attributes = {}
        dtype = _format(call)
        most = 0.0
        for one in inner:
            part = self._inner_call(node, one)
            if not part.outputs:
                continue
            own = _format(part)
            costs = self.costs.of(own)
            try:
                cost = cost_of(part, costs)
            except (ValueError, TypeError, IndexError, KeyError, ZeroDivisionError):
                cost = None
            if cost is None:
                self.unknown[part.key] += 1
                cost = unknown(part, costs)
                attributes[UNKNOWN] = part.key
            if cost.works:
                weight_nbytes = sum(x.nbytes for x in part.weights)
            else:
                weight_nbytes = 0.0
            if cost.works:
                weights |= {x.place or id(x): x.nbytes for x in part.weights}
            if known is not None and part.key == "add" and part.weights:
                cost = _without_flops(cost)  # a bias, which costs no FLOP in a product that adds it either
            if cost.is_counted:
                works += cost.works
            else:
                works += with_bytes(cost.works, _nbytes(_once(part.inputs)), weight_nbytes, _nbytes(part.outputs))
            if cost.flops > most:
                dtype = own
                most = cost.flops
        kind = known.kind if known is not None else call.key
        whole = Cost(kind, tuple(works), attributes, is_counted=True)
        return _Composite(whole, dtype, whole.works, sum(weights.values()))

    def _inner_call(self, node: Any, one: Inner) -> Call:
        """Return a call of ATen inside a node, whose arguments are tensors."""
        if hasattr(one.target, "_schema"):
            names = [argument.name for argument in one.target._schema.arguments]
        else:
            names = []
        settings = dict(zip(names, one.arguments, strict=False)) | dict(one.keywords)
        operands = self._operands(node, list(settings.values()), False)
        operands = tuple(x._replace(is_weight=x.place is not None and x.place[0] in self.constant) for x in operands)
        outputs = tuple(x for x in self._operands(node, one.value, False) if x.n)
        if not outputs:
            outputs = tuple(x for x in self._operands(node, one.written, False) if x.n)
        key = key_of(_function_name(one.target))
        return Call(key, operands, outputs, settings, writes_in_place(one.target))

    def _link(self, node: Any, outputs: tuple[Operand, ...], key: str = "") -> None:
        """Add an edge for each operator that a node has to wait for, in the order of its arguments."""
        read: dict[Any, float] = {}
        for i, producer in enumerate(node.all_input_nodes):
            if producer in self.silent:
                continue
            sizes_only = (key in SIZES_ONLY and i > 0) or (
                not outputs and node.op != "output" and not self._writes(node)
            )
            if sizes_only:
                nbytes = 0.0
            else:
                nbytes = sum(x.nbytes for x in self._reads([producer], node, outputs))
            read[producer] = nbytes
        awaited = {producer.name: nbytes for producer, nbytes in self.writes.predecessors(node, read).items()}
        for name in self.guards.get(node.name, ()):
            if name in self.names:
                awaited.setdefault(name, 0.0)
        self.edges += [Edge(name, node.name, nbytes) for name, nbytes in awaited.items()]
        self.names.add(node.name)

    def _writes(self, node: Any) -> bool:
        effect: Effect | None = self.run.effects.get(node)
        return effect is not None and bool(effect.writes)

    def _reads(self, producers: Iterable[Any], node: Any, outputs: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """Return the tensors that a node reads of others; `getitem` reads only the tensor that it returns."""
        operands: list[Operand] = []
        for producer in producers:
            results = self._made_by(producer)
            picks = len(results) > 1 and node.op == "call_function" and key_of(_function_name(node.target)) == "getitem"
            operands += outputs if picks else results
        return tuple(operands)

    def _made_by(self, node: Any) -> tuple[Operand, ...]:
        """Return the tensors that a node makes, or the weights that it names."""
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
                self.run.place(tensor),
            )
            for tensor in _tensors(value)
        )

    def _sizes(self, node: Any, tensor: Any) -> Shape:
        for axis, size in enumerate(tensor.shape):
            if type(size) is not int:
                if node.op == "placeholder":
                    what = "input"
                else:
                    what = "operator"
                raise GraphError(
                    f"{self.name}: {what} {node.name!r} has no fixed size on axis {axis} (it is {size}); give "
                    "example inputs of the sizes to schedule for"
                )
        return tuple(tensor.shape)


def _read_by(arguments: Any) -> list[Any]:
    """Return the nodes among arguments, each as often as it occurs."""
    return _find(arguments, lambda value: hasattr(value, "all_input_nodes"))


def _tensors(value: Any) -> list[Any]:
    """Return the tensors in a value, in order."""
    return _find(value, lambda part: hasattr(part, "dtype") and hasattr(part, "shape"))


def _find(value: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    """Return the wanted values in a nest of them, in order."""
    if wanted(value):
        return [value]
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        return []
    return [node for part in value for node in _find(part, wanted)]


def _strides(tensor: Any) -> Sequence[int]:
    if callable(tensor.stride):
        strides: Sequence[int] = tensor.stride()
    else:
        strides = tensor.stride
    return strides


def _function_name(target: Any) -> str:
    """Return the name of a function; an overload of ATen has the name of its operation."""
    packet = getattr(target, "overloadpacket", target)
    return str(getattr(packet, "__name__", None) or type(packet).__name__)


def writes_in_place(target: Any) -> bool:
    """Say whether a function or method is called as those are that write to their first argument."""
    if isinstance(target, str):
        name = target
    else:
        name = _function_name(target)
    return name.endswith("_") and not name.endswith("__")


def _nbytes(operands: Iterable[Operand]) -> float:
    return sum((x.nbytes for x in operands), 0.0)


class _Composite(NamedTuple):
    """The cost of a node that was looked into: with all bytes, and the number format of most of its FLOP."""

    cost: Cost
    dtype: str
    works: tuple[Work, ...]
    weight_nbytes: float


def _format(call: Call) -> str:
    """Return the number format that a call computes in; a product computes in the format of its factors."""
    if call.key in PRODUCTS:
        multiplied = next((x.dtype for x in call.operands[-2 if call.key != "scaledmm" else 0 :] if x.dtype), None)
        if multiplied is not None:
            return multiplied
    return next((x.dtype for x in (*call.outputs, *call.operands) if x.dtype), "fp32")


def _once(operands: Iterable[Operand]) -> list[Operand]:
    """Return tensors without repetitions: the same part of the same memory moves once."""
    distinct: dict[Any, Operand] = {}
    for i, x in enumerate(operands):
        distinct.setdefault(i if x.place is None else (x.place, x.shape, x.strides), x)
    return list(distinct.values())


def _bytes_alone(nbytes: float) -> Operand:
    """Return a tensor for bytes of unknown meaning, as if they were numbers of 4 bytes."""
    return Operand((max(1, int(nbytes) // 4),), 4, None, (1,), False)


def _without_flops(cost: Cost) -> Cost:
    return cost._replace(works=tuple(replace(work, flops=0.0) for work in cost.works))


def _casts(one: Inner) -> bool:
    """Say whether a call changes the number format of real numbers, as autocast does."""
    if key_of(_function_name(one.target)) != "to" or not one.arguments:
        return False
    before = one.arguments[0].dtype
    after = one.value.dtype
    return bool(before != after and before.is_floating_point and after.is_floating_point)


def _is_itself(node: Any, inner: Sequence[Inner]) -> bool:
    """Say whether all that runs inside a node is the operator that it calls."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return len(inner) == 1 and getattr(inner[0].target, "overloadpacket", None) is packet


def _key_of_function(target: Any) -> str:
    """Return the key of a function or method; a function of another package has the package as a prefix."""
    if isinstance(target, str):
        return key_of(target)
    name = _function_name(target)
    packet = getattr(target, "overloadpacket", target)
    module = str(getattr(packet, "__module__", None) or "")
    is_own = module.partition(".")[0] in _OWN or not module
    if is_own:
        return key_of(name)
    return f"{module.partition('.')[0]}.{name}"


def is_composite(module: Any) -> bool:
    """Say whether a layer is best looked into: it is made of others and nothing is known of it as a whole."""
    return next(module.children(), None) is not None and _module_key(module) not in RULES


def _module_key(module: Any) -> str:
    """Return the key of the layer of PyTorch that a module is, or of its class if it is none."""
    for kind in type(module).__mro__:
        if kind.__module__.startswith("torch.nn.modules") and kind.__name__ not in ("Module", "Sequential"):
            return key_of(kind.__name__)
    return key_of(type(module).__name__)
