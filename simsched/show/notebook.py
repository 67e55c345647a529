"""What notebooks show of graphs, schedules, traces and tables: HTML that takes the colours of its page."""

from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, Final

import numpy as np

from simsched.base.units import format_time, time_unit
from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph
from simsched.model.schedule import Schedule
from simsched.model.trace import Trace
from simsched.model.trace.timeline import HOST, KINDS
from simsched.show.drawing import to_svg
from simsched.show.looks import ink
from simsched.show.report.describe import cluster_facts, graph_facts, run_facts
from simsched.show.report.printed import printed
from simsched.show.report.sections import Column, Table
from simsched.show.spans import centres_of, kinds_of, rows_of
from simsched.show.svg import legend, printable, shortened, text_width
from simsched.simulator import Makespans

_DRAWN: Final = 60  # operators, and four times as many edges, of which a drawing is read at a glance
_BARS: Final = 1_500  # of a chart: some 300 kB
_EXPLAINED: Final = 100_000  # instructions whose spans are found in some tenths of a second
_WIDE: Final = 2_000  # operators up to which the width is found at once
_LISTED, _NAMED = 24, 6  # streams, kinds; operators of a stream
_WIDTH, _ROW, _TOP = 760.0, 22.0, 8.0
_SIZE, _INSIDE = 11.0, 9.0  # of letters
_TICKS, _GAP = 6, 0.5  # of the axis; between bars that touch


def html(shown: Any) -> str:
    """Return a graph, a cluster, a schedule, a trace, sampled makespans, or what has a `table`, as HTML.

    Everything that was given, names above all, is escaped. Pictures of graphs have paper of their own; all else takes
    the colours of the page, dark or light.
    """
    if isinstance(shown, OpGraph):
        parts = _graph(shown)
    elif isinstance(shown, Cluster):
        parts = iter([_facts(f"Cluster {shown.name}", cluster_facts(shown)[1:])])
    elif isinstance(shown, Makespans):
        spread = ((name, format_time(getattr(shown, name))) for name in ("p50", "p95", "p99", "mean", "std"))
        parts = iter([_facts(f"{len(shown)} makespans", spread)])
    elif isinstance(shown, Schedule):
        parts = _schedule(shown)
    elif isinstance(shown, Trace):
        parts = _trace(shown)
    else:
        parts = iter([_table(printed(shown.table()))])
    return f'<div style="max-width:100%;overflow-x:auto">{"".join(parts)}</div>'


def _facts(title: str, pairs: Iterable[tuple[str, str]]) -> str:
    return _table(Table(title, (Column(""), Column("")), tuple(pairs)), heads=False)


def _table(table: Table, *, heads: bool = True) -> str:
    """Return a table, numbers on the right, its title and its notes above."""
    right = [any(column.show(row[c])[:1].isdigit() for row in table.rows) and heads and c > 0
             for c, column in enumerate(table.columns)]  # fmt: skip
    head = "".join(_cell("th", column.heading, side) for column, side in zip(table.columns, right, strict=True))
    body = []
    for i, row in enumerate(table.rows):
        cells = "".join(_cell("td", column.show(value), side)
                        for column, value, side in zip(table.columns, row, right, strict=True))  # fmt: skip
        look = ' style="font-weight:bold"' if i == table.best else ""
        body.append(f"<tr{look}>{cells}</tr>")
    said = [f"<b>{_written(table.caption)}</b>"] * bool(table.caption)
    said += [f"<small>{_written(table.note)}</small>"] * bool(table.note)
    caption = f'<caption style="caption-side:top;text-align:left;color:inherit">{"<br>".join(said)}</caption>'
    return f"<table>{caption}{f'<thead><tr>{head}</tr></thead>' * heads}<tbody>{''.join(body)}</tbody></table>"


def _cell(tag: str, text: str, right: bool) -> str:
    return f'<{tag} style="text-align:{"right" if right else "left"};padding:2px 10px 2px 0">{_written(text)}</{tag}>'


def _written(text: str) -> str:
    r"""Return a text as HTML, its lines kept.

    >>> _written("a<b\nc")
    'a&lt;b<br>c'
    """
    return "<br>".join(escape(printable(line)) if line.strip() else "" for line in text.split("\n"))


def _graph(graph: OpGraph) -> Iterator[str]:
    codes, kinds = graph.labels("kind")
    counts = [(n, kinds[code]) for code, n in Counter(codes.tolist()).most_common()]
    listed = ", ".join(f"{n} {kind}" for n, kind in counts[:_LISTED]) + ", ..." * (len(counts) > _LISTED)
    facts = dict(graph_facts(graph)[1:]) | {"operators": f"{len(graph)}: {listed}"}
    facts |= {"width": str(graph.width)} if len(graph) <= _WIDE else {}
    yield _facts(f"OpGraph {graph.name}", facts.items())
    yield _drawing(graph, graph)


def _drawing(shown: OpGraph | Schedule, graph: OpGraph) -> str:
    if len(graph) > _DRAWN or len(graph.src) > 4 * _DRAWN:
        return ""
    return f'<div tabindex="0" style="max-height:640px;overflow:auto">{to_svg(shown)}</div>'


def _schedule(plan: Schedule) -> Iterator[str]:
    graph = plan.graph
    facts = {
        "scheduler": plan.scheduler, "graph": f"{graph.name}: {len(graph)} operators, {len(graph.src)} edges",
        "execution": plan.execution, "streams": str(plan.n_streams),
        "devices": ", ".join(plan.devices_used[:_LISTED]) + ", ..." * (len(plan.devices_used) > _LISTED),
    }  # fmt: skip
    facts |= {} if plan.estimate is None else {"estimate": format_time(plan.estimate)}
    yield _facts("Schedule", facts.items())
    yield _placements(plan)
    yield _drawing(plan, graph)


