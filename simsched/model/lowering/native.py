"""The lowering in native code, over the memory of one candidate: `plan` it, then `write` its program."""

from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, i1, i4, i8, length, native, piece
from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT

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
    known: i4  # the operator whose snapshot holds the knowledge after this one, -1 if there is none
    snapshot: i4  # its own: from here on in `clocks`
    n_clocks: i4  # 0 if it makes none
    asked: i4  # when its snapshot was last found to be of use


class VectorClock(Row):
    """Up to which place in the launch order a stream has run."""

    lane: i4
    place: i4


class ProgramLane(Row):
    """A stream in use, numbered by device and stream."""

    first: i4  # of its operators among the ones by lane
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
    """A stream of copies: the last copy that was waited for, and its waiter."""

    copy: i4
    waiter: i4


class LoweredCandidate(Table):
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
    full: i8  # whether the clocks have no room; then `plan` continues at operator `at` by device
    at: i8
    first: i8  # operator of its device
    top: i8  # clocks in use, and after them streams that something is known about
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
    barrier: Column[i1] = length("n_ops")  # whether it opens a stage after a barrier
    # results of `plan`
    placed: Rows[Placed] = length("n_ops")
    home: Column[i4] = length("n_ops")  # device of each operator
    by_device: Column[i4] = length("n_ops")  # at first rows of the candidate, then operators; so in `by_lane`
    by_lane: Column[i4] = length("n_ops")
    lanes: Rows[ProgramLane] = length("n_ops + 1")
    homes: Rows[Home] = length("n_devices")
    copy_of: Column[i4] = length("n_edges")
    sent: Rows[Sent] = length("n_edges")
    copy_lanes: Rows[CopyLane] = length("n_edges")
    kept: Column[i4] = length("n_edges")  # waits, from `in_ptr` on
    clocks: Rows[VectorClock]
    # temporary
    keys: Column[i8] = length("n_edges")
    lane_of: Column[i4] = length(f"n_devices * {EXACT_STREAMS}")
    # results of `write`
    thread_ptr: Column[i8]
    action: Column[i1]
    place: Column[i4]  # device, stream and argument
    copies: Column[i4]  # operator and destination


@piece("lowering of schedules")
def plan(s: LoweredCandidate) -> None:
    """Plan the program of a candidate, or continue where the clocks were full."""
    if not s.full:
        place(s)
        if s.wrong >= 0:
            return
        find_lanes(s)
        find_copies(s)
        choose_copy_lanes(s)
        s.at = 0
    s.full = not find_waits(s)
    if not s.full:
        if s.minimal:
            drop_copy_waits(s)
        count(s)


@native
def place(s: LoweredCandidate) -> None:
    """Read the rows of a candidate, up to one that is `wrong`."""
    s.wrong = -1
    for d in range(s.n_devices):
        home = s.homes[d]
        home.top_stream = -1
    for v in range(s.n_ops):
        op = s.placed[v]
        op.position = -1
        op.event = -1
        op.known = -1
    for i in range(s.n_ops):
        v = s.op[i]
        d = s.device[i]
        stream = s.stream[i]
        if v < 0 or v >= s.n_ops or d < 0 or d >= s.n_devices or stream < 0 or s.placed[v].position >= 0:
            s.wrong = i
            return
        s.placed[v].position = i
        s.home[v] = d
        s.homes[d].top_stream = max(s.homes[d].top_stream, stream)


@native
def find_lanes(s: LoweredCandidate) -> None:
    """Give a number to each stream in use; turn the rows in order by device, and by stream, into their operators."""
    n = s.n_ops
    lane = -1
    device = -1
    stream = -1
    for i in range(n):
        k = s.by_lane[i]
        if s.device[k] != device or s.stream[k] != stream:
            device = s.device[k]
            stream = s.stream[k]
            lane += 1
            s.lanes[lane].first = i
            s.lanes[lane].known = -1
            s.lanes[lane].place = -1
        s.placed[s.op[k]].lane = lane
        s.by_lane[i] = s.op[k]
        s.by_device[i] = s.op[s.by_device[i]]
    s.n_lanes = lane + 1
    s.lanes[s.n_lanes].first = n


