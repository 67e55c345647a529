"""The reference engine: the model of the simulator as SimPy processes, one per host thread and stream."""

from collections import deque
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from typing import Any

import simpy
from simpy.core import EmptySchedule

from simsched.base.signals import without_collector
from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT
from simsched.model.trace import timeline as kinds
from simsched.model.trace.timeline import SpanRow
from simsched.model.trace.trace import Trace
from simsched.simulator.compiled.loop import reset
from simsched.simulator.compiled.memory import Array, begin_curves, curves_of, enlarge
from simsched.simulator.compiled.prepared import Plan, host_times
from simsched.simulator.contention import begin_kernel, is_later
from simsched.simulator.deadlock import deadlock
from simsched.simulator.device import LEAST_UNIT, end_due, enter, refill, set_up
from simsched.simulator.environment import COMPLETE, DISPATCH, HOST, RELEASE, SHARE, Alarm, At, Instants
from simsched.simulator.links import begin_flow, end_due_flows, share_flows, take_loads
from simsched.simulator.state import Lane

Process = Generator[simpy.Event, Any, Any]
_BLOCKING = (WAIT, SYNC, BARRIER)


class _Mark:
    """A CUDA event: recorded by a host, then reached by its stream. `time` and `cause` say when and why."""

    def __init__(self, env: Instants) -> None:
        self.issued = simpy.Event(env)
        self.reached = simpy.Event(env)
        self.issue = -1
        self.time = 0.0
        self.cause = -1
        self.lane: _Lane | None = None


class _Connection:
    """A hardware queue: of the streams that share it, items pass in the order in which they were issued."""

    def __init__(self, env: Instants) -> None:
        self.queue: deque[int] = deque()
        self.changed = simpy.Event(env)


class _Lane:
    """A stream: a queue of issued instructions and how far it has come.

    `time` and `cause` are when the last thing in it was over and the span that says so; a kernel
    starts no earlier than `free`, a gap behind the one before it. `over` happens when the kernel
    or copy that it is at has ended on its device, or has arrived.
    """

    def __init__(self, number: int, row: Lane, connection: _Connection | None) -> None:
        self.number, self.row, self.device, self.connection = number, row, row.device, connection
        self.stream, self.gap, self.hop = row.stream, row.gap, row.hop
        self.queue: deque[tuple[int, float, int]] = deque()  # (instruction, issued at, host span)
        self.wake: simpy.Event | None = None
        self.over: simpy.Event
        self.time = self.free = 0.0
        self.cause = self.free_cause = -1


