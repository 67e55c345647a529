"""Kernels on the devices of the compiled engine: their queue, their blocks, and how they end."""

from sys import float_info
from typing import Final

from simsched.base.units import TIE
from simsched.simulator.compiled.events import go_on, push
from simsched.simulator.compiled.state import COHORTS, COMPLETE, DISPATCH, RELEASE, Launch, State
from simsched.simulator.contention import (
    Work,
    add_cohort,
    begin_kernel,
    end_blocks,
    fullest,
    go_on_alone,
    is_later,
    issue,
    last_end,
    most_dram_share,
    skip_waves,
    undo_skip,
)

LEAST_UNIT: Final = float_info.min
SHORT: Final = 100.0
"""Of blocks, in instants: shorter ones may end together though they are due apart, so none of them is passed over."""


def submit(s: State, row: int, lane: int, d: int, place: int) -> None:
    """Take a launch, the instruction at `place`, that has reached the head of its stream."""
    launch, work, device = s.launches[row], s.work[lane], s.devices[d]
    work.row, work.solo, work.unit, work.dram_share = row, launch.solo, launch.unit, launch.dram_share
    work.latency = min(device.latency, work.solo) if launch.blocks else 0.0
    if s.jittered:
        _jitter(s, launch, lane, work)
    s.lanes[lane].start = s.now
    if not device.contention or (launch.blocks == 0 and launch.sm_share == 0.0):
        push(s, s.now + work.solo, COMPLETE, lane)
        return
    if work.unit < LEAST_UNIT:  # blocks take no time, or so little that their rate overflows
        end_kernel(s, lane)
        return
    work.arrival, work.place, work.start = s.now, place, -1.0
    begin_kernel(work, launch.blocks)
    if launch.blocks == 0:  # no grid: one piece of work that needs no place
        work.start, work.resident = s.now, 1
        add_cohort(work, s.cohorts[COHORTS * lane :], 1.0, 1)
        start_running(s, d, lane)
    elif device.alone < 0 and device.n_queue + device.n_running == 0 and work.unit > SHORT * (s.limit - s.now):
        device.alone = lane
    else:
        enqueue(s, d, lane)
    dispatch_later(s, d)


def _jitter(s: State, launch: Launch, lane: int, work: Work) -> None:
    """Draw out or shorten a kernel as the sample says; its blocks load DRAM less the longer they take."""
    work.solo *= s.factors[s.sample * s.n_ops + s.launch_op[work.row]]
    if launch.blocks:
        work.latency = min(s.devices[s.lanes[lane].device].latency, work.solo)
    work.unit = work.solo - work.latency
    if launch.blocks and launch.residency:
        work.dram_share = 0.0
        if work.unit > 0.0:
            sms = s.devices[s.lanes[lane].device].sms
            most = most_dram_share(launch.blocks, launch.residency, sms, launch.sm_share)
            work.dram_share = min(most, launch.traffic / work.unit)
        work.unit /= launch.units


def end_kernel(s: State, lane: int) -> None:
    """Let a kernel end, all of whose blocks have."""
    if s.work[lane].latency > 0.0:
        push(s, s.now + s.work[lane].latency, COMPLETE, lane)
    else:
        go_on(s, RELEASE, lane)


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
    work, device = s.work[lane], s.devices[d]
    count = min(most, work.unissued, _fits(s, d, lane))
    if count <= 0:
        return
    if work.start < 0:
        work.start = s.now
        start_running(s, d, lane)
    _take(s, d, s.launches[work.row], count)
    issue(work, s.cohorts[COHORTS * lane :], count, device.sms, device.spread, s.now)


def skip_cycles(s: State, d: int) -> None:
    """Pass over whole refills of the head of the queue: until the last ones nothing else can change."""
    device, lane = s.devices[d], s.queued[d * s.width]
    if device.n_queue > 1 and device.interleave > 0.0:
        return
    if skip_waves(s.work[lane], s.cohorts[COHORTS * lane :]):
        device.skipping = lane


