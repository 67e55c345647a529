"""The order of vertices within their rows: few crossings of edges."""

import numpy as np

from simsched.model.graph.columns import Ints
from simsched.model.graph.ordering import grouped
from simsched.show.drawing.rows import Layered, inversions

_SWEEPS, _PATIENCE = 24, 6
_MOST_ROWS = 20_000  # that sweeps go through, from each start
_ROUNDS, _MOST_COMPARED = 8, 1_000_000  # pairs of pieces of edges that are compared to exchange neighbours


def crossings(graph: Layered, place: Ints) -> int:
    """Return how many pairs of pieces of edges cross, `place` being the position of each vertex in its row."""
    widest = int(place.max(initial=0)) + 1
    above = graph.row[graph.upper] * widest + place[graph.upper]
    below = graph.row[graph.lower] * widest + place[graph.lower]
    return inversions(below[np.lexsort((below, above))])


def pick_order(graph: Layered) -> Ints:
    """Return the position of each vertex within its row, from 0, shape (n_vertices,).

    Notes
    -----
    Sweeps down and up that sort each row by the mean position of the neighbours in the row before [1]_,
    from two starts: depth first from the inputs, and as given. In turn with them, neighbours are exchanged where
    that saves crossings, every other time also where it costs none [2]_. Ties keep, or on every other pair of sweeps
    reverse, the order they had. The best order met is returned; how many pairs of pieces are compared is bounded.

    References
    ----------
    .. [1] Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical system
       structures", IEEE TSMC 11(2), 1981, doi:10.1109/TSMC.1981.4308636.
    .. [2] Gansner, Koutsofios, North, Vo, "A technique for drawing directed graphs", IEEE TSE
       19(3), 1993, doi:10.1109/32.221135.
    """
    first, second = (_sweep(graph, _places(graph, start)) for start in (_depth_first(graph), np.arange(len(graph.row))))
    best, fewest = first if first[1] <= second[1] else second
    if not fewest:
        return best
    budget = _MOST_COMPARED
    for start in (first[0], second[0]):
        place, waited = start, 0
        for turn in range(_ROUNDS):
            exchanged, budget = _exchange(graph, place, turn % 2 == 1, budget)
            place, count = _sweep(graph, exchanged) if budget >= 0 else (exchanged, crossings(graph, exchanged))
            waited += 1
            if count < fewest:
                best, fewest, waited = place, count, 0
            if budget < 0 or fewest == 0:
                return best
            if waited == _ROUNDS // 2:
                break
    return best


def members(graph: Layered, place: Ints) -> list[Ints]:
    """Return the vertices of each row from left to right."""
    by_row = np.lexsort((place, graph.row))
    return np.split(by_row, np.cumsum(np.bincount(graph.row))[:-1])


def _places(graph: Layered, rank: Ints) -> Ints:
    """Return positions within rows of vertices that a rank orders."""
    place = np.empty(len(rank), np.int64)
    for vertices in members(graph, rank):
        place[vertices] = np.arange(len(vertices))
    return place


def _depth_first(graph: Layered) -> Ints:
    """Return when a walk along the edges, depth first, comes to each vertex."""
    n = len(graph.row)
    ptr, pieces = grouped(graph.upper, n)
    bounds, targets = ptr.tolist(), graph.lower[pieces].tolist()
    has_upper = np.zeros(n, np.bool_)
    has_upper[graph.lower] = True
    found = np.full(n, -1, np.int64)
    when = 0
    for root in np.flatnonzero(~has_upper).tolist():
        stack = [root]
        while stack:
            u = stack.pop()
            if found[u] >= 0:
                continue
            found[u] = when
            when += 1
            stack += reversed(targets[bounds[u] : bounds[u + 1]])
    return found


def _sweep(graph: Layered, place: Ints) -> tuple[Ints, int]:
    rows = members(graph, place)
    piece_row = graph.row[graph.upper]
    by_row = np.split(np.argsort(piece_row, kind="stable"), np.cumsum(np.bincount(piece_row, minlength=len(rows)))[:-1])
    index = _places(graph, np.arange(len(place)))  # of a vertex among those of its row, whatever their order
    fixed = members(graph, np.arange(len(place)))
    place = place.copy()
    best, fewest, waited = place.copy(), crossings(graph, place), 0
    for sweep in range(min(_SWEEPS, max(2, _MOST_ROWS // len(rows)))):
        if fewest == 0 or waited == _PATIENCE:
            break
        down = sweep % 2 == 0
        for r in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            pieces = by_row[r - 1 if down else r]
            moved, still = (graph.lower, graph.upper) if down else (graph.upper, graph.lower)
            at = index[moved[pieces]]
            degree = np.bincount(at, minlength=len(fixed[r]))
            mean = np.bincount(at, place[still[pieces]], len(fixed[r])) / np.maximum(degree, 1)
            current = rows[r]
            slots = np.flatnonzero(degree[index[current]])  # who has no neighbours there stays where it is
            moving = current[slots]
            if sweep % 4 >= 2:
                moving = moving[::-1]
            current[slots] = moving[np.argsort(mean[index[moving]], kind="stable")]
            place[current] = np.arange(len(current))
        count = crossings(graph, place)
        waited += 1
        if count < fewest:
            best, fewest, waited = place.copy(), count, 0
    return best, fewest


def _exchange(graph: Layered, place: Ints, equal: bool, budget: int) -> tuple[Ints, int]:
    """Return an order in which no exchange of neighbours saves crossings, and what is left of the budget.

    With `equal`, neighbours are also exchanged where that changes nothing. The search ends where the budget does.
    """
    n = len(graph.row)
    rows: list[list[int]] = [row.tolist() for row in members(graph, place)]
    at: list[int] = place.tolist()
    sides: list[list[list[int]]] = []
    for near, far in ((graph.lower, graph.upper), (graph.upper, graph.lower)):
        ptr, pieces = grouped(near, n)
        bounds, others = ptr.tolist(), far[pieces].tolist()
        sides.append([others[bounds[v] : bounds[v + 1]] for v in range(n)])
    for _ in range(_ROUNDS):
        saved = 0
        for row in rows:
            for i in range(len(row) - 1):
                u, v = row[i], row[i + 1]
                gain = 0
                for side in sides:
                    left, right = [at[w] for w in side[u]], [at[w] for w in side[v]]
                    budget -= 2 + len(left) * len(right)
                    if left and right:
                        gain += sum((a > b) - (a < b) for a in left for b in right)
                if gain > 0 or (equal and gain == 0):
                    row[i], row[i + 1] = v, u
                    at[u], at[v] = i + 1, i
                    saved += gain
                if budget < 0:
                    break
        if not saved or budget < 0:
            break
    return np.array(at, np.int64), budget
