"""The lowering in machine code: `simsched.lowering` lays out the columns and calls `run`."""

from typing import Any

from simsched.lowering.columns import group, sort, word
from simsched.lowering.layout import (
    ACTION,
    AT,
    BARRIER_BEFORE,
    BLOCKING,
    BY_DEVICE,
    BY_LANE,
    COPY_COUNT,
    COPY_EDGE,
    COPY_ENDS,
    COPY_LANE,
    COPY_LANE_START,
    COPY_OF_EDGE,
    DEVICE,
    DEVICE_PTR,
    DONE,
    DST,
    EVENT,
    EXACT_STREAMS,
    FILL,
    FIRST_COPY,
    HOME,
    IN_EDGE,
    IN_PTR,
    KEPT,
    KEYS,
    LANE,
    LANE_AT,
    LANE_PTR,
    LANES_KNOWN,
    LANES_OF_DEVICE,
    LAUNCH_PTR,
    MADE,
    MINIMAL,
    N_COMPUTE_EVENTS,
    N_COPIES,
    N_DEVICES,
    N_EDGES,
    N_LANES,
    N_OPS,
    N_ROWS,
    N_SIZES,
    ONE_THREAD,
    OP,
    OUT_EDGE,
    OUT_PTR,
    PHASE,
    PLACE,
    PLAN,
    POSITION,
    PREPARE,
    SIZE_OF,
    SLOT_LANE,
    SPARSE,
    SRC,
    STAGE,
    STAGED,
    STATUS,
    STREAM,
    STREAM_LANE,
    THREAD_PTR,
    TOP,
    TOP_OF_DEVICE,
    TOP_STREAM,
    TURN,
    WAIT_COUNT,
    WRONG,
)
from simsched.lowering.waits import drop_copy_waits, find_waits
from simsched.machine_code import compiled
from simsched.machine_columns import bytes_at, ints, longs
from simsched.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT


@compiled
def _place(t: Any) -> int:
    """Read the rows of a candidate; number the streams in use by device and stream. Return the new status."""
    n, n_devices = t[N_OPS], t[N_DEVICES]
    op, device, stream = ints(t[OP]), ints(t[DEVICE]), ints(t[STREAM])
    position, home = ints(t[POSITION]), ints(t[HOME])
    top, of_stream, lane_at = ints(t[TOP_OF_DEVICE]), ints(t[STREAM_LANE]), ints(t[LANE_AT])
    first = ints(t[DEVICE_PTR])
    for i in range(n):
        u, d = op[i], device[i]
        if u < 0 or u >= n or d < 0 or d >= n_devices or stream[i] < 0 or position[u] >= 0:
            t[AT] = i
            return WRONG
        position[u], home[u] = i, d
        if top[d] < stream[i]:
            top[d] = stream[i]
    if not t[LANES_KNOWN]:
        size = 0
        for d in range(n_devices):
            first[d] = size
            size += top[d] + 1
            if size > 2 * n + 1024:
                return SPARSE
        for k in range(size):
            of_stream[k] = 0
        for i in range(n):
            of_stream[first[device[i]] + stream[i]] = 1
        lanes = 0
        for k in range(size):
            if of_stream[k]:
                of_stream[k] = lanes
                lanes += 1
        for i in range(n):
            lane_at[i] = of_stream[first[device[i]] + stream[i]]
        t[N_LANES] = lanes
    by_device, by_lane, lane = ints(t[BY_DEVICE]), ints(t[BY_LANE]), ints(t[LANE])
    group(device, n, first, n_devices, by_device)
    group(lane_at, n, ints(t[LANE_PTR]), t[N_LANES], by_lane)
    for i in range(n):
        by_device[i], by_lane[i] = op[by_device[i]], op[by_lane[i]]
        lane[op[i]] = lane_at[i]
    for k in range(t[N_LANES]):
        ints(t[LANES_OF_DEVICE])[home[by_lane[ints(t[LANE_PTR])[k]]]] += 1
    return DONE


@compiled
def _find_barriers(t: Any) -> None:
    """Mark the operators that open a stage behind a barrier.

    None stands between two stages of a device of one group each that use the same stream.
    """
    stage, position, lane = ints(t[STAGE]), ints(t[POSITION]), ints(t[LANE])
    by_device, home, barrier = ints(t[BY_DEVICE]), ints(t[HOME]), ints(t[BARRIER_BEFORE])
    device, begun, opener = -1, -1, -1
    only, before = -1, -1
    for i in range(t[N_OPS] + 1):
        v = by_device[i] if i < t[N_OPS] else -1
        if v < 0 or home[v] != device or stage[position[v]] != begun:
            if opener >= 0 and (only < 0 or only != before):  # the stage that is over now
                barrier[opener] = 1
            if v < 0:
                break
            opener = v if home[v] == device else -1  # the first stage of a device needs none
            device, begun, before = home[v], stage[position[v]], only
            only = lane[v]
        barrier[v] = 0
        if lane[v] != only:
            only = -1  # of the lanes of this stage, if there is only one


