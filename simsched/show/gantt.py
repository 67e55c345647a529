"""Traces as Gantt charts for papers, drawn with matplotlib."""

import os
from typing import Any, Final

import numpy as np

from simsched.base.units import format_time, time_unit
from simsched.model.graph.columns import Floats
from simsched.model.trace import Trace
from simsched.show.figure import new_figure, require_format, save_figure, style
from simsched.show.looks import ink
from simsched.show.spans import Row, centres_of, kinds_of, rows_of

_FONT, _CHARACTER = 6.0, 0.62  # points; width of a character as a part of its height
_MOST_STREAMS: Final = 16  # of a device, each on a row of its own
_ROW, _TALLEST = 0.3, 9.0  # inches of a row, and of all
_LEAST_LABEL: Final = 4.0  # points: smaller ones are left out


def gantt(
    trace: Trace,
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Any = None,
    title: str | None = None,
    host: bool = False,
    measured: Trace | None = None,
) -> Any:
    """Draw a trace: a row per stream, a bar per kernel or copy with its name if there is room, hatching for waits.

    Parameters
    ----------
    trace
        What to draw.
    path
        Where to write the figure; the suffix, ``.png``, ``.svg`` or ``.pdf``, gives the format.
    ax
        Matplotlib axes to draw into; by default a figure of its own, outside of pyplot.
    title
        By default the graph, the scheduler and the cluster.
    host
        Also draw what the host threads did.
    measured
        Another trace of the same program: each of its rows stands below the one of the first.

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
    Of a device with more than 16 streams those that follow each other share rows, without their waits; of one with
    copies to more than four others all copies share one. No picture is taller than some 10 inches. One collection per
    kind: the time to draw hardly depends on the number of spans.
    """
    require_format(path)
    traces = [trace] if measured is None else [trace, measured]
    rows = rows_of(traces, host=host, most=None if measured else _MOST_STREAMS)
    longest = max(each.makespan for each in traces)
    scale, unit = time_unit(longest)
    middle = np.array(centres_of(rows))
    with style():
        own, inches = ax is None, _ROW
        if ax is None:
            units = middle[-1] + 0.5 if rows else 1.0
            inches = min(_ROW, _TALLEST / units)
            ax = new_figure(7.2, max(1.7, 1.15 + inches * units)).add_subplot()
        _frame(ax, traces, rows, middle, longest / scale, unit, inches)
        by = f" by {trace.program.scheduler}" * bool(trace.program.scheduler)
        ax.set_title(f"{trace.graph.name}{by} on {trace.cluster.name}" if title is None else title, fontsize=9,
                     loc="left")  # fmt: skip
        _bars(ax, traces, rows, middle, scale)
        if rows:
            if own:
                ax.figure.draw_without_rendering()  # lays it out: only then the width of a bar is known
            _labels(ax, traces, rows, middle, scale)
        if path is not None:
            save_figure(ax, path)
    return ax


def _frame(ax: Any, traces: list[Trace], rows: list[Row], middle: Floats, end: float, unit: str, inches: float) -> None:
    ax.set_xlim(0, end * 1.005 or 1.0)
    half = [row.height / 2 for row in rows]
    ax.set_ylim(middle[-1] + half[-1] + 0.12 if rows else 1.0, -0.12)
    paired, several = len(traces) > 1, len({row.device for row in rows}) > 1
    size = min(7.0, max(_LEAST_LABEL, 0.8 * 72 * inches))
    named: list[int] = []
    for i in sorted((i for i, row in enumerate(rows) if row.first), key=lambda i: rows[i].what != "stream"):
        if all(abs(middle[i] - middle[j]) * 72 * inches >= size for j in named):  # there is room for its name
            named.append(i)
    named.sort()
    labels = [rows[i].name(several=several, paired=paired) for i in named]
    ax.set_yticks(middle[named], labels, fontsize=size)
    ax.set_xlabel(f"time ({unit})", fontsize=8)
    ax.tick_params(axis="x", labelsize=7)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.grid(axis="x", color="#E6E6E6", linewidth=0.5)
    ax.set_axisbelow(True)
    longest = max(trace.makespan for trace in traces)
    for trace, dashes in zip(traces if longest else [], ((4, 2), (1, 2)), strict=False):
        ax.axvline(end * trace.makespan / longest, color="black", linewidth=0.8, linestyle=(0, dashes))
    if longest:
        above = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "right", "va": "bottom"}
        said = [format_time(trace.makespan) for trace in traces]
        text = f"simulated {said[0]}, measured {said[1]}" if paired else f"makespan {said[0]}"
        ax.annotate(text, (end, 1.0), (0, 3), fontsize=7, **above)
    for i in range(1, len(rows)):
        if rows[i].device != rows[i - 1].device:
            above_it, below_it = middle[i - 1] + half[i - 1], middle[i] - half[i]
            ax.axhline((above_it + below_it) / 2, color="black", linewidth=0.5)


