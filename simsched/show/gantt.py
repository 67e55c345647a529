"""Traces as Gantt charts for papers, drawn with matplotlib."""

import os
from itertools import pairwise
from typing import Any, Final

import numpy as np

from simsched.base.units import format_time, time_unit
from simsched.model.graph.columns import Floats
from simsched.model.trace import Trace
from simsched.show.looks import ink
from simsched.show.paper import new_figure, require_format, save_figure, style
from simsched.show.spans import GanttRows

_FONT, _CHARACTER = 6.0, 0.62  # points; width of a character as a part of its height
_MOST_STREAMS: Final = 16  # of a device, each on a row of its own
_ROW, _TALLEST = 0.3, 9.0  # inches of a row, and of all
_LEAST_LABEL: Final = 4.0  # points: smaller ones are left out


def gantt(
    trace: Trace, path: str | os.PathLike[str] | None = None, *, ax: Any = None, title: str | None = None,
    host: bool = False, measured: Trace | None = None,
) -> Any:  # fmt: skip
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
    chart = GanttRows([trace] if measured is None else [trace, measured], host=host,
                      most=None if measured else _MOST_STREAMS)  # fmt: skip
    with style("x"):
        own, inches = ax is None, _ROW
        if ax is None:
            height = chart.bottom or 1.0
            inches = min(_ROW, _TALLEST / height)
            ax = new_figure(7.2, max(1.7, 1.15 + inches * height)).add_subplot()
        scale, unit = time_unit(chart.longest)
        _frame(ax, chart, chart.longest / scale, inches)
        by = f" by {trace.program.scheduler}" * bool(trace.program.scheduler)
        ax.set_title(f"{trace.graph.name}{by} on {trace.cluster.name}" if title is None else title)
        ax.set_xlabel(f"time ({unit})")
        _bars(ax, chart, scale)
        if chart.rows:
            if own:
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
