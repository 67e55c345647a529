"""`dask_pool`: batches behind a Dask scheduler, each in a process beside the worker that has it."""

import logging
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from time import monotonic
from typing import Any, Final, cast

from simsched.base.errors import MissingDependencyError, StudyError
from simsched.experiments.study.execution.batch import Function, Outcome, Pool, WorkerDiedError, packed
from simsched.experiments.study.execution.processes import Workers

_PATIENCE: Final = 30  # s for a scheduler to answer and for its first worker to be there
_FETCH: Final = 10.0  # s until a result whose worker may have died is given up
_CLOSE: Final = 10  # s
_GONE: Final = 90.0  # s without workers after which none are expected any more
_COUNT_AGAIN: Final = 5.0  # s after which the workers of a scheduler are counted again
_MOST: Final = 10_000  # batches at a time


@contextmanager
def dask_pool(address: str, workers: int, preload: tuple[str, ...]) -> Iterator[Pool]:
    """Make a pool of a Dask scheduler's workers.

    Parameters
    ----------
    address
        Of the scheduler; ``"dask"`` for one in this process, closed at the end.
    workers
        How many that one has.
    preload
        See `Workers`.
    """
    try:
        from distributed import Client
    except ImportError:
        raise MissingDependencyError("Dask is not installed: pip install 'simsched[cluster]'") from None
    with ExitStack() as stack:
        logger = logging.getLogger("distributed")  # workers that die are our business, and of the rest we tell
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)
        where: dict[str, Any] = {"address": address} if address != "dask" else {
            "n_workers": workers, "threads_per_worker": 1, "processes": False, "memory_limit": None,
            "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL,
        }  # fmt: skip
        try:
            client = Client(**where, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:  # a timeout is an OSError
            raise StudyError(f"no Dask scheduler answers at {address}: {' '.join(str(error).split())}") from None
        stack.callback(_close, client)
        if address == "dask":
            stack.callback(_processes.cache_clear)
            stack.callback(_processes(preload, None).close)
        pool = _Dask(client, f"the Dask scheduler at {address}", preload)
        stack.callback(pool.close)
        yield pool


def _close(client: Any) -> None:
    """Close a client, and its scheduler if it has one; what does not in time is left."""
    with suppress(Exception):
        client.close(timeout=_CLOSE)


@cache
def _processes(preload: tuple[str, ...], memory: int | None) -> Workers:
    """Return the processes of this one: a worker of Dask, which what they run does not take with it."""
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # or it may start none
    return Workers(preload, memory)


def run(data: bytes, preload: tuple[str, ...]) -> Outcome:
    """Run a batch beside a worker of Dask, in an equal share of the memory that it may use."""
    from distributed import get_worker

    worker = get_worker()
    memory = worker.memory_manager.memory_limit
    return _processes(preload, memory and memory // worker.state.nthreads).run(data)


class _Dask:
    """The workers of a Dask scheduler; a thread waits for each batch."""

    def __init__(self, client: Any, name: str, preload: tuple[str, ...]) -> None:
        self._client, self._name, self._preload = client, name, preload
        self._threads = ThreadPoolExecutor(_MOST)
        self._closed = False
        self._n_threads, self._count_at, self._seen = 1, 0.0, monotonic()
        with suppress(OSError):  # a timeout
            client.wait_for_workers(1, timeout=_PATIENCE)

    @property
    def workers(self) -> int:
        """How many threads they have: they come and go."""
        now = monotonic()
        if now >= self._count_at:
            try:
                threads = self._client.sync(self._client.scheduler.ncores, callback_timeout=_PATIENCE)
            except Exception as error:
                raise self._lost(error) from None
            self._n_threads, self._count_at = max(1, sum(threads.values())), now + _COUNT_AGAIN
            if threads:
                self._seen = now
            elif now - self._seen > _GONE:
                raise StudyError(f"{self._name} has no workers (dask worker ADDRESS starts one); what was done is kept")
        return self._n_threads

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        return self._threads.submit(self._run, packed(function, items))

    def _run(self, data: bytes) -> Outcome:
        """Return what comes of a batch."""
        from distributed import KilledWorker
        from distributed import TimeoutError as Late

        try:
            future = self._client.submit(run, data, self._preload, pure=False)
            done = False
            while not done:
                done = self._closed or future.status != "pending"
                with suppress(Late):
                    return cast(Outcome, future.result(timeout=_FETCH))
            future.cancel()  # its worker died before it handed this over
            raise WorkerDiedError(False)
        except (WorkerDiedError, StudyError):
            raise
        except KilledWorker:
            raise WorkerDiedError(False) from None
        except Exception as error:
            raise self._lost(error) from None

    def _lost(self, error: Exception) -> StudyError:
        why = " ".join(str(error).split()) or type(error).__name__
        return StudyError(f"{self._name} is lost: {why}; what was done is kept: run again")

    def close(self) -> None:
        """Wait for nothing any more; what is under way ends with the client."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
