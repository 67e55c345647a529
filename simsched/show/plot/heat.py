"""Maps of one number over two parameters."""

import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from simsched.base.errors import StudyError
from simsched.model.graph.columns import Floats
from simsched.show.figure import new_figure, require_format, style
from simsched.show.plot.axes import (
    CHARACTER,
    LABEL,
    POINT,
    TICK,
    Labels,
    broken,
    checked,
    finish,
    places_of,
    width_of,
)
from simsched.show.plot.looks import luminance
from simsched.show.plot.scales import number

# both can be told apart by all: the one runs from violet over white to orange, the other from dark to light
_DIVERGING, _SEQUENTIAL = "PuOr_r", "cividis"
_CELL: Final = 0.27  # inches of height of a cell
_LEAST_HEIGHT: Final = 1.9  # inches, so that the bar of colours has room for its label
_LEAST_SPAN: Final = 1.05  # of the colours around the centre, up and down
_EMPTY: Final = "#D9D9D9"
_ROOM: Final = 0.6  # part of the width that cells have
_DARK: Final = 0.18  # white is read better on what is darker
_WIDE: Final = 4.0  # colours over more than this have powers of two on their bar


def heat_map(
    cells: Mapping[Any, Mapping[Any, Any]],
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Any = None,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    label: str = "",
    centre: float | None = 1.0,
    limits: tuple[float, float] | None = None,
    columns: int = 1,
    note: str = "",
) -> Any:
    """Draw a cell per pair of parameters, coloured and labelled by the mean of its instances.

    Parameters
    ----------
    cells
        Values by row, then by column: ``{2: {100: [1.2, 1.3], 200: [1.4]}, 4: {...}}``. Numbers run upwards and to the
        right, anything else from the top and to the right in the order of its first use. Missing cells are grey.
    label
        What the colours mean.
    centre
        Where colours turn, as 1 of a speedup: half as much is as strong a colour as twice as much. None: from dark,
        the least value, to light.
    limits
        Values that the colours reach at least: those of several maps, so that they can be compared.
    path, ax, title, xlabel, ylabel, columns, note
        As in `line_plot`.

    Returns
    -------
    matplotlib.axes.Axes
        Its `figure` is the whole picture.

    Raises
    ------
    StudyError
        If there is nothing to draw, or a value is not finite or, with a `centre`, not positive.
    FileError
        If the suffix is not known or the file cannot be written.
    """
    require_format(path)
    given = checked(cells)
    rows, xs, means = _table(given)
    if centre is not None and min(centre, np.nanmin(means), *(limits or ())) <= 0:
        raise StudyError("a map of ratios needs positive values: give centre=None for others")
    with style():
        own = ax is None
        if ax is None:
            ax = new_figure(width_of(columns), max(_LEAST_HEIGHT, 0.75 + _CELL * len(rows))).add_subplot()
        _colour(ax, means, centre, label, limits or (np.inf, -np.inf))
        ax.set_yticks(range(len(rows)), [broken(_text(row), 18) for row in rows], fontsize=TICK)
        ax.tick_params(length=0, labelsize=TICK)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.spines[:].set_visible(False)
        names, places = [_text(x) for x in xs], np.arange(len(xs), dtype=np.float64)
        return finish(ax, own, Labels(title, xlabel, ylabel, note), path, names=names, places=places)


def _table(given: Mapping[Any, Mapping[Any, Floats]]) -> tuple[list[Any], list[Any], Floats]:
    """Return rows from the top, columns, and the mean of each cell, NaN where there is none."""
    rows, _, upwards = places_of({"": dict.fromkeys(given)})
    if upwards:
        rows.reverse()
    xs, _, _ = places_of({str(row): found for row, found in given.items()})
    means = np.full((len(rows), len(xs)), np.nan)
    for i, row in enumerate(rows):
        for x, values in given[row].items():
            means[i, xs.index(x)] = values.mean()
    return rows, xs, means


def _colour(ax: Any, means: Floats, centre: float | None, label: str, limits: tuple[float, float]) -> None:
    import matplotlib
    from matplotlib.colors import LogNorm, Normalize, to_hex
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    low, high = min(limits[0], float(np.nanmin(means))), max(limits[1], float(np.nanmax(means)))
    if centre is None:
        colours, norm = matplotlib.colormaps[_SEQUENTIAL], Normalize(low, high if high > low else low + 1.0)
    else:
        span = max(high / centre, centre / low, _LEAST_SPAN)
        colours, norm = matplotlib.colormaps[_DIVERGING], LogNorm(centre / span, centre * span)
    ax.set_facecolor(_EMPTY)
    edges = [np.arange(n + 1) - 0.5 for n in reversed(means.shape)]
    shown = np.ma.masked_invalid(means)
    mesh = ax.pcolormesh(*edges, shown, cmap=colours, norm=norm, edgecolors="white", linewidth=1.0)
    texts = [[_cell(value) for value in row] for row in means]
    width = float(ax.figure.get_size_inches()[0]) / POINT * _ROOM / means.shape[1]  # points
    size = min(TICK, width / (CHARACTER * max(len(text) for row in texts for text in row)))
    for (i, j), value in np.ndenumerate(means):
        dark = np.isfinite(value) and luminance(to_hex(colours(norm(value)))) < _DARK
        ax.text(j, i, texts[i][j], color="white" if dark else "black", fontsize=size, ha="center", va="center")
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02, aspect=max(15, 4 * len(means)))
    bar.set_label(label, fontsize=LABEL)
    bar.outline.set_visible(False)
    if centre is not None:  # of the side on which there is nothing the bar shows nothing
        low, high = min(low, centre / _LEAST_SPAN), max(high, centre * _LEAST_SPAN)
        bar.ax.set_ylim(low, high)
    ticks = list(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))
    if centre is not None and high / low > _WIDE:
        ticks = [centre * 2.0**power for power in range(-20, 21)]
    bar.ax.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.tick_params(labelsize=TICK)


def _cell(value: float) -> str:
    if not np.isfinite(value):
        return "-"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.4g}"


def _text(value: Any) -> str:
    return number(float(value)) if isinstance(value, int | float | np.number) else str(value)
