"""The arithmetic of sharing a device: one text for both engines.

The reference engine calls these functions as they stand, the compiled engine compiles them.

A resident block of a kernel loads two resources, the issue slots of the SMs and DRAM, each
counted as a share of the device. Where a load exceeds 1 the kernels slow each other down in
proportion to how sensitive they are to that resource.
"""

from math import ceil, floor, inf
from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, piece
from simsched.base.units import TIE, TIE_LIMIT

LARGEST_UNSLOWED: Final = 0.99
"""Of a resource, what at most is left to kernels that are not slowed by its load."""
SATURATED: Final = 1.0 + 1e-9
"""A load above this counts as saturation, where interference begins."""
MOST_TURNS: Final = 64
"""Turns of Newton's method for a pressure; two or three are usual."""
MAX_COHORTS: Final = 4
"""Groups of blocks of a kernel that end together; more are merged."""
KEPT_WAVES: Final = 4
"""Of a kernel's last waves, those that are never passed over."""
LATE: Final = 3
LATENESS: Final = 1.5
"""Of ten blocks that are issued together three end late, by so many standard deviations."""
SAME_PLACE: Final = 1e-3
"""Of a block: an instant is never so long that it takes in two waves."""


class Channel(Row):
    """A direction of a link, or copy engines: what flows share; `left`, `load` and `users` are for work.

    Between calls nobody uses it.
    """

    capacity: f8  # bytes per us
    left: f8
    load: f8  # of its users, each for its rate
    users: i4


class FlowPath(Row):
    """A flow as its channels see it: it crosses `crossed[first:end]`, at a rate in bytes per us."""

    rate: f8
    first: i4
    end: i4


class LaneWork(Row):
    """A kernel, of which progress is in blocks' lengths, or a copy, of which it is in bytes; `row` is its launch.

    It was `progress` far at time `anchor` and gains `rate` a us. Of the blocks that were `crowd` together, `peak` were
    on the SM with most of them.
    """

    unit: f8
    latency: f8
    dram_share: f8
    solo: f8
    arrival: f8
    progress: f8
    anchor: f8
    rate: f8
    slowed: f8  # by issue slots
    start: f8
    unissued: i8
    resident: i8
    residency: i8  # blocks that its SMs hold at once
    sms: i8  # on which it may have blocks
    crowd: i8
    peak: i8
    top: i8  # of the resident blocks, those beyond what all SMs have alike: 1 to the number of SMs
    skipped: i8  # refills of all resident blocks that are passed over
    row: i4
    place: i4
    n_cohorts: i4


class Cohort(Row):
    """Blocks of a kernel that end together, at a progress of `due`."""

    due: f8
    count: i8


class Share(Row):
    """What a kernel or a copy loads of a resource, and how sensitive it is to the load of that."""

    load: f8
    sensitivity: f8


def pressure(n: int, shares: Rows[Share]) -> float:
    """Return the load of a resource at which those who share it use all of it and no more, or the sum if that is less.

    Notes
    -----
    At a pressure x a share is slowed to ``load / (x * sensitivity)`` where that is less than its load. Those that are
    not slowed leave the others only the rest, so x is more than the sum unless all are fully sensitive. It is found by
    Newton's method, exact as soon as it is known who is slowed: mostly after two turns of O(n).
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
            if share.sensitivity * x > 1.0 - TIE:  # where it is 1, the next turn finds the same who are slowed
                slowed += share.load / share.sensitivity
            else:
                unslowed += share.load
        if slowed == 0.0:  # nobody is slowed at so little pressure: all who can be will be
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


def begin_kernel(work: LaneWork, blocks: int) -> None:
    """Set a kernel to where none of its blocks has been issued."""
    work.unissued = blocks
    work.n_cohorts = 0
    work.resident = work.crowd = work.peak = work.top = work.skipped = 0
    work.progress = work.anchor = work.rate = 0.0


def progress_of(work: LaneWork, now: float) -> float:
    """Return how far a kernel or copy is."""
    return work.progress + (now - work.anchor) * work.rate


def anchor_anew(work: LaneWork, now: float, rate: float) -> None:
    """Let a kernel or copy go on at a rate; while that stays what it is, no progress is computed."""
    if rate != work.rate:
        work.progress = progress_of(work, now)
        work.anchor = now
        work.rate = rate


def issue(work: LaneWork, cohorts: Rows[Cohort], count: int, sms: int, spread: float, now: float) -> None:
    """Put blocks of a kernel on its device.

    Notes
    -----
    The last three of ten end late, the others so early that the mean stays; their standard deviation is `spread` of a
    block's time, less where there are few. Blocks that refill others, and are not the last, keep the spread of those.
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


