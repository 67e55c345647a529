"""Where in its row each vertex lies: long edges straight, operators above the middle of their consumers."""

from itertools import pairwise

import numpy as np

from simsched.model.graph.columns import Floats, Ints
from simsched.model.graph.ordering import grouped
from simsched.show.drawing.ordering import members
from simsched.show.drawing.rows import Layered


def pick_coordinates(graph: Layered, place: Ints, width: Floats) -> Floats:
    """Return the middle of each vertex from left to right, the leftmost end being 0, shape (n_vertices,).

    Parameters
    ----------
    graph, place
        The rows, and the position of each vertex in its row.
    width
        Of each vertex, with the room to be kept free around it, shape (n_vertices,).

    Notes
    -----
    Four layouts, each of which aligns vertices with a median neighbour above or below and pushes to the left
    or to the right, and then the mean of the middle two, as Brandes and Koepf [1]_ do; each layout is packed
    along longest paths of aligned blocks, not by their classes and shifts, which may overlap. Neighbours do not
    overlap in any of the four, and so neither in the mean. O(V + E).

    References
    ----------
    .. [1] Brandes, Koepf, "Fast and simple horizontal coordinate assignment", Graph Drawing 2001,
       doi:10.1007/3-540-45848-4_3.
    """
    rows = [row.tolist() for row in members(graph, place)]
    above, below = (
        _neighbours(graph, place, graph.lower, graph.upper),
        _neighbours(graph, place, graph.upper, graph.lower),
    )
    barred = _barred(graph, rows, above, place.tolist())
    half = (width / 2).tolist()
    found = []
    for downward in (True, False):
        for leftward in (True, False):
            walk = rows if downward else rows[::-1]
            near = above if downward else below
            if not leftward:
                walk = [row[::-1] for row in walk]
                near = [vertices[::-1] for vertices in near]
            x = np.array(_pack(walk, _align(walk, near, barred), half))
            found.append(x if leftward else -x)
    spread = [((x - width / 2).min(), (x + width / 2).max()) for x in found]
    narrowest = spread[int(np.argmin([right - left for left, right in spread]))]
    for i, (left, right) in enumerate(spread):
        found[i] += narrowest[0] - left if i % 2 == 0 else narrowest[1] - right
    middle: Floats = np.sort(np.stack(found), axis=0)[1:3].mean(axis=0)
    shifted: Floats = middle - (middle - width / 2).min()
    return shifted


def _neighbours(graph: Layered, place: Ints, near: Ints, far: Ints) -> list[list[int]]:
    """Return the neighbours of each vertex in one of the rows beside it, from left to right."""
    by_place = np.argsort(place[far], kind="stable")
    ptr, pieces = grouped(near[by_place], len(graph.row))
    bounds, others = ptr.tolist(), far[by_place][pieces].tolist()
    return [others[bounds[v] : bounds[v + 1]] for v in range(len(graph.row))]


def _barred(graph: Layered, rows: list[list[int]], above: list[list[int]], place: list[int]) -> set[tuple[int, int]]:
    """Return the pieces (upper, lower) that cross a middle piece of a long edge, which is to be straight."""
    barred: set[tuple[int, int]] = set()
    for r in range(1, len(rows)):
        left, scanned = -1, 0
        row = rows[r]
        for i, v in enumerate(row):
            inner = above[v][0] if v >= graph.n and above[v][0] >= graph.n else None
            if inner is None and i < len(row) - 1:
                continue
            right = len(rows[r - 1]) if inner is None else place[inner]
            for w in row[scanned : i + 1]:
                for u in above[w]:
                    if not left <= place[u] <= right and not (u >= graph.n and w >= graph.n):
                        barred.add((u, w))
            scanned, left = i + 1, right
    return barred


def _align(rows: list[list[int]], near: list[list[int]], barred: set[tuple[int, int]]) -> list[int]:
    """Return the first vertex of the block that each vertex is aligned with."""
    root = list(range(len(near)))
    taken = [False] * len(near)  # has a vertex aligned below it
    place = [0] * len(near)
    for row in rows:
        for i, v in enumerate(row):
            place[v] = i
    for row in rows:
        last = -1
        for v in row:
            n = len(near[v])
            for k in sorted({(n - 1) // 2, n // 2}) if n else ():
                u = near[v][k]
                free = not taken[u] and (u, v) not in barred and (v, u) not in barred
                if free and place[u] > last:
                    root[v], taken[u], last = root[u], True, place[u]
                    break
    return root


def _pack(rows: list[list[int]], root: list[int], half: list[float]) -> list[float]:
    """Return coordinates by which blocks lie as far left as those before them allow, then close to those behind."""
    n = len(root)
    behind: list[list[tuple[int, float]]] = [[] for _ in range(n)]
    missing = [0] * n
    for row in rows:
        for u, v in pairwise(row):
            behind[root[u]].append((root[v], half[u] + half[v]))
            missing[root[v]] += 1
    x = [0.0] * n
    order = [v for v in range(n) if root[v] == v and not missing[v]]
    for u in order:
        for v, distance in behind[u]:
            x[v] = max(x[v], x[u] + distance)
            missing[v] -= 1
            if not missing[v]:
                order.append(v)
    for u in reversed(order):
        if behind[u]:
            x[u] = max(x[u], min(x[v] - distance for v, distance in behind[u]))
    return [x[r] for r in root]
