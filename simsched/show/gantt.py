"""Traces as Gantt charts for papers, drawn with matplotlib."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.base.units import format_time, time_unit
from simsched.model.graph.columns import Floats, Ints
from simsched.model.trace.metrics import lanes
from simsched.model.trace.timeline import COPY, HOST, KERNEL, WAIT
from simsched.model.trace.trace import Trace
from simsched.show.figure import ink, kind_colours, new_figure, paint, require_format, save_figure, style

_COPY, _HOST, _WAIT = "#4D4D4D", "#C8C8C8", "#BDBDBD"
_DEVICE_GAP, _THIN = 0.35, 0.45
_FONT, _CHARACTER = 6.0, 0.62  # points; width of a character as a part of its height


@dataclass(frozen=True, slots=True)
class GanttRow:
    """A line of the chart: what one stream, or one host thread, did."""

    label: str
    device: str
    height: float
    spans: Ints


def gantt(
    trace: Trace,
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Any = None,
    title: str | None = None,
    host: bool = False,
    labels: bool = True,
) -> Any:
    """Draw a trace: a row per stream, a bar per kernel or copy, hatching where a stream waits.

    Parameters
    ----------
    trace
        What to draw.
    path
        Where to write the figure; the suffix, ``.png``, ``.svg`` or ``.pdf``, gives the format.
    ax
        Matplotlib axes to draw into; by default a figure of its own, outside of pyplot.
    title
        By default the graph and the cluster.
    host
        Also draw what the host threads did.
    labels
        Write names of operators into the bars that have room for them.

    Returns
    -------
    matplotlib.axes.Axes
        Its `figure` is the whole picture.

    Raises
    ------
    FileError
        If the suffix is not known or the file cannot be written.

    Notes
    -----
    Colours go to the kinds of operators by how many the graph has of each, so that two schedules
    of one graph look alike; kinds after the seventh share grey. One collection per kind: the
    time to draw hardly depends on the number of spans.
    """
    require_format(path)
    rows = gantt_rows(trace, host)
    scale, unit = time_unit(trace.makespan)
    centre = row_centres(rows)
    with style():
        own = ax is None
        if own:
            ax = _new_axes(rows)
        _frame(ax, trace, rows, centre, scale, unit, title)
        _bars(ax, trace, rows, centre, scale)
        if labels and rows:
            if own:
                ax.figure.draw_without_rendering()  # lays it out: only then the width of a bar is known
            _labels(ax, trace, rows, centre, scale)
        if path is not None:
            save_figure(ax, path)
    return ax


def gantt_rows(trace: Trace, host: bool) -> list[GanttRow]:
    """Return the rows from top to bottom: host threads, then per device its streams, those of copies last."""
    found = []
    if host:
        for d, name in enumerate(trace.program.devices):
            found += _lines(trace, f"host of {name}", "", 0.7, np.flatnonzero((trace.device == d) & (trace.stream < 0)))
    for d, name in enumerate(trace.program.devices):
        compute, copying = [], []
        here = np.flatnonzero((trace.device == d) & (trace.stream >= 0))
        for stream in np.unique(trace.stream[here]).tolist():
            spans = here[trace.stream[here] == stream]
            if (trace.kind[spans] == KERNEL).any():
                compute += _lines(trace, f"stream {stream}", name, 1.0, spans)
            elif (trace.kind[spans] == COPY).any():
                spans = spans[trace.kind[spans] == COPY]  # that it waits for its data goes without saying
                to = np.unique(trace.program.copies.device[trace.item[spans]])
                label = f"copy to {', '.join(trace.program.devices[t] for t in to)}"
                copying += _lines(trace, label, name, _THIN, spans)
        found += compute + copying
    return found


def _lines(trace: Trace, label: str, device: str, height: float, spans: Ints) -> list[GanttRow]:
    """Return one row, or several where spans overlap, as measured ones may."""
    lane = lanes(trace.start[spans], trace.end[spans])
    return [
        GanttRow(label if k == 0 else "", device, height, spans[lane == k]) for k in range(lane.max(initial=-1) + 1)
    ]


def row_centres(rows: list[GanttRow]) -> Floats:
    """Return where each row lies, from 0 downward, with a gap between devices."""
    place, centres = 0.0, []
    for i, row in enumerate(rows):
        place += row.height / 2 + (_DEVICE_GAP if i and rows[i - 1].device != row.device else 0.0)
        centres.append(place)
        place += row.height / 2
    return np.array(centres)


def _new_axes(rows: list[GanttRow]) -> Any:
    inches = 1.15 + 0.3 * sum(row.height for row in rows) + 0.1 * len({row.device for row in rows})
    return new_figure(7.2, max(1.7, inches)).add_subplot()


def _frame(
    ax: Any, trace: Trace, rows: list[GanttRow], centre: Floats, scale: float, unit: str, title: str | None
) -> None:
    makespan = trace.makespan / scale
    ax.set_xlim(0, makespan * 1.005 or 1.0)
    half = [row.height / 2 for row in rows]
    ax.set_ylim(centre[-1] + half[-1] + 0.12 if rows else 1.0, -0.12)
    ax.set_yticks(centre, [row.label for row in rows], fontsize=7)
    ax.set_xlabel(f"time ({unit})", fontsize=8)
    ax.tick_params(axis="x", labelsize=7)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.grid(axis="x", color="#E6E6E6", linewidth=0.5)
    ax.set_axisbelow(True)
    if title is None:
        title = f"{trace.graph.name} on {trace.cluster.name}"
    ax.set_title(title, fontsize=9, loc="left")
    if trace.makespan:
        ax.axvline(makespan, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
        above = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "right", "va": "bottom"}
        ax.annotate(f"makespan {format_time(trace.makespan)}", (makespan, 1.0), (0, 3), fontsize=7, **above)
    devices = list(dict.fromkeys(row.device for row in rows))
    for device in devices if len(devices) > 1 else []:
        mine = [i for i, row in enumerate(rows) if row.device == device]
        top, bottom = centre[mine[0]] - half[mine[0]], centre[mine[-1]] + half[mine[-1]]
        if mine[0] > 0:
            ax.axhline(top - _DEVICE_GAP / 2, color="black", linewidth=0.5)
        beside = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "left", "va": "center"}
        ax.annotate(device, (1.0, (top + bottom) / 2), (4, 0), rotation=270, fontsize=7, **beside)


def _bars(ax: Any, trace: Trace, rows: list[GanttRow], centre: Floats, scale: float) -> None:
    """Draw every kind of bar as one collection, and the legend."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    colour, names = kind_colours(trace.graph)
    row = np.repeat(np.arange(len(rows)), [len(r.spans) for r in rows])
    spans = np.concatenate([r.spans for r in rows]) if rows else np.zeros(0, np.int64)
    middle = centre[row]
    half = 0.42 * np.array([r.height for r in rows])[row]
    box = _boxes(trace.start[spans] / scale, trace.end[spans] / scale, middle - half, middle + half)
    kind, op = trace.kind[spans], trace.op[spans]
    edge = 0.3 if len(spans) < 150 * max(1, len(rows)) else 0.0  # white edges would hide many thin bars
    handles = []

    def draw(which: npt.NDArray[np.bool_], label: str, **look: Any) -> None:
        if which.any():
            ax.add_collection(PolyCollection(list(box[which]), zorder=2, **look), autolim=False)
            handles.append(Patch(label=label, **look))

    for code, name in enumerate(names):
        draw((kind == KERNEL) & (colour[op] == code), name, facecolor=paint(code), edgecolor="white", linewidth=edge)
    draw(kind == COPY, "copy", facecolor=_COPY, edgecolor="white", linewidth=edge)
    draw(kind == HOST, "host", facecolor=_HOST, edgecolor="white", linewidth=edge)
    draw(kind == WAIT, "wait", facecolor="none", edgecolor=_WAIT, linewidth=0.0, hatch="//////")
    if handles:
        below = ax.transAxes + ScaledTranslation(0, -30 / 72, ax.figure.dpi_scale_trans)  # the axis and its label
        look = {"fontsize": 7, "frameon": False, "handlelength": 1.2, "handleheight": 0.9, "columnspacing": 1.2}
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": below}
        ax.legend(handles=handles, ncols=min(len(handles), 8), **place, **look)


