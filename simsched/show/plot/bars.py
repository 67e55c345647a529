"""Bars of means, with the spread of the instances."""

import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import StudyError
from simsched.model.graph.columns import Floats
from simsched.show.figure import require_format, style
from simsched.show.plot.axes import Labels, Values, axes_for, checked, finish, places_of, plain_axes, spread
from simsched.show.plot.looks import looks_of
from simsched.show.plot.scales import level_line, require_positive, scale_axis

_HEIGHT: Final = 2.3  # inches, without legend and note
_GROUP, _WIDEST = 0.84, 0.6  # width of a group of bars, and of a bar; groups are 1 apart


def bar_plot(
    values: Mapping[str, npt.ArrayLike] | Values,
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Any = None,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    logy: bool = False,
    reference: float | None = None,
    columns: int = 1,
    note: str = "",
) -> Any:
    """Draw a bar per name, or a group of bars per category, as high as the mean of its instances.

    Parameters
    ----------
    values
        Values by name: ``{"lios": [1.2, 1.3]}``, each with its name below; or by name, then by category:
        ``{"lios": {"inception_v3": [1.2], "squeezenet": [1.1]}}``, in groups, numbers from the smallest, others in the
        order of their first use. Error bars span a sample standard deviation (n - 1); a single value has none.
    path, ax, title, xlabel, ylabel, logy, reference, columns, note
        As in `line_plot`.

    Returns
    -------
    matplotlib.axes.Axes
        Its `figure` is the whole picture.

    Raises
    ------
    StudyError
        If there is nothing to draw, only some names have categories, or values are not finite or, with `logy`, not
        positive.
    FileError
        If the suffix is not known or the file cannot be written.
    """
    require_format(path)
    rows, grouped = grouped_values(values)
    require_positive(rows, logy)
    at, _, _ = places_of(rows)
    looks = looks_of(list(rows))
    with style():
        own, ax = ax is None, axes_for(ax, columns, _HEIGHT)
        plain_axes(ax)
        width = min(_WIDEST, _GROUP / len(rows)) if grouped else _WIDEST
        handles = []
        for i, (look, (name, given)) in enumerate(zip(looks, rows.items(), strict=True)):
            shift = (i - (len(rows) - 1) / 2) * width if grouped else float(i)
            places = np.array([at.index(x) + shift for x in given])
            if given:
                handles.append(_bars(ax, places, list(given.values()), width, look, name))
        scale_axis(ax.yaxis, logy)
        n = len(at) if grouped else len(rows)
        room = 0.55 if n * len(rows) > 1 else 1.0
        ax.set_xlim(-room, n - 1 + room)
        level_line(ax, reference)
        names = [str(x) for x in (at if grouped else rows)]
        labels = Labels(title, xlabel, ylabel, note)
        shown = handles if grouped else []
        return finish(ax, own, labels, path, handles=shown, names=names, places=np.arange(n, dtype=np.float64))


def grouped_values(values: Mapping[str, Any]) -> tuple[dict[str, dict[Any, Floats]], bool]:
    """Return values by name and category, and whether they had categories.

    Raises
    ------
    StudyError
        If only some names have, or a value is not finite.
    """
    nested = [isinstance(each, Mapping) for each in values.values()]
    if any(nested) and not all(nested):
        raise StudyError(f"{list(values)[nested.index(False)]!r} has no categories, as others have: give it some")
    return checked(values if all(nested) else {name: {0: each} for name, each in values.items()}), all(nested)


def _bars(ax: Any, places: Floats, rows: list[Floats], width: float, look: tuple[str, str], name: str) -> Any:
    means, wide = [float(row.mean()) for row in rows], [spread(row) for row in rows]
    ax.bar(places, means, width, color=look[0], hatch=look[1], edgecolor="black", linewidth=0.5, zorder=2)
    if any(wide):
        ax.errorbar(places, means, wide, fmt="none", ecolor="black", elinewidth=0.7, capsize=min(2.0, 12 * width),
                    capthick=0.7, zorder=3)  # fmt: skip
    return swatch(look, name)


def swatch(look: tuple[str, str], name: str) -> Any:
    """Return what stands for bars or boxes in a legend."""
    from matplotlib.patches import Patch

    return Patch(facecolor=look[0], hatch=look[1], edgecolor="black", linewidth=0.5, label=name)
