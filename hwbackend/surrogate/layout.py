"""How the block scheduler lies in memory: a table of 64-bit numbers, most of them addresses of columns.

A tree has MOST_SMS leaves, a power of two, of which the j-th is that of the device's j-th SM; place i holds the best of
places 2i and 2i + 1, and leaf j is place MOST_SMS + j. ROOM is a tree of the most room, DUE of the earliest end.
"""

from typing import Final

ARRIVE, ADVANCE, RESHARE = range(3)
"""What a call does: queue a kernel on its device, run to the next end of a kernel, share DRAM anew."""

SHIFT: Final = 64
"""An SM's room is its free warps times this, plus its free blocks; -1 if it has none of these."""

NOW, UNTIL, INTERFERENCE = range(3)
"""Places in the column NUMBERS."""

(
    PHASE, N_DEVICES, MOST_SMS, MOST_BLOCKS, N_ROWS, N_JITTER, NEXT_JITTER, RESIDENT_KERNELS, N_ENDED, ROW,
    # from here on addresses: first of whole numbers, by device
    SM_START, N_QUEUED, N_RUNNING, N_DIRTY, STUCK,
    # by device and place in its queue
    QUEUE,
    # by device and place in a tree
    ROOM,
    # by SM
    FREE_WARPS, FREE_BLOCKS, FREE_REGISTERS, FREE_SHARED, N_HELD, IS_DIRTY, DIRTY,
    # by SM and slot
    HELD,
    # by row of the launches
    DEVICE, PRIORITY, WARPS, REGISTERS, SHARED, UNISSUED, RESIDENT, ENDED,
    # then of floats: numbers
    NUMBERS,
    # by device
    TRAFFIC, COPIED, SLOW, NEXT,
    # by device and place in a tree
    DUE,
    # by SM
    SINCE, SM_TRAFFIC,
    # by SM and slot
    LEFT, RATE,
    # by row of the launches
    COMPUTE, MEMORY, ISSUE, DRAM, START, END, ARRIVAL,
    # by block, again and again
    JITTER,
    SIZE,
) = range(52)  # fmt: skip

BY_DEVICE: Final = (N_QUEUED, N_RUNNING, N_DIRTY, STUCK, TRAFFIC, COPIED, SLOW, NEXT)
BY_SM: Final = (
    FREE_WARPS, FREE_BLOCKS, FREE_REGISTERS, FREE_SHARED, N_HELD, IS_DIRTY, DIRTY, SINCE, SM_TRAFFIC,
)  # fmt: skip
BY_SLOT: Final = (HELD, LEFT, RATE)
BY_ROW: Final = (
    DEVICE, PRIORITY, WARPS, REGISTERS, SHARED, UNISSUED, RESIDENT, ENDED,
    COMPUTE, MEMORY, ISSUE, DRAM, START, END, ARRIVAL,
)  # fmt: skip
FIRST_ADDRESS: Final = SM_START
FIRST_FLOATS: Final = NUMBERS
