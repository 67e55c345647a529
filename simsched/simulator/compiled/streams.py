"""Streams of the compiled engine: a state is a place at which the process of the reference waits."""

from typing import Any

from simsched.program import LAUNCH, RECORD, WAIT
from simsched.simulator.compiled.contention import is_later
from simsched.simulator.compiled.events import add_span, join, push, wake
from simsched.simulator.compiled.gpu import submit
from simsched.simulator.compiled.layout import COMPLETE, RELEASE, UNROUTED
from simsched.simulator.compiled.links import start_flow
from simsched.simulator.compiled.tables import (
    compiled,
    connection_at,
    copy_exact_at,
    copy_nbytes_at,
    copy_op_at,
    copy_route_at,
    device_at,
    event_at,
    event_cause_at,
    issue_span_at,
    item_at,
    kernel_at,
    lane_at,
    launch_at,
    launch_op_at,
    passing_at,
    route_at,
)
from simsched.trace import trace as kinds

COPY_SPAN, KERNEL_SPAN, WAIT_SPAN = kinds.COPY, kinds.KERNEL, kinds.WAIT
# States: at its next instruction, and where it waits within one.
NEXT, LAUNCH_PASS, LAUNCH_OVER, WAIT_REACHED, WAIT_RELEASED, WAIT_PASS, COPY_READY, COPY_MOVE, COPY_OVER = range(9)


@compiled
def run_lane(s: Any, number: int) -> None:
    """Go on with a stream until it has to wait."""
    lane = lane_at(s, number)
    while True:
        if lane.state == NEXT:
            if lane.head == lane.tail:
                lane.asleep = 1
                return
            issued = item_at(s, lane.head).issued
            if issued > s.limit:  # its host is ahead
                push(s, issued, RELEASE, number)
                return
            lane.issued = min(issued, s.now)
        item = item_at(s, lane.head)
        i, action = item.code >> 2, item.code & 3
        if action == LAUNCH:
            over = _launch(s, lane, number, i, item.argument)
        elif action == WAIT:
            over = _wait(s, lane, number, i, item.argument)
        elif action == RECORD:
            event = event_at(s, item.argument)
            if s.recording:
                cause = issue_span_at(s, i).v if is_later(lane.issued, lane.time) else lane.cause
                event_cause_at(s, item.argument).v = cause
            event.reached = s.now
            wake(s, event.reach_waiters)
            event.reach_waiters = -1
            over = True
        else:
            over = _copy(s, lane, number, i, item.argument)
        if not over:
            return
        lane.state = NEXT
        lane.head += 1


@compiled
def _launch(s: Any, lane: Any, number: int, i: int, row: int) -> bool:
    """Go on with a launch; return whether it is over."""
    launch = launch_at(s, row)
    if lane.state != LAUNCH_OVER:
        free = lane.time if launch.follows else lane.free
        if lane.state == NEXT:
            lane.state = LAUNCH_PASS
            if s.now < free:
                push(s, free, RELEASE, number)
                return False
        if not _pass_connection(s, lane, number, i):
            return False
        _find_cause(s, lane, i, free)
        lane.ready = s.now
        lane.state = LAUNCH_OVER
        submit(s, row, number, lane.device, i)
        return False
    device = device_at(s, lane.device)
    if s.recording:
        lane.cause = add_span(
            s,
            KERNEL_SPAN,
            row,
            launch_op_at(s, row).v,
            lane.device,
            lane.stream,
            lane.start,
            s.now,
            lane.ready,
            kernel_at(s, number).solo,
            lane.span_cause,
        )
        lane.free_cause = lane.cause
        if s.now > device.last_time or row > device.last_row:  # of kernels that end together the last in operator order
            device.last_time, device.last_row, device.last_kernel = s.now, row, lane.cause
    lane.time = s.makespan = s.now
    lane.free = s.now + lane.gap
    device.outstanding -= 1
    if not device.outstanding:
        device.drained = s.now
        wake(s, device.waiters)
        device.waiters = -1
    return True


