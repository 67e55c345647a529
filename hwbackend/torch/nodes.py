"""The nodes of a graph of torch.fx as operators of an `OpGraph`, run one operator at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hwbackend.measuring.synth import SYNTH
from simsched.base.errors import ScheduleError
from simsched.model.graph import Operator, OpGraph
from simsched.rewriting.draft import ATTRIBUTE as SLICES
from workloads.formats import torch_fx
from workloads.fusion import IO_KINDS, fuse, without_io

_COMPARED: Final = ("kind", "output_shape")


@dataclass(frozen=True)
class Traced:
    """A graph module and what it is as a graph, an operator for each node.

    `full` has inputs and output as operators too. Nodes that are not in it are weights or views of weights.
    """

    graph_module: Any
    full: OpGraph

    @property
    def name(self) -> str:
        """What it is called in errors."""
        return self.full.name

    def graphs(self) -> list[OpGraph]:
        """Return the graphs that the importer makes of it: single operators and units, with and without ends."""
        unit = fuse(self.full)
        return [without_io(self.full), without_io(unit), self.full, unit]


def trace_module(module: Any, example_inputs: Sequence[Any], name: str) -> Traced:
    """Trace a module as the importer does: by torch.fx, or where that fails by torch.export.

    An exported program has been traced: its operators are those of its file.

    Raises
    ------
    GraphError
        If neither can, or the module does not run on the inputs.
    """
    import torch.export

    if isinstance(module, torch.export.ExportedProgram):
        found = module
    else:
        found = torch_fx.traced(module, example_inputs, name=name)
    if isinstance(found, torch.export.ExportedProgram):
        return Traced(found.module(), torch_fx.from_exported(found, name=name, include_io=True))
    return Traced(found, torch_fx.from_fx(found, example_inputs, name=name, include_io=True))


def is_weight(value: Any) -> bool:
    """Say whether an input of a graph of dynamo is a parameter or buffer, which stays where it is."""
    import torch

    return isinstance(value, torch.nn.Parameter) or hasattr(value, "_dynamo_static_input_type")


def nodes_of(traced: Traced, graph: OpGraph) -> list[list[Any]]:
    """Return the nodes that each operator of a graph stands for, in the order in which they run.

    Parameters
    ----------
    traced
        What runs.
    graph
        What the importer made of it, single operators or units.

    Raises
    ------
    ScheduleError
        If the graph is another, naming the first operator that shows it, or was rewritten.
    """
    _require_same(traced, graph)
    by_name = {node.name: node for node in traced.graph_module.graph.nodes}
    members: dict[str, list[Any]] = {name: [by_name[name]] if name in by_name else [] for name in graph.names}
    reads: dict[str, list[str]] = {name: [] for name in traced.full.names}
    for edge in sorted(
        traced.full.edges, key=lambda edge: edge.nbytes == 0.0
    ):  # what only sizes are read of comes last
        reads[edge.dst].append(edge.src)
    owner: dict[str, str] = {}  # the operator that a node belongs to, or whose output it looks at
    for name in traced.full.order:
        if name in members:
            owner[name] = name
            continue
        found = next((owner[src] for src in reads[name] if src in owner), None)
        if found is None:
            continue
        owner[name] = found
        if not launches_nothing(traced.full[name]):
            members[found].append(by_name[name])
    return [members[name] for name in graph.names]


def _require_same(traced: Traced, graph: OpGraph) -> None:
    """Refuse a graph that is not one of those that the importer makes."""
    for op in graph.operators:
        if SLICES in op.attributes or "weights" in op.attributes:
            raise ScheduleError(
                f"the schedule runs a rewritten graph, in which {op.name!r} stands for other operators than the module "
                f"has; schedule {traced.name} without rewriting (ios: strategy='parallel')"
            )
    graphs = traced.graphs()
    ours = next((found for found in graphs if found.index.keys() == graph.index.keys()), None)
    if ours is None:
        unknown = next((name for name in graph.names if name not in traced.full.index), None)
        if unknown is not None:
            raise ScheduleError(
                f"operator {unknown!r} of the schedule is not in {traced.name}; schedule the graph that "
                "workloads.formats.torch.fx makes of it (a plan of a .pt2 file runs with torch.export.load(file))"
            )
        closest = max(graphs, key=lambda found: len(found.index.keys() & graph.index.keys()))
        missing = next((name for name in closest.names if name not in graph.index), None)
        extra = next((name for name in graph.names if name not in closest.index), None)
        raise ScheduleError(f"operator {missing or extra!r} of {traced.name} is not in the schedule's graph")
    for op in graph.operators:
        mine = ours[op.name]
        keys = _COMPARED if op.kind != SYNTH else _COMPARED[1:]  # what was realised or measured may stand for a view
        differs = next((key for key in keys if getattr(mine, key) != getattr(op, key)), None)
        if differs is not None:
            raise ScheduleError(
                f"operator {op.name!r} has {differs} {getattr(op, differs)!r} in the schedule, but "
                f"{getattr(mine, differs)!r} in {traced.name}"
            )
    theirs = dict.fromkeys((edge.src, edge.dst) for edge in graph.edges)
    lost = next((edge for edge in ours.edges if (edge.src, edge.dst) not in theirs), None)
    if lost is not None:
        raise ScheduleError(f"the schedule's graph lacks the edge {lost.src!r} -> {lost.dst!r} of {traced.name}")


def launches_nothing(op: Operator) -> bool:
    """Say whether an operator only looks at what it reads."""
    return not op.kernels and not op.works and op.time == 0.0 and op.kind not in IO_KINDS


class NodeRunner:
    """Runs the nodes of a graph module in parts, each node once.

    Views that are in no part, and what is made of weights alone, run when a node reads them.

    Parameters
    ----------
    graph_module
        Its parameters and submodules are used as they are.
    parts
        Nodes by number of the part.
    """

    def __init__(self, graph_module: Any, parts: Sequence[Sequence[Any]]) -> None:
        from torch.fx.node import map_arg

        self._map_arg = map_arg
        self._graph = graph_module.graph
        self._module = graph_module
        self._parts = parts
        nodes = list(self._graph.nodes)
        self._placeholders = [node for node in nodes if node.op == "placeholder"]
        (self._output,) = (node for node in nodes if node.op == "output")
        self._targets = {node: attribute_of(graph_module, node.target) for node in nodes if node.op == "call_module"}
        self._values: dict[Any, Any] = {}
        self._at = -1  # the part that runs
        self._parts_of: dict[Any, dict[int, None]] = {}  # those that computed or read the value of a node, in order
        self._last: dict[int, list[Any]] = {}  # nodes whose values nobody reads after a part

    def begin(self, inputs: Iterable[Any]) -> None:
        """Forget everything but the inputs, one for each placeholder; the last may be left out where a default is."""
        given = list(inputs)
        given += [node.args[0] for node in self._placeholders[len(given) :]]
        self._values = dict(zip(self._placeholders, given, strict=True))

    def compute(self, i: int) -> None:
        """Run the nodes of part number `i`."""
        self._at = i
        for node in self._parts[i]:
            if node.op not in ("placeholder", "output"):
                self._value(node)
        for node in self._last.get(i, ()):
            del self._values[node]

    def result(self) -> Any:
        """Return the values of the output node."""
        return self._map_arg(self._output.args[0], self._value)

    def end(self) -> None:
        """Let go of all values."""
        self._values = {}

    def let_go_early(self, streams: Sequence[int]) -> None:
        """Let go of values after their last reader from now on, where only one stream touches their memory.

        The memory then goes to later kernels of that stream, as without a schedule. To be called after a run, whose
        values show which of them share memory; later runs have to be in the same order.

        Parameters
        ----------
        streams
            By number of the part.
        """
        users: dict[int, list[Any]] = {}  # nodes by the memory that their values look at
        for node, value in self._values.items():
            for address in _addresses(value):
                users.setdefault(address, []).append(node)
        kept = {*self._placeholders, *self._output.all_input_nodes}
        kept.update(node for node in self._values if node.op == "get_attr")
        self._last = {}
        for node, value in self._values.items():
            group = [other for address in _addresses(value) for other in users[address]]
            parts = [part for other in group for part in self._parts_of.get(other, ())]
            if group and kept.isdisjoint(group) and len({streams[part] for part in parts}) == 1:
                self._last.setdefault(list(self._parts_of[node])[-1], []).append(node)

    def _value(self, node: Any) -> Any:
        self._parts_of.setdefault(node, {}).pop(self._at, None)
        self._parts_of[node][self._at] = None
        if node in self._values:
            return self._values[node]
        if node.op == "get_attr":
            value = attribute_of(self._module, node.target)
        else:
            args = self._map_arg(node.args, self._value)
            kwargs = self._map_arg(node.kwargs, self._value)
            if node.op == "call_function":
                value = node.target(*args, **kwargs)
            elif node.op == "call_method":
                value = getattr(args[0], node.target)(*args[1:], **kwargs)
            else:
                value = self._targets[node](*args, **kwargs)
        self._values[node] = value
        return value


def _addresses(value: Any) -> list[int]:
    """Return where the memory of the tensors in a value begins."""
    import torch

    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf.untyped_storage().data_ptr() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def attribute_of(module: Any, path: str) -> Any:
    """Return an attribute of a module by its dotted path."""
    for part in path.split("."):
        module = getattr(module, part)
    return module
