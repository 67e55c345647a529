"""Figures of a study: those that its file asks for, or those that suit what it sweeps."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from simsched.base.errors import FileError, StudyError
from simsched.show.figure import require_format
from simsched.show.study.figure_data import Row
from simsched.show.study.figure_tables import check_figures
from simsched.show.study.panels import Panel, panels

__all__ = ["check_figures", "draw"]

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
    asked = panels(rows, figures, swept)
    if not asked:
        raise StudyError(f"there is nothing to draw: none of {len(rows)} rows has a result")
    into = Path(folder)
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make folder {into}: {error.strerror or error}") from error
    paths: list[Path] = []
    for panel in asked:
        path = into / f"{panel.name}.{format}"
        paths.append(path if path not in paths else into / f"{panel.name}-{len(paths) + 1}.{format}")
        try:
            _draw(panel, paths[-1])
        except StudyError as error:
            raise StudyError(f"{panel.whose}: {error}") from None
    return paths


def _draw(panel: Panel, path: Path) -> None:
    """Draw one picture; maps of a figure have their colours in common."""
    from simsched.show import plot

    figure, series, ylabel, ratio = panel.figure, panel.series, panel.ylabel, panel.reference
    flat = {name: given[None] for name, given in series.items()} if panel.x is None else series
    many = figure.kind in ("bar", "box") and sum(map(len, series.values())) > _MOST_BARS
    common: dict[str, Any] = {
        "title": figure.title, "xlabel": panel.xlabel, "columns": figure.columns or (2 if many else 1),
        "note": panel.note,
    }  # fmt: skip
    if figure.kind == "line":
        plot.line_plot(series, path, ylabel=ylabel, reference=ratio, logx=figure.logx, logy=figure.logy, **common)
    elif figure.kind == "bar":
        plot.bar_plot(flat, path, ylabel=ylabel, reference=ratio, logy=figure.logy, **common)
    elif figure.kind == "box":
        plot.box_plot(flat, path, ylabel=ylabel, reference=ratio, logy=figure.logy, **common)
    elif figure.kind == "heatmap":
        plot.heat_map(panel.cells, path, ylabel=panel.rows, label=ylabel, centre=ratio, limits=panel.limits, **common)
    else:
        plot.scaling_plot(series, path, ylabel=ylabel, **common)
