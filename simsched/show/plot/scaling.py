"""Times over sizes on logarithmic axes, with the power law that fits each."""

import math
import os
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from simsched.base.errors import StudyError
from simsched.model.graph.columns import Floats
from simsched.show.figure import require_format, style
from simsched.show.plot.axes import Labels, Values, axes_for, checked, finish, places_of, plain_axes, spread
from simsched.show.plot.looks import lines_of
from simsched.show.plot.scales import require_positive, scale_axis, ticks_at

_HEIGHT: Final = 2.6  # inches, without legend and note


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """``time = factor * size ** exponent``, fitted to times of one scheduler.

    Parameters
    ----------
    exponent, factor
        Of the law.
    standard_error
        Of the exponent; NaN where fewer than three times leave none.
    n
        How many times were fitted.
    """

    exponent: float
    factor: float
    standard_error: float
    n: int

    def __call__(self, size: float) -> float:
        """Return the time at a size."""
        return self.factor * math.pow(size, self.exponent)


def power_law(times: dict[Any, Floats]) -> PowerLaw | None:
    """Return the power law of least squares in the logarithms of sizes and times, None of a single size.

    Parameters
    ----------
    times
        Positive times by positive size; every time counts alike.

    Notes
    -----
    The standard error is that of the slope of an ordinary linear regression: it tells how well the law is known if it
    holds, and not whether it holds. O(n).
    """
    x = np.log(np.concatenate([np.full(len(row), float(size)) for size, row in times.items()]))
    y = np.log(np.concatenate(list(times.values())))
    away = x - x.mean()
    squares = float(away @ away)
    if squares <= 0:
        return None
    slope = float(away @ y) / squares
    left = y - y.mean() - slope * away
    error = math.sqrt(float(left @ left) / (len(x) - 2) / squares) if len(x) > 2 else math.nan
    return PowerLaw(slope, math.exp(float(y.mean() - slope * x.mean())), error, len(x))


def scaling_plot(
    series: Values,
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Any = None,
    title: str = "",
    xlabel: str = "operators",
    ylabel: str = "search time (s)",
    columns: int = 1,
    note: str = "",
) -> tuple[Any, dict[str, PowerLaw]]:
    """Draw times over sizes on logarithmic axes; the legend has the exponent of each name.

    Parameters
    ----------
    series
        Times by name, then by size, all positive: ``{"lios": {100: [0.001, 0.0012], 1000: [0.011]}}``. Markers are
        geometric means, bars span a sample standard deviation of the logarithms up and down: what the fit sees.
    path, ax, title, xlabel, ylabel, columns, note
        As in `line_plot`.

    Returns
    -------
    matplotlib.axes.Axes
        Its `figure` is the whole picture.
    dict
        The `PowerLaw` of each name, the thin line; names with a single size have none.

    Raises
    ------
    StudyError
        If there is nothing to draw, a size is no number, or anything is not positive.
    FileError
        If the suffix is not known or the file cannot be written.
    """
    require_format(path)
    values = checked(series)
    at, places, numeric = places_of(values)
    if not numeric:
        raise StudyError("times are drawn over sizes, which must be numbers: try a bar plot")
    require_positive({"the x axis": {x: np.array([float(x)]) for x in at}} | values, True)
    laws: dict[str, PowerLaw] = {}
    with style():
        own, ax = ax is None, axes_for(ax, columns, _HEIGHT)
        plain_axes(ax, grid="both")
        handles = []
        for (colour, line, marker), (name, given) in zip(lines_of(list(values)), values.items(), strict=True):
            if not given:
                continue
            given = {size: given[size] for size in sorted(given)}
            law, label = power_law(given), name
            sizes = np.array([float(size) for size in given])
            if law is not None:
                laws[name], label = law, f"{name} O(n^{law.exponent:.2f})"
                ends = sizes[[0, -1]]
                ax.plot(ends, [law(n) for n in ends], color=colour, linestyle=line, linewidth=0.9, zorder=2)
            _points(ax, sizes, list(given.values()), colour, marker)
            handles.append(_handle(colour, line, marker, label))
        scale_axis(ax.xaxis, True)
        scale_axis(ax.yaxis, True)
        ticks_at(ax, places)
        finish(ax, own, Labels(title, xlabel, ylabel, note), path, handles=handles)
    return ax, laws


def _points(ax: Any, sizes: Floats, rows: list[Floats], colour: str, marker: str) -> None:
    means = np.array([np.exp(np.log(row).mean()) for row in rows])
    wide = np.array([np.exp(spread(np.log(row))) for row in rows])
    ax.errorbar(
        sizes, means, [means - means / wide, means * wide - means], fmt=marker, color=colour, markersize=3.8,
        markeredgecolor="black", markeredgewidth=0.4, elinewidth=0.7, ecolor=colour, zorder=2.5,
    )  # fmt: skip


def _handle(colour: str, line: Any, marker: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, linestyle=line, linewidth=0.9, marker=marker, markersize=3.8,
                  markeredgecolor="black", markeredgewidth=0.4, label=label)  # fmt: skip
