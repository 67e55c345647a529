"""The reference engine: the model of the simulator as SimPy processes, one per host thread and stream.

Equal times are one instant, and the events of an instant have an order.
"""

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any

import numpy as np
import simpy
from simpy.core import EmptySchedule

from simsched.base.signals import without_collector
from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Floats, Program
from simsched.model.trace import timeline as kinds
from simsched.model.trace.timeline import SpanRow
from simsched.model.trace.trace import Trace
from simsched.simulator.contention import begin_kernel, end_of_instant, is_later
from simsched.simulator.deadlock import deadlock
from simsched.simulator.device import busy_streams, end_due, enter, refill
from simsched.simulator.exchanges import LEAST_STRETCH, arrive, end_exchange, follow_last
from simsched.simulator.launch_work import LEAST_UNIT, set_up
from simsched.simulator.layout import Array, Layout, begin, begin_curves, curves_of, enlarge
from simsched.simulator.links import begin_exchange, begin_flow, end_due_flows, share_flows, take_loads
from simsched.simulator.reset import reset
from simsched.simulator.state import ClockTable, Lane

Process = Generator[simpy.Event, Any, Any]

# Phases of an instant: kernels and copies end, waiting processes resume, hosts issue, links share their bandwidth, and
# at last the block schedulers dispatch. SimPy starts and resumes processes with priorities 0 and 1: the second phase.
COMPLETE = -1
RELEASE = 1
HOST = 2
SHARE = 3
DISPATCH = 4


class At(simpy.Event):
    """An event that happens at a given time, in a given phase of that instant, unless `cancelled`."""

    __slots__ = ("cancelled",)

    def __init__(
        self, env: "Instants", time: float, phase: int = RELEASE, *actions: Callable[[simpy.Event], Any]
    ) -> None:
        self.env = env
        self.callbacks = list(actions)
        self._ok = True
        self._value = None
        self.cancelled = False
        env.put(self, time, phase)


class Instants(simpy.Environment):
    """An environment that steps from instant to instant.

    An instant is the earliest time at which anything happens, together with all that is due
    within a relative 1e-9 of it. Its events run by phase, then in the order they were scheduled.
    The clock of the run, whose arithmetic both engines share, has the time of the present instant.
    """

    def __init__(self, clock: ClockTable) -> None:
        super().__init__()
        self._clock = clock
        self._limit = 0.0  # events that are due by then belong to the present instant
        self._later: list[tuple[float, int, int, simpy.Event]] = []
        self._instant: list[tuple[int, int, simpy.Event]] = []
        self._count = 0

    def schedule(self, event: simpy.Event, priority: int = RELEASE, delay: float = 0) -> None:
        """Schedule an event after a delay in us; SimPy calls this for its own events."""
        self.put(event, self._now + delay, priority)

    def put(self, event: simpy.Event, time: float, phase: int) -> None:
        """Schedule an event at a time in us and a phase."""
        self._count += 1
        if time <= self._limit:
            heappush(self._instant, (phase, self._count, event))
        else:
            heappush(self._later, (time, phase, self._count, event))

    def step(self) -> None:
        """Process the next event."""
        if not self._instant:
            self._open_instant()
        event = heappop(self._instant)[2]
        if type(event) is At and event.cancelled:
            return
        callbacks = event.callbacks
        event.callbacks = None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)
        if isinstance(event._value, BaseException):  # a process failed
            raise event._value

    def _open_instant(self) -> None:
        later = self._later
        while later and type(later[0][3]) is At and later[0][3].cancelled:  # a cancelled event opens no instant
            heappop(later)
        if not later:
            raise EmptySchedule
        self._now = self._clock.now = later[0][0]
        self._limit = end_of_instant(self._now)
        while later and later[0][0] <= self._limit:
            heappush(self._instant, heappop(later)[1:])


class Alarm:
    """A timer: an action at one time, in a phase of that instant. Setting it replaces the earlier time."""

    def __init__(self, env: Instants, phase: int, action: Callable[[], object]) -> None:
        self._env = env
        self._phase = phase
        self._action = action
        self._event: At | None = None

    def set(self, time: float) -> None:
        """Set it to a time in us; infinity cancels it."""
        if self._event is not None:
            self._event.cancelled = True
        if time < inf:
            self._event = At(self._env, time, self._phase, self._ring)
        else:
            self._event = None

    def set_now(self) -> None:
        """Set it to the present instant unless it is set."""
        if self._event is None:
            self.set(self._env.now)

    def _ring(self, _: simpy.Event) -> None:
        self._event = None
        self._action()


