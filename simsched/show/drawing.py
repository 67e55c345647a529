"""Pictures of graphs and schedules: SVG without script, style sheet or identifier, and DOT for Graphviz."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.errors import GraphError
from simsched.base.io import write_file
from simsched.base.numeric import grouped
from simsched.base.units import format_bytes, format_time
from simsched.model import Floats, Indices, Ints, Operator, OpGraph, Schedule
from simsched.show.looks import PALETTE, ink, kind_colours, paint, tinted
from simsched.show.markup import legend, pieces, printable, shortened, text_width

__all__ = ["to_dot", "to_svg"]

LARGEST: Final = 10_000
"""Operators up to which a graph is drawn."""
_LISTED: Final = 12  # streams in the legend
MOST_POINTS: Final = 150_000
"""Rows that all edges together may pass through."""
_POINT: Final = 12  # pixels that an edge takes where it passes through a row
_ABREAST: Final = 12  # operators without edges in a row
_ONE_WAY, _BOTH_WAYS = 4, 8  # pairs of sweeps, then sweeps; more change little
_piece: Final = pieces("drawing.svg")
_MARGIN, _BAND_LABEL, _HEADING = 24, 64, 600  # pixels: around everything, beside bands, least for the title
_NAME, _DETAIL = 12, 10  # sizes of letters
_HEIGHT, _NARROWEST, _WIDEST, _PADDING, _GAP = 40, 56, 220, 8, 18  # of boxes
_ROW_GAP, _WIDEST_ROW_GAP, _STEEPNESS = 40, 130, 0.07  # between rows; part of the way that edges go sideways
_BAND_FILLS: Final = ("#eef2f7", "#dfe6ef")


class Box(NamedTuple):
    """What is said about an operator."""

    name: str
    detail: str
    """Kind, and output shape or time, or where it runs."""
    fill: str
    tooltip: str


class Line(NamedTuple):
    """What is said about an edge; parallel edges are one line."""

    src: int
    dst: int
    crosses: bool
    """Between two devices."""
    tooltip: str


class Picture(NamedTuple):
    """What is said about a graph or schedule."""

    title: str
    subtitle: str
    boxes: list[Box]
    lines: list[Line]
    legend: list[tuple[str, str]]
    """Fill and meaning."""
    groups: dict[str, list[int]]
    """Operators by stage where stages follow each other, else by device, or by block of the model."""
    stage: Ints | None
    """Of each operator, shape (n_ops,), if stages follow each other; then they are drawn as bands."""


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
        The picture. Details of operators and edges are in tooltips.

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
    return _written(_svg(describe(shown)), path)


def to_dot(shown: OpGraph | Schedule, path: str | os.PathLike[str] | None = None) -> str:
    r"""Write a graph, or a schedule over its graph, as DOT: colours, tooltips, and clusters.

    Parameters
    ----------
    shown
        What to draw; see `simsched.show.drawing.to_svg`. Clusters are the blocks of a graph, the devices of a schedule,
        or its stages where no edge leads to one of lower number.
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
      n0 -> n1 [tooltip="a → b\n8 B"];
    """
    return _written("".join(_dot(describe(shown))), path)


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        write_file(path, text)
    return text


def _svg(picture: Picture) -> str:
    wanted = [max(text_width(box.name, _NAME), text_width(box.detail, _DETAIL)) for box in picture.boxes]
    half = np.ceil(np.clip(np.array(wanted) / 2 + _PADDING, _NARROWEST / 2, _WIDEST / 2)).astype(np.int64)
    pairs = [(line.src, line.dst) for line in picture.lines]
    placed = lay_out(picture.title, pairs, 2 * half + _GAP, picture.stage)
    gaps = [round(min(max(_STEEPNESS * way, _ROW_GAP), _WIDEST_ROW_GAP)) for way in placed.aside]
    y = list(accumulate([_HEIGHT + gap for gap in gaps[:-1]], initial=0))
    left = _MARGIN + (0 if picture.stage is None else _BAND_LABEL)
    drawn = int(placed.x.max() + half.max())
    right = max(left + drawn, _MARGIN + _HEADING)
    meanings, last = legend(picture.legend, 11, _MARGIN, 82, right)
    top, full, room = round(last) + 32, right + _MARGIN, right - _MARGIN
    bands = "" if picture.stage is None else "".join(_bands(picture.groups, placed.row, y, full - 24))
    return _piece(
        "picture", width=full, height=top + y[-1] + _HEIGHT + _MARGIN, label=f"{picture.title}: {picture.subtitle}",
        margin=_MARGIN, title=shortened(picture.title, 17, room), subtitle=shortened(picture.subtitle, 12, room),
        legend_=meanings, top=top, left=(left + right - drawn) // 2, bands_=bands,
        edges_="".join(_edges(picture, placed, y)), boxes_="".join(_boxes(picture, placed, half.tolist(), y)),
    ) + "\n"  # fmt: skip


def _bands(groups: Mapping[str, list[int]], row: Ints, y: list[int], width: int) -> Iterator[str]:
    for i, (name, ops) in enumerate(sorted(groups.items(), key=lambda group: row[group[1][0]])):
        above, below = y[row[ops].min()] - 16, y[row[ops].max()] + _HEIGHT + 16
        yield _piece("band", above=above, width=width, height=below - above, fill=_BAND_FILLS[i % 2], margin=_MARGIN,
                    middle=(above + below) // 2 + 4, name=name) + "\n"  # fmt: skip


def _boxes(picture: Picture, placed: Layers, half: list[int], y: list[int]) -> Iterator[str]:
    for box, x, side, r in zip(picture.boxes, placed.x.tolist(), half, placed.row.tolist(), strict=False):
        name, detail = (shortened(text, size, 2 * (side - _PADDING))
                        for text, size in ((box.name, _NAME), (box.detail, _DETAIL)))  # fmt: skip
        yield _piece("box", tooltip=box.tooltip, left=x - side, top=y[r], width=2 * side, height=_HEIGHT, fill=box.fill,
                    ink=ink(box.fill), x=x, first=y[r] + 17, large=_NAME, name=name, second=y[r] + 31, small=_DETAIL,
                    detail=detail) + "\n"  # fmt: skip


def _edges(picture: Picture, placed: Layers, y: list[int]) -> Iterator[str]:
    row, x = placed.row.tolist(), placed.x.tolist()
    for line, chain in zip(picture.lines, placed.chains, strict=True):
        path = f"M{x[line.src]} {y[row[line.src]] + _HEIGHT}"
        for u, v in pairwise(chain):
            end = y[row[v]]
            bend = (y[row[u]] + _HEIGHT + end) // 2
            path += f"C{x[u]} {bend} {x[v]} {bend} {x[v]} {end}V{end + _HEIGHT if v != line.dst else end}"
        dashed = ' stroke-dasharray="5 3"' if line.crosses else ""
        yield _piece("edge", tooltip=line.tooltip, path=path, dashed_=dashed, x=x[v] - 3, y=end - 6) + "\n"


def _dot(picture: Picture) -> Iterator[str]:
    label = _quoted(f"{picture.title}\n{picture.subtitle}")
    yield (
        f"digraph {_quoted(picture.title)} {{\n"
        f'  graph [label={label}, labelloc=t, fontname="Helvetica", bgcolor="#ffffff"];\n'
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11, height=0.5];\n'
        '  edge [color="#6b7280", arrowsize=0.6];\n'
    )
    for i, box in enumerate(picture.boxes):
        label, tooltip = _quoted(f"{box.name}\n{box.detail}"), _quoted(box.tooltip)
        yield f'  n{i} [label={label}, fillcolor="{box.fill}", fontcolor="{ink(box.fill)}", tooltip={tooltip}];\n'
    for k, (name, ops) in enumerate(picture.groups.items()):
        members = " ".join(f"n{i};" for i in ops)
        yield f'  subgraph cluster_{k} {{ label={_quoted(printable(name))}; color="#c9cdd4"; {members} }}\n'
    for line in picture.lines:
        dashed = ", style=dashed" if line.crosses else ""
        yield f"  n{line.src} -> n{line.dst} [tooltip={_quoted(line.tooltip)}{dashed}];\n"
    yield "}\n"


def _quoted(text: str) -> str:
    """Return a text as a string of DOT, in which names of entities and escapes stand for themselves."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return '"' + plain.replace("\n", "\\n") + '"'


