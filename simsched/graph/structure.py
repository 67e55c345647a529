"""What the shape of a graph says: longest paths, width, blocks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.errors import GraphError
from simsched.graph.columns import Floats, column, first_bad
from simsched.graph.opgraph import OpGraph


def longest_to(graph: OpGraph, weights: npt.ArrayLike, edge_weights: npt.ArrayLike | None = None) -> list[float]:
    """Return, per operator, the length of the longest path that ends with it (itself included).

    Parameters
    ----------
    weights
        Weight of each operator, shape (n_ops,).
    edge_weights
        Weight of each edge, shape (n_edges,); None for zero.

    Notes
    -----
    O(V + E).
    """
    return _sweep(graph, weights, edge_weights, graph.order_index.tolist(), graph.incoming, graph.src)


def longest_from(graph: OpGraph, weights: npt.ArrayLike, edge_weights: npt.ArrayLike | None = None) -> list[float]:
    """Return, per operator, the length of the longest path that starts with it (itself included).

    With operator times and transfer times this is the upward rank of list schedulers. See `longest_to`.
    """
    return _sweep(graph, weights, edge_weights, graph.order_index[::-1].tolist(), graph.outgoing, graph.dst)


def _sweep(
    graph: OpGraph,
    weights: npt.ArrayLike,
    edge_weights: npt.ArrayLike | None,
    order: list[int],
    grouped: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    far_end: npt.NDArray[np.int64],
) -> list[float]:
    ptr, edges = grouped[0].tolist(), grouped[1]
    neighbours = far_end[edges].tolist()
    extra = [0.0] * len(neighbours) if edge_weights is None else np.asarray(edge_weights, np.float64)[edges].tolist()
    weight = np.asarray(weights, np.float64).tolist()
    length = [0.0] * len(graph)
    for i in order:
        best = 0.0
        for k in range(ptr[i], ptr[i + 1]):
            through = length[neighbours[k]] + extra[k]
            if through > best:
                best = through
        length[i] = best + weight[i]
    return length


def longest_path(graph: OpGraph, weights: Mapping[str, float] | None = None) -> tuple[float, tuple[str, ...]]:
    """See `OpGraph.longest_path`."""
    column = _weights(graph, weights)
    length = longest_to(graph, column)
    ptr, edges = graph.incoming
    at = int(np.argmax(length))
    total, path = length[at], [graph.names[at]]
    while ptr[at] < ptr[at + 1]:
        producers = graph.src[edges[ptr[at] : ptr[at + 1]]].tolist()
        at = max(sorted(set(producers)), key=lambda i: length[i])
        path.append(graph.names[at])
    return total, tuple(reversed(path))


def _weights(graph: OpGraph, weights: Mapping[str, float] | None) -> Floats:
    if weights is None:
        if np.isnan(graph.time).any():
            name = graph.names[int(np.argmax(np.isnan(graph.time)))]
            raise GraphError(f"operator {name!r} has no time; pass `weights`, for example from a cost model")
        return graph.time
    missing = [name for name in graph.names if name not in weights]
    if missing:
        raise GraphError(f"weights lack operator {missing[0]!r}")
    found = column(weights[name] for name in graph.names)
    bad = first_bad(found, "cost", none_allowed=False)
    if bad is not None:
        raise GraphError(f"weight of operator {graph.names[bad[0]]!r} {bad[1]}")
    return found


def width(graph: OpGraph) -> int:
    """Return the size of a largest set of operators of which none depends on another.

    By Dilworth's theorem this is the least number of chains that cover the graph, n minus a
    maximum matching of its transitive closure. The closure is not built: a matching edge
    u -> w of the closure is a unit of flow that may pass through the operators between u and w,
    so the flow network has V + E arcs (scipy's Dinic).
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import maximum_flow

    n = len(graph)
    pairs = np.unique(np.stack([graph.src, graph.dst], axis=1), axis=0)  # (unique edges, 2)
    if len(pairs) == 0:
        return n
    vertex = np.arange(n)
    left, right, source, sink = vertex, vertex + n, 2 * n, 2 * n + 1
    rows = np.concatenate([np.full(n, source), pairs[:, 0], right, right])
    cols = np.concatenate([left, pairs[:, 1] + n, left, np.full(n, sink)])
    capacity = np.concatenate([np.ones(n), np.full(len(pairs), n), np.full(n, n), np.ones(n)])
    network = coo_array((capacity.astype(np.int32), (rows, cols)), shape=(2 * n + 2, 2 * n + 2)).tocsr()
    return n - int(maximum_flow(network, source, sink, method="dinic").flow_value)


def blocks(graph: OpGraph) -> tuple[tuple[str, ...], ...]:
    """Return the graph in pieces, each in topological order; see `OpGraph.blocks`.

    Operators that carry a label are grouped by it. The others are cut behind each operator that
    every path from an input to an output passes through: the dominators of a virtual exit.
    """
    pieces: dict[object, list[str]] = {}
    piece_of = _single_entry_pieces(graph) if any(graph.label("block", i) is None for i in range(len(graph))) else []
    for i in graph.order_index.tolist():
        label = graph.label("block", i)
        pieces.setdefault(piece_of[i] if label is None else label, []).append(graph.names[i])
    return tuple(tuple(piece) for piece in pieces.values())


def _single_entry_pieces(graph: OpGraph) -> list[int]:
    import networkx as nx

    n = len(graph)
    entry, leave = n, n + 1
    flow: Any = nx.DiGraph()
    flow.add_nodes_from([entry, *graph.order_index.tolist(), leave])
    flow.add_edges_from((entry, graph.index[name]) for name in graph.inputs)
    flow.add_edges_from(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    flow.add_edges_from((graph.index[name], leave) for name in graph.outputs)
    dominator = nx.immediate_dominators(flow, entry)
    cuts = {leave}
    at = dominator[leave]
    while at != entry:
        cuts.add(at)
        at = dominator[at]
    # a cut operator is comparable to every other one, so any topological order has its block before it
    piece, piece_of = 0, [0] * n
    for i in graph.order_index.tolist():
        piece_of[i] = piece
        piece += i in cuts
    return piece_of
