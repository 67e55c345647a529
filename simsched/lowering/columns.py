"""What the compiled lowering is made of: sorting, grouping."""

from typing import Any

import numpy as np

from simsched.machine_code import compiled

word: Any = np.int64
"""Makes a number one of 64 bits; without it a function is compiled again for every constant it is called with."""


@compiled
def group(keys: Any, n: int, ptr: Any, n_groups: int, rows: Any) -> None:
    """Write the rows 0 to n-1 by key: those of key k are ``rows[ptr[k]:ptr[k + 1]]``, in order."""
    for k in range(n_groups + 1):
        ptr[k] = 0
    for i in range(n):
        ptr[keys[i]] += 1
    for k in range(n_groups):
        ptr[k + 1] += ptr[k]
    for i in range(n - 1, -1, -1):
        at = ptr[keys[i]] - 1
        ptr[keys[i]] = at
        rows[at] = i


@compiled
def sort(keys: Any, n: int) -> None:
    """Sort `n` numbers (Shell's way: by insertion if they are few)."""
    gap = 1
    while gap < n // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            key = keys[i]
            j = i
            while j >= gap and keys[j - gap] > key:
                keys[j] = keys[j - gap]
                j -= gap
            keys[j] = key
        gap //= 3
