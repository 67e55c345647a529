"""Which waits a program needs: compiled into `core`.

Waits of an operator are keys in rising order: the place of a producer on another stream of the
device, or the number of operators plus the number of a copy.
"""

from typing import Any

from simsched.lowering.columns import sort, word
from simsched.lowering.layout import (
    AT,
    BLOCKING,
    BY_DEVICE,
    BY_LANE,
    CLOCK,
    CLOCKS,
    COPY_LANE,
    COPY_OF_EDGE,
    CURRENT,
    FULL,
    HOME,
    IN_EDGE,
    IN_PTR,
    KEPT,
    KEYS,
    LANE,
    LANES_OF_DEVICE,
    MADE,
    MINIMAL,
    N_COPIES,
    N_OPS,
    ONE_THREAD,
    OP,
    POSITION,
    REACHED,
    REACHED_BY,
    ROOM,
    SNAPSHOT,
    SNAPSHOT_LENGTH,
    SNAPSHOT_START,
    SNAPSHOTS,
    SRC,
    STAGED,
    STATUS,
    TOP,
    TOUCHED,
    WAIT_COUNT,
)
from simsched.machine_code import compiled
from simsched.machine_columns import ints, longs


@compiled
def find_waits(t: Any) -> None:
    """Write the waits of every operator, those between streams of a device without what follows from others.

    A snapshot of a vector clock says up to which places other streams have run before any operator
    runs that stands behind the one it is named by. Stops where `CLOCKS` is full, to go on there.
    """
    n, minimal, staged = t[N_OPS], t[MINIMAL], t[STAGED]
    top, made = t[TOP], t[MADE]
    op, position, home = ints(t[OP]), ints(t[POSITION]), ints(t[HOME])
    lane, by_device = ints(t[LANE]), ints(t[BY_DEVICE])
    ptr, edges, src = ints(t[IN_PTR]), ints(t[IN_EDGE]), ints(t[SRC])
    copy_of = ints(t[COPY_OF_EDGE])
    kept, count, keys = ints(t[KEPT]), ints(t[WAIT_COUNT]), longs(t[KEYS])
    snapshot = ints(t[SNAPSHOT])
    current, starts, lengths = ints(t[CURRENT]), ints(t[SNAPSHOT_START]), ints(t[SNAPSHOT_LENGTH])
    clocks, clock, touched = longs(t[CLOCKS]), ints(t[CLOCK]), ints(t[TOUCHED])
    for i in range(t[AT], n):
        v = by_device[i]
        here, mine, start = home[v], lane[v], ptr[v]
        if i > 0 and home[by_device[i - 1]] != here:
            top = made = 0  # no clock reaches over to another device
        m, local = 0, 0
        for k in range(start, ptr[v + 1]):
            u = src[edges[k]]
            if home[u] != here:
                keys[m] = n + copy_of[edges[k]]
                m += 1
            elif lane[u] != mine and not staged:
                keys[m] = position[u]
                m += 1
                local += 1
        if m > 1:
            sort(keys, word(m))
        n_touched, fresh = 0, False
        if local > 0 and minimal:
            if top + ints(t[LANES_OF_DEVICE])[here] > t[ROOM]:
                t[STATUS], t[AT], t[TOP] = FULL, i, top
                t[MADE] = made
                return
            u, k = v, local
            known = current[mine]
            while True:  # first what the stream knows; then the latest producer first, as it may imply the others
                if known >= 0:
                    for j in range(starts[known], starts[known] + lengths[known]):
                        other, place = clocks[j] >> 32, clocks[j] & 0x7FFFFFFF
                        if other != mine and clock[other] < place:
                            if clock[other] < 0:
                                touched[n_touched] = other
                                n_touched += 1
                            clock[other] = place
                k -= 1
                known = -1
                if k < 0:
                    break
                u = op[keys[k]]
                if clock[lane[u]] < keys[k]:
                    if clock[lane[u]] < 0:
                        touched[n_touched] = lane[u]
                        n_touched += 1
                    clock[lane[u]] = keys[k]
                    known = snapshot[u]
                    fresh = True
                else:
                    keys[k] = -1
        at, last = start, -1
        for k in range(m):
            if keys[k] > last:
                last = keys[k]
                kept[at] = last
                at += 1
        count[v] = at - start
        if fresh:
            starts[v], lengths[v] = top, n_touched
            ints(t[SNAPSHOTS])[made] = v
            made += 1
            current[mine] = v
        for k in range(n_touched):
            other = touched[k]
            if fresh:
                clocks[top + k] = (other << 32) | clock[other]
            clock[other] = -1
        if fresh:
            top += n_touched
        snapshot[v] = current[mine]


@compiled
def drop_copy_waits(t: Any) -> None:
    """Drop waits for copies where the same waiter has waited for one behind it on its stream.

    A wait holds the consumer's stream; with blocking transfers it holds the whole host thread.
    """
    n, blocking, one_thread = t[N_OPS], t[BLOCKING], t[ONE_THREAD]
    ptr, kept, count = ints(t[IN_PTR]), ints(t[KEPT]), ints(t[WAIT_COUNT])
    copy_lane = ints(t[COPY_LANE])
    reached, by = ints(t[REACHED]), ints(t[REACHED_BY])
    order, waiters = ints(t[BY_LANE]), ints(t[LANE])
    if blocking:
        order, waiters = ints(t[OP] if one_thread else t[BY_DEVICE]), ints(t[HOME])
    for k in range(t[N_COPIES]):
        by[copy_lane[k]] = -1
    for i in range(n):
        v = order[i]
        waiter = 0 if blocking and one_thread else waiters[v]
        start, end = ptr[v], ptr[v] + count[v]
        first = end
        while first > start and kept[first - 1] >= n:
            first -= 1
            copy = kept[first] - n
            on = copy_lane[copy]
            if by[on] == waiter and reached[on] >= copy:
                kept[first] = -1
            else:
                reached[on], by[on] = copy, waiter
        at = first
        for k in range(first, end):
            if kept[k] >= 0:
                kept[at] = kept[k]
                at += 1
        count[v] = at - start
