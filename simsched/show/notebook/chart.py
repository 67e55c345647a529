"""Gantt charts of small traces as SVG, without matplotlib."""

from collections.abc import Iterator
from html import escape
from typing import Final

from simsched.base.units import time_unit
from simsched.model.trace import Trace
from simsched.model.trace.timeline import COPY, KERNEL, KINDS
from simsched.show.figure import ink, kind_colours, paint
from simsched.show.gantt import GanttRow, gantt_rows, row_centres
from simsched.show.svg import legend, printable, shortened, text_width

_WIDTH, _ROW, _TOP = 760.0, 22.0, 8.0
_SIZE, _INSIDE = 11.0, 9.0  # of letters
_COPY_FILL: Final = "#8A8A8A"
_TICKS: Final = 6
_GAP: Final = 0.5  # between bars that touch


def chart(trace: Trace) -> str:
    """Return a row per stream, a bar per kernel or copy; texts and lines take the colour of the page.

    Colours are those of `Trace.gantt`. Details of a bar are in its tooltip.
    """
    rows = gantt_rows(trace, False)
    several = len({row.device for row in rows}) > 1
    labels = [f"{row.device} {row.label}" if several and row.label else row.label for row in rows]
    labels = [shortened(label, _SIZE, 160) for label in labels]
    left = 12 + max((text_width(label, _SIZE) for label in labels), default=0.0)
    scale = (_WIDTH - left - 12) / (trace.makespan or 1.0)
    places = (_TOP + _ROW * row_centres(rows)).tolist()
    bottom = places[-1] + _ROW / 2 + 2 if places else _TOP
    colour, names = kind_colours(trace.graph)
    entries = [(paint(code), name) for code, name in enumerate(names)]
    if (trace.kind == COPY).any():
        entries.append((_COPY_FILL, "copy"))
    meanings, last = legend(entries, _SIZE, left, bottom + 34, _WIDTH)
    height = last + 8
    said = escape(f"Gantt chart of {printable(trace.graph.name)} on {printable(trace.cluster.name)}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" width="{_WIDTH:g}" '
        f'height="{height:g}" role="img" aria-label="{said}" font-family="sans-serif" font-size="{_SIZE:g}" '
        'fill="currentColor" style="max-width:100%;height:auto">',
        *_axis(trace, left, scale, bottom),
    ]
    for row, label, y in zip(rows, labels, places, strict=True):
        if label:
            size = _SIZE if row.height == 1 else _INSIDE
            parts.append(f'<text x="{left - 6:.1f}" y="{y + size / 3:.1f}" font-size="{size:g}" text-anchor="end">'
                         f"{escape(printable(label))}</text>")  # fmt: skip
        parts += [_bar(trace, i, row, y, left, scale, paint(int(colour[trace.op[i]]))) for i in row.spans.tolist()]
    return "".join([*parts, meanings, "</svg>"])


def _axis(trace: Trace, left: float, scale: float, bottom: float) -> Iterator[str]:
    """Yield lines at round times, and what time it is there."""
    unit, name = time_unit(trace.makespan)
    step = _round_step(trace.makespan / unit / _TICKS)
    n = int(trace.makespan / unit / step + 1e-9) if step else 0
    for k in range(n + 1):
        x = left + k * step * unit * scale
        yield f'<path d="M{x:.1f} {_TOP:g}V{bottom:.1f}" stroke="currentColor" stroke-opacity="0.2"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 13:.1f}" text-anchor="middle">{k * step:g}</text>'
    yield f'<text x="{left - 6:.1f}" y="{bottom + 13:.1f}" text-anchor="end">{name}</text>'


def _round_step(least: float) -> float:
    """Return the least of 1, 2, 5, 10, ... times a power of ten that is no smaller.

    >>> _round_step(0.3), _round_step(17.0), _round_step(2.0)
    (0.5, 20.0, 2.0)
    """
    if least <= 0:
        return 0.0
    power = 10.0 ** (len(f"{least:.0f}") - 1) if least >= 1 else 10.0 ** int(f"{least:e}".partition("e")[2])
    return next(k * power for k in (1.0, 2.0, 5.0, 10.0) if k * power >= least * (1 - 1e-9))


def _bar(trace: Trace, i: int, row: GanttRow, y: float, left: float, scale: float, paint: str) -> str:
    start, end = float(trace.start[i]), float(trace.end[i])
    x, width, half = left + start * scale, max((end - start) * scale - _GAP, _GAP), 0.42 * _ROW * row.height
    name, kind = printable(trace.name(i)), int(trace.kind[i])
    tip = f"<title>{escape(name)}: {KINDS[kind]}, {start:.1f} to {end:.1f} us</title>"
    box = f'<rect x="{x:.1f}" y="{y - half:.1f}" width="{width:.1f}" height="{2 * half:.1f}"'
    if kind not in (KERNEL, COPY):
        return f'{box} fill-opacity="0.12">{tip}</rect>'
    fill = paint if kind == KERNEL else _COPY_FILL
    bar = f'{box} fill="{fill}">{tip}</rect>'
    if kind == COPY or text_width(name, _INSIDE) > width - 4:
        return bar
    return (
        f'{bar}<text x="{x + width / 2:.1f}" y="{y + 3:.1f}" font-size="{_INSIDE:g}" text-anchor="middle" '
        f'fill="{ink(fill)}" pointer-events="none">{escape(name)}</text>'
    )
