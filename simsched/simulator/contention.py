"""Contention of kernels and copies for the SMs and the DRAM of a device.

The reference engine calls these functions in Python, the compiled engine compiles them to machine code.

A resident block of a kernel loads two resources, the issue slots of its SM and DRAM. A load is a share of the
resource. Where the loads of a resource add up to more than 1, kernels slow each other down in proportion to their
sensitivity to it.
"""

from math import ceil, floor, inf
from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, native, piece
from simsched.base.units import TIE, TIE_LIMIT

LARGEST_UNSLOWED: Final = 0.99
"""Largest part of a resource that kernels which its load does not slow use."""
SATURATED: Final = 1.0 + 1e-9
"""A load above this counts as saturation, where interference begins."""
MOST_TURNS: Final = 64
"""Turns of Newton's method for a pressure; two or three are usual."""
MAX_COHORTS: Final = 4
"""Most cohorts of a kernel, groups of blocks that end together; further ones are merged."""
KEPT_WAVES: Final = 4
"""Number of last waves of a kernel that are simulated one by one."""
LATE: Final = 3
"""Blocks that end late among ten that are issued together."""
LATENESS: Final = 1.5
"""Delay of late blocks in standard deviations of the blocks' times."""
SAME_PLACE: Final = 1e-3
"""Largest length of an instant in times of a block: two waves never end in one instant."""


class Channel(Row):
    """A resource that flows share: a direction of a link, or copy engines.

    `left`, `load` and `users` are scratch memory of the functions that share a channel; no value stays between calls.
    """

    capacity: f8  # bytes per us
    left: f8
    load: f8  # sum of its users' weights
    users: i4


class FlowPath(Row):
    """Rate of a flow in bytes per us, and its channels: `crossed[first:end]`."""

    rate: f8
    first: i4
    end: i4


class LaneWork(Row):
    """Progress of the kernel or the copy that runs on a lane; `row` is its launch or its copy.

    Progress counts times of a block for a kernel, and bytes for a copy. It was `progress` at time `anchor`, and grows
    by `rate` each us. When `crowd` blocks of the kernel were resident, the fullest SM had `peak` of them.
    """

    unit: f8
    latency: f8
    dram_share: f8
    solo: f8
    arrival: f8
    progress: f8
    anchor: f8
    rate: f8
    slowed: f8  # factor by which contention for issue slots slows it
    start: f8
    unissued: i8
    resident: i8
    residency: i8  # blocks that its SMs hold at once
    sms: i8  # number of SMs on which its lane may have blocks
    crowd: i8
    peak: i8
    top: i8  # resident blocks beyond the layers that fill all SMs: 1 to the number of SMs
    skipped: i8  # waves that are not simulated one by one
    row: i4
    place: i4
    n_cohorts: i4
    device: i4  # of its lane
    rooms: i4  # the room of its lane's partition, -1 if it has none


class Cohort(Row):
    """Blocks of a kernel that end together, at a progress of `due`."""

    due: f8
    count: i8


class Share(Row):
    """Load of a kernel or a copy on a resource, and its sensitivity to the load of others on it."""

    load: f8
    sensitivity: f8


@native
def pressure(n: int, shares: Rows[Share]) -> float:
    """Return the pressure on a resource: the factor by which a fully sensitive user of it is slowed, if above 1.

    Without saturation it is the sum of the loads.

    Notes
    -----
    At a pressure x a user with a load gets ``load / (x * sensitivity)``, and at most its load. The pressure is the x at
    which all users together get 1. Users that are not slowed leave the others only the rest, so x is above the sum of
    the loads unless all users are fully sensitive. Newton's method is exact as soon as the set of slowed users is
    right, usually after two turns of O(n).
    """
    x = 0.0
    last = 0.0
    turns = 0
    for i in range(n):
        x += shares[i].load
    while x > 1.0 and abs(x - last) > TIE * x and turns < MOST_TURNS:
        turns += 1
        last = x
        slowed = 0.0
        unslowed = 0.0
        for i in range(n):
            share = shares[i]
            if share.sensitivity * x > 1.0 - TIE:  # equal to 1: the next turn has the same slowed users
                slowed += share.load / share.sensitivity
            else:
                unslowed += share.load
        if slowed == 0.0:  # no user is slowed at this pressure: slow all that can be slowed
            unslowed = 0.0
            for i in range(n):
                share = shares[i]
                if share.sensitivity > 0.0:
                    slowed += share.load / share.sensitivity
                else:
                    unslowed += share.load
        x = max(1.0, slowed / (1.0 - min(unslowed, LARGEST_UNSLOWED)))
    return x


