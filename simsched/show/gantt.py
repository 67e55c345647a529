"""Gantt charts: rows of spans that do not overlap, as matplotlib and pages draw them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.text import printable
from simsched.base.units import format_time, time_unit
from simsched.model import LAUNCH, Floats, Ints
from simsched.model.program import COPY as DO_COPY
from simsched.model.trace import COPY, HOST, KERNEL, WAIT, Load, Trace
from simsched.model.trace.timeline import lanes
from simsched.show.chart import ink, kind_colours
from simsched.show.drawing import shorten, text_width
from simsched.show.paper import legend_name, require_format, save_figure, style

# height of rows of copies and hosts, and between devices
_THIN = 0.5
_GAP = 0.35
# rows of copies of a device, where rows are shared; streams of a row that several share
_MOST_COPIES = 4
_NAMED = 3
# as numbers for pages
MOST_BARS: Final = 200_000
"""Bars of a chart; of a longer run its beginning is shown."""
_MOST_CURVES: Final = 4  # devices with load curves
# after the point of a time in us, and of a load
_DIGITS = 4
_LOAD_DIGITS = 3
# with matplotlib
# points; width of a character as a part of its height
_FONT = 6.0
_CHARACTER = 0.62
_MOST_STREAMS: Final = 16  # of a device, each on a separate row
# inches of a row, and of all; height of a bar in its row
_ROW = 0.3
_TALLEST = 9.0
_BAR = 0.84
_LEAST_LABEL: Final = 4.0  # points: smaller ones are left out
_WIDTH: Final = 518.4
"""Points of the width of the picture."""
_WIDEST_LABEL: Final = 0.3 * _WIDTH
"""Points that the label of a row takes at most: the rest is for its bars."""
_TITLE: Final = 10.5
_ENDS: Final = 7.0
"""Points for a character of the title, more than its font, and of the makespan to the right of it."""


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A row of a chart: spans that do not overlap, of one stream, the copies from a device, or one host thread.

    Parameters
    ----------
    device
        Where.
    trace, measured
        The trace, and whether it is the second of two.
    codes
        Number of the kind of each span of the trace.
    spans
        Numbers of the spans in their trace.
    what
        ``"stream"``, ``"copy"`` or ``"host"``.
    label
        The row's label, without the device.
    first
        Whether it is the first of its label: overlapping spans, as measured ones may be, take further rows.
    middle
        Where it lies, from 0 downward.
    """

    device: str
    trace: Trace
    measured: bool
    codes: Ints
    spans: Ints
    what: str = "stream"
    label: str = ""
    first: bool = True
    middle: float = 0.0

    @property
    def height(self) -> float:
        """1 of streams, less of others."""
        if self.what == "stream":
            return 1.0
        return _THIN

    @property
    def bars(self) -> tuple[Ints, Floats, Floats]:
        """Number of the kind, start and end in us of each span, shape (n_spans,) each."""
        return self.codes[self.spans], self.trace.start[self.spans], self.trace.end[self.spans]


class BarKind(NamedTuple):
    """Kind of a bar: its name, its colour, and ``"kernel"``, ``"copy"``, ``"wait"``, ``"launch"`` or ``"sync"``."""

    name: str
    colour: str
    what: str


def rows_of(
    traces: Sequence[Trace], *, host: bool = False, until: float = inf, most: int | None = None
) -> tuple[list[ChartRow], list[BarKind]]:
    """Return the rows of a Gantt chart by device: its host threads, its streams, then its copies; and kinds.

    Parameters
    ----------
    traces
        One trace, or two of one program: rows of the second are below the rows of the first.
    host
        Whether host threads have rows.
    until
        Spans that start later are left out, in us.
    most
        Streams of a device beyond which such as follow each other share rows, without their waits; many copies, too,
        share one then. None: any number.
    """
    kinds = [kinds_of(trace) for trace in traces]
    rows: list[ChartRow] = []
    bottom = 0.0
    if len(traces) > 1:
        which = (" simulated", " measured")
    else:
        which = ("", "")
    for d, device in enumerate(traces[0].program.devices):
        here = [np.flatnonzero((trace.device == d) & (trace.start <= until)) for trace in traces]
        whole = [ChartRow(device, trace, t > 0, kinds[t][0], here[t]) for t, trace in enumerate(traces)]
        bottom += _GAP if rows else 0.0
        for row in _of_device(whole, host, most):
            rows.append(replace(row, label=row.label + which[row.measured], middle=bottom + row.height / 2))
            bottom += row.height
    several = len({row.device for row in rows}) > 1
    named = [replace(row, label=f"{printable(row.device)} {row.label}") if several else row for row in rows]
    return named, kinds[0][1]


