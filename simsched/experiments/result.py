"""Output that all experiments share: rows as data frames, CSV, Parquet and JSON, a table, and a picture."""

import csv
import io
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from simsched.base.codec import Amount, Checked, Count, Document, write
from simsched.base.errors import MissingDependencyError, SimulationError, WhatIfError
from simsched.base.io import dump_json
from simsched.base.numeric import is_number
from simsched.base.text import join_lines, printable, printable_lines
from simsched.base.units import MS
from simsched.base.views import VIEWS, as_html, data_frame

WIDTH: Final = 160  # characters of a printed table
T = TypeVar("T")


class Result:
    """Result of an experiment: rows, a table that it prints as, a picture, and files.

    Each kind has ``save`` and ``load``, too: most of a JSON file, see `simsched.base.codec.Document`; a study and a
    validation of their folder.
    """

    VIEW: ClassVar[str] = ""
    """Name under which `simsched.show` has its chart and its sections in a report; without one it is a table there."""

    @abstractmethod
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Return plain values by column, a mapping per row."""

    @abstractmethod
    def table(self) -> "TextTable":
        """Return the result as a table of texts."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of any row, as they come."""
        return tuple(dict.fromkeys(name for row in self.records() for name in row))

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        return data_frame(self.records(), self.columns)

    def to_csv(self) -> str:
        """Return the rows as CSV; numbers are written so that they read back the same, texts are printable."""
        return self._csv(self.columns)

    def _csv(self, columns: Sequence[str]) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(row.get(name)) for name in columns] for row in self.records())
        return text.getvalue()

    def to_parquet(self) -> bytes:
        """Return the rows as a Parquet file.

        Raises
        ------
        MissingDependencyError
            If pyarrow is not installed.
        """
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise MissingDependencyError("Parquet needs pyarrow: pip install 'simsched[parquet]'") from None
        rows = self.records()
        columns = {name: _column([row.get(name) for row in rows]) for name in self.columns}
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def to_json(self) -> str:
        """Return the rows as JSON text."""
        return dump_json({"rows": [dict(row) for row in self.records()]})

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the result, to a file if a path is given; return the axes of matplotlib."""
        return VIEWS["result"](self, path)

    def __repr__(self) -> str:
        return plain_text(self.table())

    _repr_html_ = as_html


@dataclass(frozen=True, repr=False, eq=False)
class Finding(Result, Checked, Document):
    """Result of the analysis of one schedule.

    Parameters
    ----------
    graph, cluster
        Names of the graph and the cluster.
    """

    SUBJECT = "what was found of {0.graph!r}"
    ERROR = WhatIfError
    graph: str
    cluster: str

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def records(self) -> list[dict[str, Any]]:
        """Return plain values by column, a dict per row."""
        return [write(row) for row in vars(self)["rows"]]


@dataclass(frozen=True, slots=True)
class Doubt(Checked):
    """Sources of the ranges, and the assumptions that they depend on.

    Parameters
    ----------
    draws
        Worlds that were drawn.
    basis
        ``"uncalibrated"``, or ``"calibrated"`` and the date.
    model_error
        Standard deviation of simulated over true time that is added, as a fraction.
    depends_on, correlation
        The parameter with which the speedup of the best schedule goes, in rank correlation; None if with no single one.
    settled_by
        The measurement that would make the ranges narrower.
    """

    SUBJECT = "doubt"
    ERROR = SimulationError
    draws: Count
    basis: str
    model_error: Amount
    depends_on: str | None
    correlation: float | None
    settled_by: str

    def __str__(self) -> str:
        on = "no single parameter"
        if self.depends_on is not None:
            on = f"{self.depends_on} (rank correlation {self.correlation:+.2f})"
        return f"the speedup depends most on {on}; {self.settled_by} would settle it"


class LazyValues(Mapping[str, T]):
    """Values by name, each computed when it is first read."""

    def __init__(self, names: Collection[str], make: Callable[[str], T]) -> None:
        self._names = names
        self._make = cache(make)

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return printable(str(value))


def _column(values: Sequence[Any]) -> list[Any]:
    """Return values as one kind: values of several kinds, and whole numbers too large for a float, become texts."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    wide = kinds == {int, float} or (kinds == {int} and any(abs(value) >= 2**63 for value in present))
    if wide and all(map(is_number, present)):
        return [None if value is None else float(value) for value in values]
    if wide or len(kinds) > 1:
        return [None if value is None else _cell(value) for value in values]
    return list(values)


class TextTable(NamedTuple):
    """A table of texts, as terminals, pages and notebooks show it.

    Parameters
    ----------
    title, note
        Above and below it.
    headings, rows
        The first column names the rows.
    best
        Row to set off, -1 for none.
    left
        Columns whose texts are aligned to the left; other columns are aligned to the right.
    dim
        Rows that matter less.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    best: int = -1
    left: Collection[int] = (0,)
    dim: Collection[int] = ()


def table_of(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    note: str | Iterable[str] = "",
    best: int = -1,
    left: Collection[int] = (0,),
    dim: Collection[int] = (),
) -> TextTable:
    """Return a table of printable texts; headings and notes may have several lines.

    A row that is only a name has dashes after it, and is shown dimmed.
    """
    texts = [[*map(printable, row)] for row in rows]
    bare = [i for i, row in enumerate(texts) if len(row) == 1]
    cells = [(*row, *["-"] * (len(headings) - len(row))) for row in texts]
    notes = [note] if isinstance(note, str) else note
    return TextTable(
        printable(title), tuple(map(printable_lines, headings)), cells, join_lines(notes), best, left, {*dim, *bare}
    )


def write_table(table: TextTable, console: Any) -> None:
    """Print a table on a console of rich; one that is too narrow breaks lines."""
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    wide = console.options.update(max_width=WIDTH)
    for c, heading in enumerate(table.headings):
        texts = [Text(text) for text in (heading, *(row[c] for row in table.rows))]
        width = max(console.measure(text, options=wide).maximum for text in texts)
        last = c == len(table.headings) - 1  # it may hold a sentence that has to be wrapped
        if c in table.left:
            side: Any = "left"
        else:
            side = "right"
        grid.add_column(texts[0], justify=side, no_wrap=not last, min_width=None if last else width)
    for i, row in enumerate(table.rows):
        grid.add_row(*map(Text, row), style="dim" if i in table.dim else "bold" if i == table.best else None)
    # figures that are cut short are worse than lines that are broken
    console.width = max(console.width, console.measure(grid, options=wide).minimum)
    for text, style in ((table.title, "table.title"), (grid, None), (table.note, "table.caption")):
        if text:
            console.print(text, style=style, markup=False, highlight=False, soft_wrap=text is not grid)


def plain_text(table: TextTable) -> str:
    """Return a table as plain text."""
    from rich.console import Console

    console = Console(width=WIDTH, emoji=False, color_system=None, force_terminal=False)
    with console.capture() as capture:
        write_table(table, console)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().split("\n"))


def time_text(us: float | None, unit: float) -> str:
    """Return a time in ms or in us, as `unit` is, or a dash.

    >>> time_text(1234.5, 1.0), time_text(1234.5, MS), time_text(None, MS)
    ('1234.5', '1.234', '-')
    """
    if us is None:
        return "-"
    if unit == MS:
        return f"{us / unit:.3f}"
    return f"{us:.1f}"


def unit_of(times: Iterable[float | None]) -> tuple[float, str]:
    """Return the unit of a table of times in us, and its name: ms if any of them is 1 ms or more."""
    if any((us or 0.0) >= MS for us in times):
        return (MS, "ms")
    return (1.0, "us")
