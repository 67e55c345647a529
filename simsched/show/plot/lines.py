"""Lines over a parameter, with the spread of the instances around them."""

import os
from typing import Any, Final

import numpy as np

from simsched.model.graph.columns import Floats
from simsched.show.figure import require_format, style
from simsched.show.plot.axes import Labels, Values, axes_for, checked, finish, places_of, plain_axes, spread
from simsched.show.plot.looks import Line, lines_of, luminance
from simsched.show.plot.scales import level_line, require_positive, scale_axis, ticks_at

_HEIGHT: Final = 2.3  # inches, without legend and note
_BAND: Final = 0.22  # how opaque the band of one line is; of many each is fainter
_LIGHT: Final = 0.5  # lighter lines need an outline to be seen on white
_OUTLINE: Final = "#5A5A5A"
_WIDTH, _OUTER = 1.3, 2.1  # of a line and its outline, in points


def line_plot(
    series: Values,
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Any = None,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    logx: bool = False,
    logy: bool = False,
    reference: float | None = None,
    columns: int = 1,
    note: str = "",
) -> Any:
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
    title, xlabel, ylabel, note
        Texts above, at the axes and, small, below; titles and notes are wrapped where they are too long.
    logx, logy
        Logarithmic axes.
    reference
        Where to draw a thin level line, 1 of speedups, say.
    columns
        Width of the figure in columns of a paper, 1 or 2.

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
    Colours are those of `looks_of`; markers and kinds of lines tell apart who shares one, in grey as well.
    """
    require_format(path)
    values = checked(series)
    at, places, numeric = places_of(values)
    logx = logx and numeric
    require_positive(values, logy)
    if logx:
        require_positive({"the x axis": {x: np.array([float(x)]) for x in at}}, True)
    with style():
        own, ax = ax is None, axes_for(ax, columns, _HEIGHT)
        plain_axes(ax, grid="both" if logx and logy else "y")
        level_line(ax, reference)
        handles = []
        for look, (name, given) in zip(lines_of(list(values)), values.items(), strict=True):
            if given:
                handles.append(_line(ax, name, {x: given[x] for x in at if x in given}, at, places, look, len(values)))
        scale_axis(ax.yaxis, logy)
        names = [] if numeric else [str(x) for x in at]
        if numeric:
            scale_axis(ax.xaxis, logx)
            ticks_at(ax, places)
        else:
            ax.set_xlim(-0.5, len(at) - 0.5)
        labels = Labels(title, xlabel, ylabel, note)
        return finish(ax, own, labels, path, handles=handles, names=names, places=places)


def _line(
    ax: Any, name: str, given: dict[Any, Floats], at: list[Any], places: Floats, look: tuple[str, Line, str], n: int,
) -> Any:  # fmt: skip
    """Draw a line with markers, outlined if it is light, and its band; return it."""
    colour, line, marker = look
    x = places[[at.index(each) for each in given]]
    mean = np.array([row.mean() for row in given.values()])
    wide = np.array([spread(row) for row in given.values()])
    if wide.any():
        least = np.array([row.min() for row in given.values()])
        low = np.where((mean - wide <= 0) & (least > 0), least, mean - wide)
        opacity = max(0.07, _BAND - 0.012 * n)
        ax.fill_between(x, low, mean + wide, color=colour, alpha=opacity, linewidth=0, zorder=1.8)
    if luminance(colour) > _LIGHT:
        # patterns grow with the width of a line: those of both must stay in step
        below = line if isinstance(line, str) else (line[0], tuple(_WIDTH / _OUTER * each for each in line[1]))
        ax.plot(x, mean, color=_OUTLINE, linestyle=below, linewidth=_OUTER, zorder=2.4)
    (drawn,) = ax.plot(
        x, mean, color=colour, linestyle=line, linewidth=_WIDTH, marker=marker, markersize=3.8, markeredgecolor="black",
        markeredgewidth=0.4, label=name, zorder=2.5,
    )  # fmt: skip
    return drawn
