"""Topological order of any directed graph given as edge columns, or a cycle in it."""

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from simsched.base.numeric import frozen
from simsched.model.graph.columns import Indices, Ints, narrow

_LONGEST_CYCLE_SHOWN = 12


def grouped(ends: Indices, n: int) -> tuple[Ints, Indices]:
    """Return ``(ptr, edges)``: the edges whose end is i are ``edges[ptr[i]:ptr[i + 1]]``, in given order."""
    ptr = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=n))])
    keys = (ends.astype(np.int64) << 32) + np.arange(len(ends))  # sorted some times faster than by a stable argsort
    keys.sort()
    return frozen(ptr), frozen(narrow(keys & 0xFFFFFFFF, len(ends)))


def topological_order(n: int, src: Indices, dst: Indices) -> tuple[Indices, list[int]]:
    """Return a topological order of vertices 0 to n-1, and a cycle (empty if there is none).

    Among the vertices that are ready the lowest comes first. O(V + E) if the vertices are
    numbered topologically, else O(V log V + E).
    """
    order = narrow(np.arange(n), n)
    if (src < dst).all():
        return order, []
    ptr, by_src = grouped(src, n)
    missing = np.bincount(dst, minlength=n)
    ready = np.flatnonzero(missing == 0).tolist()
    # elements of a memoryview are Python's numbers, made one by one: lists of them all would take far more room
    bounds, targets, left, found = ptr.data, dst[by_src].data, missing.data, order.data
    n_found = 0
    while ready:
        i = heappop(ready)
        found[n_found] = i
        n_found += 1
        for j in targets[bounds[i] : bounds[i + 1]]:
            left[j] -= 1
            if left[j] == 0:
                heappush(ready, j)
    if n_found < n:
        return order[:n_found], _cycle(src, dst, missing > 0)
    return order, []


def _cycle(src: Indices, dst: Indices, stuck: npt.NDArray[np.bool_]) -> list[int]:
    """Walk backwards among the vertices that never became ready until one comes up again."""
    within = stuck[src] & stuck[dst]
    producer: dict[int, int] = {}
    for u, v in zip(src[within].tolist(), dst[within].tolist(), strict=True):
        producer.setdefault(v, u)
    seen: dict[int, int] = {}
    walk = [next(iter(producer))]
    while walk[-1] not in seen:
        seen[walk[-1]] = len(seen)
        walk.append(producer[walk[-1]])
    return walk[seen[walk[-1]] :][::-1]


def describe_cycle(texts: list[str]) -> str:
    """Return a cycle as text, its middle left out if it is long."""
    if len(texts) > _LONGEST_CYCLE_SHOWN:
        half = _LONGEST_CYCLE_SHOWN // 2
        texts = [*texts[:half], f"... {len(texts) - 2 * half} more ...", *texts[-half:]]
    return " -> ".join(texts)
