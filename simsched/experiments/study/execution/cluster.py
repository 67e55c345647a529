"""`dask_pool`: batches on the workers of a Dask scheduler."""

import logging
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic
from typing import Any, Final, cast
from uuid import uuid4

from simsched.base.errors import MissingDependencyError, StudyError
from simsched.experiments.study.execution.batch import (
    Function,
    Outcome,
    Pool,
    WorkerDiedError,
    lost,
    outcome_in,
    packed,
)
from simsched.experiments.study.execution.limits import allow_exit
from simsched.experiments.study.execution.processes import end_forks_with_parent, start_forkserver, start_method

_PATIENCE: Final = 30  # s for a scheduler to answer and for its first worker to be there
_FETCH: Final = 10.0  # s until a result whose worker may have died is given up
_CLOSE: Final = 10  # s
_SILENT: Final = "30 s"  # after which a worker is dead whose process lives on: a scheduler closed its files
_GONE: Final = 90.0  # s without workers after which none are expected any more: longer than silent ones are waited for
_COUNT_AGAIN: Final = 5.0  # s after which the workers of a scheduler are counted again
_MOST: Final = 10_000  # batches at a time


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
    with ExitStack() as stack:
        logger = logging.getLogger("distributed")  # workers that die are our business, and of the rest we tell
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)
        where: Any = address
        if address == "dask":
            start_forkserver()
            stack.enter_context(dask.config.set({
                "distributed.scheduler.allowed-failures": 0,  # a batch whose worker dies comes back at once
                "distributed.scheduler.worker-ttl": _SILENT,
                "distributed.deploy.lost-worker-timeout": "1 day",  # or one that is just being started again is closed
                "distributed.worker.multiprocessing-method": start_method(),
            }))  # fmt: skip
            where = LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )  # fmt: skip
            stack.callback(_close, where)
        try:
            client = Client(where, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:  # a timeout is an OSError
            raise StudyError(f"no Dask scheduler answers at {address}: {' '.join(str(error).split())}") from None
        stack.callback(_close, client)
        pool = _Dask(client, f"the Dask scheduler at {address}")
        stack.callback(pool.close)
        yield pool


def _close(what: Any) -> None:
    """Close something of Dask; what does not in time is left."""
    with suppress(Exception):
        what.close(timeout=_CLOSE)


def run(data: bytes, topic: str | None) -> bytes:
    """Run a batch in a worker of Dask, and tell a topic that it begins."""
    from distributed import get_client, get_worker

    worker = get_worker()
    if worker.nanny is not None and worker.state.nthreads == 1:  # it is started again, and runs nothing beside this
        allow_exit()
    end_forks_with_parent()
    if topic is not None:
        with suppress(Exception):
            get_client(timeout=_PATIENCE).log_event(topic, worker.get_current_task())
    return outcome_in(data)


class _Dask:
    """The workers of a Dask scheduler; a thread waits for each batch."""

    def __init__(self, client: Any, name: str) -> None:
        self.name, self._client = name, client
        self._threads = ThreadPoolExecutor(_MOST)
        self._closed = False
        self._begun: dict[str, float] = {}  # times in s by key; the last, if Dask itself tried again
        self._topic = f"batches that begin, {uuid4().hex}"
        client.subscribe_topic(self._topic, lambda event: self._begun.update({event[1]: monotonic()}))
        self._seen = monotonic()
        with suppress(OSError):  # a timeout
            client.wait_for_workers(1, timeout=_PATIENCE)
        self._count()

    @property
    def workers(self) -> int:
        """How many threads they have: they come and go, those that die are started again, not all that are come up."""
        if monotonic() - self._counted > _COUNT_AGAIN:
            self._count()
        return self._n_threads

    def _count(self) -> None:
        try:
            threads = self._client.sync(self._client.scheduler.ncores, callback_timeout=_PATIENCE)
        except Exception as error:
            raise lost(self.name, error) from None
        # no more batches than threads: of two batches of one that dies nobody knows which ended it
        self._n_threads: int = max(1, sum(threads.values()))
        self._counted = monotonic()
        if threads:
            self._seen = self._counted
        elif self._counted - self._seen > _GONE:
            raise StudyError(f"{self.name} has no workers (dask worker ADDRESS starts one); what was done is kept")

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        import cloudpickle

        return self._threads.submit(self._run, packed(function, items, cloudpickle.dumps), len(items) == 1)

    def _run(self, data: bytes, alone: bool) -> Outcome:
        """Return what comes of a batch; what ended one that ran alone is told by how long it had run."""
        from distributed import KilledWorker
        from distributed import TimeoutError as Late

        future = self._client.submit(run, data, self._topic if alone else None, pure=False)
        done = False
        try:
            while not done:
                done = self._closed or future.status != "pending"
                with suppress(Late):
                    return cast(Outcome, pickle.loads(future.result(timeout=_FETCH)))
            future.cancel()  # its worker died before it handed this over
            raise WorkerDiedError(0.0)
        except KilledWorker:
            now = monotonic()
            raise WorkerDiedError(now - self._begun.get(future.key, now)) from None
        finally:
            self._begun.pop(future.key, None)

    def close(self) -> None:
        """Wait for nothing any more; what is under way ends with the client."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
