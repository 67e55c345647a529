"""Kernels on the devices of the compiled engine: their queue, their blocks, and how they end."""

from sys import float_info
from typing import Final

from simsched.simulator.compiled.events import go_on, push
from simsched.simulator.compiled.tables import COHORTS, COMPLETE, DISPATCH, RELEASE, Launch, State, Work
from simsched.simulator.contention import (
    finish_time,
    is_closer,
    is_later,
    same_due,
    solo_units,
    waves_over,
    whole_cycles,
)
from simsched.units import TIE

LEAST_UNIT: Final = float_info.min


def submit(s: State, row: int, lane: int, d: int, place: int) -> None:
    """Take a launch, the instruction at `place`, that has reached the head of its stream."""
    launch, work, device = s.launches[row], s.work[lane], s.devices[d]
    work.row, work.solo, work.unit, work.dram_share = row, launch.solo, launch.unit, launch.dram_share
    if s.jittered:
        _jitter(s, launch, work)
    s.lanes[lane].start = s.now
    if work.unit < LEAST_UNIT:  # no time at all, or so little that its rate overflows
        go_on(s, RELEASE, lane)
        return
    if not device.contention or (launch.blocks == 0 and launch.sm_share == 0.0):
        push(s, s.now + work.solo, COMPLETE, lane)
        return
    work.arrival, work.place, work.start = s.now, place, -1.0
    work.progress = work.anchor = work.rate = 0.0
    work.unissued = launch.blocks
    work.resident = work.n_cohorts = 0
    if launch.blocks:
        enqueue(s, d, lane)
    else:  # no grid: one piece of work that needs no place
        work.start, work.resident = s.now, 1
        keep_cohort(s, lane, 1.0, 1)
        start_running(s, d, lane)
    dispatch_later(s, d)


def _jitter(s: State, launch: Launch, work: Work) -> None:
    """Draw out or shorten a kernel as the sample says; its blocks load DRAM less the longer they take."""
    work.solo *= s.factors[s.sample * s.n_ops + s.launch_op[work.row]]
    work.unit = work.solo
    if launch.blocks and launch.residency:
        work.dram_share = 0.0
        if work.solo > 0:
            work.dram_share = min(1.0, launch.traffic / work.solo) / min(launch.blocks, launch.residency)
        work.unit /= solo_units(
            launch.blocks, launch.residency, launch.sm_share, work.dram_share, launch.alpha, launch.beta
        )


def dispatch_later(s: State, d: int) -> None:
    """Dispatch at the end of this instant."""
    if not s.devices[d].dispatching:
        s.devices[d].dispatching = 1
        go_on(s, DISPATCH, s.n_lanes + s.n_hosts + s.n_devices + 1 + d)


def enqueue(s: State, d: int, lane: int) -> None:
    """Put a kernel among those with blocks to issue, by priority, arrival, place in the program."""
    device, base = s.devices[d], d * s.width
    i = device.n_queue
    while i > 0 and _before(s, lane, s.queued[base + i - 1]):
        s.queued[base + i] = s.queued[base + i - 1]
        i -= 1
    s.queued[base + i] = lane
    device.n_queue += 1


def _before(s: State, a: int, b: int) -> bool:
    """Return whether the kernel of lane a is dispatched before that of lane b: by priority, arrival, place."""
    mine, theirs = s.work[a], s.work[b]
    priority = s.launches[mine.row].priority - s.launches[theirs.row].priority
    if priority != 0:
        return priority < 0
    if mine.arrival != theirs.arrival:
        return mine.arrival < theirs.arrival
    return mine.place < theirs.place


def start_running(s: State, d: int, lane: int) -> None:
    """Put a kernel among those that run, by row."""
    device, base, row = s.devices[d], d * s.width, s.work[lane].row
    i = device.n_running
    while i > 0 and s.work[s.running[base + i - 1]].row > row:
        s.running[base + i] = s.running[base + i - 1]
        i -= 1
    s.running[base + i] = lane
    device.n_running += 1
    if s.launches[row].blocks:
        device.n_resident += 1


