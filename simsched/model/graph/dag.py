"""The columns of a graph of operators, and what stands in each of its rows."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from simsched.base.errors import GraphError
from simsched.base.numeric import freeze, frozen
from simsched.model.graph import columns as by
from simsched.model.graph.columns import COSTS, KERNELS, Floats, Indices, Ints, optional
from simsched.model.graph.names import Numbered
from simsched.model.graph.operator import DTYPE_NBYTES, INTENSITIES, Edge, Kernel, Operator
from simsched.model.graph.ordering import describe_cycle, grouped, topological_order
from simsched.model.graph.views import Rows

Labels = Mapping[str, tuple[npt.NDArray[np.int32], tuple[str | None, ...]]]
"""Of each column of texts: a code of each operator, and the codes' texts."""
Details = Mapping[int, tuple[Any, ...]]
"""Attributes, input shapes and output shape of those operators that have some."""


_CACHED = ("index", "outgoing", "incoming", "launch_ptr", "launch_op", "launch_kernel")


class Dag:
    """The operators and edges of a graph, stored by columns and checked when made: what `OpGraph` builds on."""

    flops: Floats
    nbytes: Floats
    weight_nbytes: Floats
    host: Floats
    time: Floats
    utilization: Floats

    def __init__(self, operators: Iterable[Operator], edges: Iterable[Edge] = (), name: str = "graph") -> None:
        rows, edge_rows = tuple(operators), tuple(edges)
        names = tuple(op.name for op in rows)
        index = by.index_of(names)
        classes = [-1 if op.intensity is None else INTENSITIES.index(op.intensity) for op in rows]
        columns: dict[str, npt.NDArray[Any]] = {end: by.endpoints(edge_rows, index, end) for end in ("src", "dst")}
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
        labels = {key: by.encode(getattr(op, key) for op in rows) for key in by.LABELS}
        self.__dict__.update(Dag.of(name, names, columns, labels, details).__dict__)

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
        attributes: tuple[Sequence[int], Sequence[Mapping[str, Any]]] = ((), ()),
        **costs: npt.ArrayLike,
    ) -> Self:
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
            Shape (n_edges,) or a scalar; NaN stands for "no exact transfer".
        kernels, attributes
            A code of each operator, shape (n_ops,), and the codes' kernels or attributes; by default there are none.
        **costs
            `flops`, `nbytes`, `weight_nbytes`, `time`, `utilization`, `host`: shape (n_ops,) or a scalar.
        """
        n = len(names)
        by.require_names(names)
        columns: dict[str, npt.NDArray[Any]] = {"intensity": np.broadcast_to(np.int8(-1), n)}
        columns |= by.edge_columns(names, *by.edge_ends(names, src, dst), edge_nbytes, edge_transfer)
        columns |= by.cost_columns(names, costs) | by.repeated_kernels(names, *kernels)
        zeros = np.broadcast_to(np.int32(0), n)
        labels = {"kind": by.kind_column(names, kind), "dtype": (zeros, ("fp32",)), "block": (zeros, (None,))}
        known = names if isinstance(names, Numbered) else tuple(names)
        return cls.of(name, known, columns, labels, by.shared_details(names, *attributes))

    @classmethod
    def of(
        cls,
        name: str,
        names: tuple[str, ...] | Numbered,
        columns: Mapping[str, npt.NDArray[Any]],
        labels: Labels,
        details: Details,
    ) -> Self:
        """Make a graph of columns as it stores them, whose rows are known to be right."""
        if not names:
            raise GraphError(f"graph {name!r} is empty: it needs at least one operator")
        order, cycle = topological_order(len(names), columns["src"], columns["dst"])
        if cycle:
            raise GraphError(f"the edges form a cycle: {describe_cycle([names[i] for i in cycle])}")
        codes = {f"{key}_code": column for key, (column, _) in labels.items()}
        graph = cls.__new__(cls)
        graph.__dict__.update({**columns, **codes}, name=name, names=names, order_index=order, _details=details)
        graph.__dict__["_texts"] = {key: texts for key, (_, texts) in labels.items()}
        freeze(graph.__dict__)
        if isinstance(names, tuple):
            _ = graph.index  # a name that stands twice is refused
        return graph

    # These are filled above; the annotations say what they are.
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
    edge_nbytes: Floats
    edge_transfer: Floats
    order_index: Indices
    _texts: Mapping[str, tuple[str | None, ...]]
    _details: Details

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an OpGraph cannot be changed (tried to set {name!r}); make a new one")

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _CACHED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self.__dict__)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"OpGraph({self.name!r}, {len(self)} operators, {len(self.src)} edges)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dag):
            return NotImplemented
        if self is other:
            return True
        return self.name == other.name and self.operators == other.operators and self.edges == other.edges

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, name: str) -> Operator:
        """Return the operator of a name."""
        try:
            return self.operator(self.index[name])
        except KeyError:
            raise GraphError(f"graph {self.name!r} has no operator {name!r}") from None

    @property
    def operators(self) -> Rows[Operator]:
        """The operators, in the order in which they were given."""
        return Rows(len(self.names), self.operator)

    @property
    def edges(self) -> Rows[Edge]:
        """The edges, in the order in which they were given."""
        return Rows(len(self.src), self.edge)

    def operator(self, i: int) -> Operator:
        """Return operator number `i`."""
        attributes, input_shapes, output_shape = self._details.get(i, ({}, (), None))
        kernels = range(self.kernel_ptr[i], self.kernel_ptr[i + 1])
        code = int(self.intensity[i])
        values: dict[str, Any] = {key: optional(getattr(self, key)[i]) for key in COSTS}
        values |= {key: self.label(key, i) for key in by.LABELS}
        return Operator(
            self.names[i], kernels=tuple(Kernel(*(getattr(self, key)[k].item() for key in KERNELS)) for k in kernels),
            intensity=None if code < 0 else INTENSITIES[code], attributes=attributes, input_shapes=input_shapes,
            output_shape=output_shape, **values,
        )  # fmt: skip

    def edge(self, e: int) -> Edge:
        """Return edge number `e`."""
        src, dst = self.names[self.src[e]], self.names[self.dst[e]]
        return Edge(src, dst, float(self.edge_nbytes[e]), optional(self.edge_transfer[e]))

    def label(self, column: str, i: int) -> str | None:
        """Return the `kind`, `dtype` or `block` of operator number `i`."""
        codes, texts = self.labels(column)
        text: str | None = texts[codes[i]]
        return text

    def labels(self, column: str) -> tuple[npt.NDArray[np.int32], tuple[str | None, ...]]:
        """Return the `kind`, `dtype` or `block` of all operators: a code each, shape (n_ops,), and the codes' texts."""
        return self.__dict__[f"{column}_code"], self._texts[column]

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each operator by name."""
        return by.index_of(self.names)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Operator names in topological order; among those that are ready, the first given first."""
        return tuple(self.names[i] for i in self.order_index)

    @cached_property
    def outgoing(self) -> tuple[Ints, Indices]:
        """Edges by producer: edges of operator i are ``edges[ptr[i]:ptr[i + 1]]`` of ``(ptr, edges)``."""
        return grouped(self.src, len(self))

    @cached_property
    def incoming(self) -> tuple[Ints, Indices]:
        """Edges by consumer, in argument order (see `outgoing`)."""
        return grouped(self.dst, len(self))

    @cached_property
    def launch_ptr(self) -> Ints:
        """Where the launches of each operator begin, shape (n_ops + 1,): one per kernel, at least one."""
        return frozen(np.concatenate([[0], np.cumsum(np.maximum(1, np.diff(self.kernel_ptr)))]))

    @cached_property
    def launch_op(self) -> npt.NDArray[np.int32]:
        """The operator of each launch."""
        return frozen(np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.launch_ptr)))

    @cached_property
    def launch_kernel(self) -> npt.NDArray[np.int32]:
        """Which kernel of its operator each launch is."""
        return frozen(
            np.arange(self.launch_ptr[-1], dtype=np.int32) - self.launch_ptr[:-1].astype(np.int32)[self.launch_op]
        )

    @cached_property
    def output_nbytes(self) -> Floats:
        """Bytes of each operator's output tensor, shape (n_ops,).

        From its shape where known, else the largest edge that leaves it (an edge may carry a slice).
        """
        found = np.zeros(len(self))
        np.maximum.at(found, self.src, self.edge_nbytes)
        for i, (_, _, shape) in self._details.items():
            if shape is not None:
                found[i] = np.prod(shape, dtype=np.float64) * DTYPE_NBYTES[self.label("dtype", i) or "fp32"]
        return frozen(found)

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
