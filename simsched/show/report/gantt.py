"""The numbers of an interactive Gantt chart: rows, bars by columns, the critical path and load curves."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from simsched.base.units import format_time, time_unit
from simsched.model.graph.columns import Floats, Ints
from simsched.model.trace import Trace
from simsched.model.trace.metrics import load_curve
from simsched.model.trace.timeline import COPY, HOST, KERNEL, WAIT
from simsched.show.gantt import GanttRows
from simsched.show.report.sections import Gantt

MOST_HOST_SPANS: Final = 20_000
"""Spans of host threads up to which they can be shown; of more there are no rows."""
MOST_BARS: Final = 200_000
"""Bars of a chart; of a longer run its beginning is shown."""
_MOST_CURVES: Final = 4  # devices with load curves of their own; of more the mean is drawn
_DIGITS, _LOAD_DIGITS = 4, 3  # after the point of a time in us, and of a load


def gantt_data(chart: Gantt) -> dict[str, Any]:
    """Return a chart as JSON values, as ``gantt.js`` draws it.

    Notes
    -----
    Times are in us, to a tenth of a nanosecond. Each bar has its `row`, `kind` and `name` as numbers of lists;
    `start` and `dur`; `alone`, what of it the span would take by itself; `wait` from being ready to the start; on the
    critical path `gap`, from the end of what released it, else null; and `other`, with a measured trace, the bar of
    the same launch or copy in the other trace, else -1. ``notes`` say what is left out. O(n log n).
    """
    traces = [chart.trace] if chart.measured is None else [chart.trace, chart.measured]
    until, notes = max(trace.makespan for trace in traces), []
    starts = np.concatenate([trace.start[trace.stream >= 0] for trace in traces])
    if len(starts) > MOST_BARS:
        until = float(np.partition(starts, MOST_BARS)[MOST_BARS])
        notes.append(f"the first {MOST_BARS:,} of {len(starts):,} bars, up to {format_time(until)}")
    most_host = max(int((trace.kind == HOST).sum()) for trace in traces)
    if most_host > MOST_HOST_SPANS:
        notes.append(f"without host threads, which have {most_host:,} spans")
    drawn = GanttRows(traces, host=most_host <= MOST_HOST_SPANS, until=until)
    names: dict[str, int] = {}
    columns: dict[str, list[Any]] = {key: [] for key in ("row", "kind", "name", "start", "dur", "alone", "wait", "gap")}
    place = [np.full(len(trace), -1) for trace in traces]  # number of the bar of each span
    path, done = [_gaps(trace) for trace in traces], 0
    for number, row in enumerate(drawn.rows):
        trace, spans, (codes, start, end) = row.trace, row.spans, row.bars
        place[row.measured][spans] = np.arange(done, done + len(spans))
        done += len(spans)
        columns["row"] += [number] * len(spans)
        columns["kind"] += codes.tolist()
        columns["name"] += [names.setdefault(trace.name(i), len(names)) for i in spans.tolist()]
        times = (start, end - start, np.minimum(trace.solo[spans], end - start), start - trace.ready[spans])
        for key, values in zip(("start", "dur", "alone", "wait"), times, strict=True):
            columns[key] += values.round(_DIGITS).tolist()
        columns["gap"] += [None if gap != gap else round(gap, _DIGITS) for gap in path[row.measured][spans].tolist()]
    scale, unit = time_unit(until)
    return {
        "scale": scale, "unit": unit, "notes": notes, "until": round(until, _DIGITS),
        "makespans": [round(trace.makespan, _DIGITS) for trace in traces],
        "rows": [{"label": name, "device": row.device, "what": row.what, "height": row.height,
                  "measured": int(row.measured)} for row, name in zip(drawn.rows, drawn.names, strict=True)],
        "kinds": [kind._asdict() for kind in drawn.kinds], "names": list(names), "bars": columns,
        "other": _others(traces, place, done) if drawn.paired else [], "loads": _loads(chart.trace),
    }  # fmt: skip


def critical_spans(trace: Trace) -> Iterator[tuple[int, float]]:
    """Yield the spans of the critical path, last first, each with the us from the end of what released it."""
    work = (trace.kind == KERNEL) | (trace.kind == COPY)
    i = int((trace.end * work).argmax()) if work.any() else -1
    while i >= 0:
        cause = int(trace.cause[i])
        # a host that was held up is released when what it waits for ends
        ready = float(trace.end[i] if trace.kind[i] == WAIT else trace.ready[i])
        yield i, max(0.0, ready - (float(trace.end[cause]) if cause >= 0 else 0.0))
        i = cause


def _gaps(trace: Trace) -> Floats:
    gaps = np.full(len(trace), np.nan)
    for i, gap in critical_spans(trace):
        gaps[i] = gap
    return gaps


def _others(traces: list[Trace], place: list[Ints], n: int) -> list[int]:
    """Return for every bar the one of the same launch or copy in the other trace."""
    found = [-1] * n
    for kind in (KERNEL, COPY):
        mine, theirs = (dict(zip(t.item[t.kind == kind].tolist(), p[t.kind == kind].tolist(), strict=True))
                        for t, p in zip(traces, place, strict=True))  # fmt: skip
        for item, bar in mine.items():
            other = theirs.get(item, -1)
            if bar >= 0 and other >= 0:
                found[bar], found[other] = other, bar
    return found


def _loads(trace: Trace) -> list[dict[str, Any]]:
    """Return curves of SM and DRAM load of each device, or of the mean of many; none where nothing loads anything."""
    curves = [(name, load_curve(trace, name)) for name in trace.program.devices]
    curves = [(name, load) for name, load in curves if load.sm.any() or load.dram.any()]
    if len(curves) <= _MOST_CURVES:
        return [_curve(name, load.time, np.stack([load.sm, load.dram])) for name, load in curves]
    time, n = np.unique(np.concatenate([load.time for _, load in curves])), len(trace.program.devices)
    mean = np.zeros((2, len(time)))
    for _, load in curves:
        at = np.searchsorted(load.time, time, side="right") - 1
        mean += np.where(at >= 0, np.stack([load.sm, load.dram])[:, np.maximum(at, 0)], 0.0) / n
    return [_curve(f"mean of {n} devices", time, mean)]


def _curve(name: str, time: Floats, loads: Floats) -> dict[str, Any]:
    """Return a curve without the points at which nothing that can be seen changes."""
    values = loads.round(_LOAD_DIGITS)  # (2, n)
    turns = np.r_[True, (np.diff(values, axis=1) != 0).any(axis=0)]
    turns[-1] = True
    return {"device": name, "time": time[turns].round(_DIGITS).tolist(), "sm": values[0, turns].tolist(),
            "dram": values[1, turns].tolist()}  # fmt: skip
