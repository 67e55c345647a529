"""Sorting in kernels."""

from simsched.base.jit import Column, i8


def sort(keys: Column[i8], n: int) -> None:
    """Sort `n` numbers (Shell's way: by insertion if they are few)."""
    if n < 2:  # as nearly always
        return
    gap = 1
    while gap < n // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            key, j = keys[i], i
            while j >= gap and keys[j - gap] > key:
                keys[j] = keys[j - gap]
                j -= gap
            keys[j] = key
        gap //= 3
