"""`each`: a function of several items, in processes where there are several."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


@contextmanager
def processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Make a pool of processes that begin anew: one copied from a process with threads may wait for them for ever."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield pool


def each(function: Callable[[_T], _R], items: Sequence[_T], workers: int) -> list[_R]:
    """Return the values of a function in the order of the items; with one worker, in this process."""
    if workers == 1:
        return [function(item) for item in items]
    with processes(workers) as pool:
        return list(pool.map(function, items))
