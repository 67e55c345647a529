"""Layered drawings of graphs: where boxes lie and which way edges go."""

from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import GraphError
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Floats, Ints
from simsched.show.drawing.coordinates import pick_coordinates
from simsched.show.drawing.graphviz import dot_layout, find_dot
from simsched.show.drawing.ordering import pick_order
from simsched.show.drawing.rows import Groups, Layered, pick_rows, split_edges

ENGINES: Final = ("own", "graphviz", "auto")
LARGEST: Final = 10_000
"""Operators up to which a graph is laid out."""
MOST_POINTS: Final = 150_000
"""Rows that all edges together may pass through."""

_WIDTH, _HEIGHT = 96.0, 40.0  # of a box, in pixels, unless given
_GAP, _POINT = 18.0, 10.0  # between boxes in a row; room that an edge takes where it passes through a row
_ROW_GAP, _WIDEST_ROW_GAP, _STEEPNESS = 38.0, 130.0, 0.07  # between rows; part of the way that edges go sideways
_STAGE_GAP = 16.0  # more between rows of different stages
_PIECE_GAP = 40.0  # between pieces of a graph that no edge joins
_ASPECT = 1.6  # width over height that several pieces make together
_PORT = 14.0  # between the ends of edges at a box
_STRETCH = 1.3  # rows that may be taken to keep blocks of the model apart, over those needed without


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the boxes of operators lie, and the edges between them; y grows downward.

    Parameters
    ----------
    x, y
        Middle of each operator's box in pixels, shape (n_ops,).
    width, height
        Size of each box, shape (n_ops,).
    row
        Row of each box from the top, from 0, among those that edges join with it, shape (n_ops,).
    pairs
        Producer and consumer of each edge drawn, shape (n_drawn, 2); parallel edges are drawn as one.
    routes
        For each of them a chain of cubic Bezier curves as control points (x, y), shape (1 + 3 * curves, 2), from the
        lower side of the producer's box to the upper side of the consumer's.
    size
        Width and height of the whole; everything lies between 0 and there.
    """

    x: Floats
    y: Floats
    width: Floats
    height: Floats
    row: Ints
    pairs: Ints
    routes: tuple[Floats, ...]
    size: tuple[float, float]


class _Arranged(NamedTuple):
    """A piece of a graph that is in order, and has no sizes yet."""

    ops: Ints
    pairs: Ints
    """Which of the graph's pairs, shape (n_pairs,)."""
    graph: Layered
    place: Ints


def layout(
    graph: OpGraph,
    *,
    width: npt.ArrayLike = _WIDTH,
    height: float = _HEIGHT,
    stage: npt.ArrayLike | None = None,
    engine: str = "own",
) -> Layout:
    """Lay a graph out in rows, edges leading downward.

    Parameters
    ----------
    graph
        What to lay out.
    width
        Widths of the operators' boxes in pixels, shape (n_ops,) or a scalar.
    height
        Height of every box.
    stage
        Stage of each operator, from 0, where stages are to lie below each other, shape (n_ops,); no edge may
        lead to an earlier one. Graphviz does without.
    engine
        ``"own"``; ``"graphviz"``, which needs its program ``dot``; or ``"auto"``: Graphviz where there is one.
        Only ``"own"`` gives the same picture everywhere.

    Returns
    -------
    Layout
        Boxes do not touch, and with the own engine no edge touches a box but those of its operators.

    Raises
    ------
    GraphError
        If the graph has more than 10,000 operators, if its edges pass through more than 150,000 rows in all, if
        a size or stage is none or an edge leads to an earlier stage, or if the engine is not known or fails.
    MissingDependencyError
        If `engine` is ``"graphviz"`` and there is no ``dot``.

    Notes
    -----
    Rows by a linear program, order by means of neighbours, coordinates by Brandes and Koepf: see `pick_rows`,
    `pick_order` and `pick_coordinates`. Blocks of the model of which one feeds another have rows of their own, unless
    that takes 1.3 times the rows. Pieces that no edge joins are laid out one by one and then set side by
    side in shelves, the highest first. Deterministic.

    >>> from simsched.model.graph import Edge, Operator
    >>> fork = OpGraph([Operator(name) for name in "abc"], [Edge("a", "b"), Edge("a", "c")])
    >>> found = layout(fork, width=50, height=20)
    >>> found.row.tolist(), found.x.tolist(), found.y.tolist()
    ([0, 1, 1], [59.0, 25.0, 93.0], [10.0, 69.89, 69.89])
    """
    check_size(graph)
    widths, heights = _sizes(graph, "width", width), _sizes(graph, "height", height)
    if stage is not None:
        _check_stages(graph, np.asarray(stage))
    if pick_engine(engine) == "graphviz":
        pairs = unique_pairs(graph)
        x, y, routes, size = dot_layout(graph.name, pairs, widths, heights)
        row = np.unique(y.round(1), return_inverse=True)[1].astype(np.int64)
        return Layout(x, y, widths, heights, row, pairs, routes, size)
    return Arrangement(graph, stage).place(widths, height)


