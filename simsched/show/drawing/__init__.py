"""Pictures of graphs and schedules: SVG without script, style sheet or identifier, and DOT for Graphviz."""

import os
from collections.abc import Iterator
from html import escape
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from simsched.base.io import write_file
from simsched.model import OpGraph, Schedule
from simsched.show.drawing.layers import Layers, lay_out
from simsched.show.drawing.picture import Picture, describe
from simsched.show.looks import ink
from simsched.show.svg import legend, printable, shortened, text_width

__all__ = ["to_dot", "to_svg"]

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
    return _written("".join(_svg(picture)), path)


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


def _svg(picture: Picture) -> Iterator[str]:
    wanted = [max(text_width(box.name, _NAME), text_width(box.detail, _DETAIL)) for box in picture.boxes]
    half = np.ceil(np.clip(np.array(wanted) / 2 + _PADDING, _NARROWEST / 2, _WIDEST / 2)).astype(np.int64)
    pairs = [(line.src, line.dst) for line in picture.lines]
    placed = lay_out(picture.title, pairs, 2 * half + _GAP, picture.stage)
    gaps = [round(min(max(_STEEPNESS * way, _ROW_GAP), _WIDEST_ROW_GAP)) for way in placed.aside]
    y = list(accumulate([_HEIGHT + gap for gap in gaps[:-1]], initial=0))
    left = _MARGIN + (0 if picture.stage is None else _BAND_LABEL)
    drawn = int(placed.x.max() + half.max())
    right = max(left + drawn, _MARGIN + _HEADING)
    left = (left + right - drawn) // 2
    meanings, last = legend(picture.legend, 11, _MARGIN, 82, right)
    top = round(last) + 32
    full, height = right + _MARGIN, top + y[-1] + _HEIGHT + _MARGIN
    label, room = escape(f"{picture.title}: {picture.subtitle}"), right - _MARGIN
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full}" height="{height}" viewBox="0 0 {full} {height}" '
        f'role="img" aria-label="{label}" font-family="Helvetica, Arial, sans-serif" font-size="11" fill="#1a1a1a">\n'
        f'<title>{label}</title>\n<rect width="{full}" height="{height}" fill="#ffffff"/>\n'
        f'<text x="{_MARGIN}" y="40" font-size="16" font-weight="600">'
        f"{escape(shortened(picture.title, 17, room))}</text>\n"
        f'<text x="{_MARGIN}" y="58" font-size="12">{escape(shortened(picture.subtitle, 12, room))}</text>\n'
        f'{meanings}\n<g transform="translate(0 {top})">\n'
    )
    if picture.stage is not None:
        for i, (name, ops) in enumerate(sorted(picture.groups.items(), key=lambda group: placed.row[group[1][0]])):
            above, below = y[placed.row[ops].min()] - 16, y[placed.row[ops].max()] + _HEIGHT + 16
            yield (
                f'<rect x="12" y="{above}" width="{full - 24}" height="{below - above}" fill="{_BAND_FILLS[i % 2]}"/>'
                f'<text x="{_MARGIN}" y="{(above + below) // 2 + 4}" font-weight="600">{name}</text>\n'
            )
    yield f'</g>\n<g transform="translate({left} {top})" text-anchor="middle">\n'
    yield from _edges(picture, placed, y)
    for box, x, side, r in zip(picture.boxes, placed.x.tolist(), half.tolist(), placed.row.tolist(), strict=False):
        room = 2 * (side - _PADDING)
        yield (
            f"<g><title>{escape(box.tooltip)}</title>"
            f'<rect x="{x - side}" y="{y[r]}" width="{2 * side}" height="{_HEIGHT}" rx="5" '
            f'fill="{box.fill}" stroke="#000000" stroke-opacity="0.35"/><g fill="{ink(box.fill)}">'
            f'<text x="{x}" y="{y[r] + 17}" font-size="{_NAME}">{escape(shortened(box.name, _NAME, room))}</text>'
            f'<text x="{x}" y="{y[r] + 31}" font-size="{_DETAIL}">{escape(shortened(box.detail, _DETAIL, room))}</text>'
            "</g></g>\n"
        )
    yield "</g>\n</svg>\n"


def _edges(picture: Picture, placed: Layers, y: list[int]) -> Iterator[str]:
    row, x = placed.row.tolist(), placed.x.tolist()
    yield '<g fill="none" stroke="#6b7280" stroke-width="1.2">\n'
    for line, chain in zip(picture.lines, placed.chains, strict=True):
        path = f"M{x[line.src]} {y[row[line.src]] + _HEIGHT}"
        for u, v in pairwise(chain):
            end = y[row[v]]
            bend = (y[row[u]] + _HEIGHT + end) // 2
            path += f"C{x[u]} {bend} {x[v]} {bend} {x[v]} {end}V{end + _HEIGHT if v != line.dst else end}"
        dashed = ' stroke-dasharray="5 3"' if line.crosses else ""
        yield (
            f'<g><title>{escape(line.tooltip)}</title><path d="{path}"{dashed}/>'
            f'<path d="M{x[v] - 3} {end - 6}h6l-3 6z" fill="#6b7280" stroke="none"/></g>\n'
        )
    yield "</g>\n"


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
