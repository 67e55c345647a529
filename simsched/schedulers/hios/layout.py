"""The tables that the compiled parts of HIOS work on: numbers and addresses of columns, by position.

Operators are numbered by falling priority in the first table, and device by device in the second.
"""

from typing import Final

PATHS, RECORD, RELEASED_PATHS, RELEASED_RECORD, INSERT, BEGIN, WINDOWS = range(7)
"""What `PHASE` asks for: Algorithm 1, Algorithm 3, both as in the released code; a listing with insertion;
the evaluation of stages, Algorithm 2."""
DONE, GOING_ON, ASKS = range(3)
"""What `STATUS` says: over; to be called again, so that the user can interrupt; `ANSWER` has to be filled."""
NONE: Final = -1
BUDGET: Final = 1 << 22
"""Operators evaluated between two looks for an interruption by the user."""

PHASE, STATUS = range(2)  # of both tables
(
    N_OPS, N_DEVICES, AT, N_LISTED, N_OPEN, N_PATHS, INSERTS,
    IN_PTR, IN_FROM, OUT_PTR, OUT_TO,  # edges by consumer and by producer; of 32 bits
    # us of an edge where that is the same between any two devices, else -1; bytes; mean us by consumer, by producer
    IN_US, IN_NBYTES, IN_MEAN, OUT_MEAN,
    TIME, MEAN_TIME,  # of each device and operator; of each operator
    LATENCY, BANDWIDTH,  # from each device to each other
    DEVICE, START, FINISH,  # of each operator
    ONWARD, FOLLOWING, GOES_ON, OPEN, LISTED, PATH, TAIL,  # Algorithm 1, by operator
    FREE, BASE,  # and by device
    BEGINS, ENDS, COUNT,  # what runs when on each device, for insertion
    RECORDED, MAPPED, FREE_IN, PARENT,  # Algorithm 3: by operator and state, and by device and state
    GIVEN, TAKEN_OUT, LEFT_IN,  # as released: operators in graph order, edges by producer, edges into operators
) = range(2, 43)  # fmt: skip
MAPPING_SIZE: Final = 43

(
    W_OPS, W_DEVICES, WIDTH, FIRST, TAKEN, BEST_TAKEN, TURN, STAMP, N_MERGED, N_REFUSED,
    W_PTR, W_FROM, W_DEVICE, STAGE_OF, SIZE, GROUPED, ORDER, PLACE, TURNS, MARK, LAST,  # of 32 bits
    W_US, STAGE_TIME, ENDS_AT, TRIAL, NUMBERS,  # of 64 bits
) = range(2, 28)  # fmt: skip
WINDOW_SIZE: Final = 28

ANSWER, LATENCY_NOW, BEST, BEST_TIME = range(4)  # in the column `NUMBERS`
