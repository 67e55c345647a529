"""Runs of a program that differ from some place on; the part before it runs once."""

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class _NumbersUsedError(BaseException):
    """Ends the run in the first process, whatever handles exceptions on the way."""


def split_runs(
    run: Callable[[Callable[[], int]], T], count: int | Sequence[int], goes_on: Callable[[], bool]
) -> Iterator[T]:
    """Yield the results of a function for each of the first numbers.

    Parameters
    ----------
    run
        Is given a function that returns the number, and calls it where runs begin to differ. From there on each
        number is a process of its own, one at a time.
    count
        Numbers, from 0. Several counts are for several such places: each process at one of them has so many processes
        at the next, and there a number is the last one that was drawn. Later calls return it again.
    goes_on
        Whether another one may begin.

    Raises
    ------
    RuntimeError
        If a run fails, or never asks for its number.
    """
    counts = (count,) if isinstance(count, int) else tuple(count)
    results: list[tuple[bool, Any]] = []
    pipe: list[int] = []
    own: list[int] = []

    def number() -> int:
        if len(own) == len(counts):
            return own[-1]
        for k in range(counts[len(own)]):
            if not goes_on():
                break
            into, out = os.pipe()
            child = os.fork()
            if not child:
                os.close(into)
                pipe.append(out)
                own.append(k)
                results.clear()
                return k
            os.close(out)
            with os.fdopen(into, "rb") as file:
                text = file.read()
            os.waitpid(child, 0)
            results.extend(pickle.loads(text) if text else [(False, "it ended without a result")])
        raise _NumbersUsedError

    try:
        results.append((True, run(number)))
        is_asked = bool(own)
    except _NumbersUsedError:
        is_asked = True
    except BaseException as error:
        if not own:
            raise
        results.append((False, f"{type(error).__name__}: {error}"))
    if own:
        sys.stdout.flush()
        with os.fdopen(pipe[-1], "wb") as file:
            pickle.dump(results, file)
        os._exit(0)
    if not is_asked:
        raise RuntimeError("a run never asks for its number, so that all are the same")
    for good, value in results:
        if not good:
            raise RuntimeError(f"a run failed: {value}")
        yield value
