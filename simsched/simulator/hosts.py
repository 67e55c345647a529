"""Host threads of the compiled engine: they issue instructions to lanes, and wait for events."""

from math import inf

from simsched.base.jit import native
from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT
from simsched.simulator.clock import HOST, RELEASE, join, push, wake
from simsched.simulator.contention import is_later
from simsched.simulator.device import busy_streams
from simsched.simulator.recording import HOST_SPAN, WAIT_SPAN, add_span
from simsched.simulator.state import ASLEEP, BEGINNING, NEXT, PAYING, TURN, ClockTable, Event, Host, State


@native
def run_host(run: State, t: int) -> None:
    """Continue host thread `t` until it has to wait."""
    if run.program.captured:
        _launch_graph(run, run.hosts.rows[t])
        return
    clock = run.clock
    program = run.program
    hosts = run.hosts
    host = hosts.rows[t]
    process = clock.first_host + t
    if host.state == PAYING:
        _issue_next(run, host, clock.now)
    while host.at < hosts.thread_ptr[t + 1]:
        i = host.at
        if host.state == TURN and hosts.own is not None:
            host.state = BEGINNING
            host.time += hosts.lead[i]
            if hosts.lead[i] > 0 and not hosts.ahead:
                push(clock, host.time, HOST, process)
                return
        host.start = host.time
        if program.action[i] in (WAIT, SYNC, BARRIER):
            event = run.events.rows[_event_number(run, i)]
            if event.time == inf:
                event.waiters = join(clock, event.waiters, process)
                return
            if is_later(event.time, host.time):
                if run.record.active:
                    span = add_span(run.record, WAIT_SPAN, i, program.place[i], host.time, event.time)
                    span.cause = event.cause
                    host.cause = run.record.n_spans - 1
                host.start = event.time
        host.cost = _cost(run, i, host.time)
        over = host.start + host.cost
        if hosts.ahead:
            _issue_next(run, host, over)
        elif over > host.time:
            host.state = PAYING
            push(clock, over, HOST, process)
            return
        else:
            _issue_next(run, host, clock.now)


@native
def _launch_graph(run: State, host: Host) -> None:
    """Issue all instructions of a captured graph after one host time, the only one in the table."""
    cost = run.hosts.cost[0]
    if run.record.active and cost > 0:
        add_span(run.record, HOST_SPAN, 0, run.program.place[0], 0.0, cost)
        host.cause = run.record.n_spans - 1
    for i in range(run.program.n):
        _issue(run, i, cost, host.cause)
    host.at = run.program.n


@native
def _event_number(run: State, i: int) -> int:
    """Return the number of the event for which a host instruction waits."""
    action = run.program.action[i]
    if action == BARRIER:  # the device has no outstanding kernels
        return 2 * run.events.n + run.program.place[i]
    if action == WAIT:  # the event is issued
        return run.program.argument[i] + run.events.n
    return run.program.argument[i]  # the event is reached


@native
def _cost(run: State, i: int, reached: float) -> float:
    """Return the host time in us of instruction `i`, reached at a time, without the time for which it blocks."""
    hosts = run.hosts
    action = run.program.action[i]
    d = run.program.place[i]
    if hosts.own is not None and hosts.own[i] == hosts.own[i]:  # else it is NaN
        return hosts.own[i]
    if action == BARRIER and busy_streams(run.lanes, d, reached) > 1:
        return hosts.barrier_many[d]
    return hosts.cost[6 * d + action]


@native
def _issue_next(run: State, host: Host, time: float) -> None:
    """Issue the instruction whose host time is over."""
    i = host.at
    program = run.program
    action = program.action[i]
    if run.record.active and host.cost > 0:
        span = add_span(run.record, HOST_SPAN, i, program.place[i], host.start, time)
        span.cause = host.cause
        if action == LAUNCH:
            span.op = program.launch_op[program.argument[i]]
        elif action == COPY:
            span.op = program.copy_op[program.argument[i]]
        host.cause = run.record.n_spans - 1
    host.at = i + 1
    host.state = TURN
    host.time = time
    _issue(run, i, time, host.cause)


@native
def _issue(run: State, i: int, time: float, cause: int) -> None:
    """Append an instruction to its stream; barriers and synchronisations are on no stream."""
    number = run.program.lane_of[i]
    if number < 0:
        return
    lanes = run.lanes
    events = run.events
    lane = lanes.rows[number]
    action = run.program.action[i]
    argument = run.program.argument[i]
    item = lanes.items[lane.tail]
    item.issued = time
    item.argument = argument
    item.code = 4 * i + action
    item.cause = cause
    lane.tail += 1
    if action == RECORD:
        events.rows[argument].lane = number
        happen(run.clock, events.rows[events.n + argument], time, cause)
    elif action == COPY:
        item.issued = time + lane.copy_lag
    elif action == LAUNCH:
        item.issued = time + lane.launch_lag
        run.devices.rows[lane.device].outstanding += 1
        events.rows[2 * events.n + lane.device].time = inf
    if lane.connection >= 0 and action in (LAUNCH, WAIT):
        connection = lanes.connections[lane.connection]
        lanes.passing[connection.tail] = i
        connection.tail += 1
    if lane.state == ASLEEP:
        lane.state = NEXT
        push(run.clock, time, RELEASE, number)


@native
def happen(clock: ClockTable, event: Event, time: float, cause: int) -> None:
    """Mark an event as reached at a time by a span, and wake the processes that wait for it."""
    event.time = time
    event.cause = cause
    event.waiters = wake(clock, event.waiters)
