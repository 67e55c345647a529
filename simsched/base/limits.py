"""How much is read: sizes beyond which a file is refused in one line, before memory or time is spent on it.

They stand far above what anything real needs. Someone who needs more says so::

    from simsched.base.limits import limited

    with limited(file_nbytes=64 << 30):
        graph = OpGraph.load("huge.json")

What has a limit of its own besides is listed in ``docs/guides/limits.md``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that is read.

    Parameters
    ----------
    file_nbytes
        Bytes of a file or pipe, and of a compressed file after it was inflated.
    text_length
        Characters of a name, or of any other text that is a field of a JSON document.
    """

    file_nbytes: int = 16 << 30
    text_length: int = 1 << 16


_limits: Final = ContextVar("limits", default=Limits())  # noqa: B039 - it is frozen


def limits() -> Limits:
    """Return the limits that hold here.

    >>> limits().text_length
    65536
    """
    return _limits.get()


@contextmanager
def limited(**changes: int) -> Iterator[Limits]:
    """Let other limits hold inside a ``with`` block, in this thread.

    Parameters
    ----------
    **changes
        Fields of `Limits`.

    >>> with limited(text_length=10):
    ...     limits().text_length
    10
    """
    token = _limits.set(replace(_limits.get(), **changes))
    try:
        yield _limits.get()
    finally:
        _limits.reset(token)
