"""List scheduling in machine code: `draft` lays out the columns and calls `list_columns`."""

from math import inf
from typing import Any

from simsched.lowering.columns import group, sort, word
from simsched.machine_code import compiled
from simsched.machine_columns import floats, ints, longs
from simsched.schedulers.list_scheduling.heap import pop, push
from simsched.schedulers.list_scheduling.layout import (
    AHEAD,
    ALLOWED,
    ARRIVAL,
    ARRIVED,
    BESIDE,
    CHARGED,
    COST_AHEAD,
    COSTS,
    DONE,
    DRAW_OP,
    DRAW_STREAM,
    DST,
    EXACT,
    FINISH,
    FREE,
    HEAP,
    IDLE,
    IN_EDGE,
    IN_PTR,
    IN_TURN,
    INSERTION,
    ISSUED,
    KEY,
    LANE,
    LATENCY,
    LIMIT,
    LOOK_AHEAD,
    MISSING,
    MORE,
    N_ARRIVED,
    N_DEVICES,
    N_EDGES,
    N_OPS,
    N_PLACED,
    N_READY,
    N_STREAMS,
    N_WAITING,
    NBYTES,
    NEXT_TURN,
    ORDER,
    OUT_EDGE,
    OUT_PTR,
    PHASE,
    PLACE,
    PLACED,
    RANDOM_OP,
    RANDOM_STREAM,
    RANK,
    RATE,
    RELEASED,
    ROW,
    SRC,
    START,
    STATUS,
    STUCK,
    TIME,
    TURN,
    WEIGHT,
    WORK,
)
from simsched.schedulers.list_scheduling.streams import charge, charged_start, find_gap, gap_start, use


@compiled
def _rank(t: Any) -> None:
    """Write the longest path from each operator to an output: weights of operators, `BESIDE` of edges."""
    order, ptr, edges, dst = ints(t[ORDER]), ints(t[OUT_PTR]), ints(t[OUT_EDGE]), ints(t[DST])
    rank, weight, beside = floats(t[KEY]), floats(t[WEIGHT]), floats(t[BESIDE])
    for k in range(t[N_OPS] - 1, -1, -1):
        i = order[k]
        longest = 0.0
        for q in range(ptr[i], ptr[i + 1]):
            e = edges[q]
            longest = max(longest, beside[e] + rank[dst[e]])
        rank[i] = weight[i] + longest


@compiled
def _ahead(t: Any) -> None:
    """Write the optimistic cost table: what is left behind an operator that runs on a device, at best."""
    order, ptr, edges, dst = ints(t[ORDER]), ints(t[OUT_PTR]), ints(t[OUT_EDGE]), ints(t[DST])
    n, devices, row = t[N_OPS], t[N_DEVICES], ints(t[ROW])
    time, beside, ahead = floats(t[TIME]), floats(t[BESIDE]), floats(t[COST_AHEAD])
    for k in range(n - 1, -1, -1):
        i = order[k]
        for d in range(devices):
            ahead[i * devices + d] = 0.0
        for q in range(ptr[i], ptr[i + 1]):
            e = edges[q]
            j = dst[e]
            elsewhere = inf
            for d in range(devices):
                elsewhere = min(elsewhere, ahead[j * devices + d] + time[row[d] * n + j])
            elsewhere += beside[e]
            for d in range(devices):
                here = ahead[j * devices + d] + time[row[d] * n + j]
                ahead[i * devices + d] = max(ahead[i * devices + d], min(elsewhere, here))


@compiled
def _arrival(t: Any, i: int, d: int) -> float:
    """Return when all that an operator reads from is on a device; infinity if no links lead there."""
    ptr, edges, src, lane = ints(t[IN_PTR]), ints(t[IN_EDGE]), ints(t[SRC]), ints(t[LANE])
    finish, exact, nbytes = floats(t[FINISH]), floats(t[EXACT]), floats(t[NBYTES])
    latency, rate, streams = floats(t[LATENCY]), floats(t[RATE]), t[N_STREAMS]
    there = 0.0
    for q in range(ptr[i], ptr[i + 1]):
        e = edges[q]
        end = finish[src[e]]
        home = lane[src[e]] // streams
        if home != d:
            if exact[e] == exact[e]:
                end += exact[e]
            else:
                way = home * t[N_DEVICES] + d
                end += latency[way] + nbytes[e] / rate[way]
        there = max(there, end)
    return there