def undo_skips(s: State, d: int) -> None:
    """Go back to wave by wave; at most one kernel had waves passed over, and it is still in the queue."""
    lane = s.devices[d].skipping
    s.devices[d].skipping = -1
    _free_blocks(s, d, lane, undo_skip(s.work[lane], s.cohorts[COHORTS * lane :], s.now))


def _free_blocks(s: State, d: int, lane: int, count: int) -> None:
    """Give back the room of blocks that have ended."""
    launch = s.launches[s.work[lane].row]
    if count and launch.blocks:
        _take(s, d, launch, -count)
        s.devices[d].freed = 1


def end_cohorts(s: State, d: int) -> None:
    """End the cohorts that are due, and the kernels of which that was the last."""
    device, running = s.devices[d], s.running[d * s.width :]
    if device.alone >= 0:
        if s.recording:
            run_alone(s, d, device.alone)
        _end_running(s, device.alone)
        device.alone = -1
    n, device.n_running = device.n_running, 0
    for i in range(n):
        lane = running[i]
        work = s.work[lane]
        if work.rate > 0.0:
            _free_blocks(s, d, lane, end_blocks(work, s.cohorts[COHORTS * lane :], s.now))
        if work.rate > 0.0 and work.n_cohorts == 0 and work.unissued == 0:
            if s.launches[work.row].blocks:
                device.n_resident -= 1
            _end_running(s, lane)
        else:
            running[device.n_running] = lane
            device.n_running += 1
    dispatch_later(s, d)


def _end_running(s: State, lane: int) -> None:
    s.lanes[lane].start = s.work[lane].start
    end_kernel(s, lane)


def run_alone(s: State, d: int, lane: int) -> None:
    """Find how far a kernel is that has had the device to itself: what it did before this instant."""
    work, cohorts, device = s.work[lane], s.cohorts[COHORTS * lane :], s.devices[d]
    launch = s.launches[work.row]
    begin_kernel(work, launch.blocks)
    now = end = work.start
    while is_later(s.now, end):
        now = end
        end_blocks(work, cohorts, now)
        end = go_on_alone(work, cohorts, now, launch.residency, device.sms, launch.sm_share, device.spread)
        if s.recording and s.n_points < s.point_room:
            resident = work.resident
            slowed = max(1.0, launch.sm_share * fullest(work, device.sms))
            record_point(
                s, d, now, resident * launch.sm_share / device.sms, resident * work.dram_share / slowed,
                float(resident * launch.warps), float(min(resident, device.sms)),
            )  # fmt: skip


def join_others(s: State, d: int) -> None:
    """Let a kernel that has had the device to itself go on as one among others."""
    device, lane = s.devices[d], s.devices[d].alone
    work, cohorts, launch = s.work[lane], s.cohorts[COHORTS * lane :], s.launches[s.work[lane].row]
    device.alone = -1
    if work.start < 0.0:  # it came just now
        enqueue(s, d, lane)
        return
    run_alone(s, d, lane)
    start_running(s, d, lane)
    _take(s, d, launch, work.resident)
    if work.skipped:
        device.skipping = lane
    if work.unissued:
        enqueue(s, d, lane)
    if not work.skipped and (work.unissued or is_later(last_end(work, cohorts), s.now)):  # else it is just over
        _free_blocks(s, d, lane, end_blocks(work, cohorts, s.now))


def record_point(s: State, d: int, time: float, sm_load: float, dram_load: float, warps: float, active: float) -> None:
    """Add a point to the load curve of a device where it is another than before; of one instant the last stays."""
    device = s.devices[d]
    point = s.points[device.point]
    if sm_load == point.sm and dram_load == point.dram and warps == point.warps and active == point.active:
        return
    if point.time != time:
        device.point = s.n_points
        s.n_points += 1
        point = s.points[device.point]
        point.device, point.time = d, time
    point.sm, point.dram, point.warps, point.active = sm_load, dram_load, warps, active
