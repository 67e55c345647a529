"""The page: one HTML file with its styles, scripts and numbers in it, and the sections of each kind of result."""

import json
import logging
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from itertools import accumulate
from math import inf
from platform import python_version
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from simsched.base.errors import MissingDependencyError, ReportError, SimschedError
from simsched.base.io import write_file
from simsched.base.numeric import group_by_key
from simsched.base.text import join_lines
from simsched.base.units import GIB, KIB, MIB, MS, SECOND, format_gain, format_time
from simsched.experiments.result import Result, TextTable, table_of
from simsched.model import Cluster, OpGraph
from simsched.model.profile import Replay
from simsched.model.trace import Trace
from simsched.show.chart import Axis, Chart, by_name, in_time_unit, number
from simsched.show.facts import cluster_pairs, graph_facts, replay_facts, run_facts, short, texts
from simsched.show.gantt import gantt_data
from simsched.show.markup import pieces, read_resource
from simsched.show.report.figures import figure_of
from simsched.show.results import boxes_of, chart_of

if TYPE_CHECKING:
    from simsched.experiments import accuracy, advise, comparison, duel, study, whatif
    from simsched.experiments.rows import Row

_logger = logging.getLogger(__name__)

MOST_SPANS: Final = 40_000
"""Spans of all Gantt charts of a comparison; the best schedule has one however many spans it has."""
_MOST_CHARTS: Final = 4  # of a validation
_HEADINGS: Final = {
    "sweep": "Makespans",
    "sensitivity": "What the makespan depends on",
    "breakeven": "Break-even",
    "explanation": "What bounds it",
    "robustness": "When times vary",
    "throughput": "Throughput",
}
_NUMBER: Final = re.compile(r"([+-]?(?:\d[\d,]*)?\.?\d+(?:e[+-]?\d+)?) ?([A-Za-z]*)")
_UNITS: Final = {"ms": MS, "s": SECOND, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_ESCAPES: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\x7f\u2028\u2029"})
_piece: Final = pieces("report/page.html")


def write_report(
    results: Any, path: str | os.PathLike[str] | None = None, *, title: str | None = None, command: str = ""
) -> str:
    """Return results as an HTML page that needs no other file and no network, and write it if a path is given.

    Parameters
    ----------
    results
        One of these, or a sequence of them: `Comparison`, `Results` of a study, `WhatIf` or its `Answer`, `Sweep`,
        `Sensitivity`, `BreakEven`, `Explanation`, `Robustness`, `Throughput`, `Trace`, `Replay`.
    path
        Where to write it, whole or not at all.
    title
        Title of the page; by default the first section's.
    command
        The command that made it, for the section on its origin.

    Returns
    -------
    str
        The page: some 5 MB, nearly all of it the library that draws the figures, and about 70 bytes per span.

    Raises
    ------
    ReportError
        If there is nothing to report, or something of a kind that is not known.
    MissingDependencyError
        If plotly is not installed.
    FileError
        If the file cannot be written.

    Notes
    -----
    A page is the same for the same results but for its date. Its content security policy forbids to load anything, and
    to run any script but those whose digests it names. O(n log n) for n spans.
    """
    if isinstance(results, Sequence) and not isinstance(results, str | bytes):
        subjects = list(results)
    else:
        subjects = [results]
    sections = [section for result in subjects for section in sections_of(result)]
    if not sections:
        raise ReportError("there is nothing to report: give a comparison, a study, a what-if, a trace, ...")
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = {"made on": date, "simsched": version("simsched"), "Python": python_version(), "numpy": version("numpy")}
    if command:
        about |= {"command": command}
    sections.append(Section("Origin", pairs("How this page was made", about.items())))
    parts = (
        _piece("section", id=f"s{i}", title=section.title, inner_=section.html) for i, section in enumerate(sections)
    )
    body = "\n".join(parts)
    own = "\n".join(read_resource(f"report/{name}.js") for name in ("page", "figures", "gantt"))
    if 'class="plot"' in body:
        drawing = library()
    else:
        drawing = ""
    # a text that became a script by mistake would not run
    allowed = " ".join(f"'sha256-{b64encode(sha256(s.encode()).digest()).decode()}'" for s in (own, drawing))
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    page = (
        _piece(
            "page",
            title=title or sections[0].title,
            subtitle=f"Made by simsched on {date}",
            policy_=policy,
            style_=read_resource("report/page.css"),
            body_=body,
            own_=own,
            links_="".join(_piece("link", name=f"s{i}", text=section.title) for i, section in enumerate(sections)),
            # not run while the page is parsed: texts and tables appear before it is
            later_=_piece("plotly", script_=drawing) if drawing else "",
        )
        + "\n"
    )
    if path is not None:
        write_file(path, page)
    return page


def library() -> str:
    """Return Plotly's script, in which no text ends the element that contains it.

    Raises
    ------
    MissingDependencyError
        If plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingDependencyError("a report needs plotly: pip install 'simsched[report]'") from None
    return str(get_plotlyjs()).replace("</script", "<\\/script")


class Section:
    """A part of a report: its heading, and blocks of HTML below it."""

    def __init__(self, title: str, *blocks: str) -> None:
        self.title = title
        self.html = "\n".join(filter(None, blocks))


def text(said: str, tone: str = "plain") -> str:
    """Return a paragraph, or nothing for an empty text.

    Its tone is ``"plain"``, ``"lead"`` (the section's main result), ``"note"`` or ``"warning"``.
    """
    if said:
        return _piece("text", tone=tone, text=said)
    return ""


def pairs(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return names and their values, one line each."""
    body = "".join(_piece("pair", name=name, text=value) for name, value in rows)
    return _piece("pairs", caption=caption, body_=body)


def table(shown: TextTable, mark: str = "best") -> str:
    """Return a table that readers can sort; `mark` explains the emphasised row."""
    looks = ["" if c in shown.left else ' class="num"' for c in range(len(shown.headings))]
    headings = [heading.replace("-\n", "").replace("\n", " ") for heading in shown.headings]
    head = "".join(_piece("head", look_=look, heading=heading) for heading, look in zip(headings, looks, strict=True))
    body = ""
    for i, row in enumerate(shown.rows):
        best = i == shown.best
        body += f"<tr{' class=best' * best}>"
        for c, (cell, look) in enumerate(zip(row, looks, strict=True)):
            key = sort_key(cell)
            if c or not best:
                marked = ""
            else:
                marked = _piece("mark", text=mark)
            if key is None:
                sorts = ""
            else:
                sorts = f' data-v="{key}"'
            if c:
                body += _piece("cell", heading=headings[c], look_=look, sorts_=sorts, text=cell, mark_=marked)
            else:
                body += _piece("name", look_=look, sorts_=sorts, text=cell, mark_=marked)
        body += "</tr>\n"
    return _piece("table", caption=shown.title, head_=head, body_=body, note_=text(shown.note, "note"))


def sort_key(cell: str) -> str | None:
    """Return the number that a cell sorts by: the one it begins with, in library units; none for missing values.

    >>> sort_key("1.5 ms"), sort_key("-"), sort_key("lios")
    ('1500.0', '', None)
    """
    match = _NUMBER.match(cell)
    if match:
        return repr(float(match[1].replace(",", "")) * _UNITS.get(match[2], 1.0))
    return "" if cell in ("-", "") else None


def figure(chart: Chart) -> str:
    """Return a chart as Plotly draws it."""
    title, summary, height, data = figure_of(chart)
    note = text(chart.note, "note")
    return _piece("figure", title=title, summary=summary, height=height, note_=note, data_=json_text(data))


def gantt(title: str, trace: Trace, measured: Trace | None = None) -> str:
    """Return a Gantt chart, with load curves below on the same axis of time.

    Each row of a measured trace of the same program is below the simulated one.
    """
    data = gantt_data([trace] if measured is None else [trace, measured])
    n = len(data["bars"]["row"])
    used = set(data["bars"]["kind"])
    legend = [(kind["name"], kind["colour"]) for k, kind in enumerate(data["kinds"]) if k in used]
    if data["loads"]:
        legend += [("SM load", "var(--accent)"), ("DRAM load", "var(--warn)")]
    return _piece(
        "gantt",
        title=title,
        n=n,
        rows=len(data["rows"]),
        swatches_="".join(_piece("swatch", text=label, colour=colour) for label, colour in legend),
        hosts_=_piece("hosts") if any(row["what"] == "host" for row in data["rows"]) else "",
        note_=text("; ".join(data.pop("notes")), "note"),
        data_=json_text(data),
    )


def tabs(label: str, panels: Mapping[str, str]) -> str:
    """Return alternatives by name, of which the screen shows one at a time, and print shows all; the first is open."""
    buttons = "".join(
        _piece("button", label=name, here=str(not i).lower(), focus=-1 if i else 0) for i, name in enumerate(panels)
    )
    parts = (
        _piece("panel", label=name, hidden_=" hidden" if i else "", inner_=inner)
        for i, (name, inner) in enumerate(panels.items())
    )
    return _piece("tabs", label=label, buttons_=buttons, panels_="\n".join(parts))


def json_text(value: Any) -> str:
    r"""Return JSON for a script element: no text in it can end the element.

    >>> json_text({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'

    Raises
    ------
    ReportError
        If a number in it is not finite.
    """
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise ReportError("a figure holds a number that is not finite; give None in its place") from None
    return text.translate(_ESCAPES)


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
    """Return a finding's sentences, its chart and its table."""
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
    """Return which schedule to run, and how all compare."""
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
    """Return two sentences: the fastest schedule, its gain, and schedules that are not certainly slower."""
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
    """Return the advice, the commands to type next and the assumptions, then the comparison of all schedulers."""
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
    """Return the makespan before and after changes, and the difference."""
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
    """Return measurements, beside a prediction if there is one."""
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
    """Return a study's means, figures, progress, search statistics, and inputs."""
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
    """Return how well predictions met measurements, with the charts of the simulator's first choices."""
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
