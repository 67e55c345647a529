"""What the readers of formats share: text as it stands, the numbers in it, and errors that name the file."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from simsched.errors import FileError, FormatError, SimschedError

_REAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MOST_DIGITS: Final = 20  # of a whole number: those of 2 ** 64
_MOST_SHOWN: Final = 60

T = TypeVar("T")


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a UTF-8 file as it stands; a byte-order mark is left out.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is not UTF-8.
    """
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not a text file ({error.reason} at byte {error.start})") from error
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


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


def shown(value: object) -> str:
    """Return a value as errors show it, on one line that is not too long."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def build(source: str, make: Callable[..., T], *values: Any, **fields: Any) -> T:
    """Call `make` with what was read; an error of its own gets the name of the file before it, and one line."""
    try:
        return make(*values, **fields)
    except (SimschedError, TypeError, ValueError) as error:
        line = "\\n".join(str(error).splitlines())
        raise (type(error) if isinstance(error, SimschedError) else FormatError)(f"{source}: {line}") from error