def _points(ax: Any) -> tuple[float, float]:
    """Return width and height of the axes in points."""
    box = ax.get_window_extent()
    return box.width * 72 / ax.figure.dpi, box.height * 72 / ax.figure.dpi


def _boxes(left: Floats, right: Floats, top: Floats, bottom: Floats) -> Floats:
    """Return rectangles of shape (n, 4, 2)."""
    return np.stack([np.stack([left, right, right, left], 1), np.stack([top, top, bottom, bottom], 1)], 2)


def _labels(ax: Any, trace: Trace, rows: list[GanttRow], centre: Floats, scale: float) -> None:
    """Write names into the bars that are wide enough, in full or from the last dot or slash on."""
    left, right = ax.get_xlim()
    per_point = (right - left) * scale / _points(ax)[0]  # us
    colour, _ = kind_colours(trace.graph)
    for row, y in zip(rows, centre.tolist(), strict=True):
        length = trace.end[row.spans] - trace.start[row.spans]
        work = trace.kind[row.spans] == KERNEL
        for i in row.spans[work & (length > 2 * _CHARACTER * _FONT * per_point)].tolist():
            room = (trace.end[i] - trace.start[i]) / per_point - 2.0
            name = trace.name(i)
            shorter = name.replace("/", ".").rsplit(".", 1)[-1]
            fitting = next((text for text in (name, shorter) if len(text) * _CHARACTER * _FONT <= room), None)
            if fitting is not None:
                x = (trace.start[i] + trace.end[i]) / 2 / scale
                black_or_white = ink(paint(colour[trace.op[i]]))
                look = {"ha": "center", "va": "center_baseline", "color": black_or_white, "clip_on": True}
                text = ax.text(x, y, fitting, fontsize=_FONT, **look)
                text.set_in_layout(False)  # thousands of them would slow the layout down
