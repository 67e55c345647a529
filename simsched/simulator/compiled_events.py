"""Events of the compiled engine: the two heaps, timers and lists of waiters; what `environment` is to the reference."""

from typing import Any

from simsched.simulator.compiled_contention import end_of_instant
from simsched.simulator.compiled_layout import CODES, COMPLETE, PHASE, TO_TIMER
from simsched.simulator.compiled_tables import compiled, device_at, instant_at, later_at, next_at, span_at, waiters_at


@compiled
def push(s: Any, time: float, phase: int, code: int, what: int) -> None:
    """Schedule an event at a time in us and a phase."""
    s.count += 1
    key = phase * PHASE + s.count
    payload = what * CODES + code
    if time <= s.limit:
        _into_instant(s, key, payload)
        return
    i = s.n_later
    s.n_later = i + 1
    while i > 0:
        above = later_at(s, (i - 1) >> 1)
        if above.time <= time:
            break
        _set_later(later_at(s, i), above.time, above.key, above.payload)
        i = (i - 1) >> 1
    _set_later(later_at(s, i), time, key, payload)


@compiled
def _set_later(row: Any, time: float, key: int, payload: int) -> None:
    row.time, row.key, row.payload = time, key, payload


@compiled
def _set_instant(row: Any, key: int, payload: int) -> None:
    row.key, row.payload = key, payload


@compiled
def _into_instant(s: Any, key: int, payload: int) -> None:
    i = s.n_instant
    s.n_instant = i + 1
    while i > 0:
        above = instant_at(s, (i - 1) >> 1)
        if above.key < key:
            break
        _set_instant(instant_at(s, i), above.key, above.payload)
        i = (i - 1) >> 1
    _set_instant(instant_at(s, i), key, payload)


@compiled
def pop_instant(s: Any) -> tuple[int, int]:
    """Take the first event of the instant: its key and payload."""
    found = instant_at(s, 0).key, instant_at(s, 0).payload
    n = s.n_instant - 1
    s.n_instant = n
    last = instant_at(s, n)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and instant_at(s, child + 1).key < instant_at(s, child).key:
            child += 1
        below = instant_at(s, child)
        if below.key > last.key:
            break
        _set_instant(instant_at(s, i), below.key, below.payload)
        i = child
    _set_instant(instant_at(s, i), last.key, last.payload)
    return found


@compiled
def _later_into_instant(s: Any) -> None:
    """Move the earliest of the later events into the instant."""
    _into_instant(s, later_at(s, 0).key, later_at(s, 0).payload)
    n = s.n_later - 1
    s.n_later = n
    last = later_at(s, n)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and later_at(s, child + 1).time < later_at(s, child).time:
            child += 1
        below = later_at(s, child)
        if below.time >= last.time:
            break
        _set_later(later_at(s, i), below.time, below.key, below.payload)
        i = child
    _set_later(later_at(s, i), last.time, last.key, last.payload)


@compiled
def open_instant(s: Any) -> bool:
    """Go to the earliest time at which anything happens; return whether there is one."""
    found = s.n_later > 0
    now = later_at(s, 0).time if found else 0.0
    for d in range(s.n_devices + 1):
        device = device_at(s, d)
        if device.timer_set and (not found or device.timer < now):
            found = True
            now = device.timer
    if not found:
        return False
    s.now = now
    s.limit = limit = end_of_instant(now)
    while s.n_later > 0 and later_at(s, 0).time <= limit:
        _later_into_instant(s)
    for d in range(s.n_devices + 1):
        device = device_at(s, d)
        if device.timer_set and device.timer <= limit:
            device.timer_set = 0
            _into_instant(s, device.timer_key, d * CODES + TO_TIMER)
    return True


@compiled
def set_timer(s: Any, d: int, time: float) -> None:
    """Set the one timer of a device; the one before it is called off."""
    device = device_at(s, d)
    s.count += 1
    device.timer, device.timer_key = time, COMPLETE * PHASE + s.count
    if time <= s.limit:
        device.timer_set = 0
        _into_instant(s, device.timer_key, d * CODES + TO_TIMER)
    else:
        device.timer_set = 1


@compiled
def clear_timer(s: Any, d: int) -> None:
    """Call the timer of a device off."""
    device_at(s, d).timer_set, device_at(s, d).timer_key = 0, -1


@compiled
def join(s: Any, waiters: int, who: int) -> None:
    """Let a lane, or a host (numbered behind the lanes), wait at the end of a list."""
    row = waiters_at(s, waiters)
    next_at(s, who).v = -1
    if row.head < 0:
        row.head = who
    else:
        next_at(s, row.tail).v = who
    row.tail = who


@compiled
def take(s: Any, waiters: int) -> int:
    """Empty a list of waiters and return the first of them, or -1."""
    first = waiters_at(s, waiters).head
    waiters_at(s, waiters).head = -1
    return int(first)


@compiled
def add_span(
    s: Any,
    kind: int,
    item: int,
    op: int,
    device: int,
    stream: int,
    start: float,
    ready: float,
    solo: float,
    cause: int,
) -> int:
    """Write a span that ends now and return its row."""
    row = s.n_spans
    span = span_at(s, row)
    span.kind, span.item, span.op, span.device, span.stream, span.cause = kind, item, op, device, stream, cause
    span.start, span.end, span.ready, span.solo = start, s.now, ready, solo
    s.n_spans = row + 1
    return int(row)
