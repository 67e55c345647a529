"""The ``[[figure]]`` tables of a study, checked when it is read."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final

from simsched.base.errors import StudyError
from simsched.base.numeric import is_number

KINDS: Final = ("line", "bar", "box", "heatmap", "search-time")
_NEEDS_X: Final = ("line", "heatmap")
NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.=-]+")  # what no name of a file needs


@dataclass(frozen=True, slots=True)
class StudyFigure:
    """One ``[[figure]]`` of a study.

    Parameters
    ----------
    kind
        One of `KINDS`.
    x, y, by
        Columns of the rows, or their last part: ``"n_ops"``, ``"makespan"``. By default ``y`` is the speedup where
        rows have one, else the makespan; of a search time, over ``ops``, that of the search. There is a line, a bar, a
        box or a row of cells for each value of ``by``.
    where
        Values that columns must have; a list stands for any of them.
    name
        Of the file, without its suffix.
    title, xlabel, ylabel
        Texts; by default in words, with the unit.
    logx, logy
        Logarithmic axes of lines, and of bars and boxes upwards.
    columns
        Width in columns of a paper, 1 or 2; by default what there is to draw decides.
    scale
        Values are multiplied by it, and have no unit but what `ylabel` says.
    schedulers
        Which, and in which order.
    """

    kind: str
    x: str | None = None
    y: str | None = None
    by: str = "scheduler"
    where: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    logx: bool = False
    logy: bool = False
    columns: int | None = None
    scale: float | None = None
    schedulers: tuple[str, ...] = ()


def check_figures(tables: Sequence[Mapping[str, Any]], source: str) -> tuple[StudyFigure, ...]:
    """Return the figures that tables of a study ask for.

    Parameters
    ----------
    tables
        Decoded ``[[figure]]`` tables.
    source
        What errors call the study.

    Raises
    ------
    StudyError
        If a field is unknown or holds what it cannot, or two figures have one name; the message names the figure.
        Whether rows have the columns is seen when it is drawn.
    """
    figures = [_figure(table, f"{source}: [[figure]] {i}") for i, table in enumerate(tables, 1)]
    names = [figure.name for figure in figures if figure.name]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StudyError(f"{source}: two figures are named {twice!r}; give each a name of its own")
    return tuple(figures)


def _figure(table: Mapping[str, Any], whose: str) -> StudyFigure:
    known = {each.name: each for each in fields(StudyFigure)}
    if not isinstance(table, Mapping):
        raise StudyError(f"{whose} must be a table, not {table!r}")
    for key, value in table.items():
        if key not in known:
            raise StudyError(f"{whose}: unknown field {key!r}; known are: {', '.join(known)}")
        fits, what = _FITS[key]
        if not fits(value):
            raise StudyError(f"{whose}: {key!r} must be {what}, not {value!r}")
    missing = [key for key, each in known.items() if each.default is each.default_factory is MISSING]
    missing += ["x"] if table.get("kind") in _NEEDS_X else []
    for key in missing:
        if key not in table:
            raise StudyError(f"{whose}: {key!r} is missing; it is {_FITS[key][1]}")
    given = dict(table)
    if "schedulers" in given:
        given["schedulers"] = tuple(given["schedulers"])
    return StudyFigure(**given)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


_FITS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "kind": (lambda value: value in KINDS, f"one of {', '.join(KINDS)}"),
    "where": (lambda value: isinstance(value, Mapping), "a table of columns and their values"),
    "columns": (lambda value: value in (1, 2) and not isinstance(value, bool), "1 or 2"),
    "scale": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "name": (lambda value: _is_text(value) and not NOT_PLAIN.search(value) and not value.startswith("."),
             "letters, digits and any of _ . = -"),
    "schedulers": (lambda value: isinstance(value, list | tuple) and bool(value) and all(map(_is_text, value)),
                   "a list of schedulers"),
    **dict.fromkeys(("x", "y", "by"), (_is_text, "a column, such as n_ops")),
    **dict.fromkeys(("title", "xlabel", "ylabel"), (lambda value: isinstance(value, str), "a text")),
    **dict.fromkeys(("logx", "logy"), (lambda value: isinstance(value, bool), "true or false")),
}  # fmt: skip
