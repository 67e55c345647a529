"""Tables as they are printed, for pages."""

import re
from math import inf
from typing import Any, Final

from simsched.base.units import GIB, KIB, MIB, MS, SECOND
from simsched.show.report.sections import Cell, Column, Table

_NUMBER: Final = re.compile(r"([+-]?(?:\d[\d,]*)?\.?\d+(?:e[+-]?\d+)?) ?([A-Za-z]*)")
_UNITS: Final = {"ms": MS, "s": SECOND, "KiB": KIB, "MiB": MIB, "GiB": GIB}


def printed(table: Any, *, best: str = "", mark: str = "best", sort: int | None = None) -> Table:
    """Return a `rich.table.Table`; texts that begin with a number sort by it, times and sizes by their unit.

    Parameters
    ----------
    best, mark
        The first cell of the row to mark, by default that of the row that is bold; and what the mark says.
    sort
        The column by which rows are ordered, from the least; what is missing comes last.
    """
    texts = [tuple(map(_plain, row)) for row in zip(*(column.cells for column in table.columns), strict=True)]
    marked = [best or ("bold" in str(row.style) and text[0]) for row, text in zip(table.rows, texts, strict=True)]
    rows = [(tuple(map(cell, text)), text[0] == name) for text, name in zip(texts, marked, strict=True)]
    if sort is not None:
        rows.sort(key=lambda row: inf if row[0][sort].value is None else row[0][sort].value)
    columns = tuple(Column(_plain(each.header).replace("-\n", "").replace("\n", " ")) for each in table.columns)
    found = next((i for i, (_, is_best) in enumerate(rows) if is_best), None)
    note = _plain(table.caption or "")
    return Table(_plain(table.title or ""), columns, tuple(row for row, _ in rows), found, mark, note)


def _plain(text: Any) -> str:
    """Return a text of a rich table without its marks."""
    from rich.text import Text

    return Text.from_markup(text, emoji=False).plain if isinstance(text, str) else str(text)


def cell(text: str) -> Any:
    """Return a text as a cell that sorts by the number that it begins with, if it does.

    >>> cell("1.5 ms"), cell("-"), cell("lios")
    (Cell(text='1.5 ms', value=1500.0), Cell(text='-', value=None), 'lios')
    """
    if text in ("-", ""):
        return Cell(text, None)
    found = _NUMBER.match(text)
    return Cell(text, float(found[1].replace(",", "")) * _UNITS.get(found[2], 1.0)) if found else text
