"""Pictures as SVG: one file that needs nothing else, no script, style sheet or identifier."""

import os
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

import numpy as np

from simsched.base.io import write_file
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Floats
from simsched.model.schedule import Schedule
from simsched.show.drawing.frames import BOX_PADDING, DETAIL_SIZE, NAME_SIZE, Frame, Plate, lay_out
from simsched.show.drawing.picture import Line, Picture, describe
from simsched.show.drawing.style import ink, mixed, printable, shortened, text_width

_FONT: Final = "Helvetica, Arial, sans-serif"
_MARGIN, _SIDE = 24.0, 64.0  # around everything; for the labels of bands
_TITLE, _LEGEND, _BOLD = 16.0, 11.0, 1.07  # sizes of texts; how much wider bold letters are
_NARROWEST = 420.0  # picture: title and legend need some room
_INK, _QUIET, _EDGE, _CROSSING = "#1a1a1a", "#555555", "#6b7280", "#111827"
_FRAME_FILL, _FRAME_EDGE = "#f5f6f8", "#c9cdd4"
_BAND_FILLS = ("#eef2f7", "#dfe6ef")
_ARROW_LENGTH, _ARROW_WIDTH = 6.0, 5.0


def to_svg(
    shown: OpGraph | Schedule, path: str | os.PathLike[str] | None = None, *, title: str | None = None,
    engine: str = "own",
) -> str:  # fmt: skip
    """Draw a graph, or a schedule over its graph, as SVG.

    Parameters
    ----------
    shown
        A graph is coloured by kinds of operators; the blocks of the model are framed where their frames have
        room. A schedule is coloured by device and stream; its stages are bands, or numbers at the boxes where
        an edge leads to a stage of lower number, as it may between devices. Edges between devices are dashed.
    path
        Where to write the picture, whole or not at all.
    title
        By default the graph's name, and the scheduler's.
    engine
        ``"own"``, ``"graphviz"`` or ``"auto"``: see `simsched.show.drawing.layout`.

    Returns
    -------
    str
        The picture. Details of operators and edges are in tooltips.

    Raises
    ------
    GraphError
        If the graph is too large to be drawn, or the engine is not known or fails; see `simsched.show.drawing.layout`.
    MissingDependencyError
        If the engine is not installed.
    FileError
        If the file cannot be written.

    >>> from simsched.model.graph import Operator
    >>> to_svg(OpGraph([Operator("a", "conv", time=3.0)])).count("<rect")  # paper, box and legend
    3
    """
    picture = describe(shown)
    graph = shown.graph if isinstance(shown, Schedule) else shown
    if title is not None:
        picture = picture._replace(title=printable(title))
    plate = lay_out(graph, picture, engine)
    text = "\n".join(_document(picture, plate)) + "\n"
    if path is not None:
        write_file(path, text)
    return text


def _document(picture: Picture, plate: Plate) -> Iterator[str]:
    side = _SIDE if plate.bands else 0.0
    width = max(plate.layout.size[0] + side, _NARROWEST) + 2 * _MARGIN
    legend, head = _legend(picture, plate, width)
    margin_top = head + (28.0 if plate.frames or plate.bands else 12.0)
    left = _MARGIN + side + (width - 2 * _MARGIN - side - plate.layout.size[0]) / 2
    height = margin_top + plate.layout.size[1] + _MARGIN + (8.0 if plate.frames or plate.bands else 0.0)
    label = escape(f"{picture.title}: {picture.subtitle}")
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" role="img" aria-label="{label}" font-family="{_FONT}">'
    )
    yield f"<title>{label}</title>"
    yield f'<rect width="{_n(width)}" height="{_n(height)}" fill="#ffffff"/>'
    yield from legend
    yield f'<g transform="translate({_n(left)} {_n(margin_top)})">'
    for i, band in enumerate(plate.bands):
        yield from _band(band, _BAND_FILLS[i % 2], -left + _MARGIN / 2, width - _MARGIN)
    yield from map(_frame, plate.frames)
    yield f'<g fill="none" stroke="{_EDGE}" stroke-width="1.2">'
    for line, route in zip(picture.lines, plate.layout.routes, strict=True):
        yield from _edge(line, route)
    yield "</g>"
    for frame in plate.frames:
        yield from _frame_label(frame)
    yield '<g text-anchor="middle">'
    for i in range(len(picture.boxes)):
        yield from _box(picture, plate, i)
    yield "</g>\n</g>\n</svg>"


def _legend(picture: Picture, plate: Plate, width: float) -> tuple[list[str], float]:
    """Return the title and what colours and signs mean, and the height they take."""
    room = width - 2 * _MARGIN
    x, y = _MARGIN, _MARGIN + _TITLE
    parts = [
        f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(_TITLE)}" font-weight="600" fill="{_INK}">'
        f"{escape(shortened(picture.title, _TITLE * _BOLD, room))}</text>",
        f'<text x="{_n(x)}" y="{_n(y + 18)}" font-size="12" fill="{_QUIET}">'
        f"{escape(shortened(picture.subtitle, 12, room))}</text>",
        f'<g font-size="{_n(_LEGEND)}" fill="{_INK}">',
    ]
    y += 42.0
    entries = [(_swatch(fill), text) for fill, text in picture.legend]
    if any(line.crosses for line in picture.lines):
        dashes = f'<path d="M0 -4H16" fill="none" stroke="{_CROSSING}" stroke-width="1.4" stroke-dasharray="5 3"/>'
        entries.append((dashes, "between devices"))
    if picture.staged and not plate.bands:
        entries.append((_badge("1", 8.0, -4.0), "stage of the device"))
    for sign, meaning in entries:
        text = shortened(meaning, _LEGEND, room - 22)
        taken = 22 + text_width(text, _LEGEND) + 14
        if x > _MARGIN and x + taken > _MARGIN + room:
            x, y = _MARGIN, y + 20
        parts.append(f'<g transform="translate({_n(x)} {_n(y)})">{sign}<text x="22">{escape(text)}</text></g>')
        x += taken
    return [*parts, "</g>"], y + 12


