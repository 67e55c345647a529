"""Streams in compiled code: their idle intervals, and what starting an operator on one of them costs."""

from typing import Any

from simsched.lowering.columns import word
from simsched.machine_code import compiled
from simsched.machine_columns import floats, ints, longs
from simsched.schedulers.list_scheduling.layout import (
    CLOCK,
    COSTS,
    FINISH,
    FREE,
    GAP,
    GAP_AT,
    GAP_COUNT,
    GAP_END,
    GAP_ROOM,
    GAP_START,
    GAPS_END,
    HOP,
    IN_EDGE,
    IN_PTR,
    INSERTION,
    ISSUED,
    KERNELS,
    LANE,
    LAUNCH,
    N_STREAMS,
    RECORD,
    SEEN,
    SRC,
    WAIT,
    WAITED_FOR,
    WORK,
)


@compiled
def find_gap(t: Any, slot: int, there: float, us: float) -> int:
    """Return the number of the first idle interval of a stream that an operator fits into, -1 if there is none."""
    start, end = floats(t[GAP_START]), floats(t[GAP_END])
    at, n = ints(t[GAP_AT])[slot], ints(t[GAP_COUNT])[slot]
    low, high = word(0), word(n)
    while low < high:  # the first that ends when the inputs are there, or later
        middle = (low + high) >> 1
        if end[at + middle] >= there:
            high = middle
        else:
            low = middle + 1
    found: int = word(-1)
    for k in range(low, n):
        t[WORK] += 1
        if max(start[at + k], there) + us <= end[at + k]:
            found = word(k)
            break
    return found


@compiled
def gap_start(t: Any, slot: int, gap: int, there: float) -> float:
    """Return when an operator starts in an idle interval."""
    return float(max(floats(t[GAP_START])[ints(t[GAP_AT])[slot] + gap], there))


@compiled
def use(t: Any, slot: int, gap: int, start: float, end: float) -> None:
    """Take a part of an idle interval of a stream, or (`gap` -1) of the time behind its last operator."""
    free = floats(t[FREE])
    if gap < 0:
        if t[INSERTION] and start > free[slot]:
            _open(t, slot, word(ints(t[GAP_COUNT])[slot]), free[slot], start)
        free[slot] = end
        return
    starts, ends, count = floats(t[GAP_START]), floats(t[GAP_END]), ints(t[GAP_COUNT])
    at = ints(t[GAP_AT])[slot] + gap
    if start > starts[at]:
        behind = ends[at]
        ends[at] = start
        if end < behind:
            _open(t, slot, gap + 1, end, behind)
    elif end < ends[at]:
        starts[at] = end
    else:
        count[slot] -= 1
        for k in range(at, ints(t[GAP_AT])[slot] + count[slot]):
            starts[k], ends[k] = starts[k + 1], ends[k + 1]


@compiled
def _open(t: Any, slot: int, number: int, start: float, end: float) -> None:
    """Add an idle interval before that of a number.

    Those of a stream lie side by side; where no room is left they move to the end of all and get twice as much.
    """
    starts, ends = floats(t[GAP_START]), floats(t[GAP_END])
    base, count, room = ints(t[GAP_AT]), ints(t[GAP_COUNT]), ints(t[GAP_ROOM])
    if count[slot] == room[slot]:
        at = t[GAPS_END]
        for k in range(count[slot]):
            starts[at + k], ends[at + k] = starts[base[slot] + k], ends[base[slot] + k]
        base[slot], room[slot] = at, 2 * room[slot] + 4
        t[GAPS_END] += room[slot]
    at = base[slot]
    for k in range(at + count[slot], at + number, -1):
        starts[k], ends[k] = starts[k - 1], ends[k - 1]
    starts[at + number], ends[at + number] = start, end
    count[slot] += 1


@compiled
def _waits_issued(t: Any, i: int, slot: int) -> float:
    """Return when the host has issued the waits of an operator on a stream; asked once for each stream."""
    ptr, edges, src = ints(t[IN_PTR]), ints(t[IN_EDGE]), ints(t[SRC])
    lane, waited_for, seen, costs = ints(t[LANE]), ints(t[WAITED_FOR]), longs(t[SEEN]), floats(t[COSTS])
    clock, visit = costs[CLOCK], i * t[N_STREAMS] + slot + 1
    for q in range(ptr[i], ptr[i + 1]):
        p = src[edges[q]]
        if lane[p] != slot and seen[p] != visit:
            seen[p] = visit
            clock += costs[WAIT]
            if not waited_for[p]:
                clock += costs[RECORD]
    return float(clock)


@compiled
def charged_start(t: Any, i: int, slot: int) -> float:
    """Return when an operator starts on a stream if launches and events cost time, and write when it is `ISSUED`."""
    ptr, edges, src = ints(t[IN_PTR]), ints(t[IN_EDGE]), ints(t[SRC])
    lane, finish, costs, free = ints(t[LANE]), floats(t[FINISH]), floats(t[COSTS]), floats(t[FREE])
    issued = _waits_issued(t, i, slot)
    costs[ISSUED] = issued + costs[LAUNCH] * ints(t[KERNELS])[i]
    start = max(issued + costs[LAUNCH], free[slot] + costs[GAP])
    for q in range(ptr[i], ptr[i + 1]):
        p = src[edges[q]]
        if lane[p] != slot:
            start = max(start, finish[p] + costs[HOP])
    return float(start)


@compiled
def charge(t: Any, i: int, slot: int, issued: float) -> None:
    """Let the host be busy until an operator on a stream is issued."""
    ptr, edges, src = ints(t[IN_PTR]), ints(t[IN_EDGE]), ints(t[SRC])
    lane = ints(t[LANE])
    floats(t[COSTS])[CLOCK] = issued
    for q in range(ptr[i], ptr[i + 1]):
        p = src[edges[q]]
        if lane[p] != slot:
            ints(t[WAITED_FOR])[p] = 1
