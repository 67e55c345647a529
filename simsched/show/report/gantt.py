"""The numbers of an interactive Gantt chart: rows, bars by columns, the critical path and load curves."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.units import format_time, time_unit
from simsched.model.graph.columns import Floats, Ints
from simsched.model.program import COPY as DO_COPY
from simsched.model.program import LAUNCH
from simsched.model.trace import Trace
from simsched.model.trace.metrics import lanes, load_curve
from simsched.model.trace.timeline import COPY, HOST, KERNEL, WAIT
from simsched.show.figure import PALETTE
from simsched.show.report.sections import Gantt

MOST_HOST_SPANS: Final = 20_000
"""Spans of host threads up to which they can be shown; of more there are no rows."""
MOST_BARS: Final = 200_000
"""Bars of a chart; of a longer run its beginning is shown."""
_COPY, _WAIT, _ISSUE, _SYNC, _OTHER = "#7A7A7A", "#B9B9B9", "#8FA3B8", "#C2A5CF", "#A0A0A0"
_MOST_CURVES: Final = 4  # devices with load curves of their own; of more the mean is drawn
_DIGITS: Final = 4  # after the point of a time in us
_LOAD_DIGITS: Final = 3
_THIN: Final = 0.55


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the chart: spans that do not overlap, of one stream or host thread of one trace."""

    label: str
    device: str
    what: str
    height: float
    trace: int
    spans: Ints


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
    longest = max(trace.makespan for trace in traces)
    notes = []
    starts = np.concatenate([trace.start[trace.stream >= 0] for trace in traces])
    until = longest if len(starts) <= MOST_BARS else float(np.partition(starts, MOST_BARS)[MOST_BARS])
    if until < longest:
        notes.append(f"the first {MOST_BARS:,} of {len(starts):,} bars, up to {format_time(until)}")
    most_host = max(int((trace.kind == HOST).sum()) for trace in traces)
    if most_host > MOST_HOST_SPANS:
        notes.append(f"without host threads, which have {most_host:,} spans")
    rows = _rows(traces, until, with_host=most_host <= MOST_HOST_SPANS)
    kinds = _Kinds(chart.trace)
    names: dict[str, int] = {}
    blank: dict[str, list[Any]] = {key: [] for key in ("row", "kind", "name", "start", "dur", "alone", "wait", "gap")}
    place = [np.full(len(trace), -1) for trace in traces]  # number of the bar of each span
    path = [_gaps(trace) for trace in traces]
    done = 0
    for number, row in enumerate(rows):
        trace, spans = traces[row.trace], row.spans
        start, end = trace.start[spans], trace.end[spans]
        place[row.trace][spans] = np.arange(done, done + len(spans))
        done += len(spans)
        blank["row"] += [number] * len(spans)
        blank["kind"] += [kinds.of(trace, i) for i in spans.tolist()]
        blank["name"] += [names.setdefault(trace.name(i), len(names)) for i in spans.tolist()]
        blank["start"] += _short(start)
        blank["dur"] += _short(end - start)
        blank["alone"] += _short(np.minimum(trace.solo[spans], end - start))
        blank["wait"] += _short(start - trace.ready[spans])
        blank["gap"] += [None if np.isnan(gap) else round(gap, _DIGITS) for gap in path[row.trace][spans].tolist()]
    scale, unit = time_unit(until)
    return {
        "scale": scale,
        "unit": unit,
        "notes": notes,
        "until": round(until, _DIGITS),
        "makespans": [round(trace.makespan, _DIGITS) for trace in traces],
        "paired": len(traces) == 2,
        "rows": [
            {"label": row.label, "device": row.device, "what": row.what, "height": row.height, "measured": row.trace}
            for row in rows
        ],
        "kinds": kinds.shown(),
        "names": list(names),
        "bars": blank,
        "other": _others(traces, place, done) if len(traces) == 2 else [],
        "loads": _loads(chart.trace),
    }


def _short(values: Floats) -> list[float]:
    found: list[float] = values.round(_DIGITS).tolist()
    return found


def _rows(traces: list[Trace], until: float, *, with_host: bool) -> list[_Row]:
    """Return rows by device: its host thread, its streams, then those of its copies; measured ones below their like."""
    first = traces[0]
    several = len(first.program.devices) > 1
    found: list[_Row] = []
    for d, device in enumerate(first.program.devices):
        prefix = f"{device} " if several else ""
        here = [(trace.device == d) & (trace.start <= until) for trace in traces]
        if with_host:
            for t, trace in enumerate(traces):
                found += _lines(f"{prefix}host", device, "host", _THIN, t, trace, here[t] & (trace.stream < 0))
        compute: list[_Row] = []
        copying: list[_Row] = []
        streams = np.unique(np.concatenate([t.stream[h & (t.stream >= 0)] for t, h in zip(traces, here, strict=True)]))
        for stream in streams.tolist():
            for t, trace in enumerate(traces):
                mine = here[t] & (trace.stream == stream)
                copies = mine & (trace.kind == COPY)
                if copies.any() and not (trace.kind[mine] == KERNEL).any():
                    to = np.unique(trace.program.copies.device[trace.item[copies]]).tolist()
                    label = f"{prefix}copy to {', '.join(trace.program.devices[i] for i in to)}"
                    copying += _lines(label, device, "copy", _THIN, t, trace, copies)
                else:
                    compute += _lines(f"{prefix}stream {stream}", device, "stream", 1.0, t, trace, mine)
        found += compute + copying
    return found


