"""The compiled engine: the model of `reference` with the same results, in machine code.

Processes have numbers: lanes, host threads, timers of devices, the timer of links, dispatchers of devices, the sharing
of links, and collectives, in this order. A process waits in one list, is in one queue of the present instant, or
continues at one later time. The state of a host or a lane is the place at which the process of the reference waits.

A host runs ahead of the clock: the times at which it issues depend only on its earlier instructions and on other
hosts, so it issues at once and stops only where it has to wait for a device. Where several threads act on one device,
the order between them matters: then each takes one step in an instant, as in the reference.
"""

from math import inf
from typing import Final

from simsched.base.jit import piece
from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT
from simsched.model.trace import timeline as kinds
from simsched.simulator.clock import (
    COMPLETE,
    DISPATCH,
    HOST,
    RELEASE,
    SHARE,
    go_on,
    join,
    open_instant,
    push,
    set_timer,
    wake,
)
from simsched.simulator.contention import begin_kernel, is_later
from simsched.simulator.device import LEAST_UNIT, busy_streams, end_due, enter, join_others, refill, run_alone, set_up
from simsched.simulator.exchanges import LEAST_STRETCH, arrive, end_exchange, follow_last
from simsched.simulator.links import begin_exchange, begin_flow, end_due_flows, share_flows, take_loads
from simsched.simulator.reset import reset
from simsched.simulator.state import (
    ASLEEP,
    BEGINNING,
    COPY_MOVE,
    COPY_OVER,
    COPY_READY,
    FULL,
    LAUNCH_JOINED,
    LAUNCH_OVER,
    LAUNCH_PASS,
    NEW,
    NEXT,
    OVER,
    PAYING,
    PHASES,
    RUNNING,
    STUCK,
    TURN,
    WAIT_PASS,
    WAIT_REACHED,
    WAIT_RELEASED,
    Event,
    Host,
    Item,
    Lane,
    SpanRecord,
    State,
)

COPY_SPAN = kinds.COPY
HOST_SPAN = kinds.HOST
KERNEL_SPAN = kinds.KERNEL
WAIT_SPAN = kinds.WAIT
BUDGET: Final = 2**16
"""Events after which a run returns, so that it handles an interruption by the user."""
MOST_POINTS: Final = 64
"""Most points of a load curve that an event adds: a kernel that was alone on the device adds one for each wave."""
SHORT: Final = 100.0
"""Shortest block in lengths of an instant whose kernel runs alone: shorter ones may end in one instant."""


def add_span(s: State, kind: int, item: int, device: int, start: float, end: float) -> SpanRecord:
    """Return a new span, number ``n_spans - 1``, without operator, stream and cause, that is ready at its start."""
    span = s.spans[s.n_spans]
    s.n_spans += 1
    span.kind = kind
    span.item = item
    span.device = device
    span.op = -1
    span.stream = -1
    span.cause = -1
    span.start = start
    span.end = end
    span.ready = start
    span.solo = 0.0
    return span


# Devices


def _end_kernel(s: State, lane: int) -> None:
    """End a kernel whose last block has ended."""
    if s.work[lane].latency > 0.0:
        push(s, s.now + s.work[lane].latency, COMPLETE, lane)
    else:
        go_on(s, RELEASE, lane)


def dispatch_later(s: State, d: int) -> None:
    """Schedule the dispatcher of a device for the end of this instant."""
    if not s.devices[d].dispatching:
        s.devices[d].dispatching = 1
        go_on(s, DISPATCH, s.n_lanes + s.n_hosts + s.n_devices + 1 + d)


def dispatch(s: State, d: int) -> None:
    """Issue blocks on a device, compute rates, and set the timer of the device."""
    device = s.devices[d]
    device.dispatching = 0
    if device.alone >= 0:
        if device.n_queue + device.n_running == 0 and device.copy_load == 0.0:
            work = s.work[device.alone]
            if work.start >= 0.0:
                return
            if not is_later(device.next_start, s.now):
                work.start = s.now
                device.next_start = s.now + device.graph_issue
                set_timer(s, d, s.now + (work.solo - work.latency))
                return
        join_others(s, d)
    set_timer(s, d, max(refill(s, d), s.now))
    for i in range(s.n_ready):
        _arrive(s, s.over[i])


def _arrive(s: State, lane: int) -> None:
    """Mark a rank of a collective as ready; if it is the last one, the collective begins."""
    meeting = arrive(s, lane)
    if meeting >= 0:
        exchange = s.exchanges[meeting]
        who = _first_exchange(s) + meeting
        if exchange.stretch < LEAST_STRETCH:
            push(s, s.now + s.work[lane].solo, COMPLETE, who)
        else:
            push(s, s.now + exchange.latency * exchange.stretch, RELEASE, who)


def _first_exchange(s: State) -> int:
    """Return the process number of the first collective."""
    return s.n_lanes + s.n_hosts + 2 * s.n_devices + 2


