"""Pictures of graphs and schedules: SVG without script, style sheet or identifier, and DOT for Graphviz."""

import os
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from simsched.base.errors import GraphError
from simsched.base.io import write_file
from simsched.base.units import format_time
from simsched.model import Ints, Operator, OpGraph, Schedule
from simsched.show.chart import PALETTE, ink, kind_colours, tint_colour
from simsched.show.markup import pieces, printable

__all__ = ["to_dot", "to_svg"]

LARGEST: Final = 10_000
"""Operators up to which a graph is drawn."""
_LISTED: Final = 12  # streams in the legend
MOST_POINTS: Final = 150_000
"""Rows that all edges together may pass through."""
_POINT: Final = 12  # pixels that an edge takes where it passes through a row
_ABREAST: Final = 12  # operators without edges in a row
# pairs of sweeps, then sweeps; more change little
_ONE_WAY = 4
_BOTH_WAYS = 8
_piece: Final = pieces("drawing.svg")
# pixels: around everything, beside bands, least for the title
_MARGIN = 24
_BAND_LABEL = 64
_HEADING = 600
# sizes of letters
_NAME = 12
_DETAIL = 10
# of boxes
_HEIGHT = 40
_NARROWEST = 56
_WIDEST = 220
_PADDING = 8
_GAP = 18
_ROW: Final = 84  # from the top of a row to the next row's
_NARROW: Final = 0.37  # width of a narrow character by its height
_BAND_FILLS: Final = ("#eef2f7", "#dfe6ef")


class Box(NamedTuple):
    """Text on an operator."""

    name: str
    detail: str
    """Kind, and output shape or time, or where it runs."""
    fill: str


class Picture(NamedTuple):
    """Boxes and bands of a graph or schedule."""

    title: str
    subtitle: str
    boxes: list[Box]
    edges: list[tuple[int, int]]
    """Parallel ones once."""
    legend: list[tuple[str, str]]
    """Fill and meaning."""
    stage: Ints | None = None
    """Of each operator, shape (n_ops,), if stages follow each other; then they are drawn as bands."""


def to_svg(shown: OpGraph | Schedule, path: str | os.PathLike[str] | None = None) -> str:
    """Draw a graph, or a schedule over its graph, as SVG: by layers, edges leading downward.

    Parameters
    ----------
    shown
        A graph is coloured by kinds of operators, a schedule by device and stream. Its stages are bands, or numbers
        in the boxes where an edge leads to a stage of lower number, as it may between devices.
    path
        Where to write the picture, whole or not at all.

    Returns
    -------
    str
        The picture. Names that are too long for their boxes are in tooltips.

    Raises
    ------
    GraphError
        If the graph has more than 10,000 operators, or its edges pass through more than 150,000 rows in all.
    FileError
        If the file cannot be written.

    >>> from simsched.model.graph import Operator
    >>> to_svg(OpGraph([Operator("a", "conv", time=3.0)])).count("<rect")  # paper, box and legend
    3
    """
    return _write(_svg(describe(shown)), path)


def to_dot(shown: OpGraph | Schedule, path: str | os.PathLike[str] | None = None) -> str:
    """Write a graph, or a schedule over its graph, as DOT.

    Parameters
    ----------
    shown
        The graph or schedule to draw; see `simsched.show.drawing.to_svg`. Bands of stages there are clusters here.
    path
        Where to write it, whole or not at all.

    Returns
    -------
    str
        The text, for example for ``dot -Tsvg``. Operator i is node ``n<i>``.

    Raises
    ------
    GraphError
        If the graph has more than 10,000 operators.
    FileError
        If the file cannot be written.

    >>> from simsched.model.graph import Edge, Operator
    >>> graph = OpGraph([Operator("a"), Operator("b")], [Edge("a", "b", nbytes=8)])
    >>> print(to_dot(graph).splitlines()[-2])
      n0 -> n1;
    """
    return _write("".join(_dot(describe(shown))), path)


