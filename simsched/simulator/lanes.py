"""Lanes of the compiled engine: a stream of a device runs its instructions one after another."""

from typing import Final

from simsched.base.jit import native
from simsched.model import LAUNCH, RECORD, WAIT
from simsched.simulator.clock import COMPLETE, RELEASE, join, push, wake
from simsched.simulator.contention import begin_kernel, is_later
from simsched.simulator.device import LEAST_UNIT, enter, set_up
from simsched.simulator.dispatchers import arrive_at_collective, dispatch_later, end_kernel, share_links_later
from simsched.simulator.exchanges import follow_last
from simsched.simulator.hosts import happen
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
    Item,
    Lane,
    State,
)

SHORT: Final = 100.0
"""Shortest block in lengths of an instant whose kernel runs alone: shorter ones may end in one instant."""


@native
def run_lane(s: State, number: int) -> None:
    """Continue a stream until it has to wait."""
    lane = s.lanes[number]
    while True:
        if lane.state == NEXT:
            if lane.head == lane.tail:
                lane.state = ASLEEP
                return
            issued = s.items[lane.head].issued
            if issued > s.limit:  # its host is ahead
                push(s, issued, RELEASE, number)
                return
            lane.issued = min(issued, s.now)
        item = s.items[lane.head]
        action = item.code & 3
        over = True
        if action == LAUNCH:
            over = _launch(s, lane, number, item)
        elif action == WAIT:
            over = _wait(s, lane, number, item)
        elif action == RECORD:
            if is_later(lane.issued, lane.time):
                cause = item.cause
            else:
                cause = lane.cause
            happen(s, s.events[item.argument], s.now, cause)
        else:
            over = _copy(s, lane, number, item.argument)
        if not over:
            return
        lane.state = NEXT
        lane.head += 1


@native
def _launch(s: State, lane: Lane, number: int, item: Item) -> bool:
    """Continue a launch; return whether it is complete."""
    i = item.code >> 2
    row = item.argument
    device = s.devices[lane.device]
    if lane.state == LAUNCH_OVER:
        lane.ended = s.now
        if s.recording and s.launches[row].meeting >= 0:
            follow_last(s, number)
        _end_work(s, lane, number, KERNEL_SPAN, row)
        drained = s.events[2 * s.n_events + lane.device]
        # of kernels that end together, the last one in the order of launches
        if s.recording and (s.now > device.last_time or row > device.last_row):
            device.last_time = s.now
            device.last_row = row
            drained.cause = lane.cause
        device.outstanding -= 1
        if not device.outstanding:
            happen(s, drained, s.now, drained.cause)
        return True
    if s.launches[row].follows:
        free = lane.time
    else:
        free = lane.free
    if lane.state == NEXT:
        lane.state = LAUNCH_PASS
        if s.now < free:
            push(s, free, RELEASE, number)
            return False
    if lane.state == LAUNCH_PASS:
        if not _pass_connection(s, lane, number, i):
            return False
        _find_cause(s, lane, free)
        lane.state = LAUNCH_JOINED
        if s.captured and s.join[i] > 0.0:
            push(s, s.now + s.join[i], RELEASE, number)
            return False
    lane.ready = s.now
    lane.state = LAUNCH_OVER
    set_up(s, row, number, lane.device, i)
    launch = s.launches[row]
    work = s.work[number]
    if launch.meeting >= 0:
        if device.contention and launch.blocks > 0:
            begin_kernel(work, min(launch.blocks, work.residency))
            enter(s, lane.device, number)
            dispatch_later(s, lane.device)
        else:
            arrive_at_collective(s, number)
    elif not device.contention or (launch.blocks == 0 and launch.sm_share == 0.0):
        work.start = s.now
        push(s, s.now + work.solo, COMPLETE, number)
    elif work.unit < LEAST_UNIT:
        work.start = s.now
        end_kernel(s, number)
    else:
        begin_kernel(work, launch.blocks)
        is_alone = launch.blocks > 0 and device.alone < 0 and device.n_queue + device.n_running == 0 and lane.rooms < 0
        if is_alone and work.unit > SHORT * (s.limit - s.now):
            device.alone = number
        else:
            enter(s, lane.device, number)
        dispatch_later(s, lane.device)
    return False


