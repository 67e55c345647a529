"""Runs of a program that differ from some place on; the part before it runs once."""

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class _NumbersUsedError(BaseException):
    """Ends the run in the first process, whatever handles exceptions on the way."""


def split_runs(run: Callable[[Callable[[], int]], T], count: int, goes_on: Callable[[], bool]) -> Iterator[T]:
    """Yield the results of a function for each of the first numbers.

    Parameters
    ----------
    run
        Is given a function that returns the number, and calls it where runs begin to differ. From there on each
        number is a process of its own, one at a time.
    count
        Numbers, from 0.
    goes_on
        Whether another one may begin.

    Raises
    ------
    RuntimeError
        If a run fails, or never asks for its number.
    """
    results: list[tuple[bool, Any]] = []
    pipe: list[int] = []
    own: list[int] = []

    def number() -> int:
        if own:
            return own[0]
        for k in range(count):
            if not goes_on():
                break
            into, out = os.pipe()
            child = os.fork()
            if not child:
                os.close(into)
                pipe.append(out)
                own.append(k)
                return k
            os.close(out)
            with os.fdopen(into, "rb") as file:
                text = file.read()
            os.waitpid(child, 0)
            results.append(pickle.loads(text) if text else (False, "it ended without a result"))
        raise _NumbersUsedError

    try:
        result: tuple[bool, Any] = (True, run(number))
    except _NumbersUsedError:
        pass
    except BaseException as error:
        if not own:
            raise
        result = (False, f"{type(error).__name__}: {error}")
    if own:
        sys.stdout.flush()
        with os.fdopen(pipe[0], "wb") as file:
            pickle.dump(result, file)
        os._exit(0)
    if count and goes_on() and not results:
        raise RuntimeError("a run never asks for its number, so that all are the same")
    for good, value in results:
        if not good:
            raise RuntimeError(f"a run failed: {value}")
        yield value
