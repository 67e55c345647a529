"""Execution traces of MLCommons Chakra, in their JSON form."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from simsched.base.errors import FormatError
from simsched.base.io import Record, dump_json, parse_json, read_text, write_file
from simsched.model.graph import Edge, Operator, OpGraph
from workloads.checks import shown
from workloads.formats.reading import build, whole

_SCHEMA: Final = "0.0.4"
_TYPES: Final = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
    "COMM_RECV_NODE", "COMM_COLL_NODE", "STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE",
)  # fmt: skip
_KINDS: Final[Mapping[str, str]] = {name: name.removesuffix("_NODE").lower() for name in _TYPES}
_TYPE_OF_KIND: Final[Mapping[str, str]] = {kind: name for name, kind in _KINDS.items()}
_WHOLE: Final = tuple(
    sign + size for sign in ("int", "uint", "sint", "fixed", "sfixed") for size in ("32", "64")
)  # fmt: skip
_SLOTS: Final[Mapping[str, tuple[str, bool]]] = {
    f"{value_type}{ending}": (value_type, ending in ("List", "_list"))
    for value_type in (*_WHOLE, "double", "float", "bool", "string", "bytes")
    for ending in ("Val", "_val", "List", "_list")
}
_OURS: Final = ("num_ops", "tensor_size", "kind", "duration_us")
_LARGEST: Final = 2**63
_BEYOND: Final = 2**1023
_SPACE: Final = " \t\n\r"


def read_chakra(path: str | os.PathLike[str]) -> OpGraph:
    """Read a graph from a Chakra trace in JSON, named after the file; see `parse_chakra`."""
    return parse_chakra(read_text(path), str(path), name=Path(path).stem)


def write_chakra(graph: OpGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph as a Chakra trace in JSON, whole or not at all; see `to_chakra`."""
    write_file(path, to_chakra(graph))


def parse_chakra(text: str, source: str = "Chakra trace", *, name: str = "chakra") -> OpGraph:
    """Return the graph that a Chakra execution trace in JSON records.

    Parameters
    ----------
    text
        JSON objects one after the other, as ``chakra_jsonizer`` writes them [1]_, on a line each or
        not; or one JSON document: a list of them, or an object that has them as `nodes`.
    source
        How errors name it.
    name
        Name of the graph; a trace has none.

    Raises
    ------
    FormatError
        If it is no such trace, or a node depends on one that is not there; the message names the node.
    GraphError
        If a value is out of range or the dependencies form a cycle.

    Notes
    -----
    Fields may be named as in the schema (`data_deps`) or as protobuf's JSON names them (`dataDeps`),
    64-bit numbers may be texts, and the id left out is 0, as protobuf leaves out zeros. A first object
    without any field of a node is the trace's metadata.

    A node becomes an operator, called by its name if no two nodes have the same, else by name and id
    (``aten::mm#17``). Its kind is the node type: ``comp``, ``mem_load``, ``comm_send``, ``comm_recv``,
    ``comm_coll`` and so on; communication stays an operator that takes its recorded time, on whatever device
    it is placed. `duration_micros` is its time; if that is left out it has none. Attribute `num_ops` is
    `flops`, `tensor_size` is `nbytes`; attributes `kind` and `duration_us`, which `to_chakra` writes,
    come before the type and the whole microseconds. All other attributes, `comm_size` among them,
    are kept as `attributes`.

    Control and data dependencies both become edges, one for each pair, in the order of consumers;
    Chakra does not say how many bytes they carry. Start times, inputs and outputs are ignored. O(text).

    References
    ----------
    .. [1] MLCommons Chakra, schema/protobuf/et_def.proto and chakra_jsonizer,
       https://github.com/mlcommons/chakra

    >>> graph = parse_chakra('''{"version": "0.0.4"}
    ... {"name": "mm", "type": "COMP_NODE", "durationMicros": "12", "attr": [{"name": "num_ops", "int64Val": "64"}]}
    ... {"id": "1", "name": "all_reduce", "type": "COMM_COLL_NODE", "dataDeps": ["0"], "durationMicros": "30"}''')
    >>> graph["mm"].flops, graph["all_reduce"].kind, graph.time.tolist(), graph.edges[0].src
    (64.0, 'comm_coll', [12.0, 30.0], 'mm')
    """
    nodes = [_snake(record, source, i) for i, record in enumerate(_nodes(text, source))]
    ids: dict[int, int] = {}
    for i, node in enumerate(nodes):
        number = _unsigned(node, "id", 0)
        if number in ids:
            raise FormatError(f"{node.where}: id {number} stands twice; ids must be unique")
        ids[number] = i
    names = [node.take("name", str, "") for node in nodes]
    if len(set(names)) < len(names) or "" in names:
        names = [f"{text}#{number}" for text, number in zip(names, ids, strict=True)]
    operators = [_operator(node, called) for node, called in zip(nodes, names, strict=True)]
    edges = []
    for node, called in zip(nodes, names, strict=True):
        before = [_number(node, key, value) for key in ("data_deps", "ctrl_deps") for value in node.take(key, list, [])]
        for number in dict.fromkeys(before):
            if number not in ids:
                raise FormatError(f"{node.where}: {shown(called)} depends on node {number}, which is not in the trace")
            edges.append(Edge(names[ids[number]], called))
    return build(source, OpGraph, operators, edges, name)


