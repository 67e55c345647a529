"""Host threads of the compiled engine.

A host runs ahead of the clock: when it issues what follows from what it issued before, and from
what other hosts issue, so it says so at once and stops only where it has to wait for a device.
Where several threads act on one device the order between them counts: then each takes a step
an instant, as in the reference.
"""

from math import inf

from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT
from simsched.model.trace.timeline import HOST as HOST_SPAN
from simsched.model.trace.timeline import WAIT as WAIT_SPAN
from simsched.simulator.compiled.events import add_span, join, push, wake
from simsched.simulator.contention import is_later
from simsched.simulator.state import ASLEEP, HOST, NEXT, RELEASE, Host, State

# States: at its next instruction, in time for it, paying for it.
TURN, BEGINNING, PAYING = range(3)


def run_host(s: State, t: int) -> None:
    """Go on with host thread `t` until it has to wait."""
    host, who = s.hosts[t], s.n_lanes + t
    if s.captured:
        _launch_graph(s, host)
        return
    if host.state == PAYING:
        _issue_next(s, host, s.now)
    while host.at < s.thread_ptr[t + 1]:
        i = host.at
        action, d = s.action[i], s.place[i]
        if s.timed and host.state == TURN:
            host.state = BEGINNING
            host.time += s.lead[i]
            if s.lead[i] > 0 and not s.ahead:
                push(s, host.time, HOST, who)
                return
        host.start = host.time
        if action in (WAIT, SYNC, BARRIER):
            since = _free_since(s, i)
            if since == inf:
                _wait_for(s, i, who)
                return
            if is_later(since, host.time):
                if s.recording:
                    cause = _freed_by(s, i)
                    add_span(s, WAIT_SPAN, i, d, host.time, since).cause = cause
                    host.cause = s.n_spans - 1
                host.start = since
        over = host.start + _cost(s, i)
        if s.ahead:
            _issue_next(s, host, over)
        elif over > host.time:
            host.state = PAYING
            push(s, over, HOST, who)
            return
        else:
            _issue_next(s, host, s.now)


def _cost(s: State, i: int) -> float:
    """Return what instruction `i` takes of the host in us, once nothing blocks it."""
    if s.timed:
        return s.own[i]
    return s.cost[6 * s.place[i] + s.action[i]]


def _free_since(s: State, i: int) -> float:
    """Return since when what instruction `i` waits for, a device or an event, is so; inf: it is not."""
    if s.action[i] == BARRIER:
        return s.devices[s.place[i]].drained
    event = s.events[s.argument[i]]
    return event.issued if s.action[i] == WAIT else event.reached


def _wait_for(s: State, i: int, who: int) -> None:
    if s.action[i] == BARRIER:
        device = s.devices[s.place[i]]
        device.waiters = join(s, device.waiters, who)
        return
    event = s.events[s.argument[i]]
    if s.action[i] == WAIT:
        event.issue_waiters = join(s, event.issue_waiters, who)
    else:
        event.reach_waiters = join(s, event.reach_waiters, who)


def _freed_by(s: State, i: int) -> int:
    """Return the span that ended the wait of instruction `i`."""
    if s.action[i] == BARRIER:
        return s.devices[s.place[i]].last_kernel
    event = s.events[s.argument[i]]
    return event.issue if s.action[i] == WAIT else event.cause


def _issue_next(s: State, host: Host, time: float) -> None:
    """Issue what the host has paid for."""
    i = host.at
    action, d = s.action[i], s.place[i]
    if s.recording and _cost(s, i) > 0:
        span = add_span(s, HOST_SPAN, i, d, host.start, time)
        span.cause = host.cause
        if action == LAUNCH:
            span.op = s.launch_op[s.argument[i]]
        elif action == COPY:
            span.op = s.copy_op[s.argument[i]]
        host.cause = s.n_spans - 1
    host.at = i + 1
    host.state = TURN
    host.time = time
    _issue(s, i, time, host.cause)


def _launch_graph(s: State, host: Host) -> None:
    """Launch the captured graph: one cost (the only one in the table), then everything is issued at once."""
    cost = s.cost[0]
    if s.recording and cost > 0:
        add_span(s, HOST_SPAN, 0, s.place[0], 0.0, cost)
        host.cause = s.n_spans - 1
    for i in range(s.n_instructions):
        _issue(s, i, cost, host.cause)
    host.at = s.n_instructions


def _issue(s: State, i: int, time: float, cause: int) -> None:
    """Put an instruction on its stream; a barrier or sync is on none."""
    number = s.lane_of[i]
    if number < 0:
        return
    lane, action, argument = s.lanes[number], s.action[i], s.argument[i]
    item = s.items[lane.tail]
    item.issued, item.argument, item.code, item.cause = time, argument, 4 * i + action, cause
    lane.tail += 1
    if action == RECORD:
        event = s.events[argument]
        event.issued, event.lane, event.issue = time, number, cause
        event.issue_waiters = wake(s, event.issue_waiters)
    elif action == COPY:
        item.issued = time + lane.copy_lag
    elif action == LAUNCH:
        item.issued = time + lane.launch_lag
        s.devices[lane.device].outstanding += 1
        s.devices[lane.device].drained = inf
    if lane.connection >= 0 and action in (LAUNCH, WAIT):
        connection = s.connections[lane.connection]
        s.passing[connection.tail] = i
        connection.tail += 1
    if lane.state == ASLEEP:
        lane.state = NEXT
        push(s, time, RELEASE, number)
