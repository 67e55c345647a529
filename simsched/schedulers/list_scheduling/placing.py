"""Operators placed one by one on the streams of devices, compiled: tables, longest paths, heaps, idle intervals."""

from math import inf

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, piece
from simsched.model.lowering.sorting import sort


class Listed(Row):
    """An operator."""

    start: f8
    finish: f8
    seen: i8  # number of the last visit
    slot: i4  # its stream, numbered by device; -1 before it is placed
    missing: i4  # inputs that are not placed yet
    waited_for: i4  # whether another stream waits for it


class Device(Row):
    """A device."""

    idle: f8  # when its first stream is free
    row: i4  # of its times
    allowed: i4
    n_waiting: i4
    n_arrived: i4


class Stream(Row):
    """A stream of a device."""

    free: f8  # end of its last operator
    first: i8  # of its idle intervals, which lie side by side, with room for one behind each operator
    n_gaps: i4


class Gap(Row):
    """An idle interval."""

    start: f8
    end: f8


class Lists(Table):
    """Operators that are placed one by one."""

    n_ops: i8
    n_devices: i8
    n_streams: i8  # of each device
    limit: i8  # of the work in one call
    work: i8
    n_placed: i8  # 0: to begin anew
    n_ready: i8
    n_released: i8
    next_turn: i8
    stuck: i8  # an operator has no device that its inputs can get to
    insertion: i8
    in_turn: i8
    charged: i8
    # what a device charges in us, and until when its host is busy
    launch: f8
    record: f8
    wait: f8
    gap: f8
    hop: f8
    busy: f8
    # the best place for an operator so far
    best: f8
    start: f8
    end: f8
    issued: f8
    slot: i8
    at: i8  # place of the idle interval, -1 behind the last operator
    # the graph and the devices
    src: Column[i4]
    dst: Column[i4]
    order: Column[i4]
    out_ptr: Column[i8]
    out_edge: Column[i4]
    in_ptr: Column[i8]
    in_edge: Column[i4]
    kernels: Column[i4]
    exact: Column[f8]
    nbytes: Column[f8]
    latency: Column[f8]
    rate: Column[f8]
    time: Column[f8]
    devices: Rows[Device] = length("n_devices")
    # longest paths
    weight: Column[f8]
    beside: Column[f8]
    rank: Column[f8]
    ahead: Column[f8]
    # how operators are placed
    key: Column[f8]
    turn: Column[i4] = length("n_ops")
    draw_op: Column[f8]
    draw_stream: Column[f8]
    # what is placed
    ops: Rows[Listed] = length("n_ops")
    placed: Column[i4] = length("n_ops")
    released: Column[i8] = length("n_ops")
    streams: Rows[Stream] = length("n_devices * n_streams")
    gaps: Rows[Gap]
    heap: Column[i4]
    arrived: Column[i4]
    arrival: Column[f8]


def push(heap: Column[i4], n: int, i: int, key: Column[f8], turn: Column[i4]) -> None:
    """Add operator `i` to a heap of `n`."""
    at = n
    while at > 0 and not before(heap[(at - 1) >> 1], i, key, turn):
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = i


def pop(heap: Column[i4], n: int, key: Column[f8], turn: Column[i4]) -> int:
    """Remove the first operator of a heap, of which `n` are then left."""
    first, i, at = heap[0], heap[n], 0
    while 2 * at + 1 < n:
        below = 2 * at + 1
        if below + 1 < n and before(heap[below + 1], heap[below], key, turn):
            below += 1
        if before(i, heap[below], key, turn):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = i
    return first


def before(i: int, j: int, key: Column[f8], turn: Column[i4]) -> bool:
    """Return whether one operator comes before another one."""
    return key[i] < key[j] or (key[i] == key[j] and turn[i] < turn[j])


@piece("list schedulers")
def find_ranks(s: Lists) -> None:
    """Write the longest path from each operator to an output: weights of operators, `beside` of edges."""
    for k in range(s.n_ops - 1, -1, -1):
        i, longest = s.order[k], 0.0
        for q in range(s.out_ptr[i], s.out_ptr[i + 1]):
            e = s.out_edge[q]
            longest = max(longest, s.beside[e] + s.rank[s.dst[e]])
        s.rank[i] = s.weight[i] + longest