def pick_engine(engine: str) -> str:
    """Return ``"own"`` or ``"graphviz"``."""
    if engine not in ENGINES:
        raise GraphError(f"unknown engine of layouts {engine!r}; known are: {', '.join(ENGINES)}")
    if engine == "auto":
        return "own" if find_dot() is None else "graphviz"
    return engine


def check_size(graph: OpGraph) -> None:
    """Refuse a graph of which nobody could read a picture, before memory is taken for it."""
    if len(graph) > LARGEST:
        raise GraphError(
            f"graph {graph.name!r} has {len(graph)} operators: pictures are drawn of up to {LARGEST}; draw a part of it"
        )


def _sizes(graph: OpGraph, what: str, given: npt.ArrayLike) -> Floats:
    """Return a size of each box."""
    found = np.asarray(given, np.float64)
    if found.shape not in ((), (len(graph),)) or not ((found >= 0) & (found < inf)).all():
        raise GraphError(
            f"graph {graph.name!r}: {what} must be a finite number of pixels of at least 0, or one for each of its "
            f"{len(graph)} operators"
        )
    return np.broadcast_to(found, len(graph))


def _check_stages(graph: OpGraph, stage: npt.NDArray[Any]) -> None:
    if stage.shape != (len(graph),) or stage.dtype.kind not in "iu" or stage.min() < 0:
        raise GraphError(f"graph {graph.name!r}: stage must be a whole number from 0 for each operator")
    late = np.flatnonzero(stage[graph.src] > stage[graph.dst])
    if len(late):
        edge = graph.edge(int(late[0]))
        raise GraphError(
            f"graph {graph.name!r}: edge {edge.src} -> {edge.dst} leads to an earlier stage; lay it out without stages"
        )


def unique_pairs(graph: OpGraph) -> Ints:
    """Return producer and consumer of each edge, parallel edges once, shape (n_pairs, 2), in order of appearance."""
    ends = np.stack([graph.src, graph.dst], axis=1).astype(np.int64)
    _, first = np.unique(ends, axis=0, return_index=True)
    return ends[np.sort(first)]


