"""Figures of a study: the ones that its file asks for, or usual ones for its swept values."""

import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final

from simsched.base.codec import Among, Checked, Filled, Name, Range, Rate, read
from simsched.base.errors import FormatError, StudyError
from simsched.base.io import make_folder
from simsched.base.numeric import group_by_key, is_number
from simsched.base.units import GIB, KIB, MIB, time_unit
from simsched.experiments.baselines import CAPTURED
from simsched.experiments.study.columns import column_of
from simsched.show.chart import Axis, Chart
from simsched.show.paper import draw, require_format

Row = Mapping[str, Any]
Tables = Sequence[Mapping[str, Any]]
_logger = logging.getLogger(__name__)

RATIOS: Final = ("speedup", "estimate_speedup", "over_bound")
"""Columns of which 1 means no difference."""
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.=-]+")  # characters that file names do not need
_MOST: Final = 6  # values in a note; figures of one column, before the rest is averaged over
_SHOWN: Final = {
    "line": "mean and standard deviation of ",
    "bar": "mean and standard deviation of ",
    "box": "",
    "heatmap": "mean of ",
    "search-time": "geometric mean and standard deviation of ",
}
_WORDS: Final = {
    "ops": "operators",
    "workload.n_ops": "operators",
    "workload.n_layers": "layers",
    "workload.n_edges": "edges",
    "workload.comm_ratio": "communication / computation",
    "workload.kind": "workload",
    "workload.batch": "batch size",
    "workload.image_size": "image size (pixels)",
    "workload.sequence_length": "sequence length (tokens)",
    "cluster.gpus": "GPUs",
    "cluster.gpu": "GPU",
    "seed": "instance",
    "makespan_us": "makespan",
    "estimate_us": "estimated makespan",
    "speedup": f"speedup over {CAPTURED}",
    "estimate_speedup": "estimated speedup",
    "bound_us": "lower bound",
    "over_bound": "makespan / lower bound",
    "syncs": "synchronisations",
    "peak_memory_bytes": "peak memory",
    "sm_utilization": "SM utilization",
    "sm_efficiency": "SM efficiency",
    "p50_us": "median makespan",
    "p95_us": "makespan, 95th percentile",
    "p99_us": "makespan, 99th percentile",
    "mean_us": "mean makespan",
    "std_us": "standard deviation of makespans",
    "wall.search_s": "search time (s)",
    "wall.row_s": "time of a row (s)",
    "wall.simulate_s": "time of simulation (s)",
}


@dataclass(frozen=True, slots=True)
class StudyFigure(Checked):
    """One ``[[figure]]`` of a study.

    Parameters
    ----------
    kind
        ``"line"``, ``"bar"``, ``"box"``, ``"heatmap"`` or ``"search-time"``.
    x, y, by
        Columns of the rows, or their last part: ``"n_ops"``, ``"makespan"``. By default ``y`` is the speedup where rows
        have one, else the makespan; over ``ops`` it is the search time. There is a line, a bar, a box or a row of cells
        for each value of ``by``.
    where
        Values that columns must have; a list allows any of its values.
    name
        Name of the file, without its suffix; a - replaces all but letters, digits and _. = -
    title, xlabel, ylabel
        Texts; by default in words, with the unit.
    logx, logy
        Logarithmic axes of lines, and of bars and boxes upwards; by default lines have them where values span decades.
    columns
        Width in columns of a paper, 1 or 2.
    scale
        Values are multiplied by it, and have no unit but the one in `ylabel`.
    schedulers
        Which, and in which order.
    """

    SUBJECT = "a figure"
    ERROR = StudyError
    kind: Annotated[str, Among(tuple(_SHOWN))]
    x: Name | None = None
    y: Name | None = None
    by: Name = "scheduler"
    where: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    logx: bool | None = None
    logy: bool | None = None
    columns: Annotated[int, Range(1, 2)] = 1
    scale: Rate | None = None
    schedulers: Annotated[tuple[Name, ...], Filled()] | None = None

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.x is None and self.kind in ("line", "heatmap"):
            raise self.refusal("x is missing; it is a column, such as n_ops")


def check_figures(tables: Tables, source: str) -> tuple[StudyFigure, ...]:
    """Return the figures that ``[[figure]]`` tables ask for; `source` is the study's name in errors.

    Raises
    ------
    StudyError
        If a field is unknown or has a wrong value; the message names the figure. Columns are checked when it is drawn.
    """
    try:
        return tuple(read(StudyFigure, table, f"{source}: [[figure]] {i}") for i, table in enumerate(tables, 1))
    except FormatError as error:
        raise StudyError(str(error)) from None


