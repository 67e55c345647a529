"""The block scheduler of a device: which blocks are issued, and which have ended; both engines run this code."""

from simsched.base.jit import native
from simsched.base.units import TIE
from simsched.simulator.contention import add_cohort, end_blocks, is_later, issue, skip_waves, undo_skip
from simsched.simulator.rates import is_unslowed, share_device
from simsched.simulator.state import COHORTS, DeviceTable, LaneTable, LaunchDemand, RecordTable, Room


@native
def busy_streams(lanes: LaneTable, d: int, since: float) -> int:
    """Return the number of streams of a finished device that had kernels which ended after a time."""
    n = 0
    for i in range(lanes.n):
        if lanes.rows[i].device == d and is_later(lanes.rows[i].ended, since):
            n += 1
    return n


@native
def enter(devices: DeviceTable, d: int, lane: int, now: float) -> None:
    """Add a kernel with a grid to the queue of the block scheduler, one without a grid to the running kernels."""
    work = devices.work[lane]
    if devices.launches[work.row].blocks:
        enqueue(devices, d, lane)
    else:  # without a grid it needs no room
        work.start = now
        work.resident = 1
        add_cohort(work, devices.cohorts[COHORTS * lane :], 1.0, 1)
        start_running(devices, d, lane)


@native
def enqueue(devices: DeviceTable, d: int, lane: int) -> None:
    """Insert a kernel into the queue of the block scheduler, by priority, arrival and place in the program."""
    device = devices.rows[d]
    base = d * devices.width
    i = device.n_queue
    while i > 0 and _before(devices, lane, devices.queued[base + i - 1]):
        devices.queued[base + i] = devices.queued[base + i - 1]
        i -= 1
    devices.queued[base + i] = lane
    device.n_queue += 1


@native
def _before(devices: DeviceTable, a: int, b: int) -> bool:
    """Return whether lane a's kernel is dispatched before lane b's: by priority, arrival, place in the program."""
    mine = devices.work[a]
    theirs = devices.work[b]
    priority = devices.launches[mine.row].priority - devices.launches[theirs.row].priority
    if priority != 0:
        return priority < 0
    if mine.arrival != theirs.arrival:
        return mine.arrival < theirs.arrival
    return mine.place < theirs.place


@native
def start_running(devices: DeviceTable, d: int, lane: int) -> None:
    """Insert a kernel into the running ones, by the row of its launch."""
    device = devices.rows[d]
    base = d * devices.width
    row = devices.work[lane].row
    i = device.n_running
    while i > 0 and devices.work[devices.running[base + i - 1]].row > row:
        devices.running[base + i] = devices.running[base + i - 1]
        i -= 1
    devices.running[base + i] = lane
    device.n_running += 1
    if devices.launches[row].blocks:
        device.n_resident += 1


@native
def refill(devices: DeviceTable, record: RecordTable, d: int, now: float) -> float:
    """Issue blocks at the end of an instant and compute rates; return when the next blocks end, inf if none run.

    Collectives all of whose blocks have now been issued are `n_results` lanes in `results`.
    """
    device = devices.rows[d]
    devices.n_results = 0
    if device.n_queue:
        lane = device.skipping
        if lane >= 0:  # at most one kernel has skipped waves, and it is still in the queue
            device.skipping = -1
            free_blocks(devices, d, lane, undo_skip(devices.work[lane], devices.cohorts[COHORTS * lane :], now))
        _issue_blocks(devices, d, now)
        # Skip whole waves of the head of the queue: until the last ones nothing else can change.
        if device.n_queue:
            lane = devices.queued[d * devices.width]
        else:
            lane = -1
        if device.n_queue == 1 or (device.n_queue and device.interleave <= 0.0 and devices.work[lane].rooms < 0):
            is_exchange = devices.launches[devices.work[lane].row].meeting >= 0
            if not is_exchange and skip_waves(devices.work[lane], devices.cohorts[COHORTS * lane :]):
                device.skipping = lane
    device.freed = 0
    earliest = share_device(devices, record, d, now)
    if device.n_queue and is_later(device.next_start, now):
        earliest = min(earliest, device.next_start)
    return earliest


