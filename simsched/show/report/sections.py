"""Sections of a report by the kind of result that they show."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from simsched.base.errors import ReportError, SimschedError
from simsched.base.numeric import group_by_key
from simsched.base.text import join_lines
from simsched.base.units import format_gain, format_time
from simsched.experiments.result import Result, table_of
from simsched.model import Cluster, OpGraph
from simsched.model.profile import Replay
from simsched.model.trace import Trace
from simsched.show.chart import Axis, Chart, by_name, in_time_unit, number
from simsched.show.facts import cluster_pairs, graph_facts, replay_facts, run_facts, short, texts
from simsched.show.report.blocks import MOST_SPANS, Section, figure, gantt, pairs, table, tabs, text
from simsched.show.results import boxes_of, chart_of

if TYPE_CHECKING:
    from simsched.experiments import accuracy, advise, comparison, duel, study, whatif
    from simsched.experiments.rows import Row

_logger = logging.getLogger(__name__)

_MOST_CHARTS: Final = 4  # of a validation
_HEADINGS: Final = {
    "sweep": "Makespans",
    "sensitivity": "What the makespan depends on",
    "breakeven": "Break-even",
    "explanation": "What bounds it",
    "robustness": "When times vary",
    "throughput": "Throughput",
}


def sections_of(result: Any) -> Sequence[Section]:
    """Return the sections of one result.

    Raises
    ------
    ReportError
        If no section shows results of its type.
    """
    if isinstance(result, Section):
        return (result,)
    if isinstance(result, Result):
        return _MAKERS.get(result.VIEW, _finding)(result)
    if isinstance(result, Trace):
        name = f"{result.graph.name} on {result.cluster.name}"
        blames = _blames({"critical path": result})
        about = _parameters(result.graph, result.cluster)
        return (Section(name, _run(result), gantt(f"What runs when: {name}", result), blames, about),)
    if isinstance(result, Replay):
        return replay_sections(result)
    raise ReportError(f"no report is known of a {type(result).__name__}: give a result, a trace or a replay")


def _parameters(graph: OpGraph, cluster: Cluster) -> str:
    """Return the graph, the cluster and the options."""
    workload = short(texts(graph_facts(graph, cluster.devices[0], widest=None)))
    return pairs("Workload", workload) + pairs("Cluster", short(cluster_pairs(cluster)))


def _finding(found: Any) -> Sequence[Section]:
    """Return the section of a finding: its sentences, its chart and its table."""
    shown = found.table()
    blocks = []
    if found.VIEW == "explanation":
        blocks = [text(sentence) for sentence in found.sentences]
        shown = shown._replace(note="")
    try:
        blocks.append(figure(chart_of(found)))
    except SimschedError as error:
        blocks.append(text(str(error), "note"))
    if shown.rows:
        blocks += [table(shown)]
    return (Section(f"{_HEADINGS.get(found.VIEW, found.VIEW)}: {shown.title}", *blocks),)


def _comparison(found: "comparison.Comparison") -> Sequence[Section]:
    """Return the sections of a comparison: the schedule to run, then all schedules beside each other."""
    from simsched.experiments.whatif.explain import explain

    title = f"{found.graph.name} on {found.cluster.name}"
    best = found.best()
    about = Section("Parameters", _parameters(found.graph, found.cluster))
    if best is None:
        none = text("No scheduler found a schedule; the table says why.", "warning")
        return (Section(title, none, table(found.table())), about)
    by_time = sorted(found.rows, key=lambda row: inf if row.makespan_us is None else row.makespan_us)
    blocks = [text(_lead(found, best), "lead"), table(replace(found, rows=tuple(by_time)).table(), "fastest")]
    traces = {row.scheduler: found.traces[row.scheduler] for row in by_time if row.scheduler in found.traces}
    speedups = {row.scheduler: row.speedup for row in by_time if row.scheduler in traces and row.speedup is not None}
    if speedups:
        blocks.append(figure(Chart("bar", by_name(speedups), y=Axis(f"speedup over {found.baseline}"), reference=1.0)))
    blocks.append(_blames(traces))
    if found.samples:
        blocks += [figure(chart_of(found))]
    sections = [Section(title, *blocks), _runs(traces, "Schedulers")]
    try:
        sections += _finding(explain(found.plans[best.scheduler], found.cluster, found.cost))
    except SimschedError as error:
        _logger.warning("%s is not explained: %s", best.scheduler, error)
    return (*sections, about)


def _lead(found: "comparison.Comparison", best: "Row") -> str:
    """Return two sentences: the fastest schedule with its gain, and the schedules that are not certainly slower."""
    sentence = f"{best.scheduler} is simulated fastest: {format_time(best.makespan_us or 0.0)}"
    if best.speedup is not None and best.scheduler != found.baseline:
        if found.doubt is None:
            note = ""
        else:
            note = f" with 90 %, {found.doubt.basis}"
        gain = format_gain(best.speedup, best.speedup_low, best.speedup_high, " times", note)
        sentence += f", {gain} as fast as {found.baseline}"
    if best.over_bound is not None:
        sentence += f", {100 * (best.over_bound - 1):.1f} % above the lower bound"
    alike = [row for row in found.rows if row.place == 1 and row is not best]
    alike.sort(key=lambda row: row.makespan_us or 0.0)
    rivals = ", ".join(row.scheduler for row in alike[:3]) + (f" and {len(alike) - 3} more" if len(alike) > 3 else "")
    return f"{sentence}." + (f" Not told apart at 90 % from {rivals}: measure them." if alike else "")


def _advice(found: "advise.Advice") -> Sequence[Section]:
    """Return the sections of an advice: commands to type next and assumptions, then the comparison of schedulers."""
    deploy = Section(
        f"What to deploy: {found.graph} on {found.cluster}",
        text(" ".join(found.verdict), "lead"),
        table(found.table()._replace(note=join_lines(found.notes()))),
        table(table_of("What to type next", ("to", "type"), found.commands.items(), left=(0, 1))),
        pairs("What was assumed", found.assumed.items()),
    )
    return (deploy, *(() if found.comparison is None else _comparison(found.comparison)))


def _blames(traces: Mapping[str, Trace]) -> str:
    """Return a bar for each run: its critical path's time by cause."""
    blames = {name: trace.critical_path().blame for name, trace in traces.items()}
    causes = [cause for cause in next(iter(blames.values())) if any(blame[cause] > 0 for blame in blames.values())]
    series = {cause: {name: blame[cause] for name, blame in blames.items()} for cause in causes}
    series = series or {"nothing": dict.fromkeys(blames, 0.0)}
    title = "Where the time of the critical path goes"
    return figure(in_time_unit(Chart("stack", series, y=Axis("critical path"), title=title)))


