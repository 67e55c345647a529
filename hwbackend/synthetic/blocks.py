"""The block scheduler of the surrogate in machine code: SM by SM, block by block.

A block has some of itself left to do, at a rate that follows from who shares its SM and from how much of DRAM all
blocks of the device ask for. Rates are found anew on an SM when one of its blocks starts or ends, and on all SMs of a
device when the slowdown of its DRAM has moved by more than `_STEP`.
"""

from math import inf
from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, native, piece

ARRIVE, ADVANCE, RESHARE = range(3)
"""What a call does: queue a kernel on its device, run to the next end of a kernel, share DRAM anew."""
ROOM: Final = 64
"""An SM's room is its free warps times this, plus its free blocks; -1 if it has none of these."""
NEVER: Final = 1e300
"""us"""
_STEP: Final = 0.01
_DONE: Final = 1e-9  # of a block: rounding
_SURE: Final = 1e-6  # of a block: long enough to be seen in any time


class BlockDevice(Row):
    """A device, and the demand of its blocks and copies on DRAM."""

    traffic: f8
    copied: f8
    slow: f8  # for want of DRAM
    next: f8  # end of a block, in us
    first_sm: i8
    n_sms: i8
    n_queued: i8
    n_running: i8
    n_dirty: i8
    stuck: i8  # launch that found no room on any SM, or -1


class Sm(Row):
    """An SM: its free room, its blocks, and the time of their last update."""

    since: f8  # us
    traffic: f8
    warps: i8
    blocks: i8
    registers: i8
    shared: i8
    n_held: i8
    is_dirty: i8  # whether its rates are to be found anew


class BlockLaunch(Row):
    """A kernel: the demand of a block, and its progress; start and end are -1 before they are known."""

    compute: f8  # us
    memory: f8  # us
    issue: f8
    dram: f8
    arrival: f8
    start: f8
    end: f8
    device: i8
    priority: i8
    warps: i8
    registers: i8
    shared: i8
    unissued: i8
    resident: i8


class BlockRun(Table):
    """The devices and their kernels.

    A tree has `n_leaves` leaves, a power of two, of which the j-th is that of the device's j-th SM; place i holds the
    best of places 2i and 2i + 1, and leaf j is place n_leaves + j. `room` is a tree of the most room, `due` of the
    earliest end.
    """

    now: f8
    until: f8
    interference: f8
    phase: i8
    subject: i8  # launch that arrives, device that is shared anew
    n_devices: i8
    n_sms: i8
    n_launches: i8
    n_leaves: i8
    n_slots: i8  # of an SM
    n_ended: i8
    n_jitter: i8
    next_jitter: i8
    resident_kernels: i8
    jitter: Column[f8]  # of blocks, again and again
    devices: Rows[BlockDevice] = length("n_devices")
    sms: Rows[Sm] = length("n_sms")
    held: Column[i4] = length("n_sms * n_slots")  # launches of the blocks on each SM
    left: Column[f8] = length("n_sms * n_slots")  # parts of those blocks
    rate: Column[f8] = length("n_sms * n_slots")
    launches: Rows[BlockLaunch] = length("n_launches")
    queue: Column[i4] = length("n_devices * n_launches")
    dirty: Column[i4] = length("n_sms")
    ended: Column[i4] = length("n_launches")
    room: Column[i8] = length("2 * n_leaves * n_devices")
    due: Column[f8] = length("2 * n_leaves * n_devices")


@piece("surrogate device")
def run_blocks(s: BlockRun) -> None:
    """Run one phase."""
    if s.phase == ADVANCE:
        _advance(s)
    elif s.phase == ARRIVE:
        d = s.launches[s.subject].device
        _arrive(s, d, s.subject)
        _dispatch(s, d, -1)
        _settle(s, d)
    else:
        _settle(s, s.subject)


@native
def _advance(s: BlockRun) -> None:
    """Run until a kernel ends, or nothing happens any more before the time given."""
    s.n_ended = 0
    while s.n_ended == 0:
        d = 0
        for other in range(1, s.n_devices):
            if s.devices[other].next < s.devices[d].next:
                d = other
        if s.devices[d].next > s.until or s.devices[d].next >= NEVER:
            return
        s.now = s.devices[d].next
        sm = _first_due(s, d)
        _end_blocks(s, d, sm)
        _dispatch(s, d, sm)
        _settle(s, d)


