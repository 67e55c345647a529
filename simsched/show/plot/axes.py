"""What all plots of studies share: axes, their labels, ticks, legends outside of the data, notes below."""

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import StudyError
from simsched.model.graph.columns import Floats
from simsched.show.figure import new_figure, save_figure

Values = Mapping[str, Mapping[Any, npt.ArrayLike]]
"""By name and place on the x axis, a number or text: a value, or one of each instance."""

POINT: Final = 1 / 72  # inches
CHARACTER: Final = 0.6  # width of a character as a part of its height
TITLE, LABEL, TICK, NOTE = 9.0, 8.0, 7.0, 6.0  # heights of characters in points
ONE_COLUMN, TWO_COLUMNS = 3.5, 7.2  # inches
GRID: Final = "#E6E6E6"
_PARTS: Final = re.compile(r"[^:./_\-\s]*[:./_\-\s]+|[^:./_\-\s]+")  # of a name, to be broken between
_SLANTED: Final = 22  # characters of a slanted name per line
_ENTRY: Final = 26  # characters of a name in a legend per line
_HANDLE: Final = 36.0  # points of an entry of a legend besides its name
_AIR: Final = 1.12  # between entries of a legend
_LINE: Final = 1.3  # height of a line of text as a part of that of its characters
_LEGEND: Final[Any] = {
    "fontsize": TICK, "frameon": False, "handlelength": 2.8, "handletextpad": 0.5, "labelspacing": 0.3,
    "columnspacing": 1.2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Labels:
    """What is written around axes: lines too long for them are wrapped."""

    title: str = ""
    x: str = ""
    y: str = ""
    note: str = ""


def width_of(columns: int) -> float:
    """Return the inches of so many columns of a paper.

    Raises
    ------
    StudyError
        If there are other than 1 or 2.
    """
    if columns not in (1, 2):
        raise StudyError(f"a figure is 1 or 2 columns wide, not {columns!r}")
    return ONE_COLUMN if columns == 1 else TWO_COLUMNS


def checked(values: Values) -> dict[str, dict[Any, Floats]]:
    """Return values as arrays of floats, by name and place.

    Raises
    ------
    StudyError
        If there are none, or one is no finite number; the message names it.
    """
    found = {name: {x: one_row(each, f"{name!r} at {x!r}") for x, each in given.items()}
             for name, given in values.items()}  # fmt: skip
    if not any(found.values()):
        raise StudyError("there is nothing to draw: no name has any values")
    return found


def one_row(values: npt.ArrayLike, whose: str) -> Floats:
    """Return one or more numbers as an array.

    Raises
    ------
    StudyError
        If there are none, or one is not finite.
    """
    try:
        row = np.atleast_1d(np.asarray(values, np.float64))  # (n_instances,)
    except (TypeError, ValueError):
        raise StudyError(f"cannot draw the values of {whose}: they are no numbers") from None
    if row.ndim != 1 or not row.size or not np.isfinite(row).all():
        raise StudyError(f"cannot draw the values of {whose}: give one or more finite numbers")
    return row


def places_of(values: Mapping[str, Mapping[Any, Any]]) -> tuple[list[Any], Floats, bool]:
    """Return where values are, the place of each on the axis, and whether they are numbers.

    Numbers stand where they are, from the smallest to the largest; anything else in the order of its first use, one
    apart.
    """
    found = list(dict.fromkeys(x for given in values.values() for x in given))
    if all(isinstance(x, int | float | np.number) and not isinstance(x, bool) for x in found):
        found.sort()
        return found, np.array(found, np.float64), True
    return found, np.arange(len(found), dtype=np.float64), False


def spread(row: Floats) -> float:
    """Return the sample standard deviation, 0 of a single value."""
    return float(row.std(ddof=1)) if len(row) > 1 else 0.0


def axes_for(ax: Any, columns: int, height: float) -> Any:
    """Return the axes given, or those of a new figure of so many columns and inches."""
    return new_figure(width_of(columns), height).add_subplot() if ax is None else ax


def finish(
    ax: Any,
    own: bool,
    labels: Labels,
    path: str | os.PathLike[str] | None,
    *,
    handles: Sequence[Any] = (),
    names: Sequence[str] = (),
    places: Floats | None = None,
) -> Any:
    """Write titles, names, note and legend, make room for them in a figure of our own, and save it.

    Parameters
    ----------
    ax, own
        The axes, and whether their figure was made here.
    labels, path
        What to write around them, and where to.
    handles
        What the legend explains.
    names, places
        Categories, and where they are on the x axis.
    """
    ax.set_xlabel(labels.x, fontsize=LABEL)
    ax.set_ylabel(labels.y, fontsize=LABEL)
    if own:
        figure = ax.figure
        width, height = figure.get_size_inches()
        rows = _legend(figure, handles, width) if handles else 0
        title, note = len(_wrapped(labels.title, width, TITLE)), len(_wrapped(labels.note, width, NOTE))
        height += _LINE * POINT * (_AIR * rows * TICK + title * TITLE + note * NOTE)
        figure.set_size_inches(width, height)
        figure.draw_without_rendering()  # lays it out: only then the room for names is known
    elif handles:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, **_LEGEND)
    if names:
        write_names(ax, names, places)
    heading(ax, labels.title)
    write_note(ax, labels.note)
    if path is not None:
        save_figure(ax, path)
    return ax