@piece("list schedulers")
def look_ahead(s: Lists) -> None:
    """Write the optimistic cost table: what is left behind an operator that runs on a device, at best."""
    n = s.n_devices
    for k in range(s.n_ops - 1, -1, -1):
        i = s.order[k]
        for d in range(n):
            s.ahead[i * n + d] = 0.0
        for q in range(s.out_ptr[i], s.out_ptr[i + 1]):
            e, elsewhere = s.out_edge[q], inf
            for d in range(n):
                elsewhere = min(elsewhere, through(s, s.dst[e], d))
            elsewhere += s.beside[e]
            for d in range(n):
                s.ahead[i * n + d] = max(s.ahead[i * n + d], min(elsewhere, through(s, s.dst[e], d)))


def through(s: Lists, i: int, d: int) -> float:
    """Return what an operator on a device and what is left behind it take."""
    return s.ahead[i * s.n_devices + d] + s.time[s.devices[d].row * s.n_ops + i]


def find_gap(s: Lists, stream: Stream, there: float, us: float) -> int:
    """Return the place of the first idle interval of a stream that an operator fits into, -1 if there is none."""
    end = stream.first + stream.n_gaps
    low, high = stream.first, end
    while low < high:  # the first that ends when the inputs are there, or later
        middle = (low + high) >> 1
        if s.gaps[middle].end >= there:
            high = middle
        else:
            low = middle + 1
    for at in range(low, end):
        s.work += 1
        if max(s.gaps[at].start, there) + us <= s.gaps[at].end:
            return at
    return -1


def use(s: Lists, stream: Stream, at: int, start: float, end: float) -> None:
    """Take a part of the idle interval of a stream at a place, or (-1) of the time behind its last operator."""
    if at < 0:
        if s.insertion and start > stream.free:
            add_gap(s, stream, stream.n_gaps, stream.free, start)
        stream.free = end
        return
    gap, behind = s.gaps[at], s.gaps[at].end
    if start > gap.start:
        gap.end = start
        if end < behind:
            add_gap(s, stream, at + 1 - stream.first, end, behind)
    elif end < behind:
        gap.start = end
    else:
        stream.n_gaps -= 1
        for k in range(at, stream.first + stream.n_gaps):
            become(s.gaps[k], s.gaps[k + 1])


def add_gap(s: Lists, stream: Stream, number: int, start: float, end: float) -> None:
    """Add an idle interval before that of a number."""
    at = stream.first + number
    for k in range(stream.first + stream.n_gaps, at, -1):
        become(s.gaps[k], s.gaps[k - 1])
    s.gaps[at].start, s.gaps[at].end = start, end
    stream.n_gaps += 1


def become(gap: Gap, other: Gap) -> None:
    """Write an idle interval over another one."""
    gap.start, gap.end = other.start, other.end


def charged_start(s: Lists, i: int, slot: int) -> tuple[float, float]:
    """Return when an operator starts on a stream if launches and events cost time, and when the host has issued it."""
    issued, latest, visit = s.busy, -inf, i * s.n_streams + slot + 1
    for q in range(s.in_ptr[i], s.in_ptr[i + 1]):
        producer = s.ops[s.src[s.in_edge[q]]]
        if producer.slot != slot:
            latest = max(latest, producer.finish + s.hop)
            if producer.seen != visit:  # the host waits once for each
                producer.seen = visit
                issued += s.wait
                if not producer.waited_for:
                    issued += s.record
    start = max(issued + s.launch, s.streams[slot].free + s.gap, latest)
    return start, issued + s.launch * float(s.kernels[i])


def charge(s: Lists, i: int) -> None:
    """Let the host be busy until an operator on its best stream is issued."""
    s.busy = s.issued
    for q in range(s.in_ptr[i], s.in_ptr[i + 1]):
        producer = s.ops[s.src[s.in_edge[q]]]
        if producer.slot != s.slot:
            producer.waited_for = 1