@native
def _end_work(s: State, lane: Lane, number: int, kind: int, item: int) -> None:
    """End the kernel or the copy that runs on a lane."""
    if s.recording:
        work = s.work[number]
        span = add_span(s, kind, item, lane.device, work.start, s.now)
        if kind == KERNEL_SPAN:
            span.op = s.launch_op[item]
        else:
            span.op = s.copy_op[item]
        span.stream = lane.stream
        span.cause = lane.span_cause
        span.ready = lane.ready
        span.solo = work.solo
        lane.cause = lane.free_cause = s.n_spans - 1
    lane.time = s.makespan = s.now
    lane.free = s.now + lane.gap


@native
def _find_cause(s: State, lane: Lane, free: float) -> None:
    """Store the cause of a kernel's or a copy's start: its issue, its predecessor on the stream, or an event."""
    if s.recording:
        if is_later(lane.issued, max(free, lane.time)):
            lane.span_cause = s.items[lane.head].cause
        else:
            if is_later(free, lane.time):
                lane.span_cause = lane.free_cause
            else:
                lane.span_cause = lane.cause


@native
def _pass_connection(s: State, lane: Lane, number: int, i: int) -> bool:
    """Remove instruction `i` from its hardware queue if it is the first there, else wait for a change."""
    if lane.connection < 0:
        return True
    connection = s.connections[lane.connection]
    if s.passing[connection.head] != i:
        connection.waiters = join(s, connection.waiters, number)
        return False
    connection.head += 1
    connection.waiters = wake(s, connection.waiters)
    return True


@native
def _wait(s: State, lane: Lane, number: int, item: Item) -> bool:
    """Continue a wait for an event; return whether it is complete."""
    i = item.code >> 2
    event = s.events[item.argument]
    if lane.state == NEXT:
        lane.ready = s.now
        lane.state = WAIT_REACHED
        if event.time > s.now:
            event.waiters = join(s, event.waiters, number)
            return False
    if lane.state != WAIT_PASS:
        if event.lane == number:
            release = event.time
        else:
            release = event.time + lane.hop
        if lane.state == WAIT_REACHED and s.now < release:
            lane.state = WAIT_RELEASED
            push(s, release, RELEASE, number)
            return False
        if s.recording:
            if is_later(release, lane.time):
                lane.cause = event.cause
            if s.now > lane.ready:
                span = add_span(s, WAIT_SPAN, i, lane.device, lane.ready, s.now)
                span.stream = lane.stream
                span.cause = event.cause
        lane.time = max(lane.time, release)
        lane.state = WAIT_PASS
    return _pass_connection(s, lane, number, i)


@native
def _copy(s: State, lane: Lane, number: int, copy: int) -> bool:
    """Continue a copy; return whether it is complete."""
    if lane.state == COPY_MOVE:
        lane.state = COPY_OVER
        begin_flow(s, number, copy)
        share_links_later(s)
        return False
    if lane.state == COPY_OVER:
        _end_work(s, lane, number, COPY_SPAN, copy)
        return True
    # In a captured graph a copy is a node like a kernel; copies of a stream follow without a gap.
    if s.captured:
        free = lane.free
    else:
        free = lane.time
    if lane.state == NEXT and s.now < free:
        lane.state = COPY_READY
        push(s, free, RELEASE, number)
        return False
    _find_cause(s, lane, free)
    time = s.copy_exact[copy]
    nbytes = 0.0
    work = s.work[number]
    if time != time:  # NaN: no time is given
        time = s.routes[s.copy_route[copy]].latency
        nbytes = s.copy_nbytes[copy]
    if s.recording:
        work.solo = time + (nbytes / s.routes[s.copy_route[copy]].rate if nbytes > 0 else 0.0)
    lane.ready = work.start = s.now
    if nbytes > 0:
        lane.state = COPY_MOVE
    else:
        lane.state = COPY_OVER
    push(s, s.now + time, RELEASE if nbytes > 0 else COMPLETE, number)
    return False
