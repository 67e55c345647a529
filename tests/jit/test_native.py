"""The mark of native functions: who bears it, and the refusal of hints that do not fit."""

from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simsched
from simsched.base.jit import Column, CompileError, Table, f8, i1, i4, i8, native, piece
from simsched.base.jit.functions import is_native, signature_of
from simsched.base.jit.pieces import all_pieces

ROOT = Path(simsched.__file__).parent.parent
PIECES = list(all_pieces(ROOT))
NATIVE = sorted(
    {value for entry in PIECES for unit in entry._units.values() for value in unit.names.values() if is_native(value)},
    key=lambda function: (function.__module__, function.__name__),
)
HINTS = [str, bytes, object, complex, list, list[int], int | None, float | int, Any, Column, Column[Any], Table]
HINTS += [Column[int], tuple[int, int], i1, i4, i8, f8, "int", "None", ..., [], FunctionType]


class Pair(Table):
    """Two numbers."""

    one: i8
    other: i8


def copy_of(function):
    """The same code with hints of its own."""
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__annotations__ = dict(function.__annotations__)
    copy.__module__ = function.__module__
    return copy


def test_all_functions_that_pieces_call_bear_the_mark():
    """Every piece compiles, so whatever it calls is marked: 200 functions of all rooms, pieces included."""
    for entry in PIECES:
        assert f'@"{entry.symbol}"' in entry.assembly()
    assert len(NATIVE) > 150


@given(st.sampled_from(NATIVE), st.data())
def test_a_changed_hint_is_refused(function, data):
    """Of any parameter or result of any native function; the line names the file, the function and the place."""
    changed = copy_of(function)
    name = data.draw(st.sampled_from(sorted(changed.__annotations__)))
    if data.draw(st.booleans()):
        changed.__annotations__[name] = data.draw(st.sampled_from(HINTS))
    else:
        del changed.__annotations__[name]
    place = "the result of" if name == "return" else f"parameter {name!r} of"
    with pytest.raises(CompileError) as refused:
        native(changed)
    assert str(refused.value).startswith(f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}: {place}")
    assert f"{place} {function.__name__} needs a type: int, float, bool" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not is_native(changed)


@given(st.sampled_from(NATIVE))
def test_the_same_hints_are_taken_again(function):
    again = native(copy_of(function))
    assert signature_of(again) == signature_of(function)


def test_a_mark_is_not_inherited_by_a_wrapper():
    """`wraps` copies attributes, and the source of the wrapper is not the one that would be compiled."""

    @native
    def half(number: float) -> float:
        return number / 2.0

    @wraps(half)
    def wrapper(number: float) -> float:
        return half(number) + 1.0

    assert is_native(half)
    assert not is_native(wrapper)


@pytest.mark.parametrize("thing", [print, 3, int, classmethod(print)])
def test_only_functions_are_marked(thing):
    with pytest.raises(CompileError, match="@native marks a function, not "):
        native(thing)


def takes_a_number(number: int) -> None:
    pass


def takes_two_tables(pair: Pair, other: Pair) -> None:
    pass


def takes_none() -> None:
    pass


def returns_a_number(pair: Pair) -> int:
    return pair.one


@pytest.mark.parametrize("function", [takes_a_number, takes_two_tables, takes_none, returns_a_number])
def test_a_piece_takes_one_table_and_returns_none(function):
    with pytest.raises(CompileError, match=rf":\d+: {function.__name__} is a piece, and has to take one table and ret"):
        piece("test")(function)
