"""`OpGraph`: an immutable DAG of operators, stored by columns and checked when made, and properties of its shape."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Document
from simsched.base.errors import GraphError, brief_text
from simsched.base.numeric import frozen, twice
from simsched.base.views import as_html, frame_of
from simsched.model.graph import columns as by
from simsched.model.graph.collective import Collective
from simsched.model.graph.columns import COSTS, KERNELS, LABELS, Floats, Indices, Ints, optional
from simsched.model.graph.groups import Meeting, require_agreement
from simsched.model.graph.operator import DTYPE_NBYTES, INTENSITIES, Edge, Kernel, Operator, Work
from simsched.model.graph.views import Numbered, RowsView

Labels = Mapping[str, tuple[npt.NDArray[np.int32], tuple[Any, ...]]]
"""A code of each operator and the codes' values, by column of `LABELS`."""
Details = Mapping[int, tuple[Any, ...]]
"""Attributes, input shapes and output shape of those operators that have some."""


@dataclass(kw_only=True)
class _GraphFile:
    """A model as a directed acyclic graph of operators.

    Parameters
    ----------
    name
        How tables and errors call the graph.
    operators
        The vertices; their order breaks every tie.
    edges
        The tensors between them; parallel edges are allowed.
    """

    name: str = "graph"
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...] = ()


