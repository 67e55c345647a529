"""Box plots of samples."""

import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import SimulationError
from simsched.base.units import time_unit
from simsched.model.graph.columns import Floats
from simsched.show.figure import new_figure, require_format, save_figure, style
from simsched.show.plot.axes import (
    LABEL,
    ONE_COLUMN,
    TWO_COLUMNS,
    Labels,
    Values,
    axes_for,
    finish,
    heading,
    places_of,
    plain_axes,
    width_of,
    write_names,
    write_note,
)
from simsched.show.plot.bars import grouped_values, swatch
from simsched.show.plot.looks import looks_of
from simsched.show.plot.scales import level_line, require_positive, scale_axis
from simsched.simulator import Makespans

_SLOT, _LEAST_SLOT = 0.68, 0.22  # inches: what a box has in a small figure, and what its slanted name needs
_FLAT: Final = 0.04  # part of the axis
_POINTS: Final = "#4D4D4D"
_MANY_POINTS: Final = 2000  # from here on outliers are drawn as an image, in SVG and PDF too
_GROUP: Final = 0.84  # width of a group of boxes; groups are 1 apart
_MOST_IN_ONE: Final = 14  # boxes in groups of a figure of one column
_HEIGHT: Final = 2.3  # inches of a grouped plot, without legend and note


def box_plot(
    samples: Mapping[str, Makespans | npt.ArrayLike] | Values,
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Any = None,
    title: str = "",
    relative: bool | None = None,
    xlabel: str = "",
    ylabel: str = "",
    logy: bool = False,
    reference: float | None = None,
    columns: int | None = None,
    note: str = "",
) -> Any:
    """Draw samples: a box per scheduler, from left to right in the order given, or a group of boxes per category.

    The line in the box is the median, the box spans the quartiles, whiskers reach to the furthest
    samples within 1.5 of its heights, and what lies beyond is drawn as points.

    Parameters
    ----------
    samples
        Makespans in us by scheduler; or, with a `ylabel`, any values by name, or by name and then by category, drawn in
        groups: numbers from the smallest, others in the order of their first use.
    path
        Where to write the figure; the suffix, ``.png``, ``.svg`` or ``.pdf``, gives the format.
    ax
        Matplotlib axes to draw into; by default a figure of its own, outside of pyplot.
    title
        Text above the boxes; lines too long for the figure are wrapped.
    relative
        Draw the same samples again below, in per cent of the median of each scheduler; by default
        where schedulers differ so much that the boxes themselves are too flat to be seen. Only of latencies by
        scheduler, and not with `ax`.
    ylabel
        What the values are; by default latencies, in us, ms or s by their size.
    columns
        Width of the figure in columns of a paper, 1 or 2; by default as many inches as the boxes need.
    xlabel, logy, reference, note
        As in `line_plot`.

    Returns
    -------
    matplotlib.axes.Axes
        Those of the values; its `figure` is the whole picture.

    Raises
    ------
    SimulationError
        If there are no samples.
    StudyError
        If only some names have categories, or values are not finite or, with `logy`, not positive.
    FileError
        If the suffix is not known or the file cannot be written.

    Notes
    -----
    Colours and hatching are those of `looks_of`.
    """
    require_format(path)
    if not samples:
        raise SimulationError("there are no samples to draw: ask for some with `samples`")
    given = {name: each.values if isinstance(each, Makespans) else each for name, each in samples.items()}
    values, grouped = grouped_values(given)
    require_positive(values, logy)
    longest = max(float(row.max()) for found in values.values() for row in found.values())
    if not ylabel:
        scale, unit = time_unit(longest)
        values = {name: {x: row / scale for x, row in found.items()} for name, found in values.items()}
    labels = Labels(title, xlabel, ylabel or f"latency ({unit})", note)
    with style():
        if grouped:
            return _groups(ax, values, labels, path, logy, reference, columns)
        panels = [ax]
        rows = [found[0] for found in values.values()]
        if ax is None:
            relative = _are_flat(rows) and not ylabel if relative is None else relative
            panels = _new_panels(len(rows), relative, columns)
        looks = looks_of(list(values))
        _boxes(panels[0], rows, looks, labels.y)
        for below in panels[1:]:
            medians = [float(np.median(row)) or 1.0 for row in rows]  # all that is 0 stays 0
            deviations = [100 * (row - m) / m for row, m in zip(rows, medians, strict=True)]
            _boxes(below, deviations, looks, "vs. median (%)")
        if logy:
            scale_axis(panels[0].yaxis, True)
        level_line(panels[0], reference)
        panels[-1].set_xlabel(xlabel, fontsize=LABEL)
        if ax is None:
            panels[0].figure.align_ylabels(panels)
            panels[0].figure.draw_without_rendering()  # lays it out: only then the room for a name is known
        write_names(panels[-1], list(values))
        heading(panels[0], title)
        write_note(panels[-1], note)
        if path is not None:
            save_figure(panels[0], path)
    return panels[0]