class Reference:
    """One simulation of a program; `run` returns its trace.

    What is laid out for a run is what the compiled engine reads, and so are the sharing of devices and of links.
    """

    def __init__(self, plan: Plan, launches: Array) -> None:
        self._program, self._cluster = plan.program, plan.cluster
        program = plan.program
        self._captured = program.execution == "graph"
        self._s = s = plan.take().state
        s["launches"] = launches
        begin_curves(s, len(launches))
        reset(s)
        self._env = env = Instants(s)
        self._action: list[int] = program.action.tolist()
        self._argument: list[int] = program.argument.tolist()
        self._device: list[int] = program.device.tolist()
        self._lane_of: list[int] = s["lane_of"].tolist()
        self._op_of: list[int] = program.launch_op.tolist()
        self._rows: list[SpanRow] = []
        devices = range(s.n_devices)
        self._timers = [Alarm(env, COMPLETE, partial(self._end_blocks, d)) for d in devices]
        self._dispatchers = [Alarm(env, DISPATCH, partial(self._dispatch, d)) for d in devices]
        self._arrival = Alarm(env, COMPLETE, self._end_flows)
        self._sharing = Alarm(env, SHARE, self._share_links)
        self._marks = [_Mark(env) for _ in range(program.n_events)]
        connections = [_Connection(env) for _ in range(s.n_connections)]
        numbers = s["lanes"]["connection"].tolist()
        self._lanes = [_Lane(i, s.lanes[i], None if k < 0 else connections[k]) for i, k in enumerate(numbers)]
        self._outstanding = [0 for _ in devices]  # kernels issued and not over
        self._drained = [simpy.Event(env) for _ in devices]
        self._last_kernel = [(0.0, -1, -1) for _ in devices]  # when it ended, row, span
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
            env.process(self._host_graph() if self._captured else self._host(t))
        for lane in self._lanes:
            env.process(self._run_lane(lane))
        with without_collector(), suppress(EmptySchedule):
            while True:
                env.step()
        ends = self._program.thread_ptr[1:].tolist()
        lanes = [(lane.stream, lane.queue[0][0]) for lane in self._lanes if lane.queue]
        if lanes or self._host_at != ends:
            raise deadlock(self._program, self._host_at, lanes, [mark.issued.triggered for mark in self._marks])
        return Trace(self._program, self._cluster, self._rows, curves_of(self._s))

    # Hosts ---------------------------------------------------------------------------------------

    def _host(self, t: int) -> Process:
        env, program = self._env, self._program
        ptr, costs = program.thread_ptr, host_times(program, self._cluster).tolist()
        cause, leads = -1, None if program.lead is None else program.lead.tolist()
        for i in range(int(ptr[t]), int(ptr[t + 1])):
            self._host_at[t] = i
            action, device = self._action[i], self._device[i]
            if leads is not None and leads[i] > 0:
                yield At(env, env.now + leads[i], HOST)
            began = env.now
            if action in _BLOCKING:
                while (blocked_by := self._blocker(action, i)) is not None:
                    yield blocked_by
            if env.now > began:
                cause = self._span(kinds.WAIT, i, -1, device, -1, began, self._unblocked_by(action, i))
            cost = costs[i]
            if cost > 0 or env.now > began:
                start = env.now
                yield At(env, start + cost, HOST)
                if cost > 0:
                    cause = self._span(kinds.HOST, i, self._subject(i), device, -1, start, cause)
            self._issue(i, cause)
        self._host_at[t] = int(ptr[t + 1])

    def _blocker(self, action: int, i: int) -> simpy.Event | None:
        """Return what the host has to wait for before it can issue instruction `i`."""
        if action == BARRIER:
            return self._drained[self._device[i]] if self._outstanding[self._device[i]] else None
        mark = self._marks[self._argument[i]]
        event = mark.issued if action == WAIT else mark.reached
        return None if event.triggered else event

    def _unblocked_by(self, action: int, i: int) -> int:
        if action == BARRIER:
            return self._last_kernel[self._device[i]][2]
        mark = self._marks[self._argument[i]]
        return mark.issue if action == WAIT else mark.cause

    def _subject(self, i: int) -> int:
        """Return the operator that an instruction launches or copies, -1 if it does neither."""
        if self._action[i] == LAUNCH:
            return self._op_of[self._argument[i]]
        return int(self._program.copies.op[self._argument[i]]) if self._action[i] == COPY else -1

    def _host_graph(self) -> Process:
        """Launch the captured graph: one cost, then everything is issued at once."""
        cost = self._cluster.devices[self._device[0]].graph_launch
        cause = -1
        if cost > 0:
            yield At(self._env, cost, HOST)
            cause = self._span(kinds.HOST, 0, -1, self._device[0], -1, 0.0, -1)
        for i in range(len(self._action)):
            self._issue(i, cause)
        self._host_at[0] = len(self._action)

    def _issue(self, i: int, cause: int) -> None:
        action = self._action[i]
        if action in (BARRIER, SYNC):
            return
        lane = self._lanes[self._lane_of[i]]
        lag = 0.0
        if action == RECORD:
            mark = self._marks[self._argument[i]]
            mark.issue, mark.lane = cause, lane
            mark.issued.succeed()
        elif action == LAUNCH:
            lag = lane.row.launch_lag
            self._outstanding[lane.device] += 1
        elif action == COPY:
            lag = lane.row.copy_lag
        lane.queue.append((i, self._env.now + lag, cause))
        if lane.connection is not None and action in (LAUNCH, WAIT):
            lane.connection.queue.append(i)
        if lane.wake is not None:
            wake, lane.wake = lane.wake, None
            wake.succeed()

    # Streams -------------------------------------------------------------------------------------

    def _run_lane(self, lane: _Lane) -> Process:
        steps = {LAUNCH: self._launch, WAIT: self._wait, COPY: self._copy}
        while True:
            while not lane.queue:
                lane.wake = simpy.Event(self._env)
                yield lane.wake
            i, issued, host_span = lane.queue[0]
            action = self._action[i]
            if action == RECORD:
                self._record(lane, i, issued, host_span)
            else:
                yield from steps[action](lane, i, issued, host_span)
            lane.queue.popleft()

    def _launch(self, lane: _Lane, i: int, issued: float, host_span: int) -> Process:
        env, row = self._env, self._argument[i]
        op = self._op_of[row]
        follows_own = row > 0 and self._op_of[row - 1] == op
        cause = yield from self._begin(lane, i, lane.time if follows_own else lane.free, issued, host_span)
        ready, lane.over = env.now, simpy.Event(env)
        self._submit(lane, row, i)
        start = yield lane.over
        span = self._end_work(lane, kinds.KERNEL, row, op, start, cause, ready, self._s.launches[row].solo)
        self._last_kernel[lane.device] = max(self._last_kernel[lane.device], (env.now, row, span))
        self._outstanding[lane.device] -= 1
        if not self._outstanding[lane.device]:
            drained, self._drained[lane.device] = self._drained[lane.device], simpy.Event(env)
            drained.succeed()

    def _begin(self, lane: _Lane, i: int, free: float, issued: float, host_span: int) -> Process:
        """Wait until a kernel or copy can begin; return what it waited for last: its issue, or the lane."""
        if self._env.now < max(free, issued):
            yield At(self._env, max(free, issued))
        yield from self._pass_connection(lane, i)
        if is_later(issued, max(free, lane.time)):
            return host_span
        return lane.free_cause if is_later(free, lane.time) else lane.cause

    def _pass_connection(self, lane: _Lane, i: int) -> Process:
        """Wait until instruction `i` is the first of its hardware queue, and let the next one be it."""
        connection = lane.connection
        if connection is None:
            return
        while connection.queue[0] != i:
            yield connection.changed
        connection.queue.popleft()
        changed, connection.changed = connection.changed, simpy.Event(self._env)
        changed.succeed()

    def _wait(self, lane: _Lane, i: int, _issued: float, _host_span: int) -> Process:
        env, mark = self._env, self._marks[self._argument[i]]
        began = env.now
        if not mark.reached.triggered:
            yield mark.reached
        release = mark.time + (lane.hop if mark.lane is not lane else 0.0)
        if env.now < release:
            yield At(env, release)
        if is_later(release, lane.time):
            lane.cause = mark.cause
        lane.time = max(lane.time, release)
        if env.now > began:
            self._span(kinds.WAIT, i, -1, lane.device, lane.stream, began, mark.cause)
        yield from self._pass_connection(lane, i)

    def _record(self, lane: _Lane, i: int, issued: float, host_span: int) -> None:
        mark = self._marks[self._argument[i]]
        mark.time = self._env.now
        mark.cause = host_span if is_later(issued, lane.time) else lane.cause
        mark.reached.succeed()

    def _copy(self, lane: _Lane, i: int, issued: float, host_span: int) -> Process:
        env, copies, copy = self._env, self._program.copies, self._argument[i]
        # in a captured graph a copy is a node like any other; in a stream copies follow without a gap
        cause = yield from self._begin(lane, i, lane.free if self._captured else lane.time, issued, host_span)
        start, nbytes, exact = env.now, float(copies.nbytes[copy]), float(copies.transfer[copy])
        if exact == exact:
            solo = exact
            yield At(env, start + exact, COMPLETE)
        else:
            route = self._s.routes[self._s.copy_route[copy]]
            solo = route.latency + nbytes / route.rate
            yield At(env, start + route.latency, COMPLETE if nbytes == 0 else RELEASE)
            if nbytes > 0:
                lane.over = simpy.Event(env)
                begin_flow(self._s, lane.number, copy)
                self._sharing.set_now()
                yield lane.over
        self._end_work(lane, kinds.COPY, copy, int(copies.op[copy]), start, cause, start, solo)

    def _end_work(self, lane: _Lane, kind: int, item: int, op: int, start: float, cause: int, *more: float) -> int:
        """Record the kernel or copy that a lane has been at, and go on behind it."""
        lane.cause = lane.free_cause = self._span(kind, item, op, lane.device, lane.stream, start, cause, *more)
        lane.time = self._env.now
        lane.free = lane.time + lane.gap
        return lane.cause

    def _span(
        self, kind: int, item: int, op: int, device: int, stream: int, start: float, cause: int,
        ready: float | None = None, solo: float = 0.0,
    ) -> int:  # fmt: skip
        """Record what ends now; return its number."""
        ready = start if ready is None else ready
        self._rows.append((kind, item, op, device, stream, start, self._env.now, ready, solo, cause))
        return len(self._rows) - 1

    # Devices: at the end of an instant the block scheduler issues what fits, and loads and rates are computed ------

    def _submit(self, lane: _Lane, row: int, place: int) -> None:
        """Take a launch of a lane, the instruction at `place`; when it ends `lane.over` says when it started."""
        s, d, now = self._s, lane.device, self._env.now
        set_up(s, row, lane.number, d, place)
        launch, work = s.launches[row], s.work[lane.number]
        if not s.devices[d].contention or (launch.blocks == 0 and launch.sm_share == 0.0):
            At(self._env, now + work.solo, COMPLETE, lambda _: lane.over.succeed(now))
        elif work.unit < LEAST_UNIT:
            self._end_kernel(lane.number, now)
        else:
            begin_kernel(work, launch.blocks)
            enter(s, d, lane.number)
            self._dispatchers[d].set_now()

    def _end_kernel(self, lane: int, start: float) -> None:
        """Let a kernel end, all of whose blocks have."""
        over, latency = self._lanes[lane].over, self._s.work[lane].latency
        if latency > 0:
            At(self._env, self._env.now + latency, COMPLETE, lambda _: over.succeed(start))
        else:
            over.succeed(start)

    def _dispatch(self, d: int) -> None:
        s = self._s
        if s.n_points == s.point_room:
            enlarge(s)
        self._timers[d].set(max(refill(s, d), s.now))

    def _end_blocks(self, d: int) -> None:
        s = self._s
        for lane in s["over"][: end_due(s, d)].tolist():
            self._end_kernel(lane, s.work[lane].start)
        self._dispatchers[d].set_now()

    # Links: at the end of an instant in which a flow began or ended, rates and the loads at both ends are computed ---

    def _share_links(self) -> None:
        s = self._s
        self._arrival.set(max(share_flows(s), s.now))
        for d in s["over"][: take_loads(s)].tolist():
            self._dispatchers[d].set_now()

    def _end_flows(self) -> None:
        s = self._s
        for lane in s["over"][: end_due_flows(s)].tolist():
            self._lanes[lane].over.succeed()
        self._sharing.set_now()
