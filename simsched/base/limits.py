"""Largest counts that a user may ask for, on the command line and in Python: a slip of the finger costs no days."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from simsched.base.errors import brief_text
from simsched.base.numeric import LARGEST_COUNT, is_count

LARGEST_VARIATION: Final = 1e3
"""Standard deviation of operator times over their mean."""
MOST: Final[Mapping[str, int]] = MappingProxyType(
    {
        "samples": 1_000_000,
        "n": 1_000_000,
        "workers": 4096,
        "gpus": 4096,
        "n_gpus": 4096,
        "gpus_per_node": 4096,
        "virtual_devices": 64,
        "repeats": 100_000,
        "warmup": 100_000,
        "in_situ": 10_000,
        "rounds": 100,
        "training": 10_000,
        "random_held_out": 10_000,
        "in_flight": 4096,
    }
)
"""By the names of parameters."""


def require_count(error: Callable[[str], Exception], least: int = 1, **values: object) -> None:
    """Raise an error if a value is no whole number from `least` to `MOST`; `where` names it."""
    for name, value in values.items():
        if not is_count(value, least):
            raise error(f"{name} must be a whole number of at least {least}, not {brief_text(value)}")
        number: Any = value
        if number > MOST.get(name, LARGEST_COUNT):
            raise error(f"{name} must be at most {MOST[name]:,}, not {number:,}")
