"""`pool_of`: what batches run on."""

import os
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from simsched.base.errors import StudyError
from simsched.base.numeric import is_count
from simsched.experiments.study.execution.batch import Function, Outcome, Pool, outcome_of
from simsched.experiments.study.execution.cluster import dask_pool
from simsched.experiments.study.execution.processes import Processes


def pool_of(
    executor: str = "processes", workers: int | None = None, *, preload: Sequence[str] = ()
) -> AbstractContextManager[Pool]:
    """Make a pool, and close it at the end of the block: what is under way is ended.

    Parameters
    ----------
    executor
        ``"serial"``: this process. ``"processes"``: processes of this machine. ``"dask"``: the same, behind a Dask
        scheduler in this process. ``"tcp://host:port"`` (or another address): the workers of a Dask scheduler.
    workers
        How many; by default as many as this process may use cores. A Dask scheduler has as many as it has.
    preload
        Modules that are imported once for all processes, beside that of the function.

    Raises
    ------
    StudyError
        If there is no such executor, `workers` is no whole number of at least 1, or a scheduler does not answer.
    MissingDependencyError
        If Dask is not installed.

    Notes
    -----
    Processes are started when batches come for them. They do not hear Ctrl-C and do not outlive this process, even if
    it is killed. Each thread of a worker of Dask has one, too. A time limit ends the process of a row that cannot be
    interrupted, but not this one.
    """
    if workers is not None and not is_count(workers, 1):
        raise StudyError(f"workers: {workers!r} is no whole number of at least 1")
    # not all cores of a machine may be this process's
    n_workers = workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if executor == "serial":
        return nullcontext(_Here())
    if executor == "processes":
        return closing(Processes(n_workers, preload))
    if executor == "dask" or "://" in executor:
        return dask_pool(executor, n_workers, tuple(preload))
    raise StudyError(
        f'executor {executor!r} is not known: "serial", "processes", "dask", or the address of a Dask scheduler '
        "(tcp://host:port)"
    )


class _Here:
    """The process and the thread we are in."""

    workers = 1

    def submit(self, function: Function, items: Sequence[Any]) -> Future[Outcome]:
        future = Future[Outcome]()
        future.set_result(outcome_of(function, items))
        return future