def _groups(
    ax: Any, values: dict[str, dict[Any, Floats]], labels: Labels, path: Any, logy: bool, reference: float | None,
    columns: int | None,
) -> Any:  # fmt: skip
    """Draw a group of boxes per category, and a legend."""
    at, _, _ = places_of(values)
    n = len(at) * len(values)
    own, ax = ax is None, axes_for(ax, columns or (1 if n <= _MOST_IN_ONE else 2), _HEIGHT)
    width, looks = _GROUP / len(values), looks_of(list(values))
    drawn: list[Floats] = []
    places: list[float] = []
    for i, found in enumerate(values.values()):
        drawn += found.values()
        places += [at.index(x) + (i - (len(values) - 1) / 2) * width for x in found]
    each = [look for look, found in zip(looks, values.values(), strict=True) for _ in found]
    _boxes(ax, drawn, each, labels.y, np.array(places), 0.85 * width)
    ax.set_xlim(-0.55, len(at) - 0.45)
    scale_axis(ax.yaxis, logy)
    level_line(ax, reference)
    handles = [swatch(look, name) for look, name in zip(looks, values, strict=True) if values[name]]
    names = [str(x) for x in at]
    return finish(ax, own, labels, path, handles=handles, names=names, places=np.arange(len(at), dtype=np.float64))


def _are_flat(values: list[Floats]) -> bool:
    """Return whether most boxes would hardly be seen on one axis."""
    heights = [float(np.subtract(*np.percentile(each, (75, 25)))) for each in values]
    span = max(float(each.max()) for each in values) - min(float(each.min()) for each in values)
    return max(heights) > 0 and float(np.median(heights)) < _FLAT * span


def _new_panels(n: int, relative: bool, columns: int | None) -> list[Any]:
    """Return one or two axes, as wide as one column of a paper, as two, or as `n` boxes need."""
    width = max(ONE_COLUMN, min(TWO_COLUMNS, 0.6 + _SLOT * n), 0.6 + _LEAST_SLOT * n)
    figure = new_figure(width if columns is None else width_of(columns), 4.0 if relative else 2.9)
    if not relative:
        return [figure.add_subplot()]
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    above.tick_params(axis="x", length=0)
    return [above, below]


def _boxes(
    ax: Any, values: list[Floats], looks: list[tuple[str, str]], label: str, places: Floats | None = None,
    width: float = 0.6,
) -> None:  # fmt: skip
    """Draw boxes at 1, 2, ..., or where told."""
    line = {"color": "black", "linewidth": 0.7}
    drawn = ax.boxplot(
        values, positions=places, widths=width, patch_artist=True, manage_ticks=False, whiskerprops=line,
        capprops=line, boxprops={"edgecolor": "black", "linewidth": 0.7},
        medianprops={"color": "black", "linewidth": 1.2},
        flierprops={"marker": "o", "markersize": 1.8, "markeredgewidth": 0.0, "markerfacecolor": _POINTS},
    )  # fmt: skip
    for box, points, (colour, hatch) in zip(drawn["boxes"], drawn["fliers"], looks, strict=True):
        box.set(facecolor=colour, hatch=hatch)
        points.set_rasterized(len(points.get_ydata()) > _MANY_POINTS)
    ax.set_xlim(0.4, len(values) + 0.6)
    ax.set_ylabel(label, fontsize=LABEL)
    ax.ticklabel_format(axis="y", useOffset=False)
    plain_axes(ax)
