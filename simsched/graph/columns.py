"""Columns behind the rows of graphs and schedules: views, and arrays made from values."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from simsched.errors import GraphError
from simsched.graph.operator import RULES, Edge, Kernel
from simsched.numeric import whole_column

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Row = TypeVar("Row")

_NONE = float("nan")
_DEFAULTS = {"flops": 0.0, "nbytes": 0.0, "weight_nbytes": 0.0, "time": _NONE, "utilization": _NONE}
COSTS = tuple(_DEFAULTS)
"""Columns of numbers that an operator has."""


class Rows(Sequence[Row], Generic[Row]):
    """A tuple-like view of columns: a row is made when it is asked for."""

    __slots__ = ("_length", "_make")

    def __init__(self, length: int, make: Callable[[int], Row]) -> None:
        self._length = length
        self._make = make

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, index: int | slice) -> Row | tuple[Row, ...]:
        if isinstance(index, slice):
            return tuple(self._make(i) for i in range(*index.indices(self._length)))
        if not -self._length <= index < self._length:
            raise IndexError(f"row {index} of {self._length}")
        return self._make(index % self._length)

    def __iter__(self) -> Iterator[Row]:
        return map(self._make, range(self._length))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(row) for row in self[:3])
        return f"({shown}{', ...' if self._length > 3 else ''}) [{self._length} rows]"


def optional(value: float) -> float | None:
    """Return a value of a column, None for NaN."""
    return None if np.isnan(value) else float(value)


def column(values: Iterable[float | None]) -> Floats:
    """Return values as a column, NaN for None."""
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def spread(values: npt.ArrayLike, n: int, name: str) -> Floats:
    """Return an array of n rows, or a scalar repeated, as a column."""
    try:
        given = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise GraphError(f"column {name!r} must hold numbers, not {values!r}") from None
    array = np.full(n, given) if given.ndim == 0 else given.copy()
    if array.shape != (n,):
        raise GraphError(f"column {name!r} must have {n} rows, not {array.shape}")
    return array


def first_bad(values: Floats, rule: str, none_allowed: bool) -> tuple[int, str] | None:
    """Return the first row that breaks a rule, and how."""
    holds, phrase = RULES[rule]
    good = holds(values) | (np.isnan(values) if none_allowed else False)
    if good.all():
        return None
    i = int(np.argmin(good))
    return i, f"{phrase}, not {float(values[i])!r}"


def encode(values: Iterable[str | None]) -> tuple[npt.NDArray[np.int32], tuple[str | None, ...]]:
    """Return texts as codes, and the text of each code, in order of first appearance."""
    codes: dict[str | None, int] = {}
    column = np.array([codes.setdefault(value, len(codes)) for value in values], np.int32)
    return column, tuple(codes)


def index_of(names: tuple[str, ...]) -> dict[str, int]:
    """Return the position of each name; one that stands twice is refused."""
    index = {name: i for i, name in enumerate(names)}
    if len(index) != len(names):
        twice = next(name for i, name in enumerate(names) if index[name] != i)
        raise GraphError(f"operator {twice!r} stands twice; names must be unique")
    return index


def endpoints(edges: tuple[Edge, ...], index: Mapping[str, int], end: str) -> Ints:
    """Return the operator index of one end of every edge; an unknown name is refused."""
    try:
        return np.array([index[getattr(edge, end)] for edge in edges], np.int64)
    except KeyError:
        edge = next(edge for edge in edges if getattr(edge, end) not in index)
        raise GraphError(f"edge {edge.src} -> {edge.dst} names no operator: {getattr(edge, end)!r}") from None


def kernel_columns(kernels: Sequence[Kernel]) -> dict[str, npt.NDArray[Any]]:
    """Return kernels by columns."""
    columns: dict[str, npt.NDArray[Any]] = {
        key: np.array([getattr(kernel, key) for kernel in kernels], np.int64)
        for key in ("blocks", "threads", "registers", "shared_memory")
    }
    columns["share"] = np.array([kernel.share for kernel in kernels], np.float64)
    return columns


def edge_ends(names: Sequence[str], src: npt.ArrayLike, dst: npt.ArrayLike) -> tuple[Ints, Ints]:
    """Return the ends of edges as columns of operator indices; also refuses names that are none."""
    bad = next((text for text in names if not isinstance(text, str) or not text), None)
    if bad is not None:
        raise GraphError(f"an operator's name must be a text that is not empty, not {bad!r}")
    source, target = whole_column(src), whole_column(dst)
    if source is None or target is None:
        raise GraphError("src and dst must hold indices of operators, which are whole numbers")
    if source.shape != target.shape or source.ndim != 1:
        raise GraphError(f"src and dst must have the same length, not {source.shape} and {target.shape}")
    outside = (np.minimum(source, target) < 0) | (np.maximum(source, target) >= len(names))
    if outside.any():
        edge = int(np.argmax(outside))
        raise GraphError(f"edge {edge} ({source[edge]} -> {target[edge]}) names no operator: there are {len(names)}")
    return source, target


def cost_columns(names: Sequence[str], costs: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
    """Return the columns of `COSTS`, those not given at their defaults."""
    unknown = [key for key in costs if key not in COSTS]
    if unknown:
        raise GraphError(f"unknown column {unknown[0]!r}; known are: {', '.join(COSTS)}")
    columns = {}
    for key, default in _DEFAULTS.items():
        columns[key] = spread(costs.get(key, default), len(names), key)
        bad = first_bad(columns[key], "utilization" if key == "utilization" else "cost", bool(np.isnan(default)))
        if bad is not None:
            raise GraphError(f"operator {names[bad[0]]!r}: {key} {bad[1]}")
    return columns


def edge_columns(
    names: Sequence[str], src: Ints, dst: Ints, nbytes: npt.ArrayLike, transfer: npt.ArrayLike
) -> tuple[Floats, Floats]:
    """Return the bytes and the exact transfer times of edges as columns."""
    columns = spread(nbytes, len(src), "edge_nbytes"), spread(transfer, len(src), "edge_transfer")
    for key, values in zip(("nbytes", "transfer"), columns, strict=True):
        bad = first_bad(values, "cost", key == "transfer")
        if bad is not None:
            raise GraphError(f"edge {names[int(src[bad[0]])]} -> {names[int(dst[bad[0]])]}: {key} {bad[1]}")
    return columns
