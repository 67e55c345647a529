"""Which waits a program needs.

Waits of an operator are keys in rising order: the place of a producer on another stream of the device, or the number
of operators plus the number of a copy.
"""

from simsched.model.lowering.candidate import Candidate
from simsched.model.lowering.sorting import sort


def find_waits(s: Candidate) -> bool:
    """Write the waits of every operator, those between streams of a device without what follows from others.

    A snapshot says up to which places other streams have run before any operator runs that stands behind the one that
    makes it, on its stream. False where there is no room for another one, to go on there.
    """
    for i in range(s.at, s.n_ops):
        v = s.by_device[i]
        op = s.placed[v]
        if i == 0 or s.home[s.by_device[i - 1]] != s.home[v]:
            s.first, s.top = i, 0  # no clock reaches over to another device
        n, some = find_producers(s, v), False
        s.n_touched = 0
        if s.minimal and n > 0 and s.keys[0] < s.n_ops:
            if not has_room(s, i):
                s.at = i
                return False
            some = drop_implied(s, v, n)
        at, last = s.in_ptr[v], -1
        for k in range(n):
            if s.keys[k] > last:
                last = s.keys[k]
                s.kept[at] = last
                at += 1
        op.n_waits = at - s.in_ptr[v]
        for k in range(s.top, s.top + s.n_touched):
            clock = s.clocks[k]
            lane = s.lanes[clock.lane]
            clock.place, lane.place = lane.place, -1
        op.snapshot, op.n_clocks = s.top, s.n_touched if some else 0
        s.top += op.n_clocks
        if some:
            s.lanes[op.lane].known = v
        op.known = s.lanes[op.lane].known
    return True


def find_producers(s: Candidate, v: int) -> int:
    """Write what an operator could wait for as keys; return how many they are."""
    op, n = s.placed[v], 0
    for k in range(s.in_ptr[v], s.in_ptr[v + 1]):
        e, u = s.in_edge[k], s.src[s.in_edge[k]]
        if s.home[u] != s.home[v]:
            s.keys[n] = s.n_ops + s.copy_of[e]
            n += 1
        elif s.placed[u].lane != op.lane and not s.staged:
            s.keys[n] = s.placed[u].position
            n += 1
    sort(s.keys, n)
    return n


def drop_implied(s: Candidate, v: int, n: int) -> bool:
    """Drop producers on the device that have run if others have, or by what the stream knows; return whether any stay.

    The latest comes first, as it may imply the others.
    """
    mine, some = s.placed[v].lane, False
    learn_all(s, s.lanes[mine].known, mine)
    for k in range(n - 1, -1, -1):
        if s.keys[k] >= s.n_ops:
            continue
        producer = s.placed[s.op[s.keys[k]]]
        if s.lanes[producer.lane].place < s.keys[k]:
            learn(s, producer.lane, s.keys[k])
            learn_all(s, producer.known, mine)
            some = True
        else:
            s.keys[k] = -1
    return some


def learn_all(s: Candidate, known: int, mine: int) -> None:
    """Note what the snapshot of an operator (-1: of none) says of all streams but one."""
    if known >= 0:
        op = s.placed[known]
        for k in range(op.snapshot, op.snapshot + op.n_clocks):
            clock = s.clocks[k]
            if clock.lane != mine:
                learn(s, clock.lane, clock.place)


def learn(s: Candidate, lane: int, place: int) -> None:
    """Note up to which place a stream has run."""
    if s.lanes[lane].place < place:
        if s.lanes[lane].place < 0:
            s.clocks[s.top + s.n_touched].lane = lane
            s.n_touched += 1
        s.lanes[lane].place = place


def has_room(s: Candidate, i: int) -> bool:
    """Return whether another snapshot has room; snapshots that nobody asks for are dropped if that frees half of it."""
    if s.top + s.n_lanes <= s.room:
        return True
    find_asked(s, i)
    s.top = 0
    for k in range(s.first, i):
        op = s.placed[s.by_device[k]]
        if op.asked != i:
            op.n_clocks = 0
        for j in range(op.n_clocks):
            to, clock = s.clocks[s.top + j], s.clocks[op.snapshot + j]
            to.lane, to.place = clock.lane, clock.place
        op.snapshot = s.top
        s.top += op.n_clocks
    return 2 * (s.top + s.n_lanes) <= s.room


def find_asked(s: Candidate, i: int) -> None:
    """Mark the snapshots that streams, or operators of the device from place `i` on, may ask for."""
    device = s.home[s.by_device[i]]
    for k in range(s.n_lanes):
        if s.lanes[k].known >= 0:
            s.placed[s.lanes[k].known].asked = i
    for k in range(i, s.n_ops):
        v = s.by_device[k]
        if s.home[v] != device:
            break
        for q in range(s.in_ptr[v], s.in_ptr[v + 1]):
            known = s.placed[s.src[s.in_edge[q]]].known
            if known >= 0:
                s.placed[known].asked = i


def drop_copy_waits(s: Candidate) -> None:
    """Drop waits for copies where the same waiter has waited for one behind it on its stream.

    A wait holds the consumer's stream; with blocking transfers it holds the whole host thread.
    """
    order = s.by_lane
    if s.blocking:
        order = s.op if s.one_thread else s.by_device
    for k in range(s.n_copies):
        s.copy_lanes[s.sent[k].lane].waiter = -1
    for i in range(s.n_ops):
        v = order[i]
        op = s.placed[v]
        waiter = op.lane
        if s.blocking:
            waiter = 0 if s.one_thread else s.home[v]
        start, end = s.in_ptr[v], s.in_ptr[v] + op.n_waits
        first = end
        while first > start and s.kept[first - 1] >= s.n_ops:
            first -= 1
            copy = s.kept[first] - s.n_ops
            lane = s.copy_lanes[s.sent[copy].lane]
            if lane.waiter == waiter and lane.copy >= copy:
                s.kept[first] = -1
            else:
                lane.copy, lane.waiter = copy, waiter
        at = first
        for k in range(first, end):
            if s.kept[k] >= 0:
                s.kept[at] = s.kept[k]
                at += 1
        op.n_waits = at - start
