"""Tuple-like views of columns."""

from collections.abc import Callable, Iterator, Sequence
from operator import index as whole
from typing import Generic, SupportsIndex, TypeVar, overload

Row = TypeVar("Row")


class Rows(Sequence[Row], Generic[Row]):
    """A tuple-like view of columns: a row is made when it is asked for."""

    __slots__ = ("_length", "_make")

    def __init__(self, length: int, make: Callable[[int], Row]) -> None:
        self._length = length
        self._make = make

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: SupportsIndex) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Row | tuple[Row, ...]:
        if isinstance(index, slice):
            return tuple(self._make(i) for i in range(*index.indices(self._length)))
        i = whole(index)
        if not -self._length <= i < self._length:
            raise IndexError(f"row {i} of {self._length}")
        return self._make(i % self._length)

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
