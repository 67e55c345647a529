"""Predicted against measured: a scatter plot of makespans, and both traces of one schedule above each other."""

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from simsched.base.errors import BackendError
from simsched.base.units import time_unit
from simsched.experiments.accuracy.accuracy import Accuracy, Outcome, percent
from simsched.model.profile import Replay
from simsched.model.trace import Trace
from simsched.show.figure import new_figure, require_format, save_figure, style
from simsched.show.gantt import gantt
from simsched.show.plot import HATCHES, heading, looks_of

_MARKERS: Final = "osD^v<>P"  # the palette over again, told apart
_RANDOM, _BAND, _LINE = "#B3B3B3", "#EFEFEF", "#7F7F7F"
_LABEL, _SMALL = 8.0, 7.0  # heights of characters in points
_WITHIN: Final = 0.1  # the band
_MARGIN: Final = 0.06  # part of the axis
_LARGEST, _USUAL, _SMALLEST = 8.0, 5.0, 3.5  # points
_LEGEND_ROWS: Final = 22  # entries of a column of the legend


def scatter(
    accuracy: Accuracy, path: str | os.PathLike[str] | None = None, *, ax: Any = None, title: str | None = None
) -> Any:
    """Draw predicted against measured makespans of the last round, with the diagonal and a band of 10 % around it.

    Parameters
    ----------
    accuracy
        What was predicted and measured.
    path
        Where to write the figure; the suffix, ``.png``, ``.svg`` or ``.pdf``, gives the format.
    ax
        Matplotlib axes to draw into; by default a figure of its own, outside of pyplot.
    title
        By default the graph, the backend and the mean error.

    Returns
    -------
    matplotlib.axes.Axes
        Its `figure` is the whole picture.

    Raises
    ------
    BackendError
        If nothing was measured.
    FileError
        If the suffix is not known or the file cannot be written.

    Notes
    -----
    Schedulers have the colours that they have in `simsched.show.plot.box_plot`; schedules at random are grey. Bars
    reach from the 10th to the 90th percentile of what was measured, hollow marks are of schedules that a fit has seen.
    """
    require_format(path)
    rows = [row for row in accuracy.rounds[-1].schedules if row.measured_us is not None]
    if not rows:
        raise BackendError("nothing was measured: there is nothing to draw")
    scale, unit = time_unit(max(us for row in rows for us in _place(row)))
    if title is None:
        mean = percent(accuracy.rounds[-1].mean_error)
        title = f"{accuracy.graph} on {accuracy.backend}, round {len(accuracy.rounds)}\nmean error {mean}"
    with style():
        if ax is None:
            ax = new_figure(5.6, 4.0).add_subplot()
        _ground(ax, rows, scale)
        _points(ax, rows, scale)
        ax.set_xlabel(f"measured makespan ({unit})", fontsize=_LABEL)
        ax.set_ylabel(f"predicted makespan ({unit})", fontsize=_LABEL)
        ax.figure.draw_without_rendering()  # lays it out: only then the room for the title is known
        heading(ax, title)
        if path is not None:
            save_figure(ax, path)
    return ax


def _place(row: Outcome) -> tuple[float, float]:
    """Return where a row is drawn, in us; outliers may lead a bar beyond the axes."""
    return row.measured_us or 0.0, row.predicted_us or 0.0


def _ground(ax: Any, rows: Sequence[Outcome], scale: float) -> None:
    """Set the axes, and draw the diagonal and the band."""
    given = [us for row in rows for us in _place(row)]
    low, high = min(given) / scale, max(given) / scale
    room = _MARGIN * (high - low) or 0.5 * high or 1.0
    low, high = max(0.0, low - room), high + room
    ends = np.array([low, high])
    ax.fill_between(ends, (1 - _WITHIN) * ends, (1 + _WITHIN) * ends, color=_BAND, linewidth=0, label="within 10 %")
    ax.plot(ends, ends, color=_LINE, linewidth=0.8, linestyle=(0, (4, 2)), label="predicted = measured")
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    ax.tick_params(labelsize=_SMALL)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)


