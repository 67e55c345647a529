"""What the results of all experiments share: rows as data frames, CSV, Parquet and JSON, a table, and a picture."""

import csv
import io
import os
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from simsched.base.codec import Checked, Document, write
from simsched.base.errors import MissingDependencyError, WhatIfError
from simsched.base.io import dump_json
from simsched.base.shown import VIEWS, as_html, data_frame
from simsched.base.units import MS

_WIDTH: Final = 140  # characters of a printed table
_LARGEST: Final = 2**63


class Result:
    """What an experiment found: rows, a table that it prints as, a picture, and files.

    Each kind has ``save`` and ``load``, too: most of a JSON file, see `simsched.base.codec.Document`; a study and a
    validation of their folder.
    """

    @abstractmethod
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Return plain values by column, a mapping per row."""

    @abstractmethod
    def table(self) -> Any:
        """Return the result as a `rich.table.Table`."""

    @property
    def view(self) -> str:
        """Name of its picture in `VIEWS`: that of its class."""
        return type(self).__name__.lower()

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
        """Return the rows as CSV; numbers are written so that they read back the same."""
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
        found: bytes = sink.getvalue().to_pybytes()
        return found

    def to_json(self) -> str:
        """Return the rows as JSON text."""
        return dump_json({"rows": [dict(row) for row in self.records()]})

    def plot(self, path: str | os.PathLike[str] | None = None, *, ax: Any = None) -> Any:
        """Draw the result, to a file or into axes of matplotlib; return the axes."""
        return VIEWS[self.view](self, path, ax=ax)

    def __repr__(self) -> str:
        return printed(self.table())

    _repr_html_ = as_html


@dataclass(frozen=True, repr=False, eq=False)
class Finding(Result, Checked, Document):
    """What an analysis of a schedule found.

    Parameters
    ----------
    graph, cluster
        Names of what ran, and on what.
    """

    SUBJECT, ERROR = "what was found of {0.graph!r}", WhatIfError
    graph: str
    cluster: str

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def records(self) -> list[dict[str, Any]]:
        """Return plain values by column, a dict per row."""
        return [write(row) for row in vars(self)["rows"]]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _column(values: Sequence[Any]) -> list[Any]:
    """Return values as one kind: those of several kinds, such as numbers and texts, as texts."""
    given = [value for value in values if value is not None]
    kinds = {type(value) for value in given}
    if kinds == {int, float} or (kinds == {int} and any(abs(value) >= _LARGEST for value in given)):
        return [None if value is None else float(value) for value in values]
    if len(kinds) > 1:
        return [None if value is None else _cell(value) for value in values]
    return list(values)


def printed(table: Any) -> str:
    """Return what a rich table looks like as plain text."""
    from rich.console import Console

    console = Console(width=_WIDTH, emoji=False, color_system=None, force_terminal=False)
    title, caption, table.title, table.caption = table.title, table.caption, None, None  # as wide as they are
    with console.capture() as capture:
        for part in filter(None, (title, table, caption)):
            console.print(part, highlight=False, soft_wrap=part is not table)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().split("\n"))


def table_of(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, note: str = "", best: int = -1,
    left: Collection[int] = (0,), dim: Collection[int] = (),
) -> Any:  # fmt: skip
    """Return a rich table of texts: some columns to the left, the others to the right; one row set off, some dim.

    A row that is nothing but a name has dashes behind it, and matters less.
    """
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", caption=escape(note) or None, caption_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(escape(heading), justify="left" if i in left else "right")
    for i, row in enumerate(rows):
        cells = [*map(escape, row), *["-"] * (len(headings) - len(row))]
        table.add_row(*cells, style="dim" if len(row) == 1 or i in dim else "bold" if i == best else None)
    return table


def time_text(us: float | None, unit: float) -> str:
    """Return a time in ms or in us, as `unit` is, or a dash.

    >>> time_text(1234.5, 1.0), time_text(1234.5, MS), time_text(None, MS)
    ('1234.5', '1.234', '-')
    """
    return "-" if us is None else f"{us / unit:.3f}" if unit == MS else f"{us:.1f}"


def unit_of(times: Iterable[float | None]) -> tuple[float, str]:
    """Return the unit of a table of times in us, and its name: ms if any of them is 1 ms or more."""
    return (MS, "ms") if any((us or 0.0) >= MS for us in times) else (1.0, "us")
