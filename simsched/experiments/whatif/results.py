"""What the results of all analyses share: JSON files, data frames, tables, and pictures of one look."""

import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from simsched.base.codec import Checked, Document, write
from simsched.base.errors import WhatIfError
from simsched.base.shown import VIEWS, as_html, data_frame

_WIDTH: Final = 120  # characters of a printed table


@dataclass(frozen=True, repr=False, eq=False)
class Result(Checked, Document):
    """What an analysis found; prints as a table and goes to a JSON file and back.

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

    @abstractmethod
    def table(self) -> Any:
        """Return the result as a `rich.table.Table`."""

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
        return VIEWS[self.FORMAT.removeprefix("simsched.")](self, path, ax=ax)

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
