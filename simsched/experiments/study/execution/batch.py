"""Batches: what happens where one runs - the function is called, what it raises is sent back - and what runs them."""

import os
import pickle
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from simsched.base.errors import StudyError
from simsched.experiments.study.execution.limits import disarm

Rows = list[dict[str, Any]]
Function = Callable[[list[Any]], list[Rows]]
Flight = Future[Any]
"""A batch under way; its result is an `Outcome`."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a batch: the rows of each item, and the seconds they took together."""

    rows: list[Rows]
    seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    """What the function raised, and where."""

    error: BaseException
    where: str


Outcome = Done | Failure


class WorkerDiedError(Exception):
    """What a future raises whose process is no more: its exit code, and how many seconds the batch ran, if known."""

    def __init__(self, exit_code: int | None = None, seconds: float | None = None) -> None:
        super().__init__(exit_code, seconds)
        self.exit_code = exit_code
        self.seconds = seconds


class Pool(Protocol):
    """Something that runs batches; made by `pool_of`, used by `run_batches`."""

    @property
    def workers(self) -> int:
        """How many batches it takes at a time."""

    def start(self, function: Function) -> None:
        """Make ready to run batches with a function."""

    def submit(self, items: Sequence[Any]) -> Flight:
        """Begin a batch."""

    def wait(self, flights: Collection[Flight], timeout: float) -> list[Flight]:
        """Return those that are done, in the order given; wait for the first one, at most `timeout` seconds."""

    def translate(self, error: BaseException) -> BaseException:
        """Return what an error of a flight means: `WorkerDiedError`, a `StudyError`, or itself."""

    def stop(self) -> None:
        """End what is under way, at once."""


@contextmanager
def this_process_alone() -> Iterator[None]:
    """End a process that was forked in the block, where it would come back: what it does is nobody's business."""
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(0)


def outcome_of(function: Function, items: list[Any]) -> Outcome:
    """Return the rows of some items, or what was raised; both can be sent to another process."""
    begun = perf_counter()
    try:
        with this_process_alone():
            rows = function(items)
        if len(rows) != len(items):
            raise StudyError(f"{name_of(function)} returned rows of {len(rows)} items for {len(items)}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a time limit that nobody expected, too
        return Failure(error, "".join(traceback.format_exception(error)))
    finally:
        disarm()
    return Done(rows, perf_counter() - begun)


def packed(function: Function, items: list[Any]) -> bytes:
    """Return `outcome_of`, pickled; what cannot be is said."""
    outcome = outcome_of(function, items)
    try:
        data = pickle.dumps(outcome)
        if isinstance(outcome, Failure):
            pickle.loads(data)  # errors are often written, and seldom to be read again
    except Exception as error:
        if isinstance(outcome, Failure):
            text = f"{name_of(function)}: {type(outcome.error).__name__}: {outcome.error}"
            return pickle.dumps(Failure(StudyError(text), outcome.where))
        text = f"{name_of(function)} returned rows that cannot be sent to another process: {error}"
        return pickle.dumps(Failure(StudyError(text), ""))
    return data


def name_of(function: Any) -> str:
    """Return what messages call a function."""
    function = getattr(function, "func", function)  # of a partial
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def sendable(value: Any, name: str, dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
    """Return a value pickled.

    Raises
    ------
    StudyError
        If it cannot be.
    """
    try:
        return dumps(value)
    except Exception as error:  # pickle raises whatever the object's own methods do
        raise StudyError(
            f"{name} cannot be sent to another process: {error}; define it at the top of a module, or pass "
            'executor="serial"'
        ) from None