def _of_device(whole: Sequence[ChartRow], host: bool, most: int | None) -> list[ChartRow]:
    """Return the rows of a device, given all its spans of each trace: as many of a stream as to have none overlap."""
    rows: dict[str, list[ChartRow]] = {"host": [], "stream": [], "copy": []}
    for stream in np.unique(np.concatenate([one.trace.stream[one.spans] for one in whole])).tolist():
        for one in whole:
            trace = one.trace
            spans_ = one.spans[trace.stream[one.spans] == stream]
            copies = spans_[trace.kind[spans_] == COPY]
            row = replace(one, spans=spans_, what="stream", label=f"stream {stream}")
            if stream < 0:
                row = replace(row, what="host", label="host")
            elif len(copies) and not (trace.kind[spans_] == KERNEL).any():  # that they wait for data needs no bar
                to = np.unique(trace.program.copies.device[trace.item[copies]]).tolist()
                label = f"copy to {', '.join(printable(trace.program.devices[i]) for i in to)}"
                row = replace(row, spans=copies, what="copy", label=label)
            lane = lanes(*row.bars[1:])
            rows[row.what] += [replace(row, spans=row.spans[lane == k], first=not k) for k in np.unique(lane).tolist()]
    hosts, compute, copying = rows.values()
    if most is not None and len(compute) > most:
        compute = _share_rows(compute)
    if most is not None and len(copying) > _MOST_COPIES:
        copying = [replace(copying[0], label="copies", spans=np.concatenate([row.spans for row in copying]))]
    return hosts * host + compute + copying


def _share_rows(rows: Sequence[ChartRow]) -> list[ChartRow]:
    """Return the kernels of streams on shared rows, where kernels that follow each other share a row."""
    work = [replace(row, spans=row.spans[row.trace.kind[row.spans] == KERNEL]) for row in rows]
    busy = sorted((row for row in work if len(row.spans)), key=lambda row: row.bars[1].min())
    lane = lanes([row.bars[1].min() for row in busy], [row.bars[2].max() for row in busy])
    shared_rows = []
    for k in range(lane.max() + 1):
        merged = [row for row, at in zip(busy, lane.tolist(), strict=True) if at == k]
        numbers = [row.label.removeprefix("stream ") for row in merged]
        if len(merged) == 1:
            label = merged[0].label
        else:
            label = f"streams {', '.join(numbers[:_NAMED])}"
        if len(merged) > _NAMED:
            label += ", ..."
        shared_rows.append(replace(merged[0], label=label, spans=np.concatenate([row.spans for row in merged])))
    return shared_rows


def kinds_of(trace: Trace) -> tuple[Ints, list[BarKind]]:
    """Return the kind of each span as a number, shape (n_spans,), and the kind of each number.

    Colours go to the kinds of operators by how many the graph has of each, so that two schedules of one graph look
    alike; kinds after the seventh share grey.
    """
    colour, names = kind_colours(trace.graph)
    program = trace.program
    host = trace.kind == HOST
    codes = np.full(len(trace), len(names))
    codes[trace.kind == WAIT] += 1
    issues = np.full(len(trace), program.execution == "graph")
    issues[host] |= np.isin(program.action[trace.item[host]], (LAUNCH, DO_COPY))
    codes[host] += np.where(issues[host], 2, 3)
    codes[trace.kind == KERNEL] = colour[trace.op[trace.kind == KERNEL]]
    kinds = [BarKind(name, fill, "kernel") for name, fill in names]
    kinds += [
        BarKind("copy", "#7A7A7A", "copy"),
        BarKind("wait", "#B9B9B9", "wait"),
        BarKind("host: issues work", "#8FA3B8", "launch"),
        BarKind("host: orders work", "#C2A5CF", "sync"),
    ]
    return codes, kinds


