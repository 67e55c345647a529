"""The block scheduler of a device, and the rates of its kernels; both engines run this code."""

from math import inf
from sys import float_info
from typing import Final

from simsched.base.jit import native
from simsched.base.units import TIE
from simsched.simulator.contention import (
    SATURATED,
    LaneWork,
    add_cohort,
    begin_kernel,
    crowded_load,
    end_blocks,
    finish_time,
    first_end,
    fullest,
    go_on_alone,
    is_later,
    issue,
    lay_blocks,
    pressure,
    set_rate,
    skip_waves,
    undo_skip,
)
from simsched.simulator.state import COHORTS, LaunchDemand, Room, State

LEAST_UNIT: Final = float_info.min
"""Shortest time of a block in us: the rate of a shorter one overflows."""
MOST_DRAWN: Final = 2.0
"""Most DRAM bandwidth of an SM, as a multiple of an even share: half of the SMs fill DRAM. Prior, 1.4 to 2.5."""


@native
def set_up(s: State, row: int, lane: int, d: int, place: int) -> None:
    """Prepare the work of a launch, the instruction at `place`, that has reached the head of its stream."""
    launch = s.launches[row]
    work = s.work[lane]
    device = s.devices[d]
    work.row = row
    work.solo = launch.solo
    work.unit = launch.unit
    work.dram_share = launch.dram_share
    if s.jittered:  # the sample scales its time
        work.solo *= s.factors[s.sample * s.n_ops + s.launch_op[row]]
    if launch.blocks:
        work.latency = min(device.kernel_latency, work.solo)
    else:
        work.latency = 0.0
    work.sms = s.lanes[lane].sms
    work.residency = launch.residency
    work.arrival = s.now
    work.place = place
    work.start = -1.0
    if s.jittered:
        work.unit = work.solo - work.latency
        if launch.blocks:  # blocks that take longer load DRAM less
            most = float(min(launch.blocks, launch.residency))
            sms = float(device.sms)
            most = 1.0 / (most if launch.sm_share * most <= sms else sms / launch.sm_share)
            if work.unit > 0.0:
                work.dram_share = min(most, launch.traffic / work.unit)
            else:
                work.dram_share = 0.0
            work.unit /= launch.units
    if s.n_partitions > 0 and s.lanes[lane].rooms >= 0 and launch.blocks:
        _bind(work, launch, device.sms)


@native
def _bind(work: LaneWork, launch: LaunchDemand, sms: int) -> None:
    """Confine a kernel to the SMs of its partition, of all the SMs of the device.

    One that DRAM binds has fewer blocks there, and each of them takes up to `MOST_DRAWN` times its share of DRAM, as
    far as its issue slots let it.
    """
    work.residency = launch.residency // sms * work.sms
    if launch.kind == 1:
        part = float(min(launch.blocks, work.residency)) / float(min(launch.blocks, launch.residency))
        quicker = max(part, launch.alpha, 1.0 / MOST_DRAWN)
        work.unit *= quicker
        work.dram_share /= quicker


@native
def busy_streams(s: State, d: int, since: float) -> int:
    """Return the number of streams of a finished device that had kernels which ended after a time."""
    n = 0
    for i in range(s.n_lanes):
        if s.lanes[i].device == d and is_later(s.lanes[i].ended, since):
            n += 1
    return n


@native
def enter(s: State, d: int, lane: int) -> None:
    """Add a kernel with a grid to the queue of the block scheduler, one without a grid to the running kernels."""
    work = s.work[lane]
    if s.launches[work.row].blocks:
        enqueue(s, d, lane)
    else:  # without a grid it needs no room
        work.start = s.now
        work.resident = 1
        add_cohort(work, s.cohorts[COHORTS * lane :], 1.0, 1)
        start_running(s, d, lane)


@native
def enqueue(s: State, d: int, lane: int) -> None:
    """Insert a kernel into the queue of the block scheduler, by priority, arrival and place in the program."""
    device = s.devices[d]
    base = d * s.width
    i = device.n_queue
    while i > 0 and _before(s, lane, s.queued[base + i - 1]):
        s.queued[base + i] = s.queued[base + i - 1]
        i -= 1
    s.queued[base + i] = lane
    device.n_queue += 1


