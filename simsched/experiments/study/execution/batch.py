"""Batches: what happens where one runs - the function is called, what it raises is sent back - and what runs them."""

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import Any, Protocol

from simsched.base.errors import StudyError
from simsched.experiments.study.execution.limits import disarm

Rows = list[dict[str, Any]]
Function = Callable[[Any], Rows]
Outcome = list[tuple[Rows, float]] | BaseException
"""What came of a batch: the rows of each item and the seconds that it took, or what ended it."""


@dataclass(eq=False)
class Batch:
    """Items that are sent off together.

    Parameters
    ----------
    function, items
        What is called with each of what.
    positions
        Of the items among all.
    begun
        Time in s by the monotonic clock.
    """

    function: Function
    items: Sequence[Any]
    positions: Sequence[int]
    begun: float = field(default_factory=monotonic)


class WorkerDiedError(Exception):
    """What came of a batch whose process is no more: its exit code, if that is known."""

    def __init__(self, exit_code: int | None = None) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Pool(Protocol):
    """Something that runs batches; made by `pool_of`, used by `Batches`."""

    @property
    def workers(self) -> int:
        """How many batches it takes at a time."""

    def submit(self, batch: Batch) -> None:
        """Begin a batch."""

    def wait(self, timeout: float) -> list[tuple[Batch, Outcome]]:
        """Return the batches that are done, each once; wait for the first one, at most `timeout` seconds."""

    def stop(self) -> None:
        """End what is under way, at once."""


def outcome_of(function: Function, items: Sequence[Any]) -> Outcome:
    """Return what comes of some items."""
    found, process = [], os.getpid()
    try:
        for item in items:
            begun = perf_counter()
            try:
                rows = function(item)
            finally:
                if os.getpid() != process:  # it was forked, and what it does is nobody's business
                    os._exit(0)
            found.append((rows, perf_counter() - begun))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a time limit that nobody expected, too
        return error
    finally:
        disarm()
    return found


def packed(function: Function, items: Sequence[Any], dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
    """Return a function and items as `outcome_in` takes them.

    Raises
    ------
    StudyError
        If they cannot be sent to another process.
    """
    try:
        return dumps((function, list(items)))
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


def is_lost(what: str, error: BaseException) -> StudyError:
    """Return the error of something that runs batches and takes no more."""
    why = " ".join(str(error).split()) or type(error).__name__
    return StudyError(f"{what} is lost: {why}; what was done is kept: run again")


def name_of(function: Any) -> str:
    """Return what messages call a function."""
    function = getattr(function, "func", function)  # of a partial
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
