"""Sections of a comparison of schedulers."""

import logging
from typing import Any, Final

from simsched.base.errors import SimschedError
from simsched.base.units import MIB
from simsched.experiments.comparison import Comparison, Row
from simsched.show.report.describe import parameters, run_facts, searches
from simsched.show.report.figures import bars, boxes, stacks, time_axis
from simsched.show.report.recommend import recommended, why
from simsched.show.report.sections import Block, Column, Gantt, Section, Table, Tabs, Text, percent_column, time_column

_logger = logging.getLogger(__name__)

MOST_SPANS: Final = 40_000
"""Spans of all Gantt charts of a comparison; the best schedule has one however many spans it has."""


def comparison_sections(comparison: Comparison) -> tuple[Section, ...]:
    """Return which schedule to run, and how all compare."""
    title = f"{comparison.graph.name} on {comparison.cluster.name}"
    chosen = recommended(comparison)
    if chosen is None:
        text = Text("No scheduler found a schedule; the table says why.", "warning")
        return (Section(title, (text, _table(comparison, None))), _about(comparison))
    blocks: list[Any] = [Text(why(comparison, chosen), "lead"), _table(comparison, chosen)]
    speedups = {row.scheduler: (row.speedup,) for row in comparison.rows if row.speedup is not None}
    if speedups:
        blocks.append(bars("Speedup over one operator after the other", speedups, "speedup", reference=1.0))
    order = _order(comparison, chosen)
    blames = {name: comparison.traces[name].critical_path().blame for name in order}
    blocks.append(stacks("Where the time of the critical path goes", blames))
    if comparison.samples:
        scale, label = time_axis("makespan", [drawn.p99 for drawn in comparison.samples.values()])
        drawn = {name: each.values / scale for name, each in comparison.samples.items()}
        blocks.append(boxes("Makespans of runs that vary", drawn, label, note=str(comparison.sampling)))
    sections = [Section(title, tuple(blocks)), Section("What runs when", _charts(comparison, order))]
    sections += _explained(comparison, chosen)
    return (*sections, _about(comparison))


def _order(comparison: Comparison, chosen: Row) -> list[str]:
    """Return the schedulers that have a trace: the recommended one, then the others by makespan."""
    rows = sorted((row for row in comparison.rows if row.makespan_us is not None and row is not chosen),
                  key=lambda row: row.makespan_us or 0.0)  # fmt: skip
    return [row.scheduler for row in (chosen, *rows) if row.scheduler in comparison.traces]


def _charts(comparison: Comparison, order: list[str]) -> tuple[Any, ...]:
    """Return Gantt charts to choose among, as many as the page has room for."""
    panels: list[tuple[str, tuple[Block, ...]]] = []
    left, spans = [], 0
    for name in order:
        trace = comparison.traces[name]
        n = len(trace.program)  # known without making spans, and about as many
        if panels and spans + n > MOST_SPANS:
            left.append(name)
            continue
        spans += n
        panels.append((name, (run_facts(trace), Gantt(f"{name}: what runs when", trace))))
    notes = [Text(f"Not drawn, to keep the page small: {', '.join(left)}.", "note")] if left else []
    return (Tabs("Schedulers", tuple(panels)), *notes)


def _table(comparison: Comparison, chosen: Row | None) -> Table:
    rows = comparison.rows
    sampled = comparison.sampling is not None
    columns: list[tuple[Column, str]] = [
        (Column("scheduler"), "scheduler"),
        (time_column("makespan", [row.makespan_us for row in rows]), "makespan_us"),
        *([(time_column(f"p{q}", [getattr(row, f"p{q}_us") for row in rows]), f"p{q}_us") for q in (50, 95, 99)]
          if sampled else []),
        (time_column("estimate", [row.estimate_us for row in rows]), "estimate_us"),
        (Column("speedup", 2, suffix="x"), "speedup"),
        (Column("over bound", 2), "over_bound"),
        (Column("streams"), "streams"),
        (Column("devices"), "devices"),
        (Column("syncs"), "syncs"),
        (Column("memory (MiB)", 1, MIB), "peak_memory_bytes"),
        (percent_column("SM efficiency"), "sm_efficiency"),
        (Column("search (s)", 3), "search_s"),
    ]  # fmt: skip
    notes = ["over bound: makespan over a lower bound that no schedule beats"]
    if comparison.sampling is not None:
        notes.append(f"p50, p95 and p99 of {comparison.sampling}; all else without jitter")
    notes += [f"{row.scheduler}: no schedule: {row.reason}" for row in rows if row.reason]
    notes += [f"{row.scheduler}: {row.warning}" for row in rows if row.warning]
    cells = tuple(tuple(getattr(row, name) for _, name in columns) for row in rows)
    best = None if chosen is None else rows.index(chosen)
    caption = f"{len(rows)} schedulers on {comparison.cluster.name}"
    return Table(caption, tuple(c for c, _ in columns), cells, best, "recommended", "\n".join(notes))


def _explained(comparison: Comparison, chosen: Row) -> list[Section]:
    """Return what bounds the recommended schedule, if its trace is without jitter."""
    from simsched.experiments.whatif.explain import explain
    from simsched.show.report.of_analyses import explanation_sections

    try:
        found = explain(comparison.plans[chosen.scheduler], comparison.cluster, comparison.cost)
    except SimschedError as error:
        _logger.warning("%s is not explained: %s", chosen.scheduler, error)
        return []
    return list(explanation_sections(found))


def _about(comparison: Comparison) -> Section:
    section = parameters(comparison.graph, comparison.cluster)
    said = searches(comparison.plans)
    return Section(section.title, (*section.blocks, *([] if said is None else [said])))