def fullest(work: LaneWork, sms: int) -> int:
    """Return the blocks of a kernel on the SM that has most of them.

    Notes
    -----
    Blocks are issued evenly and end at random: of n that are left of N, of which an SM had m, the number on the fullest
    SM is the largest j for which as many SMs as half of one are expected to have chosen j of m left, each with
    probability n / N.
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


def add_cohort(work: LaneWork, cohorts: Rows[Cohort], due: float, count: int) -> None:
    """Add blocks that end together; of too many cohorts the two closest become one."""
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


def first_end(work: LaneWork, cohorts: Rows[Cohort]) -> float:
    """Return when the next blocks of a kernel end at its rate, infinity if it stands still."""
    if work.n_cohorts == 0 or work.rate == 0.0:
        return inf
    return finish_time(work, cohorts[0].due)


def end_blocks(work: LaneWork, cohorts: Rows[Cohort], now: float) -> int:
    """Take the blocks off that have ended; return how many."""
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


def skip_waves(work: LaneWork, cohorts: Rows[Cohort]) -> bool:
    """Pass over whole refills of all resident blocks but the last `KEPT_WAVES`; return whether there are any."""
    if work.unissued <= KEPT_WAVES * work.resident or work.resident == 0:
        return False
    waves = -(-work.unissued // work.resident) - KEPT_WAVES
    work.skipped = waves
    work.unissued -= waves * work.resident
    for j in range(work.n_cohorts):
        cohorts[j].due += waves
    return True


def undo_skip(work: LaneWork, cohorts: Rows[Cohort], now: float) -> int:
    """Go back to wave by wave; return the blocks that end just now, which are taken off."""
    progress = progress_of(work, now)
    n = work.n_cohorts
    ended = 0
    tolerance = min(SAME_PLACE, TIE * max(1.0, min(now, TIE_LIMIT) * work.rate))
    work.n_cohorts = 0
    for j in range(n):
        due = cohorts[j].due
        count = cohorts[j].count
        since = progress - (due - 1.0 - work.skipped)  # the last of the refills passed over is over at `due`
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


def _insert(work: LaneWork, cohorts: Rows[Cohort], due: float, count: int) -> None:
    """Put a cohort where it belongs among those before it, which leave room."""
    i = work.n_cohorts
    while i > 0 and cohorts[i - 1].due > due:
        cohorts[i].due = cohorts[i - 1].due
        cohorts[i].count = cohorts[i - 1].count
        i -= 1
    cohorts[i].due = due
    cohorts[i].count = count
    work.n_cohorts += 1


def same_due(a: float, b: float) -> bool:
    """Return whether blocks that are over at progress a and at progress b form one cohort."""
    return abs(a - b) <= TIE * max(1.0, b)


class Crowd(Row):
    """How the blocks of all kernels lie on the SMs of a device.

    Of each kernel every SM has as many blocks as go evenly: they load it by `below` and have `below_warps`. The others
    lie spread: `tops` blocks, which load `top_load` together and have `top_warps`.
    """

    below: f8
    below_warps: f8
    top_load: f8
    top_warps: f8
    tops: i8
    sms: i8
    most_warps: f8  # that an SM holds


def lay(crowd: Crowd, work: LaneWork, sm_share: float, warps: int) -> None:
    """Lay the resident blocks of a kernel on the SMs; each loads its own by `sm_share`."""
    if work.resident:
        layers = (work.resident - 1) // crowd.sms
        work.top = work.resident - layers * crowd.sms
        crowd.below += layers * sm_share
        crowd.below_warps += layers * warps
        crowd.tops += work.top
        crowd.top_load += work.top * sm_share
        crowd.top_warps += work.top * warps


def crowded_load(crowd: Crowd, work: LaneWork, sm_share: float, warps: int) -> float:
    """Return the load on the fullest SM that a kernel is on.

    Notes
    -----
    What lies spread is as even as whole blocks allow: beside one of the kernel there are, of the mean of the others, as
    many as round up to full layers; but no more warps than an SM holds. Where blocks have ended at random, an SM may
    have kept more of the kernel's own (`fullest`).
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


def go_on_alone(
    work: LaneWork, cohorts: Rows[Cohort], now: float, residency: int, sms: int, sm_share: float, spread: float
) -> float:
    """Let a kernel by itself issue what fits, at the end of an instant; return when its next blocks end."""
    if work.skipped:
        undo_skip(work, cohorts, now)
    count = min(work.unissued, residency - work.resident)
    if count > 0:
        issue(work, cohorts, count, sms, spread, now)
    skip_waves(work, cohorts)
    rate = 0.0
    if work.resident:
        rate = 1.0 / (work.unit * max(1.0, sm_share * fullest(work, sms)))
    anchor_anew(work, now, rate)
    return first_end(work, cohorts)


class Solo(Table):
    """Kernels by themselves: what each of them takes in units of the time of one of its blocks on an idle device."""

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
    """Run each kernel by itself."""
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


def finish_time(work: LaneWork, due: float) -> float:
    """Return when a kernel or copy is as far as `due` at its rate."""
    return work.anchor + (due - work.progress) / work.rate


def end_of_instant(now: float) -> float:
    """Return the last time that belongs to the instant `now`."""
    return min(now * (1.0 + TIE), now + TIE * TIE_LIMIT)


def is_later(time: float, other: float) -> bool:
    """Return whether a time is of a later instant than another."""
    return time > end_of_instant(other)