def _placements(plan: Schedule) -> str:
    """Return a row per stream: how many operators it has, and the first of them."""
    order = np.lexsort([plan.stream, plan.device])  # stable: launch order within a stream
    stream, device = plan.stream[order], plan.device[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(stream) != 0) | (np.diff(device) != 0)])
    rows: list[tuple[Any, ...]] = []
    for mine in np.split(order, starts[1:])[:_LISTED]:
        names = ", ".join(plan.graph.names[i] for i in plan.op[mine[:_NAMED]]) + ", ..." * (len(mine) > _NAMED)
        rows.append((plan.devices[plan.device[mine[0]]], int(plan.stream[mine[0]]), len(mine), names))
    if len(starts) > _LISTED:
        left = len(starts) - _LISTED
        rows.append(("...", f"{left} more", len(plan) - int(starts[_LISTED]), ""))
    return _table(Table("", tuple(map(Column, ("device", "stream", "operators", "in launch order"))), tuple(rows)))


def _trace(trace: Trace) -> Iterator[str]:
    graph = trace.graph
    facts = {"graph": f"{graph.name}: {len(graph)} operators, {len(graph.src)} edges", "cluster": trace.cluster.name,
             "makespan": format_time(trace.makespan)}  # fmt: skip
    many = len(trace.program) > _EXPLAINED  # its spans may not be made yet, and take a simulation
    more = (("instructions", f"{len(trace.program):,}"),) if many else run_facts(trace)[1:]
    yield _facts(f"Trace of {graph.name}", [*facts.items(), *more])
    if not many and trace.makespan and (trace.kind != HOST).sum() <= _BARS:
        yield chart(trace)


def chart(trace: Trace) -> str:
    """Return a row per stream, a bar per kernel or copy, as SVG: texts and lines take the colour of the page.

    Colours are those of `Trace.gantt`. Details of a bar are in its tooltip.
    """
    rows = rows_of([trace], host=False)
    several = len({row.device for row in rows}) > 1
    labels = [shortened(f"{row.device} {row.label}" if several else row.label, _SIZE, 160) for row in rows]
    left = 12 + max((text_width(label, _SIZE) for label in labels), default=0.0)
    scale = (_WIDTH - left - 12) / (trace.makespan or 1.0)
    places = [_TOP + _ROW * y for y in centres_of(rows)]
    bottom = places[-1] + _ROW / 2 + 2 if places else _TOP
    code, kinds = kinds_of(trace)
    entries = [(kind.colour, kind.name) for k, kind in enumerate(kinds)
               if kind.what in ("kernel", "copy") and (code == k).any()]  # fmt: skip
    meanings, last = legend(entries, _SIZE, left, bottom + 34, _WIDTH)
    said = escape(f"Gantt chart of {printable(trace.graph.name)} on {printable(trace.cluster.name)}")
    unit, name = time_unit(trace.makespan)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {last + 8:g}" width="{_WIDTH:g}" '
        f'height="{last + 8:g}" role="img" aria-label="{said}" font-family="sans-serif" font-size="{_SIZE:g}" '
        'fill="currentColor" style="max-width:100%;height:auto">',
        _text(left - 6, bottom + 13, name, "end"),
    ]
    step = _round_step(trace.makespan / unit / _TICKS)
    for k in range(int(trace.makespan / unit / step + 1e-9) + 1):
        x = left + k * step * unit * scale
        parts.append(f'<path d="M{x:.1f} {_TOP:g}V{bottom:.1f}" stroke="currentColor" stroke-opacity="0.2"/>')
        parts.append(_text(x, bottom + 13, f"{k * step:g}", "middle"))
    for row, label, y in zip(rows, labels, places, strict=True):
        parts += [_text(left - 6, y + 4, label, "end")] * row.first
        half = 0.42 * _ROW * row.height
        for i in row.spans.tolist():
            kind, said = kinds[code[i]], printable(trace.name(i))
            start, end = float(trace.start[i]), float(trace.end[i])
            x, width = left + start * scale, max((end - start) * scale - _GAP, _GAP)
            fill = f'fill="{kind.colour}"' if kind.what in ("kernel", "copy") else 'fill-opacity="0.12"'
            parts.append(
                f'<rect x="{x:.1f}" y="{y - half:.1f}" width="{width:.1f}" height="{2 * half:.1f}" {fill}>'
                f"<title>{escape(said)}: {KINDS[trace.kind[i]]}, {start:.1f} to {end:.1f} us</title></rect>"
            )
            if kind.what == "kernel" and text_width(said, _INSIDE) <= width - 4:
                look = f' font-size="{_INSIDE:g}" fill="{ink(kind.colour)}" pointer-events="none"'
                parts.append(_text(x + width / 2, y + 3, said, "middle", look))
    return "".join([*parts, meanings, "</svg>"])


def _text(x: float, y: float, text: str, anchor: str, look: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{look}>{escape(printable(text))}</text>'


def _round_step(least: float) -> float:
    """Return the least of 1, 2, 5, 10, ... times a power of ten that is no smaller.

    >>> _round_step(0.3), _round_step(17.0), _round_step(2.0)
    (0.5, 20.0, 2.0)
    """
    power = 10.0 ** int(np.floor(np.log10(least)))
    return next(k * power for k in (1.0, 2.0, 5.0, 10.0) if k * power >= least * (1 - 1e-9))