def draw_study(
    rows: Sequence[Row], figures: Tables, swept: Sequence[str], folder: str | os.PathLike[str], format: str = "png"
) -> list[Path]:
    """Draw the figures of a study into a folder, which is made if it does not exist; return the files in order.

    Parameters
    ----------
    rows, figures, swept
        As in `charts_of`.
    format
        ``"png"``, ``"svg"`` or ``"pdf"``.

    Raises
    ------
    StudyError
        As `charts_of` does, and if there is nothing to draw.
    FileError
        If the format is not known or a file cannot be written.
    """
    require_format(f"figure.{format}")
    charts = charts_of(rows, figures, swept)
    if not charts:
        raise StudyError(f"there is nothing to draw: none of {len(rows)} rows has a result")
    into = make_folder(folder)
    paths: list[Path] = []
    for name, chart in charts:
        path = into / f"{name}.{format}"
        paths.append(path if path not in paths else into / f"{name}-{len(paths) + 1}.{format}")
        if isinstance(chart, StudyError):
            raise chart
        draw(chart, paths[-1])
    return paths


def charts_of(rows: Sequence[Row], figures: Tables, swept: Sequence[str]) -> list[tuple[str, Chart | StudyError]]:
    """Return the charts of a study with the names of their files; why there is none in the place of one.

    Parameters
    ----------
    rows
        Rows of the study, in its order; rows without a result are left out and counted in a note below each chart.
    figures
        ``[[figure]]`` tables; none: usual ones for the study, see `default_figures`.
    swept
        Columns that the study varies, such as ``"workload.n_ops"``.

    Raises
    ------
    StudyError
        If a table is not a figure, or asks for columns or values that no row has.

    Notes
    -----
    A point is the mean over its rows: the instances, and all other columns that vary among them, which the note names.
    A figure with lines by anything but the scheduler is drawn for each scheduler, maps with their colours in common.
    """
    # lists, of options, are categories like any other text
    rows = [{column: str(v) if isinstance(v, list | dict) else v for column, v in row.items()} for row in rows]
    charts: list[tuple[str, Chart | StudyError]] = []
    for i, figure in enumerate(check_figures(figures, "study") if figures else default_figures(rows, swept), 1):
        charts += _charts(rows, figure, swept, f"figure {figure.name!r}" if figure.name else f"figure {i}")
    return charts


def _charts(
    rows: Sequence[Row], figure: StudyFigure, swept: Sequence[str], whose: str
) -> Iterator[tuple[str, Chart | StudyError]]:
    """Yield the charts of a figure, by the names of their files: one, or one of each scheduler."""
    if not rows:
        raise StudyError(f"{whose}: the study has no rows yet; run it first")
    rows = of_schedulers(matching(rows, figure.where, whose), figure.schedulers or (), whose)
    timed = figure.kind == "search-time"
    heat = figure.kind == "heatmap"
    y = column_of(figure.y or ("wall.search_s" if timed else _measure(rows)), rows, whose)
    place = figure.x or ("ops" if timed else None)
    if place is None:
        x = None
    else:
        x = column_of(place, rows, whose)
    by = column_of(figure.by, rows, whose)
    if odd := [row[y] for row in rows if row["status"] == "ok" and not (row.get(y) is None or is_number(row[y]))]:
        raise StudyError(f"{whose}: column {y} holds {odd[0]!r}, which is no number: draw another")
    only = [None] if by == "scheduler" else [str(label) for label in _values(rows, "scheduler")]
    drawn = {label: pick(rows, x, y, by, swept, scheduler=label) for label in only}
    every = [row for values, *_ in drawn.values() for cells in values.values() for row in cells.values()]
    if not every:
        raise StudyError(f"{whose}: there is nothing to draw: {'; '.join(lost for *_, lost in drawn.values())}")
    unit, ylabel = in_units(y, max(max(map(abs, row)) for row in every))
    if figure.scale is not None:
        unit = 1 / figure.scale
        ylabel = words(y)
    means = [sum(row) / len(row) / unit for row in every]
    name = figure.name or "-".join(_short(column) for column in (figure.kind, y, x) if column is not None)
    kind = {"heatmap": "map", "search-time": "line"}.get(figure.kind, figure.kind)
    logx, logy = (timed or (log if kind == "line" else bool(log)) for log in (figure.logx, figure.logy))
    if heat:
        up = "" if by == "scheduler" else words(by)
    else:
        up = figure.ylabel or ylabel
    for label, (values, of, lost) in drawn.items():
        if not values:
            _logger.warning("%s: nothing to draw of %s: %s", whose, label or "any scheduler", lost)
            continue
        plain = heat or by == "scheduler"
        series = {
            value if plain else f"{words(by)} = {value}": {
                at: [value_ / unit for value_ in row] for at, row in cells.items()
            }
            for value, cells in values.items()
        }
        caption = _SHOWN[figure.kind] * (not of.startswith("one")) + of
        chart: Chart | StudyError
        try:
            chart = Chart(
                kind,
                series,
                Axis(figure.xlabel or (words(x) if x else ""), logx),
                Axis(up, logy),
                "\n".join(filter(None, (figure.title, label))),
                "; ".join(filter(None, (caption, lost))),
                1.0 if y in RATIOS and not figure.scale else None,
                geometric=timed,
                columns=figure.columns,
                label=figure.ylabel or ylabel,
                limits=(min(means), max(means)),
            )
        except StudyError as error:
            chart = StudyError(f"{whose}: {error}")
        yield _NOT_PLAIN.sub("-", name if len(only) == 1 else f"{name}-{label}"), chart


