"""Host threads and streams of the compiled engine: a state is a place at which the process of the reference waits.

A host runs ahead of the clock: when it issues what follows from what it issued before, and from
what other hosts issue, so it says so at once and stops only where it has to wait for a device.
Where several threads act on one device the order between them counts: then each takes a step
an instant, as in the reference.
"""

from math import inf

from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT
from simsched.model.trace.timeline import COPY as COPY_SPAN
from simsched.model.trace.timeline import HOST as HOST_SPAN
from simsched.model.trace.timeline import KERNEL as KERNEL_SPAN
from simsched.model.trace.timeline import WAIT as WAIT_SPAN
from simsched.simulator.compiled.events import add_span, join, push, wake
from simsched.simulator.compiled.gpu import start_flow, submit
from simsched.simulator.contention import is_later
from simsched.simulator.state import ASLEEP, COMPLETE, HOST, NEXT, RELEASE, Host, Item, Lane, State

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


# States: NEXT, and where it waits within an instruction.
LAUNCH_PASS, LAUNCH_OVER, WAIT_REACHED, WAIT_RELEASED, WAIT_PASS, COPY_READY, COPY_MOVE, COPY_OVER = range(2, 10)


def run_lane(s: State, number: int) -> None:
    """Go on with a stream until it has to wait."""
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
        action, over = item.code & 3, True
        if action == LAUNCH:
            over = _launch(s, lane, number, item)
        elif action == WAIT:
            over = _wait(s, lane, number, item)
        elif action == RECORD:
            _record(s, lane, item)
        else:
            over = _copy(s, lane, number, item.argument)
        if not over:
            return
        lane.state = NEXT
        lane.head += 1


def _launch(s: State, lane: Lane, number: int, item: Item) -> bool:
    """Go on with a launch; return whether it is over."""
    i, row = item.code >> 2, item.argument
    if lane.state == LAUNCH_OVER:
        _end_launch(s, lane, number, row)
        return True
    free = lane.time if s.launches[row].follows else lane.free
    if lane.state == NEXT:
        lane.state = LAUNCH_PASS
        if s.now < free:
            push(s, free, RELEASE, number)
            return False
    if _pass_connection(s, lane, number, i):
        _find_cause(s, lane, free)
        lane.ready = s.now
        lane.state = LAUNCH_OVER
        submit(s, row, number, lane.device, i)
    return False


def _end_launch(s: State, lane: Lane, number: int, row: int) -> None:
    device = s.devices[lane.device]
    if s.recording:
        _add_work_span(s, lane, KERNEL_SPAN, row, s.launch_op[row], lane.ready, s.work[number].solo)
        if s.now > device.last_time or row > device.last_row:  # of kernels that end together the last in operator order
            device.last_time, device.last_row, device.last_kernel = s.now, row, lane.cause
    lane.time = s.makespan = s.now
    lane.free = s.now + lane.gap
    device.outstanding -= 1
    if not device.outstanding:
        device.drained = s.now
        device.waiters = wake(s, device.waiters)


def _add_work_span(s: State, lane: Lane, kind: int, item: int, op: int, ready: float, solo: float) -> None:
    """Record the kernel or copy that a lane has been at."""
    span = add_span(s, kind, item, lane.device, lane.start, s.now)
    span.op, span.stream, span.cause, span.ready, span.solo = op, lane.stream, lane.span_cause, ready, solo
    lane.cause = lane.free_cause = s.n_spans - 1


def _find_cause(s: State, lane: Lane, free: float) -> None:
    """Note what a kernel or copy waited for last: its issue, the one before it, or an event."""
    if s.recording:
        if is_later(lane.issued, max(free, lane.time)):
            lane.span_cause = s.items[lane.head].cause
        else:
            lane.span_cause = lane.free_cause if is_later(free, lane.time) else lane.cause


def _pass_connection(s: State, lane: Lane, number: int, i: int) -> bool:
    """Let instruction `i` leave its hardware queue if it is the first of it, else wait for a change."""
    if lane.connection < 0:
        return True
    connection = s.connections[lane.connection]
    if s.passing[connection.head] != i:
        connection.waiters = join(s, connection.waiters, number)
        return False
    connection.head += 1
    connection.waiters = wake(s, connection.waiters)
    return True


def _wait(s: State, lane: Lane, number: int, item: Item) -> bool:
    """Go on with a wait for an event; return whether it is over."""
    i, event = item.code >> 2, s.events[item.argument]
    if lane.state == NEXT:
        lane.start = s.now
        lane.state = WAIT_REACHED
        if event.reached > s.now:
            event.reach_waiters = join(s, event.reach_waiters, number)
            return False
    if lane.state != WAIT_PASS:
        release = event.reached if event.lane == number else event.reached + lane.hop
        if lane.state == WAIT_REACHED and s.now < release:
            lane.state = WAIT_RELEASED
            push(s, release, RELEASE, number)
            return False
        if s.recording:
            _end_wait(s, lane, i, release, event.cause)
        lane.time = max(lane.time, release)
        lane.state = WAIT_PASS
    return _pass_connection(s, lane, number, i)


def _end_wait(s: State, lane: Lane, i: int, release: float, cause: int) -> None:
    """Record a wait, and that it is the last thing that the lane waited for, if it is."""
    if is_later(release, lane.time):
        lane.cause = cause
    if s.now > lane.start:
        span = add_span(s, WAIT_SPAN, i, lane.device, lane.start, s.now)
        span.stream, span.cause = lane.stream, cause


def _record(s: State, lane: Lane, item: Item) -> None:
    event = s.events[item.argument]
    event.cause = item.cause if is_later(lane.issued, lane.time) else lane.cause
    event.reached = s.now
    event.reach_waiters = wake(s, event.reach_waiters)


def _copy(s: State, lane: Lane, number: int, copy: int) -> bool:
    """Go on with a copy; return whether it is over."""
    if lane.state == COPY_MOVE:
        lane.state = COPY_OVER
        start_flow(s, number, copy)
        return False
    if lane.state == COPY_OVER:
        if s.recording:
            _add_work_span(s, lane, COPY_SPAN, copy, s.copy_op[copy], lane.start, _copy_time(s, copy))
        lane.time = s.makespan = s.now
        lane.free = s.now + lane.gap
        return True
    # in a captured graph a copy is a node like any other; in a stream copies follow without a gap
    free = lane.free if s.captured else lane.time
    if lane.state == NEXT and s.now < free:
        lane.state = COPY_READY
        push(s, free, RELEASE, number)
        return False
    _find_cause(s, lane, free)
    lane.start = s.now
    lane.state = COPY_OVER
    exact = s.copy_exact[copy]
    if exact == exact:  # NaN: it is not given
        push(s, s.now + exact, COMPLETE, number)
        return False
    route = s.routes[s.copy_route[copy]]
    moves = s.copy_nbytes[copy] > 0
    lane.state = COPY_MOVE if moves else COPY_OVER
    push(s, s.now + route.latency, RELEASE if moves else COMPLETE, number)
    return False


def _copy_time(s: State, copy: int) -> float:
    """Return how long a copy takes alone."""
    exact = s.copy_exact[copy]
    if exact == exact:
        return exact
    route = s.routes[s.copy_route[copy]]
    return route.latency + s.copy_nbytes[copy] / route.rate
