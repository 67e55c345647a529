"""`dask_pool`: batches on the workers of a Dask scheduler."""

import logging
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, sleep
from typing import Any, Final

from simsched.base.errors import MissingDependencyError, StudyError
from simsched.experiments.study.execution.batch import (
    Batch,
    Outcome,
    Pool,
    WorkerDiedError,
    is_lost,
    outcome_in,
    packed,
)  # fmt: skip
from simsched.experiments.study.execution.limits import allow_exit
from simsched.experiments.study.execution.processes import end_with_parent, start_forkserver, start_method

_PATIENCE: Final = 30  # s for a scheduler to answer and for its first worker to be there
_FETCH: Final = 10.0  # s until a result whose worker may have died is given up
_CLOSE: Final = 10  # s
_SILENT: Final = "30 s"  # after which a worker is dead whose process lives on: a scheduler closed its files
_GONE: Final = 90.0  # s without workers after which none are expected any more: longer than silent ones are waited for
_COUNT_AGAIN: Final = 5.0  # s after which the workers of a scheduler are counted again
_LOOK_AGAIN: Final = 0.01  # s; callbacks are not called for all that is cancelled when a scheduler is lost
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
        yield _Dask(client, f"the Dask scheduler at {address}")


def _close(what: Any) -> None:
    """Close something of Dask; what does not in time is left."""
    with suppress(Exception):
        what.close(timeout=_CLOSE)


def run(data: bytes) -> bytes:
    """Run a batch in a worker of Dask."""
    from distributed import get_worker

    worker = get_worker()
    if worker.nanny is not None and worker.state.nthreads == 1:  # it is started again, and runs nothing beside this
        allow_exit()
    if not _hooked:  # what schedulers fork ends with the thread that forked it
        _hooked.append(True)
        end_with_parent(itself=False)
    return outcome_in(data)


class _Dask:
    """The workers of a Dask scheduler."""

    def __init__(self, client: Any, place: str) -> None:
        self._client, self._place = client, place
        self._flying: dict[Any, Batch] = {}
        self._seen = monotonic()
        with suppress(OSError):  # a timeout
            client.wait_for_workers(1, timeout=_PATIENCE)
        self._count()

    def _count(self) -> None:
        """Count the workers: they come and go, those that die are started again, and not all that are come up."""
        try:
            threads = self._client.sync(self._client.scheduler.ncores, callback_timeout=_PATIENCE)
        except Exception as error:
            raise is_lost(self._place, error) from None
        self.workers = max(1, sum(threads.values()))  # of two batches of a thread that dies nobody knows which ended it
        self._counted = monotonic()
        if threads:
            self._seen = self._counted
        elif self._counted - self._seen > _GONE:
            raise StudyError(f"{self._place} has no workers (dask worker ADDRESS starts one); what was done is kept")

    def submit(self, batch: Batch) -> None:
        import cloudpickle

        data = packed(batch.function, batch.items, cloudpickle.dumps)
        try:
            self._flying[self._client.submit(run, data, pure=False)] = batch
        except Exception as error:
            raise is_lost(self._place, error) from None

    def wait(self, timeout: float) -> list[tuple[Batch, Outcome]]:
        end = monotonic() + timeout
        while not (done := [future for future in self._flying if future.status != "pending"]) and monotonic() < end:
            sleep(_LOOK_AGAIN)
        if timeout and monotonic() - self._counted > _COUNT_AGAIN:
            self._count()
        return [(self._flying.pop(future), self._outcome(future)) for future in done]

    def _outcome(self, future: Any) -> Outcome:
        from distributed import KilledWorker
        from distributed import TimeoutError as Late

        try:
            outcome: Outcome = pickle.loads(future.result(timeout=_FETCH))
        except KilledWorker:
            return WorkerDiedError()
        except Late:  # its worker died before it handed this over
            future.cancel()
            return WorkerDiedError(0)
        except Exception as error:
            return is_lost(self._place, error)
        return outcome

    def stop(self) -> None:
        futures = list(self._flying)
        self._flying.clear()
        with suppress(Exception):  # the scheduler may be gone
            self._client.cancel(futures)
