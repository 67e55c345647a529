"""Lanes of the compiled engine: a stream of a device runs its instructions one after another."""

from typing import Final

from simsched.base.jit import native
from simsched.model import LAUNCH, RECORD, WAIT
from simsched.simulator.clock import COMPLETE, RELEASE, join, push, wake
from simsched.simulator.contention import begin_kernel, is_later
from simsched.simulator.device import enter
from simsched.simulator.dispatchers import arrive_at_collective, dispatch_later, end_kernel, share_links_later
from simsched.simulator.exchanges import follow_last
from simsched.simulator.hosts import happen
from simsched.simulator.launch_work import LEAST_UNIT, set_up
from simsched.simulator.links import begin_flow
from simsched.simulator.recording import COPY_SPAN, KERNEL_SPAN, WAIT_SPAN, add_span
from simsched.simulator.state import (
    ASLEEP,
    COPY_MOVE,
    COPY_OVER,
    COPY_READY,
    LAUNCH_JOINED,
    LAUNCH_OVER,
    LAUNCH_PASS,
    NEXT,
    WAIT_PASS,
    WAIT_REACHED,
    WAIT_RELEASED,
    ClockTable,
    Item,
    Lane,
    LaneTable,
    State,
)

SHORT: Final = 100.0
"""Shortest block in lengths of an instant whose kernel runs alone: shorter ones may end in one instant."""


@native
def run_lane(run: State, number: int) -> None:
    """Continue a stream until it has to wait."""
    clock = run.clock
    items = run.lanes.items
    lane = run.lanes.rows[number]
    while True:
        if lane.state == NEXT:
            if lane.head == lane.tail:
                lane.state = ASLEEP
                return
            issued = items[lane.head].issued
            if issued > clock.limit:  # its host is ahead
                push(clock, issued, RELEASE, number)
                return
            lane.issued = min(issued, clock.now)
        item = items[lane.head]
        action = item.code & 3
        over = True
        if action == LAUNCH:
            over = _launch(run, lane, number, item)
        elif action == WAIT:
            over = _wait(run, lane, number, item)
        elif action == RECORD:
            if is_later(lane.issued, lane.time):
                cause = item.cause
            else:
                cause = lane.cause
            happen(clock, run.events.rows[item.argument], clock.now, cause)
        else:
            over = _copy(run, lane, number, item.argument)
        if not over:
            return
        lane.state = NEXT
        lane.head += 1


@native
def _launch(run: State, lane: Lane, number: int, item: Item) -> bool:
    """Continue a launch; return whether it is complete."""
    clock = run.clock
    i = item.code >> 2
    row = item.argument
    if lane.state == LAUNCH_OVER:
        _end_launch(run, lane, number, row)
        return True
    if run.devices.launches[row].follows:
        free = lane.time
    else:
        free = lane.free
    if lane.state == NEXT:
        lane.state = LAUNCH_PASS
        if clock.now < free:
            push(clock, free, RELEASE, number)
            return False
    if lane.state == LAUNCH_PASS:
        if not _pass_connection(clock, run.lanes, lane, number, i):
            return False
        if run.record.active:
            _find_cause(run.lanes, lane, free)
        lane.state = LAUNCH_JOINED
        if run.program.captured and run.program.join[i] > 0.0:
            push(clock, clock.now + run.program.join[i], RELEASE, number)
            return False
    lane.ready = clock.now
    lane.state = LAUNCH_OVER
    set_up(run.devices, run.samples, number, row, run.program.launch_op[row], i, clock.now)
    _begin_launch(run, lane, number, row)
    return False


@native
def _begin_launch(run: State, lane: Lane, number: int, row: int) -> None:
    """Give a launch to the dispatcher of its device, or schedule its end where nothing is shared."""
    clock = run.clock
    devices = run.devices
    device = devices.rows[lane.device]
    launch = devices.launches[row]
    work = devices.work[number]
    if launch.meeting >= 0:
        if device.contention and launch.blocks > 0:
            begin_kernel(work, min(launch.blocks, work.residency))
            enter(devices, lane.device, number, clock.now)
            dispatch_later(clock, devices, lane.device)
        else:
            arrive_at_collective(run, number)
    elif not device.contention or (launch.blocks == 0 and launch.sm_share == 0.0):
        work.start = clock.now
        push(clock, clock.now + work.solo, COMPLETE, number)
    elif work.unit < LEAST_UNIT:
        work.start = clock.now
        end_kernel(clock, work, number)
    else:
        begin_kernel(work, launch.blocks)
        is_alone = launch.blocks > 0 and device.alone < 0 and device.n_queue + device.n_running == 0 and lane.rooms < 0
        if is_alone and work.unit > SHORT * (clock.limit - clock.now):
            device.alone = number
        else:
            enter(devices, lane.device, number, clock.now)
        dispatch_later(clock, devices, lane.device)


