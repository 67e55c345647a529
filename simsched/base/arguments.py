"""Checks of public functions: arguments fit the type hints."""

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from simsched.base.errors import ArgumentError, brief_text

P = ParamSpec("P")
R = TypeVar("R")


def door(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that refuses arguments which are not of the kinds of its hints, and else is the same.

    Raises
    ------
    ArgumentError
        In one line: the function, the parameter, the allowed kinds, and the given value. Items of a list or a mapping
        are not checked.
    """
    fitting: dict[str, list[Any]] = {}
    fit: set[tuple[int | str, type]] = set()
    parameters = signature(function)

    @wraps(function)
    def call_checked(*args: P.args, **kwargs: P.kwargs) -> R:
        kinds_given = {(i, type(value)) for i, value in enumerate(args)} | {(n, type(v)) for n, v in kwargs.items()}
        if kinds_given <= fit:  # the type alone decides
            return function(*args, **kwargs)
        fitting.update(fitting or {name: [*_kinds(hint)] for name, hint in get_type_hints(function).items()})
        for name, value in parameters.bind(*args, **kwargs).arguments.items():
            if name in fitting and not any(_is(value, kind) for kind in fitting[name]):
                kinds = " or ".join(dict.fromkeys(getattr(kind, "__name__", str(kind)) for kind in fitting[name]))
                value_text = f"{type(value).__name__} {brief_text(value)}"
                raise ArgumentError(f"{function.__name__}: {name} takes {kinds}, not {value_text}")
        fit.update(kinds_given)
        return function(*args, **kwargs)

    return call_checked


def _kinds(hint: Any) -> Iterator[Any]:
    """Yield the kinds that a hint allows: classes, None, or a hint that allows anything."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in (Annotated, Union, UnionType):
        for argument in arguments[:1] if origin is Annotated else arguments:
            yield from _kinds(argument)
    else:
        yield None if hint is NoneType else origin or hint


def _is(value: Any, kind: Any) -> bool:
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if kind is None:
        return value is None
    if kind is Any or not isinstance(kind, type):
        return True
    protocol = getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)
    return protocol or isinstance(value, kind)
