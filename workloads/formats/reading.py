"""Helpers of the readers of formats: numbers and lines of texts, and errors that name the file."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from simsched.base.errors import FormatError, SimschedError, brief_text

_REAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MOST_DIGITS: Final = 20  # digits of a whole number, as many as 2 ** 64 has

T = TypeVar("T")


def real(text: str) -> float | None:
    """Return the number that a text states, infinite if it is too large for one; None if it states none.

    >>> real("1.5e3"), real(".5"), real("1_000"), real("nan")
    (1500.0, 0.5, None, None)
    """
    if _REAL.fullmatch(text):
        return float(text)
    return None


def whole(text: str) -> int | None:
    """Return the whole number of up to 20 digits that a text states; None if it states none.

    >>> whole("12"), whole("-12"), whole("1.0")
    (12, None, None)
    """
    if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return None


def build(source: str, make: Callable[..., T], *values: Any, **fields: Any) -> T:
    """Call `make` with values from a file; its error gets the name of the file before it."""
    try:
        return make(*values, **fields)
    except (SimschedError, TypeError, ValueError) as error:
        raise (type(error) if isinstance(error, SimschedError) else FormatError)(f"{source}: {error}") from error


class Lines:
    """The lines of a text that are not empty, in their order; a ``#`` begins a comment.

    Parameters
    ----------
    text
        The contents of the file.
    source, format
        Name of the file and of its format in errors.
    """

    def __init__(self, text: str, source: str, format: str) -> None:
        self.source = source
        self._format = format
        self._number = 0
        self._rows = self._fields(text)

    def _fields(self, text: str) -> Iterator[list[str]]:
        for number, line in enumerate(text.split("\n"), 1):
            self._number = number
            fields = line.partition("#")[0].split()
            if fields:
                yield fields

    def take(self, what: str) -> list[str]:
        """Return the fields of the next line."""
        fields = next(self._rows, None)
        if fields is None:
            return self.fail(f"the file ends where {what} should stand")
        return fields

    def last(self) -> None:
        """Refuse a line more."""
        fields = next(self._rows, None)
        if fields is not None:
            self.fail(f"a line more than announced: {brief_text(' '.join(fields))}")

    def fail(self, what: str) -> NoReturn:
        """Raise an error that names the line read last."""
        raise FormatError(f"{self.source}: not {self._format} at line {self._number}: {what}")
