"""What happens to items where they run - a function is called, what it raises is sent back - and what runs them."""

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any, Final, Protocol

from simsched.base.errors import StudyError

Rows = list[dict[str, Any]]
Function = Callable[[Any], Rows]
Outcome = list[Rows] | BaseException
"""What came of some items: the rows of each that there was time for, or what ended them."""

_AIM: Final = 0.25  # s: long beside what sending items costs, short beside what a kill may lose


class WorkerDiedError(Exception):
    """What a future raises whose process is no more.

    Parameters
    ----------
    timed_out
        Whether a time limit ended it.
    """

    def __init__(self, timed_out: bool) -> None:
        super().__init__(timed_out)
        self.timed_out = timed_out


class Pool(Protocol):
    """Something that runs items, some at a time; made by `pool_of`, used by `Batches`."""

    @property
    def workers(self) -> int:
        """How many lots of items it takes at a time."""

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        """Begin some items.

        What the future raises is of the pool, not of the function: `WorkerDiedError`, of which the pool recovers, or
        what tells that it is lost.
        """


def outcome_of(function: Function, items: Sequence[Any]) -> Outcome:
    """Return what comes of the first item, and of those after it that are begun within a quarter of a second."""
    found, process, end = list[Rows](), os.getpid(), monotonic() + _AIM
    try:
        for item in items:
            try:
                found.append(function(item))
            finally:
                if os.getpid() != process:  # it was forked, and what it does is nobody's business
                    os._exit(0)
            if monotonic() > end:
                break
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a time limit that nobody expected, too
        return error
    return found


def packed(function: Function, items: Sequence[Any]) -> bytes:
    """Return a function and items as `outcome_in` takes them.

    Raises
    ------
    StudyError
        If they cannot be sent to another process.
    """
    try:
        return pickle.dumps((function, list(items)))
    except Exception as error:  # pickle raises whatever the object's own methods do
        raise StudyError(
            f"{name_of(function)} and what it is called with cannot be sent to another process: {error}; define them "
            'at the top of a module, or pass executor="serial"'
        ) from None


def outcome_in(data: bytes) -> bytes:
    """Return what comes of some items, in another process; what cannot be sent back is said."""
    name, outcome = "the function", None
    try:
        function, items = pickle.loads(data)
        name, outcome = name_of(function), outcome_of(function, items)
        if isinstance(outcome, BaseException):
            outcome.add_note("".join(traceback.format_exception(outcome)))
            pickle.loads(pickle.dumps(outcome))  # errors are often written, and seldom to be read again
        return pickle.dumps(outcome)
    except Exception as error:
        found = outcome if isinstance(outcome, BaseException) else error
        return pickle.dumps(StudyError(f"{name}: {type(found).__name__}: {found}"))


def name_of(function: Any) -> str:
    """Return what messages call a function."""
    function = getattr(function, "func", function)  # of a partial
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
