"""The pictures that a study asks for, with their numbers in the units they are shown in."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from simsched.base.errors import StudyError
from simsched.base.numeric import is_number
from simsched.show.study.figure_data import (
    RATIOS,
    Picked,
    Row,
    in_units,
    matching,
    named,
    of_schedulers,
    pick,
    resolve,
    words,
)
from simsched.show.study.figure_defaults import default_figures
from simsched.show.study.figure_tables import NOT_PLAIN, StudyFigure, check_figures

_logger = logging.getLogger(__name__)

_SHOWN: Final = {"line": "mean and standard deviation of ", "bar": "mean and standard deviation of ", "box": "",
                 "heatmap": "mean of ", "search-time": "geometric mean and standard deviation of "}  # fmt: skip

Cells = Mapping[Any, Mapping[Any, list[float]]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture of a study.

    Parameters
    ----------
    name, whose
        Of its file, where it is drawn as one, and what errors call it.
    figure
        What was asked for.
    x
        Column on the x axis; None where there is one place for each value of the column that parts them.
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
    whose: str
    figure: StudyFigure
    x: str | None
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
    rows
        Of the study, in its order; those without a result are left out and counted in a note below each picture.
    figures
        ``[[figure]]`` tables; none: those that suit the study, see `default_figures`.
    swept
        Columns that the study varies, such as ``"workload.n_ops"``.

    Raises
    ------
    StudyError
        If a table is not a figure, or asks for columns or values that no row has.
    """
    # lists, of options, are categories like any other text
    rows = [{column: str(v) if isinstance(v, list | dict) else v for column, v in row.items()} for row in rows]
    found: list[Panel] = []
    for i, figure in enumerate(check_figures(figures, "study") if figures else default_figures(rows, swept), 1):
        whose = f"figure {figure.name!r}" if figure.name else f"figure {i}"
        made = _panels(rows, figure, swept, whose)
        limits = _limits([picked for _, _, picked in made])
        found += [_panel(name, whose, panel, picked, limits) for name, panel, picked in made]
    return found


def _panels(
    rows: Sequence[Row], figure: StudyFigure, swept: Sequence[str], whose: str
) -> list[tuple[str, StudyFigure, Picked]]:
    """Return the pictures of a figure, by name: one, or one of each scheduler."""
    if not rows:
        raise StudyError(f"{whose}: the study has no rows yet; run it first")
    chosen = of_schedulers(matching(rows, figure.where, whose), figure.schedulers, whose)
    y = _measure(chosen, figure, whose)
    odd = next((row[y] for row in chosen if row["status"] == "ok" and not _is_measure(row.get(y))), None)
    if odd is not None:
        raise StudyError(f"{whose}: column {y} holds {odd!r}, which is no number: draw another")
    place = figure.x or ("ops" if figure.kind == "search-time" else None)
    x = None if place is None else resolve(place, rows, whose)
    by = resolve(figure.by, rows, whose)
    name = figure.name or "-".join(
        column.rpartition(".")[2].removesuffix("_us") for column in (figure.kind, y, x) if column is not None
    )
    if by == "scheduler":
        only: list[str | None] = [None]
    else:
        only = list(dict.fromkeys(str(row["scheduler"]) for row in chosen))
    found, lost = [], []
    for scheduler in only:
        picked = pick(chosen, x, y, by, swept, scheduler=scheduler)
        if not picked.values:
            lost.append(picked.left_out)
            _logger.warning("%s: nothing to draw of %s: %s", whose, scheduler or "any scheduler", picked.left_out)
            continue
        panel, stem = figure, NOT_PLAIN.sub("-", name)
        if scheduler is not None:
            panel = replace(figure, title=f"{figure.title}\n{scheduler}".strip())
            stem = NOT_PLAIN.sub("-", f"{name}-{scheduler}") if len(only) > 1 else stem
        found.append((stem, panel, picked))
    if not found:
        raise StudyError(f"{whose}: there is nothing to draw: {'; '.join(lost)}")
    return found


def _is_measure(value: Any) -> bool:
    return value is None or is_number(value)


def _measure(rows: Sequence[Row], figure: StudyFigure, whose: str) -> str:
    """Return the column that a figure shows."""
    if figure.y is not None:
        return resolve(figure.y, rows, whose)
    if figure.kind == "search-time":
        return resolve("wall.search_s", rows, whose)
    return "speedup" if any(row.get("speedup") is not None for row in rows) else resolve("makespan_us", rows, whose)


def _limits(panels: Sequence[Picked]) -> tuple[float, float]:
    """Return the least and the largest mean of all points."""
    means = [sum(each) / len(each) for picked in panels for given in picked.values.values() for each in given.values()]
    return min(means), max(means)


def _note(kind: str, picked: Picked) -> str:
    """Return what stands below a figure."""
    shown = _SHOWN[kind] if picked.n > 1 else ""
    return "; ".join(text for text in (shown + picked.of, picked.left_out) if text)


def _panel(name: str, whose: str, figure: StudyFigure, picked: Picked, limits: tuple[float, float]) -> Panel:
    unit, ylabel = in_units(picked.y, picked.values)
    if figure.scale is not None:
        unit, ylabel = 1 / figure.scale, words(picked.y)
    cells = {
        value: {x: [y / unit for y in each] for x, each in given.items()} for value, given in picked.values.items()
    }
    return Panel(
        name,
        whose,
        figure,
        picked.x,
        cells,
        {named(picked.by, value): given for value, given in cells.items()},
        figure.xlabel or ("" if picked.x is None else words(picked.x)),
        figure.ylabel or ylabel,
        "" if picked.by == "scheduler" else words(picked.by),
        1.0 if picked.y in RATIOS and figure.scale is None else None,
        (limits[0] / unit, limits[1] / unit),
        _note(figure.kind, picked),
    )
