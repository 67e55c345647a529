"""Gantt charts: rows of spans that do not overlap, as matplotlib and pages draw them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.units import format_time, time_unit
from simsched.model import LAUNCH, Floats, Ints
from simsched.model.program import COPY as DO_COPY
from simsched.model.trace import Trace
from simsched.model.trace.timeline import COPY, HOST, KERNEL, WAIT, lanes
from simsched.show.looks import ink, kind_colours, paint
from simsched.show.paper import new_figure, require_format, save_figure, style

_THIN: Final = 0.5  # height of rows of copies and hosts
_GAP: Final = 0.35  # between devices, in rows
_MOST_COPIES: Final = 4  # rows of copies of a device, where rows are shared
_NAMED: Final = 3  # streams of a row that several share
# as numbers for pages
MOST_BARS: Final = 200_000
"""Bars of a chart; of a longer run its beginning is shown."""
_MOST_CURVES: Final = 4  # devices with load curves
_DIGITS, _LOAD_DIGITS = 4, 3  # after the point of a time in us, and of a load
# with matplotlib
_FONT, _CHARACTER = 6.0, 0.62  # points; width of a character as a part of its height
_MOST_STREAMS: Final = 16  # of a device, each on a row of its own
_ROW, _TALLEST = 0.3, 9.0  # inches of a row, and of all
_LEAST_LABEL: Final = 4.0  # points: smaller ones are left out


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a chart: spans that do not overlap, of one stream, the copies from a device, or one host thread.

    Parameters
    ----------
    device
        Where.
    trace, measured
        Of which trace, and whether that is the second of two.
    codes
        Number of the kind of each span of the trace.
    spans
        Numbers of the spans in their trace.
    what
        ``"stream"``, ``"copy"`` or ``"host"``.
    label
        What it is, without the device.
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
        return 1.0 if self.what == "stream" else _THIN

    @property
    def bars(self) -> tuple[Ints, Floats, Floats]:
        """Number of the kind, start and end in us of each span, shape (n_spans,) each."""
        return self.codes[self.spans], self.trace.start[self.spans], self.trace.end[self.spans]


class Kind(NamedTuple):
    """What a bar may be: its name, its colour, and ``"kernel"``, ``"copy"``, ``"wait"``, ``"launch"`` or ``"sync"``."""

    name: str
    colour: str
    what: str


class GanttRows:
    """What a Gantt chart shows: rows by device, its host threads, its streams, then those of its copies.

    Parameters
    ----------
    traces
        One, or two of one program: the rows of the second stand below those of the first.
    host
        Whether host threads have rows.
    until
        Spans that start later are left out, in us.
    most
        Streams of a device beyond which such as follow each other share rows, without their waits; many copies, too,
        share one then. None: any number.
    """

    def __init__(
        self, traces: Sequence[Trace], *, host: bool = False, until: float = inf, most: int | None = None
    ) -> None:
        found = [kinds_of(trace) for trace in traces]
        self.traces, self.kinds, self.paired = traces, found[0][1], len(traces) > 1
        self.longest = max(trace.makespan for trace in traces)
        self.rows: list[Row] = []
        self.bottom = 0.0
        for d, device in enumerate(traces[0].program.devices):
            here = [np.flatnonzero((trace.device == d) & (trace.start <= until)) for trace in traces]
            whole = [Row(device, trace, t > 0, found[t][0], here[t]) for t, trace in enumerate(traces)]
            for i, row in enumerate(_of_device(whole, host, most)):
                self.bottom += _GAP if self.rows and not i else 0.0
                self.rows.append(replace(row, middle=self.bottom + row.height / 2))
                self.bottom += row.height
        several = len({row.device for row in self.rows}) > 1
        which = (" simulated", " measured") if self.paired else ("", "")
        self.names = [f"{f'{row.device} ' * several}{row.label}{which[row.measured]}" for row in self.rows]


def _of_device(whole: Sequence[Row], host: bool, most: int | None) -> list[Row]:
    """Return the rows of a device, given all its spans of each trace."""
    hosts: list[Row] = []
    compute: list[Row] = []
    copying: list[Row] = []
    for stream in np.unique(np.concatenate([each.trace.stream[each.spans] for each in whole])).tolist():
        for each in whole:
            trace = each.trace
            mine = each.spans[trace.stream[each.spans] == stream]
            copies = mine[trace.kind[mine] == COPY]
            if stream < 0:
                hosts += _lanes(replace(each, spans=mine, what="host", label="host"))
            elif len(copies) and not (trace.kind[mine] == KERNEL).any():  # that they wait for data needs no bar
                to = np.unique(trace.program.copies.device[trace.item[copies]]).tolist()
                label = f"copy to {', '.join(trace.program.devices[i] for i in to)}"
                copying += _lanes(replace(each, spans=copies, what="copy", label=label))
            else:
                compute += _lanes(replace(each, spans=mine, label=f"stream {stream}"))
    if most is not None and len(compute) > most:
        compute = _shared(compute)
    if most is not None and len(copying) > _MOST_COPIES:
        copying = [replace(copying[0], label="copies", spans=np.concatenate([row.spans for row in copying]))]
    return hosts * host + compute + copying


def _lanes(row: Row) -> list[Row]:
    """Return a row of spans as many rows as it takes to have none overlap."""
    lane = lanes(*row.bars[1:])
    return [replace(row, spans=row.spans[lane == k], first=not k) for k in range(lane.max(initial=-1) + 1)]


def _shared(rows: Sequence[Row]) -> list[Row]:
    """Return the kernels of streams, of which such as follow each other are on one row."""
    work = [replace(row, spans=row.spans[row.trace.kind[row.spans] == KERNEL]) for row in rows]
    busy = sorted((row for row in work if len(row.spans)), key=lambda row: row.bars[1].min())
    lane = lanes([row.bars[1].min() for row in busy], [row.bars[2].max() for row in busy])
    found = []
    for k in range(lane.max() + 1):
        mine = [row for row, at in zip(busy, lane.tolist(), strict=True) if at == k]
        numbers = [row.label.removeprefix("stream ") for row in mine]
        label = mine[0].label if len(mine) == 1 else f"streams {', '.join(numbers[:_NAMED])}"
        label += ", ..." if len(mine) > _NAMED else ""
        found.append(replace(mine[0], label=label, spans=np.concatenate([row.spans for row in mine])))
    return found


def kinds_of(trace: Trace) -> tuple[Ints, list[Kind]]:
    """Return what each span is, shape (n_spans,), and what each number stands for.

    Colours go to the kinds of operators by how many the graph has of each, so that two schedules of one graph look
    alike; kinds after the seventh share grey.
    """
    colour, names = kind_colours(trace.graph)
    program, host = trace.program, trace.kind == HOST
    found = np.full(len(trace), len(names))
    found[trace.kind == WAIT] += 1
    issues = np.full(len(trace), program.execution == "graph")
    issues[host] |= np.isin(program.action[trace.item[host]], (LAUNCH, DO_COPY))
    found[host] += np.where(issues[host], 2, 3)
    found[trace.kind == KERNEL] = colour[trace.op[trace.kind == KERNEL]]
    kinds = [Kind(name, paint(code), "kernel") for code, name in enumerate(names)]
    kinds += [Kind("copy", "#7A7A7A", "copy"), Kind("wait", "#B9B9B9", "wait"),
              Kind("host: issues work", "#8FA3B8", "launch"), Kind("host: orders work", "#C2A5CF", "sync")]  # fmt: skip
    return found, kinds


def gantt(trace: Trace, path: str | os.PathLike[str] | None = None, *, measured: Trace | None = None) -> Any:
    """Draw a trace: a row per stream, a bar per kernel or copy with its name if there is room, hatching for waits.

    Parameters
    ----------
    trace
        What to draw.
    path
        Where to write the figure; the suffix, ``.png``, ``.svg`` or ``.pdf``, gives the format.
    measured
        Another trace of the same program: each of its rows stands below the one of the first.

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
    Of a device with more than 16 streams those that follow each other share rows, without their waits; of one with
    copies to more than four others all copies share one. No picture is taller than some 10 inches. One collection per
    kind: the time to draw hardly depends on the number of spans.
    """
    require_format(path)
    chart = GanttRows([trace] if measured is None else [trace, measured], most=None if measured else _MOST_STREAMS)
    with style("x"):
        height = chart.bottom or 1.0
        inches = min(_ROW, _TALLEST / height)
        ax = new_figure(7.2, max(1.7, 1.15 + inches * height)).add_subplot()
        scale, unit = time_unit(chart.longest)
        _frame(ax, chart, chart.longest / scale, inches)
        by = f" by {trace.program.scheduler}" * bool(trace.program.scheduler)
        ax.set_title(f"{trace.graph.name}{by} on {trace.cluster.name}")
        ax.set_xlabel(f"time ({unit})")
        _bars(ax, chart, scale)
        if chart.rows:
            ax.figure.draw_without_rendering()  # lays it out: only then the width of a bar is known
            _labels(ax, chart, scale)
        if path is not None:
            save_figure(ax, path)
    return ax


def _frame(ax: Any, chart: GanttRows, end: float, inches: float) -> None:
    """Draw the axes, names of rows where there is room, makespans, and lines between devices."""
    ax.set_xlim(0, end * 1.005 or 1.0)
    ax.set_ylim((chart.bottom or 0.88) + 0.12, -0.12)
    size = min(7.0, max(_LEAST_LABEL, 0.8 * 72 * inches))
    named: dict[float, str] = {}
    whose = [(row, name) for row, name in zip(chart.rows, chart.names, strict=True) if row.first]
    for row, name in sorted(whose, key=lambda each: each[0].what != "stream"):
        if all(abs(row.middle - other) * 72 * inches >= size for other in named):
            named[row.middle] = name
    ax.set_yticks(sorted(named), [named[middle] for middle in sorted(named)], fontsize=size)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    if chart.longest:
        for trace, dashes in zip(chart.traces, ((4, 2), (1, 2)), strict=False):
            ax.axvline(end * trace.makespan / chart.longest, color="black", linewidth=0.8, linestyle=(0, dashes))
        above = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "right", "va": "bottom"}
        said = [format_time(trace.makespan) for trace in chart.traces]
        text = f"simulated {said[0]}, measured {said[1]}" if chart.paired else f"makespan {said[0]}"
        ax.annotate(text, (end, 1.0), (0, 3), fontsize=7, **above)
    for one, other in pairwise(chart.rows):
        if one.device != other.device:
            ends = one.middle + one.height / 2, other.middle - other.height / 2
            ax.axhline(sum(ends) / 2, color="black", linewidth=0.5)


def _bars(ax: Any, chart: GanttRows, scale: float) -> None:
    """Draw every kind of bar as one collection, and the legend."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    n = sum(len(row.spans) for row in chart.rows)
    edge = 0.3 if n < 150 * max(1, len(chart.rows)) else 0.0  # white edges would hide many thin bars
    boxes: list[list[Floats]] = [[] for _ in chart.kinds]
    for row in chart.rows:
        code, left, right = row.bars
        top, bottom = (np.full(len(code), row.middle + side * row.height) for side in (-0.42, 0.42))
        corners = np.stack([left / scale, top, right / scale, bottom], 1)[:, [0, 1, 2, 1, 2, 3, 0, 3]]
        for k in np.unique(code).tolist():
            boxes[k].append(corners[code == k].reshape(-1, 4, 2))
    handles = []
    for kind, found in zip(chart.kinds, boxes, strict=True):
        look: dict[str, Any] = {"facecolor": kind.colour, "edgecolor": "white", "linewidth": edge}
        if kind.what == "wait":
            look = {"facecolor": "none", "edgecolor": kind.colour, "linewidth": 0.0, "hatch": "//////"}
        if found:
            ax.add_collection(PolyCollection(list(np.concatenate(found)), zorder=2, **look), autolim=False)
            handles.append(Patch(label=kind.name, **look))
    if handles:
        below = ax.transAxes + ScaledTranslation(0, -30 / 72, ax.figure.dpi_scale_trans)  # the axis and its label
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": below}
        ax.legend(handles=handles, ncols=min(len(handles), 8), handlelength=1.2, handleheight=0.9, **place)


