"""Functions by name that are imported when they are asked for; by them nouns show themselves."""

import sys
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from inspect import unwrap
from typing import Any, Final, TypeVar

from simsched.base.errors import MissingDependencyError

F = TypeVar("F", bound=Callable[..., Any])


class Imported(UserDict[str, F]):
    """A dict of functions whose modules are imported on first use.

    Parameters
    ----------
    places
        ``package.module:function`` of each name.
    made
        Converts a function when it was imported; by default it stays unchanged.
    """

    def __init__(self, places: Any, made: Callable[[F], F] = lambda function: function) -> None:
        self._made = made
        super().__init__(places)

    def __getitem__(self, name: str) -> F:
        place: Any = self.data[name]
        if isinstance(place, str):
            module, function = place.split(":")
            self.data[name] = self._made(getattr(import_module(module), function))
        return self.data[name]

    def name_of(self, function: Callable[..., Any]) -> str | None:
        """Return the name of a function, which may be wrapped; None if it has none."""
        for name, place in self.data.items():
            is_here = not isinstance(place, str) or place.split(":")[0] in sys.modules
            if is_here and unwrap(self[name]) is unwrap(function):
                return name
        return None


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
    """Return data classes of a kind as a pandas DataFrame, a column per field; errors are as in `data_frame`."""
    names = [field.name for field in fields(kind)]
    return data_frame([{name: getattr(row, name) for name in names} for row in rows], names)


def as_html(shown: Any) -> str:
    """Return an object with a table as HTML for a notebook; see `simsched.show.notebook`."""
    return str(VIEWS["html"](shown))
