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
from simsched.simulator.compiled.gpu import share_links_later, submit
from simsched.simulator.contention import is_later
from simsched.simulator.links import begin_flow
from simsched.simulator.state import ASLEEP, COMPLETE, HOST, NEXT, RELEASE, Event, Host, Item, Lane, State

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
        if host.state == TURN and s.own is not None:
            host.state = BEGINNING
            host.time += s.lead[i]
            if s.lead[i] > 0 and not s.ahead:
                push(s, host.time, HOST, who)
                return
        host.start = host.time
        if action in (WAIT, SYNC, BARRIER):
            awaited = s.argument[i]  # that an event is reached,
            if action == WAIT:  # that it is issued,
                awaited += s.n_events
            elif action == BARRIER:  # or that a device is through
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
    return s.own[i] if s.own is not None else s.cost[6 * s.place[i] + s.action[i]]


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
        s.events[argument].lane = number
        _happen(s, s.events[s.n_events + argument], time, cause)
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


def _happen(s: State, event: Event, time: float, cause: int) -> None:
    event.time, event.cause = time, cause
    event.waiters = wake(s, event.waiters)


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
            cause = item.cause if is_later(lane.issued, lane.time) else lane.cause
            _happen(s, s.events[item.argument], s.now, cause)
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
        _end(s, lane, number, KERNEL_SPAN, row, s.launch_op[row])
        device, drained = s.devices[lane.device], s.events[2 * s.n_events + lane.device]
        if s.now > device.last_time or row > device.last_row:  # of kernels that end together the last in operator order
            device.last_time, device.last_row, drained.cause = s.now, row, lane.cause
        device.outstanding -= 1
        if not device.outstanding:
            _happen(s, drained, s.now, drained.cause)
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


def _end(s: State, lane: Lane, number: int, kind: int, item: int, op: int) -> None:
    """End the kernel or copy that a lane has been at."""
    if s.recording:
        work = s.work[number]
        span = add_span(s, kind, item, lane.device, work.start, s.now)
        span.op, span.stream, span.cause, span.ready, span.solo = op, lane.stream, lane.span_cause, lane.ready, work.solo
        lane.cause = lane.free_cause = s.n_spans - 1
    lane.time = s.makespan = s.now
    lane.free = s.now + lane.gap


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
        lane.ready = s.now
        lane.state = WAIT_REACHED
        if event.time > s.now:
            event.waiters = join(s, event.waiters, number)
            return False
    if lane.state != WAIT_PASS:
        release = event.time if event.lane == number else event.time + lane.hop
        if lane.state == WAIT_REACHED and s.now < release:
            lane.state = WAIT_RELEASED
            push(s, release, RELEASE, number)
            return False
        if s.recording:
            if is_later(release, lane.time):
                lane.cause = event.cause
            if s.now > lane.ready:
                span = add_span(s, WAIT_SPAN, i, lane.device, lane.ready, s.now)
                span.stream, span.cause = lane.stream, event.cause
        lane.time = max(lane.time, release)
        lane.state = WAIT_PASS
    return _pass_connection(s, lane, number, i)


def _copy(s: State, lane: Lane, number: int, copy: int) -> bool:
    """Go on with a copy; return whether it is over."""
    if lane.state == COPY_MOVE:
        lane.state = COPY_OVER
        begin_flow(s, number, copy)
        share_links_later(s)
        return False
    if lane.state == COPY_OVER:
        _end(s, lane, number, COPY_SPAN, copy, s.copy_op[copy])
        return True
    # in a captured graph a copy is a node like any other; in a stream copies follow without a gap
    free = lane.free if s.captured else lane.time
    if lane.state == NEXT and s.now < free:
        lane.state = COPY_READY
        push(s, free, RELEASE, number)
        return False
    _find_cause(s, lane, free)
    time, nbytes, work = s.copy_exact[copy], 0.0, s.work[number]
    work.solo = time
    if time != time:  # NaN: it is not given
        route, nbytes = s.routes[s.copy_route[copy]], s.copy_nbytes[copy]
        time, work.solo = route.latency, route.latency + nbytes / route.rate
    lane.ready = work.start = s.now
    lane.state = COPY_MOVE if nbytes > 0 else COPY_OVER
    push(s, s.now + time, RELEASE if nbytes > 0 else COMPLETE, number)
    return False