def _measure(rows: Sequence[Row]) -> str:
    """Return the column that figures show by default."""
    if any(row.get("speedup") is not None for row in rows):
        return "speedup"
    return "makespan_us"


def default_figures(rows: Sequence[Row], swept: Sequence[str]) -> tuple[StudyFigure, ...]:
    """Return the figures that suit a study.

    Returns
    -------
    tuple of StudyFigure
        A line over each number that varies, and bars over anything else; one for each setting of the rest, of more
        than six one that averages over them. Bars alone where nothing varies. Where just two numbers vary, a map of
        both for each scheduler. Search times over operators where their number varies. None without a result.
    """
    done = [row for row in rows if row["status"] == "ok"]
    if not done:
        return ()
    varied = [
        column
        for column in swept
        if column not in ("seed", "scheduler") and not column.startswith("option.") and len(_values(done, column)) > 1
    ]
    numbers = [column for column in varied if all(map(is_number, _values(done, column)))]
    y = _measure(done)
    if varied:
        figures = []
    else:
        figures = [StudyFigure("bar", y=y, name=_short(y))]
    for column in varied:  # one for each setting of the others
        others = [other for other in varied if other != column]
        seen = group_by_key(
            (tuple(row.get(other) for other in others), row[column]) for row in done if row.get(column) is not None
        )
        settings = [setting for setting, places in seen.items() if len(set(places)) > 1]
        for setting in settings if 0 < len(settings) <= _MOST else [()]:
            fixed = {other: value for other, value in zip(others, setting, strict=False) if value is not None}
            title = ", ".join(f"{words(other)} = {value}" for other, value in fixed.items())
            name = "-".join((_short(y), _short(column), *(f"{_short(o)}={v}" for o, v in fixed.items())))
            if column in numbers:
                kind = "line"
            else:
                kind = "bar"
            figures.append(StudyFigure(kind, column, y, where=fixed, name=name, title=title))
    pairs = {tuple(row.get(column) for column in numbers) for row in done}  # most were run, not just a line over each
    if len(varied) == len(numbers) == 2 and 2 * len(pairs) > prod(len(_values(done, column)) for column in numbers):
        labels = [str(label) for label in _values(done, "scheduler") if y != "speedup" or label != "sequential"]
        x, by = numbers
        figures.append(StudyFigure("heatmap", x, y, by, name=f"{_short(y)}-map", schedulers=tuple(labels)))
    if "workload.n_ops" in numbers and any(row.get("wall.search_s") is not None for row in done):
        figures.append(StudyFigure("search-time", "ops", "wall.search_s", name="search-time"))
    return tuple(figures)


def _values(rows: Sequence[Row], column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows if row.get(column) is not None))


def _short(column: str) -> str:
    return column.rpartition(".")[2].removesuffix("_us")


def words(column: str) -> str:
    """Return an axis' name for a column.

    >>> words("cluster.gpus"), words("option.max_streams")
    ('GPUs', 'max streams')
    """
    return _WORDS.get(column, _short(column).replace("_", " "))


