"""Streams of the compiled engine: a state is a place at which the process of the reference waits."""

from typing import Any

from simsched.program import LAUNCH, RECORD, WAIT
from simsched.simulator.compiled_events import add_span, join, push, take
from simsched.simulator.compiled_gpu import submit
from simsched.simulator.compiled_layout import (
    COMPLETE,
    PROCESSED,
    RELEASE,
    TO_LANE,
    TO_REACHED,
    TO_WAITERS,
    TRIGGERED,
    UNROUTED,
)
from simsched.simulator.compiled_links import start_flow
from simsched.simulator.compiled_tables import (
    compiled,
    connection_at,
    copy_at,
    device_at,
    instruction_at,
    item_at,
    lane_at,
    launch_at,
    mark_at,
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
        if lane.head == lane.tail:
            lane.asleep = 1
            return
        item = item_at(s, lane.head)
        instruction = instruction_at(s, item.instruction)
        action = instruction.action
        if action == LAUNCH:
            over = _launch(s, lane, number, item, instruction)
        elif action == WAIT:
            over = _wait(s, lane, number, item, instruction)
        elif action == RECORD:
            mark = mark_at(s, instruction.argument)
            mark.time = s.now
            mark.cause = item.span if item.issued > lane.time else lane.cause
            mark.reached = TRIGGERED
            push(s, s.now, RELEASE, TO_REACHED, instruction.argument)
            over = True
        else:
            over = _copy(s, lane, number, item, instruction)
        if not over:
            return
        lane.state = NEXT
        lane.head += 1


@compiled
def _launch(s: Any, lane: Any, number: int, item: Any, instruction: Any) -> bool:
    """Go on with a launch; return whether it is over."""
    row = instruction.argument
    launch = launch_at(s, row)
    if lane.state != LAUNCH_OVER:
        free = lane.time if launch.follows else lane.free
        if lane.state == NEXT:
            lane.state = LAUNCH_PASS
            if s.now < free:
                push(s, free, RELEASE, TO_LANE, number)
                return False
        if not _pass_connection(s, lane, number, item.instruction):
            return False
        lane.span_cause = _later_cause(lane, free, item)
        lane.ready = s.now
        lane.state = LAUNCH_OVER
        submit(s, row, number, lane.device)
        return False
    device = device_at(s, lane.device)
    span = add_span(
        s,
        KERNEL_SPAN,
        row,
        launch.op,
        lane.device,
        lane.stream,
        lane.start,
        lane.ready,
        launch.solo,
        lane.span_cause,
    )
    lane.time, lane.cause = s.now, span
    lane.free, lane.free_cause = s.now + lane.gap, span
    device.last_kernel = span
    device.outstanding -= 1
    if not device.outstanding:
        _wake(s, 2 * s.n_events + lane.device)
    return True


@compiled
def _wake(s: Any, waiters: int) -> None:
    """Release those who wait in a list now; who comes later waits for the next time."""
    first = take(s, waiters)
    if first >= 0:
        push(s, s.now, RELEASE, TO_WAITERS, first)


@compiled
def _later_cause(lane: Any, free: float, item: Any) -> int:
    """Return what a kernel or copy waited for last: its issue, the one before it, or an event."""
    if item.issued > max(free, lane.time):
        return int(item.span)
    return int(lane.free_cause if free > lane.time else lane.cause)


@compiled
def _pass_connection(s: Any, lane: Any, number: int, i: int) -> bool:
    """Let instruction `i` leave its hardware queue if it is the first of it, else wait for a change."""
    if lane.connection < 0:
        return True
    connection = connection_at(s, lane.connection)
    waiters = 2 * s.n_events + s.n_devices + lane.connection
    if passing_at(s, connection.head).v != i:
        join(s, waiters, number)
        return False
    connection.head += 1
    _wake(s, waiters)
    return True


@compiled
def _wait(s: Any, lane: Any, number: int, item: Any, instruction: Any) -> bool:
    """Go on with a wait for an event; return whether it is over."""
    mark = mark_at(s, instruction.argument)
    if lane.state == NEXT:
        lane.began = s.now
        lane.state = WAIT_REACHED
        if mark.reached != PROCESSED:
            join(s, s.n_events + instruction.argument, number)
            return False
    if lane.state != WAIT_PASS:
        release = mark.time + (lane.hop if mark.lane != number else 0.0)
        if lane.state == WAIT_REACHED and s.now < release:
            lane.state = WAIT_RELEASED
            push(s, release, RELEASE, TO_LANE, number)
            return False
        if release > lane.time:
            lane.time, lane.cause = release, mark.cause
        if s.now > lane.began:
            add_span(
                s,
                WAIT_SPAN,
                item.instruction,
                -1,
                lane.device,
                lane.stream,
                lane.began,
                lane.began,
                0.0,
                mark.cause,
            )
        lane.state = WAIT_PASS
    return bool(_pass_connection(s, lane, number, item.instruction))


@compiled
def _copy(s: Any, lane: Any, number: int, item: Any, instruction: Any) -> bool:
    """Go on with a copy; return whether it is over."""
    copy = copy_at(s, instruction.argument)
    if lane.state == NEXT or lane.state == COPY_READY:
        # in a captured graph a copy is a node like any other; in a stream copies follow without a gap
        free = lane.free if s.captured else lane.time
        if lane.state == NEXT and s.now < free:
            lane.state = COPY_READY
            push(s, free, RELEASE, TO_LANE, number)
            return False
        lane.span_cause = _later_cause(lane, free, item)
        lane.start = s.now
        lane.state = COPY_OVER
        if copy.exact == copy.exact:
            push(s, lane.start + copy.exact, COMPLETE, TO_LANE, number)
            return False
        route = route_at(s, copy.route)
        if not route.known:
            s.status = UNROUTED + copy.route
            return False
        if copy.nbytes == 0:
            push(s, lane.start + route.latency, COMPLETE, TO_LANE, number)
        else:
            lane.state = COPY_MOVE
            push(s, lane.start + route.latency, RELEASE, TO_LANE, number)
        return False
    if lane.state == COPY_MOVE:
        lane.state = COPY_OVER
        start_flow(s, number)
        return False
    span = add_span(
        s,
        COPY_SPAN,
        instruction.argument,
        copy.op,
        lane.device,
        lane.stream,
        lane.start,
        lane.start,
        copy.solo,
        lane.span_cause,
    )
    lane.time, lane.cause = s.now, span
    lane.free, lane.free_cause = s.now + lane.gap, span
    return True
