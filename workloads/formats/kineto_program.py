"""Traces of torch.profiler (Kineto) as the `Program` that ran: what the hosts issued, and what was measured."""

import os
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from simsched.cluster import Cluster
from simsched.errors import FormatError, SimschedError, UnknownNameError
from simsched.graph import OpGraph
from simsched.graph.columns import Floats, Ints
from simsched.program import LAUNCH, RECORD, SYNC, WAIT, Copies, Program
from simsched.trace import Trace, measured_trace
from workloads.formats.kineto_device import measured_device, traced_device
from workloads.formats.kineto_events import Activities, Events, read_events
from workloads.formats.kineto_join import first_with, split_iterations
from workloads.formats.kineto_text import read_trace

ORDERS: Final = ("streams", "waits")
_API: Final = "(cuda|hip|cu)"
_WAIT: Final = re.compile(f"{_API}StreamWaitEvent")
_SYNC: Final = re.compile(f"{_API}(Device|Ctx|Stream|Event)Synchronize")
_ALL: Final = re.compile(f"{_API}(Device|Ctx)Synchronize")
_BLOCKING_COPY: Final = re.compile(f"{_API}Mem(cpy|set)(?!.*Async)")
_FREE: Final = re.compile(f"{_API}(Mem)?(Free|HostFree|HostUnregister)(?!.*Async)")
_LAUNCH: Final = re.compile(f"{_API}.*Launch.*Kernel")
_COLLECTIVE: Final = re.compile(r"(nccl|rccl)", re.IGNORECASE)
_TOLERANCE: Final = 2_000
"""Ns by which times of the host and of the device may disagree."""
_HELD: Final = 10_000
"""Ns from which on a call that synchronises is taken to have waited."""
_SILENT: Final = 500_000
"""Ns for which one thread is silent before a call, and the other one behind it, if the work was handed over."""
_USUAL_LAG: Final = 2_000
_LONGEST_GAP: Final = 10_000
_FEW: Final = 5


class TracedProgram(Program):
    """The program of a trace, with what was measured.

    Attributes
    ----------
    cluster
        The devices that ran it: what the trace says of them, `launch`, `launch_latency` and `gap` as measured there, and
        contention off, since the times of operators were measured in place.
    times
        Measured start and end of each operator in us from the beginning of the step, shape (n_ops, 2).
    step
        Its number; None if the trace has none, or all of it is read.
    n_waits, guessed_waits
        Waits of streams for others, and how many of them are resolved by the rule instead of by event ids.
    n_lost
        Operators whose call is not in the trace.
    """

    cluster: Cluster
    times: Floats
    step: int | None
    n_waits: int
    guessed_waits: int
    n_lost: int

    @cached_property
    def measured(self) -> Trace:
        """What ran when, in us from the beginning of the step."""
        return measured_trace(self, self.cluster, np.maximum(0.0, self.times))

    @property
    def measured_makespan(self) -> float:
        """When the last operator ended, in us from the beginning of the step."""
        return float(self.times[:, 1].max())


def read_kineto_graph(
    path: str | os.PathLike[str], *, step: int | str | None = None, order: str = "streams"
) -> OpGraph:
    """Read the graph of `read_kineto_program`, for schedules other than the one that ran.

    Parameters
    ----------
    path, step
        As there.
    order
        ``"streams"``: an operator depends on the one before it on its stream, which is an upper bound on what is
        needed. ``"waits"``: that order is dropped, and only waits between streams and for the host are left, which
        is a lower bound where one stream ran all that depends on each other.
    """
    return _read(path, step, order).graph