@native
def _issue_blocks(devices: DeviceTable, d: int, now: float) -> None:
    """Issue the blocks that fit of the head of the queue; while it has blocks left, no later kernel issues any.

    One whose partition is full holds up nobody.
    """
    device = devices.rows[d]
    first = 0
    while True:
        i = _next_able(devices, d, first)
        if i == device.n_queue:
            return
        head = devices.queued[d * devices.width + i]
        if devices.work[head].start < 0 and is_later(device.next_start, now):
            return  # nodes of a captured graph start one after another
        if device.freed and devices.work[head].start >= 0:
            k = _next_able(devices, d, i + 1)
            if k < device.n_queue:
                device.freed = 0
                _interleave(devices, d, head, k, now)
        _issue(devices, d, head, devices.work[head].unissued, now)
        if devices.work[head].unissued == 0:
            _leave_queue(devices, d, i)
        elif devices.work[head].rooms < 0:
            return
        else:
            first = i + 1


@native
def _next_able(devices: DeviceTable, d: int, i: int) -> int:
    """Return the first place of the queue from i on whose kernel is on the device or fits; else the queue's length."""
    device = devices.rows[d]
    if device.n_resident >= device.resident_kernels:
        while i < device.n_queue and devices.work[devices.queued[d * devices.width + i]].start < 0:
            i += 1
    return i


@native
def _leave_queue(devices: DeviceTable, d: int, place: int) -> None:
    devices.rows[d].n_queue -= 1
    for i in range(d * devices.width + place, d * devices.width + devices.rows[d].n_queue):
        devices.queued[i] = devices.queued[i + 1]


@native
def _interleave(devices: DeviceTable, d: int, head: int, place: int, now: float) -> None:
    """Issue blocks of the kernel at a place of the queue to its share of the slots that have just become free."""
    slots = _fits(devices, d, head)
    following = devices.queued[d * devices.width + place]
    given = int(devices.rows[d].interleave * slots + TIE)
    waits = devices.work[following].start < 0 and is_later(devices.rows[d].next_start, now)
    if (
        given
        and not waits
        and devices.launches[devices.work[following].row].priority == devices.launches[devices.work[head].row].priority
    ):
        _issue(devices, d, head, slots - given, now)
        _issue(devices, d, following, devices.work[following].unissued, now)
        if not devices.work[following].unissued:
            _leave_queue(devices, d, place)


@native
def _fits(devices: DeviceTable, d: int, lane: int) -> int:
    """Return the number of further blocks of a kernel that fit on the device."""
    work = devices.work[lane]
    launch = devices.launches[devices.work[lane].row]
    count = min(work.residency - work.resident, _holds(devices.free[d], launch))
    if devices.n_partitions > 0 and devices.work[lane].rooms >= 0:
        count = min(count, _holds(devices.free[devices.work[lane].rooms], launch))
    taken = _taken_sms(devices, d, lane)
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
def _taken_sms(devices: DeviceTable, d: int, lane: int) -> int:
    """Return the number of SMs whose blocks share no SM with a block of a kernel."""
    device = devices.rows[d]
    launch = devices.launches[devices.work[lane].row]
    room = devices.room[d]
    taken = 0
    running = devices.running[d * devices.width :]
    for i in range(device.n_running):
        other = devices.work[running[i]]
        beside = devices.launches[other.row]
        is_beside = running[i] != lane and beside.blocks > 0 and other.resident > 0
        if is_beside and not _share_an_sm(launch, beside, room, device.sms):
            taken += _met_sms(devices, d, lane, running[i])
    return taken


