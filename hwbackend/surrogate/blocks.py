"""The block scheduler of the surrogate in machine code: SM by SM, block by block.

A block has some of itself LEFT to do, at a RATE that follows from who shares its SM and from how much of DRAM all
blocks of the device ask for. Rates are found anew on an SM when one of its blocks starts or ends, and on all SMs of a
device when the slowdown of its DRAM has moved by more than `_STEP`.
"""

from typing import Any, Final

from hwbackend.surrogate.layout import (
    ADVANCE,
    ARRIVAL,
    ARRIVE,
    COMPUTE,
    COPIED,
    DEVICE,
    DIRTY,
    DRAM,
    DUE,
    END,
    ENDED,
    FREE_BLOCKS,
    FREE_REGISTERS,
    FREE_SHARED,
    FREE_WARPS,
    HELD,
    INTERFERENCE,
    IS_DIRTY,
    ISSUE,
    JITTER,
    LEFT,
    MEMORY,
    MOST_BLOCKS,
    MOST_SMS,
    N_DEVICES,
    N_DIRTY,
    N_ENDED,
    N_HELD,
    N_JITTER,
    N_QUEUED,
    N_ROWS,
    N_RUNNING,
    NEXT,
    NEXT_JITTER,
    NOW,
    NUMBERS,
    PHASE,
    PRIORITY,
    QUEUE,
    RATE,
    REGISTERS,
    RESHARE,
    RESIDENT,
    RESIDENT_KERNELS,
    ROOM,
    ROW,
    SHARED,
    SHIFT,
    SINCE,
    SLOW,
    SM_START,
    SM_TRAFFIC,
    START,
    STUCK,
    TRAFFIC,
    UNISSUED,
    UNTIL,
    WARPS,
)
from simsched.machine_code import compiled
from simsched.machine_columns import floats, longs

_STEP: Final = 0.01
_DONE: Final = 1e-9  # of a block: rounding
_SURE: Final = 1e-6  # of a block: long enough to be seen in any time
_NEVER: Final = 1e300  # us


@compiled
def _before(t: Any, a: int, b: int) -> bool:
    """Return whether kernel a goes before kernel b: by priority, arrival, place among the launches."""
    priority, arrival = longs(t[PRIORITY]), floats(t[ARRIVAL])
    if priority[a] != priority[b]:
        return bool(priority[a] < priority[b])
    if arrival[a] != arrival[b]:
        return bool(arrival[a] < arrival[b])
    return bool(a < b)


@compiled
def _arrive(t: Any, row: int, d: int) -> None:
    """Queue a kernel on its device."""
    queue, n = longs(t[QUEUE]), longs(t[N_QUEUED])
    base = d * t[N_ROWS]
    i = n[d]
    while i > 0 and _before(t, row, queue[base + i - 1]):
        queue[base + i] = queue[base + i - 1]
        i -= 1
    queue[base + i] = row
    n[d] += 1


@compiled
def _touch(t: Any, d: int, sm: int, now: float) -> None:
    """Bring the blocks of an SM up to now, and note that their rates are to be found anew."""
    is_dirty, n_dirty = longs(t[IS_DIRTY]), longs(t[N_DIRTY])
    if is_dirty[sm]:
        return
    is_dirty[sm] = 1
    longs(t[DIRTY])[longs(t[SM_START])[d] + n_dirty[d]] = sm
    n_dirty[d] += 1
    since, left, rate = floats(t[SINCE]), floats(t[LEFT]), floats(t[RATE])
    base = sm * t[MOST_BLOCKS]
    for i in range(base, base + longs(t[N_HELD])[sm]):
        left[i] -= rate[i] * (now - since[sm])
    since[sm] = now


@compiled
def _set_room(t: Any, d: int, sm: int) -> None:
    """Note what room there is on an SM."""
    room, half = longs(t[ROOM]), t[MOST_SMS]
    base, i = 2 * half * d, half + sm - longs(t[SM_START])[d]
    free = longs(t[FREE_WARPS])[sm] * SHIFT + longs(t[FREE_BLOCKS])[sm]
    room[base + i] = free if longs(t[FREE_BLOCKS])[sm] > 0 else -1
    while i > 1:
        i >>= 1
        most = max(room[base + 2 * i], room[base + 2 * i + 1])
        if room[base + i] == most:
            return
        room[base + i] = most


@compiled
def _set_due(t: Any, d: int, sm: int, time: float) -> None:
    """Note when the first block of an SM ends."""
    due, half = floats(t[DUE]), t[MOST_SMS]
    base, i = 2 * half * d, half + sm - longs(t[SM_START])[d]
    due[base + i] = time
    while i > 1:
        i >>= 1
        first = min(due[base + 2 * i], due[base + 2 * i + 1])
        if due[base + i] == first:
            return
        due[base + i] = first


