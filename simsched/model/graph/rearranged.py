"""Graphs that are made of another one: with other times, with other works, or of some of its operators."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.base.numeric import frozen
from simsched.model.graph import columns as by
from simsched.model.graph.collective import Collective
from simsched.model.graph.columns import COSTS, KERNELS, LABELS, Floats, Indices, Ints
from simsched.model.graph.operator import Operator, Work
from simsched.model.graph.opgraph import OpGraph


def with_times(graph: OpGraph, times: Floats) -> OpGraph:
    """Return a graph with other times in us, shape (n_ops,), all else shared; O(V + E).

    >>> graph = OpGraph([Operator("a", time=1.0), Operator("b")])
    >>> [op.time for op in with_times(graph, np.array([3.0, 4.0])).operators]
    [3.0, 4.0]
    """
    graph_ = OpGraph.__new__(OpGraph)
    graph_.__dict__.update(graph.__dict__, time=frozen(np.array(times, np.float64)))
    return graph_


def with_blocks(graph: OpGraph, blocks: Ints) -> OpGraph:
    """Return a graph with other numbers of blocks of its kernels, shape (n_kernels,), all else shared; O(V)."""
    graph_ = OpGraph.__new__(OpGraph)
    graph_.__dict__.update({key: value for key, value in graph.__dict__.items() if key != "_launches"})
    graph_.__dict__.update(kernel_blocks=frozen(np.array(blocks, np.int64)))
    return graph_


def with_works(graph: OpGraph, change: Callable[[Work], Work]) -> OpGraph:
    """Return a graph with other works, all else shared; O(V)."""
    codes, works = graph.labels("works")
    changed = tuple(tuple(map(change, kernels)) for kernels in works)
    if changed == works:
        return graph
    graph_ = OpGraph.__new__(OpGraph)
    graph_.__dict__.update({key: value for key, value in graph.__dict__.items() if key != "_launches"})
    graph_.__dict__.update(works_code=codes, _texts={**graph._texts, "works": changed})
    return graph_


def rearrange(
    graph: OpGraph,
    rows: Sequence[int],
    src: Indices,
    dst: Indices,
    nbytes: Floats,
    transfer: Floats,
    further: Operator | None = None,
    names: tuple[str, ...] | None = None,
    collectives: Sequence[Collective | None] | None = None,
) -> OpGraph:
    """Return a graph of some operators of another one, with new edges; O(V + E).

    Parameters
    ----------
    graph, rows
        The operators, by index, in their new order.
    src, dst, nbytes, transfer
        Edges between them: positions in `rows`, bytes, exact transfer times in us or NaN; shape (n_edges,) each.
    further
        An operator that is not of the graph; in `rows` it has the number ``len(graph)``.
    names
        Names of the operators; None for their own names.
    collectives
        Collectives of the operators; None for their own collectives.

    >>> from simsched.model.graph import Edge
    >>> chain = OpGraph([Operator(n) for n in "abc"], [Edge("a", "b"), Edge("b", "c")])
    >>> none = np.array([np.nan])
    >>> rearrange(chain, [3, 2], np.array([0]), np.array([1]), np.zeros(1), none, Operator("x")).edges[0]
    Edge(src='x', dst='c', nbytes=0.0, transfer=None)
    """
    if further is None:
        tables = [graph]
    else:
        tables = [graph, OpGraph([further])]
    rows_ = np.asarray(rows, np.int64)

    def join(key: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(table, key) for table in tables])

    ptr, kernels = by.gather_rows(np.concatenate([np.diff(table.kernel_ptr) for table in tables]), rows_)
    columns = {"src": src, "dst": dst, "edge_nbytes": nbytes, "edge_transfer": transfer, "kernel_ptr": ptr}
    columns |= {key: join(key)[rows_] for key in (*COSTS, "intensity")}
    columns |= {key: join(key)[kernels] for key in KERNELS}
    texts = {key: [table.label(key, i) for table in tables for i in range(len(table))] for key in LABELS}
    labels: dict[str, Any] = {key: by.encode(column[row] for row in rows) for key, column in texts.items()}
    if collectives is not None:
        labels["collective"] = by.encode(collectives)
    details = {**graph._details, **{len(graph): row for table in tables[1:] for row in table._details.values()}}
    all_names = [*graph.names, *(table.names[0] for table in tables[1:])]
    details_of = {i: details[row] for i, row in enumerate(rows) if row in details}
    return OpGraph.of(graph.name, names or tuple(all_names[row] for row in rows), columns, labels, details_of)
