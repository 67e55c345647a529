"""Host threads of the compiled engine: they issue instructions to lanes, and wait for events."""

from math import inf

from simsched.base.jit import native
from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT
from simsched.simulator.clock import HOST, RELEASE, join, push, wake
from simsched.simulator.contention import is_later
from simsched.simulator.device import busy_streams
from simsched.simulator.recording import HOST_SPAN, WAIT_SPAN, add_span
from simsched.simulator.state import ASLEEP, BEGINNING, NEXT, PAYING, TURN, Event, Host, State


@native
def run_host(s: State, t: int) -> None:
    """Continue host thread `t` until it has to wait."""
    host = s.hosts[t]
    who = s.n_lanes + t
    if s.captured:  # one host time, the only one in the table, then all instructions are issued at once
        if s.recording and s.cost[0] > 0:
            add_span(s, HOST_SPAN, 0, s.place[0], 0.0, s.cost[0])
            host.cause = s.n_spans - 1
        for i in range(s.n_instructions):
            _issue(s, i, s.cost[0], host.cause)
        host.at = s.n_instructions
        return
    if host.state == PAYING:
        _issue_next(s, host, s.now)
    while host.at < s.thread_ptr[t + 1]:
        i = host.at
        action = s.action[i]
        d = s.place[i]
        if host.state == TURN and s.own is not None:
            host.state = BEGINNING
            host.time += s.lead[i]
            if s.lead[i] > 0 and not s.ahead:
                push(s, host.time, HOST, who)
                return
        host.start = host.time
        if action in (WAIT, SYNC, BARRIER):
            awaited = s.argument[i]  # SYNC: the event is reached
            if action == WAIT:  # WAIT: the event is issued
                awaited += s.n_events
            elif action == BARRIER:  # BARRIER: the device has no outstanding kernels
                awaited = 2 * s.n_events + d
            event = s.events[awaited]
            if event.time == inf:
                event.waiters = join(s, event.waiters, who)
                return
            if is_later(event.time, host.time):
                if s.recording:
                    add_span(s, WAIT_SPAN, i, d, host.time, event.time).cause = event.cause
                    host.cause = s.n_spans - 1
                host.start = event.time
        host.cost = _cost(s, i, host.time)
        over = host.start + host.cost
        if s.ahead:
            _issue_next(s, host, over)
        elif over > host.time:
            host.state = PAYING
            push(s, over, HOST, who)
            return
        else:
            _issue_next(s, host, s.now)


@native
def _cost(s: State, i: int, reached: float) -> float:
    """Return the host time in us of instruction `i`, reached at a time, without the time for which it blocks."""
    action = s.action[i]
    d = s.place[i]
    if s.own is not None and s.own[i] == s.own[i]:  # else it is NaN
        return s.own[i]
    if action == BARRIER and busy_streams(s, d, reached) > 1:
        return s.barrier_many[d]
    return s.cost[6 * d + action]


@native
def _issue_next(s: State, host: Host, time: float) -> None:
    """Issue the instruction whose host time is over."""
    i = host.at
    action = s.action[i]
    d = s.place[i]
    if s.recording and host.cost > 0:
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


@native
def _issue(s: State, i: int, time: float, cause: int) -> None:
    """Append an instruction to its stream; barriers and synchronisations are on no stream."""
    number = s.lane_of[i]
    if number < 0:
        return
    lane = s.lanes[number]
    action = s.action[i]
    argument = s.argument[i]
    item = s.items[lane.tail]
    item.issued = time
    item.argument = argument
    item.code = 4 * i + action
    item.cause = cause
    lane.tail += 1
    if action == RECORD:
        s.events[argument].lane = number
        happen(s, s.events[s.n_events + argument], time, cause)
    elif action == COPY:
        item.issued = time + lane.copy_lag
    elif action == LAUNCH:
        item.issued = time + lane.launch_lag
        s.devices[lane.device].outstanding += 1
        s.events[2 * s.n_events + lane.device].time = inf
    if lane.connection >= 0 and action in (LAUNCH, WAIT):
        connection = s.connections[lane.connection]
        s.passing[connection.tail] = i
        connection.tail += 1
    if lane.state == ASLEEP:
        lane.state = NEXT
        push(s, time, RELEASE, number)


@native
def happen(s: State, event: Event, time: float, cause: int) -> None:
    """Mark an event as reached at a time by a span, and wake the processes that wait for it."""
    event.time = time
    event.cause = cause
    event.waiters = wake(s, event.waiters)