def issue_blocks(s: State, d: int) -> None:
    """Let the head of the queue issue what fits; while it has blocks left, nothing behind it is looked at."""
    device = s.devices[d]
    while True:
        i = _next_able(s, d, 0)
        if i == device.n_queue:
            return
        head = s.queued[d * s.width + i]
        if device.freed and s.work[head].start >= 0:
            k = _next_able(s, d, i + 1)
            if k < device.n_queue:
                device.freed = 0
                _interleave(s, d, head, k)
        _issue(s, d, head, s.work[head].unissued)
        if s.work[head].unissued:
            return
        _leave_queue(s, d, i)


def _next_able(s: State, d: int, i: int) -> int:
    """Return who from place i of the queue on is on the device, or finds a place there; its length if nobody is."""
    device = s.devices[d]
    if device.n_resident >= device.resident_kernels:
        while i < device.n_queue and s.work[s.queued[d * s.width + i]].start < 0:
            i += 1
    return i


def _leave_queue(s: State, d: int, place: int) -> None:
    s.devices[d].n_queue -= 1
    for i in range(d * s.width + place, d * s.width + s.devices[d].n_queue):
        s.queued[i] = s.queued[i + 1]


def _interleave(s: State, d: int, head: int, place: int) -> None:
    """Let the next kernel, at a place of the queue, have its share of slots that have just come free."""
    slots, following = _fits(s, d, head), s.queued[d * s.width + place]
    given = int(s.devices[d].interleave * slots + TIE)
    if given and s.launches[s.work[following].row].priority == s.launches[s.work[head].row].priority:
        _issue(s, d, head, slots - given)
        _issue(s, d, following, s.work[following].unissued)
        if not s.work[following].unissued:
            _leave_queue(s, d, place)