class OpGraph(by.Columnar, Document):
    """A model as a directed acyclic graph of operators.

    Parameters
    ----------
    operators
        The vertices. Their order breaks every tie in the library.
    edges
        The tensors between them; parallel edges are allowed.
    name
        How tables and errors call the graph.

    Raises
    ------
    GraphError
        If there is no operator, a name appears twice, an edge names no operator, or the edges form a cycle; the message
        names the offender.

    Notes
    -----
    Columns are read-only arrays, aligned with `operators`: `flops`, `nbytes`, `weight_nbytes`, `host`,
    `time` and `utilization` (NaN for None), `intensity` (-1 for None, else the index into
    `INTENSITIES`), and with `edges`: `src`, `dst` (operator indices), `edge_nbytes`,
    `edge_transfer` (NaN for None). Kernels of operator i are rows ``kernel_ptr[i]`` to
    ``kernel_ptr[i + 1]`` of the ``kernel_*`` columns. A column that is given as one number is stored
    as one, indices as 32 bits where that is enough. `meetings` are its collectives with their operators. Making a graph
    is O(V + E), or O(V log V + E) if the operators are not given in topological order.

    >>> graph = OpGraph([Operator("a", time=3.0), Operator("b", time=5.0)], [Edge("a", "b")])
    >>> graph.order, graph.depth, graph.width
    (('a', 'b'), 2, 1)
    """

    FORMAT = "simsched.graph"
    FILE = _GraphFile
    CACHED = ("index", "outgoing", "incoming", "_launches")

    # Filled by `of`.
    name: str
    names: tuple[str, ...] | Numbered
    src: Indices
    dst: Indices
    intensity: npt.NDArray[np.int8]
    kernel_ptr: Ints
    kernel_blocks: Ints
    kernel_threads: Ints
    kernel_registers: Ints
    kernel_shared_memory: Ints
    kernel_share: Floats
    kernel_efficiency: Floats
    kernel_chain: Floats
    edge_nbytes: Floats
    edge_transfer: Floats
    order_index: Indices
    meetings: tuple[Meeting, ...]
    _texts: Mapping[str, tuple[Any, ...]]
    _details: Details
    flops: Floats
    nbytes: Floats
    weight_nbytes: Floats
    host: Floats
    time: Floats
    utilization: Floats

    def __init__(self, operators: Iterable[Operator], edges: Iterable[Edge] = (), name: str = "graph") -> None:
        rows = tuple(operators)
        edge_rows = tuple(edges)
        for kind, objects in ((Operator, rows), (Edge, edge_rows)):
            strange = next((row for row in objects if not isinstance(row, kind)), None)
            if strange is not None:
                raise GraphError(
                    f"OpGraph takes operators, edges and then a name: {brief_text(strange)} is no {kind.__name__}"
                )
        self.__dict__["names"] = names = tuple(op.name for op in rows)
        index = self.index
        classes = [-1 if op.intensity is None else INTENSITIES.index(op.intensity) for op in rows]
        try:
            ends = {end: np.array([index[getattr(e, end)] for e in edge_rows], np.int64) for end in ("src", "dst")}
        except KeyError as unknown:
            (end,) = unknown.args
            edge = next(e for e in edge_rows if end in (e.src, e.dst))
            raise GraphError(f"edge {edge.src} -> {edge.dst} names no operator: {end!r}") from None
        columns: dict[str, npt.NDArray[Any]] = {end: by.narrow(ops, len(names)) for end, ops in ends.items()}
        columns |= {f"edge_{key}": by.column(getattr(e, key) for e in edge_rows) for key in ("nbytes", "transfer")}
        columns |= {key: by.column(getattr(op, key) for op in rows) for key in COSTS}
        columns |= {"intensity": np.array(classes, np.int8)}
        columns |= {"kernel_ptr": np.cumsum([0, *(len(op.kernels) for op in rows)], dtype=np.int64)}
        columns |= by.kernel_columns([kernel for op in rows for kernel in op.kernels])
        details = {
            i: (dict(op.attributes), op.input_shapes, op.output_shape)
            for i, op in enumerate(rows)
            if op.attributes or op.input_shapes or op.output_shape is not None
        }
        labels = {key: by.encode(getattr(op, key) for op in rows) for key in LABELS}
        self.__dict__.update(OpGraph.of(name, names, columns, labels, details).__dict__)

    @classmethod
    def from_columns(
        cls,
        names: Sequence[str],
        src: npt.ArrayLike,
        dst: npt.ArrayLike,
        *,
        name: str = "graph",
        kind: str | tuple[npt.ArrayLike, Sequence[str]] = "op",
        edge_nbytes: npt.ArrayLike = 0.0,
        edge_transfer: npt.ArrayLike = np.nan,
        kernels: tuple[npt.ArrayLike, Sequence[tuple[Kernel, ...]]] = ((), ()),
        works: tuple[npt.ArrayLike, Sequence[tuple[Work, ...]]] = (0, ((),)),
        collectives: tuple[npt.ArrayLike, Sequence[Collective | None]] = (0, (None,)),
        intensity: npt.ArrayLike = -1,
        attributes: tuple[Sequence[int], Sequence[Mapping[str, Any]]] = ((), ()),
        **costs: npt.ArrayLike,
    ) -> "OpGraph":
        """Make a graph from arrays, without a Python object per row.

        Parameters
        ----------
        names
            Operator names, shape (n_ops,); `Numbered` ones take no room.
        src, dst
            Indices of each edge's operators, shape (n_edges,).
        kind
            Kind of every operator; or a code of each, shape (n_ops,), and the codes' texts (see `labels`).
        edge_nbytes, edge_transfer
            Bytes and exact transfer time in us of each edge, shape (n_edges,) or a scalar; NaN is no exact transfer.
        kernels, works, collectives, attributes
            A code of each operator, shape (n_ops,), and the codes' kernels, works, collectives or attributes; by
            default there are none.
        intensity
            Index into `INTENSITIES` of each operator, or -1 for None; shape (n_ops,) or a scalar.
        **costs
            `flops`, `nbytes`, `weight_nbytes`, `time`, `utilization`, `host`: shape (n_ops,) or a scalar.
        """
        n = len(names)
        by.require_names(names)
        codes, texts = (0, (kind,)) if isinstance(kind, str) else kind
        if not all(isinstance(text, str) and text for text in texts):
            raise GraphError(f"a kind must be a text that is not empty: {texts!r}")
        columns: dict[str, npt.NDArray[Any]] = {"intensity": np.broadcast_to(np.asarray(intensity, np.int8), n)}
        columns |= by.edge_columns(names, src, dst, edge_nbytes, edge_transfer)
        columns |= by.cost_columns(names, costs) | by.repeated_kernels(names, *kernels)
        zeros = np.broadcast_to(np.int32(0), n)
        labels = {
            "kind": (by.codes_of("kinds", codes, names, len(texts)), tuple(texts)),
            "dtype": (zeros, ("fp32",)),
            "block": (zeros, (None,)),
            "works": (by.codes_of("works", works[0], names, len(works[1])), tuple(works[1])),
            "collective": (
                by.codes_of("collectives", collectives[0], names, len(collectives[1])),
                tuple(collectives[1]),
            ),
        }
        op_names = names if isinstance(names, Numbered) else tuple(names)
        return cls.of(name, op_names, columns, labels, by.shared_details(names, *attributes))

    @classmethod
    def of(
        cls,
        name: str,
        names: tuple[str, ...] | Numbered,
        columns: Mapping[str, npt.NDArray[Any]],
        labels: Labels,
        details: Details,
    ) -> "OpGraph":
        """Make a graph of columns in their stored form, whose rows are known to be right."""
        if not names:
            raise GraphError(f"graph {name!r} is empty: it needs at least one operator")
        graph = cls.__new__(cls)
        graph.__dict__.update({f"{key}_code": column for key, (column, _) in labels.items()}, name=name, names=names)
        graph.__dict__.update(columns, _details=details, _texts={key: texts for key, (_, texts) in labels.items()})
        if isinstance(names, tuple):
            _ = graph.index  # a duplicate name is refused
        graph.__dict__["order_index"], cycle = by.topological_order(len(names), graph.src, graph.dst)
        if cycle:
            raise GraphError(f"the edges form a cycle: {by.describe_cycle([names[i] for i in cycle])}")
        graph.__dict__["meetings"] = require_agreement(names, *labels["collective"])
        graph._freeze()
        return graph

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an OpGraph cannot be changed (tried to set {name!r}); make a new one")

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the operators, in the order in which they were given."""
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        """Return whether an operator has this name."""
        return name in self.index

    def __repr__(self) -> str:
        return f"OpGraph({self.name!r}, {len(self)} operators, {len(self.src)} edges)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OpGraph):
            return NotImplemented
        if self is other:
            return True
        return self.name == other.name and self.operators == other.operators and self.edges == other.edges

    def __getitem__(self, name: str) -> Operator:
        """Return the operator of a name."""
        return self.operator(self._position(name))

    def _position(self, name: str) -> int:
        try:
            return self.index[name]
        except KeyError:
            raise GraphError(f"graph {self.name!r} has no operator {name!r}") from None

    @property
    def operators(self) -> RowsView[Operator]:
        """The operators, in the order in which they were given."""
        return RowsView(len(self.names), self.operator)

    @property
    def edges(self) -> RowsView[Edge]:
        """The edges, in the order in which they were given."""
        return RowsView(len(self.src), self.edge)

    def operator(self, i: int) -> Operator:
        """Return operator number `i`."""
        attributes, input_shapes, output_shape = self._details.get(i, ({}, (), None))
        kernels = range(self.kernel_ptr[i], self.kernel_ptr[i + 1])
        code = int(self.intensity[i])
        values: dict[str, Any] = {key: optional(getattr(self, key)[i]) for key in COSTS}
        values |= {key: self.label(key, i) for key in LABELS}
        return Operator(
            self.names[i],
            kernels=tuple(Kernel(*(getattr(self, key)[k].item() for key in KERNELS)) for k in kernels),
            intensity=None if code < 0 else INTENSITIES[code],
            attributes=attributes,
            input_shapes=input_shapes,
            output_shape=output_shape,
            **values,
        )

    def edge(self, e: int) -> Edge:
        """Return edge number `e`."""
        src = self.names[self.src[e]]
        dst = self.names[self.dst[e]]
        return Edge(src, dst, float(self.edge_nbytes[e]), optional(self.edge_transfer[e]))

    def label(self, column: str, i: int) -> Any:
        """Return the `kind`, `dtype`, `block`, `works` or `collective` of operator number `i`."""
        codes, texts = self.labels(column)
        return texts[int(codes[i])]

    def labels(self, column: str) -> tuple[npt.NDArray[np.int32], tuple[Any, ...]]:
        """Return the `kind`, `dtype`, `block`, `works` or `collective` of all operators.

        Returns
        -------
        tuple
            A code of each operator, shape (n_ops,), and the codes' values.
        """
        return self.__dict__[f"{column}_code"], self._texts[column]

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each operator by name."""
        index = {name: i for i, name in enumerate(self.names)}
        if len(index) < len(self.names):
            raise GraphError(f"operator {twice(self.names)!r} stands twice; names must be unique")
        return index

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Operator names in topological order; of ready operators, the first given comes first."""
        return tuple(self.names[i] for i in self.order_index)

    @cached_property
    def outgoing(self) -> tuple[Ints, Indices]:
        """Edges by producer: edges of operator i are ``edges[ptr[i]:ptr[i + 1]]`` of ``(ptr, edges)``."""
        return by.edges_by_end(self.src, len(self))

    @cached_property
    def incoming(self) -> tuple[Ints, Indices]:
        """Edges by consumer, in argument order (see `outgoing`)."""
        return by.edges_by_end(self.dst, len(self))

    def predecessors(self, name: str) -> tuple[str, ...]:
        """Return the names of the operators that an operator reads from, each once, in argument order."""
        return self._neighbours(name, self.incoming, self.src)

    def successors(self, name: str) -> tuple[str, ...]:
        """Return the names of the operators that read from an operator, each once, in the order of their edges."""
        return self._neighbours(name, self.outgoing, self.dst)

    def _neighbours(self, name: str, by_end: tuple[Ints, Indices], far: Indices) -> tuple[str, ...]:
        i = self._position(name)
        ptr, edges = by_end
        return tuple(dict.fromkeys(self.names[j] for j in far[edges[ptr[i] : ptr[i + 1]]].tolist()))

    @cached_property
    def output_nbytes(self) -> Floats:
        """Bytes of each operator's output tensor, shape (n_ops,).

        From its shape where known, else the largest edge that leaves it (an edge may carry a slice).
        """
        sizes = np.zeros(len(self))
        np.maximum.at(sizes, self.src, self.edge_nbytes)
        for i, (_, _, shape) in self._details.items():
            if shape is not None:
                sizes[i] = np.prod(shape, dtype=np.float64) * DTYPE_NBYTES[self.label("dtype", i) or "fp32"]
        return frozen(sizes)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the operators that read from no other."""
        ptr, _ = self.incoming
        return tuple(self.names[i] for i in np.flatnonzero(np.diff(ptr) == 0))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the operators that no other reads from."""
        ptr, _ = self.outgoing
        return tuple(self.names[i] for i in np.flatnonzero(np.diff(ptr) == 0))

    @cached_property
    def depth(self) -> int:
        """Operators on the path that has the most of them. O(V + E)."""
        return int(longest_to(self, np.ones(len(self))).max())

    def longest_path(self, weights: npt.ArrayLike | None = None) -> tuple[float, tuple[str, ...]]:
        """Return the length in us of a longest path and the operators on it.

        Parameters
        ----------
        weights
            Time of each operator in us, shape (n_ops,); by default its `time` (every operator must then have one).

        Notes
        -----
        Edges have no weight. On ties the path whose last operators come first. O(V + E).
        """
        if weights is None and np.isnan(self.time).any():
            name = self.names[int(np.argmax(np.isnan(self.time)))]
            raise GraphError(f"operator {name!r} has no time; pass `weights`, for example from a cost model")
        weight_of = self.time if weights is None else weights
        column = by.spread(weight_of, len(self), "weight", lambda i: f"operator {self.names[i]!r}")
        length = longest_to(self, column)
        ptr, edges = self.incoming
        at = int(np.argmax(length))
        total = float(length[at])
        path = [self.names[at]]
        while ptr[at] < ptr[at + 1]:
            producers = self.src[edges[ptr[at] : ptr[at + 1]]].tolist()
            at = max(sorted(set(producers)), key=lambda i: length[i])
            path.append(self.names[at])
        return total, tuple(reversed(path))

    @cached_property
    def width(self) -> int:
        """Return the size of a largest set of operators of which none depends on another.

        By Dilworth's theorem this is the least number of chains that cover the graph, n minus a
        maximum matching of its transitive closure. The closure is not built: a matching edge
        u -> w of the closure is a unit of flow that may pass through the operators between u and w,
        so the flow network has V + E arcs (scipy's Dinic).
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import maximum_flow

        n = len(self)
        pairs = np.unique(np.stack([self.src, self.dst], axis=1), axis=0)  # (unique edges, 2)
        vertex = np.arange(n)
        left = vertex
        right = vertex + n
        source = 2 * n
        sink = 2 * n + 1
        # 32 bits, which is all that maximum_flow of older scipy takes
        rows = np.concatenate([np.full(n, source), pairs[:, 0], right, right]).astype(np.int32)
        cols = np.concatenate([left, pairs[:, 1] + n, left, np.full(n, sink)]).astype(np.int32)
        capacity = np.concatenate([np.ones(n), np.full(len(pairs), n), np.full(n, n), np.ones(n)])
        network = coo_array((capacity.astype(np.int32), (rows, cols)), shape=(2 * n + 2, 2 * n + 2)).tocsr()
        return n - int(maximum_flow(network, source, sink, method="dinic").flow_value)

    @cached_property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """Return the graph in pieces, each a tuple of names in topological order.

        Operators that carry a label are grouped by it. The others are cut after each operator that every path from an
        input to an output passes through: the dominators of a virtual exit.
        """
        n = len(self)
        place = np.empty(n, np.int64)
        place[self.order_index] = np.arange(n)
        inputs, outputs = (place[[self.index[name] for name in names]] for names in (self.inputs, self.outputs))
        # an edge that passes over an operator in a topological order passes it by: edges of the graph, and edges from
        # entries and to exits
        begins = np.bincount(np.concatenate([place[self.src], outputs]) + 1, minlength=n + 1)
        begins[0] += len(inputs)
        over = np.cumsum(begins)[:n] - np.cumsum(np.bincount(np.concatenate([place[self.dst], inputs]), minlength=n))
        # a cut operator is comparable to every other one, so any topological order has its block before it
        pieces: dict[str | int, list[str]] = {}
        piece = 0
        for i, cut in zip(self.order_index.tolist(), (over == 0).tolist(), strict=True):
            label = self.label("block", i)
            pieces.setdefault(piece if label is None else label, []).append(self.names[i])
            piece += cut
        return tuple(map(tuple, pieces.values()))

    _repr_html_ = as_html

    def to_pandas(self) -> Any:
        """Return the operators as a pandas DataFrame, a row each; without pandas MissingDependencyError is raised."""
        return frame_of(self.operators, Operator)

    def to_networkx(self) -> Any:
        """Return a `networkx.MultiDiGraph`; node and edge attributes are the fields of the rows.

        networkx keeps edges by their producer, so `from_networkx` may give them back in another order.
        """
        import networkx as nx

        result: Any = nx.MultiDiGraph(name=self.name)
        for op in self.operators:
            result.add_node(op.name, **{field.name: getattr(op, field.name) for field in fields(Operator)[1:]})
        for edge in self.edges:
            result.add_edge(edge.src, edge.dst, nbytes=edge.nbytes, transfer=edge.transfer)
        return result

    @classmethod
    def from_networkx(cls, graph: Any, name: str | None = None) -> "OpGraph":
        """Make a graph from a networkx digraph whose attributes are fields of the rows."""
        if not graph.is_directed():
            raise GraphError("the networkx graph is not directed; operators need to know which reads from which")
        operators = [
            Operator(name=str(node), **_known_attributes(values, Operator, 1, f"node {node!r}"))
            for node, values in graph.nodes(data=True)
        ]
        edges = [
            Edge(str(u), str(v), **_known_attributes(values, Edge, 2, f"edge {u} -> {v}"))
            for u, v, values in graph.edges(data=True)
        ]
        return cls(operators, edges, name or str(graph.graph.get("name") or "graph"))


def _known_attributes(values: Mapping[str, Any], row: type, skipped: int, subject: str) -> dict[str, Any]:
    """Return the attributes of a networkx node or edge, all of which but the first ones must be fields of a row."""
    names = tuple(field.name for field in fields(row))
    unknown = [key for key in values if key not in names[skipped:]]
    if unknown:
        raise GraphError(f"{subject}: unknown attribute {unknown[0]!r}; known are: {', '.join(names[skipped:])}")
    return dict(values)


def longest_to(
    graph: OpGraph, weights: npt.ArrayLike, edge_weights: npt.ArrayLike | None = None, *, backwards: bool = False
) -> Floats:
    """Return, per operator, the length of the longest path that ends with it (itself included), shape (n_ops,).

    Parameters
    ----------
    weights
        Weight of each operator, shape (n_ops,).
    edge_weights
        Weight of each edge, shape (n_edges,); None for zero.
    backwards
        Whether paths start with the operator instead, see `longest_from`.

    Notes
    -----
    O(V + E), or O(V + E log E) if the edges are not given by rising producer.
    """
    weight = np.asarray(weights, np.float64)
    place = np.empty(len(graph), graph.order_index.dtype)
    place[graph.order_index] = np.arange(len(graph))
    rows = np.argsort(place[graph.src], kind="stable")[:: -1 if backwards else 1]  # of edges, producer by producer
    if backwards:
        near = graph.dst
        far = graph.src
    else:
        near = graph.src
        far = graph.dst
    u = near[rows]
    v = far[rows]
    beside = np.zeros(len(rows)) if edge_weights is None else np.asarray(edge_weights, np.float64)[rows]
    longest = np.zeros(len(graph))  # path up to the operator, itself not included
    before = longest.data  # elements of a memoryview are Python's numbers, made one by one
    for i, j, own, us in zip(u.data, v.data, weight[u].data, beside.data, strict=True):
        through = before[i] + own + us
        if through > before[j]:
            before[j] = through
    return longest + weight


def longest_from(graph: OpGraph, weights: npt.ArrayLike, edge_weights: npt.ArrayLike | None = None) -> Floats:
    """Return, per operator, the length of the longest path that starts with it (itself included), shape (n_ops,).

    With operator times and transfer times this is the upward rank of list schedulers. See `longest_to`.
    """
    return longest_to(graph, weights, edge_weights, backwards=True)
