"""Figures for papers from plain numbers: lines, bars, boxes and maps."""

import os
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from simsched.show.chart import Axis, Chart, PowerLaw, Values, named, power_law
from simsched.show.looks import looks_of
from simsched.show.paper import draw
from simsched.show.results import boxes_of
from simsched.simulator import Makespans

__all__ = ["PowerLaw", "bar_plot", "box_plot", "heat_map", "line_plot", "looks_of", "power_law", "scaling_plot"]

Path = str | os.PathLike[str] | None


def line_plot(
    series: Values, path: Path = None, *, ax: Any = None, xlabel: str = "", ylabel: str = "", logx: bool | None = None,
    logy: bool | None = None, **texts: Any,
) -> Any:  # fmt: skip
    """Draw a line per name through the means of its instances, with a band of their standard deviation.

    Parameters
    ----------
    series
        Values by name, then by place on the x axis: ``{"lios": {100: [1.2, 1.3], 200: [1.4, 1.4]}}``. Places that are
        numbers stand where they are, others side by side in the order of their first use. The band spans one sample
        standard deviation (n - 1) up and down; a single value has none. On a logarithmic axis a band that would reach
        0 ends at the least value.
    path
        Where to write the figure; the suffix, ``.png``, ``.svg`` or ``.pdf``, gives the format.
    ax
        Matplotlib axes to draw into; by default a figure of its own, outside of pyplot.
    xlabel, ylabel
        Texts at the axes.
    logx, logy
        Whether axes are logarithmic; None: where the largest is more than 8 times, upwards 30 times, the least.
    **texts
        `title` above and `note` below, wrapped where they are too long; `reference`, where to draw a thin level line,
        1 of speedups, say; `columns`, the width in columns of a paper, 1 or 2.

    Returns
    -------
    matplotlib.axes.Axes
        Its `figure` is the whole picture.

    Raises
    ------
    StudyError
        If there is nothing to draw, a value is not finite, or one on a logarithmic axis not positive.
    FileError
        If the suffix is not known or the file cannot be written.

    Notes
    -----
    Colours, markers and kinds of lines are those of `looks_of`.
    """
    return draw(Chart("line", series, Axis(xlabel, logx), Axis(ylabel, logy), **texts), path, ax=ax)


def bar_plot(
    values: Mapping[str, npt.ArrayLike] | Values,
    path: Path = None, *, ax: Any = None, xlabel: str = "", ylabel: str = "", logy: bool = False, **texts: Any,
) -> Any:  # fmt: skip
    """Draw a bar per name, or a group of bars per category, as high as the mean of its instances.

    Parameters
    ----------
    values
        Values by name: ``{"lios": [1.2, 1.3]}``, each with its name below; or by name, then by category:
        ``{"lios": {"inception_v3": [1.2], "squeezenet": [1.1]}}``, in groups, numbers from the smallest, others in the
        order of their first use. Error bars span a sample standard deviation (n - 1); a single value has none.
    path, ax, xlabel, ylabel, logy, **texts
        As in `line_plot`, as are what is returned and raised; only some names with categories are a StudyError, too.
    """
    return draw(Chart("bar", named(values), Axis(xlabel), Axis(ylabel, logy), **texts), path, ax=ax)


def box_plot(
    samples: Mapping[str, Makespans | npt.ArrayLike] | Values,
    path: Path = None, *, ax: Any = None, xlabel: str = "", ylabel: str = "", logy: bool = False, **texts: Any,
) -> Any:  # fmt: skip
    """Draw samples: a box per scheduler, from left to right in the order given, or a group of boxes per category.

    The line in the box is the median, the box spans the quartiles, whiskers reach to the furthest
    samples within 1.5 of its heights, and what lies beyond is drawn as points. Where
    schedulers differ so much that their boxes are too flat to be seen, the same is drawn again below, in per cent of
    the median of each; not with `ax`.

    Parameters
    ----------
    samples
        Makespans in us by scheduler; or, with a `ylabel`, any values by name, or by name and then by category, drawn in
        groups: numbers from the smallest, others in the order of their first use.
    ylabel
        What the values are; by default latencies, in us, ms or s by their size.
    path, ax, xlabel, logy, **texts
        As in `line_plot`, as are what is returned and raised; no samples at all are a SimulationError.
    """
    return draw(boxes_of(samples, ylabel, xlabel=xlabel, logy=logy, **texts), path, ax=ax)


def heat_map(
    cells: Values, path: Path = None, *, ax: Any = None, xlabel: str = "", ylabel: str = "",
    centre: float | None = 1.0, **texts: Any,
) -> Any:  # fmt: skip
    """Draw a cell per pair of parameters, coloured and labelled by the mean of its instances.

    Parameters
    ----------
    cells
        Values by row, then by column: ``{2: {100: [1.2, 1.3], 200: [1.4]}, 4: {...}}``. Numbers run upwards and to the
        right, anything else from the top and to the right in the order of its first use. Missing cells are grey.
    centre
        Where colours turn, as 1 of a speedup: half as much is as strong a colour as twice as much. None: from dark,
        the least value, to light.
    path, ax, xlabel, ylabel, **texts
        As in `line_plot`, as are what is returned and raised. Also `label`, what the colours mean, and `limits`,
        values that the colours reach at least: those of several maps, so that they can be compared.
    """
    return draw(Chart("map", cells, Axis(xlabel), Axis(ylabel), reference=centre, **texts), path, ax=ax)


def scaling_plot(
    series: Values, path: Path = None, *, ax: Any = None, xlabel: str = "operators",
    ylabel: str = "search time (s)", **texts: Any,
) -> tuple[Any, dict[str, PowerLaw]]:  # fmt: skip
    """Draw times over sizes on logarithmic axes; the legend has the exponent of each name where it is known.

    Parameters
    ----------
    series
        Times by name, then by size, all positive: ``{"lios": {100: [0.001, 0.0012], 1000: [0.011]}}``. Lines go
        through geometric means, bands span a sample standard deviation of the logarithms: what the fit sees.
    path, ax, xlabel, ylabel, **texts
        As in `line_plot`, as is what is raised; sizes that are no numbers are a StudyError, too.

    Returns
    -------
    matplotlib.axes.Axes
        Its `figure` is the whole picture.
    dict
        The `PowerLaw` of each name that has several sizes, `known` or not.
    """
    chart = Chart("line", series, Axis(xlabel, True), Axis(ylabel, True), geometric=True, **texts)
    return draw(chart, path, ax=ax), chart.laws
