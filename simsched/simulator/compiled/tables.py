"""Rows of the compiled engine's tables: ``lane_at(s, i)`` is row i of the table `lanes` of the run `s`.

A run is one record that holds the addresses of its tables, so that a function takes one pointer,
whatever it works on: with the arrays themselves as arguments the loop takes six times as long to compile.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from simsched import machine_code
from simsched.simulator.compiled import layout

F = TypeVar("F", bound=Callable[..., Any])
_ROWS: Final = {
    name: numba.from_dtype(dtype)
    for name, dtype in {
        "s": layout.RUN,
        "lane": layout.LANE,
        "kernel": layout.KERNEL,
        "launch": layout.LAUNCH,
        "device": layout.DEVICE,
        "host": layout.HOST_THREAD,
    }.items()
}


def compiled(function: F) -> F:
    """Compile a function once: parameters are numbers, or rows of the table that they are named after."""
    return machine_code.compiled(function, _ROWS)


def _table(name: str) -> Callable[[Any, int], Any]:
    """Return what takes a row out of a table, for compiled code only."""
    dtype = layout.TABLES[name]
    row_type = numba.from_dtype(dtype)
    at = cast(tuple[Any, int], cast(Any, layout.RUN.fields)[name])[1]

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


def _run_at() -> Callable[[int], Any]:
    """Return what takes the run at an address."""
    row_type = numba.from_dtype(layout.RUN)

    def typing(_context: Any, _address: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(row_type))

        return row_type(types.int64), generate

    return cast(Callable[[int], Any], intrinsic(typing))


run_at = _run_at()
thread_ptr_at = _table("thread_ptr")
action_at = _table("action")
argument_at = _table("argument")
place_at = _table("place")
lane_of = _table("lane_of")
cost_at = _table("cost")
launch_at = _table("launches")
launch_op_at = _table("launch_op")
factor_at = _table("factors")
copy_op_at = _table("copy_op")
copy_device_at = _table("copy_device")
copy_nbytes_at = _table("copy_nbytes")
copy_exact_at = _table("copy_exact")
copy_route_at = _table("copy_route")
route_at = _table("routes")
channel_at = _table("channels")
loaded_at = _table("loaded")
interference_at = _table("interference")
room_at = _table("room")
later_at = _table("later")
queue_at = _table("queues")
next_at = _table("next")
timer_at = _table("timers")
event_at = _table("events")
item_at = _table("items")
passing_at = _table("passing")
flow_at = _table("flows")
free_at = _table("free")
queued_at = _table("queued")
running_at = _table("running")
lane_at = _table("lanes")
moving_at = _table("moving")
kernel_at = _table("kernels")
cohort_at = _table("cohorts")
host_at = _table("hosts")
connection_at = _table("connections")
device_at = _table("devices")
makespan_at = _table("makespans")
event_issue_at = _table("event_issue")
event_cause_at = _table("event_cause")
issue_span_at = _table("issue_span")
span_at = _table("spans")
point_at = _table("points")
