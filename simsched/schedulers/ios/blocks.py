"""What IOS optimises on its own: blocks of the graph, and pieces of blocks that are too large."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Indices
from simsched.model.graph.ordering import topological_order

BLOCKS: Final = ("labels", "dominators", "none")


def blocks_of(graph: OpGraph, blocks: str) -> list[list[int]]:
    """Return the operators of each block, in topological order; no block reads from a later one.

    Labels that read from each other in a circle are one block.
    """
    if blocks == "none":
        return [graph.order_index.tolist()]
    bare = graph if blocks == "labels" else OpGraph.from_columns(graph.names, graph.src, graph.dst)
    pieces = [[graph.index[name] for name in piece] for piece in bare.blocks]
    return _in_order(graph, pieces)


def _in_order(graph: OpGraph, pieces: Sequence[Sequence[int]]) -> list[list[int]]:
    piece_of = np.empty(len(graph), np.int64)
    for k, piece in enumerate(pieces):
        piece_of[list(piece)] = k
    ends = piece_of[graph.src], piece_of[graph.dst]
    circle_of = _circles(len(pieces), *ends)
    found: dict[int, list[int]] = {}  # circles in the order of their first operators
    for i in graph.order_index.tolist():
        found.setdefault(int(circle_of[piece_of[i]]), []).append(i)
    number = np.empty(len(found), np.int64)
    number[list(found)] = np.arange(len(found))
    src, dst = (number[circle_of[end]] for end in ends)
    order, _ = topological_order(len(found), src[src != dst], dst[src != dst])
    blocks = list(found.values())
    return [blocks[k] for k in order.tolist()]


def _circles(n: int, src: Indices, dst: Indices) -> Indices:
    """Return equal numbers for vertices that lie on a circle of edges, shape (n,)."""
    if not topological_order(n, src[src != dst], dst[src != dst])[1]:
        return np.arange(n)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    between = coo_array((np.ones(len(src), np.int8), (src, dst)), shape=(n, n))
    circle_of: Indices = connected_components(between, connection="strong")[1]
    return circle_of


def cut(ops: Sequence[int], pieces: int) -> Iterator[Sequence[int]]:
    """Yield so many pieces of some operators, of nearly the same length, one after the other."""
    bounds = [len(ops) * k // pieces for k in range(pieces + 1)]
    for k in range(pieces):
        yield ops[bounds[k] : bounds[k + 1]]


def readers_within(graph: OpGraph, ops: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return who reads from each operator of a piece, rising, without edges that follow from others.

    Operators are numbered by their places in `ops`, which is in topological order.
    """
    place = {i: k for k, i in enumerate(ops)}
    ptr, edges = graph.outgoing
    below = [0] * len(ops)  # bit masks of all that depends on an operator
    found: list[tuple[int, ...]] = [()] * len(ops)
    for k in reversed(range(len(ops))):
        i = ops[k]
        reading = {place[j] for j in graph.dst[edges[ptr[i] : ptr[i + 1]]].tolist() if j in place}
        kept = []
        for u in sorted(reading):  # whoever stands between reads before
            if not below[k] >> u & 1:
                kept.append(u)
            below[k] |= 1 << u | below[u]
        found[k] = tuple(kept)
    return tuple(found)
