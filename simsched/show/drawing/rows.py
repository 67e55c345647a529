"""Rows of a layered drawing: which row each operator lies in, and the points where long edges pass through rows."""

from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.model.graph.columns import Ints
from simsched.model.graph.ordering import topological_order

_TILT = 1e-3  # of an edge: enough to decide where the lengths of edges leave a choice


class Layered(NamedTuple):
    """A graph in which every edge leads from a row to the next, as long edges have a vertex in each row they pass.

    Vertices 0 to n - 1 are operators, the others points of edges.
    """

    n: int
    row: Ints
    """Row of each vertex, shape (n_vertices,)."""
    upper: Ints
    lower: Ints
    """Ends of the pieces of edges, edge by edge from top to bottom, shape (n_pieces,)."""
    first: Ints
    """First piece of each edge, shape (n_edges + 1,)."""


class Groups(NamedTuple):
    """Vertices that are to have rows of their own: stages of a schedule, blocks of a model."""

    of: Ints
    """Group of each vertex, from 0, or -1, shape (n,)."""
    before: Ints
    """Pairs of groups of which all of the first lies above all of the second, shape (n_pairs, 2)."""


def pick_rows(n: int, src: Ints, dst: Ints, groups: Groups | None = None, stretch: float = inf) -> Ints:
    """Return a row for each vertex, from 0, such that edges lead downward and are short, shape (n,).

    Parameters
    ----------
    n
        Vertices.
    src, dst
        Ends of the edges, shape (n_edges,).
    groups
        Groups to be kept apart, where that can be.
    stretch
        How many times the rows that are needed without groups may be taken for that.

    Notes
    -----
    The sum of the rows that edges span is least [1]_; where it leaves a choice, operators lie close
    to their consumers. A linear program whose matrix is that of a network, so that it has a solution
    in whole numbers, and the simplex method finds one.

    References
    ----------
    .. [1] Gansner, Koutsofios, North, Vo, "A technique for drawing directed graphs", IEEE TSE
       19(3), 1993, doi:10.1109/32.221135.
    """
    if len(src) == 0 and groups is None:
        return np.zeros(n, np.int64)
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    span, total = np.ones(len(src), np.int64), n
    tail, head = src, dst
    highest = _highest_rows(n, src, dst, span)
    assert highest is not None, "the graph has no cycle"
    if groups is not None:  # each group has a vertex in the first of its rows and one in the last
        total, tails, heads, spans = _kept_apart(n, groups)
        tails, heads, spans = (np.concatenate(both) for both in ((src, tails), (dst, heads), (span, spans)))
        apart = _highest_rows(total, tails, heads, spans)
        if apart is not None and apart.max() <= stretch * (highest.max() + 1):
            highest, tail, head, span = apart, tails, heads, spans
        else:
            total = n
    length = np.bincount(dst, minlength=total) - np.bincount(src, minlength=total) - _TILT
    length[n:] = 0.0
    edge = np.arange(len(tail))
    matrix: Any = coo_array(
        (np.repeat([1.0, -1.0], len(edge)), (np.tile(edge, 2), np.concatenate([tail, head]))), (len(edge), total)
    )
    found = linprog(length, matrix.tocsr(), -span, bounds=(0, int(highest.max())), method="highs-ds")
    rows = highest if found.x is None else np.rint(found.x).astype(np.int64)
    if (rows[head] - rows[tail] < span).any():  # a solution that is none: never seen
        rows = highest
    return np.unique(rows[:n], return_inverse=True)[1].astype(np.int64)


def _kept_apart(n: int, groups: Groups) -> tuple[int, Ints, Ints, Ints]:
    """Return how many vertices there are with the ends of groups, and edges that keep these apart, with their spans."""
    n_groups = int(groups.of.max()) + 1
    within = np.flatnonzero(groups.of >= 0)
    begin = n + groups.of[within]
    tails = np.concatenate([begin, within, n + n_groups + groups.before[:, 0]])
    heads = np.concatenate([within, begin + n_groups, n + groups.before[:, 1]])
    return n + 2 * n_groups, tails, heads, np.repeat([0, 1], [2 * len(within), len(groups.before)])


def _highest_rows(n: int, src: Ints, dst: Ints, span: Ints) -> Ints | None:
    """Return the highest rows that edges allow which span at least so many rows; None if edges form a cycle."""
    order, cycle = topological_order(n, src, dst)
    if cycle:
        return None
    row = [0] * n
    below: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for u, v, rows in zip(src.tolist(), dst.tolist(), span.tolist(), strict=True):
        below[u].append((v, rows))
    for u in order.tolist():
        for v, rows in below[u]:
            row[v] = max(row[v], row[u] + rows)
    return np.array(row, np.int64)


def split_edges(row: Ints, src: Ints, dst: Ints) -> Layered:
    """Return the graph with a vertex for each row that an edge passes through."""
    n = len(row)
    pieces = row[dst] - row[src]
    first = np.concatenate([[0], np.cumsum(pieces)])
    n_points = int((pieces - 1).sum())
    point = n + np.arange(n_points)
    starts = np.zeros(int(first[-1]), np.bool_)
    starts[first[:-1]] = True
    ends = np.zeros(int(first[-1]), np.bool_)
    ends[first[1:] - 1] = True
    upper, lower = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
    upper[starts], lower[ends] = src, dst
    upper[~starts], lower[~ends] = point, point
    down = np.arange(len(starts)) - np.repeat(first[:-1], pieces)  # pieces of the edge before this one
    rows_of_pieces = np.repeat(row[src], pieces) + down
    return Layered(n, np.concatenate([row, rows_of_pieces[~starts]]), upper, lower, first)


def inversions(values: npt.NDArray[np.int64]) -> int:
    """Return how many pairs of values stand the wrong way round; equal ones do not.

    Notes
    -----
    Bit by bit from the highest: among values that agree in all higher bits, each zero is behind so many
    ones. O(n log(max)) in whole arrays.

    >>> inversions(np.array([2, 0, 1, 1]))
    3
    """
    count = 0
    for bit in range(int(values.max(initial=0)).bit_length() - 1, -1, -1):
        high = values >> (bit + 1)
        one = (values >> bit) & 1
        ones = np.concatenate([[0], np.cumsum(one)])
        start = np.flatnonzero(np.concatenate([[True], high[1:] != high[:-1]]))
        size = np.diff(np.concatenate([start, [len(values)]]))
        before = ones[:-1] - np.repeat(ones[start], size)
        count += int(before[one == 0].sum())
        values = values[np.argsort(values >> bit, kind="stable")]
    return count