def gantt(trace: Trace, path: str | os.PathLike[str] | None = None, *, measured: Trace | None = None) -> Any:
    """Draw a trace: a row per stream, a bar per kernel or copy with its name if there is room, hatching for waits.

    Parameters
    ----------
    trace
        The trace to draw.
    path
        Where to write the figure; the suffix, ``.png``, ``.svg`` or ``.pdf``, gives the format.
    measured
        Another trace of the same program: each of its rows is below the first trace's.

    Returns
    -------
    matplotlib.axes.Axes
        Its `figure` is the whole picture, outside of pyplot.

    Raises
    ------
    FileError
        If the suffix is not known or the file cannot be written.

    Notes
    -----
    On a device with more than 16 streams, streams that follow each other share rows, without their waits; on one with
    copies to more than four others all copies share one. No picture is taller than some 10 inches. One collection per
    kind: the time to draw hardly depends on the number of spans.
    """
    require_format(path)
    if measured is None:
        traces = [trace]
    else:
        traces = [trace, measured]
    rows, kinds = rows_of(traces, most=None if measured else _MOST_STREAMS)
    if rows:
        height = rows[-1].middle + rows[-1].height / 2
    else:
        height = 1.0
    longest = max(one.makespan for one in traces)
    inches = min(_ROW, _TALLEST / height)
    scale, unit = time_unit(longest)
    with style("x") as new_figure:
        ax = new_figure((_WIDTH / 72, max(1.7, 1.15 + inches * height))).add_subplot()
        ax.set(xlabel=f"time ({unit})", xlim=(0, longest / scale * 1.005 or 1.0), ylim=(height + 0.12, -0.12))
        by = f" by {trace.program.scheduler}" * bool(trace.program.scheduler)
        for drawn, dashes in zip(traces if longest else (), ((4, 2), (1, 2)), strict=False):
            ax.axvline(drawn.makespan / scale, color="black", linewidth=0.8, linestyle=(0, dashes))
        titled = zip(("simulated", "measured") if measured else ("makespan",), traces, strict=True)
        ends = ", ".join(f"{what} {format_time(one.makespan)}" for what, one in titled)
        ax.set_title(ends, loc="right", fontsize=_ENDS)
        size = min(7.0, max(_LEAST_LABEL, 57.6 * inches))  # of names; as many as fit are shown
        named = [row for row in rows if row.first and (row.what == "stream" or 72 * inches * _THIN >= size)]
        named = named[:: ceil(size / (72 * inches))]
        labels = [shorten(row.label, size, _WIDEST_LABEL) for row in named]
        beside = max((text_width(label, size) for label in labels), default=0.0) + text_width(ends, _ENDS)
        title = printable(f"{trace.graph.name}{by} on {trace.cluster.name}")
        ax.set_title(shorten(title, _TITLE, _WIDTH - beside))
        ax.set_yticks([row.middle for row in named], labels, fontsize=size)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        for one, other in pairwise(rows):
            if one.device != other.device:
                ax.axhline(other.middle - (other.height + _GAP) / 2, color="black", linewidth=0.5)
        if rows:
            _bars(ax, rows, kinds, scale)
            ax.figure.draw_without_rendering()  # lays it out: only then the width of a bar is known
            if 72 * inches * _BAR >= _FONT:
                _labels(ax, rows, kinds, scale)
        save_figure(ax, path)
    return ax


