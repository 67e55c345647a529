"""Operators placed by priority, each where it ends first."""

from math import inf

from simsched.base.jit import piece
from simsched.model.lowering.sorting import sort
from simsched.schedulers.list_scheduling.heap import pop, push
from simsched.schedulers.list_scheduling.streams import charge, charged_start, find_gap, use
from simsched.schedulers.list_scheduling.tables import Lists


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
    s.n_ready, s.n_released, s.next_turn, s.gaps_end, s.stuck, s.busy = 0, 0, 0, 0, 0, 0.0
    for d in range(s.n_devices):
        device = s.devices[d]
        device.idle, device.n_waiting, device.n_arrived = 0.0, 0, 0
    for k in range(s.n_devices * s.n_streams):
        stream = s.streams[k]
        stream.free, stream.n_gaps, stream.room = -inf if s.charged else 0.0, 0, 0
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
