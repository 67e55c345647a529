"""`OpGraph` to and from JSON documents and networkx graphs."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from simsched.base.errors import FormatError, GraphError
from simsched.base.io import Record, document
from simsched.model.graph.operator import Edge, Kernel, Operator
from simsched.model.graph.opgraph import OpGraph

FORMAT, VERSION = "simsched.graph", 1
_KERNEL_DEFAULTS = {f.name: f.default for f in fields(Kernel)}
_OPERATOR_FIELDS = tuple(f.name for f in fields(Operator))
_EDGE_FIELDS = tuple(f.name for f in fields(Edge))


def to_dict(graph: OpGraph) -> dict[str, Any]:
    """See `OpGraph.to_dict`."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": graph.name,
        "operators": [_operator_to_dict(op) for op in graph.operators],
        "edges": [
            {"src": e.src, "dst": e.dst, "nbytes": e.nbytes} | ({} if e.transfer is None else {"transfer": e.transfer})
            for e in graph.edges
        ],
    }


def _operator_to_dict(op: Operator) -> dict[str, Any]:
    """Return the fields that are not at their defaults."""
    row: dict[str, Any] = {"name": op.name, "kind": op.kind}
    for key in ("flops", "nbytes", "weight_nbytes", "host"):
        if getattr(op, key):
            row[key] = getattr(op, key)
    for key in ("time", "utilization", "intensity", "block"):
        if getattr(op, key) is not None:
            row[key] = getattr(op, key)
    if op.dtype != "fp32":
        row["dtype"] = op.dtype
    if op.kernels:
        row["kernels"] = [_kernel_to_dict(kernel) for kernel in op.kernels]
    if op.attributes:
        row["attributes"] = dict(op.attributes)
    if op.input_shapes:
        row["input_shapes"] = [list(shape) for shape in op.input_shapes]
    if op.output_shape is not None:
        row["output_shape"] = list(op.output_shape)
    return row


def _kernel_to_dict(kernel: Kernel) -> dict[str, Any]:
    return {key: value for key, value in asdict(kernel).items() if (key, value) != ("efficiency", 1.0)}


def from_dict(data: Any, source: str) -> OpGraph:
    """See `OpGraph.from_dict`."""
    top = document(data, FORMAT, VERSION, source)
    return top.build(
        OpGraph,
        name=top.take("name", str, "graph"),
        operators=[_read_operator(row) for row in top.records("operators")],
        edges=[_read_edge(row) for row in top.records("edges", [])],
    )


def _read_operator(row: Record) -> Operator:
    shape = row.take("output_shape", list, None)
    return row.build(
        Operator,
        name=row.take("name", str),
        kind=row.take("kind", str, "op"),
        flops=row.take("flops", float, 0.0),
        nbytes=row.take("nbytes", float, 0.0),
        weight_nbytes=row.take("weight_nbytes", float, 0.0),
        time=row.take("time", float, None),
        kernels=tuple(read_kernel(kernel) for kernel in row.records("kernels", [])),
        utilization=row.take("utilization", float, None),
        intensity=row.take("intensity", str, None),
        dtype=row.take("dtype", str, "fp32"),
        attributes=row.take("attributes", dict, {}),
        input_shapes=tuple(_shape(s, row.where) for s in row.take("input_shapes", list, [])),
        output_shape=None if shape is None else _shape(shape, row.where),
        block=row.take("block", str, None),
        host=row.take("host", float, 0.0),
    )


def read_kernel(row: Record) -> Kernel:
    """Return a kernel as documents hold it."""
    values: dict[str, Any] = {"blocks": row.take("blocks", int)}
    for key in ("threads", "registers", "shared_memory"):
        values[key] = row.take(key, int, _KERNEL_DEFAULTS[key])
    return row.build(
        Kernel, share=row.take("share", float, 1.0), efficiency=row.take("efficiency", float, 1.0), **values
    )


def _read_edge(row: Record) -> Edge:
    return row.build(
        Edge,
        src=row.take("src", str),
        dst=row.take("dst", str),
        nbytes=row.take("nbytes", float, 0.0),
        transfer=row.take("transfer", float, None),
    )


def _shape(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(n) is int and n >= 1 for n in value):
        raise FormatError(f"{where}: a shape must be a list of whole numbers of at least 1, not {value!r}")
    return tuple(value)


def to_networkx(graph: OpGraph) -> Any:
    """See `OpGraph.to_networkx`."""
    import networkx as nx

    result: Any = nx.MultiDiGraph(name=graph.name)
    for op in graph.operators:
        result.add_node(op.name, **{key: getattr(op, key) for key in _OPERATOR_FIELDS if key != "name"})
    for edge in graph.edges:
        result.add_edge(edge.src, edge.dst, nbytes=edge.nbytes, transfer=edge.transfer)
    return result


def from_networkx(graph: Any, name: str | None = None) -> OpGraph:
    """See `OpGraph.from_networkx`."""
    if not graph.is_directed():
        raise GraphError("the networkx graph is not directed; operators need to know which reads from which")

    def known(values: Mapping[str, Any], names: tuple[str, ...], subject: str) -> dict[str, Any]:
        unknown = [key for key in values if key not in names]
        if unknown:
            raise GraphError(f"{subject}: unknown attribute {unknown[0]!r}; known are: {', '.join(names)}")
        return dict(values)

    operators = [
        Operator(name=str(node), **known(values, _OPERATOR_FIELDS[1:], f"node {node!r}"))
        for node, values in graph.nodes(data=True)
    ]
    edges = [
        Edge(str(u), str(v), **known(values, _EDGE_FIELDS[2:], f"edge {u} -> {v}"))
        for u, v, values in graph.edges(data=True)
    ]
    return OpGraph(operators, edges, name or str(graph.graph.get("name") or "graph"))