@compiled
def _put(t: Any, i: int, slot: int, start: float, end: float) -> int:
    """Place an operator, and write those that it lets go on, lowest first. Return how many they are."""
    ints(t[LANE])[i] = slot
    floats(t[START])[i], floats(t[FINISH])[i] = start, end
    ints(t[PLACED])[t[N_PLACED]] = i
    t[N_PLACED] += 1
    ptr, edges, dst = ints(t[OUT_PTR]), ints(t[OUT_EDGE]), ints(t[DST])
    missing, released = ints(t[MISSING]), longs(t[RELEASED])
    n = 0
    for q in range(ptr[i], ptr[i + 1]):
        j = dst[edges[q]]
        missing[j] -= 1
        if missing[j] == 0:
            released[n] = j
            n += 1
    if n > 1:
        sort(released, word(n))
    return n


@compiled
def _add(t: Any, i: int) -> None:
    """Add an operator to those that are ready."""
    heap, turn = ints(t[HEAP]), ints(t[TURN])
    if t[IN_TURN]:
        turn[i] = t[NEXT_TURN]
        t[NEXT_TURN] += 1
    if t[RANDOM_OP]:
        heap[t[N_READY]] = i
    else:
        push(heap, t[N_READY], i, floats(t[KEY]), turn)
    t[N_READY] += 1


@compiled
def _take(t: Any) -> int:
    """Remove an operator from those that are ready: the first, or any."""
    heap = ints(t[HEAP])
    t[N_READY] -= 1
    if not t[RANDOM_OP]:
        return pop(heap, t[N_READY], floats(t[KEY]), ints(t[TURN]))
    at = int(floats(t[DRAW_OP])[t[N_PLACED]] * (t[N_READY] + 1))
    i: int = word(heap[at])
    heap[at] = heap[t[N_READY]]
    return i


@compiled
def _place(t: Any) -> int:
    """Place operators one by one, each where it ends first (and what is ahead of it counts). Return the new status."""
    n, streams, n_streams = t[N_OPS], t[N_STREAMS], t[N_STREAMS]
    free, time, row = floats(t[FREE]), floats(t[TIME]), ints(t[ROW])
    while t[N_READY] > 0:
        if t[WORK] > t[LIMIT]:
            return MORE
        i = _take(t)
        first = 0
        if t[RANDOM_STREAM]:
            first = int(floats(t[DRAW_STREAM])[t[N_PLACED]] * streams)
            n_streams = first + 1
        best, at, begin, finish, within, busy = inf, word(-1), 0.0, 0.0, word(-1), 0.0
        for d in range(t[N_DEVICES]):
            there = _arrival(t, i, d) if ints(t[ALLOWED])[d] else inf
            if there == inf:
                continue
            us = time[row[d] * n + i]
            ahead = floats(t[COST_AHEAD])[i * t[N_DEVICES] + d] if t[LOOK_AHEAD] else 0.0
            for slot in range(d * streams + first, d * streams + n_streams):
                gap = find_gap(t, slot, there, us) if t[INSERTION] else word(-1)
                start, issued = max(free[slot], there), 0.0
                if gap >= 0:
                    start = gap_start(t, slot, gap, there)
                elif t[CHARGED]:
                    start = charged_start(t, i, slot)
                    issued = floats(t[COSTS])[ISSUED]
                end = max(start + us, issued)
                t[WORK] += 1
                if end + ahead < best:
                    best, at, begin, finish, within, busy = end + ahead, slot, start, end, gap, issued
                if end == there + us or free[slot] < 0.0:
                    break  # on no stream of this device could it end earlier
        if at < 0:
            return STUCK
        if t[CHARGED]:
            charge(t, i, at, busy)
        use(t, at, within, begin, finish)
        for k in range(_put(t, i, at, begin, finish)):
            _add(t, longs(t[RELEASED])[k])
    return DONE


