"""The table that the compiled walk works on: numbers and addresses of columns, by position."""

from typing import Final

(
    N_OPS, N_DEVICES, N_STREAMS, STEPS, N_PATH, ACCEPTED,
    ORDER, PLACE, DEVICE, STREAM,  # of the candidate: these and the columns below of 64 bits
    KEPT,  # the same four columns as of the last change taken, one after the other
    PATH, TRIES, WINS, ROW,
    OUT_PTR, OUT_TO, IN_PTR, IN_FROM,  # consumers and producers, by operator
    MISSING, BEHIND, LAST, WAITING, RUNNING,  # work columns
    NUMBERS, CHOICE, DRAWS,  # floats that are read
    TIME, LOAD, ISSUE, NBYTES, EXACT, LATENCY, RATE, GAP, HOP,
    READY, LEFT, LOADED, ISSUED,  # floats that are worked with
) = range(40)  # fmt: skip
SIZE: Final = 40

TEMPERATURE, GUIDED, MAKESPAN = range(3)
"""Places in `NUMBERS`: in us; how often an operator of the path is taken; of the candidate by the model, in us."""
N_NUMBERS: Final = 3
N_DRAWS: Final = 8
"""Random numbers that a step takes: the last is exponential of mean 1, the others are uniform in [0, 1)."""

MOVES: Final = ("relocate", "reorder", "exchange", "follow", "chain", "cross", "gather", "clear")
RELOCATE, REORDER, EXCHANGE, FOLLOW, CHAIN, CROSS, GATHER, CLEAR = range(len(MOVES))
NEAR: Final = 20
"""Places in the launch order within which operators exchange lanes, or are cleared away."""
LONGEST_CHAIN: Final = 8
SPAN: Final = 40
"""Places over which two lanes are exchanged, at most, if not to the end."""