@native
def _before(s: State, a: int, b: int) -> bool:
    """Return whether lane a's kernel is dispatched before lane b's: by priority, arrival, place in the program."""
    mine = s.work[a]
    theirs = s.work[b]
    priority = s.launches[mine.row].priority - s.launches[theirs.row].priority
    if priority != 0:
        return priority < 0
    if mine.arrival != theirs.arrival:
        return mine.arrival < theirs.arrival
    return mine.place < theirs.place


@native
def start_running(s: State, d: int, lane: int) -> None:
    """Insert a kernel into the running ones, by the row of its launch."""
    device = s.devices[d]
    base = d * s.width
    row = s.work[lane].row
    i = device.n_running
    while i > 0 and s.work[s.running[base + i - 1]].row > row:
        s.running[base + i] = s.running[base + i - 1]
        i -= 1
    s.running[base + i] = lane
    device.n_running += 1
    if s.launches[row].blocks:
        device.n_resident += 1


@native
def refill(s: State, d: int) -> float:
    """Issue blocks at the end of an instant and compute rates; return when the next blocks end, inf if none run.

    Collectives all of whose blocks have now been issued are `n_ready` lanes in `over`.
    """
    device = s.devices[d]
    s.n_ready = 0
    if device.n_queue:
        lane = device.skipping
        if lane >= 0:  # at most one kernel has skipped waves, and it is still in the queue
            device.skipping = -1
            free_blocks(s, d, lane, undo_skip(s.work[lane], s.cohorts[COHORTS * lane :], s.now))
        _issue_blocks(s, d)
        # Skip whole waves of the head of the queue: until the last ones nothing else can change.
        if device.n_queue:
            lane = s.queued[d * s.width]
        else:
            lane = -1
        if device.n_queue == 1 or (device.n_queue and device.interleave <= 0.0 and s.lanes[lane].rooms < 0):
            is_exchange = s.launches[s.work[lane].row].meeting >= 0
            if not is_exchange and skip_waves(s.work[lane], s.cohorts[COHORTS * lane :]):
                device.skipping = lane
    device.freed = 0
    earliest = _share(s, d)
    if device.n_queue and is_later(device.next_start, s.now):
        earliest = min(earliest, device.next_start)
    return earliest


@native
def _issue_blocks(s: State, d: int) -> None:
    """Issue the blocks that fit of the head of the queue; while it has blocks left, no later kernel issues any.

    One whose partition is full holds up nobody.
    """
    device = s.devices[d]
    first = 0
    while True:
        i = _next_able(s, d, first)
        if i == device.n_queue:
            return
        head = s.queued[d * s.width + i]
        if s.work[head].start < 0 and is_later(device.next_start, s.now):
            return  # nodes of a captured graph start one after another
        if device.freed and s.work[head].start >= 0:
            k = _next_able(s, d, i + 1)
            if k < device.n_queue:
                device.freed = 0
                _interleave(s, d, head, k)
        _issue(s, d, head, s.work[head].unissued)
        if s.work[head].unissued == 0:
            _leave_queue(s, d, i)
        elif s.lanes[head].rooms < 0:
            return
        else:
            first = i + 1


@native
def _next_able(s: State, d: int, i: int) -> int:
    """Return the first place of the queue from i on whose kernel is on the device or fits; else the queue's length."""
    device = s.devices[d]
    if device.n_resident >= device.resident_kernels:
        while i < device.n_queue and s.work[s.queued[d * s.width + i]].start < 0:
            i += 1
    return i


@native
def _leave_queue(s: State, d: int, place: int) -> None:
    s.devices[d].n_queue -= 1
    for i in range(d * s.width + place, d * s.width + s.devices[d].n_queue):
        s.queued[i] = s.queued[i + 1]


@native
def _interleave(s: State, d: int, head: int, place: int) -> None:
    """Issue blocks of the kernel at a place of the queue to its share of the slots that have just become free."""
    slots = _fits(s, d, head)
    following = s.queued[d * s.width + place]
    given = int(s.devices[d].interleave * slots + TIE)
    waits = s.work[following].start < 0 and is_later(s.devices[d].next_start, s.now)
    if given and not waits and s.launches[s.work[following].row].priority == s.launches[s.work[head].row].priority:
        _issue(s, d, head, slots - given)
        _issue(s, d, following, s.work[following].unissued)
        if not s.work[following].unissued:
            _leave_queue(s, d, place)


