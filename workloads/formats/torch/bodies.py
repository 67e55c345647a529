"""Operators of higher order of PyTorch, such as `torch.cond` and regions of autocast: their bodies in the graph.

A body that runs once stands in place of its call. Of branches the costlier one stands there, unless the condition is
known; a loop stands there as often as it runs, if constants say how often, and else once. `BODIES` lists them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, NamedTuple

from simsched.base.errors import GraphError
from workloads.formats.torch.calls import VIEWS, key_of
from workloads.formats.torch.run import Autocast

MOST_OPERATORS: Final = 100_000
"""Operators that the bodies of loops may become."""
_MOST_ROUNDS: Final = 100_000
_MOST_NUMBERS: Final = 4096  # of a constant that a condition is computed with

BODIES: Final[Mapping[str, str]] = {
    "wrap_with_set_grad_enabled": "read as a part of the graph",
    "wrap_with_autocast": "read as a part of the graph, in the number format of the region",
    "invoke_subgraph": "read as a part of the graph",
    "wrap": "read as a part of the graph",
    "wrap_activation_checkpoint": "read as a part of the graph",
    "tag_activation_checkpoint": "read as a part of the graph",
    "hints_wrapper": "read as a part of the graph",
    "strict_mode": "read as a part of the graph",
    "cond": "the branch of a condition that is known, else the costlier one; a line says so",
    "while_loop": "as many rounds as constants say, else one; a line says so",
    "scan": "a round for each step",
    "map_impl": "a round for each element",
}
"""By name how an operator of higher order is read; any other counts its bytes."""

_UNKNOWN: Final = object()


class Price(NamedTuple):
    """FLOP and bytes of a body."""

    flops: float
    nbytes: float

    @property
    def weight(self) -> float:
        """Bytes that take about as long to move as it all: a GPU computes some 10 FLOP in fp32 for each."""
        return self.flops / 10.0 + self.nbytes


@dataclass
class Flat:
    """A graph module without operators of higher order that are known.

    Parameters
    ----------
    graph_module
        The module itself where it has none.
    regions
        By the name of a node the regions of autocast that it is in.
    guards
        By the name of a node of a body that may not run, the names of the nodes that it waits for all the same: that
        whose value decides, and those that the other body reads.
    remarks
        What was assumed, a line each.
    """

    graph_module: Any
    regions: dict[str, tuple[Autocast, ...]] = field(default_factory=dict)
    guards: dict[str, tuple[str, ...]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def flattened(
    name: str, graph_module: Any, constants: Mapping[str, Any], price: Callable[[Any, Sequence[Any]], Price]
) -> Flat:
    """Return a graph module whose bodies are parts of its graph.

    Parameters
    ----------
    name
        Of the graph, for errors and remarks.
    graph_module
        Not changed.
    constants
        Tensors whose values are known, by the name of their placeholder.
    price
        What a body costs, a graph module, on such arguments.

    Raises
    ------
    GraphError
        If a loop makes more than `MOST_OPERATORS` operators.
    """
    flat = Flat(graph_module)
    if any(_body_of(node) for node in graph_module.graph.nodes):
        import torch

        builder = _Builder(name, flat, torch.fx.Graph(), constants, price, graph_module)
        given = {node: builder.placeholder(node) for node in graph_module.graph.nodes if node.op == "placeholder"}
        builder.graph.output(builder.copied(graph_module, "", list(given.values()), ()))
        flat.graph_module = torch.fx.GraphModule(graph_module, builder.graph, type(graph_module).__name__)
    return flat


def _body_of(node: Any) -> str | None:
    """Return the name of the operator of `BODIES` that a node calls."""
    if node.op != "call_function":
        return None
    import torch

    higher = isinstance(node.target, torch._ops.HigherOrderOperator)
    name = node.target.name() if higher else ""
    return name if name in BODIES else None


@dataclass
class _Builder:
    """Copies the nodes of a graph and of its bodies to one graph."""

    name: str
    flat: Flat
    graph: Any
    constants: Mapping[str, Any]
    price: Callable[[Any, Sequence[Any]], Price]
    root: Any
    n_copied: int = 0
    guard: Sequence[Any] = ()  # nodes that the body that is being copied waits for
    inside: set[Any] = field(default_factory=set)  # nodes of the guarded body that is being copied

    def placeholder(self, node: Any) -> Any:
        return self.graph.node_copy(node)

    def copied(self, module: Any, path: str, arguments: Sequence[Any], regions: tuple[Autocast, ...]) -> Any:
        """Copy the nodes of a module, with arguments for its placeholders; return what its output node returns."""
        from torch.fx.node import map_arg

        env: dict[Any, Any] = {}
        given = iter(arguments)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "output":
                return map_arg(node.args[0], env.__getitem__)
            elif node.op == "get_attr" and _is_graph_module(_attribute(module, node.target)):
                env[node] = _Body(_attribute(module, node.target), f"{path}{node.target}.")
            elif (body := _body_of(node)) is not None:
                env[node] = self._called(body, node, _mapped(node.args, env), regions)
            elif _picks(node) and isinstance(env.get(node.args[0]), list | tuple):
                env[node] = env[node.args[0]][node.args[1]]
            else:
                env[node] = self._one(node, path, env, regions)
        return None

    def _one(self, node: Any, path: str, env: Mapping[Any, Any], regions: tuple[Autocast, ...]) -> Any:
        self.n_copied += 1
        if self.n_copied > MOST_OPERATORS:
            raise GraphError(
                f"{self.name}: loops make more than {MOST_OPERATORS:,} operators of it; export it with fewer rounds"
            )
        copy = self.graph.node_copy(node, env.__getitem__)
        if node.op in ("get_attr", "call_module"):
            copy.target = path + node.target
        if regions:
            self.flat.regions[copy.name] = regions
        if self.guard and copy.op != "get_attr":
            if not any(read in self.inside for read in copy.all_input_nodes):
                self.flat.guards[copy.name] = tuple(x.name for x in self.guard)
            self.inside.add(copy)
        return copy

    def _called(self, body: str, node: Any, args: Sequence[Any], regions: tuple[Autocast, ...]) -> Any:
        """Return what the call of a body returns, whose nodes are copied."""
        if body == "cond":
            return self._branch(node, *args, regions=regions)
        if body == "while_loop":
            test, rounds, carried, *more = args
            return self._loop(node, test, rounds, carried, more[0] if more else (), regions)
        if body in ("scan", "map_impl"):
            return self._rounds(body, node, args, regions)
        at, inner = next((i, arg) for i, arg in enumerate(args) if isinstance(arg, _Body))
        operands = [arg for arg in args[at + 1 :] if not isinstance(arg, str)]
        if body in ("hints_wrapper", "strict_mode"):
            operands = list(operands[0])
        if body == "wrap_with_autocast":
            regions = (*regions, Autocast(args[0], args[1], args[2]))
        return self._inlined(inner, operands, regions)

    def _inlined(self, body: "_Body", operands: Sequence[Any], regions: tuple[Autocast, ...]) -> Any:
        return self.copied(body.module, body.path, operands, regions)

    def _guarded(
        self, guards: Sequence[Any], body: "_Body", operands: Sequence[Any], regions: tuple[Autocast, ...]
    ) -> Any:
        """Copy a body that waits for nodes, one of which says whether it runs."""
        outer = self.guard, self.inside
        waited = tuple(dict.fromkeys(x for x in guards if hasattr(x, "all_input_nodes")))
        self.guard, self.inside = (*outer[0], *waited), set()
        result = self._inlined(body, operands, regions)
        self.guard, self.inside = outer
        return result

    def _branch(
        self, node: Any, condition: Any, yes: "_Body", no: "_Body", operands: Sequence[Any] = (), *, regions: Any
    ) -> Any:
        known = self._known(condition, {})
        if known is not _UNKNOWN:
            return self._inlined(yes if bool(known) else no, operands, regions)
        prices = [self.price(body.module, [_value(x) for x in operands]) for body in (yes, no)]
        taken = prices[1].weight > prices[0].weight
        flops, other = (f"{prices[i].flops:.3g} FLOP, {prices[i].nbytes:.3g} bytes" for i in (taken, not taken))
        self.flat.remarks.append(
            f"{node.name}: one of two branches runs; the costlier one counts ({'false' if taken else 'true'}: {flops}; "
            f"the other: {other})"
        )
        return self._guarded([condition, *operands], no if taken else yes, operands, regions)

    def _loop(
        self, node: Any, test: "_Body", body: "_Body", carried: Any, more: Any, regions: tuple[Autocast, ...]
    ) -> Any:
        n = self._n_rounds(test.module, body.module, [*carried], [*more])
        if n is None:
            self.flat.remarks.append(f"{node.name}: how often it runs is not known before; one round counts")
        values = list(carried)
        for _ in range(1 if n is None else n):
            condition = self._inlined(test, [*values, *more], regions)
            values = list(self._guarded([condition], body, [*values, *more], regions))
        return values

    def _rounds(self, kind: str, node: Any, args: Sequence[Any], regions: tuple[Autocast, ...]) -> Any:
        """Copy the body of a scan, or of a map, for each step."""
        import torch

        body, carried = args[0], list(args[1]) if kind == "scan" else []
        sequences = list(args[2] if kind == "scan" else args[1])
        more = list(args[3] if kind == "scan" and len(args) > 3 else args[2] if kind != "scan" else ())
        first = next((_value(x) for x in sequences), None)
        if first is None:
            raise GraphError(f"{self.name}: {node.name!r} goes over nothing")
        written: list[list[Any]] = []
        for i in range(int(first.shape[0])):
            parts = [self.graph.call_function(torch.ops.aten.select.int, (x, 0, i)) for x in sequences]
            results = list(self._inlined(body, [*carried, *parts, *more], regions))
            carried, made = results[: len(carried)], results[len(carried) :]
            written.append(made)
        stacked = [
            self.graph.call_function(torch.ops.aten.stack.default, (list(x), 0)) for x in zip(*written, strict=True)
        ]
        return [*carried, *stacked]

    def _n_rounds(self, test: Any, body: Any, carried: list[Any], more: list[Any]) -> int | None:
        """Return how often a loop runs, None if what its condition reads is not known before."""
        values, fixed = [self._known(x, {}) for x in carried], [self._known(x, {}) for x in more]
        for n in range(_MOST_ROUNDS):
            goes_on = self._evaluated(test, [*values, *fixed])
            if goes_on is _UNKNOWN:
                return None
            if not bool(goes_on):
                return n
            results = self._evaluated(body, [*values, *fixed])
            if results is _UNKNOWN:
                return None
            values = list(results)
        return None

    def _evaluated(self, module: Any, arguments: Sequence[Any]) -> Any:
        """Return what a body makes of arguments of which some are known, each result known or not."""
        known: dict[Any, Any] = {}
        given = iter(arguments)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(given)
            elif node.op == "output":
                result = node.args[0]
                if isinstance(result, list | tuple):
                    return [self._known(x, known) for x in result]
                return self._known(result, known)
        return _UNKNOWN

    def _known(self, value: Any, known: dict[Any, Any]) -> Any:
        """Return a value that constants alone decide, else `_UNKNOWN`."""
        if not hasattr(value, "all_input_nodes"):
            return value if isinstance(value, bool | int | float) else _UNKNOWN
        if value not in known:
            known[value] = _UNKNOWN
            known[value] = self._computed(value, known)
        return known[value]

    def _computed(self, node: Any, known: dict[Any, Any]) -> Any:
        from torch.fx.node import map_arg

        made = _value(node)
        if made is not None and hasattr(made, "shape") and not _is_small(made.shape):
            return _UNKNOWN
        if node.op == "placeholder":
            return self.constants.get(node.name, _UNKNOWN)
        if node.op == "get_attr":
            return _constant(_attribute(node.graph.owning_module or self.root, node.target))
        if node.op != "call_function" or _body_of(node) is not None:
            return _UNKNOWN
        if any(_writes(user) for user in node.users):  # what it holds depends on when it is read
            return _UNKNOWN
        inputs = {read: self._known(read, known) for read in node.all_input_nodes}
        if any(x is _UNKNOWN for x in inputs.values()):
            return _UNKNOWN
        try:
            return node.target(*map_arg(node.args, inputs.__getitem__), **map_arg(node.kwargs, inputs.__getitem__))
        except Exception:  # of many kinds, from the operators: what cannot be computed is not known
            return _UNKNOWN


class _Body(NamedTuple):
    """A graph module that an operator calls, and the path to it from the module at the top, with a dot behind."""

    module: Any
    path: str


def _mapped(value: Any, env: Mapping[Any, Any]) -> Any:
    """Return a nest of arguments with what nodes became, which may be a nest or a body itself."""
    if isinstance(value, list | tuple):
        return [_mapped(part, env) for part in value]
    return env[value] if hasattr(value, "all_input_nodes") else value


def _picks(node: Any) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def _writes(node: Any) -> bool:
    """Say whether a node may write over what it reads; `detach_` does not."""
    name = str(getattr(getattr(node.target, "overloadpacket", node.target), "__name__", node.target))
    return name.endswith("_") and not name.endswith("__") and key_of(name) not in VIEWS


def _value(node: Any) -> Any:
    return getattr(node, "meta", {}).get("val")


def _is_small(shape: Sequence[Any]) -> bool:
    return all(type(size) is int for size in shape) and prod(shape) <= _MOST_NUMBERS


def _constant(value: Any) -> Any:
    """Return a copy of a tensor that is no parameter and has few numbers: conditions may write over it."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter | FakeTensor):
        return _UNKNOWN
    return value.clone() if value.device.type != "meta" and _is_small(value.shape) else _UNKNOWN


def _is_graph_module(value: Any) -> bool:
    return hasattr(value, "graph") and hasattr(value, "named_modules")


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part, None)
    return module


def constants_of(program: Any) -> Iterator[tuple[str, Any]]:
    """Yield placeholders of an exported program that are constants, with their tensors."""
    for placeholder, target in program.graph_signature.inputs_to_lifted_tensor_constants.items():
        value = _constant(program.constants.get(target))
        if value is not _UNKNOWN:
            yield placeholder, value
