"""Tuple-like views of columns, and of names that are numbered."""

from collections.abc import Callable, Iterator, Sequence
from operator import index as whole
from typing import Any, Generic, SupportsIndex, TypeVar, overload

Row = TypeVar("Row")


class RowsView(Sequence[Row], Generic[Row]):
    """A tuple-like view of columns: a row is made when it is read."""

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

    def __repr__(self) -> str:
        shown = ", ".join(repr(row) for row in self[:3])
        return f"({shown}{', ...' if self._length > 3 else ''}) [{self._length} rows]"


class Numbered(RowsView[str]):
    """The names ``prefix0``, ``prefix1``, ... as a tuple that takes no memory.

    Parameters
    ----------
    prefix
        Text before each number.
    length
        How many there are.

    >>> names = Numbered("op", 1_000_000)
    >>> names[:2], names[-1]
    (('op0', 'op1'), 'op999999')
    """

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str, length: int) -> None:
        super().__init__(length, lambda i: f"{prefix}{i}")
        self._prefix = prefix

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbered) and (self._prefix, self._length) == (other._prefix, other._length):
            return True
        if isinstance(other, tuple | Numbered):
            return tuple(self) == tuple(other)
        return NotImplemented

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Numbered, (self._prefix, self._length))