@compiled
def _find_cause(s: Any, lane: Any, i: int, free: float) -> None:
    """Note what a kernel or copy waited for last: its issue, the one before it, or an event."""
    if s.recording:
        if is_later(lane.issued, max(free, lane.time)):
            lane.span_cause = issue_span_at(s, i).v
        else:
            lane.span_cause = lane.free_cause if is_later(free, lane.time) else lane.cause


@compiled
def _pass_connection(s: Any, lane: Any, number: int, i: int) -> bool:
    """Let instruction `i` leave its hardware queue if it is the first of it, else wait for a change."""
    if lane.connection < 0:
        return True
    connection = connection_at(s, lane.connection)
    if passing_at(s, connection.head).v != i:
        connection.waiters = join(s, connection.waiters, number)
        return False
    connection.head += 1
    wake(s, connection.waiters)
    connection.waiters = -1
    return True


@compiled
def _wait(s: Any, lane: Any, number: int, i: int, argument: int) -> bool:
    """Go on with a wait for an event; return whether it is over."""
    event = event_at(s, argument)
    if lane.state == NEXT:
        lane.began = s.now
        lane.state = WAIT_REACHED
        if event.reached > s.now:
            event.reach_waiters = join(s, event.reach_waiters, number)
            return False
    if lane.state != WAIT_PASS:
        release = event.reached
        if event.lane != number:
            release += lane.hop
        if lane.state == WAIT_REACHED and s.now < release:
            lane.state = WAIT_RELEASED
            push(s, release, RELEASE, number)
            return False
        if s.recording:
            cause = event_cause_at(s, argument).v
            if is_later(release, lane.time):
                lane.cause = cause
            if s.now > lane.began:
                add_span(s, WAIT_SPAN, i, -1, lane.device, lane.stream, lane.began, s.now, lane.began, 0.0, cause)
        lane.time = max(lane.time, release)
        lane.state = WAIT_PASS
    return bool(_pass_connection(s, lane, number, i))


@compiled
def _copy(s: Any, lane: Any, number: int, i: int, copy: int) -> bool:
    """Go on with a copy; return whether it is over."""
    exact = copy_exact_at(s, copy).v
    if lane.state == NEXT or lane.state == COPY_READY:
        # in a captured graph a copy is a node like any other; in a stream copies follow without a gap
        free = lane.free if s.captured else lane.time
        if lane.state == NEXT and s.now < free:
            lane.state = COPY_READY
            push(s, free, RELEASE, number)
            return False
        _find_cause(s, lane, i, free)
        lane.start = s.now
        lane.state = COPY_OVER
        if exact == exact:
            push(s, s.now + exact, COMPLETE, number)
            return False
        route = route_at(s, copy_route_at(s, copy).v)
        if not route.known:
            s.status = UNROUTED + copy_route_at(s, copy).v
            return False
        if copy_nbytes_at(s, copy).v > 0:
            lane.state = COPY_MOVE
            push(s, s.now + route.latency, RELEASE, number)
        else:
            push(s, s.now + route.latency, COMPLETE, number)
        return False
    if lane.state == COPY_MOVE:
        lane.state = COPY_OVER
        start_flow(s, number)
        return False
    if s.recording:
        solo = exact
        if exact != exact:
            route = route_at(s, copy_route_at(s, copy).v)
            solo = route.latency + copy_nbytes_at(s, copy).v / route.rate
        lane.cause = lane.free_cause = add_span(
            s,
            COPY_SPAN,
            copy,
            copy_op_at(s, copy).v,
            lane.device,
            lane.stream,
            lane.start,
            s.now,
            lane.start,
            solo,
            lane.span_cause,
        )
    lane.time = s.makespan = s.now
    lane.free = s.now + lane.gap
    return True