class _Mark:
    """A mark for which hosts and streams wait while it is `pending`; then the time and the span that reached it."""

    def __init__(self, pending: simpy.Event | None) -> None:
        self.pending = pending
        self.time = 0.0
        self.cause = -1
        self.lane: _LaneProcess | None = None

    def happen(self, time: float, cause: int) -> None:
        """Mark it as reached, and resume the waiting processes."""
        assert self.pending is not None
        self.pending.succeed()
        self.pending = None
        self.time = time
        self.cause = cause


class _HardwareQueue:
    """A hardware queue: instructions of the streams that share it pass in the order of their issue."""

    def __init__(self, env: Instants) -> None:
        self.queue: deque[int] = deque()
        self.changed = simpy.Event(env)


class _LaneProcess:
    """A stream: a queue of issued instructions, and its progress.

    In its row `time` and `cause` are when the last thing in it was over and the span that says so; a kernel
    starts no earlier than `free`, a gap behind the one before it. `over` happens when the kernel
    or copy that it is at has ended on its device, or has arrived.
    """

    def __init__(self, number: int, row: Lane, connection: _HardwareQueue | None) -> None:
        self.number = number
        self.row = row
        self.device = row.device
        self.connection = connection
        self.queue: deque[tuple[int, float, int]] = deque()  # (instruction, issued at, host span)
        self.wake: simpy.Event | None = None
        self.over: simpy.Event


