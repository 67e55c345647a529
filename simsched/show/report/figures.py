"""Charts as Plotly takes them."""

from html import escape
from typing import Any, Final

import numpy as np

from simsched.base.text import printable_lines
from simsched.show.chart import MOST_MARKS, Axis, Chart, break_name, number

# of each shape of `simsched.show.chart`
_HATCHES: Final = ("", "/", ".", "\\", "x", "-", "|", "+")
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "6px,2px,2px,2px", "3px,6px")
_MARKS: Final = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "cross",
    "triangle-left",
    "triangle-right",
)
# pixels of a bar, and around bars
_BAR = 26
_ROOM = 100
_LINE: Final = 22  # characters on a line of a name
_TOOLS: Final = 44  # pixels at the right for the toolbar, beside the legend


def plain(text: str) -> str:
    """Return a printable text for Plotly, to which ``<``, ``&`` and ``%{`` mean something.

    >>> plain("a<b> %{y}")
    'a&lt;b&gt; &#37;{y}'
    """
    return escape(printable_lines(text), quote=False).replace("%{", "&#37;{")


def figure_of(chart: Chart) -> tuple[str, str, int, dict[str, Any]]:
    """Return a chart's title, a sentence on its contents, its height in pixels, and its traces and layout.

    Colours of texts, axes and grounds follow the theme of the page.
    """
    traces, layout, height = _DRAWN[chart.kind](chart)
    # a reference crosses the axis of the values, upright lines cross the axis of the places
    if chart.reference and chart.kind != "map":
        across = [("x" if chart.lying else "y", chart.reference, "dash")]
    else:
        across = []
    across += [("x", at, "dot") for at in chart.upright]
    shapes = [
        {
            "type": "line",
            f"{along}0": at,
            f"{along}1": at,
            f"{other}0": 0,
            f"{other}1": 1,
            f"{other}ref": "paper",
            "line": {"width": 1, "dash": dash},
        }
        for along, at, dash in across
        for other in "xy"
        if other != along
    ]
    legend = {
        "orientation": "h",
        "x": int(chart.lying),
        "xanchor": "auto",
        "y": 1.02,
        "yanchor": "bottom",
        "font": {"size": 11},
        "traceorder": "normal",
    }
    margin = {"l": 70, "r": _TOOLS, "t": 40 if chart.legend else 16, "b": 52} | layout.pop("margin", {})
    layout = {"shapes": shapes, "legend": legend, "showlegend": chart.legend, "margin": margin, **layout}
    title = ", ".join((chart.title or chart.label or chart.y.label or chart.kind).split("\n"))
    if chart.has_groups:
        what = f"{len(chart.series)} by {len(chart.places)}"
    else:
        what = f"{len(chart.series)}"
    values = np.concatenate([row for cells in chart.series.values() for row in cells.values()])
    low = number(float(values.min()))
    high = number(float(values.max()))
    summary = f"{title}: {chart.kind} chart of {what}, values from {low} to {high}"
    return title, summary, height, {"data": traces, "layout": layout}


def _lines(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    traces: list[dict[str, Any]] = []
    for name, look in chart.looks.items():
        x, mean, low, high = zip(*chart.spread(name), strict=True)
        places = x if chart.numeric else _names(x)
        (label,) = _names([chart.legend_text(name)])
        group = {"legendgroup": plain(str(name))}
        if low != high:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "none",
                    "x": [*places, *reversed(places)],
                    "y": [*high, *reversed(low)],
                    "fill": "toself",
                    "fillcolor": f"{look.colour}2E",
                    "hoverinfo": "skip",
                    "showlegend": False,
                    **group,
                }
            )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(x) <= MOST_MARKS else "lines",
                "x": places,
                "y": mean,
                "name": label,
                "line": {"color": look.colour, "dash": _DASHES[look.shape], "width": 2},
                "marker": {"symbol": _MARKS[look.shape], "size": 7},
                "hovertemplate": f"{label}: %{{y:.4g}} at %{{x}}<extra></extra>",
                **group,
            }
        )
    if chart.numeric:
        axis = _axis(chart.x)
    else:
        axis = {"type": "category", "title": {"text": plain(chart.x.label)}}
    if chart.ticks:
        axis |= {"tickvals": chart.ticks, "ticktext": [number(tick) for tick in chart.ticks]}
    return traces, {"xaxis": axis, "yaxis": _axis(chart.y)}, 380


