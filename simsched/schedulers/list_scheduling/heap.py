"""Binary heaps of operators: the least key first, of equal keys the first in turn."""

from simsched.base.jit import Column, f8, i4


def push(heap: Column[i4], n: int, i: int, key: Column[f8], turn: Column[i4]) -> None:
    """Add operator `i` to a heap of `n`."""
    at = n
    while at > 0 and not before(heap[(at - 1) >> 1], i, key, turn):
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = i


def pop(heap: Column[i4], n: int, key: Column[f8], turn: Column[i4]) -> int:
    """Remove the first operator of a heap, of which `n` are then left."""
    first, i, at = heap[0], heap[n], 0
    while 2 * at + 1 < n:
        below = 2 * at + 1
        if below + 1 < n and before(heap[below + 1], heap[below], key, turn):
            below += 1
        if before(i, heap[below], key, turn):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = i
    return first


def before(i: int, j: int, key: Column[f8], turn: Column[i4]) -> bool:
    """Return whether one operator comes before another one."""
    return key[i] < key[j] or (key[i] == key[j] and turn[i] < turn[j])