@native
def _arrive(s: BlockRun, d: int, launch: int) -> None:
    """Queue a kernel on its device."""
    queue = s.queue[d * s.n_launches :]
    i = s.devices[d].n_queued
    while i > 0 and _before(s, launch, queue[i - 1]):
        queue[i] = queue[i - 1]
        i -= 1
    queue[i] = launch
    s.devices[d].n_queued += 1


@native
def _before(s: BlockRun, a: int, b: int) -> bool:
    """Return whether kernel a goes before kernel b: by priority, arrival, place among the launches."""
    one = s.launches[a]
    other = s.launches[b]
    if one.priority != other.priority:
        return one.priority < other.priority
    return one.arrival < other.arrival or (one.arrival == other.arrival and a < b)


@native
def _dispatch(s: BlockRun, d: int, freed: int) -> None:
    """Place the blocks that fit of the head of the queue; the next kernel follows when all blocks are placed.

    `freed` is the SM on which there is more room than before, or -1.
    """
    device = s.devices[d]
    queue = s.queue[d * s.n_launches :]
    i = 0
    while i < device.n_queued:
        row = queue[i]
        launch = s.launches[row]
        if launch.start < 0.0 and device.n_running >= s.resident_kernels:
            if device.stuck == row:
                device.stuck = -1  # room that becomes free meanwhile does not count for it
            i += 1
            continue
        while launch.unissued > 0:
            sm = -1
            if device.stuck != row:
                sm = _roomiest(s, d, launch)
            elif freed >= 0 and _fits(launch, s.sms[freed]):  # there was room on no SM, so there is none on another
                sm = freed
            if sm < 0:
                device.stuck = row
                return
            if launch.start < 0.0:
                launch.start = s.now
                device.n_running += 1
            _issue(s, d, sm, row)
        device.n_queued -= 1
        for k in range(i, device.n_queued):
            queue[k] = queue[k + 1]


@native
def _issue(s: BlockRun, d: int, sm: int, row: int) -> None:
    """Put the next block of a kernel on an SM."""
    _touch(s, d, sm)
    slot = sm * s.n_slots + s.sms[sm].n_held
    s.held[slot] = row
    s.left[slot] = s.jitter[s.next_jitter]
    s.next_jitter += 1
    if s.next_jitter == s.n_jitter:
        s.next_jitter = 0
    s.launches[row].unissued -= 1
    _take(s, d, sm, s.launches[row], 1)


@native
def _fits(launch: BlockLaunch, sm: Sm) -> bool:
    """Return whether a block of a kernel fits on an SM."""
    enough = sm.registers >= launch.registers and sm.shared >= launch.shared
    return sm.warps >= launch.warps and sm.blocks > 0 and enough


@native
def _roomiest(s: BlockRun, d: int, launch: BlockLaunch) -> int:
    """Return the SM with most room for a block: free warps, then blocks, then the first; -1 where it does not fit."""
    room = s.room[2 * s.n_leaves * d :]
    i = 1
    first = s.devices[d].first_sm
    if room[1] < launch.warps * ROOM:
        return -1
    while i < s.n_leaves:
        i *= 2
        if room[i] < room[i + 1]:
            i += 1
    if _fits(launch, s.sms[first + i - s.n_leaves]):
        return first + i - s.n_leaves
    # That SM lacks registers or shared memory: take the roomiest of those that have both.
    best = -1
    most = -1
    for j in range(s.devices[d].n_sms):
        if room[s.n_leaves + j] > most and _fits(launch, s.sms[first + j]):
            best = first + j
            most = room[s.n_leaves + j]
    return best


@native
def _take(s: BlockRun, d: int, number: int, launch: BlockLaunch, sign: int) -> None:
    """Take the room of a block from an SM (1), or return it (-1)."""
    sm = s.sms[number]
    sm.warps -= sign * launch.warps
    sm.blocks -= sign
    sm.registers -= sign * launch.registers
    sm.shared -= sign * launch.shared
    sm.n_held += sign
    launch.resident += sign
    room = s.room[2 * s.n_leaves * d :]
    i = s.n_leaves + number - s.devices[d].first_sm
    if sm.blocks > 0:
        room[i] = sm.warps * ROOM + sm.blocks
    else:
        room[i] = -1
    while i > 1:
        i >>= 1
        most = max(room[2 * i], room[2 * i + 1])
        if room[i] == most:
            return
        room[i] = most