@native
def _met_sms(devices: DeviceTable, d: int, lane: int, other: int) -> int:
    """Return the number of SMs of a kernel that have blocks of another kernel beyond its whole layers."""
    held = min(devices.work[other].sms, devices.work[other].resident)
    if devices.work[lane].rooms < 0:
        return held
    if devices.work[other].rooms >= 0:  # no other kernel uses the SMs of a partition
        return 0
    return -(-held * devices.work[lane].sms // devices.rows[d].sms)


@native
def _share_an_sm(launch: LaunchDemand, other: LaunchDemand, room: Room, sms: int) -> bool:
    """Return whether an SM has room for a block of each of two launches."""
    return (
        (launch.warps + other.warps) * sms <= room.warps
        and (launch.registers + other.registers) * sms <= room.registers
        and (launch.shared_memory + other.shared_memory) * sms <= room.shared_memory
    )


@native
def take(devices: DeviceTable, d: int, lane: int, count: int) -> None:
    """Take the room of a number of blocks of a kernel; a negative number returns it."""
    launch = devices.launches[devices.work[lane].row]
    _take_of(devices.free[d], launch, count)
    if devices.n_partitions > 0 and devices.work[lane].rooms >= 0:
        _take_of(devices.free[devices.work[lane].rooms], launch, count)


@native
def _take_of(free: Room, launch: LaunchDemand, count: int) -> None:
    free.warps -= count * launch.warps
    free.blocks -= count
    free.registers -= count * launch.registers
    free.shared_memory -= count * launch.shared_memory


@native
def _issue(devices: DeviceTable, d: int, lane: int, most: int, now: float) -> None:
    work = devices.work[lane]
    device = devices.rows[d]
    count = min(most, work.unissued, _fits(devices, d, lane))
    if count <= 0:
        return
    if work.start < 0:
        work.start = now
        device.next_start = now + device.graph_issue
        if device.n_resident and not is_unslowed(devices.launches[work.row]):  # it shares caches and queues
            work.unit += device.crowd_latency / devices.launches[work.row].units
        start_running(devices, d, lane)
    take(devices, d, lane, count)
    if devices.launches[work.row].meeting < 0:
        issue(work, devices.cohorts[COHORTS * lane :], count, work.sms, device.block_spread, now)
        return
    work.unissued -= count
    work.resident += count
    if work.unissued == 0:
        devices.results[devices.n_results] = lane
        devices.n_results += 1


@native
def free_blocks(devices: DeviceTable, d: int, lane: int, count: int) -> None:
    """Return the room of blocks that have ended."""
    if count and devices.launches[devices.work[lane].row].blocks:
        take(devices, d, lane, -count)
        devices.rows[d].freed = 1


@native
def end_due(devices: DeviceTable, d: int, now: float) -> int:
    """End the blocks that are due; return the number of kernels that thereby end, whose lanes are in `results`."""
    device = devices.rows[d]
    running = devices.running[d * devices.width :]
    n = device.n_running
    device.n_running = 0
    ended = 0
    for i in range(n):
        lane = running[i]
        work = devices.work[lane]
        if work.rate > 0.0:
            free_blocks(devices, d, lane, end_blocks(work, devices.cohorts[COHORTS * lane :], now))
        if work.rate > 0.0 and work.n_cohorts == 0 and work.unissued == 0:
            if devices.launches[work.row].blocks:
                device.n_resident -= 1
            devices.results[ended] = lane
            ended += 1
        else:
            running[device.n_running] = lane
            device.n_running += 1
    return ended


@native
def leave(devices: DeviceTable, d: int, lane: int) -> None:
    """Remove a collective that is complete from its device."""
    device = devices.rows[d]
    base = d * devices.width
    n = device.n_running
    device.n_running = 0
    for i in range(n):
        other = devices.running[base + i]
        if other != lane:
            devices.running[base + device.n_running] = other
            device.n_running += 1
    device.n_resident -= 1
    free_blocks(devices, d, lane, devices.work[lane].resident)
