"""Graphs made of the columns of others, without a Python object per row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.model.graph.columns import COSTS, Floats, Indices, encode, index_of
from simsched.model.graph.operator import Operator
from simsched.model.graph.opgraph import OpGraph

_LABELS = ("kind", "dtype", "block")
_KERNELS = ("blocks", "threads", "registers", "shared_memory", "share", "efficiency")


def with_times(graph: OpGraph, times: Floats) -> OpGraph:
    """Return a graph with other times in us, shape (n_ops,), all else shared; O(V + E).

    >>> from simsched.model.graph import Operator
    >>> graph = OpGraph([Operator("a", time=1.0), Operator("b")])
    >>> [op.time for op in with_times(graph, np.array([3.0, 4.0])).operators]
    [3.0, 4.0]
    """
    made = OpGraph.__new__(OpGraph)
    made._fill(
        name=graph.name,
        names=graph.names,
        src=graph.src,
        dst=graph.dst,
        costs={key: getattr(graph, key) for key in COSTS} | {"time": np.array(times, np.float64)},
        intensity=graph.intensity,
        labels={key: graph.labels(key) for key in _LABELS},
        details=graph._details,
        kernel_ptr=graph.kernel_ptr,
        kernels={key: getattr(graph, f"kernel_{key}") for key in _KERNELS},
        edge_nbytes=graph.edge_nbytes,
        edge_transfer=graph.edge_transfer,
    )
    made.__dict__["index"] = graph.index
    return made


def side_by_side(graph: OpGraph, times: Floats, copies: int, further: Floats) -> OpGraph:
    """Return so many copies of a graph beside each other, and behind them operators that load nothing.

    Parameters
    ----------
    graph
        Its operator i is operator ``r * n_ops + i`` of copy r, under the name ``NAME@r``; shapes and attributes go.
    times
        Time of each operator in us, shape (n_ops,).
    copies
        How many there are.
    further
        Times in us of the operators behind them, ``begin 0, ...``.

    >>> from simsched.model.graph import Operator
    >>> side_by_side(OpGraph([Operator("a")]), np.array([3.0]), 2, np.array([1.0])).names
    ('a@0', 'a@1', 'begin 0')
    """
    names = tuple(f"{name}@{r}" for r in range(copies) for name in graph.names)
    n, none = len(further), np.full(len(further), np.nan)
    behind = np.repeat(np.arange(copies) * len(graph), len(graph.src))

    def column(values: npt.NDArray[Any], last: float) -> npt.NDArray[Any]:
        return np.concatenate([np.tile(values, copies), np.full(n, last, values.dtype)])

    kernels = np.concatenate([np.tile(np.diff(graph.kernel_ptr), copies), np.zeros(n, np.int64)])
    labels = {}
    for key in _LABELS:
        codes, texts = graph.labels(key)
        labels[key] = (column(codes, 0), texts)
    made = OpGraph.__new__(OpGraph)
    made._fill(
        name=f"{copies} x {graph.name}",
        names=(*names, *(f"begin {i}" for i in range(n))),
        src=np.tile(graph.src, copies) + behind,
        dst=np.tile(graph.dst, copies) + behind,
        costs={key: column(getattr(graph, key), 0.0) for key in ("flops", "nbytes", "weight_nbytes", "host")}
        | {"time": np.concatenate([np.tile(times, copies), further])}
        | {"utilization": np.concatenate([np.tile(graph.utilization, copies), none])},
        intensity=column(graph.intensity, -1),
        labels=labels,
        details={},
        kernel_ptr=np.concatenate([[0], np.cumsum(kernels)]),
        kernels={key: np.tile(getattr(graph, f"kernel_{key}"), copies) for key in _KERNELS},
        edge_nbytes=np.tile(graph.edge_nbytes, copies),
        edge_transfer=np.tile(graph.edge_transfer, copies),
    )
    made.__dict__["index"] = {name: i for i, name in enumerate(made.names)}
    return made


def rearranged(
    graph: OpGraph, rows: Sequence[int], src: Indices, dst: Indices, nbytes: Floats, transfer: Floats,
    further: Operator | None = None,
) -> OpGraph:  # fmt: skip
    """Return a graph of some operators of another one, with edges of its own; O(V + E).

    Parameters
    ----------
    graph, rows
        The operators, by index, in their new order.
    src, dst, nbytes, transfer
        Edges between them: positions in `rows`, bytes, exact transfer times in us or NaN; shape (n_edges,) each.
    further
        An operator that is not of the graph; in `rows` it has the number ``len(graph)``.

    >>> from simsched.model.graph import Edge
    >>> chain = OpGraph([Operator(n) for n in "abc"], [Edge("a", "b"), Edge("b", "c")])
    >>> none = np.array([np.nan])
    >>> rearranged(chain, [3, 2], np.array([0]), np.array([1]), np.zeros(1), none, Operator("x")).edges[0]
    Edge(src='x', dst='c', nbytes=0.0, transfer=None)
    """
    tables = [graph] if further is None else [graph, OpGraph([further])]
    taken = np.asarray(rows, np.int64)
    sizes = np.concatenate([np.diff(table.kernel_ptr) for table in tables])
    starts, wanted = np.cumsum(sizes) - sizes, sizes[taken]
    ptr = np.concatenate([[0], np.cumsum(wanted)])
    kernels = np.repeat(starts[taken] - ptr[:-1], wanted) + np.arange(ptr[-1])
    texts = {key: [table.label(key, i) for table in tables for i in range(len(table))] for key in _LABELS}
    details = graph._details | {len(graph): row for table in tables[1:] for row in table._details.values()}
    names = [*graph.names, *(table.names[0] for table in tables[1:])]

    def joined(key: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(table, key) for table in tables])

    made = OpGraph.__new__(OpGraph)
    made._fill(
        name=graph.name,
        names=tuple(names[row] for row in rows),
        src=src,
        dst=dst,
        costs={key: joined(key)[taken] for key in COSTS},
        intensity=joined("intensity")[taken],
        labels={key: encode(column[row] for row in rows) for key, column in texts.items()},
        details={i: details[row] for i, row in enumerate(rows) if row in details},
        kernel_ptr=ptr,
        kernels={key: joined(f"kernel_{key}")[kernels] for key in _KERNELS},
        edge_nbytes=nbytes,
        edge_transfer=transfer,
    )
    made.__dict__["index"] = index_of(made.names)
    return made
