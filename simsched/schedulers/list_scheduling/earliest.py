"""Operators placed by when they can start."""

from math import inf

from simsched.base.jit import piece
from simsched.schedulers.list_scheduling.heap import pop, push
from simsched.schedulers.list_scheduling.placing import arrival, begin, put
from simsched.schedulers.list_scheduling.tables import Lists


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
