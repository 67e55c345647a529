"""`dask_pool`: batches on the workers of a Dask scheduler."""

import logging
import pickle
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from threading import Event
from time import monotonic
from typing import Any, Final

from simsched.base.errors import MissingDependencyError, StudyError
from simsched.experiments.study.execution.batch import (
    Flight,
    Function,
    Outcome,
    Pool,
    WorkerDiedError,
    name_of,
    packed,
    sendable,
)
from simsched.experiments.study.execution.limits import allow_exit
from simsched.experiments.study.execution.processes import end_with_parent, start_forkserver, start_method

_PATIENCE: Final = 30  # s for a scheduler to answer and for its first worker to be there
_FETCH: Final = 10.0  # s until a result whose worker may have died is given up
_CLOSE: Final = 10  # s
_SILENT: Final = "30 s"  # after which a worker is dead whose process lives on: a scheduler closed its files
_COUNT_AGAIN: Final = 5.0  # s after which the workers of a scheduler are counted again
_hooked: list[bool] = []


@contextmanager
def dask_pool(address: str, workers: int) -> Iterator[Pool]:
    """Make a pool of a Dask scheduler's workers.

    Parameters
    ----------
    address
        Of the scheduler; ``"dask"`` for one of its own, closed at the end.
    workers
        How many processes of one thread that one has.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise MissingDependencyError("Dask is not installed: pip install 'simsched[cluster]'") from None
    if address != "dask":
        try:
            with _quiet():
                client = Client(address, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:  # a timeout is an OSError
            raise StudyError(f"no Dask scheduler answers at {address}: {_line(error)}") from None
        with _quiet(), closing_in_time(client):
            yield _Dask(client, address)
        return
    # a batch whose worker dies comes back at once; the loop knows what to do with it
    settings = {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.scheduler.worker-ttl": _SILENT,
        "distributed.worker.multiprocessing-method": start_method(),
    }
    start_forkserver()
    with (
        _quiet(),
        dask.config.set(settings),
        closing_in_time(LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )) as cluster,
        closing_in_time(Client(cluster, timeout=_PATIENCE, set_as_default=False)) as client,
    ):  # fmt: skip
        yield _Dask(client, "this machine")


@contextmanager
def closing_in_time(what: Any) -> Iterator[Any]:
    """Close something of Dask at the end of the block; what does not in time is left."""
    try:
        yield what
    finally:
        with suppress(Exception):
            what.close(timeout=_CLOSE)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Dask logs to itself: workers that die are the business of the loop, and it tells of the rest."""
    logger = logging.getLogger("distributed")
    usual = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(usual)


def run(function: Function, items: list[Any]) -> bytes:
    """Run a batch in a worker of Dask."""
    from distributed import get_worker

    worker = get_worker()
    if worker.nanny is not None and worker.state.nthreads == 1:  # it is started again, and runs nothing beside this
        allow_exit()
    if not _hooked:  # what schedulers fork ends with the thread that forked it
        _hooked.append(True)
        end_with_parent(itself=False)
    return packed(function, items)


class _Dask:
    """The workers of a Dask scheduler."""

    def __init__(self, client: Any, place: str) -> None:
        self._client, self._place = client, place
        self._futures: dict[Flight, Any] = {}
        self._news = Event()
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except OSError:  # a timeout
            raise StudyError(
                f"the Dask scheduler at {place} has no workers: start some (dask worker {place})"
            ) from None
        self._seen = monotonic()
        self._count()

    @property
    def workers(self) -> int:
        if monotonic() - self._counted > _COUNT_AGAIN:  # they come and go
            self._count()
        return max(1, 2 * self._threads)  # the next is there when one is done

    def _count(self) -> None:
        try:
            self._threads: int = sum(
                self._client.sync(self._client.scheduler.ncores, callback_timeout=_PATIENCE).values()
            )
        except Exception as error:
            raise self.translate(error) from None
        self._counted = monotonic()
        if self._threads:
            self._seen = self._counted
        elif self._counted - self._seen > _PATIENCE:  # those that die are started again; not all that are come up
            raise StudyError(f"Dask on {self._place} has no workers any more; what was done is kept: run again")

    def start(self, function: Function) -> None:
        import cloudpickle

        sendable(function, name_of(function), cloudpickle.dumps)
        self._function = function

    def submit(self, items: Sequence[Any]) -> Flight:
        try:
            future = self._client.submit(run, self._function, list(items), pure=False)
            future.add_done_callback(lambda _: self._news.set())
        except Exception as error:  # the scheduler is gone
            raise self.translate(error) from None
        flight = Flight()
        self._futures[flight] = future
        return flight

    def wait(self, flights: Collection[Flight], timeout: float) -> list[Flight]:
        # callbacks are not called for all that is cancelled when a scheduler is lost: look every now and then
        if not any(future.status != "pending" for future in self._futures.values()):
            self._news.wait(timeout)
        self._news.clear()
        for flight in [flight for flight, future in self._futures.items() if future.status != "pending"]:
            self._land(flight, self._futures.pop(flight))
        if timeout:
            _ = self.workers
        return [flight for flight in flights if flight.done()]

    def _land(self, flight: Flight, future: Any) -> None:
        """Pass on what came of a future; its error, too."""
        from distributed import TimeoutError as Late

        try:
            outcome: Outcome = pickle.loads(future.result(timeout=_FETCH))
        except Late:  # the worker that had it died: what was not handed over is run again
            future.cancel()
            flight.set_exception(WorkerDiedError())
        except BaseException as error:
            flight.set_exception(error)
        else:
            flight.set_result(outcome)

    def translate(self, error: BaseException) -> BaseException:
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            return WorkerDiedError()
        if isinstance(error, CancelledError):
            return StudyError(f"the Dask scheduler of {self._place} is lost; what was done is kept: run again")
        return StudyError(f"Dask on {self._place} failed: {_line(error)}; what was done is kept")

    def stop(self) -> None:
        futures, self._futures = list(self._futures.values()), {}
        with suppress(Exception):  # the scheduler may be gone
            self._client.cancel(futures)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