def _runs(traces: Mapping[str, Trace], label: str) -> Section:
    """Return Gantt charts to choose among, as many as the page has room for."""
    spans = accumulate(len(trace.program) for trace in traces.values())  # about as many, and known without making any
    drawn = [name for name, n in zip(traces, spans, strict=True) if n <= MOST_SPANS] or list(traces)[:1]
    panels = {name: _run(traces[name]) + gantt(f"{name}: what runs when", traces[name]) for name in drawn}
    left = ", ".join(name for name in traces if name not in panels)
    if left:
        note = text(f"Not drawn, to keep the page small: {left}.", "note")
    else:
        note = ""
    return Section("What runs when", tabs(label, panels), note)


def _duel(found: "duel.Duel") -> Sequence[Section]:
    """Return the reasons why one schedule loses to another: time by cause, traces, and bottlenecks of both."""
    traces = found.traces
    shown = found.table()
    reasons = [text(sentence, "lead" if i == 0 else "") for i, sentence in enumerate(found.reasons)]
    first = Section(shown.title, *reasons, table(shown._replace(note="")), _blames(traces))
    return first, _runs(traces, "Schedulers"), Section("Parameters", _parameters(found.graph, found.cluster))


def _answer(answer: "whatif.Answer") -> Sequence[Section]:
    """Return the section of a what-if answer: the makespan before and after changes, and the difference."""
    traces = {name: case.trace for name, case in answer.runs.items()}
    lead = (
        f"{answer.before.schedule.graph.name} takes {format_time(answer.makespan)} instead of "
        f"{format_time(answer.makespan_before)}: {format_time(abs(answer.difference))} "
        f"{'less' if answer.difference < 0 else 'more'}, {answer.speedup:.3g} times as fast."
    )
    about = [
        Section(f"Parameters {when}", _parameters(case.graph, case.cluster))
        for when, case in (("before", answer.before), ("after", answer.after))
    ]
    first = Section(answer.title, text(lead, "lead"), table(answer.table(), "in all"), _blames(traces))
    return first, _runs(traces, "Before and after"), *about


def _run(trace: Trace) -> str:
    return pairs("What the run came to", (("execution", trace.program.execution), *short(texts(run_facts(trace)[2:]))))


def replay_sections(replay: Replay, simulated: Trace | None = None) -> Sequence[Section]:
    """Return the sections of a replay: measurements, beside a prediction if there is one."""
    summary = replay.summary
    trace = replay.trace
    lead = ""
    chart = gantt("What ran when", replay.trace)
    if simulated is not None:
        if summary.median:
            off = f": {100 * (simulated.makespan / summary.median - 1):+.1f} %"
        else:
            off = ""
        lead = f"Simulated {format_time(simulated.makespan)}, measured {format_time(summary.median)}{off}."
        chart = gantt("Simulated over measured", simulated, trace)
    facts = dict(texts(replay_facts(replay)[1:])) | dict(replay.environment)
    boxes = figure(boxes_of({replay.name: replay.latency}, "Latencies of the repeats"))
    return (
        Section(
            f"{replay.name}: {trace.graph.name} measured",
            text(lead, "lead"),
            pairs("What was measured", facts.items()),
            chart,
            boxes,
            _parameters(trace.graph, trace.cluster),
        ),
    )


