"""Charts as Plotly takes them."""

from html import escape
from typing import Any, Final

import numpy as np

from simsched.model.graph.columns import Floats
from simsched.show.chart import MOST_MARKS, Axis, Chart, broken, number
from simsched.show.looks import Look

# of each shape of `simsched.show.looks`
_HATCHES: Final = ("", "/", ".", "\\", "x", "-", "|", "+")
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "6px,2px,2px,2px", "3px,6px")
_MARKS: Final = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-left",
                 "triangle-right")  # fmt: skip
_BAR, _ROOM, _NAME = 26, 90, 7.2  # pixels of a bar, of what stands around bars, of a character beside an axis
_LINE: Final = 22  # characters on a line of a name
_MOST_TICKS: Final = 8  # at the places of lines
_TOOLS: Final = 44  # pixels at the right: the toolbar stands there, beside the legend
_LEGEND: Final = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 11},
                  "traceorder": "normal"}  # fmt: skip
_SKIP: Final = {"hoverinfo": "skip", "showlegend": False}


def plain(text: str) -> str:
    """Return a text for Plotly, to which ``<``, ``&`` and ``%{`` mean something.

    >>> plain("a<b> %{y}")
    'a&lt;b&gt; &#37;{y}'
    """
    return escape(text, quote=False).replace("%{", "&#37;{")


def figure_of(chart: Chart) -> tuple[str, str, int, dict[str, Any]]:
    """Return the title of a chart, what it shows in a sentence, its height in pixels, and its traces and layout.

    Bars, stacks and tornadoes lie, from top to bottom. Colours of texts, axes and grounds follow the theme of the page.
    """
    traces, layout, height = _DRAWN[chart.kind](chart)
    lying = chart.kind in ("bar", "tornado", "stack")
    shapes = [_level("x" if lying else "y", chart.reference)] if chart.reference and chart.kind != "map" else []
    shapes += [_level("x", at, dash="dot") for at in chart.upright]
    legend = _LEGEND | ({"x": 1, "xanchor": "right"} if lying else {})  # beside long names there is little room
    told = chart.kind in ("tornado", "stack", "scatter") or (chart.grouped and len(chart.series) > 1)
    layout = {"shapes": shapes, "legend": legend, "showlegend": told, **layout}
    margin = {"l": 70, "r": _TOOLS, "t": 40 if told else 16, "b": 52}
    layout["margin"] = margin | layout.get("margin", {})
    above = chart.x.label if chart.kind in ("tornado", "stack") else chart.y.label
    title = ", ".join((chart.title or chart.label or above or chart.kind).split("\n"))
    what = f"{len(chart.series)} by {len(chart.places)}" if chart.grouped else f"{len(chart.series)}"
    values = np.concatenate([row for given in chart.series.values() for row in given.values()])
    low, high = number(float(values.min())), number(float(values.max()))
    summary = f"{title}: {chart.kind} chart of {what}, values from {low} to {high}"
    return title, summary, height, {"data": traces, "layout": layout}


