"""Host threads of the compiled engine: a state is a place at which the process of the reference waits."""

from typing import Any

from simsched.program import BARRIER, LAUNCH, RECORD, SYNC, WAIT
from simsched.simulator.compiled_events import add_span, join, push
from simsched.simulator.compiled_layout import HOST, PROCESSED, RELEASE, TO_HOST, TO_ISSUED, TO_LANE, TRIGGERED
from simsched.simulator.compiled_tables import (
    compiled,
    connection_at,
    device_at,
    host_at,
    instruction_at,
    item_at,
    lane_at,
    mark_at,
    passing_at,
)
from simsched.trace import trace as kinds

HOST_SPAN, WAIT_SPAN = kinds.HOST, kinds.WAIT
# States: at its next instruction, blocked before it, paying for it; launching a captured graph.
TURN, BLOCKED, PAYING, LAUNCHING = range(4)


@compiled
def run_host(s: Any, t: int) -> None:
    """Go on with host thread `t` until it has to wait."""
    host = host_at(s, t)
    if s.captured:
        _launch_graph(s, host, t)
        return
    if host.state == PAYING:
        _pay(s, host)
    while True:
        i = host.at
        if host.state == TURN:
            if i == host.end:
                return
            host.began = s.now
        instruction = instruction_at(s, i)
        if _blocked(s, instruction, t):
            host.state = BLOCKED
            return
        waited = s.now > host.began
        if waited:
            host.cause = add_span(
                s,
                WAIT_SPAN,
                i,
                -1,
                instruction.device,
                -1,
                host.began,
                host.began,
                0.0,
                _unblocked_by(s, instruction),
            )
        if instruction.cost > 0 or waited:
            host.start = s.now
            host.state = PAYING
            push(s, host.start + instruction.cost, HOST, TO_HOST, t)
            return
        host.state = TURN
        _issue(s, i, host.cause)
        host.at = i + 1


@compiled
def _pay(s: Any, host: Any) -> None:
    """Issue what the host has just paid for."""
    i = host.at
    instruction = instruction_at(s, i)
    if instruction.cost > 0:
        host.cause = add_span(
            s, HOST_SPAN, i, instruction.subject, instruction.device, -1, host.start, host.start, 0.0, host.cause
        )
    _issue(s, i, host.cause)
    host.at = i + 1
    host.state = TURN


@compiled
def _launch_graph(s: Any, host: Any, t: int) -> None:
    """Launch the captured graph: one cost (that of its first row), then everything is issued at once."""
    cost = instruction_at(s, 0).cost
    if host.state == TURN and cost > 0:
        host.state = LAUNCHING
        push(s, cost, HOST, TO_HOST, t)
        return
    if host.state == LAUNCHING:
        host.cause = add_span(s, HOST_SPAN, 0, -1, instruction_at(s, 0).device, -1, 0.0, 0.0, 0.0, -1)
    for i in range(s.n_instructions):
        _issue(s, i, host.cause)
    host.at = s.n_instructions


@compiled
def _blocked(s: Any, instruction: Any, t: int) -> bool:
    """Let a host wait for what it needs before it can issue an instruction; return whether it has to."""
    action, event = instruction.action, instruction.argument
    if action == WAIT:
        if mark_at(s, event).issued == PROCESSED:
            return False
        join(s, event, s.n_lanes + t)
        return True
    if action == SYNC:
        if mark_at(s, event).reached == PROCESSED:
            return False
        join(s, s.n_events + event, s.n_lanes + t)
        return True
    if action == BARRIER and device_at(s, instruction.device).outstanding:
        join(s, 2 * s.n_events + instruction.device, s.n_lanes + t)
        return True
    return False


@compiled
def _unblocked_by(s: Any, instruction: Any) -> int:
    if instruction.action == BARRIER:
        return int(device_at(s, instruction.device).last_kernel)
    mark = mark_at(s, instruction.argument)
    return int(mark.issue if instruction.action == WAIT else mark.cause)


@compiled
def _issue(s: Any, i: int, cause: int) -> None:
    instruction = instruction_at(s, i)
    action = instruction.action
    if action in (BARRIER, SYNC):
        return
    number = instruction.lane
    lane = lane_at(s, number)
    if action == RECORD:
        mark = mark_at(s, instruction.argument)
        mark.issue, mark.lane, mark.issued = cause, number, TRIGGERED
        push(s, s.now, RELEASE, TO_ISSUED, instruction.argument)
    elif action == LAUNCH:
        device_at(s, instruction.device).outstanding += 1
    item = item_at(s, lane.tail)
    item.instruction, item.issued, item.span = i, s.now, cause
    lane.tail += 1
    if lane.connection >= 0 and action in (LAUNCH, WAIT):
        connection = connection_at(s, lane.connection)
        passing_at(s, connection.tail).v = i
        connection.tail += 1
    if lane.asleep:
        lane.asleep = 0
        push(s, s.now, RELEASE, TO_LANE, number)
