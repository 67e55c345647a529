"""What the compiler refuses, with file, line and what to do instead."""

import pytest

from simsched.base.jit import CompileError
from simsched.base.jit.compiler import compile_piece
from simsched.base.jit.functions import units_of
from validation.jit import module_of

HEAD = """
import math
from math import floor, inf, sqrt
from typing import Any
from simsched.base.jit import Column, Rows, f8, i8, native, wrapped
from validation.jit_programs import Record, State
LARGE, WORD = 2**63, "word"
def pair(a: int, x: float) -> tuple[int, float]: return a, x
@native
def half(x: float) -> float: return x / 2.0
@native
def nothing(a: int) -> None: pass
def unmarked(a: int) -> int: return 1
@native
def given(a: int, b: int = 2) -> int: return a + b
"""
LINE = len(HEAD.splitlines()) + 4
SUBSET = "native functions have int, float, bool, tables, rows and columns, if, while, for range, calls of such"
WORDS = "write int(...) or float(...)"
REFUSED = {
    SUBSET: """
        with s: pass | try: pass|finally: pass | raise ValueError | assert s.i | del s | global LARGE | import os
        pass | a: int | b: int = 2
        def f(): pass | class C: pass | lambda: 1 | [1, 2] | {1: 2} | {1, 2} | f"{s.i}" | (a := 1)
        [i for i in range(3)] | a = "word" | a = WORD | a = None | a = ... | a = 1j | a = LARGE
        a = 9223372036854775808 | a = -(-9223372036854775808) | a = missing | missing(1) | math.sin(s.x)
        print(s.i) | len(s.longs) | round(s.x) | pow(s.i, 2) | max(s.i, s.x) | max(s.i) | max(True, False)
        max(s.i, 2, key=abs) | abs(s.i)
        sqrt(s.x) | floor(s.i) | math.floor(s.x) | bool(s.i) | int() | int(s.i, 2) | int(s.longs) | wrapped(s.x)
        return 1, 2
        s.longs.sum() | State() | +s.i | ~s.x | -s.longs | s.longs[1, 2] | s.longs["x"] | s.i < "x"
        (a, b), c = (1, 2), 3 | a += 1 | half(*s.longs)
        for i in range(3): pass|else: pass | while s.i: pass|else: pass | match s.i:| case 1: pass | s.i != None
        s.i not in (1, 2)""",
    "for runs over range(...) only; index the column by a number": """
        for x in s.longs: pass | for i, j in range(3): pass | for s.i in range(3): pass | for x in s: pass""",
    "a range has one to three bounds, without names": """
        for i in range(): pass | for i in range(1, 2, 3, 4): pass | for i in range(stop=3): pass""",
    "the step of a range is a whole number, not 0, that stands in the source": """
        for i in range(1, 2, 0): pass | for i in range(1, 2, s.i): pass | for i in range(1, 2, 0.5): pass""",
    f"a bound of range is float, and has to be int; {WORDS}": "for i in range(s.x): pass",
    "a part of a column has a start only: column[start:]": """
        a = s.longs[1:3] | a = s.longs[:3] | a = s.longs[::2] | s.longs[:] = 1""",
    f"a place in a column is float, and has to be int; {WORDS}": "s.longs[1.5] | s.longs[s.x] = 1",
    "'s.i' is int and has no places": "s.i[0]",
    "'s.rows[0]' is a row or table Record and has no places": "s.rows[0][1]",
    "Div of whole numbers is not compiled; write float(a) / b, or a product": "s.i / 2 | 5 / s.i | s.i /= 2",
    "Pow of whole numbers is not compiled; write float(a) / b, or a product": "s.i ** 2",
    "FloorDiv is of whole numbers; round with floor, ceil or int first": "s.x // 2.0 | s.x //= 2",
    "Mod is of whole numbers; round with floor, ceil or int first": "s.x % 2.0 | s.x % 2",
    "LShift is of whole numbers; round with floor, ceil or int first": "s.x << 1",
    "BitAnd is of whole numbers; round with floor, ceil or int first": "1.5 & 2 | True & s.x",
    "arithmetic of a column of i8 and int": "s.longs + 1 | s.longs += 1 | s.part.longs += 1",
    "a float is compared with int; write float(...)": """
        s.i < s.x | s.x == s.i | s.x < 9007199254740993 | s.i in (1.0, 2.0)""",
    "a float is compared with bool; write float(...)": "s.x < True",
    "a column of i8 is compared with int": "s.longs < 1",
    "`is` asks of a column whether it is None; else compare by ==": """
        s.i is 5 | s.x is None | s.i is not None | s.rows[0] is None | s.longs is s.longs""",
    "`in` asks of a whole number for a tuple of such, written out; else compare by ==": """
        s.i in [1, 2] | s.i in s.longs | s.x in (1.0, inf)""",
    "a chain of comparisons; use `and`": "1 < s.i < 5",
    "'s.i' is int, no truth; compare it": "a = s.i and 1 | a = s.i or True",
    "'s.x' is float, no truth; compare it": "if s.x: pass",
    "'s.longs' is a column of i8, no truth; compare it": "if s.longs: pass | not s.longs | 1 if s.longs else 2",
    "given takes a, b; give each of them": "given(1)",
    "unmarked is not native; mark it @native, or call it from Python": "unmarked(1) | a = 1 + unmarked(s.i)",
    "pair is not native; mark it @native, or call it from Python": "pair(1, 2.0)",
    "half takes x; give each of them": "half() | half(1.0, 2.0) | half(x=1.0) | half(**s)",
    f"'x' is int, and has to be float; {WORDS}": "half(1)",
    "'s.missing' is no local, field or column": "s.missing | s.missing = 1 | s.missing += 1",
    "'s.part.missing' is no local, field or column": "s.part.missing | s.part.missing = 1",
    "'s.part' is a row or table Part and has no places": "s.part[0]",
    "arithmetic of a row or table Part and int": "s.part += 1 | s.part + 1",
    "arithmetic of a row or table Record and int": "s.rows[0] += 1",
    "'s.rows[0].missing' is no local, field or column": "s.rows[0].missing | s.rows[0].missing = 1",
    "'*b' is no local, field or column": "a, *b = 1, 2",
    "what is written to is a local, a field or a number of a column": """
        s.rows[0] = s.rows[1] | s.longs = s.longs | s.longs[1:] = 1 | s.part = s.part""",
    f"what is written is float, and has to be int; {WORDS}": """
        s.i = 1.5 | s.longs[0] = s.x | s.i += 1.5 | s.rows[0].c = 1.5 | s.i, s.j = 1, 2.0""",
    f"what is written is int, and has to be float; {WORDS}": "s.x = s.i | s.floats[0] = 1",
    f"what is written is a column of i8, and has to be float; {WORDS}": "s.x = s.longs",
    f"the other value is float, and has to be int; {WORDS}": "1 if s.i else 2.0",
    "'b' is int and becomes float; use two names": "b = 2.0",
    "'b' is int and becomes bool; use two names": "b = True | b = b < 2",
    "'s' is a row or table State and becomes a row or table Record; use two names": "s = s.rows[0]",
    "2 values for 1 names; give as many": "a = (1, 2) | [a, c] = 1, 2",
    "1 values for 2 names; give as many": "a, c = half(1.0)",
    "3 values for 2 names; give as many": "a, c = 1, 2, 3",
    "'a' cannot be None; call the function alone": "a = nothing(1)",
    "the result is int, and has to be None": "return 1",
}