def _bars(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    traces = []
    for name, look in chart.looks.items():
        places, starts, lengths, means, errors = zip(*chart.bars(name), strict=True)
        pattern = {"shape": _HATCHES[look.shape], "fgcolor": "rgba(0,0,0,0.4)", "fillmode": "overlay", "size": 7}
        trace: dict[str, Any] = {
            "type": "bar",
            "orientation": "h",
            "y": _names([name if x is None else x for x in places]),
            "x": lengths,
            "name": _names([name])[0],
            "marker": {"color": look.colour, "pattern": pattern},
            "customdata": means,
            "hovertemplate": "%{y}: %{customdata:.4g}<extra></extra>",
        }
        if any(starts):
            trace["base"] = starts
        if any(errors):
            trace["error_x"] = {"type": "data", "array": errors, "color": "#808080"}
        elif chart.kind == "bar":
            texts = [f"{mean:.3g}" for mean in means]
            trace |= {"text": texts, "textposition": "outside", "cliponaxis": False}
        traces.append(trace)
    return traces, *_lying(chart)


def _lying(chart: Chart) -> tuple[dict[str, Any], int]:
    """Return the layout and the height of a chart that lists places from top to bottom."""
    # Columns or boxes side by side in a group.
    if chart.has_groups and chart.kind in ("bar", "box"):
        several = len(chart.series)
    else:
        several = 1
    n = len(chart.places if chart.has_groups else chart.series) * max(1.0, 0.6 * several)
    mode = "group" if several > 1 else "overlay"
    return {
        "yaxis": {
            "type": "category",
            "autorange": "reversed",
            "automargin": True,
            "ticklabelstandoff": 4,
            "title": {"text": plain(chart.x.label)},
        },
        "xaxis": _axis(chart.y) | ({"rangemode": "tozero"} if chart.kind in ("bar", "stack") else {}),
        "bargap": 0.3,
        "barmode": mode,
        "boxmode": mode,
        "margin": {"l": 20},
    }, round(_ROOM + _BAR * n)


def _boxes(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    """Return boxes by their numbers: thousands of samples need not be in the page."""
    traces: list[dict[str, Any]] = []
    for name, look in chart.looks.items():
        for x, values in chart.series[name].items():
            low, middle, high = np.percentile(values, (25, 50, 75)).tolist()
            within = np.abs(values - (low + high) / 2) <= 2 * (high - low)
            inside = values[within]
            beyond = np.sort(values[~within])
            label, at = _names([name, name if x is None else x])
            traces.append(
                {
                    "type": "box",
                    "orientation": "h",
                    "y": [at],
                    "name": label,
                    "legendgroup": label,
                    "offsetgroup": label,
                    "showlegend": x == next(iter(chart.series[name])),
                    "q1": [low],
                    "median": [middle],
                    "q3": [high],
                    "lowerfence": [float(inside.min())],
                    "upperfence": [float(inside.max())],
                    "fillcolor": look.colour,
                    "line": {"width": 1.2},
                    "meta": "ink",
                    "marker": {"size": 3, "color": look.colour},
                }
            )
            if len(beyond):  # Plotly draws no box at all of an empty list of points
                traces[-1] |= {"x": [beyond.tolist()], "boxpoints": "outliers"}
    return traces, *_lying(chart)


def _map(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    rows = chart.rows[::-1]  # from the bottom
    values = [[chart.means.get((row, x)) for x in chart.places] for row in rows]
    texts = [["" if value is None else f"{value:.3g}" for value in row] for row in values]
    ticks: Any = chart.colours
    colours: Any = "Cividis"
    if chart.reference is not None:
        values = [[None if value is None else float(np.log(value)) for value in row] for row in values]
        ticks = np.log(ticks).tolist()
        colours = [[0, "#7B5AA6"], [0.5, "#F4F4F4"], [1, "#C96A12"]]
    bar = {"thickness": 14, "outlinewidth": 0, "tickvals": ticks, "ticktext": [f"{tick:.3g}" for tick in chart.colours]}
    trace = {
        "type": "heatmap",
        "x": _names(chart.places),
        "y": _names(rows),
        "z": values,
        "colorbar": bar,
        "colorscale": colours,
        "zmin": ticks[0],
        "zmax": ticks[-1],
        "text": texts,
        "texttemplate": "%{text}",
        "hoverongaps": False,
        "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
    }
    layout = {f"{key}axis": {"title": {"text": plain(getattr(chart, key).label)}, "type": "category"} for key in "xy"}
    return [trace], layout, min(700, 130 + 40 * len(rows))


def _scatter(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    low, high = chart.diagonal
    corners = [0.9 * low, 0.9 * high, 1.1 * high, 1.1 * low]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "none",
            "fill": "toself",
            "fillcolor": "rgba(128,128,128,0.14)",
            "name": "within 10 %",
            "x": [low, high, high, low],
            "y": corners,
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "x": [low, high],
            "y": [low, high],
            "hoverinfo": "skip",
            "meta": "ink",
            "line": {"dash": "dash", "width": 1},
            "name": "predicted = measured",
        },
    ]
    for name, look in chart.looks.items():
        x, y, start, end = np.transpose(list(chart.series[name].values())).tolist()
        marks = [_MARKS[look.shape] + "-open" * (place in chart.hollow) for place in chart.series[name]]
        error = {
            "type": "data",
            "symmetric": False,
            "color": look.colour,
            "width": 3,
            "array": [b - a for a, b in zip(x, end, strict=True)],
            "arrayminus": [a - b for a, b in zip(x, start, strict=True)],
        }
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": _names([name])[0],
                "x": x,
                "y": y,
                "text": _names(chart.series[name]),
                "error_x": error,
                "marker": {"color": look.colour, "size": 9, "symbol": marks, "line": {"width": 1}},
                "hovertemplate": "%{text}: predicted %{y:.4g}, measured %{x:.4g}<extra></extra>",
            }
        )
    axes = {key: _axis(axis) | {"range": [low, high]} for key, axis in (("xaxis", chart.x), ("yaxis", chart.y))}
    return traces, axes, 460


_DRAWN: Final = {
    "line": _lines,
    "bar": _bars,
    "box": _boxes,
    "map": _map,
    "tornado": _bars,
    "stack": _bars,
    "scatter": _scatter,
}


def _names(places: Any) -> list[str]:
    """Return texts for an axis, in as many lines as they need."""
    return [plain(break_name(str(place), _LINE)).replace("\n", "<br>") for place in places]


def _axis(axis: Axis) -> dict[str, Any]:
    if axis.log:
        log = {"type": "log", "dtick": 1, "exponentformat": "power"}
    else:
        log = {}
    return {"title": {"text": plain(axis.label)}} | log