@native
def _fits(s: State, d: int, lane: int) -> int:
    """Return the number of further blocks of a kernel that fit on the device."""
    work = s.work[lane]
    launch = s.launches[s.work[lane].row]
    count = min(work.residency - work.resident, _holds(s.free[d], launch))
    if s.n_partitions > 0 and s.lanes[lane].rooms >= 0:
        count = min(count, _holds(s.free[s.lanes[lane].rooms], launch))
    taken = _taken_sms(s, d, lane)
    if taken:
        count = min(count, max(0, work.sms - taken) * (work.residency // work.sms) - work.resident)
    return max(0, count)


@native
def _holds(free: Room, launch: LaunchDemand) -> int:
    """Return the number of blocks of a launch that fit into a room."""
    count = free.blocks
    if launch.warps:
        count = min(count, free.warps // launch.warps)
    if launch.registers:
        count = min(count, free.registers // launch.registers)
    if launch.shared_memory:
        count = min(count, free.shared_memory // launch.shared_memory)
    return count


@native
def _taken_sms(s: State, d: int, lane: int) -> int:
    """Return the number of SMs whose blocks share no SM with a block of a kernel."""
    device = s.devices[d]
    launch = s.launches[s.work[lane].row]
    room = s.room[d]
    taken = 0
    running = s.running[d * s.width :]
    for i in range(device.n_running):
        other = s.work[running[i]]
        beside = s.launches[other.row]
        is_beside = running[i] != lane and beside.blocks > 0 and other.resident > 0
        if is_beside and not _share_an_sm(launch, beside, room, device.sms):
            taken += _met_sms(s, d, lane, running[i])
    return taken


@native
def _met_sms(s: State, d: int, lane: int, other: int) -> int:
    """Return the number of SMs of a kernel that have blocks of another kernel beyond its whole layers."""
    held = min(s.work[other].sms, s.work[other].resident)
    if s.lanes[lane].rooms < 0:
        return held
    if s.lanes[other].rooms >= 0:  # no other kernel uses the SMs of a partition
        return 0
    return -(-held * s.lanes[lane].sms // s.devices[d].sms)


@native
def _share_an_sm(launch: LaunchDemand, other: LaunchDemand, room: Room, sms: int) -> bool:
    """Return whether an SM has room for a block of each of two launches."""
    return (
        (launch.warps + other.warps) * sms <= room.warps
        and (launch.registers + other.registers) * sms <= room.registers
        and (launch.shared_memory + other.shared_memory) * sms <= room.shared_memory
    )


@native
def take(s: State, d: int, lane: int, count: int) -> None:
    """Take the room of a number of blocks of a kernel; a negative number returns it."""
    launch = s.launches[s.work[lane].row]
    _take_of(s.free[d], launch, count)
    if s.n_partitions > 0 and s.lanes[lane].rooms >= 0:
        _take_of(s.free[s.lanes[lane].rooms], launch, count)


@native
def _take_of(free: Room, launch: LaunchDemand, count: int) -> None:
    free.warps -= count * launch.warps
    free.blocks -= count
    free.registers -= count * launch.registers
    free.shared_memory -= count * launch.shared_memory


@native
def _issue(s: State, d: int, lane: int, most: int) -> None:
    work = s.work[lane]
    device = s.devices[d]
    count = min(most, work.unissued, _fits(s, d, lane))
    if count <= 0:
        return
    if work.start < 0:
        work.start = s.now
        device.next_start = s.now + device.graph_issue
        if device.n_resident and not is_unslowed(s.launches[work.row]):  # it shares caches and queues
            work.unit += device.crowd_latency / s.launches[work.row].units
        start_running(s, d, lane)
    take(s, d, lane, count)
    if s.launches[work.row].meeting < 0:
        issue(work, s.cohorts[COHORTS * lane :], count, work.sms, device.block_spread, s.now)
        return
    work.unissued -= count
    work.resident += count
    if work.unissued == 0:
        s.over[s.n_ready] = lane
        s.n_ready += 1


@native
def free_blocks(s: State, d: int, lane: int, count: int) -> None:
    """Return the room of blocks that have ended."""
    if count and s.launches[s.work[lane].row].blocks:
        take(s, d, lane, -count)
        s.devices[d].freed = 1


@native
def end_due(s: State, d: int) -> int:
    """End the blocks that are due; return the number of kernels that thereby end, whose lanes are in `over`."""
    device = s.devices[d]
    running = s.running[d * s.width :]
    n = device.n_running
    device.n_running = 0
    ended = 0
    for i in range(n):
        lane = running[i]
        work = s.work[lane]
        if work.rate > 0.0:
            free_blocks(s, d, lane, end_blocks(work, s.cohorts[COHORTS * lane :], s.now))
        if work.rate > 0.0 and work.n_cohorts == 0 and work.unissued == 0:
            if s.launches[work.row].blocks:
                device.n_resident -= 1
            s.over[ended] = lane
            ended += 1
        else:
            running[device.n_running] = lane
            device.n_running += 1
    return ended


@native
def leave(s: State, d: int, lane: int) -> None:
    """Remove a collective that is complete from its device."""
    device = s.devices[d]
    base = d * s.width
    n = device.n_running
    device.n_running = 0
    for i in range(n):
        other = s.running[base + i]
        if other != lane:
            s.running[base + device.n_running] = other
            device.n_running += 1
    device.n_resident -= 1
    free_blocks(s, d, lane, s.work[lane].resident)


@native
def _share(s: State, d: int) -> float:
    """Compute loads, and the rates of all kernels; return the time at which the next blocks end."""
    device = s.devices[d]
    running = s.running[d * s.width :]
    crowd = s.crowds[d]
    n = device.n_running
    crowd.below = crowd.below_warps = crowd.top_load = crowd.top_warps = 0.0
    crowd.tops = 0
    without_grid = warps = 0.0
    compute = memory = blocks = 0
    for i in range(n):
        work = s.work[running[i]]
        sm = s.shares[i]
        launch = s.launches[work.row]
        resident = work.resident
        sm.load = resident * launch.sm_share
        sm.sensitivity = launch.alpha
        if launch.blocks:
            lay_blocks(crowd, work, launch.sm_share, launch.warps)
            sm.load /= device.sms
            warps += resident * launch.warps
            blocks += resident
        else:
            without_grid += launch.sm_share
        if resident:
            compute += launch.kind == 0
            memory += launch.kind == 1
    crowd.below += without_grid
    sm_load = crowd.below + crowd.top_load / device.sms
    if sm_load > 1.0:
        pressed = pressure(n, s.shares) / sm_load
    else:
        pressed = 1.0
    issued = 0.0
    for i in range(n):
        work = s.work[running[i]]
        launch = s.launches[work.row]
        load = sm_load
        if launch.blocks and work.resident:
            load = crowded_load(crowd, work, launch.sm_share, launch.warps)
        work.slowed = max(1.0, launch.alpha * (load * pressed))
        if s.n_partitions > 0 and s.lanes[running[i]].rooms >= 0:
            work.slowed = max(1.0, launch.alpha * _load_on_partition(s, d, running[i]))
        issued += s.shares[i].load / work.slowed
    # Loads of the fullest SMs are estimates: all kernels together issue no more than the SMs can.
    if issued > SATURATED:
        excess = issued
    else:
        excess = 1.0
    dram_load = device.copy_load
    for i in range(n):  # contention for issue slots lowers the load of DRAM
        work = s.work[running[i]]
        dram = s.shares[i]
        launch = s.launches[work.row]
        if not is_unslowed(launch):
            work.slowed *= excess
        dram.load = work.resident * work.dram_share / work.slowed
        dram.sensitivity = launch.beta / work.slowed
        dram_load += dram.load
    dram_pressure = dram_load
    if dram_load > 1.0:
        s.shares[n].load = device.copy_load
        s.shares[n].sensitivity = 0.0
        dram_pressure = pressure(n + 1, s.shares)
    earliest = inf
    for i in range(n):
        work = s.work[running[i]]
        launch = s.launches[work.row]
        rate = 0.0  # a collective, or no block is resident: no progress
        if work.resident and launch.meeting < 0:
            stretch = max(work.slowed, launch.beta * dram_pressure)
            if launch.kind >= 0:
                stretch *= 1.0 + _penalty(s, d, launch.kind, compute, memory)
            rate = 1.0 / (work.unit * stretch)
        set_rate(work, s.now, rate)
        earliest = min(earliest, first_end(work, s.cohorts[COHORTS * running[i] :]))
    if s.recording:
        record_point(s, d, s.now, sm_load, dram_load, warps, min(float(device.sms), blocks + without_grid * device.sms))
    return earliest


@native
def _load_on_partition(s: State, d: int, lane: int) -> float:
    """Return the load of the fullest SM of a partition: its kernel's, and the load of kernels without partitions there.

    Their blocks lie on SMs outside of partitions until these are as full, and then on all alike.
    """
    device = s.devices[d]
    running = s.running[d * s.width :]
    work = s.work[lane]
    launch = s.launches[work.row]
    outside = device.sms
    blocks = 0
    spread = whole = 0.0
    for i in range(device.n_running):
        other = s.work[running[i]]
        beside = s.launches[other.row]
        if s.lanes[running[i]].rooms >= 0:
            outside -= other.sms
        elif beside.blocks:
            blocks += other.resident
            spread += beside.sm_share * other.resident
        else:
            whole += beside.sm_share
    if launch.blocks == 0:
        return launch.sm_share * float(device.sms) / float(work.sms) + whole + spread / device.sms
    load = launch.sm_share * fullest(work, work.sms) + whole
    outside *= -(-work.resident // work.sms)
    if blocks > outside:
        load += spread / device.sms * (1.0 - float(outside) / float(blocks))
    return load


@native
def is_unslowed(launch: LaunchDemand) -> bool:
    """Return whether the blocks of a launch only wait for links: nothing on the device slows them."""
    return launch.alpha == 0.0 and launch.beta == 0.0


@native
def _penalty(s: State, d: int, kind: int, compute: int, memory: int) -> float:
    """Return the largest interference of the kernels beside a kernel of class `kind`, 0 compute, 1 memory."""
    worst = 0.0
    if compute > (kind == 0):
        worst = max(worst, s.interference[4 * d + 2 * kind])
    if memory > (kind == 1):
        worst = max(worst, s.interference[4 * d + 2 * kind + 1])
    return worst


@native
def record_point(s: State, d: int, time: float, sm_load: float, dram_load: float, warps: float, active: float) -> None:
    """Add a point to the load curve of a device if it differs from the last one; an instant keeps its last point."""
    device = s.devices[d]
    point = s.points[device.point]
    if sm_load == point.sm and dram_load == point.dram and warps == point.warps and active == point.active:
        return
    if point.time != time:
        device.point = s.n_points
        s.n_points += 1
        point = s.points[device.point]
        point.device = d
        point.time = time
    point.sm = sm_load
    point.dram = dram_load
    point.warps = warps
    point.active = active


# A kernel that is alone on a device, which the compiled engine runs without events ---------------------


@native
def run_alone(s: State, d: int, lane: int) -> None:
    """Compute the progress of a kernel that has been alone on the device, up to this instant."""
    work = s.work[lane]
    cohorts = s.cohorts[COHORTS * lane :]
    device = s.devices[d]
    launch = s.launches[work.row]
    begin_kernel(work, launch.blocks)
    now = end = work.start
    while is_later(s.now, end):
        now = end
        end_blocks(work, cohorts, now)
        end = go_on_alone(work, cohorts, now, work.residency, work.sms, launch.sm_share, device.block_spread)
        if s.recording and s.n_points < s.point_room:
            resident = work.resident
            slowed = max(1.0, launch.sm_share * fullest(work, work.sms))
            record_point(
                s,
                d,
                now,
                resident * launch.sm_share / device.sms,
                resident * work.dram_share / slowed,
                float(resident * launch.warps),
                float(min(resident, device.sms)),
            )


@native
def join_others(s: State, d: int) -> None:
    """Continue a kernel that has been alone on the device as one among others."""
    device = s.devices[d]
    lane = s.devices[d].alone
    work = s.work[lane]
    cohorts = s.cohorts[COHORTS * lane :]
    device.alone = -1
    if work.start < 0.0:  # it has just arrived
        enqueue(s, d, lane)
        return
    run_alone(s, d, lane)
    start_running(s, d, lane)
    take(s, d, lane, work.resident)
    if work.skipped:
        device.skipping = lane
    if work.unissued:
        enqueue(s, d, lane)
    is_over = work.unissued == 0 and not is_later(finish_time(work, cohorts[work.n_cohorts - 1].due), s.now)
    if not work.skipped and not is_over:
        free_blocks(s, d, lane, end_blocks(work, cohorts, s.now))
