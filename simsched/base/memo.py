"""`memo`: results of a function that are kept as long as its argument lives."""

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def memo(compute: Callable[[K], V]) -> Callable[[K], V]:
    """Return a function that computes its result once for each object, which must not change.

    Objects are distinguished by identity, not by equality; a result is dropped with its object.

    >>> class Graph: pass
    >>> @memo
    ... def size(graph):
    ...     print("counted")
    ...     return 3
    >>> graph = Graph()
    >>> size(graph), size(graph)
    counted
    (3, 3)
    """
    results: dict[int, V] = {}

    @wraps(compute)
    def ask(owner: K) -> V:
        key = id(owner)
        if key not in results:
            result = compute(owner)
            weakref.finalize(owner, _forget, results, key).atexit = False
            results[key] = result
        return results[key]

    return ask


def _forget(results: dict[int, Any], key: int) -> None:
    results.pop(key, None)
