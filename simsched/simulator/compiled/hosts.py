"""Host threads of the compiled engine.

A host runs ahead of the clock: when it issues what follows from what it issued before, and from
what other hosts issue, so it says so at once and stops only where it has to wait for a device.
Where several threads act on one device the order between them counts: then each takes a step
an instant, as in the reference.
"""

from typing import Any

import numpy as np

from simsched.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT
from simsched.simulator.compiled.contention import is_later
from simsched.simulator.compiled.events import add_span, go_on, join, push, wake
from simsched.simulator.compiled.layout import HOST, RELEASE
from simsched.simulator.compiled.tables import (
    action_at,
    argument_at,
    compiled,
    connection_at,
    copy_op_at,
    cost_at,
    device_at,
    event_at,
    event_cause_at,
    event_issue_at,
    host_at,
    issue_span_at,
    item_at,
    lane_at,
    lane_of,
    launch_op_at,
    passing_at,
    place_at,
    thread_ptr_at,
)
from simsched.trace import trace as kinds

HOST_SPAN, WAIT_SPAN = kinds.HOST, kinds.WAIT
# States: at its next instruction, paying for it.
TURN, PAYING = range(2)


@compiled
def run_host(s: Any, t: int) -> None:
    """Go on with host thread `t` until it has to wait."""
    host = host_at(s, t)
    end = thread_ptr_at(s, t + 1).v
    if s.captured:
        _launch_graph(s, host, end)
        return
    if host.state == PAYING:
        host.state = TURN
        _issue_next(s, host, s.now)
    while host.at < end:
        i = host.at
        action, d = action_at(s, i).v, place_at(s, i).v
        host.start = host.time
        if action in (WAIT, SYNC, BARRIER):
            number = argument_at(s, i).v
            if action == BARRIER:
                device = device_at(s, d)
                since = device.drained
                if device.outstanding:
                    device.waiters = join(s, device.waiters, s.n_lanes + t)
                    return
            else:
                event = event_at(s, number)
                since = event.issued if action == WAIT else event.reached
                if since == np.inf:
                    if action == WAIT:
                        event.issue_waiters = join(s, event.issue_waiters, s.n_lanes + t)
                    else:
                        event.reach_waiters = join(s, event.reach_waiters, s.n_lanes + t)
                    return
            if is_later(since, host.time):
                host.start = since
                if s.recording:
                    if action == WAIT:
                        cause = event_issue_at(s, number).v
                    elif action == SYNC:
                        cause = event_cause_at(s, number).v
                    else:
                        cause = device_at(s, d).last_kernel
                    host.cause = add_span(s, WAIT_SPAN, i, -1, d, -1, host.time, since, host.time, 0.0, cause)
        over = host.start + cost_at(s, 6 * d + action).v
        if s.ahead:
            _issue_next(s, host, over)
        elif over > host.time:
            host.state = PAYING
            push(s, over, HOST, s.n_lanes + t)
            return
        else:
            _issue_next(s, host, s.now)


@compiled
def _issue_next(s: Any, host: Any, time: float) -> None:
    """Issue what the host has paid for."""
    i = host.at
    if s.recording and cost_at(s, 6 * place_at(s, i).v + action_at(s, i).v).v > 0:
        action, op = action_at(s, i).v, -1
        if action == LAUNCH:
            op = launch_op_at(s, argument_at(s, i).v).v
        elif action == COPY:
            op = copy_op_at(s, argument_at(s, i).v).v
        host.cause = add_span(s, HOST_SPAN, i, op, place_at(s, i).v, -1, host.start, time, host.start, 0.0, host.cause)
    host.at = i + 1
    host.time = time
    _issue(s, i, time, host.cause)


@compiled
def _launch_graph(s: Any, host: Any, end: int) -> None:
    """Launch the captured graph: one cost (the only one in the table), then everything is issued at once."""
    cost = cost_at(s, 0).v
    if s.recording and cost > 0:
        host.cause = add_span(s, HOST_SPAN, 0, -1, place_at(s, 0).v, -1, 0.0, cost, 0.0, 0.0, -1)
    for i in range(end):
        _issue(s, i, cost, host.cause)
    host.at = end


@compiled
def _issue(s: Any, i: int, time: float, cause: int) -> None:
    number = lane_of(s, i).v
    if number < 0:
        return
    lane, action = lane_at(s, number), action_at(s, i).v
    argument = argument_at(s, i).v
    item = item_at(s, lane.tail)
    item.issued, item.argument, item.code = time, argument, 4 * i + action
    lane.tail += 1
    if s.recording:
        issue_span_at(s, i).v = cause
    if action == RECORD:
        event = event_at(s, argument)
        event.issued, event.lane = time, number
        if s.recording:
            event_issue_at(s, argument).v = cause
        wake(s, event.issue_waiters)
        event.issue_waiters = -1
    elif action == LAUNCH:
        device_at(s, lane.device).outstanding += 1
    if lane.connection >= 0 and action in (LAUNCH, WAIT):
        connection = connection_at(s, lane.connection)
        passing_at(s, connection.tail).v = i
        connection.tail += 1
    if lane.asleep:
        lane.asleep = 0
        if time <= s.limit:
            go_on(s, RELEASE, number)
        else:
            push(s, time, RELEASE, number)