def _points(ax: Any, rows: Sequence[Outcome], scale: float) -> None:
    made = [row for row in rows if not row.is_random]
    at_random = [row for row in rows if row.is_random]
    for row in at_random:
        _point(ax, row, scale, _RANDOM, "o", _SMALLEST, "random" if row is at_random[0] else None)
    sizes = np.linspace(_LARGEST, _SMALLEST, len(made)).tolist()  # of those that meet in a point each is seen
    for row, (colour, hatch), size in zip(made, looks_of([row.scheduler for row in made]), sizes, strict=True):
        _point(ax, row, scale, colour, _MARKERS[HATCHES.index(hatch)], size, row.scheduler)
    look = {"fontsize": _SMALL, "frameon": False, "handletextpad": 0.4, "labelspacing": 0.35}
    columns = -(-(len(made) + 3) // _LEGEND_ROWS)
    legend = ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, ncols=columns, **look)
    for handle in legend.legend_handles[2:]:  # after the band and the diagonal
        handle.set_markersize(_USUAL)


def _point(ax: Any, row: Outcome, scale: float, colour: str, marker: str, size: float, label: str | None) -> None:
    x, y = (us / scale for us in _place(row))
    low, high = ((us if us is not None else row.measured_us or 0.0) / scale
                 for us in (row.measured_p10_us, row.measured_p90_us))  # fmt: skip
    ax.plot([low, high], [y, y], color=colour, linewidth=1.0, zorder=2.5, solid_capstyle="butt")
    edge, width = ("black", 0.5) if row.held_out else (colour, 1.0)
    ax.plot(
        x, y, marker, color=colour if row.held_out else "none", markersize=size, zorder=3, label=label,
        markeredgecolor=edge, markeredgewidth=width,
    )  # fmt: skip


def overlaid_gantt(
    simulated: Trace, measured: Replay, path: str | os.PathLike[str] | None = None, *, title: str | None = None
) -> Any:
    """Draw the simulated trace of a program above the measured one, on one time axis.

    Parameters
    ----------
    simulated, measured
        Of the same program.
    path
        Where to write the figure; the suffix, ``.png``, ``.svg`` or ``.pdf``, gives the format.
    title
        By default what ran, and where.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    FileError
        If the suffix is not known or the file cannot be written.
    """
    require_format(path)
    traces = {"simulated": simulated, "measured": measured.trace}
    longest = max(trace.makespan for trace in traces.values())
    if title is None:
        title = f"{simulated.graph.name} on {measured.environment.get('device', measured.cluster.name)}"
    with style():
        heights = [gantt(trace, labels=False).figure.get_size_inches()[1] for trace in traces.values()]
        figure = new_figure(7.2, sum(heights) - 0.4)
        panels = figure.subplots(2, 1, height_ratios=[height - 0.75 for height in heights])
        for labels in (False, True):  # only when it is laid out, without them, the width of a bar is known
            for ax, (what, trace) in zip(panels, traces.items(), strict=True):
                ax.clear()
                gantt(trace, ax=ax, title=f"{title}\n{what}" if ax is panels[0] else what, labels=labels)
                _fit(ax, trace.makespan / longest if longest else 1.0)
            _share(figure, panels)
            figure.draw_without_rendering()
        if path is not None:
            save_figure(panels[0], path)
    return figure


def _share(figure: Any, panels: Sequence[Any]) -> None:
    """Let the figure have what both panels have: the legend, and the name of the axis if it has one unit."""
    found: dict[str, Any] = {}
    for ax in panels:
        legend = ax.get_legend()
        if legend is not None:
            found |= {handle.get_label(): handle for handle in legend.legend_handles}
            legend.remove()
    if panels[0].get_xlabel() == panels[1].get_xlabel():
        panels[0].set_xlabel("")
    for legend in list(figure.legends):
        legend.remove()
    if found:
        look = {"fontsize": _SMALL, "frameon": False, "handlelength": 1.2, "handleheight": 0.9, "columnspacing": 1.2}
        figure.legend(handles=list(found.values()), loc="outside lower center", ncols=min(len(found), 8), **look)


def _fit(ax: Any, part: float) -> None:
    """Let a panel end where the longer of the two does; names shrink like the bars they stand in."""
    low, high = ax.get_xlim()
    ax.set_xlim(low, high / part if part else 1.0)
    for text in ax.texts:
        if not hasattr(text, "xyann"):  # an annotation stands outside of the bars
            text.set_fontsize(text.get_fontsize() * part)