def _lines(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    traces: list[dict[str, Any]] = []
    for name, look in chart.looks.items():
        x, mean, low, high = zip(*chart.spread(name), strict=True)
        places = x if chart.numeric else _names(x)
        (label,), group = _names([chart.legend(name)]), {"legendgroup": str(name)}
        if low != high:
            traces.append({"type": "scatter", "mode": "none", "x": [*places, *reversed(places)],
                           "y": [*high, *reversed(low)], "fill": "toself", "fillcolor": _see_through(look.colour),
                           **_SKIP, **group})  # fmt: skip
        traces.append({"type": "scatter", "mode": "lines+markers" if len(x) <= MOST_MARKS else "lines",
                       "x": places, "y": mean, "name": label,
                       "line": {"color": look.colour, "dash": _DASHES[look.shape], "width": 2},
                       "marker": {"symbol": _MARKS[look.shape], "size": 7},
                       "hovertemplate": f"{label}: %{{y:.4g}} at %{{x}}<extra></extra>", **group})  # fmt: skip
    axis = _axis(chart.x) if chart.numeric else {"type": "category", "title": {"text": plain(chart.x.label)}}
    if chart.numeric and len(chart.places) <= _MOST_TICKS:
        axis |= {"tickvals": chart.places, "ticktext": [number(each) for each in chart.places]}
    return traces, {"xaxis": axis, "yaxis": _axis(chart.y)}, 380


def _bars(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    traces = []
    for name, look in chart.looks.items():
        rows = chart.spread(name)
        places, mean = [name if x is None else x for x, *_ in rows], [mean for _, mean, *_ in rows]
        trace: dict[str, Any] = {
            "type": "bar", "orientation": "h", "y": _names(places), "x": mean, "name": _names([name])[0],
            "marker": _filled(look), "hovertemplate": "%{y}: %{x:.4g}<extra></extra>",
        }  # fmt: skip
        errors = [high - each for _, each, _, high in rows]
        if any(errors):
            trace["error_x"] = {"type": "data", "array": errors, "color": "#808080"}
        else:
            texts = [f"{each:.3g}" for each in mean]
            trace |= {"text": texts, "textposition": "outside", "cliponaxis": False}
        traces.append(trace)
    layout = _lying(chart, chart.y, chart.x.label) | {"barmode": "group" if chart.grouped else "overlay"}
    return traces, layout, _ROOM + (_BAR if not chart.grouped else 18) * sum(map(len, chart.series.values()))


def _segments(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    traces = [
        {"type": "bar", "orientation": "h", "y": _names(chart.places), "name": plain(str(name)),
         "base": [start for start, _ in chart.segments(name)], "x": [length for _, length in chart.segments(name)],
         "marker": _filled(look), "customdata": [chart.means.get((name, x), 0.0) for x in chart.places],
         "hovertemplate": f"%{{y}}, {plain(str(name))}: %{{customdata:.4g}}<extra></extra>"}
        for name, look in chart.looks.items()
    ]  # fmt: skip
    layout = _lying(chart, chart.x) | {"barmode": "overlay"}
    if chart.kind == "tornado":
        del layout["xaxis"]["rangemode"]
    return traces, layout, _ROOM + 24 + _BAR * len(chart.places)


def _lying(chart: Chart, axis: Axis, across: str = "") -> dict[str, Any]:
    names = chart.places if chart.grouped else chart.series
    longest = max(len(line) for name in names for line in broken(str(name), _LINE).split("\n"))
    left = 20 + _NAME * longest + (20 if across else 0)
    return {
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": False, "ticklabelstandoff": 4,
                  "title": {"text": plain(across)}},
        "xaxis": _axis(axis) | {"rangemode": "tozero"}, "bargap": 0.3, "margin": {"l": left, "b": 48},
    }  # fmt: skip


def _boxes(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    cells = [(name, look, x, row) for name, look in chart.looks.items() for x, row in chart.series[name].items()]
    traces = [_box(name, name if x is None else x, row, look) | {"showlegend": x == next(iter(chart.series[name]))}
              for name, look, x, row in cells]  # fmt: skip
    names = len(chart.places if chart.grouped else chart.series)
    layout = {"yaxis": _axis(chart.y), "xaxis": {"type": "category", "title": {"text": plain(chart.x.label)},
              "tickangle": -30 if names > 6 else 0}, "boxmode": "group" if chart.grouped else "overlay"}  # fmt: skip
    return traces, layout | {"margin": {"b": 70}}, 380


def _box(name: Any, place: Any, values: Floats, look: Look) -> dict[str, Any]:
    """Return a box by its numbers: thousands of samples need not be in the page."""
    low, middle, high = np.percentile(values, (25, 50, 75)).tolist()
    reach = 1.5 * (high - low)
    inside = values[(values >= low - reach) & (values <= high + reach)]
    beyond = np.sort(values[(values < low - reach) | (values > high + reach)])
    label, at = _names([name, place])
    box: dict[str, Any] = {
        "type": "box", "name": label, "legendgroup": label, "offsetgroup": label, "x": [at],
        "q1": [low], "median": [middle], "q3": [high],
        "lowerfence": [float(inside.min())], "upperfence": [float(inside.max())],
        "fillcolor": look.colour, "line": {"width": 1.2}, "meta": "ink", "marker": {"size": 3, "color": look.colour},
    }  # fmt: skip
    # Plotly draws no box at all of an empty list of points
    return box | ({"y": [beyond.tolist()], "boxpoints": "outliers"} if len(beyond) else {})


def _map(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    rows = chart.rows[::-1]  # from the bottom
    low, high = chart.reach
    scale: dict[str, Any] = {"colorscale": "Cividis", "zmin": low, "zmax": high}
    values = [[chart.means.get((row, x)) for x in chart.places] for row in rows]
    shown, texts = values, [["" if each is None else f"{each:.3g}" for each in row] for row in values]
    bar: dict[str, Any] = {"thickness": 14, "outlinewidth": 0, "nticks": 5}
    if chart.reference is not None:  # half is as far from the centre as twice
        span = max(float(np.log(high / chart.reference)), float(np.log(chart.reference / low)), 0.05)
        ticks = np.linspace(-span, span, 5)
        shown = [[None if each is None else float(np.log(each / chart.reference)) for each in row] for row in values]
        scale = {"colorscale": [[0, "#7B5AA6"], [0.5, "#F4F4F4"], [1, "#C96A12"]], "zmin": -span, "zmax": span}
        bar |= {"tickvals": ticks.tolist(), "ticktext": [f"{chart.reference * np.exp(tick):.3g}" for tick in ticks]}
    trace = {"type": "heatmap", "x": _names(chart.places), "y": _names(rows), "z": shown, "text": texts,
             "texttemplate": "%{text}", "hoverongaps": False, "xgap": 1, "ygap": 1, "colorbar": bar,
             "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>"} | scale  # fmt: skip
    layout = {key: {"title": {"text": plain(axis.label)}, "type": "category"}
              for key, axis in (("xaxis", chart.x), ("yaxis", chart.y))}  # fmt: skip
    return [trace], layout, min(700, 130 + 40 * len(rows))


def _scatter(chart: Chart) -> tuple[list[Any], dict[str, Any], int]:
    low, high = chart.diagonal
    corners = [0.9 * low, 0.9 * high, 1.1 * high, 1.1 * low]
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "none", "fill": "toself", "fillcolor": "rgba(128,128,128,0.14)",
         "name": "within 10 %", "x": [low, high, high, low], "y": corners, "hoverinfo": "skip"},
        {"type": "scatter", "mode": "lines", "x": [low, high], "y": [low, high], "hoverinfo": "skip", "meta": "ink",
         "line": {"dash": "dash", "width": 1}, "name": "predicted = measured"},
    ]  # fmt: skip
    for name, look in chart.looks.items():
        x, y, start, end = np.transpose(list(chart.series[name].values())).tolist()
        marks = [_MARKS[look.shape] + "-open" * (place in chart.hollow) for place in chart.series[name]]
        error = {"type": "data", "symmetric": False, "color": look.colour, "width": 3,
                 "array": [b - a for a, b in zip(x, end, strict=True)],
                 "arrayminus": [a - b for a, b in zip(x, start, strict=True)]}  # fmt: skip
        traces.append({"type": "scatter", "mode": "markers", "name": _names([name])[0], "x": x, "y": y,
                       "text": _names(chart.series[name]), "error_x": error,
                       "marker": {"color": look.colour, "size": 9, "symbol": marks, "line": {"width": 1}},
                       "hovertemplate": "%{text}: predicted %{y:.4g}, measured %{x:.4g}<extra></extra>"})  # fmt: skip
    axes = {key: _axis(axis) | {"range": [low, high]} for key, axis in (("xaxis", chart.x), ("yaxis", chart.y))}
    return traces, axes, 460


_DRAWN: Final = {"line": _lines, "bar": _bars, "box": _boxes, "map": _map, "tornado": _segments, "stack": _segments,
                 "scatter": _scatter}  # fmt: skip


def _names(places: Any) -> list[str]:
    """Return texts for an axis, in as many lines as they need."""
    return [plain(broken(str(each), _LINE)).replace("\n", "<br>") for each in places]


def _axis(axis: Axis) -> dict[str, Any]:
    log = {"type": "log", "dtick": 1, "exponentformat": "power"} if axis.log else {}
    return {"title": {"text": plain(axis.label)}} | log


def _level(along: str, at: float, dash: str = "dash") -> dict[str, Any]:
    """Return a line across the figure at a value of one axis."""
    other = "y" if along == "x" else "x"
    return {"type": "line", f"{along}0": at, f"{along}1": at, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper",
            "line": {"width": 1, "dash": dash}}  # fmt: skip


def _filled(look: Look) -> dict[str, Any]:
    pattern = {"shape": _HATCHES[look.shape], "fgcolor": "rgba(0,0,0,0.4)", "fillmode": "overlay", "size": 7}
    return {"color": look.colour, "pattern": pattern}


def _see_through(colour: str) -> str:
    r, g, b = bytes.fromhex(colour[1:])
    return f"rgba({r},{g},{b},0.18)"
