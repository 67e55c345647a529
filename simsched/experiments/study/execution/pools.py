"""`pool_of`: what batches run on."""

import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, wait
from contextlib import contextmanager
from typing import Any

from simsched.base.errors import StudyError
from simsched.base.numeric import is_count
from simsched.experiments.study.execution.batch import Flight, Function, Pool, outcome_of
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
    if isinstance(executor, Executor):
        yield _Adopted(executor, workers or usable_cores())
    elif executor == "serial":
        yield _Serial()
    elif executor == "processes":
        processes = Processes(workers or usable_cores(), preload)
        try:
            yield processes
        finally:
            processes.stop()
    elif executor == "dask" or (isinstance(executor, str) and "://" in executor):
        with dask_pool(executor, workers or usable_cores()) as pool:
            yield pool
    else:
        raise StudyError(
            f'executor {executor!r} is not known: "serial", "processes", "dask", the address of a Dask scheduler '
            "(tcp://host:port), or a concurrent.futures.Executor"
        )


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Serial:
    """The process we are in."""

    workers = 1

    def start(self, function: Function) -> None:
        self._function = function

    def submit(self, items: Sequence[Any]) -> Flight:
        flight = Flight()
        flight.set_result(outcome_of(self._function, list(items)))
        return flight

    def wait(self, flights: Collection[Flight], timeout: float) -> list[Flight]:  # noqa: ARG002 - never waits
        return list(flights)

    def translate(self, error: BaseException) -> BaseException:
        return error

    def stop(self) -> None:
        pass


class _Adopted:
    """An Executor of somebody else's."""

    def __init__(self, executor: Executor, workers: int) -> None:
        self._executor, self.workers = executor, 2 * workers  # the next is there when one is done
        self._flights: list[Flight] = []

    def start(self, function: Function) -> None:
        self._function = function

    def submit(self, items: Sequence[Any]) -> Flight:
        try:
            flight = self._executor.submit(outcome_of, self._function, list(items))
        except RuntimeError as error:  # broken, or shut down
            raise self.translate(error) from None
        self._flights = [*(f for f in self._flights if not f.done()), flight]
        return flight

    def wait(self, flights: Collection[Flight], timeout: float) -> list[Flight]:
        done = wait(flights, timeout, FIRST_COMPLETED).done
        return [flight for flight in flights if flight in done]

    def translate(self, error: BaseException) -> BaseException:
        if isinstance(error, BrokenExecutor | CancelledError | RuntimeError):
            what = " ".join(str(error).split()) or type(error).__name__
            return StudyError(
                f"{type(self._executor).__name__} takes no more work: {what}; what was done is kept: run again with "
                "another one"
            )
        return error

    def stop(self) -> None:
        for flight in self._flights:
            flight.cancel()
