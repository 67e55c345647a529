"""What a page says of each kind of result: its words, its table, its charts, and what runs when."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from simsched.base.errors import ReportError, SimschedError
from simsched.base.numeric import grouped
from simsched.base.units import format_time
from simsched.model import Cluster, OpGraph
from simsched.model.profile import Replay
from simsched.model.trace import Trace
from simsched.show.chart import Axis, Chart, named, timed
from simsched.show.facts import cluster_pairs, graph_facts, pairs, replay_facts, run_facts, short
from simsched.show.report.figures import figure_of
from simsched.show.report.sections import Block, Figure, Gantt, Pairs, Section, Table, Tabs, Text, printed
from simsched.show.results import boxes_of, chart_of

if TYPE_CHECKING:
    from simsched.experiments import accuracy, advise, comparison, study, whatif

_logger = logging.getLogger(__name__)

MOST_SPANS: Final = 40_000
"""Spans of all Gantt charts of a comparison; the best schedule has one however many spans it has."""
_MOST_CHARTS: Final = 4  # of a validation
_HEADINGS: Final = {
    "sweep": "Makespans", "sensitivity": "What the makespan depends on", "breakeven": "Break-even",
    "explanation": "What bounds it", "robustness": "When times vary", "throughput": "Throughput",
}  # fmt: skip


def sections_of(result: Any) -> Iterable[Section]:
    """Return the sections of one result: those of its kind, or what its ``report_sections()`` returns.

    Raises
    ------
    ReportError
        If it is of no kind that is known.
    """
    if isinstance(result, Section):
        return (result,)
    if hasattr(result, "report_sections"):
        own: Iterable[Section] = result.report_sections()
        return own
    for kind in type(result).__mro__:
        if kind.__name__ in _MAKERS and kind.__module__.startswith("simsched."):
            return _MAKERS[kind.__name__](result)
    raise ReportError(f"no report is known of a {type(result).__name__}; known are: {', '.join(_MAKERS)}, Section")


def parameters(graph: OpGraph, cluster: Cluster) -> Section:
    """Return what was scheduled and on what."""
    workload = short(pairs(graph_facts(graph, cluster.devices[0], widest=None)))
    return Section("Parameters", (Pairs("Workload", workload), Pairs("Cluster", short(cluster_pairs(cluster)))))


def _finding(found: Any) -> Sequence[Section]:
    """Return what an analysis says of itself: its sentences, its chart and its table."""
    blocks: list[Block] = [Text(sentence) for sentence in found.sentences] if found.view == "explanation" else []
    try:
        blocks.append(figure_of(chart_of(found)))
    except SimschedError as error:
        blocks.append(Text(str(error), "note"))
    table = printed(found.table())
    if found.view == "explanation":  # its sentences stand above
        table = replace(table, note="")
    blocks += [table] * bool(table.rows)
    return (Section(f"{_HEADINGS.get(found.view, found.view)}: {table.caption}", tuple(blocks)),)


def _comparison(found: "comparison.Comparison") -> Sequence[Section]:
    """Return which schedule to run, and how all compare."""
    from simsched.experiments.whatif.explain import explain

    title, best = f"{found.graph.name} on {found.cluster.name}", found.best()
    about = parameters(found.graph, found.cluster)
    if best is None:
        text = Text("No scheduler found a schedule; the table says why.", "warning")
        return (Section(title, (text, printed(found.table()))), about)
    by_time = sorted(found.rows, key=lambda row: inf if row.makespan_us is None else row.makespan_us)
    table = printed(replace(found, rows=tuple(by_time)).table(), mark="fastest")
    blocks: list[Block] = [Text(_lead(found, best), "lead"), table]
    rows = [row for row in by_time if row.scheduler in found.traces]
    speedups = {row.scheduler: row.speedup for row in rows if row.speedup is not None}
    if speedups:
        blocks.append(figure_of(Chart("bar", named(speedups), y=Axis("speedup over sequential"), reference=1.0)))
    traces = {row.scheduler: found.traces[row.scheduler] for row in rows}
    blocks.append(_blames(traces))
    blocks += [figure_of(chart_of(found))] if found.samples else []
    sections = [Section(title, tuple(blocks)), _runs(traces, "Schedulers")]
    try:
        sections += _finding(explain(found.plans[best.scheduler], found.cluster, found.cost))
    except SimschedError as error:
        _logger.warning("%s is not explained: %s", best.scheduler, error)
    return (*sections, about)


def _lead(found: "comparison.Comparison", best: "comparison.Row") -> str:
    """Return in two sentences which schedule is fastest, by how much, and from which it is not told apart."""
    text = f"{best.scheduler} is simulated fastest: {format_time(best.makespan_us or 0.0)}"
    if best.speedup is not None and best.scheduler != "sequential":
        text += f", {best.speedup:.2f} times as fast as one operator after the other"
        if found.doubt is not None and best.speedup_low is not None:
            text += f" ({best.speedup_low:.1f}-{best.speedup_high:.1f} with 90 %, {found.doubt.basis})"
    if best.over_bound is not None:
        text += f", {100 * (best.over_bound - 1):.1f} % above the lower bound"
    alike = [row for row in found.rows if row.place == 1 and row is not best]
    alike.sort(key=lambda row: row.makespan_us or 0.0)
    named = ", ".join(row.scheduler for row in alike[:3]) + (f" and {len(alike) - 3} more" if len(alike) > 3 else "")
    return f"{text}." + (f" Not told apart at 90 % from {named}: measure them." if alike else "")


def _advice(found: "advise.Advice") -> Sequence[Section]:
    """Return what to deploy, what to type next and what was assumed, before how all schedulers compare."""
    table = replace(printed(found.table()), note="\n".join(found.notes()))
    lines = Table.of("What to type next", ("to", "type"), found.commands.items())
    blocks = (Text(" ".join(found.verdict), "lead"), table, lines, Pairs.of("What was assumed", found.assumed))
    section = Section(f"What to deploy: {found.graph} on {found.cluster}", blocks)
    return (section, *(() if found.comparison is None else _comparison(found.comparison)))


def _blames(traces: Mapping[str, Trace]) -> Figure:
    """Return a bar for each run, of what its critical path is blamed on."""
    blames = {name: trace.critical_path().blame for name, trace in traces.items()}
    causes = [cause for cause in next(iter(blames.values())) if any(blame[cause] > 0 for blame in blames.values())]
    series = {cause: {name: blame[cause] for name, blame in blames.items()} for cause in causes}
    series = series or {"nothing": dict.fromkeys(blames, 0.0)}
    title = "Where the time of the critical path goes"
    return figure_of(timed(Chart("stack", series, Axis("critical path"), title=title)))


def _runs(traces: Mapping[str, Trace], label: str) -> Section:
    """Return Gantt charts to choose among, as many as the page has room for."""
    panels: list[tuple[str, tuple[Block, ...]]] = []
    left, spans = [], 0
    for name, trace in traces.items():
        n = len(trace.program)  # known without making spans, and about as many
        if panels and spans + n > MOST_SPANS:
            left.append(name)
            continue
        spans += n
        panels.append((name, (_run(trace), Gantt(f"{name}: what runs when", trace))))
    notes = (Text(f"Not drawn, to keep the page small: {', '.join(left)}.", "note"),) if left else ()
    return Section("What runs when", (Tabs(label, tuple(panels)), *notes))


def _answer(answer: "whatif.Answer") -> Sequence[Section]:
    """Return what changes do to the makespan: before, after and the difference."""
    traces = {name: case.trace for name, case in answer.runs.items()}
    lead = (
        f"{answer.before.schedule.graph.name} takes {format_time(answer.makespan)} instead of "
        f"{format_time(answer.makespan_before)}: {format_time(abs(answer.difference))} "
        f"{'less' if answer.difference < 0 else 'more'}, {answer.speedup:.3g} times as fast."
    )
    about = [Section(name, parameters(case.graph, case.cluster).blocks)
             for name, case in (("Before", answer.before), ("After", answer.after))]  # fmt: skip
    blocks = (Text(lead, "lead"), printed(answer.table(), mark="in all"), _blames(traces))
    return Section(answer.title, blocks), _runs(traces, "Before and after"), Section("Parameters", tuple(about))


def _trace(trace: Trace) -> Sequence[Section]:
    name = f"{trace.graph.name} on {trace.cluster.name}"
    blocks = (_run(trace), Gantt(f"What runs when: {name}", trace), _blames({"critical path": trace}))
    return (Section(name, (*blocks, parameters(trace.graph, trace.cluster))),)


def _run(trace: Trace) -> Pairs:
    return Pairs("What the run came to", (("execution", trace.program.execution), *short(pairs(run_facts(trace)[2:]))))


def replay_sections(replay: Replay, simulated: Trace | None = None) -> Sequence[Section]:
    """Return what was measured, beside a prediction if there is one."""
    found, trace = replay.summary, replay.trace
    said = Pairs.of("What was measured", dict(pairs(replay_facts(replay)[1:])) | dict(replay.environment))
    blocks: tuple[Block, ...] = (said, Gantt("What ran when", trace))
    if simulated is not None:
        off = f": {100 * (simulated.makespan / found.median - 1):+.1f} %" if found.median else ""
        text = f"Simulated {format_time(simulated.makespan)}, measured {format_time(found.median)}{off}."
        blocks = (Text(text, "lead"), said, Gantt("Simulated over measured", simulated, trace))
    boxes = figure_of(boxes_of({replay.name: replay.latency}, "Latencies of the repeats"))
    blocks += (boxes, parameters(trace.graph, trace.cluster))
    return (Section(f"{replay.name}: {trace.graph.name} measured", blocks),)


def _study(results: "study.Results") -> Sequence[Section]:
    """Return means, figures, how far a study is, what its searches say, and what it is made of."""
    from simsched.experiments.study.grid import swept_columns
    from simsched.show.study import charts_of

    done = [row for row in results.rows if row["status"] == "ok"]
    text = f"{len(results.rows):,} of {len(results):,} rows are there, {len(done):,} of them with a result."
    facts = {key: value if isinstance(value, str) else json.dumps(value)
             for key, value in results.study.to_dict().items() if value not in ((), [], {})}  # fmt: skip
    facts["time of all rows"] = format_time(sum(row.get("wall.row_s") or 0.0 for row in results.rows) * 1e6)
    facts |= {"folder": str(results.folder)} if results.folder is not None else {}
    about, status = Section("Parameters", (Pairs.of("The study", facts),)), printed(results.status())
    if not done:
        return (Section(results.study.name, (Text(text, "warning"), status)), about)
    speedups = grouped((row["scheduler"], row["speedup"]) for row in done if row.get("speedup") is not None)
    said = grouped(
        ((row["scheduler"], key.removeprefix("search.")), float(value))
        for row in done
        for key, value in row.items()
        if key.startswith("search.") and isinstance(value, int | float)
    )
    if speedups:
        best = max(speedups, key=lambda name: fmean(speedups[name]))
        text = f"{best} has the best mean speedup over all points, {fmean(speedups[best]):.2f}. {text}"
    charts = charts_of(results.rows, results.study.figure, swept_columns(results.study))
    figures = (figure_of(chart) if isinstance(chart, Chart) else Text(f"{name} is not drawn: {chart}", "note")
               for name, chart in charts)  # fmt: skip
    cells = [(*name, fmean(values), min(values), max(values)) for name, values in said.items()]
    headings = ("scheduler", "figure", "mean", "least", "most")
    searched = (Table.of("What searches say, over all rows", headings, cells),) if cells else ()
    first = Section(results.study.name, (Text(text, "lead"), printed(results.table())))
    return first, Section("Figures", tuple(figures)), Section("Rows and searches", (status, *searched)), about


def _accuracy(found: "accuracy.Accuracy") -> Sequence[Section]:
    """Return how well predictions met measurements, with the charts of the simulator's first choices."""
    from simsched.experiments.accuracy.accuracy import percent

    last, n = found.rounds[-1], len(found.rounds)
    text = (
        f"After {n} round{'' if n == 1 else 's'} predictions of schedules that no fit has seen are off by "
        f"{percent(last.mean_error)} on average; {percent(last.uncalibrated_error)} before calibration."
    )
    text = " ".join((text, *found.verdict()))
    note = "bars: from the 10th to the 90th percentile of what was measured; hollow: a fit has seen it"
    blocks = (Text(text, "lead"), printed(found.summary()), figure_of(chart_of(found)), Text(note, "note"),
              printed(found.table(), mark="predicted fastest"))  # fmt: skip
    made = sorted((row for row in last.schedules if row.scheduler in found.traces and not row.is_random),
                  key=lambda row: row.predicted_us or 0.0)  # fmt: skip
    panels = tuple((row.scheduler, (Gantt(f"{row.scheduler}: simulated over measured", trace, replay.trace),))
                   for row in made[:_MOST_CHARTS] for trace, replay in (found.traces[row.scheduler],))  # fmt: skip
    charts = (Section("What ran when", (Tabs("Schedulers", panels),)),) if panels else ()
    ran = {"device": found.device, "seed": str(found.seed)} | dict(found.environment)
    head, *fitted = found.calibration.table()
    table = Table.of("Fitted parameters, in us and bytes per us", head, fitted)
    about = parameters(next(iter(found.traces.values()))[0].graph, found.calibration.cluster)
    title = f"{found.graph} on {found.backend}: predicted against measured"
    last_section = Section("Parameters", (Pairs.of("What was measured on", ran), table, *about.blocks))
    return (Section(title, blocks), *charts, last_section)


# by the names of classes: none of their packages is imported for nothing
_MAKERS: Final[Mapping[str, Callable[[Any], Sequence[Section]]]] = {
    "Comparison": _comparison, "Advice": _advice, "Results": _study, "Accuracy": _accuracy,
    "WhatIf": lambda asked: _answer(asked.answer()), "Answer": _answer, "Trace": _trace, "Replay": replay_sections,
    "Result": _finding,
}  # fmt: skip