@compiled
def _first_due(t: Any, d: int) -> int:
    """Return the SM on which a block ends first, of equal times the first SM."""
    due, half = floats(t[DUE]), t[MOST_SMS]
    base, i = 2 * half * d, 1
    while i < half:
        i *= 2
        if due[base + i] > due[base + i + 1]:
            i += 1
    return int(longs(t[SM_START])[d] + i - half)


@compiled
def _fits(t: Any, row: int, sm: int) -> bool:
    """Return whether a block of a kernel fits on an SM."""
    return bool(
        longs(t[FREE_WARPS])[sm] >= longs(t[WARPS])[row]
        and longs(t[FREE_BLOCKS])[sm] > 0
        and longs(t[FREE_REGISTERS])[sm] >= longs(t[REGISTERS])[row]
        and longs(t[FREE_SHARED])[sm] >= longs(t[SHARED])[row]
    )


@compiled
def _roomiest(t: Any, d: int, row: int) -> int:
    """Return the SM with most room for a block: free warps, then blocks, then the first; -1 where it does not fit."""
    room, half = longs(t[ROOM]), t[MOST_SMS]
    base, i = 2 * half * d, 1
    if room[base + 1] < longs(t[WARPS])[row] * SHIFT:
        return -1
    while i < half:
        i *= 2
        if room[base + i] < room[base + i + 1]:
            i += 1
    first = longs(t[SM_START])[d]
    best = first + i - half
    if _fits(t, row, best):
        return int(best)
    best, most = -1, -1  # registers or shared memory are short there
    for sm in range(first, longs(t[SM_START])[d + 1]):
        if room[base + half + sm - first] > most and _fits(t, row, sm):
            best, most = sm, room[base + half + sm - first]
    return best


@compiled
def _take(t: Any, d: int, sm: int, row: int, sign: int) -> None:
    """Take what a block needs off an SM (1), or give it back (-1)."""
    longs(t[FREE_WARPS])[sm] -= sign * longs(t[WARPS])[row]
    longs(t[FREE_BLOCKS])[sm] -= sign
    longs(t[FREE_REGISTERS])[sm] -= sign * longs(t[REGISTERS])[row]
    longs(t[FREE_SHARED])[sm] -= sign * longs(t[SHARED])[row]
    longs(t[N_HELD])[sm] += sign
    longs(t[RESIDENT])[row] += sign
    _set_room(t, d, sm)


@compiled
def _dispatch(t: Any, d: int, freed: int, now: float) -> None:
    """Let the head of the queue place what fits; only when it has placed all is the next kernel looked at.

    `freed` is the SM on which there is more room than before, or -1.
    """
    queue, n, running, stuck = longs(t[QUEUE]), longs(t[N_QUEUED]), longs(t[N_RUNNING]), longs(t[STUCK])
    unissued, start = longs(t[UNISSUED]), floats(t[START])
    base, i = d * t[N_ROWS], 0
    while i < n[d]:
        row = queue[base + i]
        if start[row] < 0 and running[d] >= t[RESIDENT_KERNELS]:
            if stuck[d] == row:
                stuck[d] = -1  # what is freed meanwhile is not looked at for it
            i += 1
            continue
        while unissued[row] > 0:
            sm = -1
            if stuck[d] != row:
                sm = _roomiest(t, d, row)
            elif freed >= 0 and _fits(t, row, freed):  # there was room on no SM, so there is none on another
                sm = freed
            if sm < 0:
                stuck[d] = row
                return
            if start[row] < 0:
                start[row] = now
                running[d] += 1
            _touch(t, d, sm, now)
            slot = sm * t[MOST_BLOCKS] + longs(t[N_HELD])[sm]
            longs(t[HELD])[slot] = row
            floats(t[LEFT])[slot] = floats(t[JITTER])[t[NEXT_JITTER]]
            t[NEXT_JITTER] += 1
            if t[NEXT_JITTER] == t[N_JITTER]:
                t[NEXT_JITTER] = 0
            unissued[row] -= 1
            _take(t, d, sm, row, 1)
        n[d] -= 1
        for k in range(i, n[d]):
            queue[base + k] = queue[base + k + 1]


