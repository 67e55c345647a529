"""`pool_of`: what batches run on."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager, nullcontext
from typing import Any

from simsched.base.errors import StudyError
from simsched.base.numeric import is_count
from simsched.experiments.study.execution.batch import Batch, Outcome, Pool, is_lost, outcome_of
from simsched.experiments.study.execution.cluster import dask_pool
from simsched.experiments.study.execution.processes import Processes


@contextmanager
def pool_of(
    executor: str | Executor = "processes", workers: int | None = None, *, preload: Sequence[str] = ()
) -> Iterator[Pool]:
    """Make a pool, and close it at the end of the block.

    Parameters
    ----------
    executor
        ``"serial"``: this process. ``"processes"``: processes of this machine. ``"dask"``: a Dask cluster of processes
        of this machine, with one thread each. ``"tcp://host:port"`` (or another address): the workers of a Dask
        scheduler. Or any Executor, which is used as it is and not closed.
    workers
        How many; by default as many as this process may use cores. A Dask scheduler has as many as it has; for an
        Executor the number of batches it gets at a time.
    preload
        Modules that are imported once for all processes, where that is possible (not on Windows), beside that of the
        function.

    Raises
    ------
    StudyError
        If there is no such executor, `workers` is no whole number of at least 1, or a scheduler does not answer.
    MissingDependencyError
        If Dask is not installed.

    Notes
    -----
    Processes are started when batches come for them. They do not hear Ctrl-C and do not outlive this process, even if
    it is killed. A time limit ends the process of a row that cannot be interrupted in processes and in workers of Dask
    that have one thread and a nanny; elsewhere such a row runs on.
    """
    if workers is not None and not is_count(workers, 1):
        raise StudyError(f"workers: {workers!r} is no whole number of at least 1")
    n_workers = workers or usable_cores()
    if isinstance(executor, Executor):
        made: Any = nullcontext(_Adopted(executor, 2 * n_workers))  # the next is there when one is done
    elif executor == "serial":
        made = nullcontext(_Adopted(_Inline(), 1))
    elif executor == "processes":
        made = nullcontext(Processes(n_workers, preload))
    elif executor == "dask" or (isinstance(executor, str) and "://" in executor):
        made = dask_pool(executor, n_workers)
    else:
        raise StudyError(
            f'executor {executor!r} is not known: "serial", "processes", "dask", the address of a Dask scheduler '
            "(tcp://host:port), or a concurrent.futures.Executor"
        )
    with made as pool:
        try:
            yield pool
        finally:
            pool.stop()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Inline(Executor):
    """The process and the thread we are in."""

    def submit(self, function: Any, /, *given: Any, **more: Any) -> Future[Any]:
        future = Future[Any]()
        future.set_result(function(*given, **more))
        return future


class _Adopted:
    """An Executor, of somebody else's."""

    def __init__(self, executor: Executor, workers: int) -> None:
        self._executor, self.workers = executor, workers
        self._flying: dict[Future[Outcome], Batch] = {}

    def submit(self, batch: Batch) -> None:
        try:
            self._flying[self._executor.submit(outcome_of, batch.function, batch.items)] = batch
        except RuntimeError as error:  # broken, or shut down
            raise is_lost(type(self._executor).__name__, error) from None

    def wait(self, timeout: float) -> list[tuple[Batch, Outcome]]:
        found: list[tuple[Batch, Outcome]] = []
        for future in wait(self._flying, timeout, FIRST_COMPLETED).done:
            try:
                outcome = future.result()
            except Exception as error:
                outcome = is_lost(type(self._executor).__name__, error)
            except BaseException as error:  # the function was interrupted
                outcome = error
            found.append((self._flying.pop(future), outcome))
        return found

    def stop(self) -> None:
        for future in self._flying:
            future.cancel()
        self._flying.clear()