def _labels(ax: Any, chart: GanttRows, scale: float) -> None:
    """Write names into the bars that are wide enough, in full or from the last dot or slash on."""
    left, right = ax.get_xlim()
    box = ax.get_window_extent()
    per_point = (right - left) * scale / (box.width * 72 / ax.figure.dpi)  # us
    if abs(box.height / np.diff(ax.get_ylim())[0]) * 0.84 * 72 / ax.figure.dpi < _FONT:
        return
    for row in chart.rows:
        for i, code, start, end in zip(row.spans.tolist(), *(column.tolist() for column in row.bars), strict=True):
            kind, room = chart.kinds[code], (end - start) / per_point
            if kind.what != "kernel" or room <= 2 * _CHARACTER * _FONT:
                continue
            name = row.trace.name(i)
            texts = (name, name.replace("/", ".").rsplit(".", 1)[-1])
            fitting = next((text for text in texts if len(text) * _CHARACTER * _FONT <= room - 2.0), None)
            if fitting is not None:
                x, look = (start + end) / 2 / scale, {"ha": "center", "va": "center_baseline", "clip_on": True}
                text = ax.text(x, row.middle, fitting, fontsize=_FONT, color=ink(kind.colour), **look)
                text.set_in_layout(False)  # thousands of them would slow the layout down