@native
def find_copies(s: LoweredCandidate) -> None:
    """Give each copy a number, by producer as the host threads issue them."""
    copies = 0
    if s.one_thread:
        threads = s.op
    else:
        threads = s.by_device
    for i in range(s.n_ops):
        u = threads[i]
        op = s.placed[u]
        n = 0
        last = -1
        for k in range(s.out_ptr[u], s.out_ptr[u + 1]):
            e = s.out_edge[k]
            to = s.home[s.dst[e]]
            if to != s.home[u]:
                s.keys[n] = (to * s.n_sizes + s.size[e]) << s.bits | e
                n += 1
        sort(s.keys, n)
        op.first_copy = copies
        for k in range(n):
            kind = s.keys[k] >> s.bits
            e = s.keys[k] - (kind << s.bits)
            if kind != last or not s.minimal:
                s.sent[copies].edge = e
                copies += 1
                last = kind
            s.copy_of[e] = copies - 1
        op.n_copies = copies - op.first_copy
    s.n_copies = copies


@native
def choose_copy_lanes(s: LoweredCandidate) -> None:
    """Give each copy a stream: one for each (stream of the producer, destination), after the compute streams.

    Producers of one stream end in the order of their copies, so no copy waits for another whose data is not there yet.
    Copies of exact time load no engine that could make them queue: they take turns on several streams.
    """
    for k in range(s.n_devices * EXACT_STREAMS):
        s.lane_of[k] = -1
    s.top_stream = 0
    lanes = 0
    device = -1
    for lane in range(s.n_lanes):
        first = s.lanes[lane].first
        end = s.lanes[lane + 1].first
        n = 0
        if s.home[s.by_lane[first]] != device:
            device = s.home[s.by_lane[first]]
            s.homes[device].copy_stream = s.homes[device].top_stream - lanes
        for i in range(first, end):
            op = s.placed[s.by_lane[i]]
            for c in range(op.first_copy, op.first_copy + op.n_copies):
                e = s.sent[c].edge
                to = s.home[s.dst[e]]
                slot = to * EXACT_STREAMS
                home = s.homes[to]
                if s.lane_of[slot] < lanes:
                    home.turn = 0  # the first copy from this stream
                if s.size[e] & 1:
                    slot += home.turn % EXACT_STREAMS
                home.turn += 1
                s.sent[c].lane = slot
                if s.lane_of[slot] < lanes:
                    s.lane_of[slot] = lanes
                    s.keys[n] = slot
                    n += 1
        sort(s.keys, n)
        for k in range(n):
            s.lane_of[s.keys[k]] = lanes + k
        lanes += n
        s.top_stream = max(s.top_stream, s.homes[device].copy_stream + lanes)
        for i in range(first, end):
            op = s.placed[s.by_lane[i]]
            for c in range(op.first_copy, op.first_copy + op.n_copies):
                s.sent[c].lane = s.lane_of[s.sent[c].lane]


@native
def count(s: LoweredCandidate) -> None:
    """Give the events that operators record their numbers, and count the instructions."""
    n = s.n_ops
    events = 0
    rows = s.launch_ptr[s.n_ops] + (2 if s.blocking else 3) * s.n_copies
    for v in range(n):
        op = s.placed[v]
        rows += op.n_waits + s.barrier[op.position]
        for k in range(s.in_ptr[v], s.in_ptr[v] + op.n_waits):
            if s.kept[k] < n:
                s.placed[s.op[s.kept[k]]].event = 0
    for v in range(n):
        op = s.placed[v]
        if op.event >= 0 or op.n_copies > 0:
            op.event = events
            events += 1
            if s.blocking and op.n_copies > 0:
                rows += 1
    s.n_op_events = events
    s.n_rows = rows + events


# Waits that a program needs. An operator's waits are keys in rising order: the place of a producer on another stream of
# the device, or the number of operators plus the number of a copy.


