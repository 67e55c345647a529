"""`Batches`: all items are done, whatever dies meanwhile."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Any, Final

from simsched.base.errors import StudyError
from simsched.base.signals import interrupt_later
from simsched.experiments.study.execution.batch import Function, Outcome, Pool, Rows, WorkerDiedError, lost
from simsched.experiments.study.execution.limits import GRACE

_LOOK_AGAIN: Final = 1.0  # s
_LATE: Final = 20.0  # s; less than what it takes until a worker of Dask counts as dead that is silent
_MOST: Final = 1000  # items of a batch


@dataclass
class Batches:
    """Calls a function with all items, in batches on a pool, and keeps the rows as they come.

    Parameters
    ----------
    items
        What to do, in the order in which it is begun.
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
    time_limit
        Seconds that an item has at least before a limit ends its process: to tell that from a crash.

    Notes
    -----
    Batches are of consecutive items, twice as many as the last one did in its quarter of a second, less towards the
    end; what there was no time for is sent off again. Of a batch whose worker died the items run one by one; one that
    ends its worker again runs once more, with nothing beside it, unless its time limit was reached. So a worker killed
    from outside loses no row and duplicates none.
    """

    items: Sequence[Any]
    function: Function
    pool: Pool
    keep: Callable[[Rows, int], None]
    died: Callable[[Any, bool], Rows]
    time_limit: float | None = None

    def __post_init__(self) -> None:
        self._waiting = deque(range(len(self.items)))
        self._single: deque[int] = deque()  # of batches that died
        self._alone: deque[int] = deque()  # died in a batch of one
        self._deaths: Counter[int] = Counter()  # in a batch of one
        self._flying: dict[Future[Outcome], list[int]] = {}
        self._size = 1  # of the next batch
        self._done = self._told = 0
        self._rows: Rows = []  # to be kept

    def run(self) -> None:
        """Do all items.

        Raises
        ------
        StudyError
            If the function or an item cannot be pickled, workers end as they start, or a scheduler or an executor is
            lost.
        KeyboardInterrupt
            On Ctrl-C. As with every other error, what is done is kept and what runs is ended.
        BaseException
            What the function raises.
        """
        try:
            self._send()
            while self._flying:
                wait(self._flying, _LOOK_AGAIN, FIRST_COMPLETED)
                for future in [each for each in self._flying if each.done()]:  # in the order in which they were sent
                    self._note(future)
                self._send()  # first, so that no worker waits for the disk
                self._flush()
        except BaseException:
            for future in list(self._flying):
                if not future.cancel() and future.done():
                    with suppress(BaseException):
                        self._note(future)
            self._flush()
            raise

    def _send(self) -> None:
        """Send off what there is room for."""
        while positions := self._next():
            try:
                future = self.pool.submit(self.function, [self.items[position] for position in positions])
            except RuntimeError as error:  # an Executor is broken, or shut down
                raise lost(self.pool.name, error) from None
            self._flying[future] = positions

    def _next(self) -> list[int]:
        """Return the next batch, an empty one while nothing more is to be sent off."""
        if self._alone:  # with nothing beside it
            return [] if self._flying else [self._alone.popleft()]
        workers = self.pool.workers
        if len(self._flying) >= workers:
            return []
        if self._single:
            return [self._single.popleft()]
        size = min(self._size, -(-len(self._waiting) // (2 * workers)))  # less and less, so that all end together
        return [self._waiting.popleft() for _ in range(size)]

    def _note(self, future: Future[Outcome]) -> None:
        """Take note of what came of a batch, raise what the function raised."""
        with interrupt_later():  # or what is taken out would be noted nowhere
            positions = self._flying.pop(future)
            try:
                outcome = future.result()
            except WorkerDiedError as error:
                self._bury(positions, error.ran)
                return
            except StudyError:
                raise
            except Exception as error:
                raise lost(self.pool.name, error) from None
            if isinstance(outcome, BaseException):
                raise outcome
            self._rows += chain.from_iterable(outcome)
            self._done += len(outcome)
            self._size = min(2 * len(outcome), _MOST)
            self._waiting.extendleft(reversed(positions[len(outcome) :]))

    def _bury(self, positions: list[int], ran: float) -> None:
        """Take note of a batch whose worker died after some seconds."""
        if len(positions) > 1:
            self._single.extend(positions)
            return
        (position,) = positions
        limit = inf if self.time_limit is None else self.time_limit
        # processes are ended between these times; but messages may be late, and machine code is made meanwhile
        timed_out = limit + GRACE / 2 <= ran <= 1.1 * limit + GRACE + _LATE
        self._deaths[position] += 1
        if timed_out or self._deaths[position] > 1:
            self._rows += self.died(self.items[position], timed_out)
            self._done += 1
        else:
            self._alone.append(position)

    def _flush(self) -> None:
        """Have the rows kept that came."""
        if self._told < self._done:
            with interrupt_later():
                rows, self._rows, self._told = self._rows, [], self._done  # once only, even if it fails
                self.keep(rows, self._done)
