"""The pictures that a study asks for, with their numbers in the units they are shown in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simsched.study.figure_data import RATIOS, Picked, Row, in_units, named, words
from simsched.study.figure_defaults import default_figures
from simsched.study.figure_tables import StudyFigure
from simsched.study.figures import _limits, _note, _panels, check_figures

Cells = Mapping[Any, Mapping[Any, list[float]]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture of a study.

    Parameters
    ----------
    name
        Of its file, where it is drawn as one.
    figure
        What was asked for.
    cells, series
        Values by the value of the column that parts them, and by what a legend calls that.
    xlabel, ylabel, rows
        What the axes show; `rows` is what the rows of a map are.
    reference
        The value that means no difference, if there is one.
    limits
        Least and largest mean of all pictures of the figure.
    note
        How many instances a point is of, and what was left out.
    """

    name: str
    figure: StudyFigure
    cells: Cells
    series: Mapping[str, Mapping[Any, list[float]]]
    xlabel: str
    ylabel: str
    rows: str
    reference: float | None
    limits: tuple[float, float]
    note: str


def panels(rows: Sequence[Row], figures: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> list[Panel]:
    """Return the pictures of a study.

    Parameters
    ----------
    rows, figures, swept
        As in `simsched.study.figures.draw`, which draws the same ones.
    """
    rows = [{column: str(v) if isinstance(v, list | dict) else v for column, v in row.items()} for row in rows]
    found = []
    for i, figure in enumerate(check_figures(figures, "study") if figures else default_figures(rows, swept), 1):
        made = _panels(rows, figure, swept, f"figure {figure.name!r}" if figure.name else f"figure {i}")
        limits = _limits([picked for _, _, picked in made])
        found += [_panel(name, panel, picked, limits) for name, panel, picked in made]
    return found


def _panel(name: str, figure: StudyFigure, picked: Picked, limits: tuple[float, float]) -> Panel:
    unit, ylabel = in_units(picked.y, picked.values)
    if figure.scale is not None:
        unit, ylabel = 1 / figure.scale, words(picked.y)
    cells = {
        value: {x: [y / unit for y in each] for x, each in given.items()} for value, given in picked.values.items()
    }
    return Panel(
        name,
        figure,
        cells,
        {named(picked.by, value): given for value, given in cells.items()},
        figure.xlabel or ("" if picked.x is None else words(picked.x)),
        figure.ylabel or ylabel,
        "" if picked.by == "scheduler" else words(picked.by),
        1.0 if picked.y in RATIOS and figure.scale is None else None,
        (limits[0] / unit, limits[1] / unit),
        _note(figure.kind, picked),
    )
