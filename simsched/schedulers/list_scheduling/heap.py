"""Binary heaps of operators in compiled code: the least key first, of equal keys the first in turn."""

from typing import Any

from simsched.lowering.columns import word
from simsched.machine_code import compiled


@compiled
def push(heap: Any, n: int, i: int, key: Any, turn: Any) -> None:
    """Add operator `i` to a heap of `n`."""
    at = n
    while at > 0:
        above = heap[(at - 1) >> 1]
        if key[above] < key[i] or (key[above] == key[i] and turn[above] < turn[i]):
            break
        heap[at] = above
        at = (at - 1) >> 1
    heap[at] = i


@compiled
def pop(heap: Any, n: int, key: Any, turn: Any) -> int:
    """Remove the first operator of a heap, of which `n` are then left."""
    first: int = word(heap[0])
    i = heap[n]
    at = 0
    while 2 * at + 1 < n:
        k = 2 * at + 1
        below = heap[k]
        if k + 1 < n:
            other = heap[k + 1]
            if key[other] < key[below] or (key[other] == key[below] and turn[other] < turn[below]):
                k += 1
                below = other
        if key[i] < key[below] or (key[i] == key[below] and turn[i] < turn[below]):
            break
        heap[at] = below
        at = k
    heap[at] = i
    return first
