"""`dask_pool`: batches on the workers of a Dask scheduler."""

import logging
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from threading import Event
from time import monotonic
from typing import Any, Final

from simsched.base.errors import MissingDependencyError, StudyError
from simsched.experiments.study.execution.batch import Flight, Function, Outcome, Pool, Shipped, WorkerDiedError
from simsched.experiments.study.execution.limits import allow_exit
from simsched.experiments.study.execution.processes import start_forkserver, start_method

_PATIENCE: Final = 30  # s for a scheduler to answer and for its first worker to be there
_LOOK_AGAIN: Final = 1.0  # s
_COUNT_AGAIN: Final = 5.0  # s after which the workers of a scheduler are counted again


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
        with _quiet(), client:
            yield _Dask(client, address)
        return
    # a batch whose worker dies comes back at once; the loop knows what to do with it
    settings = {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.worker.multiprocessing-method": start_method(),
    }
    start_forkserver()
    with (
        _quiet(),
        dask.config.set(settings),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        yield _Dask(client, "this machine")


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


def run(shipped: Shipped, data: bytes) -> Outcome:
    """Run a pickled batch in a worker of Dask."""
    from distributed import get_worker

    worker = get_worker()
    if worker.nanny is not None and worker.state.nthreads == 1:  # it is started again, and runs nothing beside this
        allow_exit()
    return shipped.unpacked(data)


class _Dask:
    """The workers of a Dask scheduler."""

    depth = 2

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
        return max(1, self._threads)

    def _count(self) -> None:
        try:
            self._threads: int = sum(self._client.nthreads().values())
        except Exception as error:
            raise self.translate(error) from None
        self._counted = monotonic()
        if self._threads:
            self._seen = self._counted
        elif self._counted - self._seen > _PATIENCE:  # those that die are started again; not all that are come up
            raise StudyError(f"Dask on {self._place} has no workers any more; what was done is kept: run again")

    def start(self, function: Function) -> None:
        import cloudpickle

        self._shipped = Shipped(function, cloudpickle.dumps)  # what a script defines is not known elsewhere
        _ = self._shipped.content

    def submit(self, items: Sequence[Any]) -> Flight:
        data = self._shipped.pack(items)
        try:
            future = self._client.submit(run, self._shipped, data, pure=False)
            future.add_done_callback(lambda _: self._news.set())
        except Exception as error:  # the scheduler is gone
            raise self.translate(error) from None
        flight = Flight()
        self._futures[flight] = future
        return flight

    def wait(self, flights: Collection[Flight], timeout: float | None = None) -> list[Flight]:
        # callbacks are not called for all that is cancelled when a scheduler is lost: look every now and then
        while True:
            self._news.clear()
            for flight in [flight for flight, future in self._futures.items() if future.status != "pending"]:
                self._land(flight, self._futures.pop(flight))
            done = [flight for flight in flights if flight.done()]
            if done or not flights or timeout is not None:
                return done
            if not self._news.wait(_LOOK_AGAIN):
                _ = self.workers

    def _land(self, flight: Flight, future: Any) -> None:
        """Pass on what came of a future; its error, too."""
        try:
            outcome = future.result()
        except Exception as error:
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
