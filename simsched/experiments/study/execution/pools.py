"""`pool_of`: what batches run on."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing, contextmanager, nullcontext
from typing import Any

from simsched.base.errors import StudyError
from simsched.base.numeric import is_count
from simsched.experiments.study.execution.batch import Function, Outcome, Pool, outcome_of
from simsched.experiments.study.execution.cluster import dask_pool
from simsched.experiments.study.execution.processes import Processes


@contextmanager
def pool_of(
    executor: str | Executor = "processes", workers: int | None = None, *, preload: Sequence[str] = ()
) -> Iterator[Pool]:
    """Make a pool, and close it at the end of the block: what is under way is ended.

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
    made: Any
    if isinstance(executor, Executor):
        made = nullcontext(_Adopted(executor, 2 * n_workers))  # the next is there when one is done
    elif executor == "serial":
        made = nullcontext(_Adopted(_Inline(), 1))
    elif executor == "processes":
        made = closing(Processes(n_workers, preload))
    elif executor == "dask" or (isinstance(executor, str) and "://" in executor):
        made = dask_pool(executor, n_workers)
    else:
        raise StudyError(
            f'executor {executor!r} is not known: "serial", "processes", "dask", the address of a Dask scheduler '
            "(tcp://host:port), or a concurrent.futures.Executor"
        )
    with made as pool:
        yield pool


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
        self.name, self.workers, self._executor = type(executor).__name__, workers, executor

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        return self._executor.submit(outcome_of, function, items)
