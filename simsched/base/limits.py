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
from dataclasses import dataclass, fields, replace
from typing import Final

from simsched.base.numeric import is_count


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that is read.

    Parameters
    ----------
    file_nbytes
        Bytes of a file or pipe, and of a compressed file after it was inflated.
    text_length
        Characters of a name, or of any other text that is a field of a JSON document.
    onnx_nbytes
        Bytes of an ONNX model without its external data; protobuf reads no more than 2 GB.

    Raises
    ------
    ValueError
        If a limit is no whole number of at least 1.
    """

    file_nbytes: int = 16 << 30
    text_length: int = 1 << 16
    onnx_nbytes: int = 2**31 - 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not is_count(value, 1):
                raise ValueError(f"limit {field.name!r} must be a whole number of at least 1, not {value!r}")


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
