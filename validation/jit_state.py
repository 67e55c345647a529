"""What random kernels work on, and two kernels that they call."""

from math import nan
from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i1, i4, i8, length, wrapped

N: Final = 8
"""Places of a column; parts of it that are passed on have at least half."""
RANGES: Final = {code: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for code, bits in (("i1", 8), ("i4", 32), ("i8", 64))}
"""What whole numbers of rows and columns can be."""
KINDS: Final = ("int", "small", "float", "bool", "Record", "Rows", "i1", "i4", "i8", "f8")
FIELDS: Final = {"i8": ("i", "j"), "f8": ("x", "y")}
ROW_FIELDS: Final = {"i8": ("c",), "i4": ("d",), "i1": ("e",), "f8": ("a", "b")}
COLUMNS: Final = {"i8": ("longs", "other_longs"), "i4": ("ints",), "i1": ("bytes",), "f8": ("floats", "other_floats")}
LARGE, ODD, NAN = 9007199254740993, -7, nan
HEAD: Final = """from math import ceil, floor, inf, sqrt
from simsched.base.jit import Column, Rows, i1, i4, i8, f8, wrapped
from validation.jit_state import LARGE, N, NAN, ODD, Record, State, depth_of, mixed

"""


class Record(Row):
    """A row with a field of each kind."""

    e: i1
    a: f8
    d: i4
    c: i8
    b: f8


class State(Table):
    """What programs read and write."""

    which: i8
    i: i8
    j: i8
    x: f8
    y: f8
    longs: Column[i8] = length("8")
    other_longs: Column[i8] = length("8")
    ints: Column[i4] = length("8")
    bytes: Column[i1] = length("8")
    floats: Column[f8] = length("8")
    other_floats: Column[f8] = length("8")
    rows: Rows[Record] = length("8")
    other_rows: Rows[Record] = length("8")
    perhaps: Column[i8]  # given or not
    found_ints: Column[i8] = length("40")
    found_floats: Column[f8] = length("40")


def mixed(seed: int, value: int) -> int:
    """Return a number that depends on every bit of two."""
    return wrapped((seed ^ wrapped(value * -7046029254386353131)) * 1181783497276652981)


def depth_of(s: State, i: int, steps: int) -> int:
    """Return how far one gets along a column, by calling itself."""
    return steps if steps == 5 else depth_of(s, s.longs[i] & 7, steps + 1) + (s.longs[i] & 1)


def annotation(kind: str) -> str:
    """Return what a kind is called in a signature."""
    return {"small": "int", "Rows": "Rows[Record]"}.get(kind, f"Column[{kind}]" if kind in COLUMNS else kind)