def _write(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        write_file(path, text)
    return text


def _svg(picture: Picture) -> str:
    wanted = [max(text_width(box.name, _NAME), text_width(box.detail, _DETAIL)) for box in picture.boxes]
    half = np.ceil(np.clip(np.array(wanted) / 2 + _PADDING, _NARROWEST / 2, _WIDEST / 2)).astype(np.int64)
    row, x, routes = lay_out(picture.title, picture.edges, 2 * half + _GAP, picture.stage)
    left = _MARGIN + (0 if picture.stage is None else _BAND_LABEL)
    drawn = int(x.max() + half.max())
    right = max(left + drawn, _MARGIN + _HEADING)
    meanings = []
    at = float(_MARGIN)
    last = 82
    for fill, meaning in picture.legend:  # side by side, on as many lines as that takes
        text = shorten(printable(meaning), 11, 200)
        width_ = 30 + text_width(text, 11)
        if at > _MARGIN and at + width_ > right:
            at = _MARGIN
            last = last + 18
        meanings.append(
            f'<rect x="{at:.1f}" y="{last - 10}" width="14" height="12" fill="{fill}"/>'
            f'<text x="{at + 19:.1f}" y="{last}">{escape(text)}</text>'
        )
        at += width_
    top = last + 32
    full = right + _MARGIN
    room = right - _MARGIN
    if picture.stage is None:
        bands = ""
    else:
        bands = "".join(_bands(picture.stage, _ROW * row, full - 24))
    return (
        _piece(
            "picture",
            width=full,
            height=top + _ROW * int(row.max()) + _HEIGHT + _MARGIN,
            label=f"{picture.title}: {picture.subtitle}",
            margin=_MARGIN,
            title=shorten(picture.title, 17, room),
            subtitle=shorten(picture.subtitle, 12, room),
            legend_="".join(meanings),
            top=top,
            left=(left + right - drawn) // 2,
            bands_=bands,
            edges_="".join(_edges(routes, x.tolist(), (_ROW * row).tolist(), len(half))),
            boxes_="".join(_boxes(picture.boxes, x.tolist(), half.tolist(), (_ROW * row).tolist())),
        )
        + "\n"
    )


def _bands(stage: Ints, y: Ints, width: int) -> Iterator[str]:
    for i, k in enumerate(np.unique(stage).tolist()):
        here = y[: len(stage)][stage == k]
        above = here.min() - 16
        below = here.max() + _HEIGHT + 16
        yield (
            _piece(
                "band",
                above=above,
                width=width,
                height=below - above,
                fill=_BAND_FILLS[i % 2],
                margin=_MARGIN,
                middle=(above + below) // 2 + 4,
                name=f"stage {k}",
            )
            + "\n"
        )


def _boxes(boxes: Sequence[Box], x: list[int], half: list[int], y: list[int]) -> Iterator[str]:
    for box, middle, side, top in zip(boxes, x, half, y, strict=False):
        name, detail = (
            shorten(text, size, 2 * (side - _PADDING)) for text, size in ((box.name, _NAME), (box.detail, _DETAIL))
        )
        yield (
            _piece(
                "box",
                tooltip=f"{box.name}\n{box.detail}",
                left=middle - side,
                top=top,
                width=2 * side,
                height=_HEIGHT,
                fill=box.fill,
                ink=ink(box.fill),
                x=middle,
                first=top + 17,
                large=_NAME,
                name=name,
                second=top + 31,
                small=_DETAIL,
                detail=detail,
            )
            + "\n"
        )


def _edges(routes: list[list[int]], x: list[int], y: list[int], n_boxes: int) -> Iterator[str]:
    for route in routes:
        path = f"M{x[route[0]]} {y[route[0]] + _HEIGHT}"
        for u, v in pairwise(route):
            bend = (y[u] + _HEIGHT + y[v]) // 2
            path += f"C{x[u]} {bend} {x[v]} {bend} {x[v]} {y[v]}" + (f"V{y[v] + _HEIGHT}" if v >= n_boxes else "")
        yield _piece("edge", path=path, x=x[route[-1]] - 3, y=y[route[-1]] - 6) + "\n"


def _dot(picture: Picture) -> Iterator[str]:
    label = _quote(f"{picture.title}\n{picture.subtitle}")
    yield (
        f"digraph {_quote(picture.title)} {{\n"
        f'  graph [label={label}, labelloc=t, fontname="Helvetica", bgcolor="#ffffff"];\n'
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11, height=0.5];\n'
        '  edge [color="#6b7280", arrowsize=0.6];\n'
    )
    for i, box in enumerate(picture.boxes):
        label = _quote(f"{box.name}\n{box.detail}")
        yield f'  n{i} [label={label}, fillcolor="{box.fill}", fontcolor="{ink(box.fill)}"];\n'
    for k in [] if picture.stage is None else np.unique(picture.stage).tolist():
        members = " ".join(f"n{i};" for i in np.flatnonzero(picture.stage == k))
        yield f'  subgraph cluster_{k} {{ label="stage {k}"; color="#c9cdd4"; {members} }}\n'
    yield from (f"  n{u} -> n{v};\n" for u, v in picture.edges)
    yield "}\n"


