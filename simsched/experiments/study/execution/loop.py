"""`run_batches`: all items are done, whatever dies meanwhile."""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, TypeVar

from simsched.base.signals import interrupt_later
from simsched.experiments.study.execution.batch import (
    Done,
    Failure,
    Flight,
    Function,
    Outcome,
    Pool,
    Rows,
    WorkerDiedError,
)
from simsched.experiments.study.execution.sizes import Sizes

Item = TypeVar("Item")

_LOOK_AGAIN: Final = 1.0  # s
_ENDED_BY_LIMIT: Final = (None, 1)  # exit codes; None: it is not known


@dataclass(frozen=True, slots=True)
class _Batch:
    positions: list[int]
    begun: float


def run_batches(
    items: Sequence[Item],
    function: Function,
    pool: Pool,
    *,
    keep: Callable[[Rows], None],
    group: Callable[[Item], Hashable],
    died: Callable[[Item, bool], Rows],
    time_limit: float | None = None,
    progress: Callable[[int, int, Rows], None] | None = None,
) -> None:
    """Call a function with all items, in batches on a pool, and keep the rows as they come.

    Parameters
    ----------
    items
        What to do, in the order in which it is begun.
    function
        Returns a list of rows for each of a list of items. It runs in the workers, and sets its own time limits
        (`time_limited`).
    pool
        Of `pool_of`.
    keep
        Called in this process with rows, all of each item together, as soon as a batch is done; Ctrl-C waits for it.
    group
        Items of a group take about as long as each other. No influence on the rows.
    died
        Called with an item that ended its process even when it ran alone, and whether its time limit did so; returns
        the rows to keep of it.
    time_limit
        Seconds that an item has at least before a limit ends its process: to tell that from a crash.
    progress
        Called after `keep` with the number of items done, that of all, and the rows just kept.

    Raises
    ------
    StudyError
        If the function or an item cannot be pickled, workers end as they start, or a scheduler or an executor is lost.
    KeyboardInterrupt
        On Ctrl-C. As with every other error, what is done is kept and what runs is ended.
    BaseException
        What the function raises.

    Notes
    -----
    Batches are of consecutive items, of about a quarter of a second as far as the items done foretell it, less towards
    the end. Of a batch whose worker died the items run one by one; one that
    ends its worker again runs once more, with nothing beside it, unless its time limit was reached. So a worker killed
    from outside loses no row and duplicates none.
    """
    run = _Batches(items, pool, keep, group, died, time_limit, progress)
    pool.start(function)
    try:
        run.all()
    except BaseException:
        try:
            run.save()
        finally:
            pool.stop()
        raise


class _Batches:
    def __init__(
        self,
        items: Sequence[Any],
        pool: Pool,
        keep: Callable[[Rows], None],
        group: Callable[[Any], Hashable],
        died: Callable[[Any, bool], Rows],
        time_limit: float | None,
        progress: Callable[[int, int, Rows], None] | None,
    ) -> None:
        self.items, self.pool, self.keep, self.died = items, pool, keep, died
        self.time_limit, self.progress = time_limit, progress
        self.sizes = Sizes(group(item) for item in items)
        self.waiting = deque(range(len(items)))
        self.single: deque[int] = deque()  # of batches that died
        self.alone: deque[int] = deque()  # died in a batch of one
        self.deaths: Counter[int] = Counter()  # in a batch of one
        self.flying: dict[Flight, _Batch] = {}
        self.rows: Rows = []  # to be kept
        self.done = 0
        self.failure: Failure | None = None

    def all(self) -> None:
        while self.flying or self.waiting or self.single or self.alone:
            self.fill()
            done = self.pool.wait(self.flying, _LOOK_AGAIN)
            with interrupt_later():
                for flight in done:
                    self.land(flight)
            if self.failure is None and not any(flight.done() for flight in self.flying):
                self.fill()  # first, so that no worker waits for the disk
            self.flush()
            if self.failure is not None:
                if self.failure.where and self.failure.error.__traceback__ is None:  # it came from another process
                    self.failure.error.add_note(self.failure.where)
                raise self.failure.error

    def fill(self) -> None:
        """Send off what there is room for."""
        while positions := self.next():
            flight = self.pool.submit([self.items[position] for position in positions])
            self.flying[flight] = _Batch(positions, monotonic())
            if flight.done():
                break  # it ran here

    def next(self) -> list[int]:
        """Return the next batch, an empty one while nothing more is to be sent off."""
        if self.alone:  # with nothing beside it
            return [] if self.flying else [self.alone.popleft()]
        workers = self.pool.workers
        if len(self.flying) >= workers:
            return []
        if self.single:
            return [self.single.popleft()]
        return self.sizes.take(self.waiting, workers) if self.waiting else []

    def land(self, flight: Flight) -> None:
        """Take note of what came of a batch."""
        batch = self.flying.pop(flight)
        try:
            outcome: Outcome = flight.result()
        except WorkerDiedError as death:
            self.bury(batch, death)
            return
        except BaseException as error:
            outcome = Failure(self.pool.translate(error), "")
            if isinstance(outcome.error, WorkerDiedError):
                self.bury(batch, outcome.error)
                return
        if isinstance(outcome, Done):
            self.sizes.learn(batch.positions, outcome.seconds)
            self.done += len(batch.positions)
            self.rows += [row for rows in outcome.rows for row in rows]
        else:
            self.failure = self.failure or outcome

    def bury(self, batch: _Batch, death: WorkerDiedError) -> None:
        """Take note of a batch whose worker died."""
        if len(batch.positions) > 1:
            self.single.extend(batch.positions)
            return
        position = batch.positions[0]
        seconds = monotonic() - batch.begun if death.seconds is None else death.seconds
        timed_out = (
            self.time_limit is not None
            and seconds is not None
            and seconds >= self.time_limit
            and death.exit_code in _ENDED_BY_LIMIT
        )
        self.deaths[position] += 1
        if not timed_out and self.deaths[position] < 2:
            self.alone.append(position)
            return
        self.rows += self.died(self.items[position], timed_out)
        self.done += 1

    def flush(self) -> None:
        """Have the rows kept that came."""
        if not self.rows:
            return
        with interrupt_later():
            rows, self.rows = self.rows, []  # once only, even if it fails
            self.keep(rows)
        if self.progress is not None:
            self.progress(self.done, len(self.items), rows)

    def save(self) -> None:
        """Keep what is done, and nothing else."""
        with interrupt_later():
            while done := self.pool.wait(self.flying, 0.0):
                for flight in done:
                    if flight.cancelled() or flight.exception() is not None:
                        del self.flying[flight]
                    else:
                        self.land(flight)
            rows, self.rows = self.rows, []
            if rows:
                self.keep(rows)
