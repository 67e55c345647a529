"""Names of operators that are numbered, made when they are asked for."""

from collections.abc import Iterator, Mapping
from typing import Any

from simsched.model.graph.views import Rows


class Numbered(Rows[str]):
    """The names ``prefix0``, ``prefix1``, ... as a tuple of them that takes no room.

    Parameters
    ----------
    prefix
        What stands before each number.
    length
        How many there are.

    >>> names = Numbered("op", 1_000_000)
    >>> names[:2], names[-1], "op7" in names, names.number("op7")
    (('op0', 'op1'), 'op999999', True, 7)
    """

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str, length: int) -> None:
        super().__init__(length, lambda i: f"{prefix}{i}")
        self._prefix = prefix

    def __contains__(self, name: object) -> bool:
        return self.number(name) is not None

    def number(self, name: object) -> int | None:
        """Return the number in a name, None if it is none of the names."""
        if not isinstance(name, str) or not name.startswith(self._prefix):
            return None
        digits = name[len(self._prefix) :]
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(self._length)):
            return None
        i = int(digits)
        return i if i < self._length and str(i) == digits else None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbered):
            same = (self._prefix, self._length) == (other._prefix, other._length)
            return same or (len(self) == len(other) and tuple(self) == tuple(other))
        if not isinstance(other, tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Numbered, (self._prefix, self._length))


class Positions(Mapping[str, int]):
    """The position of each name of a `Numbered`, read from the name."""

    __slots__ = ("_names",)

    def __init__(self, names: Numbered) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> int:
        i = self._names.number(name)
        if i is None:
            raise KeyError(name)
        return i

    def __reduce__(self) -> tuple[Any, ...]:
        return (Positions, (self._names,))
