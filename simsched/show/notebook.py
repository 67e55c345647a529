"""HTML of graphs, schedules, traces and tables for notebooks, in the colours of the page."""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import singledispatch
from html import escape
from typing import Any, Final

import numpy as np

from simsched.base.numeric import group_by_key
from simsched.base.units import format_time
from simsched.experiments.result import TextTable, table_of
from simsched.model import Cluster, OpGraph, Schedule
from simsched.model.trace import Trace
from simsched.show.drawing import to_svg
from simsched.show.facts import cluster_pairs, graph_facts, head_facts, run_facts, short, texts
from simsched.show.gantt import gantt
from simsched.show.markup import printable
from simsched.show.paper import encode, style
from simsched.simulator import Makespans

_DRAWN: Final = 60  # operators, and four times as many edges: a drawing up to this is read at a glance
_EXPLAINED: Final = 100_000  # instructions whose spans are computed in some tenths of a second
_WIDE: Final = 2_000  # operators up to which the width is found at once
# streams; operators of one
_LISTED = 24
_NAMED = 6


def html(shown: Any) -> str:
    """Return a graph, a cluster, a schedule, a trace, sampled makespans, or any object with a `table`, as HTML.

    All given texts, names above all, are escaped. Pictures of graphs have a white background; all else takes the
    colours of the page, dark or light.
    """
    return f'<div style="max-width:100%;overflow-x:auto">{"".join(_parts(shown))}</div>'


@singledispatch
def _parts(found: Any) -> Iterator[str]:
    yield _table(found.table())


def _facts(title: str, rows: Iterable[tuple[str, str]]) -> str:
    return _table(table_of(title, ("", ""), short(rows), left=(0, 1)))


def _table(table: TextTable) -> str:
    """Return a table, its title and its notes above."""
    rows = [("th", "", table.headings)] * any(table.headings)
    rows += [("td", ' style="font-weight:bold"' * (i == table.best), row) for i, row in enumerate(table.rows)]
    lines = ""
    for tag, look, row in rows:
        sides = ("left" if c in table.left else "right" for c in range(len(row)))
        cells = (
            f'<{tag} style="text-align:{side};padding:2px 10px 2px 0">{_as_html(text)}</{tag}>'
            for side, text in zip(sides, row, strict=True)
        )
        lines += f"<tr{look}>{''.join(cells)}</tr>"
    paragraphs = [f"<b>{_as_html(table.title)}</b>"] * bool(table.title)
    paragraphs += [f"<small>{_as_html(table.note)}</small>"] * bool(table.note)
    caption = f'<caption style="caption-side:top;text-align:left;color:inherit">{"<br>".join(paragraphs)}</caption>'
    return f"<table>{caption}{lines}</table>"


def _as_html(text: str) -> str:
    r"""Return a text as HTML, its lines kept.

    >>> _as_html("a<b\nc")
    'a&lt;b<br>c'
    """
    return "<br>".join(escape(printable(line)) if line.strip() else "" for line in text.split("\n"))


@_parts.register
def _(graph: OpGraph) -> Iterator[str]:
    codes, kinds = graph.labels("kind")
    counts = ", ".join(f"{n} {kinds[code]}" for code, n in Counter(codes.tolist()).most_common())
    facts = [("work", format_time(float(np.nansum(graph.time)))), ("kinds", counts)]
    yield _facts(f"OpGraph {graph.name}", [*texts(graph_facts(graph, widest=_WIDE)[1:]), *facts])
    yield _drawing(graph, graph)


def _drawing(shown: OpGraph | Schedule, graph: OpGraph) -> str:
    if len(graph) > _DRAWN or len(graph.src) > 4 * _DRAWN:
        return ""
    return f'<div tabindex="0" style="max-height:640px;overflow:auto">{to_svg(shown)}</div>'


@_parts.register
def _(cluster: Cluster) -> Iterator[str]:
    yield _facts(f"Cluster {cluster.name}", cluster_pairs(cluster)[1:])


@_parts.register
def _(drawn: Makespans) -> Iterator[str]:
    figures = ((name, format_time(getattr(drawn, name))) for name in ("p50", "p95", "p99", "mean", "std"))
    yield _facts(f"{len(drawn)} makespans", figures)


@_parts.register
def _(plan: Schedule) -> Iterator[str]:
    graph = plan.graph
    facts = [
        ("scheduler", plan.scheduler),
        ("graph", f"{graph.name}: {len(graph)} operators, {len(graph.src)} edges"),
        ("execution", plan.execution),
        ("streams", str(plan.n_streams)),
        ("devices", ", ".join(plan.devices_used)),
    ]
    yield _facts("Schedule", facts if plan.estimate is None else [*facts, ("estimate", format_time(plan.estimate))])
    where = zip(plan.device.tolist(), plan.stream.tolist(), strict=True)
    streams = sorted(group_by_key(zip(where, plan.op.tolist(), strict=True)).items())
    rows = []
    for (device, stream), ops in streams[:_LISTED]:
        names = ", ".join(graph.names[i] for i in ops[:_NAMED]) + ", ..." * (len(ops) > _NAMED)
        rows.append((plan.devices[device], str(stream), str(len(ops)), names))
    if rest := streams[_LISTED:]:
        rows.append(("...", f"{len(rest)} more", str(sum(len(ops) for _, ops in rest)), ""))
    yield _table(table_of("", ("device", "stream", "operators", "in launch order"), rows, left=(0, 3)))
    yield _drawing(plan, graph)


@_parts.register
def _(trace: Trace) -> Iterator[str]:
    title = f"Trace of {trace.graph.name}"
    if len(trace.program) > _EXPLAINED:  # its spans may not be made yet, and take a simulation
        yield _facts(title, [*texts(head_facts(trace)), ("instructions", f"{len(trace.program):,}")])
        return
    yield _facts(title, texts(run_facts(trace)))
    with style("x"):
        picture = b64encode(encode(gantt(trace), "png")).decode()
    yield f'<img alt="Gantt chart" style="max-width:100%" src="data:image/png;base64,{picture}">'
