"""The clock of the compiled engine: processes that continue in this instant, at later times, or wait in a list."""

from math import inf

from simsched.base.jit import native
from simsched.simulator.contention import end_of_instant
from simsched.simulator.state import PHASES, State

COMPLETE, RELEASE, HOST, SHARE, DISPATCH = range(PHASES)
"""Phases of an instant, as in `reference`."""


@native
def push(s: State, time: float, phase: int, who: int) -> None:
    """Schedule a process at a time in us, in a phase of that instant."""
    if time <= s.limit:
        go_on(s, phase, who)
        return
    s.count += 1
    i = s.n_later
    s.n_later += 1
    while i > 0 and s.later[(i - 1) >> 1].time > time:  # on equal times the process that was pushed first is first
        i = _move(s, (i - 1) >> 1, i)
    row = s.later[i]
    row.time = time
    row.key = s.count * 8 + phase
    row.who = who


@native
def _move(s: State, start: int, end: int) -> int:
    """Move a row of the heap; return its old place."""
    a = s.later[start]
    b = s.later[end]
    b.time = a.time
    b.key = a.key
    b.who = a.who
    return start


@native
def go_on(s: State, phase: int, who: int) -> None:
    """Schedule a process in this instant, as the last of a phase."""
    s.queues[phase] = join(s, s.queues[phase], who)


@native
def _is_earlier(s: State, i: int, k: int) -> bool:
    a = s.later[i]
    b = s.later[k]
    return a.time < b.time or (a.time == b.time and a.key < b.key)


@native
def open_instant(s: State) -> bool:
    """Advance to the earliest time at which a process continues; return whether there is one."""
    now = s.timers[1]
    if s.n_later > 0 and s.later[0].time < now:
        now = s.later[0].time
    if now == inf:
        return False
    s.now = now
    s.limit = end_of_instant(now)
    while s.n_later > 0 and s.later[0].time <= s.limit:
        go_on(s, s.later[0].key & 7, s.later[0].who)
        s.n_later -= 1
        n = s.n_later
        i = 0
        child = 1
        while child < n:
            if child + 1 < n and _is_earlier(s, child + 1, child):
                child += 1
            if _is_earlier(s, n, child):
                break
            i = _move(s, child, i)
            child = 2 * i + 1
        _move(s, n, i)
    while s.timers[1] <= s.limit:
        i = 1
        while i < s.n_timers:
            i = 2 * i
            if s.timers[i] > s.limit:
                i += 1
        set_timer(s, i - s.n_timers, inf)
        go_on(s, COMPLETE, s.n_lanes + s.n_hosts + i - s.n_timers)
    return True


@native
def set_timer(s: State, d: int, time: float) -> None:
    """Set the timer of a device, or of the links, to a time in us; infinity cancels it."""
    if time <= s.limit:
        go_on(s, COMPLETE, s.n_lanes + s.n_hosts + d)
        time = inf
    i = s.n_timers + d
    s.timers[i] = time
    while i > 1:
        i >>= 1
        least = min(s.timers[2 * i], s.timers[2 * i + 1])
        if s.timers[i] == least:
            break
        s.timers[i] = least


@native
def join(s: State, last: int, who: int) -> int:
    """Append a process to a list, given its last process (-1: empty); return the new last process.

    A list is closed to a ring: the last knows the first.
    """
    s.next[who] = who
    return _join_lists(s, last, who)


@native
def _join_lists(s: State, a: int, b: int) -> int:
    """Append the list that ends with b to the list that ends with a; return the last process of both."""
    if a >= 0 and b >= 0:
        s.next[a], s.next[b] = s.next[b], s.next[a]
    return b if b >= 0 else a


@native
def wake(s: State, last: int) -> int:
    """Schedule all processes of a list in this instant; return the empty list."""
    s.queues[RELEASE] = _join_lists(s, s.queues[RELEASE], last)
    return -1