@piece("list schedulers")
def place(s: Lists) -> None:
    """Place operators one by one, each where it ends first (what is ahead of it counts), up to the limit of work."""
    if s.n_placed == 0:
        begin(s)
    s.work = 0
    while s.n_placed < s.n_ops and s.work <= s.limit and not s.stuck:
        for k in range(s.n_released):
            add(s, s.released[k])
        i = take(s)
        find_best(s, i)
        if s.slot < 0:
            s.stuck = 1
        else:
            if s.charged:
                charge(s, i)
            use(s, s.streams[s.slot], s.at, s.start, s.end)
            put(s, i)


def begin(s: Lists) -> None:
    """Take back what is placed, and release the operators without inputs."""
    s.n_ready, s.n_released, s.next_turn, s.stuck, s.busy = 0, 0, 0, 0, 0.0
    for d in range(s.n_devices):
        device = s.devices[d]
        device.idle, device.n_waiting, device.n_arrived = 0.0, 0, 0
    for k in range(s.n_devices * s.n_streams):
        stream = s.streams[k]
        stream.free, stream.first, stream.n_gaps = -inf if s.charged else 0.0, k * (s.n_ops + 1), 0
    for i in range(s.n_ops):
        op = s.ops[i]
        op.slot, op.missing, op.seen, op.waited_for = -1, s.in_ptr[i + 1] - s.in_ptr[i], 0, 0
        if op.missing == 0:
            s.released[s.n_released] = i
            s.n_released += 1


def put(s: Lists, i: int) -> None:
    """Place an operator at its best place, and release those that it lets go on, lowest first."""
    op = s.ops[i]
    op.slot, op.start, op.finish = s.slot, s.start, s.end
    s.placed[s.n_placed] = i
    s.n_placed += 1
    s.n_released = 0
    for q in range(s.out_ptr[i], s.out_ptr[i + 1]):
        j = s.dst[s.out_edge[q]]
        s.ops[j].missing -= 1
        if s.ops[j].missing == 0:
            s.released[s.n_released] = j
            s.n_released += 1
    sort(s.released, s.n_released)


def add(s: Lists, i: int) -> None:
    """Add an operator to those that are ready."""
    if s.in_turn:
        s.turn[i] = s.next_turn
        s.next_turn += 1
    if s.draw_op is None:
        push(s.heap, s.n_ready, i, s.key, s.turn)
    else:
        s.heap[s.n_ready] = i
    s.n_ready += 1


def take(s: Lists) -> int:
    """Remove an operator from those that are ready: the first, or any."""
    s.n_ready -= 1
    if s.draw_op is None:
        return pop(s.heap, s.n_ready, s.key, s.turn)
    at = int(s.draw_op[s.n_placed] * float(s.n_ready + 1))
    i = s.heap[at]
    s.heap[at] = s.heap[s.n_ready]
    return i


def find_best(s: Lists, i: int) -> None:
    """Find the best place for an operator; no `slot`: its inputs get to no device."""
    first, last = 0, s.n_streams
    if s.draw_stream is not None:
        first = int(s.draw_stream[s.n_placed] * float(s.n_streams))
        last = first + 1
    s.best, s.slot = inf, -1
    for d in range(s.n_devices):
        there = arrival(s, i, d)
        if there < inf:
            compare(s, i, d, there, first, last)


def arrival(s: Lists, i: int, d: int) -> float:
    """Return when all that an operator reads from is on a device; infinity if no links lead there."""
    there = 0.0
    if not s.devices[d].allowed:
        return inf
    for q in range(s.in_ptr[i], s.in_ptr[i + 1]):
        e = s.in_edge[q]
        producer = s.ops[s.src[e]]
        end, home = producer.finish, producer.slot // s.n_streams
        if home != d:
            way = home * s.n_devices + d
            end += s.exact[e] if s.exact[e] == s.exact[e] else s.latency[way] + s.nbytes[e] / s.rate[way]
        there = max(there, end)
    return there


