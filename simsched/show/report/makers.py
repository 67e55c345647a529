"""What a page says of each kind of result: its words, its table, its charts, and what runs when."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from simsched.base.errors import ReportError, SimschedError
from simsched.base.numeric import grouped
from simsched.base.units import format_time
from simsched.experiments.result import Result, table_of
from simsched.model import Cluster, OpGraph
from simsched.model.profile import Replay
from simsched.model.trace import Trace
from simsched.show.chart import Axis, Chart, named, number, timed
from simsched.show.facts import cluster_pairs, graph_facts, replay_facts, run_facts, short, texts
from simsched.show.report.blocks import Section, figure, gantt, pairs, section, table, tabs, text
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


def sections_of(result: Any) -> Sequence[Section]:
    """Return the sections of one result.

    Raises
    ------
    ReportError
        If it is none.
    """
    if isinstance(result, Section):
        return (result,)
    if isinstance(result, Result):
        return _MAKERS.get(result.view, _finding)(result)
    if isinstance(result, Trace):
        return _trace(result)
    if isinstance(result, Replay):
        return replay_sections(result)
    raise ReportError(f"no report is known of a {type(result).__name__}: give a result, a trace or a replay")


def _parameters(graph: OpGraph, cluster: Cluster) -> str:
    """Return what was scheduled and on what."""
    workload = short(texts(graph_facts(graph, cluster.devices[0], widest=None)))
    return pairs("Workload", workload) + pairs("Cluster", short(cluster_pairs(cluster)))


def _finding(found: Any) -> Sequence[Section]:
    """Return what an analysis says of itself: its sentences, its chart and its table."""
    shown, blocks = found.table(), []
    if found.view == "explanation":
        blocks, shown = [text(sentence) for sentence in found.sentences], shown._replace(note="")
    try:
        blocks.append(figure(chart_of(found)))
    except SimschedError as error:
        blocks.append(text(str(error), "note"))
    blocks += [table(shown)] if shown.rows else []
    return (section(f"{_HEADINGS.get(found.view, found.view)}: {shown.title}", *blocks),)


def _comparison(found: "comparison.Comparison") -> Sequence[Section]:
    """Return which schedule to run, and how all compare."""
    from simsched.experiments.whatif.explain import explain

    title, best = f"{found.graph.name} on {found.cluster.name}", found.best()
    about = section("Parameters", _parameters(found.graph, found.cluster))
    if best is None:
        none = text("No scheduler found a schedule; the table says why.", "warning")
        return (section(title, none, table(found.table())), about)
    by_time = sorted(found.rows, key=lambda row: inf if row.makespan_us is None else row.makespan_us)
    blocks = [text(_lead(found, best), "lead"), table(replace(found, rows=tuple(by_time)).table(), "fastest")]
    rows = [row for row in by_time if row.scheduler in found.traces]
    speedups = {row.scheduler: row.speedup for row in rows if row.speedup is not None}
    if speedups:
        blocks.append(figure(Chart("bar", named(speedups), y=Axis("speedup over sequential"), reference=1.0)))
    traces = {row.scheduler: found.traces[row.scheduler] for row in rows}
    blocks.append(_blames(traces))
    blocks += [figure(chart_of(found))] if found.samples else []
    sections = [section(title, *blocks), _runs(traces, "Schedulers")]
    try:
        sections += _finding(explain(found.plans[best.scheduler], found.cluster, found.cost))
    except SimschedError as error:
        _logger.warning("%s is not explained: %s", best.scheduler, error)
    return (*sections, about)


def _lead(found: "comparison.Comparison", best: "comparison.Row") -> str:
    """Return in two sentences which schedule is fastest, by how much, and from which it is not told apart."""
    said = f"{best.scheduler} is simulated fastest: {format_time(best.makespan_us or 0.0)}"
    if best.speedup is not None and best.scheduler != "sequential":
        said += f", {best.speedup:.2f} times as fast as one operator after the other"
        if found.doubt is not None and best.speedup_low is not None:
            said += f" ({best.speedup_low:.1f}-{best.speedup_high:.1f} with 90 %, {found.doubt.basis})"
    if best.over_bound is not None:
        said += f", {100 * (best.over_bound - 1):.1f} % above the lower bound"
    alike = [row for row in found.rows if row.place == 1 and row is not best]
    alike.sort(key=lambda row: row.makespan_us or 0.0)
    rivals = ", ".join(row.scheduler for row in alike[:3]) + (f" and {len(alike) - 3} more" if len(alike) > 3 else "")
    return f"{said}." + (f" Not told apart at 90 % from {rivals}: measure them." if alike else "")


def _advice(found: "advise.Advice") -> Sequence[Section]:
    """Return what to deploy, what to type next and what was assumed, before how all schedulers compare."""
    deploy = section(
        f"What to deploy: {found.graph} on {found.cluster}", text(" ".join(found.verdict), "lead"),
        table(found.table()._replace(note="\n".join(found.notes()))),
        table(table_of("What to type next", ("to", "type"), found.commands.items(), left=(0, 1))),
        pairs("What was assumed", found.assumed.items()),
    )  # fmt: skip
    return (deploy, *(() if found.comparison is None else _comparison(found.comparison)))


def _blames(traces: Mapping[str, Trace]) -> str:
    """Return a bar for each run, of what its critical path is blamed on."""
    blames = {name: trace.critical_path().blame for name, trace in traces.items()}
    causes = [cause for cause in next(iter(blames.values())) if any(blame[cause] > 0 for blame in blames.values())]
    series = {cause: {name: blame[cause] for name, blame in blames.items()} for cause in causes}
    series = series or {"nothing": dict.fromkeys(blames, 0.0)}
    title = "Where the time of the critical path goes"
    return figure(timed(Chart("stack", series, y=Axis("critical path"), title=title)))


def _runs(traces: Mapping[str, Trace], label: str) -> Section:
    """Return Gantt charts to choose among, as many as the page has room for."""
    panels: dict[str, str] = {}
    left, spans = [], 0
    for name, trace in traces.items():
        n = len(trace.program)  # known without making spans, and about as many
        if panels and spans + n > MOST_SPANS:
            left.append(name)
            continue
        spans += n
        panels[name] = _run(trace) + gantt(f"{name}: what runs when", trace)
    note = text(f"Not drawn, to keep the page small: {', '.join(left)}.", "note") if left else ""
    return section("What runs when", tabs(label, panels), note)


def _answer(answer: "whatif.Answer") -> Sequence[Section]:
    """Return what changes do to the makespan: before, after and the difference."""
    traces = {name: case.trace for name, case in answer.runs.items()}
    lead = (
        f"{answer.before.schedule.graph.name} takes {format_time(answer.makespan)} instead of "
        f"{format_time(answer.makespan_before)}: {format_time(abs(answer.difference))} "
        f"{'less' if answer.difference < 0 else 'more'}, {answer.speedup:.3g} times as fast."
    )
    about = [section(f"Parameters {when}", _parameters(case.graph, case.cluster))
             for when, case in (("before", answer.before), ("after", answer.after))]  # fmt: skip
    first = section(answer.title, text(lead, "lead"), table(answer.table(), "in all"), _blames(traces))
    return first, _runs(traces, "Before and after"), *about


def _trace(trace: Trace) -> Sequence[Section]:
    name = f"{trace.graph.name} on {trace.cluster.name}"
    blocks = (_run(trace), gantt(f"What runs when: {name}", trace), _blames({"critical path": trace}))
    return (section(name, *blocks, _parameters(trace.graph, trace.cluster)),)


def _run(trace: Trace) -> str:
    return pairs("What the run came to", (("execution", trace.program.execution), *short(texts(run_facts(trace)[2:]))))


def replay_sections(replay: Replay, simulated: Trace | None = None) -> Sequence[Section]:
    """Return what was measured, beside a prediction if there is one."""
    found, trace, lead, chart = replay.summary, replay.trace, "", gantt("What ran when", replay.trace)
    if simulated is not None:
        off = f": {100 * (simulated.makespan / found.median - 1):+.1f} %" if found.median else ""
        lead = f"Simulated {format_time(simulated.makespan)}, measured {format_time(found.median)}{off}."
        chart = gantt("Simulated over measured", simulated, trace)
    said = dict(texts(replay_facts(replay)[1:])) | dict(replay.environment)
    boxes = figure(boxes_of({replay.name: replay.latency}, "Latencies of the repeats"))
    return (section(f"{replay.name}: {trace.graph.name} measured", text(lead, "lead"),
                    pairs("What was measured", said.items()), chart, boxes,
                    _parameters(trace.graph, trace.cluster)),)  # fmt: skip


def _study(results: "study.Results") -> Sequence[Section]:
    """Return means, figures, how far a study is, what its searches say, and what it is made of."""
    from simsched.experiments.study.study import swept_columns
    from simsched.show.study import charts_of

    done = [row for row in results.rows if row["status"] == "ok"]
    lead = f"{len(results.rows):,} of {len(results):,} rows are there, {len(done):,} of them with a result."
    facts = {key: value if isinstance(value, str) else json.dumps(value)
             for key, value in results.study.to_dict().items() if value not in ((), [], {})}  # fmt: skip
    facts["time of all rows"] = format_time(sum(row.get("wall.row_s") or 0.0 for row in results.rows) * 1e6)
    facts |= {"folder": str(results.folder)} if results.folder is not None else {}
    about, status = section("Parameters", pairs("The study", facts.items())), table(results.status())
    if not done:
        return (section(results.study.name, text(lead, "warning"), status), about)
    speedups = grouped((row["scheduler"], row["speedup"]) for row in done if row.get("speedup") is not None)
    said = grouped(
        ((row["scheduler"], key.removeprefix("search.")), float(value))
        for row in done
        for key, value in row.items()
        if key.startswith("search.") and isinstance(value, int | float)
    )
    if speedups:
        best = max(speedups, key=lambda name: fmean(speedups[name]))
        lead = f"{best} has the best mean speedup over all points, {fmean(speedups[best]):.2f}. {lead}"
    charts = charts_of(results.rows, results.study.figure, swept_columns(results.study))
    figures = (figure(chart) if isinstance(chart, Chart) else text(f"{name} is not drawn: {chart}", "note")
               for name, chart in charts)  # fmt: skip
    cells = [(*name, *map(number, (fmean(values), min(values), max(values)))) for name, values in said.items()]
    headings = ("scheduler", "figure", "mean", "least", "most")
    searched = table(table_of("What searches say, over all rows", headings, cells, left=(0, 1))) if cells else ""
    first = section(results.study.name, text(lead, "lead"), table(results.table()))
    return first, section("Figures", *figures), section("Rows and searches", status, searched), about


def _accuracy(found: "accuracy.Accuracy") -> Sequence[Section]:
    """Return how well predictions met measurements, with the charts of the simulator's first choices."""
    from simsched.experiments.accuracy import percent

    last, n = found.rounds[-1], len(found.rounds)
    lead = (
        f"After {n} round{'' if n == 1 else 's'} predictions of schedules that no fit has seen are off by "
        f"{percent(last.mean_error)} on average; {percent(last.uncalibrated_error)} before calibration."
    )
    note = "bars: from the 10th to the 90th percentile of what was measured; hollow: a fit has seen it"
    blocks = (text(" ".join((lead, *found.verdict())), "lead"), table(found.summary()), figure(chart_of(found)),
              text(note, "note"), table(found.table(), "predicted fastest"))  # fmt: skip
    made = sorted((row for row in last.schedules if row.scheduler in found.traces and not row.is_random),
                  key=lambda row: row.predicted_us or 0.0)  # fmt: skip
    panels = {row.scheduler: gantt(f"{row.scheduler}: simulated over measured", trace, replay.trace)
              for row in made[:_MOST_CHARTS] for trace, replay in (found.traces[row.scheduler],)}  # fmt: skip
    charts = (section("What ran when", tabs("Schedulers", panels)),) if panels else ()
    ran = {"device": found.device, "seed": str(found.seed)} | dict(found.environment)
    head, *fitted = found.calibration.table()
    fits = table(table_of("Fitted parameters, in us and bytes per us", head, fitted))
    graph = next(iter(found.traces.values()))[0].graph
    about = section("Parameters", pairs("What was measured on", ran.items()), fits,
                    _parameters(graph, found.calibration.cluster))  # fmt: skip
    title = f"{found.graph} on {found.backend}: predicted against measured"
    return section(title, *blocks), *charts, about


# by the views of results: none of their packages is imported for nothing
_MAKERS: Final[Mapping[str, Callable[[Any], Sequence[Section]]]] = {
    "comparison": _comparison, "advice": _advice, "results": _study, "accuracy": _accuracy,
    "whatif": lambda asked: _answer(asked.answer()), "answer": _answer,
}  # fmt: skip
