"""Rows of the compiled engine's tables: ``lane_at(s, i)`` is row i of the table `lanes` of the run `s`.

A run is one record that holds the addresses of its tables, so that a function takes one pointer,
whatever it works on: with the arrays themselves as arguments the loop takes six times as long to compile.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from simsched.simulator import compiled_layout as layout

F = TypeVar("F", bound=Callable[..., Any])
# A wrapper for Python around every function would take longer to compile than the function.
_OPTIONS: Any = {"error_model": "numpy", "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: F) -> F:
    """Compile a function into those that call it."""
    return cast(F, numba.njit(function, **_OPTIONS))


def _table(name: str) -> Callable[[Any, int], Any]:
    """Return what takes a row out of a table, for compiled code only."""
    dtype = layout.TABLES[name]
    row_type = numba.from_dtype(dtype)
    at = cast(tuple[Any, int], layout.RUN.fields[name])[1] if layout.RUN.fields else 0

    def typing(_context: Any, run: Any, _index: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            word, byte = ir.IntType(64), ir.IntType(8)
            run_pointer = builder.bitcast(arguments[0], byte.as_pointer())
            field = builder.gep(run_pointer, [word(at)])
            address = builder.load(builder.bitcast(field, word.as_pointer()))
            offset = builder.mul(arguments[1], word(dtype.itemsize))
            return builder.inttoptr(builder.add(address, offset), context.get_value_type(row_type))

        return row_type(run, types.int64), generate

    return cast(Callable[[Any, int], Any], intrinsic(typing))


later_at = _table("later")
instant_at = _table("instant")
waiters_at = _table("waiters")
next_at = _table("next_waiter")
instruction_at = _table("instructions")
item_at = _table("items")
passing_at = _table("passing")
launch_at = _table("launches")
need_at = _table("need")
cohort_at = _table("cohorts")
copy_at = _table("copies")
route_at = _table("routes")
channel_at = _table("channels")
capacity_at = _table("capacity")
flow_at = _table("flows")
lane_at = _table("lanes")
host_at = _table("hosts")
mark_at = _table("marks")
connection_at = _table("connections")
device_at = _table("devices")
free_at = _table("free")
interference_at = _table("interference")
queue_at = _table("queue")
running_at = _table("running")
span_at = _table("spans")
point_at = _table("points")
