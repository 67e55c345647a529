"""What the results of all analyses share: JSON files, data frames, tables, and pictures of one look."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, TypeVar

from simsched.base.errors import FormatError
from simsched.base.io import Record, document, dump_json, read_json, write_file
from simsched.base.numeric import freeze, is_number
from simsched.base.shown import VIEWS, as_html, data_frame

VERSION: Final = 1
_WIDTH: Final = 120  # characters of a printed table
Own = TypeVar("Own", bound="Result")


@dataclass(frozen=True, repr=False)
class Result(ABC):
    """What an analysis found; prints as a table and goes to a JSON file and back.

    The format of its document is ``simsched.`` and `FORMAT`, version 1.

    Parameters
    ----------
    graph, cluster
        Names of what ran, and on what.
    """

    FORMAT: ClassVar[str]
    graph: str
    cluster: str

    def __post_init__(self) -> None:
        freeze(vars(self))

    def records(self) -> list[dict[str, Any]]:
        """Return plain values by column, a dict per row."""
        return [asdict(row) for row in vars(self)["rows"]]

    @abstractmethod
    def table(self) -> Any:
        """Return the result as a `rich.table.Table`."""

    @abstractmethod
    def contents(self) -> dict[str, Any]:
        """Return all that the document holds besides its format and version, as JSON values."""

    @classmethod
    @abstractmethod
    def read(cls: type[Own], top: Record) -> Own:
        """Make the result of what `contents` returned."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON document."""
        return {"format": f"simsched.{self.FORMAT}", "version": VERSION, **self.contents()}

    @classmethod
    def from_dict(cls: type[Own], data: Any, source: str | None = None) -> Own:
        """Make a result from a decoded document of its format; `source` names it in errors."""
        return cls.read(document(data, f"simsched.{cls.FORMAT}", VERSION, cls.FORMAT if source is None else source))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to a JSON file, whole or not at all."""
        write_file(path, dump_json(self.to_dict()))

    @classmethod
    def load(cls: type[Own], path: str | os.PathLike[str]) -> Own:
        """Read a result from a JSON file."""
        return cls.from_dict(read_json(path), str(path))

    def to_dataframe(self) -> Any:
        """Return the rows as a pandas DataFrame.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        return data_frame(self.records())

    def plot(self, path: str | os.PathLike[str] | None = None, *, ax: Any = None) -> Any:
        """Draw the result, to a file or into axes of matplotlib; return the axes."""
        return VIEWS[self.FORMAT](self, path, ax=ax)

    def __repr__(self) -> str:
        return printed(self.table())

    _repr_html_ = as_html


def printed(table: Any) -> str:
    """Return what a rich table looks like as plain text."""
    from rich.console import Console

    console = Console(width=_WIDTH, color_system=None, force_terminal=False)
    title, caption, table.title, table.caption = table.title, table.caption, None, None  # as wide as they are
    with console.capture() as capture:
        for part in filter(None, (title, table, caption)):
            console.print(part, highlight=False, soft_wrap=part is not table)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().split("\n"))


def table_of(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, note: str = "", best: int = -1
) -> Any:
    """Return a rich table of texts: the first column to the left, the others to the right, one row set off."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", caption=escape(note) or None, caption_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(escape(heading), justify="right" if i else "left")
    for i, row in enumerate(rows):
        table.add_row(*map(escape, row), style="bold" if i == best else None)
    return table


def numbers(values: Any, where: str) -> tuple[float, ...]:
    """Return a list of numbers of a document as floats."""
    if not isinstance(values, list) or not all(map(is_number, values)):
        raise FormatError(f"{where} must be a list of numbers")
    return tuple(map(float, values))
