"""Gantt charts as SVG, without matplotlib or script: in notebooks, and in pages until theirs can be drawn."""

from collections.abc import Sequence
from html import escape
from typing import Final

import numpy as np

from simsched.base.units import time_unit
from simsched.model.trace import Trace
from simsched.model.trace.timeline import KINDS
from simsched.show.looks import ink
from simsched.show.spans import GanttRows, Kind, Row
from simsched.show.svg import legend, printable, shortened, text_width

_WIDTH, _ROW, _TOP = 760.0, 22.0, 8.0
_SIZE, _INSIDE = 11.0, 9.0  # of letters
_TICKS, _GAP = 6, 0.5  # of the axis; between bars that touch
_FILLED: Final = ("kernel", "copy")


def svg_gantt(traces: Sequence[Trace], *, details: bool = True) -> str:
    """Return a row per stream, a bar per kernel or copy; texts and lines take the colour of the page.

    Parameters
    ----------
    traces
        One, or two of one program; colours are those of `Trace.gantt`.
    details
        Whether bars have their names in them, tooltips, and a legend below.
    """
    chart, trace = GanttRows(traces), traces[0]
    labels = [shortened(name, _SIZE, 160) for name in chart.names]
    left = 12 + max((text_width(label, _SIZE) for label in labels), default=0.0)
    scale = (_WIDTH - left - 12) / (chart.longest or 1.0)
    bottom = _TOP + _ROW * chart.bottom + 2
    there = {code for row in chart.rows if not row.measured for code in np.unique(row.bars[0]).tolist()}
    entries = [(kind.colour, kind.name) for k, kind in enumerate(chart.kinds)
               if details and kind.what in _FILLED and k in there]  # fmt: skip
    meanings, last = legend(entries, _SIZE, left, bottom + 34, _WIDTH)
    said = escape(f"Gantt chart of {printable(trace.graph.name)} on {printable(trace.cluster.name)}")
    unit, name = time_unit(chart.longest)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {last + 8:g}" width="{_WIDTH:g}" '
        f'height="{last + 8:g}" role="img" aria-label="{said}" font-family="sans-serif" font-size="{_SIZE:g}" '
        'fill="currentColor" style="max-width:100%;height:auto">',
        _text(left - 6, bottom + 13, name, "end"),
    ]
    step = _round_step(chart.longest / unit / _TICKS) if chart.longest else 1.0
    for k in range(int(chart.longest / unit / step + 1e-9) + 1):
        x = left + k * step * unit * scale
        parts.append(f'<path d="M{x:.1f} {_TOP:g}V{bottom:.1f}" stroke="currentColor" stroke-opacity="0.2"/>')
        parts.append(_text(x, bottom + 13, f"{k * step:g}", "middle"))
    for row, label in zip(chart.rows, labels, strict=True):
        y = _TOP + _ROW * row.middle
        parts += [_text(left - 6, y + 4, label, "end")] * row.first
        parts += _row(row, chart.kinds, left, scale, y, details)
    return "".join([*parts, meanings, "</svg>"])


def _row(row: Row, kinds: list[Kind], left: float, scale: float, y: float, details: bool) -> list[str]:
    codes, starts, ends = (column.tolist() for column in row.bars)
    parts, paths, half = [], dict.fromkeys(sorted(set(codes)), ""), 0.42 * _ROW * row.height
    for i, k, start, end in zip(row.spans.tolist(), codes, starts, ends, strict=True):
        x, width = left + start * scale, max((end - start) * scale - _GAP, _GAP)
        if not details:
            paths[k] += f"M{x:.1f} {y - half:.1f}h{width:.1f}v{2 * half:.1f}h-{width:.1f}z"
            continue
        said = printable(row.trace.name(i))
        parts.append(
            f'<rect x="{x:.1f}" y="{y - half:.1f}" width="{width:.1f}" height="{2 * half:.1f}" {_fill(kinds[k])}>'
            f"<title>{escape(said)}: {KINDS[row.trace.kind[i]]}, {start:.1f} to {end:.1f} us</title></rect>"
        )
        if kinds[k].what == "kernel" and text_width(said, _INSIDE) <= width - 4:
            look = f' font-size="{_INSIDE:g}" fill="{ink(kinds[k].colour)}" pointer-events="none"'
            parts.append(_text(x + width / 2, y + 3, said, "middle", look))
    return [*parts, *(f'<path d="{path}" {_fill(kinds[k])}/>' for k, path in paths.items() if path)]


def _fill(kind: Kind) -> str:
    return f'fill="{kind.colour}"' if kind.what in _FILLED else 'fill-opacity="0.12"'


def _text(x: float, y: float, text: str, anchor: str, look: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{look}>{escape(printable(text))}</text>'


def _round_step(least: float) -> float:
    """Return the least of 1, 2, 5, 10, ... times a power of ten that is no smaller.

    >>> _round_step(0.3), _round_step(17.0), _round_step(2.0)
    (0.5, 20.0, 2.0)
    """
    power = 10.0 ** int(np.floor(np.log10(least)))
    return next(k * power for k in (1.0, 2.0, 5.0, 10.0) if k * power >= least * (1 - 1e-9))