@compiled
def _rates(t: Any, d: int, sm: int) -> None:
    """Find the rates of the blocks on an SM and when the first of them ends; it has been brought up to now."""
    held, left, rate = longs(t[HELD]), floats(t[LEFT]), floats(t[RATE])
    compute, memory = floats(t[COMPUTE]), floats(t[MEMORY])
    issue, dram = floats(t[ISSUE]), floats(t[DRAM])
    base = sm * t[MOST_BLOCKS]
    end = base + longs(t[N_HELD])[sm]
    slow = floats(t[SLOW])[d]
    load, mixed = 0.0, False
    for i in range(base, end):
        load += issue[held[i]]
        mixed = mixed or held[i] != held[base]
    crowd = max(1.0, load)
    penalty = 1.0
    if mixed and max(load, slow) > 1.0:
        penalty += floats(t[NUMBERS])[INTERFERENCE]
    traffic, first = 0.0, _NEVER
    for i in range(base, end):
        row = held[i]
        busy = compute[row] * crowd
        traffic += dram[row] * (1.0 if busy <= memory[row] else memory[row] / busy)
        time = penalty * max(busy, memory[row] * slow)
        rate[i] = 1.0 / time
        first = min(first, left[i] * time)
    _set_due(t, d, sm, floats(t[SINCE])[sm] + max(0.0, first))
    floats(t[TRAFFIC])[d] += traffic - floats(t[SM_TRAFFIC])[sm]
    floats(t[SM_TRAFFIC])[sm] = traffic


@compiled
def _settle(t: Any, d: int, now: float) -> None:
    """Find the rates where they may have changed, and what happens next on the device."""
    dirty, is_dirty, n_dirty = longs(t[DIRTY]), longs(t[IS_DIRTY]), longs(t[N_DIRTY])
    first, last = longs(t[SM_START])[d], longs(t[SM_START])[d + 1]
    for i in range(first, first + n_dirty[d]):
        _rates(t, d, dirty[i])
        is_dirty[dirty[i]] = 0
    n_dirty[d] = 0
    slow = max(1.0, floats(t[TRAFFIC])[d] + floats(t[COPIED])[d])
    if abs(slow - floats(t[SLOW])[d]) > _STEP * slow:
        floats(t[SLOW])[d] = slow
        for sm in range(first, last):
            _touch(t, d, sm, now)
        for sm in range(first, last):
            _rates(t, d, sm)
            is_dirty[sm] = 0
        n_dirty[d] = 0
    floats(t[NEXT])[d] = floats(t[DUE])[2 * t[MOST_SMS] * d + 1]


@compiled
def _end_blocks(t: Any, d: int, sm: int, now: float) -> None:
    """Take the blocks of an SM that have ended off it, and note the kernels that ended with them."""
    held, left, rate = longs(t[HELD]), floats(t[LEFT]), floats(t[RATE])
    _touch(t, d, sm, now)
    base = sm * t[MOST_BLOCKS]
    i = base
    while i < base + longs(t[N_HELD])[sm]:
        if left[i] > _SURE or (left[i] > _DONE and now + left[i] / rate[i] > now):
            i += 1
            continue
        row = held[i]
        _take(t, d, sm, row, -1)
        last = base + longs(t[N_HELD])[sm]
        held[i], left[i], rate[i] = held[last], left[last], rate[last]
        if longs(t[RESIDENT])[row] == 0 and longs(t[UNISSUED])[row] == 0:
            floats(t[END])[row] = now
            longs(t[ENDED])[t[N_ENDED]] = row
            longs(t[N_RUNNING])[d] -= 1
            t[N_ENDED] += 1


@compiled
def _advance(t: Any) -> None:
    """Run until a kernel ends, or nothing happens any more before the time given."""
    upcoming, numbers = floats(t[NEXT]), floats(t[NUMBERS])
    t[N_ENDED] = 0
    while True:
        d = 0
        for other in range(1, t[N_DEVICES]):
            if upcoming[other] < upcoming[d]:
                d = other
        now = upcoming[d]
        if now > numbers[UNTIL] or now >= _NEVER:
            return
        numbers[NOW] = now
        sm = _first_due(t, d)
        _end_blocks(t, d, sm, now)
        _dispatch(t, d, sm, now)
        _settle(t, d, now)
        if t[N_ENDED]:
            return


def run_blocks(table: int) -> None:
    """Do what the table asks for, see `layout`."""
    t = longs(table)
    if t[PHASE] == ADVANCE:
        _advance(t)
    elif t[PHASE] == ARRIVE:
        d = longs(t[DEVICE])[t[ROW]]
        _arrive(t, t[ROW], d)
        _dispatch(t, d, -1, floats(t[NUMBERS])[NOW])
        _settle(t, d, floats(t[NUMBERS])[NOW])
    elif t[PHASE] == RESHARE:
        _settle(t, t[ROW], floats(t[NUMBERS])[NOW])
