"""`PackedCalls`: calls of the driver in a table that one loop makes, without the interpreter. Not run on a device yet.

The loop is a function of LLVM (llvmlite comes with simsched): Python calls it once for all rows, and holds no lock of
its own meanwhile. A row is eight words: the number of a signature, the address of a function of the driver, and up to
six arguments.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from simsched.base.errors import BackendError
from simsched.base.jit.machine_code import Native, link, to_object

SIGNATURES: Final = (
    ("i64",) * 4,
    ("i64", "i64", "i32"),
    ("i64",),
    ("i64", "i64"),
    ("i64", "i64", "i32", "i64", "i64", "i64"),
)
"""Types of arguments, of 32 and 64 bits; pointers and handles have 64."""
WORDS: Final = 8
"""Words of a row: a signature, an address, six arguments."""
_SYMBOL: Final = "make_packed_calls"
_HEADER: Final = 4  # words: how many rows, their address, the row that failed, its status


def assembly() -> str:
    """Return the loop as assembly of LLVM; it ends at the first call with a status other than 0."""
    cases = "\n".join(_case(number, types) for number, types in enumerate(SIGNATURES))
    labels = " ".join(f"i64 {number}, label %case{number}" for number in range(len(SIGNATURES)))
    merged = ", ".join(f"[ %status{number}, %case{number} ]" for number in range(len(SIGNATURES)))
    return f"""
define void @{_SYMBOL}(ptr %header) {{
entry:
  %n = load i64, ptr %header
  %at = getelementptr i64, ptr %header, i64 1
  %rows = load ptr, ptr %at
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %done ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %row, label %end
row:
  %first = mul i64 %i, {WORDS}
  %word0 = getelementptr i64, ptr %rows, i64 %first
  %signature = load i64, ptr %word0
  %word1 = getelementptr i64, ptr %word0, i64 1
  %function = load ptr, ptr %word1
  switch i64 %signature, label %unknown [ {labels} ]
{cases}
unknown:
  br label %check
check:
  %status = phi i32 {merged}, [ -1, %unknown ]
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %fail, label %done
done:
  %after = add i64 %i, 1
  br label %next
fail:
  %out2 = getelementptr i64, ptr %header, i64 2
  store i64 %i, ptr %out2
  %out3 = getelementptr i64, ptr %header, i64 3
  %wide = sext i32 %status to i64
  store i64 %wide, ptr %out3
  br label %end
end:
  ret void
}}
"""


def _case(number: int, types: Sequence[str]) -> str:
    """Return the block that makes a call of one signature."""
    lines = [f"case{number}:"]
    arguments = []
    for k, kind in enumerate(types):
        name = f"a{number}_{k}"
        lines.append(f"  %p{name} = getelementptr i64, ptr %word0, i64 {k + 2}")
        lines.append(f"  %{name} = load i64, ptr %p{name}")
        if kind == "i32":
            lines.append(f"  %t{name} = trunc i64 %{name} to i32")
            name = f"t{name}"
        arguments.append(f"{kind} %{name}")
    lines.append(f"  %status{number} = call i32 %function({', '.join(arguments)})")
    lines.append("  br label %check")
    return "\n".join(lines)


@cache
def _loop() -> Native:
    return link(_SYMBOL, to_object(assembly(), "O0"))


class PackedCalls:
    """Calls that are made one after the other by a loop without the interpreter.

    Parameters
    ----------
    rows
        For each call the number of its signature in `SIGNATURES`, the address of its function, and its arguments.
    kept
        What the arguments point to: it lives as long as the calls.
    """

    def __init__(self, rows: Sequence[tuple[int, int, Sequence[int]]], kept: Sequence[Any] = ()) -> None:
        table = np.zeros((len(rows), WORDS), np.uint64)
        for row, (signature, function, arguments) in zip(table, rows, strict=True):
            if len(arguments) != len(SIGNATURES[signature]):
                raise BackendError(f"a call of {len(arguments)} arguments has no packed form")
            row[:2] = signature, function
            row[2 : 2 + len(arguments)] = arguments
        self._table = table
        self._kept = kept
        self._header = np.zeros(_HEADER, np.int64)
        self._header[:2] = len(rows), table.ctypes.data
        self._make = _loop()

    def __len__(self) -> int:
        return len(self._table)

    def __call__(self) -> None:
        """Make the calls.

        Raises
        ------
        BackendError
            If one returns another status than 0; those after it are then not made.
        """
        self._header[3] = 0
        self._make(self._header.ctypes.data)
        status = int(self._header[3])
        if status:
            raise BackendError(f"the driver of CUDA refuses packed call {int(self._header[2])}: error {status}")
