"""Figures of a report, from plain numbers: bars, stacks, lines, boxes, maps and points."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.numeric import is_number
from simsched.base.units import time_unit
from simsched.model.graph.columns import Floats
from simsched.show.figure import PALETTE
from simsched.show.plot.looks import HATCHES, lines_of, looks_of
from simsched.show.report.html import plain
from simsched.show.report.sections import Figure

Series = Mapping[str, Mapping[Any, Sequence[float]]]
"""Values by name, then by place on the x axis: one of each instance."""

# as Plotly calls what `simsched.show.plot.looks` gives
_SHAPES: Final = dict(zip(HATCHES, ("", "/", "\\", "x", ".", "-", "|", "+"), strict=True))
_DASHES: Final = ("solid", "dash", "dot", "dashdot")
_MARKS: Final = {"o": "circle", "s": "square", "D": "diamond", "^": "triangle-up", "v": "triangle-down",
                 "<": "triangle-left", ">": "triangle-right", "P": "cross"}  # fmt: skip
_BAR, _ROOM = 26, 90  # pixels of a bar, and of what stands around them
_BLAMES: Final = {"compute": 0, "contention": 5, "launch": 1, "sync": 3, "transfer": 2, "dependency": 6}
_BAND: Final = 0.18  # opacity
_NAME: Final = 7.2  # pixels of a character beside an axis
_MOST_POINTS: Final = 60  # outliers of a box
_DEEPEST: Final = 20.0  # below a mean a band on a logarithmic axis ends at this part of it
_LEGEND: Final = {
    "orientation": "h",
    "x": 0,
    "y": 1.02,
    "yanchor": "bottom",
    "font": {"size": 11},
    "traceorder": "normal",
}


def bars(
    title: str, values: Mapping[str, Sequence[float]], label: str, *, looks: Sequence[str] = (),
    reference: float | None = None, logx: bool = False, note: str = "",
) -> Figure:  # fmt: skip
    """Return a bar for each name, from top to bottom: the mean, with a sample standard deviation where there are more.

    Parameters
    ----------
    looks
        What each bar looks like, by the name of a scheduler; by default its own.
    """
    names, mean = list(values), [float(np.mean(each)) for each in values.values()]
    traces = []
    for name, length, look in zip(names, mean, looks_of(list(looks or names)), strict=True):
        trace: dict[str, Any] = {
            "type": "bar", "orientation": "h", "y": [plain(name)], "x": [length], "text": [f"{length:.3g}"],
            "textposition": "outside", "cliponaxis": False, "showlegend": False, "marker": _filled(look),
            "hovertemplate": "%{y}: %{x:.4g}<extra></extra>",
        }  # fmt: skip
        if len(values[name]) > 1:
            spread = {"type": "data", "array": [float(np.std(values[name], ddof=1))], "color": "#808080"}
            trace |= {"error_x": spread, "textposition": "inside", "insidetextanchor": "start",
                      "insidetextfont": {"color": "black"}}  # fmt: skip
        traces.append(trace)
    layout = _lying(names, label) | {"barmode": "overlay"}
    if logx:
        layout["xaxis"] = _axis(label, logx)
    layout["shapes"] = [] if reference is None else [_line("x", reference)]
    longest = int(np.argmax(mean))
    summary = f"{title}: {len(names)} bars, the longest {names[longest]} with {mean[longest]:.3g}"
    return Figure(title, tuple(traces), layout, summary, _ROOM + _BAR * len(names), note)


def stacks(title: str, blames: Mapping[str, Mapping[str, float]], note: str = "") -> Figure:
    """Return a bar for each name, of what its critical path is blamed on, in us."""
    scale, unit = time_unit(max(sum(each.values()) for each in blames.values()))
    names = [plain(name) for name in blames]
    causes = [cause for cause in _BLAMES if any(each.get(cause, 0.0) > 0 for each in blames.values())]
    traces = tuple(
        {
            "type": "bar", "orientation": "h", "y": names, "name": cause,
            "x": [each.get(cause, 0.0) / scale for each in blames.values()],
            "marker": {"color": PALETTE[_BLAMES[cause]]},
            "hovertemplate": f"%{{y}}, {cause}: %{{x:.4g}} {unit}<extra></extra>",
        }
        for cause in causes
    )  # fmt: skip
    layout = _lying(list(blames), f"time on the critical path ({unit})") | {"barmode": "stack", "legend": _LEGEND}
    layout["margin"] = layout["margin"] | {"t": 40}
    most = max(causes, key=lambda c: sum(each.get(c, 0.0) for each in blames.values()), default="nothing")
    return Figure(title, traces, layout, f"{title}; most of all {most}", _ROOM + 24 + _BAR * len(names), note)


def _lying(names: Sequence[str], label: str) -> dict[str, Any]:
    left = 20 + _NAME * max(len(name) for name in names)
    return {
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": False, "ticklabelstandoff": 4},
        "xaxis": {"title": {"text": plain(label)}, "rangemode": "tozero"},
        "bargap": 0.3, "margin": {"l": min(left, 280), "r": 60, "t": 16, "b": 48},
    }  # fmt: skip


def lines(
    title: str, series: Series, xlabel: str, ylabel: str, *, logx: bool = False, logy: bool = False,
    geometric: bool = False, reference: float | None = None, note: str = "", upright: Sequence[float] = (),
) -> Figure:  # fmt: skip
    """Return a line through the means of each name, in a band of a sample standard deviation.

    Parameters
    ----------
    geometric
        Whether means and deviations are those of logarithms.
    reference
        Where a level line is drawn.
    upright
        Where upright lines are.
    """
    traces: list[dict[str, Any]] = []
    numeric = all(is_number(x) for given in series.values() for x in given)
    for name, (colour, dash, mark) in zip(series, lines_of(list(series)), strict=True):
        x = sorted(series[name]) if numeric else list(series[name])
        mean, low, high = zip(*(_spread(series[name][v], geometric, logy) for v in x), strict=True)
        label, group = plain(name), {"legendgroup": name}
        places = x if numeric else [plain(str(v)) for v in x]
        if low != high:
            traces.append({"type": "scatter", "mode": "none", "x": [*places, *reversed(places)],
                           "y": [*high, *reversed(low)], "fill": "toself", "fillcolor": _see_through(colour),
                           "hoverinfo": "skip", "showlegend": False} | group)  # fmt: skip
        line = {"color": colour, "dash": _dash(dash), "width": 2}
        traces.append({"type": "scatter", "mode": "lines+markers" if len(x) < _MOST_POINTS else "lines", "x": places,
                       "y": mean, "name": label, "line": line, "marker": {"symbol": _MARKS[mark], "size": 7},
                       "hovertemplate": f"{label}: %{{y:.4g}} at %{{x}}<extra></extra>"} | group)  # fmt: skip
    shapes = [] if reference is None else [_line("y", reference)]
    shapes += [_line("x", at, dash="dot") for at in upright]
    layout = {
        "xaxis": _axis(xlabel, logx and numeric) | ({} if numeric else {"type": "category"}),
        "yaxis": _axis(ylabel, logy), "legend": _LEGEND, "shapes": shapes,
        "showlegend": len(series) > 1, "margin": {"l": 70, "r": 20, "t": 30 if len(series) > 1 else 16, "b": 52},
    }  # fmt: skip
    summary = f"{title or ylabel}: {ylabel} over {xlabel}, {len(series)} {'line' if len(series) == 1 else 'lines'}"
    return Figure(title or f"{ylabel} over {xlabel}", tuple(traces), layout, summary, 380, note)


def _spread(values: Sequence[float], geometric: bool, log: bool) -> tuple[float, float, float]:
    """Return the mean, and what is a sample standard deviation below and above it; above 0 on a logarithmic axis."""
    given = np.log(values) if geometric else np.asarray(values, np.float64)
    mean, std = float(given.mean()), float(given.std(ddof=1)) if len(given) > 1 else 0.0
    ends = (mean, mean - std, mean + std)
    if geometric:
        return float(np.exp(ends[0])), float(np.exp(ends[1])), float(np.exp(ends[2]))
    return (mean, max(ends[1], mean / _DEEPEST), ends[2]) if log else ends


def boxes(
    title: str, samples: Mapping[str, npt.ArrayLike], label: str, *, logy: bool = False, note: str = "",
    reference: float | None = None,
) -> Figure:  # fmt: skip
    """Return a box for each name: quartiles, whiskers to the furthest sample within 1.5 heights, and points beyond."""
    names = list(samples)
    traces = tuple(_box(name, np.asarray(samples[name], np.float64), look)
                   for name, look in zip(names, looks_of(names), strict=True))  # fmt: skip
    layout = {"yaxis": _axis(label, logy), "xaxis": {"type": "category", "tickangle": -30 if len(names) > 6 else 0},
              "showlegend": False,
              "margin": {"l": 70, "r": 20, "t": 16, "b": 70},
              "shapes": [] if reference is None else [_line("y", reference)]}  # fmt: skip
    return Figure(title, traces, layout, f"{title}: {len(names)} boxes", 380, note)


def _box(name: str, values: Floats, look: tuple[str, str]) -> dict[str, Any]:
    """Return a box by its numbers: thousands of samples need not be in the page."""
    low, middle, high = np.percentile(values, (25, 50, 75)).tolist()
    reach = 1.5 * (high - low)
    inside = values[(values >= low - reach) & (values <= high + reach)]
    beyond = np.sort(values[(values < low - reach) | (values > high + reach)])
    if len(beyond) > _MOST_POINTS:  # the outermost of each end
        beyond = np.r_[beyond[: _MOST_POINTS // 2], beyond[-_MOST_POINTS // 2 :]]
    box: dict[str, Any] = {
        "type": "box", "name": plain(name), "q1": [low], "median": [middle], "q3": [high], "x": [plain(name)],
        "lowerfence": [float(inside.min())], "upperfence": [float(inside.max())], "fillcolor": look[0],
        "line": {"width": 1.2}, "meta": "ink", "marker": {"size": 3, "color": look[0]},
    }  # fmt: skip
    # Plotly draws no box at all of an empty list of points
    return box | ({"y": [beyond.tolist()], "boxpoints": "outliers"} if len(beyond) else {})


def heat(
    title: str, cells: Mapping[Any, Mapping[Any, float | None]], xlabel: str, ylabel: str, label: str,
    *, centre: float | None = None, limits: tuple[float, float] | None = None, note: str = "",
) -> Figure:  # fmt: skip
    """Return a map: a row of cells for each key, a cell for each key within; colours turn at `centre`."""
    rows = list(cells)
    columns = list(dict.fromkeys(x for given in cells.values() for x in given))
    values = [[cells[row].get(x) for x in columns] for row in rows]
    known = [v for given in values for v in given if v is not None]
    low, high = limits or (min(known, default=0.0), max(known, default=1.0))
    scale: dict[str, Any] = {"colorscale": "Viridis", "zmin": low, "zmax": high}
    if centre is not None:
        width = max(high - centre, centre - low) or 1.0
        scale = {"colorscale": [[0, PALETTE[5]], [0.5, "#F4F4F4"], [1, PALETTE[4]]], "zmin": centre - width,
                 "zmax": centre + width}  # fmt: skip
    trace = {"type": "heatmap", "x": [plain(str(x)) for x in columns], "y": [plain(str(y)) for y in rows], "z": values,
             "texttemplate": "%{z:.3g}", "hoverongaps": False, "xgap": 1, "ygap": 1,
             "colorbar": {"nticks": 5, "thickness": 14, "outlinewidth": 0},
             "hovertemplate": "%{y}, %{x}: %{z:.4g}<extra></extra>"} | scale  # fmt: skip
    layout = {"xaxis": {"title": {"text": plain(xlabel)}, "type": "category"},
              "yaxis": {"title": {"text": plain(ylabel)}, "type": "category"}}  # fmt: skip
    summary = f"{title or label}: a map of {len(rows)} by {len(columns)} cells, from {low:.3g} to {high:.3g}"
    return Figure(title or label, (trace,), layout, summary, min(700, 130 + 40 * len(rows)), note)


def time_axis(label: str, values: Sequence[float]) -> tuple[float, str]:
    """Return what times in us are divided by to read well, and the label of their axis."""
    scale, unit = time_unit(max(values, default=0.0))
    return scale, f"{label} ({unit})"


def _axis(label: str, log: bool) -> dict[str, Any]:
    return {"title": {"text": plain(label)}} | ({"type": "log"} if log else {})


def _line(along: str, at: float, dash: str = "dash") -> dict[str, Any]:
    """Return a line across the figure at a value of one axis."""
    other = "y" if along == "x" else "x"
    return {"type": "line", f"{along}0": at, f"{along}1": at, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper",
            "line": {"width": 1, "dash": dash}}  # fmt: skip


def _filled(look: tuple[str, str]) -> dict[str, Any]:
    colour, hatch = look
    pattern = {"shape": _SHAPES[hatch], "fgcolor": "rgba(0,0,0,0.4)", "fillmode": "overlay", "size": 7}
    return {"color": colour, "pattern": pattern}


def _see_through(colour: str) -> str:
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({r},{g},{b},{_BAND})"


def _dash(line: Any) -> str:
    """Return what Plotly calls a kind of line of matplotlib's."""
    if line == "solid":
        return _DASHES[0]
    gaps = line[1]
    return _DASHES[3] if len(gaps) > 2 else _DASHES[1] if gaps[0] > gaps[1] else _DASHES[2]
