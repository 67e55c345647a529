"""Settings that are typed as ``name=value``."""

import re
from collections.abc import Iterable
from typing import Any

from simsched.base.errors import GraphError, SchedulerError
from simsched.base.numeric import plain_value


def read_pairs(pairs: Iterable[str], option: str) -> dict[str, Any]:
    """Return ``name=value`` pairs as keyword arguments.

    Values are numbers, true, false, none or text, or several of them with commas between, ``rules=R2,R3``; ``rules=()``
    is none of them.

    Parameters
    ----------
    pairs
        The texts.
    option
        The option of the command line that gives them, for errors.

    Raises
    ------
    SchedulerError
        If a pair has no name or no equals sign.

    >>> read_pairs(["gpu=a100", "n-streams=3", "noise=0.01", "rules=R2,R3"], "--option")
    {'gpu': 'a100', 'n_streams': 3, 'noise': 0.01, 'rules': ('R2', 'R3')}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise SchedulerError(f"{option} {pair!r}: expected name=value")
        options[name] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    if text == "()":
        return ()
    if "," in text:
        return tuple(_value(part.strip()) for part in text.split(",") if part.strip())
    if text.lower() == "none":
        return None
    return plain_value(text)


def read_shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """Return the shapes that ``--shape NAME=1,3,224,224`` gives, by name of the input."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or []:
        name, equals, sizes = text.rpartition("=")
        parts = [part.strip() for part in sizes.split(",")]
        if not equals or not name or not all(re.fullmatch(r"0|[1-9][0-9]{0,17}", part) for part in parts):
            raise GraphError(f"--shape {text[:60]!r}: give NAME=1,3,224,224, sizes of at least 0")
        shapes[name] = tuple(map(int, parts))
    return shapes
