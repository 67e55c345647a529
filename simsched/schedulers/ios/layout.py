"""The table that the compiled search works on: numbers and addresses of columns, by position.

Operators of a part are numbered topologically from 0. A state is what is still to be scheduled: with an
operator it holds all those that it reads from. Stages are taken off its end, so what they leave is a state again.
"""

from typing import Final

BUILD, SEARCH, REHASH = range(3)
"""What `PHASE` asks for: all states, all stages that end them, and hash tables filled again after they grew."""
DONE, FULL, PAUSED = range(3)
"""What `STATUS` says: over; more room is needed, for `WANTED` or what is nearly full; `LEFT` is used up."""
FORMULA, COLLECT, LOOK_UP = range(3)
"""What `MODE` asks for: costs by formula, the distinct stages only, or costs from `STAGE_COST`."""

(
    PHASE, STATUS, MODE, N_OPS, N_WORDS,
    MOST_OPS, MOST_GROUPS, SINGLE_ROOT,  # what limits a stage
    N_STATES, STATE_ROOM, N_CELLS, CELL_ROOM, WANTED,
    STATE, DEPTH, LEFT, N_ENDINGS, N_MERGED_ENDINGS, N_STAGES,
    N_NODES, NODE_ROOM, N_SIGNS, SIGN_ROOM, N_ASKED, ASKED_ROOM, N_WRITTEN, WRITTEN_ROOM, N_MERGES,
    # by operator: columns of 32 bits; those with PTR have one more row
    READER_PTR, READERS, SOURCE_PTR, SOURCES,
    FEWER,  # by how many the operators before this one can lessen the groups of a stage
    CLASS,  # operators of a class look the same to the stage latency
    # by operator: of 64 bits
    READER_MASK, TIME,
    FACTOR,  # of a stage by its number of groups; the constant stands first
    # by state: masks of `N_WORDS` words, STATE_ROW columns of 32 bits, VALUE columns of 64 bits
    MASKS, STATES, VALUES,
    CELLS,  # CELL columns of 32 bits: an operator that may be taken off a state, and what is left then
    FRAMES,  # by depth of the search, FRAME columns of 64 bits
    # by operator, of those in the stage: of 32 bits, but times of 64
    PARENT, JOINED, GROUP_SIZE, GROUP_ROOTS, N_SOURCES_IN, WITHIN, WITHIN_PTR, GROUP_AT, GROUP_TIME,
    # prefix trees of stages and of what they look like: NODE columns of 32 bits; hash tables of two words a slot
    NODES, NODE_SLOTS, NODE_HASH, SIGNS, SIGN_SLOTS, SIGN_HASH,
    ASKED_PTR, WRITTEN,  # the stages to ask for: operators in order, the last of a group as -1 - operator
    STAGE_COST,  # by node
    MERGE_PTR, MERGED, MERGE_COST,  # operators that can be merged, falling, and what that stage costs
) = range(63)  # fmt: skip
SIZE: Final = 63

START, LENGTH, OFFSET, ORIGIN = range(4)
"""Columns of a state: its cells, from where on they are below the operator taken off last, and the state before."""
STATE_ROW: Final = 4
COST, COUNT, COUNT_MODULO, NEXT = range(4)
"""Columns of a value: us to the end, schedules, those modulo 2^64, the state after the stage or -1 - merge."""
VALUE: Final = 4
OPERATOR, REST, FIRST, END = range(4)
"""Columns of a cell: the operator, the state without it, and the cells of that which are below the operator."""
CELL: Final = 4
POSITION, LAST, LONGEST, GROUPS, TRAIL, TAKEN, NODE_AT, UNROOTED = range(8)
"""Columns of a frame: the cells to look at, us of the longest group, groups, joins, the operator taken, its node of
the prefix tree, and how many groups have several operators that read from none in the stage."""
FRAME: Final = 8
BEFORE, SYMBOL, ASKED = range(3)
"""Columns of a node: the node it extends and by what, and the number of the stage to ask for, or -1."""
NODE: Final = 3
