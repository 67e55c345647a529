"""Box plots of sampled makespans for papers, drawn with matplotlib."""

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from simsched.errors import SimulationError
from simsched.figure import PALETTE, new_figure, require_format, save_figure, style, time_unit
from simsched.graph.columns import Floats
from simsched.schedulers import SCHEDULERS
from simsched.simulator import Makespans

# the palette over again, told apart
HATCHES: Final = ("", "/////", "\\\\\\\\\\", "xxxxx", ".....", "-----", "|||||", "+++++")
_POINT: Final = 1 / 72  # inches
_CHARACTER: Final = 0.6  # width of a character as a part of its height
_TITLE, _LABEL, _TICK = 9.0, 8.0, 7.0  # heights of characters in points
_PARTS: Final = re.compile(r"[^:./_\-\s]*[:./_\-\s]+|[^:./_\-\s]+")  # of a name, to be broken between
_SLANTED: Final = 22  # characters of a slanted name per line
_ONE_COLUMN, _TWO_COLUMNS = 3.5, 7.2  # inches
_SLOT, _LEAST_SLOT = 0.68, 0.22  # inches: what a box has in a small figure, and what its slanted name needs
_FLAT: Final = 0.04  # part of the axis
_POINTS: Final = "#4D4D4D"
_MANY_POINTS: Final = 2000  # from here on outliers are drawn as an image, in SVG and PDF too


def box_plot(
    samples: Mapping[str, Makespans],
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Any = None,
    title: str = "",
    relative: bool | None = None,
) -> Any:
    """Draw sampled makespans: a box per scheduler, from left to right in the order given.

    The line in the box is the median, the box spans the quartiles, whiskers reach to the furthest
    samples within 1.5 of its heights, and what lies beyond is drawn as points.

    Parameters
    ----------
    samples
        Makespans in us by scheduler.
    path
        Where to write the figure; the suffix, ``.png``, ``.svg`` or ``.pdf``, gives the format.
    ax
        Matplotlib axes to draw into; by default a figure of its own, outside of pyplot.
    title
        Text above the boxes; lines too long for the figure are wrapped.
    relative
        Draw the same samples again below, in per cent of the median of each scheduler; by default
        where schedulers differ so much that the boxes themselves are too flat to be seen. Not with `ax`.

    Returns
    -------
    matplotlib.axes.Axes
        Those of the latencies, in us, ms or s as the axis says; its `figure` is the whole picture.

    Raises
    ------
    SimulationError
        If there are no samples.
    FileError
        If the suffix is not known or the file cannot be written.

    Notes
    -----
    A scheduler of `SCHEDULERS` has the colour of its place there, whichever others are drawn; the
    others follow in the order given. Colours are those of Okabe and Ito; hatching tells apart who
    shares one.
    """
    require_format(path)
    if not samples:
        raise SimulationError("there are no samples to draw: ask for some with `samples`")
    values = [drawn.values for drawn in samples.values()]
    looks = looks_of(list(samples))
    scale, unit = time_unit(max(float(each.max()) for each in values))
    with style():
        panels = [ax]
        if ax is None:
            panels = _new_panels(len(samples), _are_flat(values) if relative is None else relative)
        _boxes(panels[0], [each / scale for each in values], looks, f"latency ({unit})")
        for below in panels[1:]:
            medians = [drawn.p50 or 1.0 for drawn in samples.values()]  # all that is 0 stays 0
            deviations = [100 * (each - m) / m for each, m in zip(values, medians, strict=True)]
            _boxes(below, deviations, looks, "vs. median (%)")
        if ax is None:
            panels[0].figure.align_ylabels(panels)
            panels[0].figure.draw_without_rendering()  # lays it out: only then the room for a name is known
        _names(panels[-1], list(samples))
        heading(panels[0], title)
        if path is not None:
            save_figure(panels[0], path)
    return panels[0]


def _are_flat(values: list[Floats]) -> bool:
    """Return whether most boxes would hardly be seen on one axis."""
    heights = [float(np.subtract(*np.percentile(each, (75, 25)))) for each in values]
    span = max(float(each.max()) for each in values) - min(float(each.min()) for each in values)
    return max(heights) > 0 and float(np.median(heights)) < _FLAT * span


def _new_panels(n: int, relative: bool) -> list[Any]:
    """Return one or two axes, as wide as one column of a paper, as two, or as `n` boxes need."""
    width = max(_ONE_COLUMN, min(_TWO_COLUMNS, 0.6 + _SLOT * n), 0.6 + _LEAST_SLOT * n)
    figure = new_figure(width, 4.0 if relative else 2.9)
    if not relative:
        return [figure.add_subplot()]
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    above.tick_params(axis="x", length=0)
    return [above, below]


def _boxes(ax: Any, values: list[Floats], looks: list[tuple[str, str]], label: str) -> None:
    line = {"color": "black", "linewidth": 0.7}
    drawn = ax.boxplot(
        values, widths=0.6, patch_artist=True, manage_ticks=False, whiskerprops=line, capprops=line,
        boxprops={"edgecolor": "black", "linewidth": 0.7}, medianprops={"color": "black", "linewidth": 1.2},
        flierprops={"marker": "o", "markersize": 1.8, "markeredgewidth": 0.0, "markerfacecolor": _POINTS},
    )  # fmt: skip
    for box, points, (colour, hatch) in zip(drawn["boxes"], drawn["fliers"], looks, strict=True):
        box.set(facecolor=colour, hatch=hatch)
        points.set_rasterized(len(points.get_ydata()) > _MANY_POINTS)
    ax.set_xlim(0.4, len(values) + 0.6)
    ax.set_ylabel(label, fontsize=_LABEL)
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.tick_params(axis="y", labelsize=_TICK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#E6E6E6", linewidth=0.5)
    ax.set_axisbelow(True)


def looks_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return colour and hatching of each scheduler."""
    place = {name: i for i, name in enumerate(dict.fromkeys([*SCHEDULERS, *names]))}
    n = len(PALETTE)
    return [(PALETTE[place[name] % n], HATCHES[place[name] // n % len(HATCHES)]) for name in names]


def _names(ax: Any, names: Sequence[str]) -> None:
    """Write the names below the boxes, level if they have room there, else slanted."""
    room = int(_inches(ax) / len(names) / (_CHARACTER * _TICK * _POINT)) - 1  # characters
    look: dict[str, Any] = {"fontsize": _TICK}
    if max(len(part.strip()) for name in names for part in _PARTS.findall(name)) <= room:
        lines = [_broken(name, room) for name in names]
    else:
        lines = [_broken(name, _SLANTED) for name in names]
        look |= {"rotation": 40, "ha": "right", "va": "top", "rotation_mode": "anchor"}
    ax.set_xticks(range(1, len(names) + 1), lines, **look)
    ax.tick_params(axis="x", length=0)


def _broken(name: str, width: int) -> str:
    """Return a name on as many lines as it needs, broken behind punctuation where it has any."""
    lines = [""]
    for part in _PARTS.findall(name):
        for piece in (part[i : i + width] for i in range(0, len(part), width)):
            if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.strip() for line in lines)


def heading(ax: Any, title: str) -> None:
    """Write a title above axes, in as many lines as it takes."""
    width = max(20, int(_inches(ax) / (_CHARACTER * _TITLE * _POINT)))
    lines = [line for part in title.split("\n") for line in textwrap.wrap(part, width)]
    ax.set_title("\n".join(lines), fontsize=_TITLE, loc="left")


def _inches(ax: Any) -> float:
    """Return the width of the axes."""
    return float(ax.get_window_extent().width / ax.figure.dpi)