@compiled
def _expect(t: Any, i: int) -> None:
    """Add an operator to those that each device waits for the inputs of."""
    n = t[N_OPS]
    for d in range(t[N_DEVICES]):
        arrival = floats(t[ARRIVAL] + 8 * d * n)
        arrival[i] = _arrival(t, i, d) if ints(t[ALLOWED])[d] else inf
        if arrival[i] < inf:
            push(ints(t[HEAP] + 4 * d * n), word(ints(t[N_WAITING])[d]), i, arrival, ints(t[TURN]))
            ints(t[N_WAITING])[d] += 1


@compiled
def _candidate(t: Any, d: int) -> int:
    """Return the operator that could start first on a device, -1 if none can.

    Of those whose inputs are there before a stream is idle the first in turn; else that whose inputs are there first.
    """
    n, lane, turn = t[N_OPS], ints(t[LANE]), ints(t[TURN])
    waiting, arrived = ints(t[HEAP] + 4 * d * n), ints(t[ARRIVED] + 4 * d * n)
    n_waiting, n_arrived = ints(t[N_WAITING]), ints(t[N_ARRIVED])
    arrival, key = floats(t[ARRIVAL] + 8 * d * n), floats(t[KEY])
    while n_waiting[d] > 0 and (lane[waiting[0]] >= 0 or arrival[waiting[0]] <= floats(t[IDLE])[d]):
        n_waiting[d] -= 1
        i = pop(waiting, word(n_waiting[d]), arrival, turn)
        if lane[i] < 0:
            push(arrived, word(n_arrived[d]), i, key, turn)
            n_arrived[d] += 1
    while n_arrived[d] > 0 and lane[arrived[0]] >= 0:
        n_arrived[d] -= 1
        pop(arrived, word(n_arrived[d]), key, turn)
    found: int = word(-1)
    if n_arrived[d] > 0:
        found = word(arrived[0])
    elif n_waiting[d] > 0:
        found = word(waiting[0])
    return found


@compiled
def _place_earliest(t: Any) -> int:
    """Place operators one by one, always the one that can start first. Return the new status."""
    n, streams, turn = t[N_OPS], t[N_STREAMS], ints(t[TURN])
    free, idle, time, row = floats(t[FREE]), floats(t[IDLE]), floats(t[TIME]), ints(t[ROW])
    while t[N_PLACED] < n:
        if t[WORK] > t[LIMIT]:
            return MORE
        t[WORK] += t[N_DEVICES] + streams
        best, op, device = inf, word(-1), word(-1)
        for d in range(t[N_DEVICES]):
            i = _candidate(t, d)
            if i < 0:
                continue
            start = max(floats(t[ARRIVAL])[d * n + i], idle[d])
            if start < best or (start == best and turn[i] < turn[op]):
                best, op, device = start, i, word(d)
        if op < 0:
            return STUCK
        slot = device * streams
        while free[slot] > best:
            slot += 1
        end = best + time[row[device] * n + op]
        free[slot] = end
        idle[device] = end
        for s in range(device * streams, (device + 1) * streams):
            idle[device] = min(idle[device], free[s])
        for k in range(_put(t, op, slot, best, end)):
            _expect(t, longs(t[RELEASED])[k])
    return DONE


@compiled
def _begin(t: Any) -> None:
    """Find the operators that are ready at first."""
    missing, ptr = ints(t[MISSING]), ints(t[IN_PTR])
    for i in range(t[N_OPS]):
        missing[i] = ptr[i + 1] - ptr[i]
    for i in range(t[N_OPS]):
        if missing[i] == 0:
            if t[PHASE] == PLACE:
                _add(t, word(i))
            else:
                _expect(t, word(i))


def list_columns(table: int) -> None:
    """Do what the table asks for, see `layout`."""
    t = longs(table)
    if t[STATUS] != MORE:
        group(ints(t[SRC]), t[N_EDGES], ints(t[OUT_PTR]), t[N_OPS], ints(t[OUT_EDGE]))
        group(ints(t[DST]), t[N_EDGES], ints(t[IN_PTR]), t[N_OPS], ints(t[IN_EDGE]))
        if t[PHASE] == RANK:
            _rank(t)
        elif t[PHASE] == AHEAD:
            _ahead(t)
        else:
            _begin(t)
    t[WORK] = 0
    t[STATUS] = DONE
    if t[PHASE] == PLACE:
        t[STATUS] = _place(t)
    elif t[PHASE] != RANK and t[PHASE] != AHEAD:
        t[STATUS] = _place_earliest(t)
