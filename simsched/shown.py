"""How notebooks show things: as data frames, and as HTML that is made where pictures are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any

from simsched.errors import MissingDependencyError


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
    """Return a graph, schedule, trace or table as HTML for a notebook; see `simsched.notebook`."""
    # The one call that goes up: a picture of a graph needs all that a schedule does, and a graph knows of neither.
    # It is found by name when a notebook asks, so that nothing below depends on it.
    text: str = import_module("simsched.notebook").html(shown)
    return text
