"""How nouns show themselves: as data frames, and in the ways that `simsched.show` fills in."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from simsched.base.errors import MissingDependencyError
from simsched.base.imported import Imported

VIEWS: Final = Imported[Any]({})
"""Functions that draw or print a noun, by name. A graph knows nothing of pictures, which know all of graphs: so the
pictures, which stand above, are put in here."""


def data_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Any:
    """Return rows as a pandas DataFrame.

    Raises
    ------
    MissingDependencyError
        If pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependencyError("a data frame needs pandas: pip install pandas") from None
    return pd.DataFrame(rows, columns=columns)


def frame_of(rows: Iterable[Any], kind: Any) -> Any:
    """Return data classes of a kind as a pandas DataFrame, a column per field; errors are those of `data_frame`."""
    names = [field.name for field in fields(kind)]
    return data_frame([{name: getattr(row, name) for name in names} for row in rows], names)


def as_html(shown: Any) -> str:
    """Return a noun or what has a table as HTML for a notebook; see `simsched.show.notebook`."""
    text: str = VIEWS["html"](shown)
    return text