def gantt_data(traces: Sequence[Trace]) -> dict[str, Any]:
    """Return the chart of a trace, or of two of one program, as JSON values, as ``gantt.js`` draws it.

    Notes
    -----
    Times are in us, to a tenth of a nanosecond. Each bar has its `row`, `kind` and `name` as numbers of lists;
    `start` and `dur`; `alone`, what of it the span would take by itself; `wait` from being ready to the start; and
    `path`, 1 on the critical path, else 0. ``notes`` say what is left out. O(n log n).
    """
    until, notes = max(trace.makespan for trace in traces), []
    starts = np.concatenate([trace.start for trace in traces])
    if len(starts) > MOST_BARS:
        until = float(np.partition(starts, MOST_BARS)[MOST_BARS])
        notes.append(f"the first {MOST_BARS:,} of {len(starts):,} bars, up to {format_time(until)}")
    loads = _loads(traces[0])
    if len(loads) > _MOST_CURVES:
        notes.append(f"loads of the first {_MOST_CURVES} of {len(loads)} devices")
    drawn = GanttRows(traces, host=True, until=until)
    names: dict[str, int] = {}
    times = ("start", "dur", "alone", "wait")
    columns: dict[str, list[Any]] = {key: [] for key in ("row", "kind", "name", *times, "path")}
    path = [np.isin(np.arange(len(trace)), trace.critical_path().spans) for trace in traces]
    for number, row in enumerate(drawn.rows):
        trace, spans, (codes, start, end) = row.trace, row.spans, row.bars
        columns["row"] += [number] * len(spans)
        columns["kind"] += codes.tolist()
        columns["name"] += [names.setdefault(trace.name(i), len(names)) for i in spans.tolist()]
        us = (start, end - start, np.minimum(trace.solo[spans], end - start), start - trace.ready[spans])
        for key, values in zip(times, us, strict=True):
            columns[key] += values.round(_DIGITS).tolist()
        columns["path"] += path[row.measured][spans].astype(int).tolist()
    scale, unit = time_unit(until)
    return {
        "scale": scale, "unit": unit, "notes": notes, "until": round(until, _DIGITS),
        "makespans": [round(trace.makespan, _DIGITS) for trace in traces],
        "rows": [{"label": name, "device": row.device, "what": row.what, "height": row.height,
                  "measured": int(row.measured)} for row, name in zip(drawn.rows, drawn.names, strict=True)],
        "kinds": [kind._asdict() for kind in drawn.kinds], "names": list(names), "bars": columns,
        "loads": loads[:_MOST_CURVES],
    }  # fmt: skip


def _loads(trace: Trace) -> list[dict[str, Any]]:
    """Return curves of SM and DRAM load of each device that anything loads."""
    curves = [(name, trace.load_curve(name)) for name in trace.program.devices]
    return [_curve(name, load.time, np.stack([load.sm, load.dram]))
            for name, load in curves if load.sm.any() or load.dram.any()]  # fmt: skip


def _curve(name: str, time: Floats, loads: Floats) -> dict[str, Any]:
    """Return a curve without the points at which nothing that can be seen changes."""
    values = loads.round(_LOAD_DIGITS)  # (2, n)
    turns = np.r_[True, (np.diff(values, axis=1) != 0).any(axis=0)]
    turns[-1] = True
    return {"device": name, "time": time[turns].round(_DIGITS).tolist(), "sm": values[0, turns].tolist(),
            "dram": values[1, turns].tolist()}  # fmt: skip
