"""Checks of the parameters of workloads: each raises a `GraphError` of one line."""

from math import inf
from typing import Any

import numpy as np

from simsched.base.errors import GraphError, brief_text
from simsched.base.numeric import is_number


def whole(subject: str, name: str, value: Any, *, least: int = 1, most: int | None = None, why: str = "") -> int:
    """Return a whole number in ``[least, most]``; `why` ends the message if it is not."""
    if type(value) is int and value >= least and (most is None or value <= most):  # nearly always
        return value
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise GraphError(f"{subject}: {name} must be a whole number, not {brief_text(value)}")
    if value < least:
        raise GraphError(f"{subject}: {name} must be at least {least}{why}, not {brief_text(int(value))}")
    if most is not None and value > most:
        raise GraphError(f"{subject}: {name} must be at most {most}{why}, not {brief_text(int(value))}")
    return int(value)


def real(subject: str, name: str, value: Any) -> float:
    """Return a finite number that is not negative."""
    if not is_number(value) or not 0 <= value < inf:
        raise GraphError(f"{subject}: {name} must be a finite number of at least 0, not {brief_text(value)}")
    return float(value)


def one_of(subject: str, name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return a value that is among some texts."""
    if not isinstance(value, str) or value not in choices:
        raise GraphError(f"{subject}: {name} must be {' or '.join(map(repr, choices))}, not {brief_text(value)}")
    return value


def generator(subject: str, rng: Any) -> np.random.Generator:
    """Return the generator of a seed, or the generator given; None is refused, it would not repeat."""
    if isinstance(rng, np.random.Generator):
        return rng
    return np.random.default_rng(whole(subject, "rng (the seed)", rng, least=0))
