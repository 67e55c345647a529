"""What options of schedulers may be: their type hints say it, and the front door holds every value to them."""

from collections.abc import Callable, Mapping
from functools import cache
from inspect import unwrap
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from simsched.base.codec import Among, Range, Refused, Seed, kind_of
from simsched.base.errors import SchedulerError

Mode = Annotated[str, Among(("paper", "impl"))]
"""As a paper has it, or as its released code does."""
Rng = np.random.Generator | Seed
Seconds = Annotated[float, Range(0, above=True, infinite=True)]


def taken(scheduler: str, function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a function of this library as its hints have them.

    Options whose hints do not say all that a value may be are left to the function; so are those of other functions.

    Raises
    ------
    SchedulerError
        If a value is not what the hint of its option says.
    """
    given = {**getattr(function, "keywords", {}), **options}  # those of a partial function too
    function = unwrap(getattr(function, "func", function))
    if not getattr(function, "__module__", "").startswith("simsched."):
        return dict(options)
    for option, value in given.items():
        hint = _hints(function)[option]
        try:
            if _says_all(hint):
                given[option] = kind_of(hint).take(value)
        except Refused as refused:
            raise SchedulerError(f"{scheduler}: {refused.says(option)}") from None
    return {option: given[option] for option in options}


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


def _says_all(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return all(map(_says_all, get_args(hint)))
    return get_origin(hint) in (Annotated, Callable) or hint in (bool, NoneType, np.random.Generator)