class Arrangement:
    """Rows and the order within them, which do not depend on the sizes of boxes; `place` gives those.

    Parameters
    ----------
    graph, stage
        See `layout`.
    """

    def __init__(self, graph: OpGraph, stage: npt.ArrayLike | None = None) -> None:
        self._n = len(graph)
        self._pairs = unique_pairs(graph)
        self._stage = None if stage is None else np.asarray(stage, np.int64)
        src, dst = self._pairs.T
        rows = pick_rows(self._n, src, dst, *self._groups(graph))
        if (rows[dst] - rows[src]).sum() > MOST_POINTS:
            raise GraphError(
                f"graph {graph.name!r} has too many long edges to be drawn: they pass through more than "
                f"{MOST_POINTS} rows; draw a part of it"
            )
        self._pieces: list[_Arranged] = []
        local = np.empty(self._n, np.int64)
        for ops, pairs in self._parts():
            local[ops] = np.arange(len(ops))
            row = np.unique(rows[ops], return_inverse=True)[1].astype(np.int64)
            layered = split_edges(row, *local[self._pairs[pairs]].T)
            self._pieces.append(_Arranged(ops, pairs, layered, pick_order(layered)))

    def _groups(self, graph: OpGraph) -> tuple[Groups | None, float]:
        """Return what is to have rows of its own, and how many times the rows that may take: stages, or blocks."""
        if self._stage is not None:
            chain = np.arange(int(self._stage.max()))
            return Groups(self._stage, np.stack([chain, chain + 1], axis=1)), inf
        codes, labels = graph.labels("block")
        number = np.array([-1 if label is None else i for i, label in enumerate(labels)])
        block = number[codes]
        ends = block[self._pairs]
        before = np.unique(ends[(ends[:, 0] != ends[:, 1]) & (ends >= 0).all(axis=1)], axis=0)
        return (Groups(block, before) if len(before) else None), _STRETCH

    def _parts(self) -> list[tuple[Ints, Ints]]:
        """Return operators and pairs of each connected piece; with stages, which all share, there is one."""
        everything = np.arange(self._n), np.arange(len(self._pairs))
        if self._stage is not None:
            return [everything]
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        ones = np.ones(len(self._pairs))
        count, label = connected_components(coo_array((ones, tuple(self._pairs.T)), (self._n, self._n)), directed=False)
        if count == 1:
            return [everything]
        split = []
        for labels in (label, label[self._pairs[:, 0]]):
            by_label = np.argsort(labels, kind="stable")
            split.append(np.split(by_label, np.cumsum(np.bincount(labels, minlength=count))[:-1]))
        return list(zip(*split, strict=True))

    def place(self, width: Floats, height: float) -> Layout:
        """Return the layout for boxes of these widths, shape (n_ops,), and this height."""
        x, y, row = np.empty(self._n), np.empty(self._n), np.empty(self._n, np.int64)
        routes: dict[int, Floats] = {}
        drawn = [self._piece(piece, width[piece.ops], height) for piece in self._pieces]
        corners, size = _shelves([each.size for each in drawn])
        for piece, each, (left, top) in zip(self._pieces, drawn, corners, strict=True):
            x[piece.ops], y[piece.ops], row[piece.ops] = each.x + left, each.y + top, each.row
            for pair, route in zip(piece.pairs.tolist(), each.routes, strict=True):
                routes[pair] = route + np.array([left, top])
        in_order = tuple(routes[pair] for pair in range(len(self._pairs)))
        return Layout(x, y, width, np.full(self._n, float(height)), row, self._pairs, in_order, size)

    def _piece(self, piece: _Arranged, width: Floats, height: float) -> Layout:
        graph, n = piece.graph, len(piece.ops)
        widths = np.concatenate([width, np.zeros(len(graph.row) - n)])
        x = pick_coordinates(graph, piece.place, np.concatenate([width + _GAP, np.full(len(graph.row) - n, _POINT)]))
        x -= (x - widths / 2).min()
        ends = _ports(graph, x, widths)
        n_rows = int(graph.row.max()) + 1
        gap = np.full(n_rows, _ROW_GAP)  # below each row
        np.maximum.at(gap, graph.row[graph.upper], _ROW_GAP + _STEEPNESS * np.abs(ends[:, 1] - ends[:, 0]))
        gap = np.minimum(gap, _WIDEST_ROW_GAP)
        if self._stage is not None:
            of_row = np.zeros(n_rows, np.int64)
            of_row[graph.row[:n]] = self._stage[piece.ops]
            gap[:-1] += np.where(np.diff(of_row) > 0, _STAGE_GAP, 0.0)
        top = np.concatenate([[0.0], np.cumsum(height + gap)[:-1]])
        routes = tuple(
            _route(ends[a:b], top[graph.row[graph.upper[a:b]]], top[graph.row[graph.lower[a:b]]], height)
            for a, b in zip(graph.first.tolist(), graph.first[1:].tolist(), strict=False)
        )
        row = graph.row[:n]
        size = float((x + widths / 2).max()), float(top[-1] + height)
        return Layout(x[:n], top[row] + height / 2, width, np.full(n, height), row, piece.pairs, routes, size)


def _ports(graph: Layered, x: Floats, width: Floats) -> Floats:
    """Return x of both ends of each piece of an edge, shape (n_pieces, 2): side by side at boxes, in order."""
    ends = np.stack([x[graph.upper], x[graph.lower]], axis=1)
    for side, (near, far) in enumerate(((graph.upper, graph.lower), (graph.lower, graph.upper))):
        order = np.lexsort((x[far], near))
        count = np.bincount(near, minlength=len(x))
        start = np.cumsum(count) - count
        turn = np.arange(len(order)) - start[near[order]]  # of a piece among those of its box, from the left
        degree = count[near[order]]
        step = np.minimum(_PORT, 0.7 * width[near[order]] / degree)
        ends[order, side] += (turn - (degree - 1) / 2) * step
    return ends


def _route(ends: Floats, above: Floats, below: Floats, height: float) -> Floats:
    """Return the curves of an edge, given x of the ends of its pieces, and the tops of the rows these join."""
    points = [(ends[0, 0], above[0] + height)]
    for i, ((x0, x1), top, bottom) in enumerate(zip(ends.tolist(), above.tolist(), below.tolist(), strict=True)):
        if i:  # straight down through a row
            points += [(x0, top), (x0, top + height), (x0, top + height)]
        middle = (top + height + bottom) / 2
        points += [(x0, middle), (x1, middle), (x1, bottom)]
    return np.array(points)


def _shelves(sizes: list[tuple[float, float]]) -> tuple[list[tuple[float, float]], tuple[float, float]]:
    """Return the left upper corners of rectangles set side by side in shelves, and the size of the whole."""
    area = sum((width + _PIECE_GAP) * (height + _PIECE_GAP) for width, height in sizes)
    limit = max(max(width for width, _ in sizes), (_ASPECT * area) ** 0.5)
    corners = [(0.0, 0.0)] * len(sizes)
    left = top = right = bottom = 0.0
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i][1]):
        width, height = sizes[i]
        if left and left + width > limit:
            left, top = 0.0, bottom + _PIECE_GAP
        corners[i] = (left, top)
        right, bottom = max(right, left + width), max(bottom, top + height)
        left += width + _PIECE_GAP
    return corners, (right, bottom)
