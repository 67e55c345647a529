"""What the readers of formats share: numbers in texts, and errors that name the file."""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from simsched.base.errors import FormatError, SimschedError

_REAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MOST_DIGITS: Final = 20  # of a whole number: those of 2 ** 64

T = TypeVar("T")


def real(text: str) -> float | None:
    """Return the number a text stands for, infinite if it is too large for one; None if it stands for none.

    >>> real("1.5e3"), real(".5"), real("1_000"), real("nan")
    (1500.0, 0.5, None, None)
    """
    return float(text) if _REAL.fullmatch(text) else None


def whole(text: str) -> int | None:
    """Return the whole number of up to 20 digits a text stands for; None if it stands for none.

    >>> whole("12"), whole("-12"), whole("1.0")
    (12, None, None)
    """
    return int(text) if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit() else None


def build(source: str, make: Callable[..., T], *values: Any, **fields: Any) -> T:
    """Call `make` with what was read; an error of its own gets the name of the file before it, and one line."""
    try:
        return make(*values, **fields)
    except (SimschedError, TypeError, ValueError) as error:
        line = "\\n".join(str(error).splitlines())
        raise (type(error) if isinstance(error, SimschedError) else FormatError)(f"{source}: {line}") from error
