"""Batches: what happens where one runs - the function is called, what it raises is sent back - and what runs them."""

import pickle
import traceback
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Protocol

from simsched.base.errors import StudyError
from simsched.experiments.study.execution.limits import disarm

Rows = list[dict[str, Any]]
Function = Callable[[list[Any]], list[Rows]]
Dumps = Callable[[Any], bytes]
Flight = Future[Any]
"""A batch under way; its result is an `Outcome`."""

_arrived: Final[dict[bytes, "Shipped"]] = {}  # the last function that came to this process


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
    """What a future raises whose process is no more.

    Parameters
    ----------
    exit_code
        Of the process; None where it is not known.
    seconds
        How long the batch had been running; None where it is not known.
    """

    def __init__(self, exit_code: int | None = None, seconds: float | None = None) -> None:
        super().__init__(exit_code, seconds)
        self.exit_code = exit_code
        self.seconds = seconds


class Shipped:
    """A function of batches that is pickled once, and unpickled once in each process.

    Parameters
    ----------
    function
        Returns a list of rows for each of a list of items.
    dumps
        How it is pickled.
    content
        What it is pickled, if it came so.
    """

    def __init__(self, function: Function, dumps: Dumps = pickle.dumps, content: bytes | None = None) -> None:
        self.function = function
        self._dumps = dumps
        self._content = content

    @property
    def content(self) -> bytes:
        """The function, pickled.

        Raises
        ------
        StudyError
            If it cannot be.
        """
        if self._content is None:
            self._content = _pickled(self.function, self._dumps, _name(self.function))
        return self._content

    @property
    def module(self) -> str:
        """Where the function is defined."""
        function = getattr(self.function, "func", self.function)  # of a partial
        return str(getattr(function, "__module__", type(function).__module__))

    def pack(self, items: Sequence[Any]) -> bytes:
        """Return items pickled.

        Raises
        ------
        StudyError
            If they cannot be.
        """
        return _pickled(list(items), self._dumps, f"an item of {_name(self.function)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self.content,)

    def __call__(self, items: list[Any]) -> Outcome:
        """Return the rows of some items, or what was raised."""
        begun = perf_counter()
        try:
            rows = self.function(items)
            if len(rows) != len(items):
                raise StudyError(f"{_name(self.function)} returned rows of {len(rows)} items for {len(items)}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a time limit that nobody expected, too
            return _failure(error)
        finally:
            disarm()
        return Done(rows, perf_counter() - begun)

    def unpacked(self, data: bytes) -> Outcome:
        """Return what came of packed items; what was raised can be sent."""
        try:
            outcome = self(pickle.loads(data))
        except Exception as error:  # a class that is not here, say
            outcome = _failure(error)
        if isinstance(outcome, Failure):
            try:
                pickle.loads(pickle.dumps(outcome.error))  # often written, and seldom to be read again
            except Exception:
                text = f"{_name(self.function)}: {type(outcome.error).__name__}: {outcome.error}"
                return Failure(StudyError(text), outcome.where)
        return outcome

    def pickled(self, data: bytes) -> bytes:
        """Return what came of packed items, pickled."""
        outcome = self.unpacked(data)
        try:
            return pickle.dumps(outcome)
        except Exception as error:
            text = f"{_name(self.function)} returned rows that cannot be sent to another process: {error}"
            return pickle.dumps(Failure(StudyError(text), ""))


class Pool(Protocol):
    """Something that runs batches; made by `pool_of`, used by `run_batches`."""

    depth: int
    """Most batches under way per worker."""

    @property
    def workers(self) -> int:
        """How many batches it runs at a time."""

    def start(self, function: Function) -> None:
        """Make ready to run batches with a function."""

    def submit(self, items: Sequence[Any]) -> Flight:
        """Begin a batch."""

    def wait(self, flights: Collection[Flight], timeout: float | None = None) -> list[Flight]:
        """Return those that are done, in the order given; wait for the first one, at most `timeout` seconds."""

    def translate(self, error: BaseException) -> BaseException:
        """Return what an error of a flight means: `WorkerDiedError`, a `StudyError`, or itself."""

    def stop(self) -> None:
        """End what is under way, at once."""


def _failure(error: BaseException) -> Failure:
    return Failure(error, "".join(traceback.format_exception(error)))


def _arrive(content: bytes) -> Shipped:
    if content not in _arrived:
        _arrived.clear()
        _arrived[content] = Shipped(pickle.loads(content), content=content)
    return _arrived[content]


def _pickled(value: Any, dumps: Dumps, name: str) -> bytes:
    try:
        return dumps(value)
    except Exception as error:  # pickle raises whatever the object's own methods do
        raise StudyError(
            f"{name} cannot be sent to another process: {error}; define it at the top of a module, or pass "
            'executor="serial"'
        ) from None


def _name(function: Any) -> str:
    function = getattr(function, "func", function)  # of a partial
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