def _nodes(text: str, source: str) -> list[Any]:
    """Return the objects of the nodes, the metadata left out."""
    found = _documents(text, source)
    if len(found) == 1 and isinstance(found[0], list):
        found = found[0]
    elif len(found) == 1 and isinstance(found[0], dict) and "nodes" in found[0]:
        found = Record(found[0], source).take("nodes", list)
    if found and isinstance(found[0], dict) and set(found[0]) <= {"version", "attr"}:
        found = found[1:]
    if not found:
        raise FormatError(f"{source}: no nodes; expected the JSON form of a Chakra trace")
    return found


def _documents(text: str, source: str) -> list[Any]:
    """Return the JSON documents that stand one after the other, with the checks of `parse_json`."""
    decoder = json.JSONDecoder()
    pieces: list[str] = []
    begin = at = 0
    while at < len(text):
        if text[at] in _SPACE:
            at += 1
            continue
        try:
            at = decoder.raw_decode(text, at)[1]
        except (ValueError, RecursionError):
            at = len(text)  # `parse_json` says what is wrong with it, and where
        pieces.append(text[begin:at])
        begin = at
    found: list[Any] = parse_json(f"[{','.join(pieces)}]", source)
    return found


_CAMEL: Final = {"ctrlDeps": "ctrl_deps", "dataDeps": "data_deps", "durationMicros": "duration_micros"}


def _snake(data: Any, source: str, i: int) -> Record:
    """Return a node as a record whose fields are named as in the schema."""
    if isinstance(data, dict):
        data = {_CAMEL.get(key, key): value for key, value in data.items()}
    return Record(data, f"{source}: nodes[{i}]")


def _number(record: Record, key: str, value: Any) -> int:
    """Return an unsigned number that may be a text."""
    number = whole(value) if isinstance(value, str) else value
    if type(number) is not int or not 0 <= number < 2 * _LARGEST:
        raise FormatError(f"{record.where}: field {key!r} must hold whole numbers below 2^64, not {shown(value)}")
    return number


def _unsigned(record: Record, key: str, default: Any) -> Any:
    value = record.take(key, (int, str), None)
    return default if value is None else _number(record, key, value)


def _operator(node: Record, name: str) -> Operator:
    attributes = dict(_attribute(row, node.where) for row in node.take("attr", list, []))
    kind = _KINDS[_type(node)]
    time: Any = _unsigned(node, "duration_micros", None)
    values = {}
    for key, value in attributes.items():
        if key in _OURS:
            wanted = str if key == "kind" else (int, float)
            if not isinstance(value, wanted) or isinstance(value, bool):
                what = "a text" if key == "kind" else "a number"
                raise FormatError(f"{node.where}: attribute {key!r} must be {what}, not {shown(value)}")
            values[key] = value
    return build(
        node.where,
        Operator,
        name,
        kind=values.get("kind", kind),
        flops=values.get("num_ops", 0.0),
        nbytes=values.get("tensor_size", 0.0),
        time=values.get("duration_us", time),
        attributes={key: value for key, value in attributes.items() if key not in _OURS},
    )


def _type(node: Record) -> str:
    value = node.take("type", (int, str), "INVALID_NODE")
    if isinstance(value, int) and 0 <= value < len(_TYPES):
        return _TYPES[value]
    if value not in _KINDS:
        raise FormatError(f"{node.where}: field 'type' is {shown(value)}; known are: {', '.join(_TYPES)}")
    return str(value)