def _bars(ax: Any, rows: Sequence[ChartRow], kinds: Sequence[BarKind], scale: float) -> None:
    """Draw every kind of bar as one collection, and the legend."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    code, left, right = (np.concatenate(column) for column in zip(*(row.bars for row in rows), strict=True))
    lengths = [len(row.spans) for row in rows]
    top, bottom = (np.repeat([row.middle + side * _BAR / 2 * row.height for row in rows], lengths) for side in (-1, 1))
    corners = np.stack([left / scale, top, right / scale, bottom], 1)[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    # White edges would hide many thin bars.
    if len(code) < 150 * len(rows):
        edge = 0.3
    else:
        edge = 0.0
    handles = []
    for k in np.unique(code).tolist():
        look: dict[str, Any] = {"facecolor": kinds[k].colour, "edgecolor": "white", "linewidth": edge}
        if kinds[k].what == "wait":
            look = {"facecolor": "none", "edgecolor": kinds[k].colour, "linewidth": 0.0, "hatch": "//////"}
        ax.add_collection(PolyCollection(corners[code == k], zorder=2, **look), autolim=False)
        handles.append(Patch(label=legend_name(kinds[k].name), **look))
    ax.figure.legend(handles=handles, loc="outside lower center", ncols=8, handlelength=1.2, handleheight=0.9)


def _labels(ax: Any, rows: Sequence[ChartRow], kinds: Sequence[BarKind], scale: float) -> None:
    """Write names into the bars that are wide enough, in full or from the last dot or slash on."""
    character = _CHARACTER * _FONT * ax.figure.dpi / 72 / ax.get_window_extent().width * np.ptp(ax.get_xlim()) * scale
    look = {"ha": "center", "va": "center_baseline", "clip_on": True, "fontsize": _FONT}
    for row in rows:
        for i, code, start, end in zip(row.spans.tolist(), *(column.tolist() for column in row.bars), strict=True):
            if kinds[code].what == "kernel" and end - start > 2 * character:
                name = printable(row.trace.name(i))
                texts = (name, name.replace("/", ".").rsplit(".", 1)[-1])
                for text in [text for text in texts if (len(text) + 0.5) * character <= end - start][:1]:
                    label = ax.text((start + end) / 2 / scale, row.middle, text, color=ink(kinds[code].colour), **look)
                    label.set_in_layout(False)  # thousands of them would slow the layout down


def gantt_data(traces: Sequence[Trace]) -> dict[str, Any]:
    """Return the chart of a trace, or of two of one program, as JSON values, as ``gantt.js`` draws it.

    Notes
    -----
    Times are in us, to a tenth of a nanosecond. Each bar has its `row`, `kind` and `name` as numbers of lists; `start`
    and `dur`; `alone`, the span's time without contention; `wait` from being ready to the start; and `path`, 1 on the
    critical path, else 0. ``notes`` list omissions. O(n log n).
    """
    until = max(trace.makespan for trace in traces)
    notes = []
    starts = np.concatenate([trace.start for trace in traces])
    if len(starts) > MOST_BARS:
        until = float(np.partition(starts, MOST_BARS)[MOST_BARS])
        notes.append(f"the first {MOST_BARS:,} of {len(starts):,} bars, up to {format_time(until)}")
    curves = [(name, traces[0].load_curve(name)) for name in traces[0].program.devices]
    loads = [_curve(name, load) for name, load in curves if load.sm.any() or load.dram.any()]
    if len(loads) > _MOST_CURVES:
        notes.append(f"loads of the first {_MOST_CURVES} of {len(loads)} devices")
    rows, kinds = rows_of(traces, host=True, until=until)
    names: dict[str, int] = {}
    times = ("start", "dur", "alone", "wait")
    columns: dict[str, list[Any]] = {key: [] for key in ("row", "kind", "name", *times, "path")}
    path = [np.isin(np.arange(len(trace)), trace.critical_path().spans) for trace in traces]
    for number, row in enumerate(rows):
        trace = row.trace
        spans = row.spans
        (codes, start, end) = row.bars
        columns["row"] += [number] * len(spans)
        columns["kind"] += codes.tolist()
        columns["name"] += [names.setdefault(printable(trace.name(i)), len(names)) for i in spans.tolist()]
        us = (start, end - start, np.minimum(trace.solo[spans], end - start), start - trace.ready[spans])
        for key, values in zip(times, us, strict=True):
            columns[key] += values.round(_DIGITS).tolist()
        columns["path"] += path[row.measured][spans].astype(int).tolist()
    scale, unit = time_unit(until)
    return {
        "scale": scale,
        "unit": unit,
        "notes": notes,
        "until": round(until, _DIGITS),
        "makespans": [round(trace.makespan, _DIGITS) for trace in traces],
        "rows": [
            {
                "label": row.label,
                "device": printable(row.device),
                "what": row.what,
                "height": row.height,
                "measured": int(row.measured),
            }
            for row in rows
        ],
        "kinds": [kind._asdict() for kind in kinds],
        "names": list(names),
        "bars": columns,
        "loads": loads[:_MOST_CURVES],
    }


def _curve(name: str, load: Load) -> dict[str, Any]:
    """Return a curve without the points at which nothing that can be seen changes."""
    values = np.stack([load.sm, load.dram]).round(_LOAD_DIGITS)
    turns = np.r_[True, (np.diff(values, axis=1) != 0).any(axis=0)]
    turns[-1] = True
    return {
        "device": printable(name),
        "time": load.time[turns].round(_DIGITS).tolist(),
        "sm": values[0, turns].tolist(),
        "dram": values[1, turns].tolist(),
    }