@compiled
def _find_copies(t: Any) -> None:
    """Give each copy a number, by producer as the host threads issue them, and a stream.

    A stream for each (stream of the producer, destination), behind the compute streams: producers of
    one stream end in the order of their copies, so no copy waits behind one whose data is not there
    yet. Copies of exact time load no engine that could make them queue: they take turns on several.
    """
    n, n_edges, minimal = t[N_OPS], t[N_EDGES], t[MINIMAL]
    keys, n_sizes = longs(t[KEYS]), t[N_SIZES]
    order = ints(t[OP] if t[ONE_THREAD] else t[BY_DEVICE])
    home, ptr, edges = ints(t[HOME]), ints(t[OUT_PTR]), ints(t[OUT_EDGE])
    dst, size = ints(t[DST]), ints(t[SIZE_OF])
    first, count, copy_of = ints(t[FIRST_COPY]), ints(t[COPY_COUNT]), ints(t[COPY_OF_EDGE])
    copy_edge = ints(t[COPY_EDGE])
    copies = 0
    for i in range(n):
        u = order[i]
        first[u] = copies
        m = 0
        for k in range(ptr[u], ptr[u + 1]):
            e = edges[k]
            if home[dst[e]] != home[u]:
                keys[m] = (home[dst[e]] * n_sizes + size[e]) * n_edges + e
                m += 1
        if m > 1:
            sort(keys, word(m))
        last = -1
        for k in range(m):
            kind = keys[k] // n_edges
            e = keys[k] - kind * n_edges
            if kind != last or not minimal:
                copy_edge[copies] = e
                copies += 1
                last = kind
            copy_of[e] = copies - 1
        count[u] = copies - first[u]
    t[N_COPIES] = copies

    by_lane, lane_ptr, copy_lane = ints(t[BY_LANE]), ints(t[LANE_PTR]), ints(t[COPY_LANE])
    top = ints(t[TOP_OF_DEVICE])
    turn, lane_of = ints(t[TURN]), ints(t[SLOT_LANE])
    start = ints(t[COPY_LANE_START])
    lanes, device, top_stream = 0, -1, 0
    for k in range(t[N_LANES]):
        if home[by_lane[lane_ptr[k]]] != device:
            device = home[by_lane[lane_ptr[k]]]
            start[device] = lanes
        m = 0
        for i in range(lane_ptr[k], lane_ptr[k + 1]):
            u = by_lane[i]
            for c in range(first[u], first[u] + count[u]):
                e = copy_edge[c]
                to = home[dst[e]]
                on = to * EXACT_STREAMS
                if size[e] & 1:
                    on += turn[to] % EXACT_STREAMS
                turn[to] += 1
                copy_lane[c] = on
                if lane_of[on] < 0:
                    lane_of[on] = 0
                    keys[m] = on
                    m += 1
        if m == 0:
            continue
        sort(keys, word(m))
        for i in range(m):
            lane_of[keys[i]] = lanes
            lanes += 1
        if top_stream < top[device] + lanes - start[device]:
            top_stream = top[device] + lanes - start[device]
        for i in range(lane_ptr[k], lane_ptr[k + 1]):
            u = by_lane[i]
            for c in range(first[u], first[u] + count[u]):
                copy_lane[c] = lane_of[copy_lane[c]]
        for i in range(m):
            lane_of[keys[i]] = -1
            turn[keys[i] // EXACT_STREAMS] = 0
    t[TOP_STREAM] = top_stream


@compiled
def _count(t: Any) -> None:
    """Give the events that operators record their numbers, and count the instructions."""
    n, ptr, kept = t[N_OPS], ints(t[IN_PTR]), ints(t[KEPT])
    count, op = ints(t[WAIT_COUNT]), ints(t[OP])
    event, barrier, copies = ints(t[EVENT]), ints(t[BARRIER_BEFORE]), ints(t[COPY_COUNT])
    events, rows = 0, longs(t[LAUNCH_PTR])[n] + 3 * t[N_COPIES]
    if t[BLOCKING]:
        rows -= t[N_COPIES]
    for v in range(n):
        for k in range(ptr[v], ptr[v] + count[v]):
            if kept[k] < n:
                event[op[kept[k]]] = 0
        rows += count[v]
        if t[STAGED]:
            rows += barrier[v]
    for u in range(n):
        if event[u] >= 0 or copies[u] > 0:
            event[u] = events
            events += 1
            if t[BLOCKING] and copies[u] > 0:
                rows += 1
    t[N_COMPUTE_EVENTS] = events
    t[N_ROWS] = rows + events


@compiled
def _emit(t: Any, row: int, action: int, device: int, stream: int, argument: int) -> int:
    """Write an instruction; return the next row."""
    place = ints(t[PLACE])
    bytes_at(t[ACTION])[row] = action
    place[row] = device
    place[t[N_ROWS] + row] = stream
    place[2 * t[N_ROWS] + row] = argument
    return row + 1


@compiled
def _fill(t: Any) -> None:
    """Write the instructions of each host thread, and the copies."""
    n, staged, blocking = t[N_OPS], t[STAGED], t[BLOCKING]
    first_event = t[N_COMPUTE_EVENTS]
    order = ints(t[OP] if t[ONE_THREAD] else t[BY_DEVICE])
    op, position, home = ints(t[OP]), ints(t[POSITION]), ints(t[HOME])
    event = ints(t[EVENT])
    ptr, kept, count = ints(t[IN_PTR]), ints(t[KEPT]), ints(t[WAIT_COUNT])
    launches = longs(t[LAUNCH_PTR])
    first, copies, copy_lane = ints(t[FIRST_COPY]), ints(t[COPY_COUNT]), ints(t[COPY_LANE])
    ends, top, start = ints(t[COPY_ENDS]), ints(t[TOP_OF_DEVICE]), ints(t[COPY_LANE_START])
    # all of 64 bits: one version of `_emit` is compiled
    launch, record, wait = word(LAUNCH), word(RECORD), word(WAIT)
    copy, barrier, sync = word(COPY), word(BARRIER), word(SYNC)
    none, row = word(-1), word(0)
    for i in range(n):
        v = order[i]
        here, stream, mine = word(home[v]), word(ints(t[STREAM])[position[v]]), word(event[v])
        if staged and ints(t[BARRIER_BEFORE])[v]:
            row = _emit(t, row, barrier, here, none, none)
        for k in range(ptr[v], ptr[v] + count[v]):
            if kept[k] < n:
                row = _emit(t, row, wait, here, stream, word(event[op[kept[k]]]))
            elif blocking:
                row = _emit(t, row, sync, here, none, first_event + kept[k] - n)
            else:
                row = _emit(t, row, wait, here, stream, first_event + kept[k] - n)
        for k in range(launches[v], launches[v + 1]):
            row = _emit(t, row, launch, here, stream, k)
        if mine >= 0:
            row = _emit(t, row, record, here, stream, mine)
        if blocking and copies[v]:  # the host itself waits for the data
            row = _emit(t, row, sync, here, none, mine)
        for c in range(first[v], first[v] + copies[v]):
            on = top[here] + 1 + copy_lane[c] - start[here]
            if not blocking:
                row = _emit(t, row, wait, here, on, mine)
            row = _emit(t, row, copy, here, on, c)
            row = _emit(t, row, record, here, on, first_event + c)
            ends[c], ends[t[N_COPIES] + c] = v, home[ints(t[DST])[ints(t[COPY_EDGE])[c]]]
        longs(t[THREAD_PTR])[1 if t[ONE_THREAD] else here + 1] = row


def lower_columns(table: int) -> None:
    """Do what the table asks for, see `layout`."""
    t = longs(table)
    phase = t[PHASE]
    t[STATUS] = DONE
    if phase == PREPARE:
        group(ints(t[SRC]), t[N_EDGES], ints(t[OUT_PTR]), t[N_OPS], ints(t[OUT_EDGE]))
        group(ints(t[DST]), t[N_EDGES], ints(t[IN_PTR]), t[N_OPS], ints(t[IN_EDGE]))
    elif phase == FILL:
        _fill(t)
    else:
        if phase == PLAN:
            t[STATUS] = _place(t)
            if t[STATUS] != DONE:
                return
            if t[STAGED]:
                _find_barriers(t)
            _find_copies(t)
            t[AT] = t[TOP] = t[MADE] = 0
        find_waits(t)
        if t[STATUS] == DONE:
            if t[MINIMAL]:
                drop_copy_waits(t)
            _count(t)
