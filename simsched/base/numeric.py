"""Checks of numbers that a user gives."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from numbers import Integral, Real
from sys import float_info
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Kind = TypeVar("Kind", bound=np.generic)
Key = TypeVar("Key")
Value = TypeVar("Value")
LARGEST_COUNT = 2**53
"""Counts beyond this are no longer exact as floats."""


def sum_in_order(numbers: Iterable[float]) -> float:
    """Return the sum of floats, added from the first to the last; 0 of none.

    `sum` compensates for rounding since Python 3.12: its last bit, and so a choice between two costs that are nearly
    equal, would depend on the version of Python.

    >>> sum_in_order([1e100, 1.0, -1e100])
    0.0
    """
    total = 0.0
    for number in numbers:
        total += number
    return total


def is_number(value: Any) -> bool:
    """Return whether a value is a real number that floats reach, Python's or numpy's; truth values are none."""
    kind = type(value)
    if kind is float:  # nearly always, and a quicker test
        return True
    if kind is int:
        return bool(-float_info.max <= value <= float_info.max)
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def is_count(value: Any, least: int = 0) -> bool:
    """Return whether a value is a whole number from `least` to `LARGEST_COUNT`."""
    if type(value) is not int and (not isinstance(value, Integral) or isinstance(value, bool)):
        return False
    return least <= int(value) <= LARGEST_COUNT


def plain_value(text: str) -> Any:
    """Return the number or the truth value that a text is, else the text.

    >>> plain_value("2"), plain_value("0.5"), plain_value("True"), plain_value("h100")
    (2, 0.5, True, 'h100')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def group_by_key(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, keys in the order of their first use.

    >>> group_by_key([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def twice(names: Iterable[str]) -> str | None:
    """Return the first name that appears twice, None if there is none."""
    return next((name for name, n in Counter(names).items() if n > 1), None)


def freeze(values: dict[str, Any]) -> None:
    """Make the arrays among some values read-only."""
    for value in values.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False


def frozen(array: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
    """Return an array, from now on read-only."""
    array.flags.writeable = False
    return array


def same_columns(one: Any, other: Any, names: Iterable[str]) -> bool:
    """Return whether two things are alike in some columns, each an array or None; NaN equals itself."""
    pairs = ((getattr(one, name), getattr(other, name)) for name in names)
    return all(np.array_equal(a, b, equal_nan=a is not None and a.dtype.kind == "f") for a, b in pairs)


def whole_numbers(values: npt.ArrayLike) -> npt.NDArray[Any] | None:
    """Return whole numbers as an array, unchanged if it is one, or None if they are anything else."""
    numbers = np.asarray(values)
    if numbers.size == 0 and numbers.ndim == 1:
        return np.zeros(0, np.int64)
    if numbers.dtype.kind in "iu":
        return numbers
    return None