def _attribute(row: Any, where: str) -> tuple[str, Any]:
    """Return the name and the value of an attribute; 64-bit numbers become numbers."""
    name = Record(row, f"{where}, attribute").take("name", str)
    slot = next((key for key in row if key in _SLOTS), None)
    if slot is None:
        return name, None
    value_type, is_list = _SLOTS[slot]
    if not is_list:
        return name, _typed(where, name, value_type, row[slot])
    values = Record(row[slot], f"{where}, attribute {shown(name)}").take("values", list, [])
    return name, [_typed(where, name, value_type, value) for value in values]


def _typed(where: str, name: str, value_type: str, value: Any) -> Any:
    if value_type in _WHOLE:
        number = whole(value.removeprefix("-")) if isinstance(value, str) else value
        if type(number) is int and -_LARGEST <= number < 2 * _LARGEST:
            return -number if isinstance(value, str) and value.startswith("-") else number
    elif isinstance(value, str | bool | float):
        return value
    elif type(value) is int and abs(value) < _BEYOND:
        return float(value) if value_type in ("double", "float") else value
    raise FormatError(f"{where}: attribute {shown(name)}: {shown(value)} is no {value_type} value")


def to_chakra(graph: OpGraph) -> str:
    """Return a graph as a Chakra trace in JSON, an object on each line, named as protobuf's JSON does.

    Notes
    -----
    Operator i is node i. A kind that is no node type makes a ``COMP_NODE`` with attribute `kind`; a
    time that is no whole number of us is rounded in `durationMicros`, and attribute `duration_us`
    has it as it is. An attribute that is neither a number, a text, a truth value nor a list of
    one of these is left out, as are those named `num_ops`, `tensor_size`, `kind` and `duration_us`.

    Chakra has no place for weights, utilization, kernels, intensity, dtype, shapes and blocks of operators,
    nor for what edges carry: all are left out, and parallel edges become one. O(V + E).

    >>> print(to_chakra(OpGraph([Operator("a", kind="comp", time=2.0)])), end="")
    {"version": "0.0.4"}
    {"id": "0", "name": "a", "type": "COMP_NODE", "durationMicros": "2"}
    """
    ptr, edges = graph.incoming
    lines = [dump_json({"version": _SCHEMA}, indent=None)]
    for i, op in enumerate(graph.operators):
        node: dict[str, Any] = {"id": str(i), "name": op.name, "type": _TYPE_OF_KIND.get(op.kind, "COMP_NODE")}
        before = dict.fromkeys(graph.src[edges[ptr[i] : ptr[i + 1]]].tolist())
        if before:
            node["dataDeps"] = [str(j) for j in before]
        if op.time is not None:
            rounded = min(round(op.time), 2 * _LARGEST - 1)
            node["durationMicros"] = str(rounded)
        attributes: dict[str, Any] = {key: value for key, value in op.attributes.items() if key not in _OURS}
        attributes |= {"num_ops": _size(op.flops)} if op.flops else {}
        attributes |= {"tensor_size": _size(op.nbytes)} if op.nbytes else {}
        attributes |= {} if op.kind in _TYPE_OF_KIND else {"kind": op.kind}
        attributes |= {} if op.time is None or rounded == op.time else {"duration_us": op.time}
        written = list(_written(attributes.items()))
        if written:
            node["attr"] = written
        lines.append(dump_json(node, indent=None))
    return "".join(lines)


def _size(value: float) -> int | float:
    return int(value) if value.is_integer() and value < _LARGEST else value


def _written(attributes: Iterable[tuple[str, Any]]) -> Iterable[dict[str, Any]]:
    for name, value in attributes:
        values = value if isinstance(value, list) else [value]
        kinds = list(dict.fromkeys(_value_type(item) for item in values))
        if len(kinds) != 1 or kinds[0] is None:
            continue
        items = [str(item) if kinds[0] == "int64" else item for item in values]
        yield {"name": name} | (
            {f"{kinds[0]}List": {"values": items}} if values is value else {f"{kinds[0]}Val": items[0]}
        )


def _value_type(value: Any) -> str | None:
    """Return the type of a value in the schema, None if it has none."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if -_LARGEST <= value < _LARGEST else None
    return "double" if isinstance(value, float) else "string" if isinstance(value, str) else None
