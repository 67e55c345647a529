"""Edges as numbers ``src * n_ops + dst``: sorted, searched and drawn without a Python object for each."""

from typing import Final

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DENSE: Final = 4  # below so many candidates per wanted one, weigh them all instead of trying again and again


def ends_of(keys: Ints, n_ops: int) -> tuple[Ints, Ints]:
    """Return sources and targets of edges that are given as numbers."""
    src = keys // n_ops
    return src, keys - src * n_ops


def is_in(values: Ints, rising: Ints) -> Bools:
    """Return whether each value occurs in a rising array, which must not be empty."""
    is_there: Bools = rising[np.minimum(np.searchsorted(rising, values), len(rising) - 1)] == values
    return is_there


def first_of_each(values: Ints) -> Bools:
    """Return which values are not equal to an earlier one."""
    order = np.argsort(values, kind="stable")
    first = np.ones(len(values), np.bool_)
    first[order[1:]] = values[order[1:]] != values[order[:-1]]
    return first


def distinct(rng: np.random.Generator, end: int, count: int) -> Ints:
    """Return `count` different whole numbers below `end` in rising order; every choice is equally likely."""
    if end <= DENSE * count:
        return np.sort(np.argsort(rng.random(end), kind="stable")[:count])
    numbers = np.zeros(0, np.int64)
    while (missing := count - len(numbers)) > 0:
        # never more than are missing, so that this is drawing one by one until there are enough
        numbers = np.sort(np.concatenate([numbers, rng.integers(end, size=missing)]))
        numbers = numbers[np.diff(numbers, prepend=-1) > 0]
    return numbers


def with_ends(src: Ints, dst: Ints, n_inner: int) -> tuple[list[Ints], list[Ints]]:
    """Return the edges with one operator before all, number 0, and one after all; the others move up by one.

    The first leads to all that read from no other, the last reads from all that no other reads from.
    """
    inputs = np.flatnonzero(np.bincount(dst, minlength=n_inner) == 0) + 1
    outputs = np.flatnonzero(np.bincount(src, minlength=n_inner) == 0) + 1
    return [src + 1, np.zeros_like(inputs), outputs], [dst + 1, inputs, np.full_like(outputs, n_inner + 1)]
