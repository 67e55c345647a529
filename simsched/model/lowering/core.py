"""The lowering as kernels: `plan` a candidate, then `write` its program."""

from simsched.base.jit import piece
from simsched.model.lowering.candidate import EXACT_STREAMS, Candidate
from simsched.model.lowering.sorting import sort
from simsched.model.lowering.waits import drop_copy_waits, find_waits
from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT


@piece("lowering of schedules")
def plan(s: Candidate) -> None:
    """Find what the program of a candidate has, or go on with that where the clocks were full."""
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


def place(s: Candidate) -> None:
    """Read the rows of a candidate, up to one that is `wrong`."""
    s.wrong = -1
    for d in range(s.n_devices):
        home = s.homes[d]
        home.top_stream = -1
    for v in range(s.n_ops):
        op = s.placed[v]
        op.position, op.event, op.known = -1, -1, -1
    for i in range(s.n_ops):
        v, d, stream = s.op[i], s.device[i], s.stream[i]
        if v < 0 or v >= s.n_ops or d < 0 or d >= s.n_devices or stream < 0 or s.placed[v].position >= 0:
            s.wrong = i
            return
        s.placed[v].position, s.home[v] = i, d
        s.homes[d].top_stream = max(s.homes[d].top_stream, stream)


def find_lanes(s: Candidate) -> None:
    """Give a number to each stream in use; turn the rows in order by device, and by stream, into their operators."""
    n, lane, device, stream = s.n_ops, -1, -1, -1
    for i in range(n):
        k = s.by_lane[i]
        if s.device[k] != device or s.stream[k] != stream:
            device, stream = s.device[k], s.stream[k]
            lane += 1
            s.lanes[lane].first, s.lanes[lane].known, s.lanes[lane].place = i, -1, -1
        s.placed[s.op[k]].lane = lane
        s.by_lane[i], s.by_device[i] = s.op[k], s.op[s.by_device[i]]
    s.n_lanes = lane + 1
    s.lanes[s.n_lanes].first = n


def find_copies(s: Candidate) -> None:
    """Give each copy a number, by producer as the host threads issue them."""
    copies = 0
    threads = s.op if s.one_thread else s.by_device
    for i in range(s.n_ops):
        u = threads[i]
        op, n, last = s.placed[u], 0, -1
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


def choose_copy_lanes(s: Candidate) -> None:
    """Give each copy a stream: one for each (stream of the producer, destination), behind the compute streams.

    Producers of one stream end in the order of their copies, so no copy waits behind one whose data is not there yet.
    Copies of exact time load no engine that could make them queue: they take turns on several.
    """
    for k in range(s.n_devices * EXACT_STREAMS):
        s.lane_of[k] = -1
    s.top_stream, lanes, device = 0, 0, -1
    for lane in range(s.n_lanes):
        first, end, n = s.lanes[lane].first, s.lanes[lane + 1].first, 0
        if s.home[s.by_lane[first]] != device:
            device = s.home[s.by_lane[first]]
            s.homes[device].copy_stream = s.homes[device].top_stream - lanes
        for i in range(first, end):
            op = s.placed[s.by_lane[i]]
            for c in range(op.first_copy, op.first_copy + op.n_copies):
                e = s.sent[c].edge
                to = s.home[s.dst[e]]
                slot, home = to * EXACT_STREAMS, s.homes[to]
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


def count(s: Candidate) -> None:
    """Give the events that operators record their numbers, and count the instructions."""
    n, events, rows = s.n_ops, 0, s.launch_ptr[s.n_ops] + (2 if s.blocking else 3) * s.n_copies
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
    s.n_op_events, s.n_rows = events, rows + events


@piece("lowering of schedules")
def write(s: Candidate) -> None:
    """Write the instructions of each host thread."""
    s.n_written = 0
    threads = s.op if s.one_thread else s.by_device
    for i in range(s.n_ops):
        write_operator(s, threads[i])
        s.thread_ptr[1 if s.one_thread else s.home[threads[i]] + 1] = s.n_written


def write_operator(s: Candidate, v: int) -> None:
    """Write what the host issues for an operator."""
    op, first_event = s.placed[v], s.n_op_events
    here, stream = s.home[v], s.stream[op.position]
    if s.barrier[op.position]:
        emit(s, BARRIER, here, -1, -1)
    for k in range(s.in_ptr[v], s.in_ptr[v] + op.n_waits):
        copy = s.kept[k] - s.n_ops
        event = first_event + copy if copy >= 0 else s.placed[s.op[s.kept[k]]].event
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
        s.copies[c], s.copies[s.n_copies + c] = v, s.home[s.dst[s.sent[c].edge]]


def emit(s: Candidate, action: int, device: int, stream: int, argument: int) -> None:
    """Write an instruction."""
    row = s.n_written
    s.action[row] = action
    s.place[row], s.place[s.n_rows + row], s.place[2 * s.n_rows + row] = device, stream, argument
    s.n_written += 1