# Blocks of a kernel -------------------------------------------------------------------------------


@native
def begin_kernel(work: LaneWork, blocks: int) -> None:
    """Begin a kernel: none of its blocks is issued."""
    work.unissued = blocks
    work.n_cohorts = 0
    work.resident = work.crowd = work.peak = work.top = work.skipped = 0
    work.progress = work.anchor = work.rate = 0.0


@native
def progress_of(work: LaneWork, now: float) -> float:
    """Return the progress of a kernel or a copy at a time."""
    return work.progress + (now - work.anchor) * work.rate


@native
def set_rate(work: LaneWork, now: float, rate: float) -> None:
    """Set the rate of a kernel or a copy from now on; its progress is computed only if the rate changes."""
    if rate != work.rate:
        work.progress = progress_of(work, now)
        work.anchor = now
        work.rate = rate


@native
def issue(work: LaneWork, cohorts: Rows[Cohort], count: int, sms: int, spread: float, now: float) -> None:
    """Issue blocks of a kernel to its SMs.

    Notes
    -----
    Three of ten blocks end late, and the others early, so that the mean stays. The standard deviation of their times is
    `spread` times the time of a block, and less for few blocks. Blocks of later waves, except for the last wave, end as
    far apart as the blocks that they replace.
    """
    work.unissued -= count
    work.resident += count
    even = -(-work.resident // sms)
    if even >= fullest(work, sms):
        work.peak = even
        work.crowd = work.resident
    elif work.resident > work.crowd:
        work.crowd = work.resident
    due = progress_of(work, now) + 1.0
    late = 0
    if spread > 0.0 and count > 1 and (work.n_cohorts == 0 or work.unissued == 0):
        late = max(1, LATE * count // 10)
        after = LATENESS * spread * float(count - 1) / float(count + 2)
        add_cohort(work, cohorts, due + after, late)
        due -= after * float(late) / float(count - late)
    add_cohort(work, cohorts, due, count - late)


@native
def fullest(work: LaneWork, sms: int) -> int:
    """Return the number of blocks of a kernel on the SM that has most of them.

    Notes
    -----
    Blocks are issued evenly and end in random order. Let n of N blocks remain, and let an SM have had m of them. Each
    remains with probability n / N. The fullest SM has j blocks, the largest j for which the expected number of SMs with
    j or more of their m blocks is at least 1/2.
    """
    if work.resident >= work.crowd:
        return work.peak
    part = float(work.resident) / float(work.crowd)
    expected = float(min(sms, work.crowd))
    n = 0
    while n < work.peak:
        expected *= part * float(work.peak - n) / float(n + 1)
        if expected < 0.5:
            break
        n += 1
    return max(n, -(-work.resident // sms))


@native
def add_cohort(work: LaneWork, cohorts: Rows[Cohort], due: float, count: int) -> None:
    """Add a cohort of blocks; if there are too many cohorts, merge the two with the closest ends."""
    i = work.n_cohorts
    while i > 0 and not cohorts[i - 1].due < due and not same_due(cohorts[i - 1].due, due):
        i -= 1
    if i > 0 and same_due(cohorts[i - 1].due, due):
        cohorts[i - 1].count += count
        return
    _insert(work, cohorts, due, count)
    if work.n_cohorts <= MAX_COHORTS:
        return
    i = 0
    for j in range(1, MAX_COHORTS):
        if cohorts[j + 1].due - cohorts[j].due < cohorts[i + 1].due - cohorts[i].due - 1e-6:  # by more than rounding
            i = j
    a = cohorts[i]
    b = cohorts[i + 1]
    total = a.count + b.count
    a.due = (a.due * a.count + b.due * b.count) / float(total)
    a.count = total
    work.n_cohorts -= 1
    for j in range(i + 1, work.n_cohorts):
        cohorts[j].due = cohorts[j + 1].due
        cohorts[j].count = cohorts[j + 1].count


@native
def first_end(work: LaneWork, cohorts: Rows[Cohort]) -> float:
    """Return the time at which the next blocks of a kernel end at its rate; infinity if its rate is 0."""
    if work.n_cohorts == 0 or work.rate == 0.0:
        return inf
    return finish_time(work, cohorts[0].due)


@native
def end_blocks(work: LaneWork, cohorts: Rows[Cohort], now: float) -> int:
    """Remove the blocks of a kernel that have ended; return their number."""
    ended = n = 0
    while n < work.n_cohorts and not is_later(finish_time(work, cohorts[n].due), now):
        ended += cohorts[n].count
        n += 1
    if n:
        work.n_cohorts -= n
        for j in range(work.n_cohorts):
            cohorts[j].due = cohorts[j + n].due
            cohorts[j].count = cohorts[j + n].count
        work.resident -= ended
    return ended


@native
def skip_waves(work: LaneWork, cohorts: Rows[Cohort]) -> bool:
    """Skip all whole waves of a kernel except for the last `KEPT_WAVES`; return whether there are any to skip."""
    if work.unissued <= KEPT_WAVES * work.resident or work.resident == 0:
        return False
    waves = -(-work.unissued // work.resident) - KEPT_WAVES
    work.skipped = waves
    work.unissued -= waves * work.resident
    for j in range(work.n_cohorts):
        cohorts[j].due += waves
    return True


@native
def undo_skip(work: LaneWork, cohorts: Rows[Cohort], now: float) -> int:
    """Return to simulating wave by wave; remove the blocks that end now, and return their number."""
    progress = progress_of(work, now)
    n = work.n_cohorts
    ended = 0
    tolerance = min(SAME_PLACE, TIE * max(1.0, min(now, TIE_LIMIT) * work.rate))
    work.n_cohorts = 0
    for j in range(n):
        due = cohorts[j].due
        count = cohorts[j].count
        since = progress - (due - 1.0 - work.skipped)  # the last of the skipped waves ends at `due`
        waves = max(0, floor(since + tolerance))  # a late block takes longer than one wave
        ends = waves >= 1 and since - waves <= tolerance
        pending = work.skipped - waves + ends
        work.unissued += pending * count
        if ends:
            ended += count
        else:
            _insert(work, cohorts, due - pending, count)
    work.skipped = 0
    work.resident -= ended
    return ended


@native
def _insert(work: LaneWork, cohorts: Rows[Cohort], due: float, count: int) -> None:
    """Insert a cohort in the order of ends, after cohorts with the same end."""
    i = work.n_cohorts
    while i > 0 and cohorts[i - 1].due > due:
        cohorts[i].due = cohorts[i - 1].due
        cohorts[i].count = cohorts[i - 1].count
        i -= 1
    cohorts[i].due = due
    cohorts[i].count = count
    work.n_cohorts += 1


@native
def same_due(a: float, b: float) -> bool:
    """Return whether blocks that end at the progress a and at the progress b form one cohort."""
    return abs(a - b) <= TIE * max(1.0, b)


class Crowd(Row):
    """Distribution of the blocks of all kernels over the SMs of a device.

    The blocks of a kernel fill all SMs in whole layers, one block on each SM: the layers of all kernels load every SM
    by `below`, with `below_warps` warps. The remaining blocks, `tops` of all kernels, are on some of the SMs: together
    they load SMs by `top_load` and have `top_warps` warps.
    """

    below: f8
    below_warps: f8
    top_load: f8
    top_warps: f8
    tops: i8
    sms: i8
    most_warps: f8  # warps that an SM holds


@native
def lay_blocks(crowd: Crowd, work: LaneWork, sm_share: float, warps: int) -> None:
    """Distribute the resident blocks of a kernel over the SMs; a block loads its SM by `sm_share`."""
    if work.resident:
        layers = (work.resident - 1) // crowd.sms
        work.top = work.resident - layers * crowd.sms
        crowd.below += layers * sm_share
        crowd.below_warps += layers * warps
        crowd.tops += work.top
        crowd.top_load += work.top * sm_share
        crowd.top_warps += work.top * warps


@native
def crowded_load(crowd: Crowd, work: LaneWork, sm_share: float, warps: int) -> float:
    """Return the load of the fullest SM that has a block of a kernel.

    Notes
    -----
    Blocks beyond whole layers are as even as whole blocks allow: beside one of the kernel's are so many of the others
    that all SMs have full layers, and no more than the warps of an SM allow. After blocks have ended in random order,
    the fullest SM may have more of the kernel's own blocks (`fullest`).
    """
    load = crowd.below + sm_share
    if crowd.tops > crowd.sms:
        layers = float(crowd.tops) / float(crowd.sms)
        if work.unissued == 0:
            layers = float(ceil(layers))
        part = (layers - 1.0) / float(crowd.tops - work.top)
        load += part * (crowd.top_load - work.top * sm_share)
        held = crowd.below_warps + warps + part * (crowd.top_warps - work.top * warps)
        if held > crowd.most_warps:
            load *= crowd.most_warps / held
    return max(load, sm_share * fullest(work, crowd.sms))


# A kernel by itself -------------------------------------------------------------------------------


@native
def go_on_alone(
    work: LaneWork, cohorts: Rows[Cohort], now: float, residency: int, sms: int, sm_share: float, spread: float
) -> float:
    """Issue the blocks that fit of a kernel that is alone on a device; return the time at which the next ones end."""
    if work.skipped:
        undo_skip(work, cohorts, now)
    count = min(work.unissued, residency - work.resident)
    if count > 0:
        issue(work, cohorts, count, sms, spread, now)
    skip_waves(work, cohorts)
    rate = 0.0
    if work.resident:
        rate = 1.0 / (work.unit * max(1.0, sm_share * fullest(work, sms)))
    set_rate(work, now, rate)
    return first_end(work, cohorts)


class Solo(Table):
    """Times of kernels that are alone on a device, in times of one of their blocks on an idle device."""

    n: i8
    blocks: Column[i8]
    residency: Column[i8]
    sms: Column[i8]
    sm_share: Column[f8]
    spread: Column[f8]
    units: Column[f8] = length("n")
    work: Rows[LaneWork] = length("1")
    cohorts: Rows[Cohort] = length(f"{MAX_COHORTS + 1}")


@piece("solo times")
def find_units(s: Solo) -> None:
    """Compute the time of each kernel alone on a device."""
    work = s.work[0]
    for i in range(s.n):
        begin_kernel(work, s.blocks[i])
        work.unit = 1.0
        now = end = 0.0
        while end < inf:
            now = end
            end_blocks(work, s.cohorts, now)
            end = go_on_alone(work, s.cohorts, now, s.residency[i], s.sms[i], s.sm_share[i], s.spread[i])
        s.units[i] = now


@native
def finish_time(work: LaneWork, due: float) -> float:
    """Return the time at which a kernel or a copy reaches the progress `due` at its rate."""
    return work.anchor + (due - work.progress) / work.rate


@native
def end_of_instant(now: float) -> float:
    """Return the last time that belongs to the instant `now`."""
    return min(now * (1.0 + TIE), now + TIE * TIE_LIMIT)


@native
def is_later(time: float, other: float) -> bool:
    """Return whether a time belongs to a later instant than another."""
    return time > end_of_instant(other)
