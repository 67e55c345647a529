"""`Batches`: all items are done, whatever dies meanwhile."""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from simsched.base.errors import StudyError
from simsched.base.signals import interrupt_later
from simsched.experiments.study.execution.batch import Batch, Function, Pool, Rows, WorkerDiedError

_LOOK_AGAIN: Final = 1.0  # s
_ENDED_BY_LIMIT: Final = (None, 1)  # exit codes; None: it is not known
_AIM: Final = 0.25  # s of a batch: long beside what sending it costs, short beside what a kill may lose
_FIRST: Final = 0.1  # s of a batch about which nothing is known
_GUESS: Final = 0.05  # s that an item takes of whose group nothing is known
_SHORTEST: Final = 2e-5  # s; no item counts as less, so that batches stay finite
_NEWEST: Final = 0.25  # weight of the last item in the mean of its group


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
        are done by then; Ctrl-C waits for it.
    group
        Items of a group take about as long as each other. No influence on the rows.
    died
        Called with an item that ended its process even when it ran alone, and whether its time limit did so; returns
        the rows to keep of it.
    time_limit
        Seconds that an item has at least before a limit ends its process: to tell that from a crash.

    Notes
    -----
    Batches are of consecutive items, of about a quarter of a second as far as the items done foretell it, less towards
    the end. Of a batch whose worker died the items run one by one; one that ends its worker again runs once more, with
    nothing beside it, unless its time limit was reached. So a worker killed from outside loses no row and duplicates
    none.
    """

    items: Sequence[Any]
    function: Function
    pool: Pool
    keep: Callable[[Rows, int], None]
    group: Callable[[Any], Hashable]
    died: Callable[[Any, bool], Rows]
    time_limit: float | None = None

    def __post_init__(self) -> None:
        numbers: dict[Hashable, int] = {}
        self._groups = [numbers.setdefault(self.group(item), len(numbers)) for item in self.items]  # names are long
        self._seconds: dict[int, float] = {}  # of an item, by group
        self._waiting = deque(range(len(self.items)))
        self._single: deque[int] = deque()  # of batches that died
        self._alone: deque[int] = deque()  # died in a batch of one
        self._deaths: Counter[int] = Counter()  # in a batch of one
        self._n_flying = self._done = 0
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
            while self._send() or self._n_flying:
                errors = self._receive(_LOOK_AGAIN)
                if not errors:
                    self._send()  # first, so that no worker waits for the disk
                self._flush()
                if errors:
                    raise errors[0]
        except BaseException:
            try:
                with suppress(StudyError):
                    self._receive(0.0)
                self._flush()
            finally:
                self.pool.stop()
            raise

    def _send(self) -> int:
        """Send off what there is room for; return how many batches that was."""
        before = self._n_flying
        while positions := self._next():
            self.pool.submit(Batch(self.function, [self.items[position] for position in positions], positions))
            self._n_flying += 1
        return self._n_flying - before

    def _next(self) -> list[int]:
        """Return the next batch, an empty one while nothing more is to be sent off."""
        if self._alone:  # with nothing beside it
            return [] if self._n_flying else [self._alone.popleft()]
        workers = self.pool.workers
        if self._n_flying >= workers:
            return []
        if self._single:
            return [self._single.popleft()]
        most, total, taken = _AIM, 0.0, list[int]()
        for _ in range(-(-len(self._waiting) // (2 * workers))):  # less and less, so that all end together
            seconds = self._seconds.get(self._groups[self._waiting[0]])
            most = _FIRST if seconds is None else most
            total += _GUESS if seconds is None else seconds
            if taken and total > most:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _receive(self, timeout: float) -> list[BaseException]:
        """Take note of what came of batches; return what the function raised."""
        errors = []
        for batch, outcome in self.pool.wait(timeout):
            self._n_flying -= 1
            if isinstance(outcome, WorkerDiedError):
                self._bury(batch, outcome.exit_code)
            elif isinstance(outcome, BaseException):
                errors.append(outcome)
            else:
                self._take(batch, outcome)
        return errors

    def _take(self, batch: Batch, outcome: Any) -> None:
        for position, (rows, seconds) in zip(batch.positions, outcome, strict=True):
            mean = self._seconds.get(self._groups[position], seconds)
            self._seconds[self._groups[position]] = max(mean + _NEWEST * (seconds - mean), _SHORTEST)
            self._rows += rows
            self._done += 1

    def _bury(self, batch: Batch, exit_code: int | None) -> None:
        """Take note of a batch whose worker died."""
        if len(batch.positions) > 1:
            self._single.extend(batch.positions)
            return
        (position,) = batch.positions
        limit = self.time_limit
        timed_out = limit is not None and monotonic() - batch.begun >= limit and exit_code in _ENDED_BY_LIMIT
        self._deaths[position] += 1
        if timed_out or self._deaths[position] > 1:
            self._rows += self.died(self.items[position], timed_out)
            self._done += 1
        else:
            self._alone.append(position)

    def _flush(self) -> None:
        """Have the rows kept that came."""
        if self._rows:
            with interrupt_later():
                rows, self._rows = self._rows, []  # once only, even if it fails
                self.keep(rows, self._done)
