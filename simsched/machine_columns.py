"""Columns behind addresses, for compiled code: indexed like arrays, and quicker to compile."""

from collections.abc import Callable
from typing import Any, cast

from numba.core import types
from numba.extending import intrinsic


def _column(of: Any) -> Callable[[int], Any]:
    """Return what makes a column of an address."""
    pointer: Any = cast(Any, types.CPointer)(of)

    def typing(_context: Any, _address: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(pointer))

        return pointer(types.int64), generate

    return cast(Callable[[int], Any], intrinsic(typing))


bytes_at = _column(types.int8)
ints = _column(types.int32)
longs = _column(types.int64)
floats = _column(types.float64)