def read_kineto_program(
    path: str | os.PathLike[str], *, step: int | str | None = None, order: str = "streams"
) -> TracedProgram:
    """Read what ran from a trace that torch.profiler exported (``export_chrome_trace``), plain or gzipped.

    Parameters
    ----------
    path
        The file.
    step
        Number n of the annotation ``ProfilerStep#n``; None takes the last one, ``"all"`` the whole trace. A trace
        without such annotations is one step.
    order
        Of the dependencies in the graph, see `read_kineto_graph`; what is issued is the same.

    Returns
    -------
    TracedProgram
        Each kernel, copy and memset is an operator of the graph, with its measured time and launch shape, and each is
        launched where a host thread called for it.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is not such a trace, has no such step, or nothing ran on a GPU in it.

    Notes
    -----
    *Hosts.* Each thread issues its calls in their order. What passes between two calls is the `lead` of the second; what
    a call takes is its `own` time, up to where the device knows of the launch: the end of the call, or, where the kernel
    started earlier, as much before its start as launches usually take on their way. A thread that was silent for
    0.5 ms before its call, where the one that called last is silent for 0.5 ms from then on, was handed the work (as by
    the backward pass of PyTorch): it begins after that call.

    *Blocking.* Synchronisations of a device, stream or event, copies that are not asynchronous, copies from or to
    pageable memory that ended within their call, and calls that free memory at the end of whose waiting something
    ended, block their thread until those operators end. A stream or event that the trace does not name is the one
    the thread launched on last, or, if the call took 10 us or more, the one on which an operator ended last before the
    call did.

    *Waits.* With event ids in the trace (``cuda_sync`` events) a wait is for the last operator that was launched on the
    recorded stream before the record. Without them the stream of the thread's next launch waits, and it waits for the
    operator that ended last before the launched one started, among those that were launched on other streams
    before the call. Those waits are counted as guessed.

    *Captured graphs.* The nodes of a graph that is launched run in the order of their start on each stream. The first on
    a further stream waits for what ran before the graph; another that started more than 2 us later than its stream
    allowed waits for the node of another stream that ended last before: a guessed wait. What is launched next on the
    stream of the first node waits for all nodes.

    *Earlier work.* What was launched before the step and ran into it is one operator for each stream, which is
    there from the beginning.

    *Dependencies.* An edge goes to each operator from the one before it on its stream, from those that its stream waits
    for, and from those that its thread had waited for. That is more than what is needed: two operators on one stream
    may well be independent.

    O(n log n) for n events.
    """
    return _read(path, step, order)


def _read(path: str | os.PathLike[str], step: int | str | None, order: str) -> TracedProgram:
    if order not in ORDERS:
        raise UnknownNameError("order", str(order), list(ORDERS))
    source = str(path)
    return _Reader(read_events(read_trace(path), source), source, step, order == "streams").program()


@dataclass(slots=True)
class _Thread:
    """What a host thread issues, by columns; `cursor` is how far its time has come, `host` its time since a launch."""

    cursor: int
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # action, lane, argument, lead, own
    last: int = -1  # operator
    behind: dict[int, None] = field(default_factory=dict)  # operators that it waited for
    served: set[int] = field(default_factory=set)  # lanes launched on since
    host: int = 0


@dataclass(slots=True)
class _Lane:
    """A stream: its operators by start, when each was called for, and when it ended."""

    ops: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def last_before(self, call: int, end: int) -> int:
        """Return the last operator called for before a time that ended by another time, or -1."""
        k = min(bisect_left(self.called, call), bisect_right(self.ends, end)) - 1
        return self.ops[k] if k >= 0 else -1


