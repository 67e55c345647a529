"""What a report consists of: sections of texts, tables, figures and Gantt charts, before they are HTML."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from simsched.base.errors import ReportError
from simsched.base.numeric import is_number
from simsched.base.units import GIB, KIB, MIB, MS, SECOND
from simsched.model.trace import Trace

_WHOLE, _HUGE = 1e6, 1e15  # without a fraction, and rounded
TONES: Final = ("plain", "lead", "note", "warning")
_NUMBER: Final = re.compile(r"([+-]?(?:\d[\d,]*)?\.?\d+(?:e[+-]?\d+)?) ?([A-Za-z]*)")
_UNITS: Final = {"ms": MS, "s": SECOND, "KiB": KIB, "MiB": MIB, "GiB": GIB}


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph.

    Parameters
    ----------
    text
        Plain text; nothing in it is taken for HTML.
    tone
        ``"plain"``, ``"lead"`` (what the section comes to), ``"note"`` or ``"warning"``.
    """

    text: str
    tone: str = "plain"

    def __post_init__(self) -> None:
        if self.tone not in TONES:
            raise ReportError(f"tone must be one of {', '.join(TONES)}, not {self.tone!r}")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names and what they stand for, one line each; all plain text."""

    caption: str
    rows: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, caption: str, given: Mapping[str, str]) -> "Pairs":
        """Return the pairs of a mapping."""
        return cls(caption, tuple(given.items()))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    heading
        What it is, with the unit.
    digits
        After the point, for numbers; None prints six of them, as few as need be.
    """

    heading: str
    digits: int | None = None

    def show(self, value: Any) -> str:
        """Return a cell as text; a dash stands for None and for what is not a number."""
        if value is None or value != value:
            return "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if not is_number(value):
            return str(value)
        if self.digits is not None and not isinstance(value, int):
            return f"{round(value, self.digits) or 0.0:,.{self.digits}f}"  # no minus before a zero
        return f"{value:,.0f}" if _WHOLE <= abs(value) < _HUGE else f"{value:,.6g}"


@dataclass(frozen=True, slots=True)
class Table:
    """A table that readers can sort.

    Parameters
    ----------
    caption
        What it shows.
    columns
        The first holds the names of the rows.
    rows
        Cells: numbers, texts, which sort by the number that they begin with, or None for what is missing, which sorts
        last.
    best
        Index of the row to mark, None for none.
    mark
        What the mark says.
    note
        Below the table.

    Raises
    ------
    ReportError
        If a row has more or fewer cells than there are columns.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    best: int | None = None
    mark: str = "best"
    note: str = ""

    @classmethod
    def of(cls, caption: str, headings: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> "Table":
        """Return a table of some headings and rows."""
        return cls(caption, tuple(map(Column, headings)), tuple(rows))

    def __post_init__(self) -> None:
        for i, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ReportError(
                    f"table {self.caption!r}: row {i} has {len(row)} cells where there are {len(self.columns)} columns"
                )


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as Plotly takes it.

    Parameters
    ----------
    title
        Above it.
    data
        Traces. Texts in it are HTML to Plotly: names that came from elsewhere go through `plain`.
    layout
        Without colours of text, axes and grounds: those follow the theme.
    summary
        What it shows in a sentence, for those who cannot see it, and in place of it where there is no JavaScript.
    height
        Pixels.
    note
        Below it.
    """

    title: str
    data: tuple[Mapping[str, Any], ...]
    layout: Mapping[str, Any]
    summary: str
    height: int = 340
    note: str = ""


@dataclass(frozen=True, slots=True)
class Gantt:
    """What ran when, with load curves below on the same axis of time.

    Parameters
    ----------
    title
        Above it.
    trace
        Simulated, or measured where there is nothing else.
    measured
        Of the same program: each of its rows stands below the simulated one. None if there is none.
    """

    title: str
    trace: Trace
    measured: Trace | None = None

    def __post_init__(self) -> None:
        if self.measured is not None and len(self.measured.program) != len(self.trace.program):
            raise ReportError(f"{self.title}: the measured trace is of another program than the simulated one")


@dataclass(frozen=True, slots=True)
class Tabs:
    """Alternatives of which one is seen at a time, and all are printed: (label, blocks) each; the first is open."""

    label: str
    panels: "tuple[tuple[str, tuple[Block, ...]], ...]"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report under a heading; it may have parts itself.

    Parameters
    ----------
    title
        The heading, plain text.
    blocks
        In order.
    """

    title: str
    blocks: "tuple[Block, ...]" = field(default=())


Block = Text | Pairs | Table | Figure | Gantt | Tabs | Section
"""What a section consists of."""


def printed(table: Any, mark: str = "best") -> Table:
    """Return a `rich.table.Table`; `mark` is what is said of the row that is bold, if there is one."""
    columns = tuple(Column(_plain(each.header).replace("-\n", "").replace("\n", " ")) for each in table.columns)
    rows = tuple(tuple(map(_plain, row)) for row in zip(*(column.cells for column in table.columns), strict=True))
    best = next((i for i, row in enumerate(table.rows) if "bold" in str(row.style)), None)
    return Table(_plain(table.title or ""), columns, rows, best, mark, _plain(table.caption or ""))


def _plain(text: Any) -> str:
    """Return a text of a rich table without its marks."""
    from rich.text import Text

    return Text.from_markup(text, emoji=False).plain if isinstance(text, str) else str(text)


def sort_key(cell: Any) -> Any:
    """Return by what a cell sorts: of a text the number that it begins with, in library units; None: it is missing.

    >>> sort_key("1.5 ms"), sort_key("-"), sort_key("lios")
    (1500.0, None, 'lios')
    """
    if cell is None or cell != cell or cell in ("-", ""):
        return None
    found = _NUMBER.match(cell) if isinstance(cell, str) else None
    return float(found[1].replace(",", "")) * _UNITS.get(found[2], 1.0) if found else cell