def _quote(text: str) -> str:
    """Return a text as a string of DOT, in which names of entities and escapes stay literal."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return '"' + plain.replace("\n", "\\n") + '"'


def describe(shown: OpGraph | Schedule) -> Picture:
    """Return the texts and bands of a graph or schedule.

    Raises
    ------
    GraphError
        If it has more operators than pictures are drawn of.
    """
    if isinstance(shown, Schedule):
        graph = shown.graph
    else:
        graph = shown
    if len(graph) > LARGEST:
        raise GraphError(f"graph {graph.name!r} has {len(graph)} operators: pictures are drawn of up to {LARGEST:,}")
    edges = list(dict.fromkeys(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)))
    subtitle = f"{_count(len(graph), 'operator')}, {_count(len(graph.src), 'edge')}"
    if not isinstance(shown, Schedule):
        colour, kinds = kind_colours(graph)
        boxes = [_box(op, _size(op), kinds[k][1]) for op, k in zip(graph.operators, colour.tolist(), strict=True)]
        number = np.bincount(colour)
        legend = [(fill, f"{printable(kind)} ({number[k]})") for k, (kind, fill) in enumerate(kinds)]
        return Picture(printable(graph.name), subtitle, boxes, edges, legend)
    plan = shown
    several = len(shown.devices_used) > 1
    by_operator = np.argsort(plan.op)
    device = plan.device[by_operator]
    stream = plan.stream[by_operator]
    stage = plan.stage[by_operator]
    lane = list(zip(device.tolist(), stream.tolist(), strict=True))
    lanes = Counter(lane)
    tints = Counter[int]()
    fills: dict[tuple[int, int], str] = {}
    for d, s in sorted(lanes):  # a hue for each device, or for each stream of the only one
        if several:
            fills[d, s] = tint_colour(d, tints[d])
        else:
            fills[d, s] = tint_colour(tints[d], tints[d] // len(PALETTE))
        tints[d] += 1
    where = {(d, s): f"{printable(plan.devices[d])} stream {s}" if several else f"stream {s}" for d, s in fills}
    staged = plan.execution == "stages"
    banded = staged and bool((stage[graph.src] <= stage[graph.dst]).all())
    boxes = [
        _box(op, where[at] if banded or not staged else f"{where[at]} \u00b7 stage {k}", fills[at])
        for op, at, k in zip(graph.operators, lane, stage.tolist(), strict=True)
    ]
    legend = [(fills[at], f"{where[at]} ({lanes[at]})") for at in list(fills)[:_LISTED]]
    if len(fills) > _LISTED:
        legend.append(("none", f"and {len(fills) - _LISTED} more"))
    subtitle += f", {_count(len(fills), 'stream')} on {_count(len(plan.devices_used), 'device')}"
    if staged:
        subtitle += f", {_count(len(set(zip(device.tolist(), stage.tolist(), strict=True))), 'stage')}"
    if plan.estimate is not None:
        subtitle += f", estimate {format_time(plan.estimate)}"
    title = f"{printable(graph.name)} by {printable(plan.scheduler)}"
    return Picture(title, subtitle, boxes, edges, legend, stage if banded else None)


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _size(op: Operator) -> str:
    if op.output_shape is not None:
        return "\u00d7".join(map(str, op.output_shape)) or "scalar"
    if op.time is None:
        return ""
    return format_time(op.time)


def _box(op: Operator, detail: str, fill: str) -> Box:
    kind = printable(op.kind)
    return Box(printable(op.name), f"{kind} \u00b7 {detail}" if detail else kind, fill)


def lay_out(
    title: str, edges: Sequence[tuple[int, int]], room: Ints, stage: Ints | None
) -> tuple[Ints, Ints, list[list[int]]]:
    """Return rows and places such that every edge leads downward, beside the boxes of the rows that it passes.

    Parameters
    ----------
    title
        How an error names the graph.
    edges
        Ends of the edges.
    room
        Width of each operator's box with the room around it, shape (n_ops,).
    stage
        Stage of each operator, where rows are to hold one stage only and no edge leads to an earlier one.

    Returns
    -------
    array
        Row of each vertex from the top, shape (n_vertices,): of the operators, then of points of edges.
    array
        Middle of each vertex in pixels, shape (n_vertices,); the room of the leftmost begins at 0.
    list
        For each edge the vertices that it passes, a row after the other.

    Notes
    -----
    Rows are topological generations. Each vertex is attracted to the mean of its neighbours above, then below, then
    both; a row takes this order, and the places nearest to these means at which boxes do not touch.
    """
    from scipy.optimize import isotonic_regression
    from scipy.sparse import coo_array, eye_array

    rows = _rows(len(room), edges, stage).tolist()
    if sum(rows[v] - rows[u] for u, v in edges) > MOST_POINTS:
        raise GraphError(f"{title}: too many long edges to be drawn: they lead through more than {MOST_POINTS:,} rows")
    routes = []
    for u, v in edges:
        passed = range(rows[u] + 1, rows[v])
        routes.append([u, *range(len(rows), len(rows) + len(passed)), v])
        rows += passed
    row = np.array(rows)
    n = len(rows)
    steps = np.array([step for route in routes for step in pairwise(route)], np.int64).reshape(-1, 2)
    weight = np.array([1.0, 2.0, 8.0])[(steps >= len(room)).sum(axis=1)]  # long edges are to be straight
    room = np.concatenate([room, np.full(n - len(room), _POINT)])
    layers = np.split(np.argsort(row, kind="stable"), np.cumsum(np.bincount(row))[:-1])
    x = np.zeros(n)
    for layer in layers:
        x[layer] = np.cumsum(room[layer]) - (room[layer].sum() + room[layer]) / 2
    above = coo_array((weight, tuple(steps.T[::-1])), (n, n))
    for sweep, links in enumerate([above, above.T] * _ONE_WAY + [above + above.T] * _BOTH_WAYS):
        mean = (links + 1e-6 * eye_array(n)).tocsr()  # a vertex without neighbours stays
        mean.data /= np.repeat(mean.sum(axis=1), np.diff(mean.indptr))
        for layer in layers[:: -1 if sweep % 2 else 1]:
            wanted = mean[layer] @ x
            order = np.lexsort((x[layer], wanted.round(3)))
            left = np.cumsum(room[layer][order]) - room[layer][order] / 2
            x[layer[order]] = left + isotonic_regression(wanted[order] - left).x
    return row, np.rint(x - (x - room / 2).min()).astype(np.int64), routes


def _rows(n: int, edges: Sequence[tuple[int, int]], stage: Ints | None) -> Ints:
    import networkx as nx

    if stage is None:
        of = np.zeros(n, np.int64)
    else:
        of = stage.astype(np.int64)
    within = nx.DiGraph()
    within.add_nodes_from(range(n))
    within.add_edges_from((u, v) for u, v in edges if of[u] == of[v])
    row = np.zeros(n, np.int64)
    for r, ops in enumerate(nx.topological_generations(within)):
        row[ops] = r
    alone = np.bincount(np.array(edges, np.int64).ravel(), minlength=n) == 0
    row[alone] = np.arange(alone.sum()) // _ABREAST
    positions: Ints = np.unique(of * n + row, return_inverse=True)[1].astype(np.int64)
    return positions


def text_width(text: str, size: float) -> float:
    """Return the width of a text in a sans-serif font of a size, rather too wide than too narrow."""
    return size * sum(map(_em, text))


@lru_cache(maxsize=1024)
def _em(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF" or character in "mwMW@%\u2026\ufffd":
        return 1.0
    if character in "ijltfrI.,:;'|!()[]/ ":
        return _NARROW
    if character.isascii() and not character.isupper():
        return 0.61
    return 0.78


def shorten(text: str, size: float, width: float) -> str:
    """Return a text that is no wider than given; a longer one loses its middle.

    >>> shorten("inception_5b_branch_pool", 12, 90)
    'incept…_pool'
    """
    short = text
    length = min(len(text), int(width / size / _NARROW))
    while text_width(short, size) > width:
        length -= 1
        short = f"{text[: (length + 1) // 2]}\u2026{text[len(text) - length // 2 :]}"
    return short
