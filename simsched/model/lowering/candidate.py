"""The memory of the lowering: a graph, a candidate, and what its program is made of."""

from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, i1, i4, i8, length

EXACT_STREAMS: Final = 8
"""Copy streams per compute stream and destination where edges have an exact time."""


class Placed(Row):
    """An operator of a candidate."""

    position: i4  # in the launch order, -1 before it is placed
    lane: i4
    event: i4  # that it records: at first 0 or -1, whether there is one
    n_waits: i4
    first_copy: i4
    n_copies: i4
    known: i4  # the operator whose snapshot says what is known behind this one, -1 if there is none
    snapshot: i4  # its own: from here on in `clocks`
    n_clocks: i4  # 0 if it makes none
    asked: i4  # when its snapshot was last found to be of use


class Clock(Row):
    """Up to which place in the launch order a stream has run."""

    lane: i4
    place: i4


class Lane(Row):
    """A stream in use, numbered by device and stream."""

    first: i4  # of its operators among those by lane
    known: i4  # the operator of its latest snapshot, -1 if there is none
    place: i4  # up to where it has run for the operator that is looked at, -1 if nothing is known


class Home(Row):
    """A device."""

    top_stream: i4
    copy_stream: i4  # the stream of a copy less its lane and 1
    turn: i4  # copies that the stream that is looked at sends there


class Sent(Row):
    """A copy."""

    edge: i4
    lane: i4


class CopyLane(Row):
    """A stream of copies: the last one that was waited for, and by whom."""

    copy: i4
    waiter: i4


class Candidate(Table):
    """One candidate after the other over one graph."""

    n_ops: i8
    n_edges: i8
    n_devices: i8
    n_sizes: i8
    bits: i8  # of the number of an edge
    room: i8  # of the clocks
    one_thread: i8
    blocking: i8
    minimal: i8
    staged: i8
    wrong: i8  # the row that places nothing, -1 if there is none
    full: i8  # whether the clocks have no room, to go on at operator `at` by device
    at: i8
    first: i8  # operator of its device
    top: i8  # clocks in use, and behind them streams that something is known about
    n_touched: i8
    n_lanes: i8
    top_stream: i8
    n_copies: i8
    n_op_events: i8
    n_rows: i8
    n_written: i8
    # the graph
    src: Column[i4]
    dst: Column[i4]
    out_ptr: Column[i8]
    out_edge: Column[i4]
    in_ptr: Column[i8]
    in_edge: Column[i4]
    launch_ptr: Column[i8]
    size: Column[i4] = length("n_edges")  # rank by size and exact time, odd with an exact time
    # the candidate, in launch order
    op: Column[i4] = length("n_ops")
    device: Column[i4] = length("n_ops")
    stream: Column[i4] = length("n_ops")
    barrier: Column[i1] = length("n_ops")  # whether it opens a stage behind a barrier
    # what is found
    placed: Rows[Placed] = length("n_ops")
    home: Column[i4] = length("n_ops")  # device of each operator
    by_device: Column[i4] = length("n_ops")  # at first rows of the candidate, then operators; so in `by_lane`
    by_lane: Column[i4] = length("n_ops")
    lanes: Rows[Lane] = length("n_ops + 1")
    homes: Rows[Home] = length("n_devices")
    copy_of: Column[i4] = length("n_edges")
    sent: Rows[Sent] = length("n_edges")
    copy_lanes: Rows[CopyLane] = length("n_edges")
    kept: Column[i4] = length("n_edges")  # waits, from `in_ptr` on
    clocks: Rows[Clock]
    # for a moment
    keys: Column[i8] = length("n_edges")
    lane_of: Column[i4] = length(f"n_devices * {EXACT_STREAMS}")
    # what is written
    thread_ptr: Column[i8]
    action: Column[i1]
    place: Column[i4]  # device, stream and argument
    copies: Column[i4]  # operator and destination