@native
def find_waits(s: LoweredCandidate) -> bool:
    """Write the waits of every operator; between streams of a device without waits that others imply.

    A snapshot holds the places up to which other streams have run before any operator runs that comes after the
    snapshot's, on its stream. False where there is no room for another one; the search then continues there.
    """
    for i in range(s.at, s.n_ops):
        v = s.by_device[i]
        op = s.placed[v]
        if i == 0 or s.home[s.by_device[i - 1]] != s.home[v]:
            # no clock reaches over to another device
            s.first = i
            s.top = 0
        n = find_producers(s, v)
        some = False
        s.n_touched = 0
        if s.minimal and n > 0 and s.keys[0] < s.n_ops:
            if not has_room(s, i):
                s.at = i
                return False
            some = drop_implied(s, v, n)
        at = s.in_ptr[v]
        last = -1
        for k in range(n):
            if s.keys[k] > last:
                last = s.keys[k]
                s.kept[at] = last
                at += 1
        op.n_waits = at - s.in_ptr[v]
        for k in range(s.top, s.top + s.n_touched):
            clock = s.clocks[k]
            lane = s.lanes[clock.lane]
            clock.place = lane.place
            lane.place = -1
        op.snapshot = s.top
        op.n_clocks = s.n_touched if some else 0
        s.top += op.n_clocks
        if some:
            s.lanes[op.lane].known = v
        op.known = s.lanes[op.lane].known
    return True


@native
def find_producers(s: LoweredCandidate, v: int) -> int:
    """Write the operator's possible waits as keys; return their number."""
    op = s.placed[v]
    n = 0
    for k in range(s.in_ptr[v], s.in_ptr[v + 1]):
        e = s.in_edge[k]
        u = s.src[s.in_edge[k]]
        if s.home[u] != s.home[v]:
            s.keys[n] = s.n_ops + s.copy_of[e]
            n += 1
        elif s.placed[u].lane != op.lane and not s.staged:
            s.keys[n] = s.placed[u].position
            n += 1
    sort(s.keys, n)
    return n


@native
def drop_implied(s: LoweredCandidate, v: int, n: int) -> bool:
    """Drop producers on the device that have run if others have, or by the stream's knowledge; return whether any stay.

    The latest comes first, as it may imply the others.
    """
    lane = s.placed[v].lane
    some = False
    learn_all(s, s.lanes[lane].known, lane)
    for k in range(n - 1, -1, -1):
        if s.keys[k] >= s.n_ops:
            continue
        producer = s.placed[s.op[s.keys[k]]]
        if s.lanes[producer.lane].place < s.keys[k]:
            learn(s, producer.lane, s.keys[k])
            learn_all(s, producer.known, lane)
            some = True
        else:
            s.keys[k] = -1
    return some


@native
def learn_all(s: LoweredCandidate, known: int, mine: int) -> None:
    """Learn the snapshot of an operator (-1: no snapshot) on all streams but one."""
    if known >= 0:
        op = s.placed[known]
        for k in range(op.snapshot, op.snapshot + op.n_clocks):
            clock = s.clocks[k]
            if clock.lane != mine:
                learn(s, clock.lane, clock.place)


@native
def learn(s: LoweredCandidate, lane: int, place: int) -> None:
    """Note up to which place a stream has run."""
    if s.lanes[lane].place < place:
        if s.lanes[lane].place < 0:
            s.clocks[s.top + s.n_touched].lane = lane
            s.n_touched += 1
        s.lanes[lane].place = place


@native
def has_room(s: LoweredCandidate, i: int) -> bool:
    """Return whether another snapshot has room; unused snapshots are dropped if that frees half of it."""
    if s.top + s.n_lanes <= s.room:
        return True
    find_asked(s, i)
    s.top = 0
    for k in range(s.first, i):
        op = s.placed[s.by_device[k]]
        if op.asked != i:
            op.n_clocks = 0
        for j in range(op.n_clocks):
            to = s.clocks[s.top + j]
            clock = s.clocks[op.snapshot + j]
            to.lane = clock.lane
            to.place = clock.place
        op.snapshot = s.top
        s.top += op.n_clocks
    return 2 * (s.top + s.n_lanes) <= s.room


