"""Graphs made of the columns of others, without a Python object per row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.base.numeric import frozen
from simsched.model.graph.columns import COSTS, KERNELS, LABELS, Floats, Indices, encode, gathered
from simsched.model.graph.operator import Operator
from simsched.model.graph.opgraph import OpGraph


def with_times(graph: OpGraph, times: Floats) -> OpGraph:
    """Return a graph with other times in us, shape (n_ops,), all else shared; O(V + E).

    >>> from simsched.model.graph import Operator
    >>> graph = OpGraph([Operator("a", time=1.0), Operator("b")])
    >>> [op.time for op in with_times(graph, np.array([3.0, 4.0])).operators]
    [3.0, 4.0]
    """
    made = OpGraph.__new__(OpGraph)
    made.__dict__.update(graph.__dict__, time=frozen(np.array(times, np.float64)))
    return made


def side_by_side(graph: OpGraph, times: Floats, copies: int, further: Floats) -> OpGraph:
    """Return so many copies of a graph beside each other, and behind them operators that load nothing.

    Parameters
    ----------
    graph
        Its operator i is operator ``r * n_ops + i`` of copy r, under the name ``NAME@r``.
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
    rows = [*range(len(graph))] * copies + [len(graph)] * len(further)
    behind = np.repeat(np.arange(copies) * len(graph), len(graph.src))
    src, dst, nbytes, transfer = (
        np.tile(column, copies) for column in (graph.src, graph.dst, graph.edge_nbytes, graph.edge_transfer)
    )
    names = (
        *(f"{name}@{r}" for r in range(copies) for name in graph.names),
        *(f"begin {i}" for i in range(len(further))),
    )
    made = rearranged(graph, rows, src + behind, dst + behind, nbytes, transfer, Operator("begin"), names)
    return with_times(made, np.concatenate([np.tile(times, copies), further]))


def rearranged(
    graph: OpGraph, rows: Sequence[int], src: Indices, dst: Indices, nbytes: Floats, transfer: Floats,
    further: Operator | None = None, names: tuple[str, ...] | None = None,
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
    names
        What the operators are called; None for their own names.

    >>> from simsched.model.graph import Edge
    >>> chain = OpGraph([Operator(n) for n in "abc"], [Edge("a", "b"), Edge("b", "c")])
    >>> none = np.array([np.nan])
    >>> rearranged(chain, [3, 2], np.array([0]), np.array([1]), np.zeros(1), none, Operator("x")).edges[0]
    Edge(src='x', dst='c', nbytes=0.0, transfer=None)
    """
    tables = [graph] if further is None else [graph, OpGraph([further])]
    taken = np.asarray(rows, np.int64)

    def joined(key: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(table, key) for table in tables])

    ptr, kernels = gathered(np.concatenate([np.diff(table.kernel_ptr) for table in tables]), taken)
    columns = {"src": src, "dst": dst, "edge_nbytes": nbytes, "edge_transfer": transfer, "kernel_ptr": ptr}
    columns |= {key: joined(key)[taken] for key in (*COSTS, "intensity")}
    columns |= {key: joined(key)[kernels] for key in KERNELS}
    texts = {key: [table.label(key, i) for table in tables for i in range(len(table))] for key in LABELS}
    labels = {key: encode(column[row] for row in rows) for key, column in texts.items()}
    details = {**graph._details, **{len(graph): row for table in tables[1:] for row in table._details.values()}}
    known = [*graph.names, *(table.names[0] for table in tables[1:])]
    kept = {i: details[row] for i, row in enumerate(rows) if row in details}
    return OpGraph.of(graph.name, names or tuple(known[row] for row in rows), columns, labels, kept)
