"""Names of operators that are numbered, made when they are asked for."""

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
        return tuple(self) == tuple(other) if isinstance(other, tuple | Numbered) else NotImplemented

    __hash__ = None

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Numbered, (self._prefix, self._length))
