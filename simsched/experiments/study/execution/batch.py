"""`Batches`: all items are done, even if workers die; the work in a worker, and the pools' protocol."""

import os
import pickle
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from time import monotonic
from typing import Any, Final, Protocol

from simsched.base.errors import StudyError
from simsched.base.signals import interrupt_later

Rows = list[dict[str, Any]]
Function = Callable[[Any], Rows]
Outcome = list[Rows] | BaseException
"""What came of some items: the rows of each that there was time for, or what ended them."""

_LOOK_AGAIN: Final = 1.0  # s
_MOST: Final = 1000  # items of a batch
AIM: Final = 0.25
"""Seconds in which items of a batch begin: long beside what sending items costs, short beside what a kill may lose."""


class WorkerDiedError(Exception):
    """Raised by a future whose process has ended.

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
        """Number of lots of items that it takes at a time."""

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        """Begin some items.

        A future raises only errors of the pool, not of the function: `WorkerDiedError`, after which the pool recovers,
        or an error that says that the pool is lost.
        """


def outcome_of(function: Function, items: Sequence[Any]) -> Outcome:
    """Return the outcomes of the first item, and of those after it that are begun within a quarter of a second."""
    results = list[Rows]()
    process = os.getpid()
    end = monotonic() + AIM
    try:
        for item in items:
            try:
                results.append(function(item))
            finally:
                if os.getpid() != process:  # a forked child: its result belongs to no one
                    os._exit(0)
            if monotonic() > end:
                break
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also a time limit that came unexpectedly
        return error
    return results


class Here:
    """A pool of this process and this thread."""

    workers = 1

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        """Do some items; see `Pool`."""
        future = Future[Outcome]()
        future.set_result(outcome_of(function, items))
        return future


def pack(function: Function, items: Sequence[Any]) -> bytes:
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
    """Return the outcomes of some items in another process; an outcome that cannot be sent back becomes an error."""
    name = "the function"
    outcome = None
    try:
        function, items = pickle.loads(data)
        name = name_of(function)
        outcome = outcome_of(function, items)
        if isinstance(outcome, BaseException):
            outcome.add_note("".join(traceback.format_exception(outcome)))
            pickle.loads(pickle.dumps(outcome))  # errors are often written, and seldom to be read again
        return pickle.dumps(outcome)
    except Exception as error:
        if isinstance(outcome, BaseException):
            failure = outcome
        else:
            failure = error
        return pickle.dumps(StudyError(f"{name}: {type(failure).__name__}: {failure}"))


def name_of(function: Any) -> str:
    """Return the name of a function for messages."""
    function = getattr(function, "func", function)  # of a partial
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


@dataclass
class Batches:
    """Calls a function with all items, in batches on a pool, and keeps the rows as they come.

    Parameters
    ----------
    items
        Items, in the order in which they are begun.
    function
        Returns a list of rows for an item. It runs in the workers, and sets its own time limits (`call_within`).
    pool
        Of `pool_of`.
    keep
        Called in this process with rows, all of each item together, as soon as a batch is done, and with how many items
        are done by then, at last all; Ctrl-C waits for it. Never, if there are none.
    died
        Called with an item that ended its process even when it ran alone, and whether its time limit did so; returns
        the rows to keep of it.

    Notes
    -----
    Batches are of consecutive items, twice as many as the last one did in its quarter of a second, fewer towards the
    end; items that had no time left are sent off again. If the worker of a batch died, the items run one by one; one
    that ends its worker again runs once more, unless its time limit was reached. So a worker killed from outside loses
    no row and duplicates none.
    """

    items: Sequence[Any]
    function: Function
    pool: Pool
    keep: Callable[[Rows, int], None]
    died: Callable[[Any, bool], Rows]

    def __post_init__(self) -> None:
        self._waiting = deque(range(len(self.items)))
        self._single: deque[int] = deque()  # items of batches that died
        self._suspects: set[int] = set()  # died once in a batch of one
        self._flying: dict[Future[Outcome], list[int]] = {}
        self._size = 1  # of the next batch
        self._done = 0
        self._rows: Rows = []  # rows to be kept

    def run(self) -> None:
        """Do all items.

        Raises
        ------
        StudyError
            If the function or an item cannot be pickled, workers end as they start, or a scheduler is lost.
        KeyboardInterrupt
            On Ctrl-C. As with every other error, finished rows are kept and running items are ended.
        BaseException
            Any error that the function raises.
        """
        try:
            self._send()
            while self._flying:
                done = wait(self._flying, _LOOK_AGAIN, FIRST_COMPLETED).done
                for future in [
                    flight for flight in self._flying if flight in done
                ]:  # in the order in which they were sent
                    self._note(future)
                self._send()  # first, so that no worker waits for the disk
                if done:
                    self._flush()
        except BaseException:
            for future in [flight for flight in self._flying if flight.done()]:
                with suppress(BaseException):
                    self._note(future)
            self._flush()
            raise

    def _send(self) -> None:
        """Send off as many items as the pool has room for."""
        while positions := self._next():
            future = self.pool.submit(self.function, [self.items[position] for position in positions])
            self._flying[future] = positions

    def _next(self) -> list[int]:
        """Return the next batch, an empty one while nothing more is to be sent off."""
        workers = self.pool.workers
        if len(self._flying) >= workers:
            return []
        if self._single:
            return [self._single.popleft()]
        size = min(self._size, -(-len(self._waiting) // (2 * workers)))  # less and less, so that all end together
        return [self._waiting.popleft() for _ in range(size)]

    def _note(self, future: Future[Outcome]) -> None:
        """Record the outcome of a batch, and raise the function's error."""
        with interrupt_later():  # an interrupt in between would lose the outcome
            positions = self._flying.pop(future)
            try:
                outcome = future.result()
            except WorkerDiedError as error:
                self._note_death(positions, error.timed_out)
                return
            if isinstance(outcome, BaseException):
                raise outcome
            self._rows += chain.from_iterable(outcome)
            self._done += len(outcome)
            self._size = min(2 * len(outcome), _MOST)
            self._waiting.extendleft(reversed(positions[len(outcome) :]))

    def _note_death(self, positions: list[int], timed_out: bool) -> None:
        """Record the death of a batch's worker."""
        if len(positions) > 1:
            self._single.extend(positions)
            return
        (position,) = positions
        if timed_out or position in self._suspects:
            self._rows += self.died(self.items[position], timed_out)
            self._done += 1
        else:
            self._suspects.add(position)
            self._single.append(position)

    def _flush(self) -> None:
        """Have the rows kept that came."""
        with interrupt_later():
            # once only, even if it fails
            rows = self._rows
            self._rows = []
            self.keep(rows, self._done)
