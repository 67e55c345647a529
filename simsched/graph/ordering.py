"""Topological order of any directed graph given as edge columns, or a cycle in it."""

from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
_LONGEST_CYCLE_SHOWN = 12


def grouped(ends: Ints, n: int) -> tuple[Ints, Ints]:
    """Return ``(ptr, edges)``: the edges whose end is i are ``edges[ptr[i]:ptr[i + 1]]``, in given order."""
    ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(ends, minlength=n), out=ptr[1:])
    return ptr, np.argsort(ends, kind="stable").astype(np.int64)


def topological_order(n: int, src: Ints, dst: Ints) -> tuple[Ints, list[int]]:
    """Return a topological order of vertices 0 to n-1, and a cycle (empty if there is none).

    Among the vertices that are ready the lowest comes first. O(V + E) if the vertices are
    numbered topologically, else O(V log V + E).
    """
    if (src < dst).all():
        return np.arange(n, dtype=np.int64), []
    ptr, by_src = grouped(src, n)
    bounds, targets = ptr.tolist(), dst[by_src].tolist()
    missing = np.bincount(dst, minlength=n).tolist()
    ready = [i for i in range(n) if missing[i] == 0]
    heapify(ready)
    order = []
    while ready:
        i = heappop(ready)
        order.append(i)
        for j in targets[bounds[i] : bounds[i + 1]]:
            missing[j] -= 1
            if missing[j] == 0:
                heappush(ready, j)
    return np.array(order, np.int64), _cycle(src, dst, missing) if len(order) < n else []


def _cycle(src: Ints, dst: Ints, missing: list[int]) -> list[int]:
    """Walk backwards among the vertices that never became ready until one comes up again."""
    producer: dict[int, int] = {}
    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        if missing[u] and missing[v]:
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