def _fits(s: State, d: int, lane: int) -> int:
    """Return how many more blocks of a kernel fit on the device."""
    free, launch = s.free[d], s.launches[s.work[lane].row]
    count = min(launch.residency - s.work[lane].resident, free.blocks)
    if launch.warps:
        count = min(count, free.warps // launch.warps)
    if launch.registers:
        count = min(count, free.registers // launch.registers)
    if launch.shared_memory:
        count = min(count, free.shared_memory // launch.shared_memory)
    return count


def _take(s: State, d: int, launch: Launch, count: int) -> None:
    free = s.free[d]
    free.warps -= count * launch.warps
    free.blocks -= count
    free.registers -= count * launch.registers
    free.shared_memory -= count * launch.shared_memory


def _issue(s: State, d: int, lane: int, most: int) -> None:
    work = s.work[lane]
    count = min(most, work.unissued, _fits(s, d, lane))
    if count <= 0:
        return
    if work.start < 0:
        work.start = s.now
        start_running(s, d, lane)
    _take(s, d, s.launches[work.row], count)
    work.unissued -= count
    work.resident += count
    _add_cohort(s, lane, progress_of(work, s.now) + 1.0, count)


def progress_of(work: Work, now: float) -> float:
    """Return how far a kernel or copy is."""
    return work.progress + (now - work.anchor) * work.rate


def anchor_anew(work: Work, now: float, rate: float) -> None:
    """Let a kernel or copy go on at a rate; while that stays what it is, no progress is computed."""
    if rate != work.rate:
        work.progress = progress_of(work, now)
        work.anchor, work.rate = now, rate


def _add_cohort(s: State, lane: int, due: float, count: int) -> None:
    work, cohorts = s.work[lane], s.cohorts[COHORTS * lane :]
    for j in range(work.n_cohorts):
        if same_due(cohorts[j].due, due):
            cohorts[j].count += count
            return
    keep_cohort(s, lane, due, count)
    _sort_cohorts(s, lane)
    if work.n_cohorts < COHORTS:
        return
    i = 0
    for j in range(1, COHORTS - 1):
        if is_closer(cohorts[j + 1].due - cohorts[j].due, cohorts[i + 1].due - cohorts[i].due):
            i = j
    a, b = cohorts[i], cohorts[i + 1]
    total = a.count + b.count
    a.due = (a.due * a.count + b.due * b.count) / total
    a.count = total
    work.n_cohorts = i + 1
    for j in range(i + 2, COHORTS):
        keep_cohort(s, lane, cohorts[j].due, cohorts[j].count)


def keep_cohort(s: State, lane: int, due: float, count: int) -> None:
    """Put a cohort behind those that a kernel has."""
    cohort = s.cohorts[COHORTS * lane + s.work[lane].n_cohorts]
    cohort.due, cohort.count = due, count
    s.work[lane].n_cohorts += 1


def _sort_cohorts(s: State, lane: int) -> None:
    cohorts = s.cohorts[COHORTS * lane :]
    for i in range(1, s.work[lane].n_cohorts):
        due, count = cohorts[i].due, cohorts[i].count
        j = i
        while j > 0 and (cohorts[j - 1].due > due or (cohorts[j - 1].due == due and cohorts[j - 1].count > count)):
            cohorts[j].due, cohorts[j].count = cohorts[j - 1].due, cohorts[j - 1].count
            j -= 1
        cohorts[j].due, cohorts[j].count = due, count


def skip_cycles(s: State, d: int) -> None:
    """Pass over whole refills of the head of the queue: until the last nothing else can change."""
    device, lane = s.devices[d], s.queued[d * s.width]
    head = s.work[lane]
    if (device.n_queue > 1 and device.interleave > 0) or not head.resident:
        return
    cycles = whole_cycles(head.unissued, head.resident)
    if cycles:
        device.skipping, head.skipped = lane, cycles
        head.unissued -= cycles * head.resident
        for j in range(head.n_cohorts):
            s.cohorts[COHORTS * lane + j].due += cycles


def undo_skip(s: State, d: int) -> None:
    """Go back to wave by wave; at most one kernel had waves passed over, and it is still in the queue."""
    lane = s.devices[d].skipping
    s.devices[d].skipping = -1
    work, cohorts = s.work[lane], s.cohorts[COHORTS * lane :]
    progress, n = progress_of(work, s.now), work.n_cohorts
    work.n_cohorts = 0
    for j in range(n):
        due, count = cohorts[j].due, cohorts[j].count
        waves, ends = waves_over(due, work.skipped, progress, s.now, work.rate)
        pending = work.skipped - waves + ends
        work.unissued += pending * count
        if ends:
            free_blocks(s, d, work, count)
        else:
            keep_cohort(s, lane, due - pending, count)
    _sort_cohorts(s, lane)


def free_blocks(s: State, d: int, work: Work, count: int) -> None:
    """Take blocks that have ended off the device."""
    work.resident -= count
    launch = s.launches[work.row]
    if launch.blocks:
        _take(s, d, launch, -count)
        s.devices[d].freed = 1


def end_cohorts(s: State, d: int) -> None:
    """End the cohorts that are due, and the kernels of which that was the last."""
    device, running = s.devices[d], s.running[d * s.width :]
    n, device.n_running = device.n_running, 0
    for i in range(n):
        lane = running[i]
        work = s.work[lane]
        if work.rate > 0.0:
            _end_cohorts_of(s, d, lane)
        if work.rate > 0.0 and work.n_cohorts == 0 and work.unissued == 0:
            if s.launches[work.row].blocks:
                device.n_resident -= 1
            s.lanes[lane].start = work.start
            go_on(s, RELEASE, lane)
        else:
            running[device.n_running] = lane
            device.n_running += 1
    dispatch_later(s, d)


def _end_cohorts_of(s: State, d: int, lane: int) -> None:
    work, cohorts = s.work[lane], s.cohorts[COHORTS * lane :]
    n, work.n_cohorts = work.n_cohorts, 0
    for j in range(n):
        due, count = cohorts[j].due, cohorts[j].count
        if is_later(finish_time(work.anchor, work.progress, work.rate, due), s.now):
            keep_cohort(s, lane, due, count)
        else:
            free_blocks(s, d, work, count)
