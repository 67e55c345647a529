"""From the calls of a torch.profiler trace to the instructions of a program."""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import count, pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from simsched.base.errors import ClusterError, FormatError, SimschedError
from simsched.model import INTENSITIES, Cluster, Device, Floats, Ints, Kernel, OpGraph
from simsched.model.cluster import occupancy
from simsched.model.program import LAUNCH, RECORD, SYNC, WAIT, Copies
from workloads.formats.kineto.collectives import Collective, communicators, short_name
from workloads.formats.kineto.device import measured_device, traced_device
from workloads.formats.kineto.events import Activities, Codes, MeasuredKind
from workloads.formats.kineto.hosts import HostThread, Stream, handed_over, next_launches, records_by_order
from workloads.formats.kineto.records import (
    EARLY,
    LONG,
    NO_LAUNCH,
    TOLERANCE,
    ZERO,
    Flags,
    Records,
    faults_of_calls,
    launches_kernel,
)
from workloads.formats.kineto.streams import called_at, reached
from workloads.formats.kineto.traced import Measured, TracedProgram

_logger = logging.getLogger(__name__)

_API: Final = "(cuda|hip|cu)"
_WAIT: Final = re.compile(f"{_API}StreamWaitEvent")
_RECORD: Final = re.compile(f"{_API}EventRecord")
_SYNC: Final = re.compile(f"{_API}(Device|Ctx|Stream|Event)Synchronize")
_ALL: Final = re.compile(f"{_API}(Device|Ctx)Synchronize")
_BLOCKING_COPY: Final = re.compile(f"{_API}Mem(cpy|set)(?!.*Async)")
_FREE: Final = re.compile(f"{_API}(Mem)?(Free|HostFree|HostUnregister)(?!.*Async)")
_STARTS_EARLY: Final = re.compile(f"{_API}(LaunchKernelEx|GraphLaunch)")
"""Calls whose kernels may start before the one before them on their stream ends."""
_HELD: Final = 10_000
"""Ns from which on a call that synchronises is taken to have waited."""
_FREED: Final = 50_000
"""Ns within which a call that frees memory returns once what it waited for has ended."""
_USUAL_LAG: Final = 2_000
_LONGEST_GAP: Final = 10_000
_UNEXPLAINED: Final = 50_000
"""Ns for which a device must have been idle, with nothing that holds an operator, to be held by what is not traced."""
_EVER: Final = 2**62
_FEW: Final = 5


class Window(NamedTuple):
    """When a step begins and ends on the host in ns, and its number."""

    begin: int
    end: int
    step: int | None = None

    def __str__(self) -> str:
        return "" if self.step is None else f" in step {self.step}"


class Untraced(NamedTuple):
    """What held a stream and is not traced: before which operator, from when to when, and how long all was idle; ns."""

    lane: int
    op: int
    begin: int
    end: int
    idle: int