def compare(s: Lists, i: int, d: int, there: float, first: int, last: int) -> None:
    """Compare the streams of a device with the best place so far."""
    us = s.time[s.devices[d].row * s.n_ops + i]
    ahead = 0.0 if s.ahead is None else s.ahead[i * s.n_devices + d]
    for slot in range(d * s.n_streams + first, d * s.n_streams + last):
        stream, at = s.streams[slot], -1
        start, issued = max(stream.free, there), 0.0
        if s.insertion:
            at = find_gap(s, stream, there, us)
        if at >= 0:
            start = max(s.gaps[at].start, there)
        elif s.charged:
            start, issued = charged_start(s, i, slot)
        end = max(start + us, issued)
        s.work += 1
        if end + ahead < s.best:
            s.best, s.slot, s.start, s.end, s.at, s.issued = end + ahead, slot, start, end, at, issued
        if end == there + us or stream.free < 0.0:
            break  # on no stream of this device could it end earlier


@piece("list schedulers")
def place_earliest(s: Lists) -> None:
    """Place operators one by one, always the one that can start first, up to the limit of work."""
    if s.n_placed == 0:
        begin(s)
    s.work = 0
    while s.n_placed < s.n_ops and s.work <= s.limit and not s.stuck:
        s.work += s.n_devices + s.n_streams
        for k in range(s.n_released):
            expect(s, s.released[k])
        i, d = find_earliest(s)
        if i < 0:
            s.stuck = 1
        else:
            use_first_stream(s, i, d)
            put(s, i)


def expect(s: Lists, i: int) -> None:
    """Add an operator to those that each device waits for the inputs of."""
    for d in range(s.n_devices):
        at, device = d * s.n_ops, s.devices[d]
        s.arrival[at + i] = arrival(s, i, d)
        if s.arrival[at + i] < inf:
            push(s.heap[at:], device.n_waiting, i, s.arrival[at:], s.turn)
            device.n_waiting += 1


def find_earliest(s: Lists) -> tuple[int, int]:
    """Return the operator that can start first and its device, -1 if there is none; say when it starts."""
    op, device = -1, -1
    s.start = inf
    for d in range(s.n_devices):
        i = first_of(s, d)
        if i >= 0:
            start = max(s.arrival[d * s.n_ops + i], s.devices[d].idle)
            if start < s.start or (op >= 0 and start == s.start and s.turn[i] < s.turn[op]):
                s.start, op, device = start, i, d
    return op, device


def first_of(s: Lists, d: int) -> int:
    """Return the operator that could start first on a device, -1 if none can.

    Of those whose inputs are there before a stream is idle the first in turn; else that whose inputs are there first.
    """
    device, arrival = s.devices[d], s.arrival[d * s.n_ops :]
    waiting, arrived = s.heap[d * s.n_ops :], s.arrived[d * s.n_ops :]
    while device.n_waiting > 0 and (s.ops[waiting[0]].slot >= 0 or arrival[waiting[0]] <= device.idle):
        device.n_waiting -= 1
        i = pop(waiting, device.n_waiting, arrival, s.turn)
        if s.ops[i].slot < 0:
            push(arrived, device.n_arrived, i, s.key, s.turn)
            device.n_arrived += 1
    while device.n_arrived > 0 and s.ops[arrived[0]].slot >= 0:
        device.n_arrived -= 1
        pop(arrived, device.n_arrived, s.key, s.turn)
    if device.n_arrived > 0:
        return arrived[0]
    return waiting[0] if device.n_waiting > 0 else -1


def use_first_stream(s: Lists, i: int, d: int) -> None:
    """Take the first stream of a device that is free, and say when the next one will be."""
    device, first = s.devices[d], d * s.n_streams
    s.slot = first
    while s.streams[s.slot].free > s.start:
        s.slot += 1
    s.end = s.start + s.time[device.row * s.n_ops + i]
    s.streams[s.slot].free = device.idle = s.end
    for k in range(first, first + s.n_streams):
        device.idle = min(device.idle, s.streams[k].free)
