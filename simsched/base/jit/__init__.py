"""Native code: typed Python functions over tables, compiled to machine code, or run as plain Python.

`tables` is the memory, `functions` marks native functions, `compiler` translates them; `pieces` makes, keeps and runs
machine code.
With ``SIMSCHED_JIT=0`` nothing is compiled.
"""

from simsched.base.jit.functions import CompileError, native, wrapped
from simsched.base.jit.pieces import piece, running_time
from simsched.base.jit.tables import Column, Row, Rows, Table, f8, i1, i4, i8, length

__all__ = [
    "Column",
    "CompileError",
    "Row",
    "Rows",
    "Table",
    "f8",
    "i1",
    "i4",
    "i8",
    "length",
    "native",
    "piece",
    "running_time",
    "wrapped",
]
