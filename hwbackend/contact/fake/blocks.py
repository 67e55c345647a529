"""Where and when a fake device runs the blocks of kernels that were launched together, in order."""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

import numpy as np

from hwbackend.contact.device import StampedBlock

_DISPATCH: Final = 0.002  # us between the starts of two blocks


def place_blocks(
    blocks: Sequence[int], times: Sequence[float], held: int, sms: int, interleave: float, rng: np.random.Generator
) -> list[StampedBlock]:
    """Return the blocks of kernels, in the order of kernels and of their starts.

    Parameters
    ----------
    blocks, times
        Number of blocks of each kernel, and us that one of them takes.
    held
        Blocks that an SM holds, of whichever kernel.
    sms
        Number of SMs.
    interleave
        Share of the slots that a kernel frees that go to the next one while the kernel has blocks left.
    rng
        Draws which kernel gets a slot.

    Notes
    -----
    A block goes to the SM with the most free slots, of these the first. O(n log n) for n blocks.
    """
    left = list(blocks)
    free = [(-held, sm) for sm in range(sms)]  # a heap: SMs by free slots
    slots = [held] * sms
    ends: list[tuple[float, int, int]] = []
    found: list[list[StampedBlock]] = [[] for _ in blocks]
    now = 0.0
    while any(left):
        while free and -free[0][0] != slots[free[0][1]]:
            heappop(free)  # an older number of its slots
        if free and slots[free[0][1]] > 0:
            _, sm = heappop(free)
        else:
            now_end, sm, _ = heappop(ends)
            now = max(now, now_end)
            slots[sm] += 1
            heappush(free, (-slots[sm], sm))
            continue
        waiting = [kernel for kernel, count in enumerate(left) if count]
        kernel = waiting[0]
        if len(waiting) > 1 and now > 0.0 and rng.random() < interleave:
            kernel = waiting[1]
        left[kernel] -= 1
        slots[sm] -= 1
        heappush(free, (-slots[sm], sm))
        start = now + _DISPATCH * sum(map(len, found)) * (now == 0.0)
        found[kernel].append(StampedBlock(kernel, sm, start, start + times[kernel]))
        heappush(ends, (start + times[kernel], sm, kernel))
    return [block for kernel in found for block in kernel]