def describe(shown: OpGraph | Schedule) -> Picture:
    """Return what is to be said about a graph or schedule.

    Raises
    ------
    GraphError
        If it has more operators than pictures are drawn of.
    """
    graph = shown.graph if isinstance(shown, Schedule) else shown
    if len(graph) > LARGEST:
        raise GraphError(f"graph {graph.name!r} has {len(graph)} operators: pictures are drawn of up to {LARGEST:,}")
    counts = f"{_counted(len(graph), 'operator')}, {_counted(len(graph.src), 'edge')}"
    if isinstance(shown, Schedule):
        return _of_schedule(shown, counts)
    colour, kinds = kind_colours(graph)
    boxes = [_box(op, _size(op), paint(code)) for op, code in zip(graph.operators, colour.tolist(), strict=True)]
    number = np.bincount(colour)
    legend = [(paint(code), f"{printable(kind)} ({number[code]})") for code, kind in enumerate(kinds)]
    groups = grouped((op.block, i) for i, op in enumerate(graph.operators) if op.block is not None)
    return Picture(printable(graph.name), counts, boxes, _lines(graph, boxes), legend, groups, None)


def _of_schedule(plan: Schedule, counts: str) -> Picture:
    graph, several = plan.graph, len(plan.devices_used) > 1
    by_operator = np.argsort(plan.op)
    device, stream, stage = plan.device[by_operator], plan.stream[by_operator], plan.stage[by_operator]
    lane = list(zip(device.tolist(), stream.tolist(), strict=True))
    fills: dict[tuple[int, int], str] = {}
    tints: Counter[int] = Counter()
    for d, s in sorted(set(lane)):  # a hue for each device, or for each stream of the only one
        fills[d, s] = tinted(d, tints[d]) if several else tinted(tints[d], tints[d] // len(PALETTE))
        tints[d] += 1
    names = [printable(name) for name in plan.devices]
    where = {(d, s): f"{names[d]} stream {s}" if several else f"stream {s}" for d, s in fills}
    staged = plan.execution == "stages"
    banded = staged and bool((stage[graph.src] <= stage[graph.dst]).all())
    stages = [f"stage {k}" for k in stage.tolist()]
    boxes = []
    for op, at, numbered in zip(graph.operators, lane, stages, strict=True):
        detail = where[at] if banded or not staged else f"{where[at]} \u00b7 {numbered}"
        tooltip = f"runs on: {names[at[0]]} stream {at[1]}{f', {numbered}' if staged else ''}"
        boxes.append(_box(op, detail, fills[at], tooltip))
    number = Counter(lane)
    legend = [(fills[at], f"{where[at]} ({number[at]})") for at in list(fills)[:_LISTED]]
    if len(fills) > _LISTED:
        legend.append(("none", f"and {len(fills) - _LISTED} more"))
    lines = _lines(graph, boxes, device)
    if any(line.crosses for line in lines):
        legend.append(("none", "dashed: between devices"))
    subtitle = f"{counts}, {_counted(len(fills), 'stream')} on {_counted(len(plan.devices_used), 'device')}"
    if staged:
        subtitle += f", {_counted(len(set(zip(device.tolist(), stages, strict=True))), 'stage')}"
    if plan.estimate is not None:
        subtitle += f", estimate {format_time(plan.estimate)}"
    title = f"{printable(graph.name)} by {printable(plan.scheduler)}"
    groups = grouped((label, i) for i, label in enumerate(stages if banded else [names[d] for d, _ in lane]))
    return Picture(title, subtitle, boxes, lines, legend, groups, stage if banded else None)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _size(op: Operator) -> str:
    if op.output_shape is not None:
        return "\u00d7".join(map(str, op.output_shape)) or "scalar"
    return "" if op.time is None else format_time(op.time)


def _box(op: Operator, detail: str, fill: str, *where: str) -> Box:
    name, kind = printable(op.name), printable(op.kind)
    said = {
        "block": op.block and printable(op.block),
        "output": op.output_shape is not None and f"{_size(op)} {op.dtype}",
        "time": op.time is not None and format_time(op.time),
        "work": op.flops and f"{op.flops / 1e6:,.4g} MFLOP",
        "weights": op.weight_nbytes and format_bytes(op.weight_nbytes),
    }
    lines = [name, f"kind: {kind}", *where, *(f"{key}: {text}" for key, text in said.items() if text)]
    return Box(name, f"{kind} \u00b7 {detail}" if detail else kind, fill, "\n".join(lines))


def _lines(graph: OpGraph, boxes: list[Box], device: Indices | None = None) -> list[Line]:
    ends = zip(graph.src.tolist(), graph.dst.tolist(), strict=True)
    sizes = grouped(zip(ends, graph.edge_nbytes.tolist(), strict=True))
    found = []
    for (u, v), tensors in sizes.items():
        crosses = device is not None and bool(device[u] != device[v])
        text = f"{boxes[u].name} \u2192 {boxes[v].name}\n{format_bytes(sum(tensors))}"
        if len(tensors) > 1:
            text += f" in {len(tensors)} tensors"
        found.append(Line(u, v, crosses, text))
    return found


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