def _end_exchange(s: State, meeting: int) -> None:
    """End all ranks of a collective."""
    end_exchange(s, meeting)
    exchange = s.exchanges[meeting]
    for k in range(exchange.first_member, exchange.end_member):
        lane = s.member_lane[k]
        dispatch_later(s, s.lanes[lane].device)
        go_on(s, RELEASE, lane)


def end_cohorts(s: State, d: int) -> None:
    """End the cohorts of a device that are due, and the kernels without further blocks."""
    device = s.devices[d]
    if device.alone >= 0:
        if s.recording:
            run_alone(s, d, device.alone)
        _end_kernel(s, device.alone)
        device.alone = -1
    for i in range(end_due(s, d)):
        _end_kernel(s, s.over[i])
    dispatch_later(s, d)


def share_links_later(s: State) -> None:
    """Schedule the sharing of links for the end of this instant."""
    if not s.sharing:
        s.sharing = 1
        go_on(s, SHARE, s.n_lanes + s.n_hosts + 2 * s.n_devices + 1)


# Host threads


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


def _cost(s: State, i: int, reached: float) -> float:
    """Return the host time in us of instruction `i`, reached at a time, without the time for which it blocks."""
    action = s.action[i]
    d = s.place[i]
    if s.own is not None and s.own[i] == s.own[i]:  # else it is NaN
        return s.own[i]
    if action == BARRIER and busy_streams(s, d, reached) > 1:
        return s.barrier_many[d]
    return s.cost[6 * d + action]


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
    event.time = time
    event.cause = cause
    event.waiters = wake(s, event.waiters)


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
            _happen(s, s.events[item.argument], s.now, cause)
        else:
            over = _copy(s, lane, number, item.argument)
        if not over:
            return
        lane.state = NEXT
        lane.head += 1


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
            _happen(s, drained, s.now, drained.cause)
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
            _arrive(s, number)
    elif not device.contention or (launch.blocks == 0 and launch.sm_share == 0.0):
        work.start = s.now
        push(s, s.now + work.solo, COMPLETE, number)
    elif work.unit < LEAST_UNIT:
        work.start = s.now
        _end_kernel(s, number)
    else:
        begin_kernel(work, launch.blocks)
        is_alone = launch.blocks > 0 and device.alone < 0 and device.n_queue + device.n_running == 0 and lane.rooms < 0
        if is_alone and work.unit > SHORT * (s.limit - s.now):
            device.alone = number
        else:
            enter(s, lane.device, number)
        dispatch_later(s, lane.device)
    return False


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


# The loop


@piece("simulator")
def run_samples(s: State) -> None:
    """Run the samples until `BUDGET` events are over or points have no room; a further call continues them."""
    if s.status == NEW:
        reset(s)
    s.status = RUNNING
    left = BUDGET
    while s.status == RUNNING:
        phase = 0
        while phase < PHASES and s.queues[phase] < 0:
            phase += 1
        if phase == PHASES:
            if not open_instant(s):
                _end(s)
        elif left == 0:
            return
        elif s.recording and s.n_points + MOST_POINTS > s.point_room:
            s.status = FULL
        else:
            left -= 1
            _process(s, phase)


def _process(s: State, phase: int) -> None:
    """Continue the first process in the queue of a phase."""
    last = s.queues[phase]
    who = s.next[last]
    s.next[last] = s.next[who]
    if who == last:
        s.queues[phase] = -1
    if who < s.n_lanes:
        if phase == COMPLETE and s.lanes[who].state == LAUNCH_OVER:
            go_on(s, RELEASE, who)
        else:
            run_lane(s, who)
        return
    who -= s.n_lanes
    if who < s.n_hosts:
        run_host(s, who)
        return
    who -= s.n_hosts
    if who < s.n_devices:
        end_cohorts(s, who)
    elif who == s.n_devices:  # the timer of links: flows are complete
        for k in range(end_due_flows(s)):
            if s.over[k] < s.n_lanes:
                go_on(s, RELEASE, s.over[k])
            else:
                _end_exchange(s, s.over[k] - s.n_lanes)
        share_links_later(s)
    elif who <= 2 * s.n_devices:
        dispatch(s, who - s.n_devices - 1)
    elif who > 2 * s.n_devices + 1:  # a collective begins or ends
        meeting = who - 2 * s.n_devices - 2
        if phase == COMPLETE:
            _end_exchange(s, meeting)
        else:
            begin_exchange(s, meeting)
            share_links_later(s)
    else:  # the sharing of links: rates of flows, and DRAM loads of their ends
        s.sharing = 0
        set_timer(s, s.n_devices, max(share_flows(s), s.now))
        for k in range(take_loads(s)):
            dispatch_later(s, s.over[k])


def _end(s: State) -> None:
    """End a sample without further events."""
    for t in range(s.n_hosts):
        if s.hosts[t].at < s.thread_ptr[t + 1]:
            s.status = STUCK
    for i in range(s.n_lanes):
        if s.lanes[i].head < s.lanes[i].tail:
            s.status = STUCK
    if s.status == RUNNING:
        s.makespans[s.sample] = s.makespan
        s.sample += 1
        if s.sample < s.n_samples:
            reset(s)
        else:
            s.status = OVER
