"""The clock of the compiled engine: instants, timers, lists of those who wait; what `environment` is to the reference.

Lanes, host threads, the timers of devices and links, the dispatchers of devices and the sharing
of links are numbered through, in this order: each waits in one list, or is to go on in one queue
or at one later time.
"""

from typing import Any

import numpy as np

from simsched.simulator.compiled.contention import end_of_instant
from simsched.simulator.compiled.layout import COMPLETE, RELEASE
from simsched.simulator.compiled.tables import (
    compiled,
    later_at,
    next_at,
    queue_at,
    span_at,
    timer_at,
)


@compiled
def push(s: Any, time: float, phase: int, who: int) -> None:
    """Let one go on at a time in us, in a phase of that instant."""
    if time <= s.limit:
        go_on(s, phase, who)
        return
    s.count += 1
    i = s.n_later
    s.n_later = i + 1
    while i > 0:
        above = later_at(s, (i - 1) >> 1)
        if above.time <= time:  # of equal times the earlier pushed is the first
            break
        row = later_at(s, i)
        row.time, row.key, row.who = above.time, above.key, above.who
        i = (i - 1) >> 1
    row = later_at(s, i)
    row.time, row.key, row.who = time, s.count * 8 + phase, who


@compiled
def go_on(s: Any, phase: int, who: int) -> None:
    """Let one go on in this instant, as the last of a phase so far."""
    queue = queue_at(s, phase)
    next_at(s, who).v = -1
    if queue.head < 0:
        queue.head = who
    else:
        next_at(s, queue.tail).v = who
    queue.tail = who


@compiled
def _pop_later(s: Any) -> None:
    """Move the earliest of the later ones into its queue."""
    first = later_at(s, 0)
    go_on(s, first.key & 7, first.who)
    n = s.n_later - 1
    s.n_later = n
    last = later_at(s, n)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        below = later_at(s, child)
        if child + 1 < n:
            other = later_at(s, child + 1)
            if other.time < below.time or (other.time == below.time and other.key < below.key):
                child += 1
                below = other
        if below.time > last.time or (below.time == last.time and below.key > last.key):
            break
        row = later_at(s, i)
        row.time, row.key, row.who = below.time, below.key, below.who
        i = child
    row = later_at(s, i)
    row.time, row.key, row.who = last.time, last.key, last.who


@compiled
def open_instant(s: Any) -> bool:
    """Go to the earliest time at which anything happens; return whether there is one."""
    now = timer_at(s, 1).v
    if s.n_later > 0 and later_at(s, 0).time < now:
        now = later_at(s, 0).time
    if now == np.inf:
        return False
    s.now = now
    s.limit = limit = end_of_instant(now)
    while s.n_later > 0 and later_at(s, 0).time <= limit:
        _pop_later(s)
    while timer_at(s, 1).v <= limit:
        i = 1
        while i < s.n_timers:
            i = 2 * i
            if timer_at(s, i).v > limit:
                i += 1
        set_timer(s, i - s.n_timers, np.inf)
        go_on(s, COMPLETE, s.n_lanes + s.n_hosts + i - s.n_timers)
    return True


@compiled
def set_timer(s: Any, d: int, time: float) -> None:
    """Set the one timer of a device, or of the links, to a time in us; inf calls it off."""
    if time <= s.limit:
        go_on(s, COMPLETE, s.n_lanes + s.n_hosts + d)
        time = np.inf
    i = s.n_timers + d
    timer_at(s, i).v = time
    while i > 1:
        i >>= 1
        least = min(timer_at(s, 2 * i).v, timer_at(s, 2 * i + 1).v)
        if timer_at(s, i).v == least:
            break
        timer_at(s, i).v = least


@compiled
def join(s: Any, last: int, who: int) -> int:
    """Let one wait behind the last of a list, which is closed to a ring: the last knows the first; return the new last.

    An empty list ends with -1.
    """
    if last < 0:
        next_at(s, who).v = who
    else:
        next_at(s, who).v = next_at(s, last).v
        next_at(s, last).v = who
    return who


@compiled
def wake(s: Any, last: int) -> None:
    """Let all go on who wait in a list, which the caller empties."""
    if last < 0:
        return
    first = next_at(s, last).v
    queue = queue_at(s, RELEASE)
    if queue.head < 0:
        queue.head = first
    else:
        next_at(s, queue.tail).v = first
    queue.tail = last
    next_at(s, last).v = -1


@compiled
def add_span(
    s: Any,
    kind: int,
    item: int,
    op: int,
    device: int,
    stream: int,
    start: float,
    end: float,
    ready: float,
    solo: float,
    cause: int,
) -> int:
    """Write a span and return its row."""
    row = s.n_spans
    span = span_at(s, row)
    span.kind, span.item, span.op, span.device, span.stream, span.cause = kind, item, op, device, stream, cause
    span.start, span.end, span.ready, span.solo = start, end, ready, solo
    s.n_spans = row + 1
    return int(row)
