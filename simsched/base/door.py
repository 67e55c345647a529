"""The public door: arguments of public functions are of the kinds that their hints say."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from simsched.base.errors import ArgumentError, shown

P = ParamSpec("P")
R = TypeVar("R")


def door(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that refuses arguments which are not of the kinds of its hints, and else is the same.

    Raises
    ------
    ArgumentError
        In one line: the function, the parameter, what it takes, and what it was given. What is inside of a list or a
        mapping is not looked at.
    """
    told: dict[str, Any] = {}
    fit: set[tuple[int | str, type]] = set()
    parameters = signature(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        kinds_given = {(i, type(value)) for i, value in enumerate(args)} | {(n, type(v)) for n, v in kwargs.items()}
        if kinds_given <= fit:  # what fits depends on the type alone
            return function(*args, **kwargs)
        told.update(told or get_type_hints(function))
        for name, value in parameters.bind(*args, **kwargs).arguments.items():
            if name in told and not _fits(value, told[name]):
                kinds = " or ".join(dict.fromkeys(_names(told[name])))
                raise ArgumentError(
                    f"{function.__name__}: {name} takes {kinds}, not {type(value).__name__} {shown(value)}"
                )
        fit.update(kinds_given)
        return function(*args, **kwargs)

    return checked


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _fits(value, arguments[0])
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    kind = origin or hint
    if kind is type(None) or hint is None:
        return value is None
    if kind is Callable:
        return callable(value)
    if hint is Any or not isinstance(kind, type):
        return True
    protocol = getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)
    return protocol or isinstance(value, kind)


def _names(hint: Any) -> list[str]:
    """Return what errors call the kinds that a hint allows."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return [name for each in arguments for name in _names(each)]
    if hint in (None, type(None)):
        return ["None"]
    return [getattr(origin or hint, "__name__", str(hint))]