def _lines(
    label: str, device: str, what: str, height: float, number: int, trace: Trace, chosen: npt.NDArray[np.bool_]
) -> list[_Row]:
    """Return one row, or several where spans overlap, as measured ones may; none without spans."""
    spans = np.flatnonzero(chosen)
    lane = lanes(trace.start[spans], trace.end[spans])
    return [_Row(label, device, what, height, number, spans[lane == k]) for k in range(lane.max(initial=-1) + 1)]


class _Kinds:
    """What bars are coloured by: the kinds of operators by how many the graph has of each, then all else."""

    def __init__(self, trace: Trace) -> None:
        graph = trace.graph
        kinds = [graph.label("kind", i) or "operator" for i in range(len(graph))]
        by_count = [kind for kind, _ in Counter(kinds).most_common()]
        self._names = by_count[: len(PALETTE)] + (["other kinds"] if len(by_count) > len(PALETTE) else [])
        place = {kind: min(i, len(PALETTE)) for i, kind in enumerate(by_count)}
        self._of_operator = [place[kind] for kind in kinds]

    def of(self, trace: Trace, i: int) -> int:
        """Return the number of the kind of a span."""
        kind = int(trace.kind[i])
        if kind == KERNEL:
            return self._of_operator[int(trace.op[i])]
        rest = len(self._names)
        if kind == HOST:
            return rest + (2 if _issues(trace, i) else 3)
        return rest + (0 if kind == COPY else 1)

    def shown(self) -> list[dict[str, str]]:
        """Return name, colour and meaning of each number."""
        colours = (*PALETTE, _OTHER)
        found = [{"name": n, "colour": c, "what": "kernel"} for n, c in zip(self._names, colours, strict=False)]
        rest = (("copy", _COPY, "copy"), ("wait", _WAIT, "wait"), ("host: issues work", _ISSUE, "launch"),
                ("host: orders work", _SYNC, "sync"))  # fmt: skip
        return found + [{"name": n, "colour": c, "what": w} for n, c, w in rest]


def _issues(trace: Trace, i: int) -> bool:
    return trace.program.execution == "graph" or trace.program.action[trace.item[i]] in (LAUNCH, DO_COPY)


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
    found = np.full(n, -1)
    for kind in (KERNEL, COPY):
        bars = [dict(zip(t.item[t.kind == kind].tolist(), p[t.kind == kind].tolist(), strict=True))
                for t, p in zip(traces, place, strict=True)]  # fmt: skip
        for mine, theirs in (bars, bars[::-1]):
            for item, bar in mine.items():
                found[bar] = theirs.get(item, -1)
    shown: list[int] = found.tolist()
    return shown


def _loads(trace: Trace) -> list[dict[str, Any]]:
    """Return curves of SM and DRAM load of each device, or of the mean of many; none where nothing loads anything."""
    curves = [(name, load_curve(trace, name)) for name in trace.program.devices]
    curves = [(name, load) for name, load in curves if load.sm.any() or load.dram.any()]
    if len(curves) <= _MOST_CURVES:
        return [_curve(name, load.time, load.sm, load.dram) for name, load in curves]
    time = np.unique(np.concatenate([load.time for _, load in curves]))
    at = [(load, np.searchsorted(load.time, time, side="right") - 1) for _, load in curves]
    sm, dram = (
        np.sum([np.where(i >= 0, getattr(load, what)[np.maximum(i, 0)], 0.0) for load, i in at], axis=0)
        / len(trace.program.devices)
        for what in ("sm", "dram")
    )
    return [_curve(f"mean of {len(trace.program.devices)} devices", time, sm, dram)]


def _curve(name: str, time: Floats, sm: Floats, dram: Floats) -> dict[str, Any]:
    """Return a curve without the points at which nothing that can be seen changes."""
    values = np.stack([sm, dram]).round(_LOAD_DIGITS)
    turns = np.r_[True, (np.diff(values, axis=1) != 0).any(axis=0)]
    turns[-1] = True
    return {"device": name, "time": _short(time[turns]), "sm": values[0, turns].tolist(),
            "dram": values[1, turns].tolist()}  # fmt: skip