class Issued:
    """What the threads of a trace issued in a step; `program` puts it together.

    Parameters
    ----------
    events, source
        The trace, and how errors name it.
    window
        The step.
    by_streams
        Whether the order on streams stands among the edges of the graph.
    """

    def __init__(self, records: Records, source: str, window: Window, *, by_streams: bool) -> None:
        self._events, self._source, self._window, self._by_streams = records.events, source, window, by_streams
        self._begin, self._finish, self._step = window
        calls, acts = self._events.calls, self._events.activities
        called, latest = called_at(acts, calls, records.call)
        rows = np.flatnonzero((called >= self._begin) & (called < self._finish))
        if not len(rows):
            raise FormatError(f"{source}: nothing was launched on a GPU{window}")
        rows = rows[np.lexsort((acts.correlation[rows], acts.start[rows]))]
        earlier = np.flatnonzero((called < self._begin) & (acts.start + acts.duration > self._begin))
        earlier = earlier[np.lexsort((acts.start[earlier],))]
        self._n = len(rows)
        self._faults = records.dropped + self._faults_in(records, rows)
        rows = np.concatenate([rows, earlier])
        self._acts: Activities = acts.take(rows)
        self._call: Ints = records.call[rows]
        self._called: list[int] = called[rows].tolist()
        self._latest_call: list[int] = latest[rows].tolist()
        self._start: list[int] = self._acts.start.tolist()
        self._end: list[int] = (self._acts.start + self._acts.duration).tolist()
        self._lag, self._costs = self._measure_costs()
        self._lane_at = Codes()  # of a device and a stream
        self._lane_of = self._number_lanes()
        self._reached = reached(self._acts)
        self._devices = sorted({device for device, _ in self._places})
        self._cluster = self._make_cluster()
        self._gap = round(1e3 * self._cluster.devices[0].gap)
        self._events_of = Codes()  # of an operator, recorded behind it
        self._edges: dict[tuple[int, int], None] = {}
        self._joins: dict[int, list[int]] = defaultdict(list)  # lane -> operators of a captured graph to wait for
        self._holds: dict[int, int] = {}  # lane -> end of what it waits for before its next operator
        self._untraced: list[Untraced] = []
        self._record_of = records_by_order(calls, self._events.syncs)
        self._pending: dict[tuple[int, int], list[int]] = {}  # device and stream -> what it waits for since it ran last
        self._recorded: dict[int, list[int]] = {}  # row of a record -> operators behind which it stands
        self._usual = round(1e3 * self._costs.get("launch", 0.0))
        self._hosts = [0] * len(self._start)
        self._free = [start - self._begin for start in self._start[: self._n]]  # from when on each could start
        self._blocking: Counter[str] = Counter()
        self.n_waits = self.guessed_waits = 0

    # --- what is where

    def _faults_in(self, records: Records, rows: Ints) -> Counter[str]:
        """Return what is wrong with the records of the step."""
        calls, acts = self._events.calls, self._events.activities
        inside = np.flatnonzero((calls.start >= self._begin) & (calls.start < self._finish))
        faults = faults_of_calls(acts, calls, inside)
        is_kernel = np.array([kind.what == "kernel" for kind in acts.kinds], bool)[acts.what[rows]]
        faults[ZERO] = int((is_kernel & (acts.duration[rows] == 0) & ~records.long[rows]).sum())
        faults[EARLY], faults[LONG] = int(records.early[rows].sum()), int(records.long[rows].sum())
        faults[NO_LAUNCH] = int((records.call[rows] < 0).sum())
        return faults

    def _number_lanes(self) -> list[int]:
        """Return the number of the stream of each operator, and put operators on streams, earlier work first."""
        lane_of = [
            self._lane_at[key] for key in zip(self._acts.device.tolist(), self._acts.stream.tolist(), strict=True)
        ]
        self._places: list[tuple[int, int]] = list(self._lane_at)
        self._lanes = [Stream() for _ in self._places]
        self._before = [-1] * len(lane_of)  # the operator before each on its stream, or -1
        for i in (*range(self._n, len(lane_of)), *range(self._n)):
            mine = self._lanes[lane_of[i]]
            if mine.ops:
                self._before[i] = mine.ops[-1]
            mine.ops.append(i)
            called = self._called[i] - (self._call[i] < 0)  # what is not recorded was before what is
            mine.called.append(max(int(called), mine.called[-1] if mine.called else 0))
            mine.ends.append(max(self._end[i], mine.ends[-1] if mine.ends else 0))
        return lane_of

    def _measure_costs(self) -> tuple[int, dict[str, float]]:
        """Return the ns from the end of a launch to the start of a kernel, and the costs of the device in us."""
        calls, acts, call = self._events.calls, self._acts.take(np.arange(self._n)), self._call[: self._n]
        known = call >= 0
        start, end = acts.start, acts.start + acts.duration
        call_start, call_end = (
            np.where(known, times[call] if len(times) else 0, 0) for times in (calls.start, calls.end)
        )
        is_kernel = np.array([kind.what == "kernel" for kind in acts.kinds], bool)[acts.what]
        earlier = np.maximum.accumulate(np.concatenate([[0], end[:-1]]))
        idle = known & is_kernel & (earlier < call_start) & (start >= call_start)
        lag = _median((start - call_end)[idle], _USUAL_LAG)
        launching = calls.are(launches_kernel)
        launch = _median((calls.end - calls.start)[launching], -1)
        order = np.lexsort((start, acts.stream, acts.device))
        follows = np.concatenate([[False], (np.diff(acts.stream[order]) == 0)])
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
        for i, call in enumerate(self._call[: self._n].tolist()):
            mine[call].append(i)
        lost = mine.pop(-1, [])
        rows = np.flatnonzero((calls.start >= self._begin) & (calls.start < self._finish))
        rows = rows[np.argsort(calls.start[rows], kind="stable")]
        numbers = calls.thread[rows].tolist()
        handed = handed_over(calls.thread[rows], calls.start[rows], calls.end[rows])
        following = next_launches(rows.tolist(), numbers, mine)
        threads: defaultdict[int, HostThread] = defaultdict(lambda: HostThread(self._begin))
        self._n_handed = 0
        self._recorded_later = frozenset(self._record_of.values())
        for k, (call, number) in enumerate(zip(rows.tolist(), numbers, strict=True)):
            thread = threads[number]
            if handed[k] in threads:
                self._hand_over(threads[handed[k]], thread)
            self._issue(thread, call, mine.get(call, ()), following[k])
        return self._built([thread for thread in threads.values() if thread.rows], lost)

    def _hand_over(self, giver: HostThread, taker: HostThread) -> None:
        """Let a thread go on from where another one has come."""
        event = -2 - self._n_handed  # numbered later, behind those of operators
        self._n_handed += 1
        giver.rows.append((RECORD, -1, event, 0, 0))
        taker.rows.append((SYNC, -1, event, 0, 0))
        taker.cursor = max(taker.cursor, giver.cursor)

    def _issue(self, thread: HostThread, call: int, ops: Sequence[int], following: int) -> None:
        """Issue what a call stands for."""
        calls = self._events.calls
        name, start, end = calls.names[int(calls.name[call])], int(calls.start[call]), int(calls.end[call])
        if ops:
            self._launch(thread, name, ops, start, end)
        elif call in self._recorded_later:
            self._record(thread, call, start)
        elif _WAIT.match(name):
            self._wait(thread, call, start, end, following)
        elif _SYNC.match(name):
            self._block(thread, name, self._awaited(thread, call, name, start, end), start, end)
        elif _FREE.match(name) and end - start > _HELD:
            self._block(thread, name, self._ended_within(start, end), start, end)

    def _row(self, thread: HostThread, action: int, lane: int, argument: int, start: int, end: int) -> None:
        """Add an instruction that begins and ends at a time in ns, as far as the time of the thread has come there."""
        begin = max(thread.cursor, start)
        over = max(begin, end)
        thread.rows.append((action, lane, argument, begin - thread.cursor, over - begin))
        thread.host += over - thread.cursor
        thread.cursor = over

    def _launch(self, thread: HostThread, name: str, ops: Sequence[int], start: int, end: int) -> None:
        op = ops[0]
        lane = self._lane_of[op]
        for other in self._joins.pop(lane, ()):
            self.n_waits += 1
            self._depend(thread, lane, op, other, start, start)
        self._blocking.update(thread.blocked)
        thread.blocked = []
        thread.place = self._places[lane]
        self._pending.pop(thread.place, None)
        last = self._latest(ops)
        blocks = self._end[last] <= end and (_BLOCKING_COPY.match(name) is not None or "ageable" in self._kind(op).name)
        before = self._before[op]
        held = max(self._holds.pop(lane, 0), self._end[before] if before >= 0 else 0)
        known = min(end, max(start, self._start[op] - self._lag))
        if blocks and held > known - self._usual:  # it did not start before the stream was free
            known = min(known, start + self._usual)
        begin = start
        if self._holds_untraced(lane, op, max(held, known + self._lag)):
            self._row(thread, LAUNCH, lane, self._hold_number, start, known)
            begin = known
        thread.host -= known - max(thread.cursor, start)  # the call itself is the device's `launch`
        self._row(thread, LAUNCH, lane, op, begin, known)
        self._hosts[op], thread.host = max(0, thread.host), 0
        self._follow(thread, op)
        if len(ops) > 1:
            self._launch_nodes(thread, ops)
        if blocks:
            self._block(thread, name, [last], known, end)

    def _holds_untraced(self, lane: int, op: int, free: int) -> bool:
        """Note a hold where an operator waited for nothing that is traced; return whether there is one.

        It counts where the device had been idle for `_UNEXPLAINED` though the stream was free, and the operator called
        for.
        """
        start = self._start[op]
        self._free[op] = min(free, start) - self._begin
        idle = start - max(free, self._reached[op])
        if idle <= _UNEXPLAINED:
            return False
        over = start - self._gap
        self._untraced.append(Untraced(lane, op, min(free, over), over, idle))
        return True

    @property
    def _hold_number(self) -> int:
        """What stands for the last hold in instructions, until operators are numbered."""
        return -1 - len(self._untraced)

    def _kind(self, op: int) -> MeasuredKind:
        return self._acts.kinds[int(self._acts.what[op])]

    def _follow(self, thread: HostThread, op: int) -> None:
        """Note what an operator that was just launched depends on by its thread."""
        lane = self._lane_of[op]
        if lane not in thread.served:
            thread.served.add(lane)
            for other in thread.behind:
                self._add_edge(other, op)
        thread.last = op

    def _launch_nodes(self, thread: HostThread, ops: Sequence[int]) -> None:
        """Launch the nodes of a captured graph but for the first."""
        lane, at = self._lane_of[ops[0]], thread.cursor
        before = self._before[ops[0]]
        latest: dict[int, int] = {lane: ops[0]}
        for op in ops[1:]:
            mine = self._lane_of[op]
            previous = latest.get(mine)
            free = self._end[previous] if previous is not None else -1
            if previous is None and before >= 0:
                self.n_waits += 1
                self._depend(thread, mine, op, before, at, at)
            others = [other for k, other in latest.items() if k != mine]
            fits = [o for o in others if free < self._end[o] <= self._start[op] + TOLERANCE]
            if fits and (previous is None or self._start[op] - free > TOLERANCE):
                self.n_waits += 1
                self.guessed_waits += 1
                self._depend(thread, mine, op, self._latest(fits), at, at)
            if self._holds_untraced(mine, op, max(free, self._holds.pop(mine, 0), at + self._lag)):
                self._row(thread, LAUNCH, mine, self._hold_number, at, at)
            self._row(thread, LAUNCH, mine, op, at, at)
            self._follow(thread, op)
            latest[mine] = op
        self._joins[lane] += [op for k, op in latest.items() if k != lane]

    def _wait(self, thread: HostThread, call: int, start: int, end: int, following: int) -> None:
        """Let a stream wait for another one: as event ids say, or else by the rule."""
        stream, _, _, device, _ = self._sync_of(call)
        known = self._by_ids(call)
        if known is None:
            known = self._by_order(call, start)
        if stream >= 0:
            thread.place = (device, stream)
        if known is not None:
            lane = self._lane_at.get((device, stream), -1)
            if stream >= 0:
                pending = self._pending.get((device, stream), [])
                self._pending[device, stream] = self._last_by_lane([*pending, *known])
            others = [op for op in known if self._lane_of[op] != lane]
            if lane >= 0 and others:
                self.n_waits += 1
                target = self._lanes[lane].first_after(start)
                for source in others:
                    self._depend(thread, lane, target, source, start, end)
            return
        self.guessed_waits += 1
        free: list[int] = []
        if following >= 0:
            lane = self._lane_of[following]
            sources = [
                self._lanes[k].last_before(start, self._start[following] + TOLERANCE)
                for k, (device, _) in enumerate(self._places)
                if k != lane and device == self._places[lane][0]
            ]
            free = [op for op in sources if op >= 0 and (op, following) not in self._edges]
        self.n_waits += 1
        if free:
            self._depend(thread, lane, following, self._latest(free), start, end)

    def _last_by_lane(self, ops: Iterable[int]) -> list[int]:
        """Return of some operators the last one on each stream."""
        last: dict[int, int] = {}
        for op in ops:
            lane = self._lane_of[op]
            if lane not in last or self._start[op] >= self._start[last[lane]]:
                last[lane] = op
        return list(last.values())

    def _record(self, thread: HostThread, call: int, start: int) -> None:
        """Note what an event is recorded behind: what ran last where its thread worked last, and waits there."""
        if thread.place is None:
            return
        lane = self._lane_at.get(thread.place, -1)
        last = self._lanes[lane].last_before(start, _EVER) if lane >= 0 else -1
        waits = self._pending.get(thread.place, ())
        self._recorded[call] = self._last_by_lane([*([last] if last >= 0 else []), *waits])

    def _latest(self, ops: Iterable[int]) -> int:
        """Return the operator that ended last, the first of equals."""
        return max(ops, key=self._end.__getitem__)

    def _by_ids(self, call: int) -> list[int] | None:
        """Return the operators that a call waits for, none if none of this step; None: unknown."""
        _, record, source, device, _ = self._sync_of(call)
        at = self._row_with.get(record, -1) if record > 0 else -1
        if at < 0 or source < 0:
            return None
        recorded = self._lane_at.get((device, source), -1)
        op = -1 if recorded < 0 else self._lanes[recorded].last_before(int(self._events.calls.start[at]), _EVER)
        return [op] if op >= 0 else []

    def _by_order(self, call: int, start: int) -> list[int] | None:
        """Return the operators that a wait is for by the order of events, unless that is not how they ran."""
        stream, _, _, device, _ = self._sync_of(call)
        sources = self._recorded.get(self._record_of.get(call, -1))
        if sources is None or stream < 0:
            return None
        lane = self._lane_at.get((device, stream), -1)
        target = self._lanes[lane].first_after(start) if lane >= 0 else -1
        over = max((self._end[op] for op in sources), default=0)
        return sources if target < 0 or over <= self._start[target] + TOLERANCE else None

    @cached_property
    def _row_with(self) -> dict[int, int]:
        """The row of the first call with each correlation id."""
        calls = self._events.calls
        order = np.argsort(calls.start, kind="stable")[::-1]
        return dict(zip(calls.correlation[order].tolist(), order.tolist(), strict=True))

    def _sync_of(self, call: int) -> tuple[int, ...]:
        """Return stream, record, source, device and event of a synchronisation, -1 where they are not known."""
        return self._events.syncs.get(int(self._events.calls.correlation[call]), (-1, -1, -1, -1, -1))

    def _awaited(self, thread: HostThread, call: int, name: str, start: int, end: int) -> list[int]:
        """Return the operators that a synchronising call waits for."""
        reached = [lane.last_before(start, end + TOLERANCE) for lane in self._lanes]
        known = self._by_ids(call)
        if known is not None:
            return known
        stream, _, _, device, _ = self._sync_of(call)
        if stream >= 0 and "Stream" in name:
            lane = self._lane_at.get((device, stream), -1)
            return [reached[lane]] if lane >= 0 and reached[lane] >= 0 else []
        fits = [op for op in reached if op >= 0]
        if _ALL.match(name) or not fits:
            return fits
        if end - start < _HELD and thread.last >= 0 and self._end[thread.last] <= end + TOLERANCE:
            return [thread.last]
        return [self._latest(fits)]

    def _ended_within(self, start: int, end: int) -> list[int]:
        """Return the last operator that ended within a call, if the call ended soon after."""
        fits = [op for lane in self._lanes if (op := lane.last_before(start, end)) >= 0]
        return [self._latest(fits)] if fits and max(start, end - _FREED) < self._end[self._latest(fits)] else []

    def _block(self, thread: HostThread, name: str, ops: list[int], start: int, end: int) -> None:
        """Let a thread wait for operators to end."""
        if not ops:
            return
        *others, last = sorted(ops, key=self._end.__getitem__)
        for op in others:
            self._row(thread, SYNC, -1, self._events_of[op], start, start)
        begin = max(thread.cursor, start)
        over = max(begin, min(end, self._end[last]))
        thread.rows.append((SYNC, -1, self._events_of[last], begin - thread.cursor, max(0, end - over)))
        thread.host += begin - thread.cursor
        thread.cursor = max(begin, end)
        thread.behind = dict.fromkeys(ops)
        thread.blocked.append(name)
        thread.served = set()

    def _depend(self, thread: HostThread, lane: int, op: int, source: int, start: int, end: int) -> None:
        """Let a stream, and so the operator launched next on it (-1: none), wait for another operator."""
        self._holds[lane] = max(self._holds.get(lane, 0), self._end[source])
        self._row(thread, WAIT, lane, self._events_of[source], start, end)
        if op >= 0:
            self._add_edge(source, op)

    def _add_edge(self, source: int, op: int) -> None:
        if (self._start[source], source) < (self._start[op], op):
            self._edges[source, op] = None

    # --- putting it together

    def _built(self, threads: list[HostThread], lost: list[int]) -> TracedProgram:
        cluster = self._cluster
        ahead = self._earlier()
        others = self._others(lost, ahead)
        graph, number = self._graph(ahead)
        columns: list[tuple[int, int, int, int, int]] = []
        ptr = [0]
        n_events = len(self._events_of)
        for thread in [others, *threads]:
            for action, lane, argument, lead, own in thread.rows:
                op = argument if argument >= 0 or action != LAUNCH else len(self._start) - 2 - argument
                if action == LAUNCH:
                    columns.append((action, lane, number[op], lead, own))
                    if op in self._events_of:
                        columns.append((RECORD, lane, self._events_of[op], 0, 0))
                else:
                    columns.append((action, lane, op if op >= 0 else n_events - 2 - op, lead, own))
            ptr.append(len(columns))
        if ptr[1] == 0:
            del ptr[0]
        action, lane, argument, lead, own = np.array(columns, np.int64).T
        nowhere = max(stream for _, stream in self._places) + 1  # a stream that nothing runs on
        place = np.array([*((self._devices.index(device), stream) for device, stream in self._places), (0, nowhere)])
        device, stream = place[lane].T
        stream = np.where(action == SYNC, -1, stream)
        names = [each.name for each in cluster.devices]
        none, whole = np.zeros(0), np.zeros(0, np.int32)
        begun = [(self._begin - 1, self._end[group[-1]]) for group in ahead]
        held = [(hold.begin, hold.end) for hold in self._untraced]
        own_times = list(zip(self._start[: self._n], self._end[: self._n], strict=True))
        measured = Measured(
            cluster=cluster,
            step=self._step,
            n_waits=self.n_waits,
            guessed_waits=self.guessed_waits,
            n_lost=len(lost),
            times=(np.array([*own_times, *begun, *held], np.int64) - self._begin) / 1e3,
            untraced_us=sum(hold.idle for hold in self._untraced) / 1e3,
            n_early=int(self._starts_early.sum()),
            faults=+self._faults,
            collectives=self._collectives(),
            begin=self._begin,
            n_own=self._n,
            is_stated=self._is_stated,
            blocking=+self._blocking,
            ready=np.array(self._free) / 1e3,
            kernels=tuple(self._kind(op).name for op in range(self._n)),
        )
        try:
            found = TracedProgram(
                graph,
                names,
                "events",
                ptr,
                action,
                device,
                stream,
                argument,
                Copies(whole, whole, none, none),
                n_events + self._n_handed,
                0,
                lead / 1e3,
                own / 1e3,
            )
            found.check()
        except SimschedError as error:
            raise FormatError(f"{self._source}: {error}") from error
        found.__dict__["of_trace"] = measured
        return found

    def _collectives(self) -> tuple[Collective, ...]:
        acts = self._acts
        rows = [i for i in range(self._n) if acts.kinds[int(acts.what[i])].is_collective]
        names = [short_name(acts.kinds[int(acts.what[i])].name) for i in rows]
        groups = communicators(names, acts.group[rows], self._events.groups)
        sequence, time = acts.sequence[rows].tolist(), (acts.duration[rows] / 1e3).tolist()
        return tuple(map(Collective, rows, groups, sequence, time))

    def _make_cluster(self) -> Cluster:
        header, source = self._events.header, self._source
        rows = [(f"gpu{number}", measured_device(header, number, source)) for number in self._devices]
        self._is_stated = all(found is not None for _, found in rows)
        made = tuple(traced_device(found, name, self._costs, source) for name, found in rows)
        return Cluster(made, name=made[0].model)

    def _launches(self) -> list[tuple[Kernel, ...]]:
        """Return the launch of each kind of operator; one that no device of the trace could hold is left out."""
        launches = [kind.launch for kind in self._acts.kinds]
        found: list[tuple[Kernel, ...]] = [
            (k,) if k and any(_fits(device, k) for device in self._cluster.devices) else () for k in launches
        ]
        n_unfit = len(launches) - launches.count(None) - sum(map(len, found))
        if n_unfit:
            _logger.warning("%s: %d kinds of kernels do not fit on an SM; they load nothing", self._source, n_unfit)
        return found

    def _others(self, lost: list[int], ahead: list[list[int]]) -> HostThread:
        """Return a thread for what no call in the trace stands for: earlier work, then what is lost."""
        thread = HostThread(self._begin)
        for group in ahead:
            thread.rows.append((LAUNCH, self._lane_of[group[-1]], group[-1], 0, 0))
        for op in sorted(lost, key=lambda i: (self._latest_call[i], i)):
            lane, at = self._lane_of[op], max(self._begin, min(self._start[op] - self._lag, self._latest_call[op]))
            before = self._before[op]
            if self._holds_untraced(lane, op, max(at + self._lag, self._end[before] if before >= 0 else 0)):
                self._row(thread, LAUNCH, lane, self._hold_number, at, at)
            self._row(thread, LAUNCH, lane, op, at, at)
        return thread

    def _earlier(self) -> list[list[int]]:
        """Return earlier work on each stream, cut behind what is waited for."""
        groups: list[list[int]] = []
        for lane in self._lanes:
            group: list[int] = []
            for op in lane.ops:
                if op < self._n:
                    break
                group.append(op)
                if op in self._events_of:
                    groups.append(group)
                    group = []
            if group:
                groups.append(group)
        return groups

    @cached_property
    def _starts_early(self) -> Flags:
        """Which operators start before the one before them on their stream ends, as programs may have it."""
        may = np.zeros(len(self._start), bool)
        known = np.flatnonzero(self._call >= 0)
        may[known] = self._events.calls.are(_STARTS_EARLY.match)[self._call[known]]
        before = np.array(self._before)
        found: Flags = may & (before >= 0) & (self._acts.start < np.array(self._end)[before])
        return found

    def _times(self) -> Floats:
        """Return the time of each operator in us: of one that starts early, from where the one before it ends."""
        over = {i: end for lane in self._lanes for i, end in zip(lane.ops[1:], lane.ends, strict=False)}
        times = self._acts.duration[: self._n] / 1e3
        for i in np.flatnonzero(self._starts_early[: self._n]).tolist():
            times[i] = max(0, self._end[i] - over[i] - self._gap) / 1e3
        return times

    def _graph(self, ahead: list[list[int]]) -> tuple[OpGraph, dict[int, int]]:
        """Return the graph, and the number in it of each operator."""
        kinds = self._acts.kinds
        own = self._acts.what[: self._n]
        short, counters = [short_name(kind.name) for kind in kinds], defaultdict[str, "count[int]"](count)
        names = [f"{short[code]}#{next(counters[short[code]])}" for code in own.tolist()]
        number = {op: op for op in range(self._n)} | {group[-1]: self._n + k for k, group in enumerate(ahead)}
        number |= {len(self._start) + k: len(number) + k for k in range(len(self._untraced))}
        lanes = [self._lane_of[group[-1]] for group in ahead]
        for k, lane in enumerate(lanes):
            device, stream = self._places[lane]
            part = f"part {k - lanes.index(lane) + 1} of " if lane in lanes[k + 1 :] else ""
            on = f" of device {device}" if len(self._devices) > 1 else ""
            names.append(f"{part}earlier work on stream {stream}{on}")
        names += [f"untraced#{k}" for k in range(len(self._untraced))]
        src, dst = self._numbered_edges(number)
        lane_of = [*self._lane_of[: self._n], *lanes, *(hold.lane for hold in self._untraced)]
        code = np.concatenate([own, np.repeat([len(kinds), len(kinds) + 1], [len(ahead), len(self._untraced)])])
        nbytes = np.array([kind.nbytes or 0.0 for kind in kinds] + [0.0, 0.0])
        begins: dict[int, int] = {}
        earlier = []
        for lane, group in zip(lanes, ahead, strict=True):
            over = self._end[group[-1]]
            earlier.append(max(0, over - begins.get(lane, self._begin + self._lag)))
            begins[lane] = over
        held = [hold.end - hold.begin for hold in self._untraced]
        links = np.array([kind.is_collective for kind in kinds] + [False, False])[code]
        places = [{"device": self._devices.index(device), "stream": stream} for device, stream in self._places]
        graph = OpGraph.from_columns(
            names,
            src,
            dst,
            name=Path(self._source).name.split(".")[0] + str(self._window),
            kind=(code, [*map(_class_of, kinds), "earlier", "untraced"]),
            nbytes=nbytes[code],
            time=np.concatenate([self._times(), np.array(earlier) / 1e3, np.array(held) / 1e3]),
            host=np.array(self._hosts[: self._n] + [0] * (len(names) - self._n)) / 1e3,
            attributes=(lane_of, places),
            kernels=(code, [*self._launches(), (), ()]),
            intensity=np.where(links, INTENSITIES.index("link"), -1),
        )
        return graph, number

    def _numbered_edges(self, number: dict[int, int]) -> Ints:
        """Return the operators from and to which edges go, shape (2, n_edges)."""
        holds = {hold.op: len(self._start) + k for k, hold in enumerate(self._untraced)}
        edges: dict[tuple[int, int], None] = {}
        for lane in self._lanes:
            for a, b in pairwise([op for op in lane.ops if op in number]):
                middle = holds.get(b)
                if middle is not None:
                    edges |= {(a, middle): None, (middle, b): None}
                elif self._by_streams:
                    edges[a, b] = None
        edges |= {(hold, op): None for op, hold in holds.items()} | self._edges
        return np.array([(number[a], number[b]) for a, b in edges], np.int64).reshape(-1, 2).T


def _fits(device: Device, kernel: Kernel) -> bool:
    try:
        return occupancy(device, kernel).blocks > 0
    except ClusterError:
        return False


def _median(values: Ints, otherwise: int) -> int:
    return int(np.median(values)) if len(values) >= _FEW else otherwise


def _class_of(kind: MeasuredKind) -> str:
    return "collective" if kind.is_collective else kind.what