CASES = [
    (message, code.strip())
    for message, codes in REFUSED.items()
    for code in codes.replace("\n", " | ").split(" | ")
    if code.strip()
]


def refusal(source):
    """The place and the words of the refusal of a file at its import, or when its function `entry` is compiled."""

    def compile_file():
        names = module_of(source, "refused")
        compile_piece(names["entry"], units_of(names["entry"]))

    with pytest.raises(CompileError) as refused:
        compile_file()
    where, _, why = str(refused.value).partition(": ")
    return where, why


@pytest.mark.parametrize(("message", "code"), CASES)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_what_is_refused(message, code):
    """In a line below a local b, a whole number."""
    body = code.replace("|", "\n    ")
    where, why = refusal(f"{HEAD}@native\ndef entry(s: State) -> None:\n    b = 1\n    {body}\n")
    assert where == f"<refused>:{LINE}"
    assert why.startswith(message) if message != SUBSET else f"; {SUBSET}" in why or f", or {SUBSET}" in why


KIND = "needs a type: int, float, bool, a row, table or column"
SIGNATURES = {
    "(s: State) -> int: return 1.5": "the result is float, and has to be int; write int(...) or float(...)",
    "(s: State) -> int: return": "the result is None, and has to be int",
    "(s: State) -> tuple[int, bool]: return 1, True": f"the result of entry {KIND}, or None, not tuple[int, bool]",
    "(s) -> None: pass": f"parameter 's' of entry {KIND}",
    "(s: object) -> None: pass": f"parameter 's' of entry {KIND}, not object",
    "(s: 'State') -> None: pass": f"parameter 's' of entry {KIND}, not the text 'State'",
    "(s: State): pass": f"the result of entry {KIND}, or None",
    "(s: State, a: int | None) -> None: pass": f"parameter 'a' of entry {KIND}, not int | None",
    "(s: State, a: None) -> None: pass": f"parameter 'a' of entry {KIND}, not None",
    "(s: State, a: i8) -> None: pass": f"parameter 'a' of entry {KIND}, not ",
    "(s: State, a: Column[int]) -> None: pass": f"parameter 'a' of entry {KIND}, not ",
    "(s: State, a: Rows[i8]) -> None: pass": f"parameter 'a' of entry {KIND}, not ",
    "(s: Table) -> None: pass": f"parameter 's' of entry {KIND}, not Table",
    "(*s: State) -> None: pass": "entry is native, and has to take and return single values by position",
    "(s: State, **a: int) -> None: pass": "entry is native, and has to take and return single values by position",
    "(s: State, *, a: int) -> None: pass": "entry is native, and has to take and return single values by position",
    "(s: State) -> None: yield 1": "entry is native, and has to take and return single values by position",
}


@pytest.mark.parametrize("signature", SIGNATURES)
def test_signatures_that_are_refused(signature):
    """In the third line, that of the mark, or in the one after it."""
    names = "from simsched.base.jit import Column, Rows, Table, i8, native\nfrom validation.jit_programs import State\n"
    where, why = refusal(f"{names}@native\ndef entry{signature}\n")
    assert where in ("<refused>:3", "<refused>:4")
    assert why.startswith(SIGNATURES[signature])


def test_a_native_function_inside_of_a_function_is_refused():
    where, why = refusal(
        "from simsched.base.jit import native\ndef outer():\n    @native\n    def entry(a: int) -> None:\n"
        "        pass\n    return entry\nentry = outer()\n"
    )
    assert where == "<refused>"
    assert why.startswith("no source of 'entry' at the top level of the file; a native function")