@native
def find_asked(s: LoweredCandidate, i: int) -> None:
    """Mark the snapshots that streams, or operators of the device from place `i` on, may ask for."""
    device = s.home[s.by_device[i]]
    for k in range(s.n_lanes):
        if s.lanes[k].known >= 0:
            s.placed[s.lanes[k].known].asked = i
    for k in range(i, s.n_ops):
        v = s.by_device[k]
        if s.home[v] != device:
            break
        for q in range(s.in_ptr[v], s.in_ptr[v + 1]):
            snapshot = s.placed[s.src[s.in_edge[q]]].known
            if snapshot >= 0:
                s.placed[snapshot].asked = i


@native
def drop_copy_waits(s: LoweredCandidate) -> None:
    """Drop waits for copies where the same waiter has waited for a later one on its stream.

    A wait holds the consumer's stream; with blocking transfers it holds the whole host thread.
    """
    order = s.by_lane
    if s.blocking:
        if s.one_thread:
            order = s.op
        else:
            order = s.by_device
    for k in range(s.n_copies):
        s.copy_lanes[s.sent[k].lane].waiter = -1
    for i in range(s.n_ops):
        v = order[i]
        op = s.placed[v]
        waiter = op.lane
        if s.blocking:
            waiter = 0 if s.one_thread else s.home[v]
        start = s.in_ptr[v]
        end = s.in_ptr[v] + op.n_waits
        first = end
        while first > start and s.kept[first - 1] >= s.n_ops:
            first -= 1
            copy = s.kept[first] - s.n_ops
            lane = s.copy_lanes[s.sent[copy].lane]
            if lane.waiter == waiter and lane.copy >= copy:
                s.kept[first] = -1
            else:
                lane.copy = copy
                lane.waiter = waiter
        at = first
        for k in range(first, end):
            if s.kept[k] >= 0:
                s.kept[at] = s.kept[k]
                at += 1
        op.n_waits = at - start


@piece("lowering of schedules")
def write(s: LoweredCandidate) -> None:
    """Write the instructions of each host thread."""
    s.n_written = 0
    if s.one_thread:
        threads = s.op
    else:
        threads = s.by_device
    for i in range(s.n_ops):
        write_operator(s, threads[i])
        s.thread_ptr[1 if s.one_thread else s.home[threads[i]] + 1] = s.n_written


@native
def write_operator(s: LoweredCandidate, v: int) -> None:
    """Write the host's instructions for an operator."""
    op = s.placed[v]
    first_event = s.n_op_events
    here = s.home[v]
    stream = s.stream[op.position]
    if s.barrier[op.position]:
        emit(s, BARRIER, here, -1, -1)
    for k in range(s.in_ptr[v], s.in_ptr[v] + op.n_waits):
        copy = s.kept[k] - s.n_ops
        if copy >= 0:
            event = first_event + copy
        else:
            event = s.placed[s.op[s.kept[k]]].event
        if copy >= 0 and s.blocking:
            emit(s, SYNC, here, -1, event)
        else:
            emit(s, WAIT, here, stream, event)
    for k in range(s.launch_ptr[v], s.launch_ptr[v + 1]):
        emit(s, LAUNCH, here, stream, k)
    if op.event >= 0:
        emit(s, RECORD, here, stream, op.event)
    if s.blocking and op.n_copies > 0:  # the host itself waits for the data
        emit(s, SYNC, here, -1, op.event)
    for c in range(op.first_copy, op.first_copy + op.n_copies):
        on = s.homes[here].copy_stream + 1 + s.sent[c].lane
        if not s.blocking:
            emit(s, WAIT, here, on, op.event)
        emit(s, COPY, here, on, c)
        emit(s, RECORD, here, on, first_event + c)
        s.copies[c] = v
        s.copies[s.n_copies + c] = s.home[s.dst[s.sent[c].edge]]


@native
def emit(s: LoweredCandidate, action: int, device: int, stream: int, argument: int) -> None:
    """Write an instruction."""
    row = s.n_written
    s.action[row] = action
    s.place[row] = device
    s.place[s.n_rows + row] = stream
    s.place[2 * s.n_rows + row] = argument
    s.n_written += 1


@native
def sort(keys: Column[i8], n: int) -> None:
    """Sort `n` numbers (Shell's way: by insertion if they are few)."""
    if n < 2:  # as nearly always
        return
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