@native
def _end_launch(run: State, lane: Lane, number: int, row: int) -> None:
    """End the kernel of a launch, and mark its device as idle if it was the last one."""
    now = run.clock.now
    device = run.devices.rows[lane.device]
    lane.ended = now
    if run.record.active and run.devices.launches[row].meeting >= 0:
        follow_last(run.collectives, run.devices, lane, number)
    _end_work(run, lane, number, KERNEL_SPAN, row)
    drained = run.events.rows[2 * run.events.n + lane.device]
    # of kernels that end together, the last one in the order of launches
    if run.record.active and (now > device.last_time or row > device.last_row):
        device.last_time = now
        device.last_row = row
        drained.cause = lane.cause
    device.outstanding -= 1
    if not device.outstanding:
        happen(run.clock, drained, now, drained.cause)


@native
def _end_work(run: State, lane: Lane, number: int, kind: int, item: int) -> None:
    """End the kernel or the copy that runs on a lane, and record its span."""
    now = run.clock.now
    if run.record.active:
        work = run.devices.work[number]
        span = add_span(run.record, kind, item, lane.device, work.start, now)
        if kind == KERNEL_SPAN:
            span.op = run.program.launch_op[item]
        else:
            span.op = run.program.copy_op[item]
        span.stream = lane.stream
        span.cause = lane.span_cause
        span.ready = lane.ready
        span.solo = work.solo
        lane.cause = lane.free_cause = run.record.n_spans - 1
    lane.time = run.makespan = now
    lane.free = now + lane.gap


@native
def _find_cause(lanes: LaneTable, lane: Lane, free: float) -> None:
    """Store the cause of a kernel's or a copy's start: its issue, its predecessor on the stream, or an event."""
    if is_later(lane.issued, max(free, lane.time)):
        lane.span_cause = lanes.items[lane.head].cause
    elif is_later(free, lane.time):
        lane.span_cause = lane.free_cause
    else:
        lane.span_cause = lane.cause


@native
def _pass_connection(clock: ClockTable, lanes: LaneTable, lane: Lane, number: int, i: int) -> bool:
    """Remove instruction `i` from its hardware queue if it is the first there, else wait for a change."""
    if lane.connection < 0:
        return True
    connection = lanes.connections[lane.connection]
    if lanes.passing[connection.head] != i:
        connection.waiters = join(clock, connection.waiters, number)
        return False
    connection.head += 1
    connection.waiters = wake(clock, connection.waiters)
    return True


@native
def _wait(run: State, lane: Lane, number: int, item: Item) -> bool:
    """Continue a wait for an event; return whether it is complete."""
    clock = run.clock
    i = item.code >> 2
    event = run.events.rows[item.argument]
    if lane.state == NEXT:
        lane.ready = clock.now
        lane.state = WAIT_REACHED
        if event.time > clock.now:
            event.waiters = join(clock, event.waiters, number)
            return False
    if lane.state != WAIT_PASS:
        if event.lane == number:
            release = event.time
        else:
            release = event.time + lane.hop
        if lane.state == WAIT_REACHED and clock.now < release:
            lane.state = WAIT_RELEASED
            push(clock, release, RELEASE, number)
            return False
        if run.record.active:
            if is_later(release, lane.time):
                lane.cause = event.cause
            if clock.now > lane.ready:
                span = add_span(run.record, WAIT_SPAN, i, lane.device, lane.ready, clock.now)
                span.stream = lane.stream
                span.cause = event.cause
        lane.time = max(lane.time, release)
        lane.state = WAIT_PASS
    return _pass_connection(clock, run.lanes, lane, number, i)


@native
def _copy(run: State, lane: Lane, number: int, copy: int) -> bool:
    """Continue a copy; return whether it is complete."""
    clock = run.clock
    links = run.links
    work = run.devices.work[number]
    if lane.state == COPY_MOVE:
        lane.state = COPY_OVER
        begin_flow(links, run.devices, number, copy, clock.now)
        share_links_later(clock, links)
        return False
    if lane.state == COPY_OVER:
        _end_work(run, lane, number, COPY_SPAN, copy)
        return True
    # In a captured graph a copy is a node like a kernel; copies of a stream follow without a gap.
    if run.program.captured:
        free = lane.free
    else:
        free = lane.time
    if lane.state == NEXT and clock.now < free:
        lane.state = COPY_READY
        push(clock, free, RELEASE, number)
        return False
    if run.record.active:
        _find_cause(run.lanes, lane, free)
    time = links.copy_exact[copy]
    nbytes = 0.0
    if time != time:  # NaN: no time is given
        time = links.routes[links.copy_route[copy]].latency
        nbytes = links.copy_nbytes[copy]
    if run.record.active:
        work.solo = time + (nbytes / links.routes[links.copy_route[copy]].rate if nbytes > 0 else 0.0)
    lane.ready = work.start = clock.now
    if nbytes > 0:
        lane.state = COPY_MOVE
    else:
        lane.state = COPY_OVER
    push(clock, clock.now + time, RELEASE if nbytes > 0 else COMPLETE, number)
    return False
