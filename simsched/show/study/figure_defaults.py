"""The figures of a study that asks for none: what its rows vary decides."""

from collections.abc import Sequence
from typing import Any, Final

from simsched.base.numeric import is_number
from simsched.show.study.figure_data import Row, words
from simsched.show.study.figure_tables import StudyFigure

_MOST_CONTEXTS: Final = 6  # figures of one column, before the rest is averaged over
_WIDE: Final = 30.0  # from here on a parameter's largest value over its least makes its axis logarithmic
_CATEGORIES: Final = 2


def default_figures(rows: Sequence[Row], swept: Sequence[str]) -> tuple[StudyFigure, ...]:
    """Return the figures that suit a study.

    Parameters
    ----------
    rows, swept
        As in `simsched.show.study.figures.draw`.

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
    varied = [column for column in swept
              if column not in ("seed", "scheduler") and not column.startswith("option.")
              and len(_values(done, column)) > 1]  # fmt: skip
    numbers = [column for column in varied if all(map(is_number, _values(done, column)))]
    y = "speedup" if any(row.get("speedup") is not None for row in done) else "makespan_us"
    found = [figure for column in varied for figure in _over(done, column, varied, y, column in numbers)]
    if not varied:
        found.append(StudyFigure("bar", y=y, name=y))
    if len(varied) == len(numbers) == _CATEGORIES and _is_full(done, *numbers):
        found.append(_map(done, numbers, y))
    if "workload.n_ops" in numbers and any(row.get("wall.search_s") is not None for row in done):
        found.append(StudyFigure("search-time", "ops", "wall.search_s", name="search-time"))
    return tuple(found)


def _values(rows: Sequence[Row], column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows if row.get(column) is not None))


def _over(rows: Sequence[Row], column: str, varied: Sequence[str], y: str, numeric: bool) -> list[StudyFigure]:
    """Return figures over a column, one for each setting of the others."""
    others = [other for other in varied if other != column]
    seen: dict[tuple[Any, ...], dict[Any, None]] = {}
    for row in rows:
        if row.get(column) is not None:
            seen.setdefault(tuple(row.get(other) for other in others), {})[row[column]] = None
    settings = [setting for setting, places in seen.items() if len(places) > 1]
    if not 0 < len(settings) <= _MOST_CONTEXTS:
        settings = [()]
    values = _values(rows, column)
    log = numeric and min(values) > 0 and max(values) / min(values) >= _WIDE
    found = []
    for setting in settings:
        fixed = {other: value for other, value in zip(others, setting, strict=False) if value is not None}
        title = ", ".join(f"{words(other)} = {value}" for other, value in fixed.items())
        name = "-".join((y.removesuffix("_us"), _short(column), *(f"{_short(o)}={v}" for o, v in fixed.items())))
        kind = "line" if numeric else "bar"
        found.append(StudyFigure(kind, column, y, where=fixed, name=name, title=title, logx=bool(log)))
    return found


def _map(rows: Sequence[Row], numbers: Sequence[str], y: str) -> StudyFigure:
    """Return the map of two numbers, for every scheduler but the one that all are measured by."""
    schedulers = tuple(str(label) for label in _values(rows, "scheduler") if y != "speedup" or label != "sequential")
    x, by = numbers
    return StudyFigure("heatmap", x, y, by, name=f"{y.removesuffix('_us')}-map", schedulers=schedulers)


def _is_full(rows: Sequence[Row], x: str, y: str) -> bool:
    """Return whether most pairs of two columns were run, and not just a line over each."""
    pairs = dict.fromkeys((row.get(x), row.get(y)) for row in rows)
    return 2 * len(pairs) > len(_values(rows, x)) * len(_values(rows, y))


def _short(column: str) -> str:
    return column.rpartition(".")[2]
