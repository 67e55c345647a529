"""Values that are kept for objects as long as these live: `Memo`, and `memo` for results of a function."""

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[V]):
    """A value for each of some objects, which is dropped with its object.

    Objects are distinguished by identity, not by equality. A value must not refer to its object: that would keep it
    alive for ever.

    >>> class Graph: pass
    >>> sizes = Memo[int]()
    >>> graph = Graph()
    >>> sizes.get(graph), sizes.put(graph, 3), sizes.get(graph), len(sizes)
    (None, 3, 3, 1)
    >>> del graph
    >>> len(sizes)
    0
    """

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[Any], V]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, owner: object) -> V | None:
        """Return the value of an object, None if it has none."""
        entry = self._values.get(id(owner))
        return None if entry is None else entry[1]

    def put(self, owner: object, value: V) -> V:
        """Keep a value for an object in place of an earlier one, and return it."""
        key = id(owner)
        values = self._values

        def forget(reference: "weakref.ref[Any]") -> None:
            if key in values and values[key][0] is reference:
                del values[key]

        values[key] = weakref.ref(owner, forget), value
        return value


def memo(compute: Callable[[K], V]) -> Callable[[K], V]:
    """Return a function that computes its result once for each object, which must not change; see `Memo`.

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
    results = Memo[tuple[V]]()

    @wraps(compute)
    def ask(owner: K) -> V:
        entry = results.get(owner)
        if entry is None:
            entry = results.put(owner, (compute(owner),))
        return entry[0]

    return ask
