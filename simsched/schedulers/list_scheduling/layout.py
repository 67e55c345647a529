"""The table that the compiled list schedulers work on: numbers and addresses of columns, by position."""

from typing import Final

RANK, AHEAD, PLACE, PLACE_EARLIEST = range(4)
"""What `PHASE` asks for: longest paths, the optimistic cost table, and placing operators in one way or the other."""
DONE, MORE, STUCK = range(3)
"""What `STATUS` says: over; to be called again; an operator has no device that its inputs can get to."""

(
    PHASE, STATUS, N_OPS, N_EDGES, N_DEVICES, N_STREAMS,
    N_READY, N_PLACED, NEXT_TURN, GAPS_END, WORK, LIMIT,
    IN_TURN, INSERTION, RANDOM_OP, RANDOM_STREAM, CHARGED, LOOK_AHEAD,  # how operators are placed
    SRC, DST, ORDER, ROW, ALLOWED, KERNELS,  # columns of 32 bits: of edges, operators and devices
    OUT_PTR, OUT_EDGE, IN_PTR, IN_EDGE,
    TURN, MISSING, HEAP, ARRIVED, PLACED, LANE, WAITED_FOR, N_WAITING, N_ARRIVED,
    GAP_AT, GAP_COUNT, GAP_ROOM,  # of each stream
    RELEASED, SEEN,  # of 64 bits
    TIME, NBYTES, EXACT, LATENCY, RATE, WEIGHT, BESIDE, COST_AHEAD, DRAW_OP, DRAW_STREAM,  # floats that are read
    KEY, START, FINISH, FREE, IDLE, ARRIVAL, GAP_START, GAP_END, COSTS,
) = range(61)  # fmt: skip
SIZE: Final = 61

LAUNCH, RECORD, WAIT, GAP, HOP, CLOCK, ISSUED = range(7)
"""Places in `COSTS`: what a device charges, in us; until when its host is busy, and would be with an operator."""