def _study(results: "study.Results") -> Sequence[Section]:
    """Return the sections of a study: means, figures, progress, search statistics, and inputs."""
    from simsched.experiments.study.study import swept_columns
    from simsched.show.study import charts_of

    done = [row for row in results.rows if row["status"] == "ok"]
    lead = f"{len(results.rows):,} of {len(results):,} rows are there, {len(done):,} of them with a result."
    facts = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in results.study.to_dict().items()
        if value not in ((), [], {})
    }
    facts["time of all rows"] = format_time(sum(row.get("wall.row_s") or 0.0 for row in results.rows) * 1e6)
    if results.folder is not None:
        facts |= {"folder": str(results.folder)}
    about = Section("Parameters", pairs("The study", facts.items()))
    status = table(results.status())
    if not done:
        return (Section(results.study.name, text(lead, "warning"), status), about)
    speedups = group_by_key((row["scheduler"], row["speedup"]) for row in done if row.get("speedup") is not None)
    spellings = group_by_key(
        ((row["scheduler"], key.removeprefix("search.")), float(value))
        for row in done
        for key, value in row.items()
        if key.startswith("search.") and isinstance(value, int | float)
    )
    if speedups:
        best = max(speedups, key=lambda name: fmean(speedups[name]))
        lead = f"{best} has the best mean speedup over all points, {fmean(speedups[best]):.2f}. {lead}"
    charts = charts_of(results.rows, results.study.figure, swept_columns(results.study))
    figures = (
        figure(chart) if isinstance(chart, Chart) else text(f"{name} is not drawn: {chart}", "note")
        for name, chart in charts
    )
    cells = [(*name, *map(number, (fmean(values), min(values), max(values)))) for name, values in spellings.items()]
    headings = ("scheduler", "figure", "mean", "least", "most")
    if cells:
        searched = table(table_of("What searches say, over all rows", headings, cells, left=(0, 1)))
    else:
        searched = ""
    first = Section(results.study.name, text(lead, "lead"), table(results.table()))
    return first, Section("Figures", *figures), Section("Rows and searches", status, searched), about


def _accuracy(found: "accuracy.Accuracy") -> Sequence[Section]:
    """Return the sections of a validation: errors of predictions, and charts of the simulator's first choices."""
    from simsched.experiments.rounds import percent

    last = found.rounds[-1]
    n = len(found.rounds)
    lead = (
        f"After {n} round{'' if n == 1 else 's'} predictions of schedules that no fit has seen are off by "
        f"{percent(last.mean_error)} on average; {percent(last.uncalibrated_error)} before calibration."
    )
    note = "bars: from the 10th to the 90th percentile of what was measured; hollow: a fit has seen it"
    blocks = (
        text(" ".join((lead, *found.verdict())), "lead"),
        table(found.summary()),
        figure(chart_of(found)),
        text(note, "note"),
        table(found.table(), "predicted fastest"),
    )
    rows = sorted(
        (row for row in last.schedules if row.scheduler in found.traces and not row.is_random),
        key=lambda row: row.predicted_us or 0.0,
    )
    panels = {
        row.scheduler: gantt(f"{row.scheduler}: simulated over measured", trace, replay.trace)
        for row in rows[:_MOST_CHARTS]
        for trace, replay in (found.traces[row.scheduler],)
    }
    charts = (Section("What ran when", tabs("Schedulers", panels)),) if panels else ()
    ran = {"device": found.device, "seed": str(found.seed)} | dict(found.environment)
    head, *fitted = found.calibration.table()
    fits = table(table_of("Fitted parameters, in us and bytes per us", head, fitted))
    graph = next(iter(found.traces.values()))[0].graph
    about = Section(
        "Parameters", pairs("What was measured on", ran.items()), fits, _parameters(graph, found.calibration.cluster)
    )
    title = f"{found.graph} on {found.backend}: predicted against measured"
    return Section(title, *blocks), *charts, about


# by the views of results: no package is imported without need
_MAKERS: Final[Mapping[str, Callable[[Any], Sequence[Section]]]] = {
    "comparison": _comparison,
    "advice": _advice,
    "results": _study,
    "accuracy": _accuracy,
    "duel": _duel,
    "whatif": lambda asked: _answer(asked.answer()),
    "answer": _answer,
}
