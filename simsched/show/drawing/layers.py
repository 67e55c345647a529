"""Where the boxes of a layered picture lie, and the points where long edges pass between them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.errors import GraphError
from simsched.model.graph.columns import Floats, Ints

MOST_POINTS: Final = 150_000
"""Rows that all edges together may pass through."""
_POINT: Final = 12  # pixels that an edge takes where it passes through a row
_ABREAST: Final = 12  # operators without edges in a row
_ONE_WAY, _BOTH_WAYS = 4, 8  # pairs of sweeps, then sweeps; more change little


class Layers(NamedTuple):
    """Vertices 0 to n - 1 are operators, the others points of edges."""

    row: Ints
    """Row of each vertex from the top, shape (n_vertices,)."""
    x: Ints
    """Middle of each vertex in pixels; the room of the leftmost begins at 0."""
    chains: list[list[int]]
    """For each edge the vertices that it passes, a row after the other."""
    aside: list[int]
    """How far sideways the edges that leave each row lead at most, in pixels; of the last row none does."""


def lay_out(title: str, pairs: Sequence[tuple[int, int]], room: Ints, stage: Ints | None) -> Layers:
    """Return rows and places such that every edge leads downward.

    Parameters
    ----------
    title
        How an error names the graph.
    pairs
        Ends of the edges.
    room
        Width of each operator's box with the room around it, shape (n_ops,).
    stage
        Stage of each operator, where rows are to hold one stage only and no edge leads to an earlier one.

    Notes
    -----
    Rows are topological generations. Each vertex wants to lie at the mean of its neighbours above, then below, then
    both; a row takes this order, and the places nearest to what is wanted at which boxes do not touch.
    """
    row = _rows(len(room), pairs, stage)
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    if (row[ends[:, 1]] - row[ends[:, 0]]).sum() > MOST_POINTS:
        raise GraphError(f"{title}: too many long edges to be drawn: they lead through more than {MOST_POINTS:,} rows")
    rows, chains = row.tolist(), []
    for u, v in pairs:
        passed = range(rows[u] + 1, rows[v])
        chains.append([u, *range(len(rows), len(rows) + len(passed)), v])
        rows += passed
    row = np.array(rows)
    pieces = np.array([piece for chain in chains for piece in pairwise(chain)], np.int64).reshape(-1, 2)
    weight = np.array([1.0, 2.0, 8.0])[(pieces >= len(room)).sum(axis=1)]  # long edges are to be straight
    x = _places(row, np.concatenate([room, np.full(len(row) - len(room), _POINT)]), pieces, weight)
    aside = np.zeros(row.max() + 1, np.int64)
    np.maximum.at(aside, row[pieces[:, 0]], abs(x[pieces[:, 0]] - x[pieces[:, 1]]))
    return Layers(row, x, chains, aside.tolist())


def _rows(n: int, pairs: Sequence[tuple[int, int]], stage: Ints | None) -> Ints:
    import networkx as nx

    of = np.zeros(n, np.int64) if stage is None else stage.astype(np.int64)
    within = nx.DiGraph()
    within.add_nodes_from(range(n))
    within.add_edges_from((u, v) for u, v in pairs if of[u] == of[v])
    row = np.zeros(n, np.int64)
    for r, ops in enumerate(nx.topological_generations(within)):
        row[ops] = r
    alone = np.bincount(np.array(pairs, np.int64).ravel(), minlength=n) == 0
    row[alone] = np.arange(alone.sum()) // _ABREAST
    found: Ints = np.unique(of * n + row, return_inverse=True)[1].astype(np.int64)
    return found


def _places(row: Ints, room: Ints, pieces: Ints, weight: Floats) -> Ints:
    """Return the middle of each vertex, given its row, its room and the weighted pieces of edges (upper, lower)."""
    from scipy.optimize import isotonic_regression
    from scipy.sparse import coo_array, eye_array

    by_row = np.argsort(row, kind="stable")  # vertices are numbered anew, so that a row is a slice
    number = np.argsort(by_row)
    room, upper, lower = room[by_row], *number[pieces].T
    rows = [slice(*ends) for ends in pairwise(np.searchsorted(row[by_row], np.arange(row.max() + 2)).tolist())]
    above = coo_array((weight, (lower, upper)), (len(row), len(row))).tocsr()

    def means(links: Any) -> list[Any]:
        links = links + 1e-6 * eye_array(len(row))  # who has no neighbour stays
        links.data /= np.repeat(links.sum(axis=1), np.diff(links.indptr))
        return [links[each] for each in rows]

    x = np.concatenate([np.cumsum(room[each]) - (room[each].sum() + room[each]) / 2 for each in rows])
    sweeps = [means(above), means(above.T.tocsr())] * _ONE_WAY + [means(above + above.T)] * _BOTH_WAYS
    for k, mean in enumerate(sweeps):
        for r in range(len(rows)) if k % 2 == 0 else range(len(rows) - 1, -1, -1):
            old, wanted = x[rows[r]], mean[r] @ x
            if len(old) > 1:
                order = np.lexsort((old, wanted.round(3)))
                left = np.cumsum(room[rows[r]][order]) - room[rows[r]][order] / 2
                wanted[order] = left + isotonic_regression(wanted[order] - left).x
            x[rows[r]] = wanted
    placed: Ints = np.rint(x - (x - room / 2).min()).astype(np.int64)[number]
    return placed
