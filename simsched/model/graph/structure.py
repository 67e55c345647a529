"""What the shape of a graph says: longest paths, width, blocks."""

import numpy as np
import numpy.typing as npt

from simsched.base.errors import GraphError
from simsched.model.graph.columns import Floats, spread
from simsched.model.graph.dag import Dag


def longest_to(
    graph: Dag, weights: npt.ArrayLike, edge_weights: npt.ArrayLike | None = None, *, backwards: bool = False
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
    near, far = (graph.dst, graph.src) if backwards else (graph.src, graph.dst)
    u, v = near[rows], far[rows]
    beside = np.zeros(len(rows)) if edge_weights is None else np.asarray(edge_weights, np.float64)[rows]
    longest = np.zeros(len(graph))  # path up to the operator, itself not included
    before = longest.data  # elements of a memoryview are Python's numbers, made one by one
    for i, j, own, us in zip(u.data, v.data, weight[u].data, beside.data, strict=True):
        through = before[i] + own + us
        if through > before[j]:
            before[j] = through
    return longest + weight


def longest_from(graph: Dag, weights: npt.ArrayLike, edge_weights: npt.ArrayLike | None = None) -> Floats:
    """Return, per operator, the length of the longest path that starts with it (itself included), shape (n_ops,).

    With operator times and transfer times this is the upward rank of list schedulers. See `longest_to`.
    """
    return longest_to(graph, weights, edge_weights, backwards=True)


def longest_path(graph: Dag, weights: npt.ArrayLike | None = None) -> tuple[float, tuple[str, ...]]:
    """Return the length in us of a longest path and the operators on it.

    Parameters
    ----------
    weights
        Time of each operator in us, shape (n_ops,); by default its `time` (every operator must then have one).

    Notes
    -----
    Edges weigh nothing. Among equal paths the one whose last operators come first. O(V + E).
    """
    if weights is None and np.isnan(graph.time).any():
        name = graph.names[int(np.argmax(np.isnan(graph.time)))]
        raise GraphError(f"operator {name!r} has no time; pass `weights`, for example from a cost model")
    given = graph.time if weights is None else weights
    column = spread(given, len(graph), "weight", lambda i: f"operator {graph.names[i]!r}")
    length = longest_to(graph, column)
    ptr, edges = graph.incoming
    at = int(np.argmax(length))
    total, path = float(length[at]), [graph.names[at]]
    while ptr[at] < ptr[at + 1]:
        producers = graph.src[edges[ptr[at] : ptr[at + 1]]].tolist()
        at = max(sorted(set(producers)), key=lambda i: length[i])
        path.append(graph.names[at])
    return total, tuple(reversed(path))


def width(graph: Dag) -> int:
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
    vertex = np.arange(n)
    left, right, source, sink = vertex, vertex + n, 2 * n, 2 * n + 1
    rows = np.concatenate([np.full(n, source), pairs[:, 0], right, right])
    cols = np.concatenate([left, pairs[:, 1] + n, left, np.full(n, sink)])
    capacity = np.concatenate([np.ones(n), np.full(len(pairs), n), np.full(n, n), np.ones(n)])
    network = coo_array((capacity.astype(np.int32), (rows, cols)), shape=(2 * n + 2, 2 * n + 2)).tocsr()
    return n - int(maximum_flow(network, source, sink, method="dinic").flow_value)


def blocks(graph: Dag) -> tuple[tuple[str, ...], ...]:
    """Return the graph in pieces, each a tuple of names in topological order.

    Operators that carry a label are grouped by it. The others are cut behind each operator that
    every path from an input to an output passes through: the dominators of a virtual exit.
    """
    pieces: dict[object, list[str]] = {}
    piece_of = _single_entry_pieces(graph) if any(graph.label("block", i) is None for i in range(len(graph))) else []
    for i in graph.order_index.tolist():
        label = graph.label("block", i)
        pieces.setdefault(piece_of[i] if label is None else label, []).append(graph.names[i])
    return tuple(tuple(piece) for piece in pieces.values())


def _single_entry_pieces(graph: Dag) -> list[int]:
    n = len(graph)
    place = np.empty(n, np.int64)
    place[graph.order_index] = np.arange(n)
    inputs, outputs = (place[[graph.index[name] for name in names]] for names in (graph.inputs, graph.outputs))
    # what leads over an operator in a topological order leads past it: edges, and those from an entry and to an exit
    begins = np.bincount(np.concatenate([place[graph.src], outputs]) + 1, minlength=n + 1)
    begins[0] += len(inputs)
    over = np.cumsum(begins)[:n] - np.cumsum(np.bincount(np.concatenate([place[graph.dst], inputs]), minlength=n))
    cut = (over == 0).tolist()
    # a cut operator is comparable to every other one, so any topological order has its block before it
    piece, piece_of = 0, [0] * n
    for i, last in zip(graph.order_index.tolist(), cut, strict=True):
        piece_of[i] = piece
        piece += last
    return piece_of