class Reference:
    """One simulation of a program; `run` returns its trace.

    It reads the same columns as the compiled engine, and calls the same functions to share devices and links.
    """

    def __init__(self, program: Program, layout: Layout, launches: Array, factors: Floats | None) -> None:
        self._program = program
        self._cluster = layout.cluster
        self._captured = program.execution == "graph"
        self._run = run = layout.take()
        begin(run, launches, factors)
        begin_curves(run, len(launches))
        reset(run)
        self._env = env = Instants(run.clock)
        self._action: list[int] = program.action.tolist()
        self._argument: list[int] = program.argument.tolist()
        self._device: list[int] = program.device.tolist()
        self._lane_of: list[int] = run.program["lane_of"].tolist()
        self._op_of: list[int] = program.launches.op.tolist()
        self._rows: list[SpanRow] = []
        devices = range(run.devices.n)
        self._timers = [Alarm(env, COMPLETE, partial(self._end_blocks, d)) for d in devices]
        self._dispatchers = [Alarm(env, DISPATCH, partial(self._dispatch, d)) for d in devices]
        self._arrival = Alarm(env, COMPLETE, self._end_flows)
        self._sharing = Alarm(env, SHARE, self._share_links)
        self._issued, self._reached = ([_Mark(simpy.Event(env)) for _ in range(program.n_events)] for _ in range(2))
        connections = [_HardwareQueue(env) for _ in range(run.lanes.n_connections)]
        rows = run.lanes.rows
        numbers = run.lanes["rows"]["connection"].tolist()
        self._lanes = [_LaneProcess(i, rows[i], None if k < 0 else connections[k]) for i, k in enumerate(numbers)]
        self._outstanding = [0 for _ in devices]  # kernels that are issued and not complete
        self._drained = [_Mark(None) for _ in devices]
        self._last_kernel = [(0.0, -1, -1) for _ in devices]  # time of its end, row, span
        self._host_at = [int(start) for start in program.thread_ptr[:-1]]

    def run(self) -> Trace:
        """Simulate to the end.

        Raises
        ------
        DeadlockError
            If something is left that nothing will ever release.
        """
        env = self._env
        for t in range(len(self._host_at)):
            env.process(self._host(t))
        for lane in self._lanes:
            env.process(self._run_lane(lane))
        with without_collector():
            env.run()
        ends = self._program.thread_ptr[1:].tolist()
        lanes = [(lane.row.stream, lane.queue[0][0]) for lane in self._lanes if lane.queue]
        if lanes or self._host_at != ends:
            raise deadlock(self._program, self._host_at, lanes, [mark.pending is None for mark in self._issued])
        return Trace(self._program, self._cluster, self._rows, curves_of(self._run))

    # Hosts ---------------------------------------------------------------------------------------

    def _host(self, t: int) -> Process:
        env = self._env
        program = self._program
        ptr = program.thread_ptr
        cause = -1
        if program.lead is None:
            leads = None
        else:
            leads = program.lead.tolist()
        if self._captured:  # one host time, then all instructions are issued at once
            cost = self._cluster.devices[self._device[0]].graph_launch
            if cost > 0:
                yield At(env, cost, HOST)
                cause = self._span(kinds.HOST, 0, -1, self._device[0], -1, 0.0, -1)
            for i in range(len(self._action)):
                self._issue(i, cause)
            self._host_at[0] = len(self._action)
            return
        waits = {WAIT: self._issued, SYNC: self._reached}
        for i in range(int(ptr[t]), int(ptr[t + 1])):
            self._host_at[t] = i
            action = self._action[i]
            device = self._device[i]
            if leads is not None and leads[i] > 0:
                yield At(env, env.now + leads[i], HOST)
            began = env.now
            if action in (WAIT, SYNC, BARRIER):
                if action == BARRIER:
                    mark = self._drained[device]
                else:
                    mark = waits[action][self._argument[i]]
                while mark.pending is not None:
                    yield mark.pending
                if env.now > began:
                    cause = self._span(kinds.WAIT, i, -1, device, -1, began, mark.cause)
            cost = self._cost(i, began)
            if cost > 0 or env.now > began:
                start = env.now
                yield At(env, start + cost, HOST)
                if cost > 0:
                    cause = self._span(kinds.HOST, i, self._subject(i), device, -1, start, cause)
            self._issue(i, cause)
        self._host_at[t] = int(ptr[t + 1])

    def _cost(self, i: int, reached: float) -> float:
        """Return the host time in us of an instruction, reached at a time, without the time for which it blocks."""
        hosts = self._run.hosts
        device = self._device[i]
        own = self._program.own
        if own is not None and not np.isnan(own[i]):
            return float(own[i])
        if self._action[i] == BARRIER and busy_streams(self._run.lanes, device, reached) > 1:
            return float(hosts.barrier_many[device])
        return float(hosts.cost[6 * device + self._action[i]])

    def _subject(self, i: int) -> int:
        """Return the operator that an instruction launches or copies, -1 if it does neither."""
        if self._action[i] == LAUNCH:
            return self._op_of[self._argument[i]]
        if self._action[i] == COPY:
            return int(self._program.copies.op[self._argument[i]])
        return -1

    def _issue(self, i: int, cause: int) -> None:
        action = self._action[i]
        env = self._env
        if action in (BARRIER, SYNC):
            return
        lane = self._lanes[self._lane_of[i]]
        lag = 0.0
        if action == RECORD:
            self._reached[self._argument[i]].lane = lane
            self._issued[self._argument[i]].happen(env.now, cause)
        elif action == LAUNCH:
            lag = lane.row.launch_lag
            self._outstanding[lane.device] += 1
            self._drained[lane.device].pending = self._drained[lane.device].pending or simpy.Event(env)
        elif action == COPY:
            lag = lane.row.copy_lag
        lane.queue.append((i, env.now + lag, cause))
        if lane.connection is not None and action in (LAUNCH, WAIT):
            lane.connection.queue.append(i)
        if lane.wake is not None:
            wake = lane.wake
            lane.wake = None
            wake.succeed()

    # Streams -------------------------------------------------------------------------------------

    def _run_lane(self, lane: _LaneProcess) -> Process:
        steps = {LAUNCH: self._launch, WAIT: self._wait, COPY: self._copy}
        while True:
            while not lane.queue:
                lane.wake = simpy.Event(self._env)
                yield lane.wake
            i, issued, host_span = lane.queue[0]
            action = self._action[i]
            if action == RECORD:
                if is_later(issued, lane.row.time):
                    cause = host_span
                else:
                    cause = lane.row.cause
                self._reached[self._argument[i]].happen(self._env.now, cause)
            else:
                yield from steps[action](lane, i, issued, host_span)
            lane.queue.popleft()

    def _launch(self, lane: _LaneProcess, i: int, issued: float, host_span: int) -> Process:
        """Run a kernel; the block scheduler handles it at the end of the instant."""
        env = self._env
        run = self._run
        row = self._argument[i]
        d = lane.device
        devices = run.devices
        launch = devices.launches[row]
        work = devices.work[lane.number]
        cause = yield from self._begin(lane, i, lane.row.time if launch.follows else lane.row.free, issued, host_span)
        if self._captured and run.program.join[i] > 0.0:
            yield At(env, env.now + float(run.program.join[i]))
        ready = env.now
        lane.over = simpy.Event(env)
        set_up(devices, run.samples, lane.number, row, self._op_of[row], i, env.now)
        lane.row.span_cause = cause
        lane.row.ready = ready
        if launch.meeting >= 0:
            if devices.rows[d].contention and launch.blocks > 0:
                begin_kernel(work, min(launch.blocks, work.residency))
                enter(devices, d, lane.number, env.now)
                self._dispatchers[d].set_now()
            else:
                self._arrive(lane.number)
        elif not devices.rows[d].contention or (launch.blocks == 0 and launch.sm_share == 0.0):
            work.start = env.now
            At(env, env.now + work.solo, COMPLETE, lambda _: lane.over.succeed())
        elif work.unit < LEAST_UNIT:
            work.start = env.now
            self._end_kernel(lane.number)
        else:
            begin_kernel(work, launch.blocks)
            enter(devices, d, lane.number, env.now)
            self._dispatchers[d].set_now()
        yield lane.over
        if launch.meeting >= 0:
            follow_last(run.collectives, devices, lane.row, lane.number)
            cause = lane.row.span_cause
            ready = lane.row.ready
        lane.row.ended = env.now
        span = self._end_work(lane, kinds.KERNEL, row, self._op_of[row], work.start, cause, ready, work.solo)
        self._last_kernel[d] = max(self._last_kernel[d], (env.now, row, span))
        self._outstanding[d] -= 1
        if not self._outstanding[d]:
            self._drained[d].happen(env.now, self._last_kernel[d][2])

    def _begin(self, lane: _LaneProcess, i: int, free: float, issued: float, host_span: int) -> Process:
        """Wait until a kernel or copy can begin; return the cause of its start: its issue, or the lane."""
        if self._env.now < max(free, issued):
            yield At(self._env, max(free, issued))
        yield from self._pass_connection(lane, i)
        if is_later(issued, max(free, lane.row.time)):
            return host_span
        if is_later(free, lane.row.time):
            return lane.row.free_cause
        return lane.row.cause

    def _pass_connection(self, lane: _LaneProcess, i: int) -> Process:
        """Wait until instruction `i` is the first of its hardware queue, and remove it."""
        connection = lane.connection
        if connection is None:
            return
        while connection.queue[0] != i:
            yield connection.changed
        connection.queue.popleft()
        changed = connection.changed
        connection.changed = simpy.Event(self._env)
        changed.succeed()

    def _wait(self, lane: _LaneProcess, i: int, _issued: float, _host_span: int) -> Process:
        env = self._env
        mark = self._reached[self._argument[i]]
        row = lane.row
        began = env.now
        if mark.pending is not None:
            yield mark.pending
        release = mark.time + (row.hop if mark.lane is not lane else 0.0)
        if env.now < release:
            yield At(env, release)
        if is_later(release, row.time):
            row.cause = mark.cause
        row.time = max(row.time, release)
        if env.now > began:
            self._span(kinds.WAIT, i, -1, lane.device, row.stream, began, mark.cause)
        yield from self._pass_connection(lane, i)

    def _copy(self, lane: _LaneProcess, i: int, issued: float, host_span: int) -> Process:
        env = self._env
        copies = self._program.copies
        copy = self._argument[i]
        # In a captured graph a copy is a node like a kernel; copies of a stream follow without a gap.
        if self._captured:
            free = lane.row.free
        else:
            free = lane.row.time
        cause = yield from self._begin(lane, i, free, issued, host_span)
        start = env.now
        nbytes = float(copies.nbytes[copy])
        exact = float(copies.transfer[copy])
        if exact == exact:
            solo = exact
            yield At(env, start + exact, COMPLETE)
        else:
            links = self._run.links
            route = links.routes[links.copy_route[copy]]
            solo = route.latency + nbytes / route.rate
            yield At(env, start + route.latency, COMPLETE if nbytes == 0 else RELEASE)
            if nbytes > 0:
                lane.over = simpy.Event(env)
                begin_flow(links, self._run.devices, lane.number, copy, env.now)
                self._sharing.set_now()
                yield lane.over
        self._end_work(lane, kinds.COPY, copy, int(copies.op[copy]), start, cause, start, solo)

    def _end_work(
        self, lane: _LaneProcess, kind: int, item: int, op: int, start: float, cause: int, *more: float
    ) -> int:
        """Record the kernel or copy that has run on a lane, and continue after it."""
        row = lane.row
        row.cause = row.free_cause = self._span(kind, item, op, lane.device, row.stream, start, cause, *more)
        row.time = self._env.now
        row.free = row.time + row.gap
        return row.cause

    def _span(
        self,
        kind: int,
        item: int,
        op: int,
        device: int,
        stream: int,
        start: float,
        cause: int,
        ready: float | None = None,
        solo: float = 0.0,
    ) -> int:
        """Record a span that ends now; return its number."""
        ready = start if ready is None else ready
        self._rows.append((kind, item, op, device, stream, start, self._env.now, ready, solo, cause))
        return len(self._rows) - 1

    # Devices: at the end of an instant the block scheduler issues the blocks that fit, and rates are computed ------

    def _end_kernel(self, lane: int) -> None:
        """End a kernel whose last block has ended."""
        over = self._lanes[lane].over
        latency = self._run.devices.work[lane].latency
        if latency > 0:
            At(self._env, self._env.now + latency, COMPLETE, lambda _: over.succeed())
        else:
            over.succeed()

    def _dispatch(self, d: int) -> None:
        devices = self._run.devices
        record = self._run.record
        now = self._env.now
        if record.n_points == record.point_room:
            enlarge(record)
        self._timers[d].set(max(refill(devices, record, d, now), now))
        for lane in devices["results"][: devices.n_results].tolist():
            self._arrive(lane)

    def _end_blocks(self, d: int) -> None:
        devices = self._run.devices
        n_ended = end_due(devices, d, self._env.now)
        for lane in devices["results"][:n_ended].tolist():
            self._end_kernel(lane)
        self._dispatchers[d].set_now()

    # Collectives ---------------------------------------------------------------------------------

    def _arrive(self, lane: int) -> None:
        """Mark a rank as ready; if it is the last one, the collective begins."""
        run = self._run
        env = self._env
        meeting = arrive(run.collectives, run.devices, run.lanes, lane, env.now)
        if meeting >= 0:
            exchange = run.collectives.rows[meeting]
            if exchange.stretch < LEAST_STRETCH:
                At(env, env.now + run.devices.work[lane].solo, COMPLETE, lambda _: self._end_exchange(meeting))
            else:
                At(env, env.now + exchange.latency * exchange.stretch, RELEASE, lambda _: self._move(meeting))

    def _move(self, meeting: int) -> None:
        begin_exchange(self._run.links, self._run.devices, meeting, self._env.now)
        self._sharing.set_now()

    def _end_exchange(self, meeting: int) -> None:
        """End all ranks of a collective."""
        collectives = self._run.collectives
        end_exchange(collectives, self._run.devices, meeting)
        exchange = collectives.rows[meeting]
        for lane in collectives["member_lane"][exchange.first_member : exchange.end_member].tolist():
            self._dispatchers[self._lanes[lane].device].set_now()
            self._lanes[lane].over.succeed()

    # Links: at the end of an instant in which a flow began or ended, rates and the loads at both ends are computed ---

    def _share_links(self) -> None:
        run = self._run
        links = run.links
        now = self._env.now
        self._arrival.set(max(share_flows(links, run.devices, run.collectives, now), now))
        n_loaded = take_loads(links, run.devices)
        for d in links["results"][:n_loaded].tolist():
            self._dispatchers[d].set_now()

    def _end_flows(self) -> None:
        run = self._run
        links = run.links
        n_ended = end_due_flows(links, run.devices, run.collectives, self._env.now)
        for number in links["results"][:n_ended].tolist():
            if number < links.first_collective:
                self._lanes[number].over.succeed()
            else:
                self._end_exchange(number - links.first_collective)
        self._sharing.set_now()