def _bars(ax: Any, traces: list[Trace], rows: list[Row], middle: Floats, scale: float) -> None:
    """Draw every kind of bar as one collection, and the legend."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    found = [kinds_of(trace) for trace in traces]
    n = sum(len(row.spans) for row in rows)
    edge = 0.3 if n < 150 * max(1, len(rows)) else 0.0  # white edges would hide many thin bars
    boxes: list[list[Floats]] = [[] for _ in found[0][1]]
    for row, y in zip(rows, middle.tolist(), strict=True):
        trace, code, half = traces[row.trace], found[row.trace][0][row.spans], 0.42 * row.height
        for k in np.unique(code).tolist():
            spans = row.spans[code == k]
            left, right = trace.start[spans] / scale, trace.end[spans] / scale
            corners = [left, np.full(len(spans), y - half), right, np.full(len(spans), y + half)]
            boxes[k].append(np.stack(corners, 1)[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2))
    handles = []
    for kind, corners in zip(found[0][1], boxes, strict=True):
        look: dict[str, Any] = {"facecolor": kind.colour, "edgecolor": "white", "linewidth": edge}
        if kind.what == "wait":
            look = {"facecolor": "none", "edgecolor": kind.colour, "linewidth": 0.0, "hatch": "//////"}
        if corners:
            ax.add_collection(PolyCollection(list(np.concatenate(corners)), zorder=2, **look), autolim=False)
            handles.append(Patch(label=kind.name, **look))
    if handles:
        below = ax.transAxes + ScaledTranslation(0, -30 / 72, ax.figure.dpi_scale_trans)  # the axis and its label
        looks = {"fontsize": 7, "frameon": False, "handlelength": 1.2, "handleheight": 0.9, "columnspacing": 1.2}
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": below}
        ax.legend(handles=handles, ncols=min(len(handles), 8), **place, **looks)


def _labels(ax: Any, traces: list[Trace], rows: list[Row], middle: Floats, scale: float) -> None:
    """Write names into the bars that are wide enough, in full or from the last dot or slash on."""
    left, right = ax.get_xlim()
    box = ax.get_window_extent()
    per_point = (right - left) * scale / (box.width * 72 / ax.figure.dpi)  # us
    if abs(box.height / np.diff(ax.get_ylim())[0]) * 0.84 * 72 / ax.figure.dpi < _FONT:
        return
    found = [kinds_of(trace) for trace in traces]
    for row, y in zip(rows, middle.tolist(), strict=True):
        trace, (code, kinds) = traces[row.trace], found[row.trace]
        for i in row.spans[trace.end[row.spans] - trace.start[row.spans] > 2 * _CHARACTER * _FONT * per_point].tolist():
            kind, room = kinds[code[i]], (trace.end[i] - trace.start[i]) / per_point - 2.0
            name = trace.name(i)
            texts = (name, name.replace("/", ".").rsplit(".", 1)[-1])
            fitting = next((text for text in texts if len(text) * _CHARACTER * _FONT <= room), None)
            if fitting is not None and kind.what == "kernel":
                x, look = (trace.start[i] + trace.end[i]) / 2 / scale, {"ha": "center", "va": "center_baseline"}
                text = ax.text(x, y, fitting, fontsize=_FONT, color=ink(kind.colour), clip_on=True, **look)
                text.set_in_layout(False)  # thousands of them would slow the layout down