def _swatch(fill: str) -> str:
    return f'<rect y="-10" width="16" height="12" rx="3" fill="{fill}" stroke="{mixed(fill, "#000000", 0.35)}"/>'


def _badge(number: str, x: float, y: float) -> str:
    half = max(8.0, text_width(number, 9) / 2 + 4)
    return (
        f'<rect x="{_n(x - half)}" y="{_n(y - 7)}" width="{_n(2 * half)}" height="14" rx="7" fill="{_INK}"/>'
        f'<text x="{_n(x)}" y="{_n(y + 3)}" font-size="9" fill="#ffffff" text-anchor="middle">{number}</text>'
    )


def _band(band: Frame, fill: str, left: float, width: float) -> Iterator[str]:
    yield (
        f'<rect x="{_n(left)}" y="{_n(band.top)}" width="{_n(width)}" height="{_n(band.bottom - band.top)}" '
        f'fill="{fill}"/>'
    )
    yield (
        f'<text x="{_n(left + 10)}" y="{_n((band.top + band.bottom) / 2 + 4)}" font-size="11" font-weight="600" '
        f'fill="{_QUIET}">{escape(band.label)}</text>'
    )


def _frame(frame: Frame) -> str:
    return (
        f'<rect x="{_n(frame.left)}" y="{_n(frame.top)}" width="{_n(frame.right - frame.left)}" '
        f'height="{_n(frame.bottom - frame.top)}" rx="6" fill="{_FRAME_FILL}" stroke="{_FRAME_EDGE}"/>'
    )


def _frame_label(frame: Frame) -> Iterator[str]:
    label = escape(shortened(printable(frame.label), 11 * _BOLD, frame.right - frame.left - 16))
    # written twice, the first time as a halo that keeps edges off the letters
    text = f'<text x="{_n(frame.left + 8)}" y="{_n(frame.top + 14)}" font-size="11" font-weight="600"'
    yield f'{text} fill="{_QUIET}" stroke="{_FRAME_FILL}" stroke-width="4" stroke-linejoin="round">{label}</text>'
    yield f'{text} fill="{_QUIET}">{label}</text>'


def _edge(line: Line, route: Floats) -> Iterator[str]:
    way = route[-1] - route[-2]
    if not way.any():
        way = route[-1] - route[0]
    way = way / max(float(np.hypot(*way)), 1e-9)
    base = route[-1] - _ARROW_LENGTH * way
    aside = _ARROW_WIDTH / 2 * np.array([-way[1], way[0]])
    corners = np.stack([route[-1], base + aside, base - aside]).tolist()
    path = _path(np.concatenate([route[:-1], [base]]))
    head = "M" + "L".join(map(_p, corners)) + "Z"
    look = f' stroke="{_CROSSING}" stroke-width="1.4" stroke-dasharray="5 3"' if line.crosses else ""
    fill = _CROSSING if line.crosses else _EDGE
    # a wide line that is not seen makes it easy to point at
    target = f'<path d="{path}" stroke="#ffffff" stroke-opacity="0" stroke-width="9"/>' if line.crosses else ""
    yield (
        f'<g><title>{escape(line.tooltip)}</title>{target}<path d="{path}"{look}/>'
        f'<path d="{head}" fill="{fill}" stroke="none"/></g>'
    )


def _path(points: Floats) -> str:
    """Return Bezier curves as path data, straight down where they are."""
    chain: list[list[float]] = points.tolist()
    parts = [f"M{_p(chain[0])}"]
    for k in range(1, len(chain), 3):
        before, *curve = chain[k - 1 : k + 3]
        if all(x == before[0] for x, _ in curve):
            parts.append(f"V{_n(curve[2][1])}")
        else:
            parts.append("C" + " ".join(map(_p, curve)))
    return "".join(parts)


def _box(picture: Picture, plate: Plate, i: int) -> Iterator[str]:
    box, placed = picture.boxes[i], plate.layout
    width, height = float(placed.width[i]), float(placed.height[i])
    left, top, middle = float(placed.x[i]) - width / 2, float(placed.y[i]) - height / 2, float(placed.x[i])
    room, text = width - 2 * BOX_PADDING, ink(box.fill)
    yield f"<g><title>{escape(box.tooltip)}</title>"
    yield (
        f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(width)}" height="{_n(height)}" rx="5" '
        f'fill="{box.fill}" stroke="{mixed(box.fill, "#000000", 0.35)}"/>'
    )
    for content, size, below in ((plate.names[i], NAME_SIZE, 17.0), (box.detail, DETAIL_SIZE, 31.0)):
        label = escape(shortened(content, size, room))
        yield f'<text x="{_n(middle)}" y="{_n(top + below)}" font-size="{_n(size)}" fill="{text}">{label}</text>'
    if picture.staged and not plate.bands:
        yield _badge(box.badge, left + width, top)
    yield "</g>"


def _n(value: float) -> str:
    """Return a number with one decimal, or none where that is enough."""
    text = f"{value:.1f}"
    return "0" if text == "-0.0" else text.removesuffix(".0")


def _p(point: Sequence[float]) -> str:
    return f"{_n(point[0])},{_n(point[1])}"