def in_units(column: str, largest: float) -> tuple[float, str]:
    """Return the divisor that makes values of a column, up to the largest, read well, and the label of their axis."""
    scale = 1.0
    unit = ""
    if column.endswith("_us"):
        scale, unit = time_unit(largest)
    elif column.endswith("_bytes"):
        units = ((float(GIB), "GiB"), (float(MIB), "MiB"), (float(KIB), "KiB"))
        scale, unit = next((unit_ for unit_ in units if largest >= unit_[0]), (1.0, "B"))
    return scale, f"{words(column)} ({unit})" if unit else words(column)


def matching(rows: Sequence[Row], where: Mapping[str, Any], whose: str) -> list[Row]:
    """Return the rows with some values in some columns; a list allows any of its values.

    Raises
    ------
    StudyError
        If a column is not known, or holds none of the values anywhere.
    """
    matching_rows = list(rows)
    for name, value in where.items():
        column = column_of(name, rows, whose)
        if isinstance(value, list | tuple):
            allowed = list(value)
        else:
            allowed = [value]
        matching_rows = [row for row in matching_rows if row.get(column) in allowed]
        if not matching_rows:
            values_text = ", ".join(map(str, _values(rows, column)))
            raise StudyError(f"{whose}: no row is left with {column} = {value!r}; there are: {values_text}")
    return matching_rows


def of_schedulers(rows: Sequence[Row], schedulers: Sequence[str], whose: str) -> list[Row]:
    """Return the rows of some schedulers in their order: labels, or names, which include all labels that begin so.

    Raises
    ------
    StudyError
        If one has no row; the message lists the schedulers with rows.
    """
    if not schedulers:
        return list(rows)
    labels_of = [str(label) for label in _values(rows, "scheduler")]
    chosen: dict[str, None] = {}
    for name in schedulers:
        labels = [label for label in labels_of if name in (label, label.partition(" ")[0])]
        if not labels:
            raise StudyError(f"{whose}: no row is of scheduler {name!r}; there are: {', '.join(labels_of)}")
        chosen |= dict.fromkeys(labels)
    return [row for label in chosen for row in rows if row["scheduler"] == label]


def pick(
    rows: Sequence[Row], x: str | None, y: str, by: str, swept: Sequence[str], *, scheduler: str | None = None
) -> tuple[dict[Any, dict[Any, list[float]]], str, str]:
    """Return values of column `y` by values of `by`, then `x`, of rows with a result; a title; a note on omissions.

    Parameters
    ----------
    rows
        All that the figure is about, with their `status`.
    swept
        Columns that a study varies: the text names the averaged ones.
    scheduler
        Only rows of this scheduler.
    """
    rows = [row for row in rows if scheduler in (None, row["scheduler"])]
    lacks = [_lack(row, [column for column in (by, x, y) if column is not None]) for row in rows]
    cells = group_by_key(
        (row[by], (None if x is None else row[x], row)) for row, lack in zip(rows, lacks, strict=True) if lack is None
    )
    cells_of = {value: group_by_key(cells[value]) for value in _values(rows, by) if value in cells}
    points = [point for cells_ in cells_of.values() for point in cells_.values()]
    values = {
        value: {at: [float(row[y]) for row in point] for at, point in cells_.items()}
        for value, cells_ in cells_of.items()
    }
    averaged = []
    for column in swept:
        among = [dict.fromkeys(str(row.get(column)) for row in point) for point in points]
        texts = list(dict.fromkeys(text for values in among if len(values) > 1 for text in values))
        if texts and column not in (x, by, "seed", "scheduler") and not column.startswith("option."):
            many = len(texts) > _MOST
            what = words(column)
            averaged.append(f"{len(texts)} values of {what}" if many else f"{what} {', '.join(texts)}")
    low, high = (extreme(map(len, points), default=0) for extreme in (min, max))
    if low == high:
        n = f"{low}"
    else:
        n = f"{low} to {high}"
    if high > 1:
        of = f"{n} instances a point"
    else:
        of = "one instance a point"
    if averaged:
        of = f"{n} values a point: instances, and {' and '.join(averaged)}"
    lost = ", ".join(f"{n} {lack}" for lack, n in Counter(lacks).items() if lack is not None)
    left_out = len(rows) - lacks.count(None)
    return values, of, f"{left_out} of {len(rows)} rows left out: {lost}" if lost else ""


def _lack(row: Row, needed: Sequence[str]) -> str | None:
    """Return why a row has no place in a figure, None if it has."""
    if row["status"] != "ok":
        return str(row["status"])
    missing = next((column for column in needed if row.get(column) is None), None)
    if missing is None:
        return None
    return f"without {words(missing)}"
