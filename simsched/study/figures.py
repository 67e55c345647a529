"""Figures of a study: those that its file asks for, or those that suit what it sweeps."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from simsched.errors import FileError, StudyError
from simsched.figure import require_format
from simsched.numeric import is_number
from simsched.study.figure_data import (
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
from simsched.study.figure_defaults import default_figures
from simsched.study.figure_tables import NOT_PLAIN, StudyFigure, check_figures

__all__ = ["check_figures", "draw"]

_logger = logging.getLogger(__name__)

_SHOWN: Final = {"line": "mean and standard deviation of ", "bar": "mean and standard deviation of ", "box": "",
                 "heatmap": "mean of ", "search-time": "geometric mean and standard deviation of "}  # fmt: skip
_MOST_BARS: Final = 16  # in one column of a paper


def draw(
    rows: Sequence[Row],
    figures: Sequence[Mapping[str, Any]],
    swept: Sequence[str],
    folder: str | os.PathLike[str],
    format: str = "png",
) -> list[Path]:
    """Draw the figures of a study into a folder.

    Parameters
    ----------
    rows
        Of the study, in its order; those without a result are left out and counted in a note below each figure.
    figures
        ``[[figure]]`` tables; none: those that suit the study, see `default_figures`.
    swept
        Columns that the study varies, such as ``"workload.n_ops"``.
    folder
        Made if it does not exist.
    format
        ``"png"``, ``"svg"`` or ``"pdf"``.

    Returns
    -------
    list of Path
        The files, in order. What is drawn by anything but the scheduler is drawn for each scheduler.

    Raises
    ------
    StudyError
        If there are no rows, a table is not a figure, or asks for columns or values that no row has.
    FileError
        If the format is not known or a file cannot be written.

    Notes
    -----
    A point is the mean over its rows: the instances, and whatever else varies among them, which the note names.
    """
    require_format(f"figure.{format}")
    # lists, of options, are categories like any other text
    rows = [{column: str(v) if isinstance(v, list | dict) else v for column, v in row.items()} for row in rows]
    asked = check_figures(figures, "study") if figures else default_figures(rows, swept)
    if not asked:
        raise StudyError(f"there is nothing to draw: none of {len(rows)} rows has a result")
    into = Path(folder)
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make folder {into}: {error.strerror or error}") from error
    paths: list[Path] = []
    for i, figure in enumerate(asked, 1):
        whose = f"figure {figure.name!r}" if figure.name else f"figure {i}"
        panels = _panels(rows, figure, swept, whose)
        limits = _limits([picked for _, _, picked in panels])
        for name, panel, picked in panels:
            path = into / f"{name}.{format}"
            paths.append(path if path not in paths else into / f"{name}-{len(paths) + 1}.{format}")
            try:
                _draw(panel, picked, paths[-1], limits)
            except StudyError as error:
                raise StudyError(f"{whose}: {error}") from None
    return paths


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


def _draw(figure: StudyFigure, picked: Picked, path: Path, limits: tuple[float, float]) -> None:
    """Draw one picture; maps of a figure have their colours in common."""
    from simsched import plot

    unit, ylabel = in_units(picked.y, picked.values)
    if figure.scale is not None:
        unit, ylabel = 1 / figure.scale, words(picked.y)
    cells = {
        value: {x: [y / unit for y in each] for x, each in given.items()} for value, given in picked.values.items()
    }
    series = {named(picked.by, value): given for value, given in cells.items()}
    flat = {name: given[None] for name, given in series.items()} if picked.x is None else series
    ylabel = figure.ylabel or ylabel
    ratio = 1.0 if picked.y in RATIOS and figure.scale is None else None
    many = figure.kind in ("bar", "box") and sum(map(len, series.values())) > _MOST_BARS
    common: dict[str, Any] = {
        "title": figure.title, "xlabel": figure.xlabel or ("" if picked.x is None else words(picked.x)),
        "columns": figure.columns or (2 if many else 1), "note": _note(figure.kind, picked),
    }  # fmt: skip
    if figure.kind == "line":
        plot.line_plot(series, path, ylabel=ylabel, reference=ratio, logx=figure.logx, logy=figure.logy, **common)
    elif figure.kind == "bar":
        plot.bar_plot(flat, path, ylabel=ylabel, reference=ratio, logy=figure.logy, **common)
    elif figure.kind == "box":
        plot.box_plot(flat, path, ylabel=ylabel, reference=ratio, logy=figure.logy, **common)
    elif figure.kind == "heatmap":
        ends = limits[0] / unit, limits[1] / unit
        rows = "" if picked.by == "scheduler" else words(picked.by)
        plot.heat_map(cells, path, ylabel=rows, label=ylabel, centre=ratio, limits=ends, **common)
    else:
        plot.scaling_plot(series, path, ylabel=ylabel, **common)
