"""The table that the compiled lowering works on: numbers and addresses of columns, by position."""

from typing import Final

import numpy as np
import numpy.typing as npt

PREPARE, PLAN, WAITS, FILL = range(4)
"""What `PHASE` asks for: once per graph, planning a candidate, going on with that, and writing its program."""
DONE, WRONG, SPARSE, FULL = range(4)
"""What `STATUS` says: over; row `AT` is no placement; `LANE_AT` has to be filled; `CLOCKS` has no room."""
EXACT_STREAMS: Final = 8
"""Copy streams per compute stream and destination where edges have an exact time."""

(
    PHASE, STATUS, AT, N_OPS, N_EDGES, N_DEVICES, N_SIZES, N_LANES, ONE_THREAD, BLOCKING, MINIMAL, STAGED,
    LANES_KNOWN, TOP, MADE, ROOM, N_COPIES, N_COMPUTE_EVENTS, N_ROWS, TOP_STREAM,
    LAUNCH_PTR,  # of 64 bits
    SRC, DST,  # of 32 bits
    CLOCKS,  # of 64 bits: lane and place in one
    THREAD_PTR, ACTION, PLACE, COPY_ENDS,  # what is written: of 64, 8, 32 and 32 bits
) = range(28)  # fmt: skip

# Work columns, one after the other: the first of 64 bits, the others of 32.
(
    KEYS,
    OP, DEVICE, STREAM, STAGE, LANE_AT,  # the rows of a candidate, by place in the launch order
    POSITION, EVENT, SNAPSHOT, CURRENT, CLOCK, TOP_OF_DEVICE, SLOT_LANE,  # at first -1
    LANES_OF_DEVICE, TURN,  # at first 0
    HOME, LANE, FIRST_COPY, COPY_COUNT, WAIT_COUNT, BARRIER_BEFORE, OUT_PTR, IN_PTR,  # by operator
    BY_DEVICE, BY_LANE, LANE_PTR,  # operators in groups
    SNAPSHOT_START, SNAPSHOT_LENGTH, SNAPSHOTS, TOUCHED,
    SIZE_OF, OUT_EDGE, IN_EDGE, COPY_OF_EDGE, COPY_EDGE, COPY_LANE, KEPT, REACHED, REACHED_BY,  # per edge
    DEVICE_PTR, COPY_LANE_START, STREAM_LANE,
) = range(28, 70)  # fmt: skip
SIZE: Final = 70

_BY_OP, _BY_EDGE, _BY_DEVICE = (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 1)
_LENGTHS = np.full((SIZE - KEYS, 4), _BY_OP)  # of each work column: operators, edges, devices, constant
_LENGTHS[[OUT_PTR - KEYS, IN_PTR - KEYS, LANE_PTR - KEYS]] = (1, 0, 0, 1)
_LENGTHS[SIZE_OF - KEYS : DEVICE_PTR - KEYS] = _BY_EDGE
_LENGTHS[TOP_OF_DEVICE - KEYS : HOME - KEYS] = _LENGTHS[DEVICE_PTR - KEYS :] = _BY_DEVICE
_LENGTHS[0] = (0, 2, 2, 16)
_LENGTHS[SLOT_LANE - KEYS] = (0, 0, EXACT_STREAMS, 0)
_LENGTHS[STREAM_LANE - KEYS] = (2, 0, 0, 1024)


def work_lengths(n_ops: int, n_edges: int, n_devices: int) -> npt.NDArray[np.int64]:
    """Return how many numbers of 32 bits each work column takes, in order."""
    found: npt.NDArray[np.int64] = _LENGTHS @ np.array([n_ops, n_edges, n_devices, 1])
    return found
