"""The clock of the compiled engine: processes that continue in this instant, at later times, or wait in a list."""

from math import inf

from simsched.base.jit import native
from simsched.simulator.contention import end_of_instant
from simsched.simulator.state import PHASES, ClockTable

COMPLETE, RELEASE, HOST, SHARE, DISPATCH = range(PHASES)
"""Phases of an instant, as in `reference`."""


def number_processes(n_lanes: int, n_hosts: int, n_devices: int, n_collectives: int) -> dict[str, int]:
    """Return the numbers of processes as a `ClockTable` has them, and the size of its timers."""
    first_timer = n_lanes + n_hosts
    first_dispatcher = first_timer + n_devices + 1  # behind the timer of links
    link_sharing = first_dispatcher + n_devices
    return {
        "first_host": n_lanes,
        "first_timer": first_timer,
        "first_dispatcher": first_dispatcher,
        "link_sharing": link_sharing,
        "first_collective": link_sharing + 1,
        "n_processes": link_sharing + 1 + n_collectives,
        "n_timers": 1 << n_devices.bit_length(),
    }


@native
def push(clock: ClockTable, time: float, phase: int, process: int) -> None:
    """Schedule a process at a time in us, in a phase of that instant."""
    if time <= clock.limit:
        go_on(clock, phase, process)
        return
    clock.count += 1
    i = clock.n_later
    clock.n_later += 1
    while i > 0 and clock.later[(i - 1) >> 1].time > time:  # on equal times the process that was pushed first is first
        i = _move(clock, (i - 1) >> 1, i)
    row = clock.later[i]
    row.time = time
    row.key = clock.count * 8 + phase
    row.process = process


@native
def _move(clock: ClockTable, start: int, end: int) -> int:
    """Move a row of the heap; return its old place."""
    a = clock.later[start]
    b = clock.later[end]
    b.time = a.time
    b.key = a.key
    b.process = a.process
    return start


@native
def go_on(clock: ClockTable, phase: int, process: int) -> None:
    """Schedule a process in this instant, as the last of a phase."""
    clock.queues[phase] = join(clock, clock.queues[phase], process)


@native
def _is_earlier(clock: ClockTable, i: int, k: int) -> bool:
    a = clock.later[i]
    b = clock.later[k]
    return a.time < b.time or (a.time == b.time and a.key < b.key)


@native
def open_instant(clock: ClockTable) -> bool:
    """Advance to the earliest time at which a process continues; return whether there is one."""
    now = clock.timers[1]
    if clock.n_later > 0 and clock.later[0].time < now:
        now = clock.later[0].time
    if now == inf:
        return False
    clock.now = now
    clock.limit = end_of_instant(now)
    while clock.n_later > 0 and clock.later[0].time <= clock.limit:
        go_on(clock, clock.later[0].key & 7, clock.later[0].process)
        clock.n_later -= 1
        n = clock.n_later
        i = 0
        child = 1
        while child < n:
            if child + 1 < n and _is_earlier(clock, child + 1, child):
                child += 1
            if _is_earlier(clock, n, child):
                break
            i = _move(clock, child, i)
            child = 2 * i + 1
        _move(clock, n, i)
    while clock.timers[1] <= clock.limit:
        i = 1
        while i < clock.n_timers:
            i = 2 * i
            if clock.timers[i] > clock.limit:
                i += 1
        timer = i - clock.n_timers
        set_timer(clock, timer, inf)
        go_on(clock, COMPLETE, clock.first_timer + timer)
    return True


@native
def set_timer(clock: ClockTable, timer: int, time: float) -> None:
    """Set the timer of a device, or of the links, whose number is that of devices, to a time in us; inf cancels it."""
    if time <= clock.limit:
        go_on(clock, COMPLETE, clock.first_timer + timer)
        time = inf
    i = clock.n_timers + timer
    clock.timers[i] = time
    while i > 1:
        i >>= 1
        least = min(clock.timers[2 * i], clock.timers[2 * i + 1])
        if clock.timers[i] == least:
            break
        clock.timers[i] = least


@native
def join(clock: ClockTable, last: int, process: int) -> int:
    """Append a process to a list, given its last process (-1: empty); return the new last process.

    A list is closed to a ring: the last knows the first.
    """
    clock.next[process] = process
    return _join_lists(clock, last, process)


@native
def _join_lists(clock: ClockTable, a: int, b: int) -> int:
    """Append the list that ends with b to the list that ends with a; return the last process of both."""
    if a >= 0 and b >= 0:
        clock.next[a], clock.next[b] = clock.next[b], clock.next[a]
    return b if b >= 0 else a


@native
def wake(clock: ClockTable, last: int) -> int:
    """Schedule all processes of a list in this instant; return the empty list."""
    clock.queues[RELEASE] = _join_lists(clock, clock.queues[RELEASE], last)
    return -1
