"""An `OpGraph` as IOS's graph JSON: its operators as nodes, cut into blocks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from simsched.base.errors import GraphError, ScheduleError
from simsched.base.io import Record
from simsched.model.graph import Operator, OpGraph
from simsched.model.plan import Placement
from simsched.model.schedule import Schedule
from workloads.formats.ios_read import ACTIVATIONS, NO_ACTIVATION, POOLS

Terms = list[list[list[Any]]]
"""What a node reads: values [name, begin, end], to be added within a term; the terms concatenated."""

_KNOWN: Final = (
    f"conv, pool, identity, {', '.join(ACTIVATIONS)} of one input; add, mul and concat of images along the channels, "
    "without activation"
)


class _Part(NamedTuple):
    """A part of an operator; `inputs` are earlier parts, or ~i for input i of the operator."""

    kind: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    row: Record


def document(graph: OpGraph, schedule: Schedule | None = None) -> dict[str, Any]:
    """Return the graph as a document of IOS, blocks without stages; those of `schedule` do not span its blocks."""
    reads = _Inputs(graph)
    blocks = _blocks(graph, reads, schedule)
    taken = {*graph.names, reads.name}
    nodes = {op.name: _node(op, reads.of[op.name], taken) for op in graph.operators}
    enter: dict[str, Any] = {
        "type": "placeholder", "name": reads.name, "hint_name": reads.name, "output_shape": list(reads.shape),
    }  # fmt: skip
    rows = []
    begin = enter
    for names in blocks:
        *inner, leave = (nodes[name] for name in names)
        rows.append(
            {"enter_name": begin["name"], "enter_node": begin, "inner_nodes": inner, "exit_node": leave, "stages": None}
        )
        begin = leave
    return {"name": graph.name, "input": enter, "blocks": rows}


def staged(schedule: Schedule, written: dict[str, Any]) -> list[list[tuple[str, list[list[str]]]]]:
    """Return, for each block of a document, its stages in launch order: the device and the groups of each."""
    if schedule.execution != "stages":
        raise ScheduleError(
            f"schedule of {schedule.graph.name!r}: its execution is {schedule.execution!r}; IOS has only 'stages'"
        )
    schedule.check()
    stages: dict[tuple[str, int], dict[int, list[str]]] = {}
    for row in schedule.placements:
        stages.setdefault((row.device, row.stage), {}).setdefault(row.group, []).append(row.op)
    number = {
        node["name"]: i
        for i, block in enumerate(written["blocks"])
        for node in (*block["inner_nodes"], block["exit_node"])
    }
    found: list[list[tuple[str, list[list[str]]]]] = [[] for _ in written["blocks"]]
    for (device, _), groups in stages.items():
        ordered = [groups[group] for group in sorted(groups)]
        found[number[ordered[0][0]]].append((device, ordered))
    return found


class _Inputs:
    """What each operator of a graph reads, as values of IOS, and the network's input.

    Attributes
    ----------
    of
        By operator, its values [name, begin, end], in the order of its input shapes.
    name, shape
        Of the network's input, shape without the batch.
    readers
        The operators that read it.
    """

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self.of: dict[str, list[list[Any]]] = {}
        self.readers: list[str] = []
        ptr, edges = graph.incoming
        first = graph.operator(0)
        batch = next((shape[0] for shape in (*first.input_shapes, first.output_shape) if shape), None)
        names: dict[str, None] = {}
        shapes: list[tuple[int, ...]] = []
        for i, op in enumerate(graph.operators):
            for shape in (*op.input_shapes, op.output_shape):
                if shape is None or len(shape) != 4 or shape[0] != batch:
                    raise _refused(op, f"its tensors must be of shape ({batch or 'N'}, C, H, W), not {shape}")
            producers = [graph.names[graph.src[e]] for e in edges[ptr[i] : ptr[i + 1]]]
            self.of[op.name] = values = self._values(op, producers)
            for (name, _, end), shape in zip(values, op.input_shapes, strict=True):
                if name not in graph.index:
                    names[name] = None
                    shapes.append((end, *shape[2:]))
                    if self.readers[-1:] != [op.name]:
                        self.readers.append(op.name)
        self.shape = max(shapes)
        given = [name for name in names if name]
        if len(given) > 1 or any(shape[1:] != self.shape[1:] for shape in shapes):
            raise GraphError(
                f"graph {graph.name!r} cannot be written in IOS's format, which has one input of the network"
            )
        self.name = given[0] if given else next(name for name in _placeholder_names() if name not in graph.index)
        for values in self.of.values():
            for value in values:
                value[0] = value[0] or self.name

    def _values(self, op: Operator, producers: Sequence[str]) -> list[list[Any]]:
        """Return an operator's values; the network's input goes by the empty name unless `reads` names it."""
        shapes = op.input_shapes
        given = Record(dict(op.attributes), f"operator {op.name!r}").take("reads", list, None)
        values: list[list[Any]]
        if not shapes:
            raise _refused(op, "it has no input shapes")
        if given is None:
            if len(producers) not in (0, len(shapes)):
                raise _refused(
                    op, f"it has {len(shapes)} input shapes and {len(producers)} edges; say in attributes['reads'] "
                    "what it reads, as [name, begin, end] each",
                )  # fmt: skip
            values = [[name, 0, shape[1]] for name, shape in zip(producers or [""] * len(shapes), shapes, strict=True)]
        else:
            form = all(
                isinstance(v, list) and len(v) == 3 and v[0] and [type(part) for part in v] == [str, int, int]
                for v in given
            )
            known = [v[0] for v in given if v[0] in self._graph.index] if form else []
            if not form or len(given) != len(shapes) or known != list(producers):
                raise _refused(op, "its attributes['reads'] contradict its edges or input shapes")
            values = [list(value) for value in given]
        for (name, begin, end), shape in zip(values, shapes, strict=True):
            source = self._graph[name].output_shape if name in self._graph.index else None
            if end - begin != shape[1] or begin < 0 or (source and (end > source[1] or shape[2:] != source[2:])):
                raise _refused(op, f"it reads {shape} of {name!r}, which is {source}")
            if given is None and source and end != source[1]:
                raise _refused(op, f"it reads {end} channels of the {source[1]} of {name!r}; "
                                   "say which in attributes['reads']")  # fmt: skip
        return values


def _placeholder_names() -> Iterable[str]:
    yield "0"
    name = "input"
    while True:
        yield name
        name += "_"


def _refused(op: Operator, reason: str) -> GraphError:
    return GraphError(f"operator {op.name!r} cannot be written in IOS's format: {reason}")


def _blocks(graph: OpGraph, reads: _Inputs, schedule: Schedule | None) -> list[list[str]]:
    """Return the operators in topological order by block: the graph's own, joined where IOS's rules ask for it."""
    position = {name: at for at, name in enumerate(graph.order)}
    bonds = [0] * len(graph)  # summed up to `at`: reasons why the operators at it and behind it are in one block

    def join(first: int, last: int) -> None:
        bonds[first] += 1
        bonds[last] -= 1

    for piece in graph.blocks:
        places = [position[name] for name in piece]
        join(min(places), max(places))
    for src, dst in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        join(position[graph.names[src]] + 1, position[graph.names[dst]])  # the last of a block may be read behind it
    for name in reads.readers:
        join(0, position[name])
    for placements in _by_device(schedule).values():
        _join_stages(placements, position, join)
    found: list[list[str]] = [[]]
    joined = 0
    for at, name in enumerate(graph.order):
        found[-1].append(name)
        joined += bonds[at]
        if not joined and at + 1 < len(graph):
            found.append([])
    return found


def _by_device(schedule: Schedule | None) -> dict[str, list[Placement]]:
    found: dict[str, list[Placement]] = {}
    for row in () if schedule is None else schedule.placements:
        found.setdefault(row.device, []).append(row)
    return found


def _join_stages(
    placements: Sequence[Placement], position: Mapping[str, int], join: Callable[[int, int], None]
) -> None:
    """Join operators of one stage of a device, and those between which stages are not in the order of positions."""
    highest = 0
    lowest: dict[int, int] = {}  # position of a stage
    for row in sorted(placements, key=lambda row: (row.stage, position[row.op])):
        at = position[row.op]
        highest = max(highest, at)
        join(min(at, lowest.setdefault(row.stage, at)), highest)


def _node(op: Operator, values: list[list[Any]], taken: set[str]) -> dict[str, Any]:
    """Return an operator as a node: that of its one part, or a `sequential` of several."""
    parts = _parts(op)
    readers = [0] * len(parts)
    for part in parts:
        for ref in part.inputs:
            if ref >= 0:
                readers[ref] += 1
    terms: list[Terms] = []  # of each part, what reads it reads
    nodes: list[dict[str, Any]] = []
    for i, part in enumerate(parts):
        inputs = [[[values[~ref]]] if ref < 0 else terms[ref] for ref in part.inputs]
        last = i == len(parts) - 1
        combined = _combined(part, inputs)
        if combined is not None and readers[i] == 1 and not last:
            terms.append(combined)
            continue
        if nodes and any(value in values for terms in inputs for term in terms for value in term):
            raise _refused(op, f"its part {i} reads another operator, which in IOS only the first part may")
        name = _inner_name(op.name, len(nodes), taken)
        head = {"type": "", "name": name, "hint_name": name}
        nodes.append({**head, **_fields(op, part, inputs, combined), "output_shape": list(part.shape[1:])})
        terms.append([[[name, 0, part.shape[1]]]])
    row = Record(dict(op.attributes), f"operator {op.name!r}")
    hint = " ".join(map(str, row.take("merged", list, []))) or row.take("hint_name", str, op.name)
    if len(nodes) == 1:
        return {**nodes[0], "name": op.name, "hint_name": hint}
    shape = nodes[-1]["output_shape"]
    return {"type": "sequential", "name": op.name, "hint_name": hint, "nodes": nodes, "output_shape": shape}


def _inner_name(unit: str, number: int, taken: set[str]) -> str:
    name = f"{unit}.{number}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _parts(op: Operator) -> list[_Part]:
    row = Record(dict(op.attributes), f"operator {op.name!r}")
    shape = op.output_shape or ()
    if "parts" not in op.attributes:
        return [_Part(op.kind, tuple(~i for i in range(len(op.input_shapes))), shape, row)]
    found: list[_Part] = []
    for i, part in enumerate(row.records("parts")):
        inputs, size = part.take("inputs", list), part.take("output_shape", list)
        if len(size) != 4 or not all(type(n) is int for n in (*size, *inputs)):
            raise _refused(
                op, f"its part {i} must have an 'output_shape' of four whole numbers and numbers as 'inputs'"
            )
        if not inputs or not all(-len(op.input_shapes) <= ref < i for ref in inputs):
            raise _refused(op, f"its part {i} reads {inputs}, of which some is no input and no earlier part")
        found.append(_Part(part.take("kind", str), tuple(inputs), tuple(size), part))
    if not found:
        raise _refused(op, "its attributes['parts'] are empty")
    return found


def _combined(part: _Part, inputs: Sequence[Terms]) -> Terms | None:
    """Return what a part that only adds or only concatenates reads, or None if it does something else."""
    if part.row.take("activation", str, None) is not None:
        return None
    if part.kind == "concat" and part.row.take("axis", int, 1) == 1:
        return [term for terms in inputs for term in terms]
    if part.kind == "add" and all(len(terms) == 1 for terms in inputs):
        return [[value for terms in inputs for value in terms[0]]]
    return None


def _fields(op: Operator, part: _Part, inputs: Sequence[Terms], combined: Terms | None) -> dict[str, Any]:
    """Return the fields of a part's node that follow from what it does."""
    if combined is not None:
        return {"type": "identity", "inputs": _copied(combined)}
    row, kind = part.row, part.kind
    if kind == "mul" and row.take("activation", str, None) is None and all(_is_value(terms) for terms in inputs):
        return {"type": "element", "inputs": _copied([[terms[0][0] for terms in inputs]]), "op_type": "mul"}
    if len(inputs) == 1:
        read = _copied(inputs[0])
        if kind == "conv":
            return {"type": "conv", "inputs": read, **_conv(op, row)}
        if kind == "pool":
            return {"type": "pool", "inputs": read, **_pool(op, row)}
        if kind == "relu":
            return {"type": "relu", "inputs": read}
        if kind in ACTIVATIONS:
            return {"type": "activation", "inputs": read, "act_type": kind, "inplace": False}
        if kind == "identity" and _is_value(inputs[0]):
            return {"type": "identity", "inputs": read}
    fused = row.take("activation", str, None)
    what = f"{kind!r} of {len(inputs)} inputs" + ("" if fused is None else f" with activation {fused!r}")
    raise _refused(op, f"it has a {what}; known are: {_KNOWN}")


def _copied(terms: Terms) -> Terms:
    """Return terms whose values belong to one node alone, to be changed at will."""
    return [[list(value) for value in term] for term in terms]


def _is_value(terms: Terms) -> bool:
    return len(terms) == len(terms[0]) == 1


def _conv(op: Operator, row: Record) -> dict[str, Any]:
    act = row.take("activation", str, NO_ACTIVATION)
    if act not in (*ACTIVATIONS, NO_ACTIVATION):
        raise _refused(op, f"its activation is {act!r}; known are: {', '.join(ACTIVATIONS)}")
    channels = row.take("out_channels", int)
    return {"out_channels": channels, **_window(row), "groups": row.take("groups", int, 1), "act": act}


def _pool(op: Operator, row: Record) -> dict[str, Any]:
    pool = row.take("pool", str)
    if pool not in POOLS:
        raise _refused(op, f"its pool is {pool!r}; known are: {', '.join(POOLS)}")
    if row.take("ceil_mode", bool, False):
        raise _refused(op, "the size of what it pools is rounded up (ceil_mode), and IOS rounds down")
    return {"pool_type": pool, **_window(row)}


def _window(row: Record) -> dict[str, list[int]]:
    return {key: row.take(key, list) for key in ("kernel", "stride", "padding")}