class _Reader:
    """The program of one step of a trace."""

    def __init__(self, events: Events, source: str, step: int | str | None, by_streams: bool) -> None:
        self._events, self._source, self._by_streams = events, source, by_streams
        self._begin, self._finish, self._step = _window(events, step, source)
        calls, all_acts = events.calls, events.activities
        call = first_with(calls.correlation, calls.start, all_acts.correlation)
        called = np.where(call >= 0, calls.start[call] if len(calls.start) else 0, all_acts.start)
        inside = (called >= self._begin) & (called < self._finish)
        before = (called < self._begin) & (all_acts.start + all_acts.duration > self._begin)
        rows = np.flatnonzero(inside)
        if not len(rows):
            raise FormatError(f"{source}: nothing was launched on a GPU{_of_step(self._step)}")
        rows = rows[np.lexsort((all_acts.correlation[rows], all_acts.start[rows]))]
        self._acts: Activities = all_acts.take(rows)
        self._call: Ints = call[rows]
        self._called: list[int] = called[rows].tolist()
        self._start: list[int] = self._acts.start.tolist()
        self._end: list[int] = (self._acts.start + self._acts.duration).tolist()
        self._lag, self._costs = self._measure_costs()
        self._places: list[tuple[int, int]] = []
        self._lane_of = self._number_lanes(all_acts, np.flatnonzero(before))
        self._events_of: dict[int, int] = {}  # operator -> event recorded behind it
        self._edges: dict[tuple[int, int], None] = {}
        self._joins: dict[int, list[int]] = defaultdict(list)  # lane -> operators of a captured graph to wait for
        self._holds: dict[int, int] = {}  # lane -> end of what it waits for before its next operator
        self._usual = round(1e3 * self._costs.get("launch", 0.0))
        self._hosts = [0] * len(self._start)
        self.n_waits = self.guessed_waits = 0

    # --- what is where

    def _number_lanes(self, acts: Activities, earlier: Ints) -> list[int]:
        """Number the streams, put the operators on them, and earlier work before these."""
        numbers: dict[tuple[int, int], int] = {}
        keys = zip(self._acts.device.tolist(), self._acts.stream.tolist(), strict=True)
        lane_of = [numbers.setdefault(key, len(numbers)) for key in keys]
        self._earlier: dict[int, int] = {}  # lane -> end
        for row in earlier.tolist():
            lane = numbers.setdefault((int(acts.device[row]), int(acts.stream[row])), len(numbers))
            self._earlier[lane] = max(self._earlier.get(lane, 0), int(acts.start[row] + acts.duration[row]))
        self._places = list(numbers)
        self._lanes = [_Lane() for _ in numbers]
        for i, lane in enumerate(lane_of):
            mine = self._lanes[lane]
            mine.ops.append(i)
            mine.called.append(max(self._called[i], mine.called[-1] if mine.called else 0))
            mine.ends.append(max(self._end[i], mine.ends[-1] if mine.ends else 0))
        return lane_of

    def _measure_costs(self) -> tuple[int, dict[str, float]]:
        """Return the ns from the end of a launch to the start of a kernel, and the costs of the device in us."""
        calls, known = self._events.calls, self._call >= 0
        start, end = self._acts.start, self._acts.start + self._acts.duration
        call_start, call_end = (np.where(known, times[self._call] if len(times) else 0, 0) for times in
                                (calls.start, calls.end))  # fmt: skip
        is_kernel = np.array([kind.what == "kernel" for kind in self._acts.kinds], bool)[self._acts.what]
        reached = np.maximum.accumulate(np.concatenate([[0], end[:-1]]))
        idle = known & is_kernel & (reached < call_start) & (start >= call_start)
        lag = _median((start - call_end)[idle], _USUAL_LAG)
        launching = np.array([_LAUNCH.match(name) is not None for name in calls.names], bool)[calls.name]
        launch = _median((calls.end - calls.start)[launching], -1)
        order = np.lexsort((start, self._acts.stream, self._acts.device))
        follows = np.concatenate([[False], (np.diff(self._acts.stream[order]) == 0)])
        gap = start[order] - np.concatenate([[0], end[order][:-1]])
        queued = follows & known[order] & (call_end[order] + _HELD < start[order] - gap) & (gap < _LONGEST_GAP)
        costs = {} if launch < 0 else {"launch": launch / 1e3, "launch_latency": (launch + max(0, lag)) / 1e3}
        if queued.sum() >= _FEW:
            costs["gap"] = float(np.maximum(0, gap[queued]).mean()) / 1e3
        return max(0, lag), costs

    # --- the program

    def program(self) -> TracedProgram:
        """Return the program."""
        calls = self._events.calls
        mine: dict[int, list[int]] = defaultdict(list)
        for i, call in enumerate(self._call.tolist()):
            mine[call].append(i)
        lost = mine.pop(-1, [])
        rows = np.flatnonzero((calls.start >= self._begin) & (calls.start < self._finish))
        rows = rows[np.argsort(calls.start[rows], kind="stable")]
        thread_of = calls.thread[rows].tolist()
        handed = _handed_over(calls.thread[rows], calls.start[rows], calls.end[rows])
        threads: dict[int, _Thread] = {}
        first: dict[int, int] = {}
        order = sorted(range(len(rows)), key=lambda k: (int(calls.start[rows[k]]), k))
        launches_next = _next_launches(rows.tolist(), thread_of, mine)
        self._n_handed, hand_rows = 0, []
        for k in order:
            call, number = int(rows[k]), thread_of[k]
            thread = threads.get(number)
            if thread is None:
                thread = threads[number] = _Thread(self._begin)
                first[number] = k
            if handed[k] >= 0 and handed[k] in threads:
                hand_rows.append((handed[k], len(threads[handed[k]].rows), number))
                self._hand_over(threads[handed[k]], thread)
            self._issue(thread, call, mine.get(call, ()), launches_next.get(k, -1))
        return self._built([thread for thread in threads.values() if thread.rows], lost)

    def _hand_over(self, giver: _Thread, taker: _Thread) -> None:
        """Let a thread go on from where another one has come."""
        event = -2 - self._n_handed  # numbered later, behind those of operators
        self._n_handed += 1
        giver.rows.append((RECORD, -1, event, 0, 0))
        taker.rows.append((SYNC, -1, event, 0, 0))
        taker.cursor = max(taker.cursor, giver.cursor)

    def _issue(self, thread: _Thread, call: int, ops: "list[int] | tuple[()]", following: int) -> None:
        """Issue what a call stands for."""
        calls = self._events.calls
        name, start, end = calls.names[int(calls.name[call])], int(calls.start[call]), int(calls.end[call])
        if ops:
            self._launch(thread, name, ops, start, end)
        elif _WAIT.match(name):
            self._wait(thread, call, start, end, following)
        elif _SYNC.match(name):
            self._block(thread, self._awaited(thread, call, name, start, end), start, end)
        elif _FREE.match(name) and end - start > _HELD:
            self._block(thread, self._ended_within(start, end), start, end)

    def _row(self, thread: _Thread, action: int, lane: int, argument: int, start: int, end: int) -> None:
        """Add an instruction that begins and ends at a time in ns, as far as the time of the thread has come there."""
        begin = max(thread.cursor, start)
        over = max(begin, end)
        thread.rows.append((action, lane, argument, begin - thread.cursor, over - begin))
        thread.host += over - thread.cursor if action != SYNC else begin - thread.cursor
        thread.cursor = over

    def _launch(self, thread: _Thread, name: str, ops: "list[int] | tuple[()]", start: int, end: int) -> None:
        op = ops[0]
        lane = self._lane_of[op]
        for other in self._joins.pop(lane, ()):
            self._depend(thread, lane, op, other, start, start)
        last = max(ops, key=lambda i: self._end[i])
        blocks = self._end[last] <= end and (_BLOCKING_COPY.match(name) is not None or "ageable" in self._kind(op).name)
        before = self._before(lane, op)
        held = max(self._holds.pop(lane, 0), self._end[before] if before >= 0 else 0)
        known = min(end, max(start, self._start[op] - self._lag))
        if blocks and held > known - self._usual:  # it did not start before the stream was free
            known = min(known, start + self._usual)
        thread.host -= known - max(thread.cursor, start)  # the call itself is the device's `launch`
        self._row(thread, LAUNCH, lane, op, start, known)
        self._hosts[op], thread.host = max(0, thread.host), 0
        self._follow(thread, op)
        if len(ops) > 1:
            self._launch_nodes(thread, ops)
        if blocks:
            self._block(thread, [last], known, end)

    def _kind(self, op: int) -> Any:
        return self._acts.kinds[int(self._acts.what[op])]

    def _follow(self, thread: _Thread, op: int) -> None:
        """Note what an operator that was just launched depends on by its thread."""
        lane = self._lane_of[op]
        if lane not in thread.served:
            thread.served.add(lane)
            for other in thread.behind:
                self._add_edge(other, op)
        thread.last = op

    def _launch_nodes(self, thread: _Thread, ops: "list[int] | tuple[()]") -> None:
        """Launch the nodes of a captured graph but for the first."""
        lane, at = self._lane_of[ops[0]], thread.cursor
        before = self._before(lane, ops[0])
        latest: dict[int, int] = {lane: ops[0]}
        for op in ops[1:]:
            mine = self._lane_of[op]
            previous = latest.get(mine)
            free = self._end[previous] if previous is not None else -1
            if previous is None and before >= 0:
                self._depend(thread, mine, op, before, at, at)
            others = [other for k, other in latest.items() if k != mine]
            fits = [o for o in others if free < self._end[o] <= self._start[op] + _TOLERANCE]
            if fits and (previous is None or self._start[op] - free > _TOLERANCE):
                self.guessed_waits += 1
                self._depend(thread, mine, op, max(fits, key=lambda o: self._end[o]), at, at)
            self._row(thread, LAUNCH, mine, op, at, at)
            self._follow(thread, op)
            latest[mine] = op
        self._joins[lane] += [op for k, op in latest.items() if k != lane]

    def _before(self, lane: int, op: int) -> int:
        """Return the operator before one on its stream, or -1."""
        ops = self._lanes[lane].ops
        k = bisect_left(ops, op)
        return ops[k - 1] if k else -1

    def _wait(self, thread: _Thread, call: int, start: int, end: int, following: int) -> None:
        """Let a stream wait for another one: as event ids say, or else by the rule."""
        found = self._by_ids(call)
        if found is not None:
            lane, source = found
            if source >= 0 and lane >= 0:
                target = next((op for op in self._lanes[lane].ops if self._called[op] >= start), -1)
                self._depend(thread, lane, target, source, start, end)
            return
        self.guessed_waits += 1
        if following < 0:
            self.n_waits += 1
            return
        lane, device = self._lane_of[following], self._places[self._lane_of[following]][0]
        sources = [
            self._lanes[k].last_before(start, self._start[following] + _TOLERANCE)
            for k, place in enumerate(self._places)
            if k != lane and place[0] == device
        ]
        free = [op for op in sources if op >= 0 and (op, following) not in self._edges]
        if not free:
            self.n_waits += 1
            return
        self._depend(thread, lane, following, max(free, key=lambda op: self._end[op]), start, end)

    def _by_ids(self, call: int) -> tuple[int, int] | None:
        """Return the stream that waits, and the operator that it waits for (-1: nothing of this step); None: unknown."""
        sync = self._sync_of(call)
        if sync is None or sync[1] <= 0:
            return None
        stream, record, source = sync
        device = int(self._acts.device[0])
        lane = self._lane_at(device, stream)
        calls = self._events.calls
        at = int(first_with(calls.correlation, calls.start, np.array([record]))[0])
        if at < 0 or source < 0:
            return None
        recorded = self._lane_at(device, source)
        op = -1 if recorded < 0 else self._lanes[recorded].last_before(int(calls.start[at]), 2**62)
        return lane, op

    def _lane_at(self, device: int, stream: int) -> int:
        place = (device, stream)
        return self._places.index(place) if place in self._places else -1

    def _sync_of(self, call: int) -> tuple[int, int, int] | None:
        known = self._sync_rows
        return known.get(int(self._events.calls.correlation[call]))

    @property
    def _sync_rows(self) -> dict[int, tuple[int, int, int]]:
        found = self.__dict__.get("_by_correlation")
        if found is None:
            syncs = self._events.syncs
            rows = zip(syncs.stream.tolist(), syncs.record.tolist(), syncs.source.tolist(), strict=True)
            found = self.__dict__["_by_correlation"] = dict(zip(syncs.correlation.tolist(), rows, strict=True))
        return found

    def _awaited(self, thread: _Thread, call: int, name: str, start: int, end: int) -> list[int]:
        """Return the operators that a synchronising call waits for."""
        reached = [lane.last_before(start, end + _TOLERANCE) for lane in self._lanes]
        sync = self._sync_of(call)
        if sync is not None:
            found = self._by_ids(call)
            if found is not None:
                return [found[1]] if found[1] >= 0 else []
            if sync[0] >= 0 and "Stream" in name:
                lane = self._lane_at(int(self._acts.device[0]), sync[0])
                return [reached[lane]] if lane >= 0 and reached[lane] >= 0 else []
        fits = [op for op in reached if op >= 0]
        if _ALL.match(name) or not fits:
            return fits
        if end - start < _HELD and thread.last >= 0 and self._end[thread.last] <= end + _TOLERANCE:
            return [thread.last]
        return [max(fits, key=lambda op: self._end[op])]

    def _ended_within(self, start: int, end: int) -> list[int]:
        """Return the last operator that ended within a call, if the call ended soon after."""
        fits = [lane.last_before(start, end) for lane in self._lanes]
        last = max((op for op in fits if op >= 0), key=lambda op: self._end[op], default=-1)
        return [last] if last >= 0 and max(start, end - _SILENT // 10) < self._end[last] else []

    def _block(self, thread: _Thread, ops: list[int], start: int, end: int) -> None:
        """Let a thread wait for operators to end."""
        if not ops:
            return
        ops = sorted(ops, key=lambda op: self._end[op])
        over = max(start, min(end, self._end[ops[-1]]))
        for op in ops[:-1]:
            self._row(thread, SYNC, -1, self._event(op), start, start)
        begin = max(thread.cursor, start)
        thread.rows.append((SYNC, -1, self._event(ops[-1]), begin - thread.cursor, max(0, end - max(over, begin))))
        thread.host += begin - thread.cursor
        thread.cursor = max(begin, end)
        thread.behind = dict.fromkeys(ops)
        thread.served = set()

    def _depend(self, thread: _Thread, lane: int, op: int, source: int, start: int, end: int) -> None:
        """Let a stream, and so the operator launched next on it (-1: none), wait for another operator."""
        self.n_waits += 1
        self._holds[lane] = max(self._holds.get(lane, 0), self._end[source])
        self._row(thread, WAIT, lane, self._event(source), start, end)
        if op >= 0:
            self._add_edge(source, op)

    def _event(self, op: int) -> int:
        return self._events_of.setdefault(op, len(self._events_of))

    def _add_edge(self, source: int, op: int) -> None:
        if self._start[source] < self._start[op] or (self._start[source] == self._start[op] and source < op):
            self._edges[source, op] = None

    # --- putting it together

    def _built(self, threads: list[_Thread], lost: list[int]) -> TracedProgram:
        devices = sorted({device for device, _ in self._places})
        graph, ahead = self._graph(devices)
        columns: list[tuple[int, int, int, int, int]] = []
        ptr = [0]
        n_events = len(self._events_of)
        for thread in [self._others(lost, ahead), *threads]:
            for action, lane, argument, lead, own in thread.rows:
                if action == LAUNCH:
                    columns.append((action, lane, argument, lead, own))
                    event = self._events_of.get(argument)
                    if event is not None:
                        columns.append((RECORD, lane, event, 0, 0))
                else:
                    columns.append((action, lane, argument if argument >= 0 else n_events - 2 - argument, lead, own))
            ptr.append(len(columns))
        if ptr[1] == 0:
            del ptr[0]
        action, lane, argument, lead, own = np.array(columns, np.int64).T
        place = np.array(
            [(devices.index(device), stream) for device, stream in self._places] + [(0, _hand_lane(self._places))]
        )
        device, stream = place[lane].T
        stream = np.where(action == SYNC, -1, stream)
        names = [f"gpu{number}" for number in devices]
        none = np.zeros(0)
        try:
            found = TracedProgram(
                graph, names, "events", ptr, action, device, stream, argument, Copies(none, none, none, none),
                n_events + self._n_handed, 0, lead / 1e3, own / 1e3,
            )  # fmt: skip
            found.check()
        except SimschedError as error:
            raise FormatError(f"{self._source}: {error}") from error
        header = self._events.header
        rows = [traced_device(measured_device(header, number, self._source), name, self._costs, self._source)
                for number, name in zip(devices, names, strict=True)]  # fmt: skip
        times = np.array([self._start, self._end]).T - self._begin
        begun = [(-1, end - self._begin) for end in self._earlier.values()]
        found.__dict__.update(
            cluster=Cluster(tuple(rows)), step=self._step, n_waits=self.n_waits, guessed_waits=self.guessed_waits,
            n_lost=len(lost), times=np.concatenate([times, np.array(begun, np.int64).reshape(-1, 2)]) / 1e3,
        )  # fmt: skip
        return found

    def _others(self, lost: list[int], ahead: dict[int, int]) -> _Thread:
        """Return a thread for what no call in the trace stands for: earlier work, then what is lost."""
        thread = _Thread(self._begin)
        for lane, op in ahead.items():
            thread.rows.append((LAUNCH, lane, op, 0, 0))
        for op in lost:
            at = self._start[op] - self._lag
            self._row(thread, LAUNCH, self._lane_of[op], op, at, at)
        return thread

    def _graph(self, devices: list[int]) -> tuple[OpGraph, dict[int, int]]:
        """Return the graph, and the operators that stand for earlier work, by lane."""
        kinds = self._acts.kinds
        short, numbers = [_short(kind.name) for kind in kinds], defaultdict[str, int](int)
        what, names = self._acts.what.tolist(), []
        for code in what:
            names.append(f"{short[code]}#{numbers[short[code]]}")
            numbers[short[code]] += 1
        n, ahead = len(names), {}
        for lane in self._earlier:
            ahead[lane] = len(names)
            device, stream = self._places[lane]
            names.append(f"earlier work on stream {stream}" + (f" of device {device}" if len(devices) > 1 else ""))
        ends = [(a, b) for lane in self._lanes for a, b in pairwise(lane.ops)]
        ends += [(op, self._lanes[lane].ops[0]) for lane, op in ahead.items() if self._lanes[lane].ops]
        ends = dict.fromkeys([*(ends if self._by_streams else ()), *self._edges])
        src, dst = np.array(list(ends), np.int64).reshape(-1, 2).T
        code = np.concatenate([self._acts.what, np.full(len(ahead), len(kinds))])
        nbytes = np.array([kind.nbytes or 0.0 for kind in kinds] + [0.0])
        earlier = [end - self._begin for end in self._earlier.values()]
        graph = OpGraph.from_columns(
            names, src, dst, name=os.path.basename(self._source).split(".")[0] + _of_step(self._step),
            kind=(code, [*map(_class_of, kinds), "earlier"]), nbytes=nbytes[code],
            time=np.concatenate([self._acts.duration, earlier]) / 1e3,
            host=np.array(self._hosts + [0] * len(ahead)) / 1e3,
            attributes=([*self._lane_of, *ahead], [{"device": devices.index(d), "stream": k} for d, k in self._places]),
            kernels=(code, [() if kind.launch is None else (kind.launch,) for kind in kinds] + [()]),
        )  # fmt: skip
        return graph, ahead


def _hand_lane(places: list[tuple[int, int]]) -> int:
    """Return a stream that nothing runs on."""
    return max(stream for _, stream in places) + 1


def _of_step(step: int | None) -> str:
    return "" if step is None else f" in step {step}"


def _window(events: Events, step: int | str | None, source: str) -> tuple[int, int, int | None]:
    """Return when a step begins and ends in ns, and its number."""
    marks, _, _ = split_iterations(events, "ProfilerStep")
    starts = [times.min() for times in (events.calls.start, events.activities.start) if len(times)]
    whole = (int(min(starts, default=0)), 2**62, None)
    if step == "all" or (step is None and not marks.marked):
        return whole
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        raise FormatError(f"{source}: step must be a number or 'all', not {step!r}")
    numbers = marks.numbers
    if step is None:
        k = len(numbers) - 1
    elif step in numbers:
        k = numbers.index(step)
    else:
        known = ", ".join(map(str, numbers)) or "none"
        raise FormatError(f"{source}: there is no step {step}; there are: {known}")
    return int(marks.start[k]), int(marks.end[k]), numbers[k]


def _handed_over(thread: Ints, start: Ints, end: Ints) -> list[int]:
    """Return, for each call by start, the thread that handed it its work, or -1."""
    found = [-1] * len(thread)
    threads, starts, ends = thread.tolist(), start.tolist(), end.tolist()
    following: dict[int, int] = {}
    after = [2**62] * len(threads)  # when the thread of each call calls again
    for k in range(len(threads) - 1, -1, -1):
        after[k] = following.get(threads[k], 2**62)
        following[threads[k]] = starts[k]
    last: dict[int, int] = {}  # thread -> its last call
    for k, mine in enumerate(threads):
        silent = mine not in last or starts[k] - ends[last[mine]] > _SILENT
        if silent and k:
            giver = max((i for t, i in last.items() if t != mine), default=-1)
            if giver >= 0 and (mine not in last or giver > last[mine]) and after[giver] - starts[k] > _SILENT:
                found[k] = threads[giver]
        last[mine] = k
    return found


def _next_launches(rows: list[int], threads: list[int], mine: dict[int, list[int]]) -> dict[int, int]:
    """Return, for each call by start, the operator that its thread launches next."""
    found: dict[int, int] = {}
    following: dict[int, int] = {}
    for k in range(len(rows) - 1, -1, -1):
        if threads[k] in following:
            found[k] = following[threads[k]]
        if rows[k] in mine:
            following[threads[k]] = mine[rows[k]][0]
    return found


def _median(values: Ints, otherwise: int) -> int:
    return int(np.median(values)) if len(values) >= _FEW else otherwise


def _class_of(kind: Any) -> str:
    if kind.what != "kernel":
        return str(kind.what)
    return "collective" if _COLLECTIVE.search(kind.name) else "kernel"


def _short(name: str) -> str:
    """Return the name of a kernel without its types.

    >>> _short("void at::native::(anonymous namespace)::CatArray<float, 4>(float*, int)"), _short("volta_sgemm_64x64_tn")
    ('at::native::CatArray', 'volta_sgemm_64x64_tn')
    """
    bare = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", bare, maxsplit=1)[0].strip() or name
