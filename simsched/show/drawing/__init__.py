"""Pictures of graphs and schedules: SVG without script, style sheet or identifier, and DOT for Graphviz."""

import os
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from simsched.base.io import write_file
from simsched.model import Ints, OpGraph, Schedule
from simsched.show.drawing.layers import Layers, lay_out
from simsched.show.drawing.picture import Picture, describe
from simsched.show.looks import ink
from simsched.show.markup import pieces
from simsched.show.svg import legend, printable, shortened, text_width

__all__ = ["to_dot", "to_svg"]

piece: Final = pieces("drawing/picture.svg")
_MARGIN, _BAND_LABEL, _HEADING = 24, 64, 600  # pixels: around everything, beside bands, least for the title
_NAME, _DETAIL = 12, 10  # sizes of letters
_HEIGHT, _NARROWEST, _WIDEST, _PADDING, _GAP = 40, 56, 220, 8, 18  # of boxes
_ROW_GAP, _WIDEST_ROW_GAP, _STEEPNESS = 40, 130, 0.07  # between rows; part of the way that edges go sideways
_BAND_FILLS: Final = ("#eef2f7", "#dfe6ef")


def to_svg(shown: OpGraph | Schedule, path: str | os.PathLike[str] | None = None, *, title: str | None = None) -> str:
    """Draw a graph, or a schedule over its graph, as SVG: by layers, edges leading downward.

    Parameters
    ----------
    shown
        A graph is coloured by kinds of operators, a schedule by device and stream. Its stages are bands, or numbers
        in the boxes where an edge leads to a stage of lower number, as it may between devices.
    path
        Where to write the picture, whole or not at all.
    title
        By default the graph's name, and the scheduler's.

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
    picture = describe(shown)
    if title is not None:
        picture = picture._replace(title=printable(title))
    return _written(_svg(picture), path)


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
    return piece(
        "picture", width=full, height=top + y[-1] + _HEIGHT + _MARGIN, label=f"{picture.title}: {picture.subtitle}",
        margin=_MARGIN, title=shortened(picture.title, 17, room), subtitle=shortened(picture.subtitle, 12, room),
        legend_=meanings, top=top, left=(left + right - drawn) // 2, bands_=bands,
        edges_="".join(_edges(picture, placed, y)), boxes_="".join(_boxes(picture, placed, half.tolist(), y)),
    ) + "\n"  # fmt: skip


def _bands(groups: Mapping[str, list[int]], row: Ints, y: list[int], width: int) -> Iterator[str]:
    for i, (name, ops) in enumerate(sorted(groups.items(), key=lambda group: row[group[1][0]])):
        above, below = y[row[ops].min()] - 16, y[row[ops].max()] + _HEIGHT + 16
        yield piece("band", above=above, width=width, height=below - above, fill=_BAND_FILLS[i % 2], margin=_MARGIN,
                    middle=(above + below) // 2 + 4, name=name) + "\n"  # fmt: skip


def _boxes(picture: Picture, placed: Layers, half: list[int], y: list[int]) -> Iterator[str]:
    for box, x, side, r in zip(picture.boxes, placed.x.tolist(), half, placed.row.tolist(), strict=False):
        name, detail = (shortened(text, size, 2 * (side - _PADDING))
                        for text, size in ((box.name, _NAME), (box.detail, _DETAIL)))  # fmt: skip
        yield piece("box", tooltip=box.tooltip, left=x - side, top=y[r], width=2 * side, height=_HEIGHT, fill=box.fill,
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
        yield piece("edge", tooltip=line.tooltip, path=path, dashed_=dashed, x=x[v] - 3, y=end - 6) + "\n"


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