def _legend(figure: Any, handles: Sequence[Any], width: float) -> int:
    """Put a legend below all axes; return its lines."""
    for handle in handles:
        handle.set_label(broken(handle.get_label(), _ENTRY))
    texts = [handle.get_label().split("\n") for handle in handles]
    entry = _HANDLE + max(len(line) for lines in texts for line in lines) * CHARACTER * TICK  # points
    columns = max(1, min(len(handles), int(width / POINT / entry)))
    columns = -(-len(handles) // -(-len(handles) // columns))  # as even as so many rows allow
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, **_LEGEND)
    rows = -(-len(handles) // columns)
    return max(sum(map(len, texts[i : i + rows])) for i in range(0, len(texts), rows))


def write_note(ax: Any, note: str) -> None:
    """Write small text below the label of the x axis."""
    lines = _wrapped(note, _inches(ax), NOTE)
    if lines:
        below = ("axes fraction", ax.xaxis.label)
        ax.annotate("\n".join(lines), (0.0, 0.0), (0.0, -3.0), xycoords=below, textcoords="offset points",
                    fontsize=NOTE, color="#4D4D4D", va="top", ha="left")  # fmt: skip


def _wrapped(text: str, width: float, size: float) -> list[str]:
    """Return the lines of a text, none longer than some inches."""
    room = max(20, int(width / (CHARACTER * size * POINT)))
    return [line for part in text.split("\n") for line in textwrap.wrap(part, room)]


def plain_axes(ax: Any, *, grid: str = "y") -> None:
    """Set what all axes have."""
    ax.tick_params(labelsize=TICK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis=grid, color=GRID, linewidth=0.5)
    ax.set_axisbelow(True)


def write_names(ax: Any, names: Sequence[str], places: Floats | None = None) -> None:
    """Write names below the axes, at 1, 2, ... or where told: level if they have room there, else slanted."""
    at = np.arange(1, len(names) + 1) if places is None else places
    room = int(_inches(ax) / len(names) / (CHARACTER * TICK * POINT)) - 1  # characters
    look: dict[str, Any] = {"fontsize": TICK}
    if max(len(part.strip()) for name in names for part in _PARTS.findall(name)) <= room:
        lines = [broken(name, room) for name in names]
    else:
        lines = [broken(name, _SLANTED) for name in names]
        look |= {"rotation": 40, "ha": "right", "va": "top", "rotation_mode": "anchor"}
    ax.set_xticks(at, lines, **look)
    ax.tick_params(axis="x", length=0)


def broken(name: str, width: int) -> str:
    """Return a name on as many lines as it needs, broken behind punctuation where it has any.

    >>> broken("my_package.my_module:round_robin", 12).split()
    ['my_package.', 'my_module:', 'round_robin']
    """
    lines = [""]
    for part in _PARTS.findall(name):
        for piece in (part[i : i + width] for i in range(0, len(part), width)):
            if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.strip() for line in lines)


def heading(ax: Any, title: str) -> None:
    """Write a title above axes, in as many lines as it takes."""
    ax.set_title("\n".join(_wrapped(title, _inches(ax), TITLE)), fontsize=TITLE, loc="left")


def _inches(ax: Any) -> float:
    """Return the width of the axes."""
    return float(ax.get_window_extent().width / ax.figure.dpi)