@native
def _touch(s: BlockRun, d: int, number: int) -> None:
    """Bring the blocks of an SM up to now, and note that their rates are to be found anew."""
    sm = s.sms[number]
    device = s.devices[d]
    if sm.is_dirty:
        return
    sm.is_dirty = 1
    s.dirty[device.first_sm + device.n_dirty] = number
    device.n_dirty += 1
    for i in range(number * s.n_slots, number * s.n_slots + sm.n_held):
        s.left[i] -= s.rate[i] * (s.now - sm.since)
    sm.since = s.now


@native
def _end_blocks(s: BlockRun, d: int, sm: int) -> None:
    """Take the blocks of an SM that have ended off it, and note the kernels that ended with them."""
    _touch(s, d, sm)
    first = i = sm * s.n_slots
    while i < first + s.sms[sm].n_held:
        if s.left[i] > _SURE or (s.left[i] > _DONE and s.now + s.left[i] / s.rate[i] > s.now):
            i += 1
            continue
        row = s.held[i]
        launch = s.launches[row]
        _take(s, d, sm, launch, -1)
        last = first + s.sms[sm].n_held
        s.held[i] = s.held[last]
        s.left[i] = s.left[last]
        s.rate[i] = s.rate[last]
        if launch.resident == 0 and launch.unissued == 0:
            launch.end = s.now
            s.ended[s.n_ended] = row
            s.devices[d].n_running -= 1
            s.n_ended += 1


@native
def _settle(s: BlockRun, d: int) -> None:
    """Compute the rates that may have changed, and the next event of the device."""
    device = s.devices[d]
    _rate_dirty(s, d)
    slow = max(1.0, device.traffic + device.copied)
    if abs(slow - device.slow) > _STEP * slow:
        device.slow = slow
        for sm in range(device.first_sm, device.first_sm + device.n_sms):
            _touch(s, d, sm)
        _rate_dirty(s, d)
    device.next = s.due[2 * s.n_leaves * d + 1]


@native
def _rate_dirty(s: BlockRun, d: int) -> None:
    """Find the rates on all SMs that were touched."""
    device = s.devices[d]
    for i in range(device.first_sm, device.first_sm + device.n_dirty):
        _find_rates(s, d, s.dirty[i])
        s.sms[s.dirty[i]].is_dirty = 0
    device.n_dirty = 0


@native
def _find_rates(s: BlockRun, d: int, number: int) -> None:
    """Find the rates of the blocks on an SM and when the first of them ends; it has been brought up to now."""
    sm = s.sms[number]
    device = s.devices[d]
    base = number * s.n_slots
    load = 0.0
    mixed = False
    for i in range(base, base + sm.n_held):
        load += s.launches[s.held[i]].issue
        mixed = mixed or s.held[i] != s.held[base]
    crowd = max(1.0, load)
    penalty = 1.0
    if mixed and max(load, device.slow) > 1.0:
        penalty += s.interference
    traffic = 0.0
    first = NEVER
    for i in range(base, base + sm.n_held):
        launch = s.launches[s.held[i]]
        busy = launch.compute * crowd
        traffic += launch.dram * (1.0 if busy <= launch.memory else launch.memory / busy)
        time = penalty * max(busy, launch.memory * device.slow)
        s.rate[i] = 1.0 / time if time > 0.0 else inf
        first = min(first, s.left[i] * time)
    _set_due(s, d, number, sm.since + max(0.0, first))
    device.traffic += traffic - sm.traffic
    sm.traffic = traffic


@native
def _set_due(s: BlockRun, d: int, sm: int, time: float) -> None:
    """Note when the first block of an SM ends."""
    due = s.due[2 * s.n_leaves * d :]
    i = s.n_leaves + sm - s.devices[d].first_sm
    due[i] = time
    while i > 1:
        i >>= 1
        first = min(due[2 * i], due[2 * i + 1])
        if due[i] == first:
            return
        due[i] = first


@native
def _first_due(s: BlockRun, d: int) -> int:
    """Return the SM on which a block ends first, of equal times the first SM."""
    due = s.due[2 * s.n_leaves * d :]
    i = 1
    while i < s.n_leaves:
        i *= 2
        if due[i] > due[i + 1]:
            i += 1
    return s.devices[d].first_sm + i - s.n_leaves
