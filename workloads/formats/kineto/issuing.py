"""Instructions of host threads, from the calls of a torch.profiler trace."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from simsched.model.program import LAUNCH, RECORD, SYNC, WAIT
from workloads.formats.kineto.apis import copies_blocking, frees, synchronises, synchronises_all, waits_for_event
from workloads.formats.kineto.events import Codes
from workloads.formats.kineto.hosts import HostThread, handed_over, next_launches, records_by_order
from workloads.formats.kineto.records import TOLERANCE
from workloads.formats.kineto.step import HELD, TracedStep

_FREED: Final = 50_000
"""Ns within which a call that frees memory returns after the end of the operator that it waited for."""
_UNEXPLAINED: Final = 50_000
"""Ns of idle time, without a traced cause, from which on an untraced cause is assumed to hold the operator."""
_UNEXPLAINED_NODE: Final = 5_000
"""The same for a node of a captured graph, between which and the one before it no host does anything."""
_EVER: Final = 2**62


class Untraced(NamedTuple):
    """An untraced cause that held a stream: the operator after it, begin and end, and the idle time of the device; ns.

    `lane` is the number of the stream.
    """

    lane: int
    op: int
    begin: int
    end: int
    idle: int


@dataclass(slots=True)
class IssuedStep:
    """The instructions of a step.

    Parameters
    ----------
    hosts
        Host time before the launch of each operator, in ns.
    ready
        Ns from the begin of the step, from which on each own operator could have started.
    threads
        Instructions of each thread. The first one issues the operators without a call.
    ahead
        Earlier work: groups of operators of one stream.
    n_lost
        Number of own operators without a call.
    events_of
        Number of the event that is recorded after an operator.
    n_handed
        Number of events by which threads hand over work; their numbers follow the events of operators.
    edges
        Dependencies by waits of streams and threads.
    untraced
        Untraced causes that held a stream. Instructions launch the k-th one as operator -1 - k.
    blocking
        Number of calls that blocked their thread before its next launch, by name.
    n_waits, guessed_waits
        Number of waits of streams, and of those that no event id states.
    """

    hosts: list[int]
    ready: list[int]
    threads: list[HostThread] = field(default_factory=list)
    ahead: list[list[int]] = field(default_factory=list)
    n_lost: int = 0
    events_of: Codes = field(default_factory=Codes)
    n_handed: int = 0
    edges: dict[tuple[int, int], None] = field(default_factory=dict)
    untraced: list[Untraced] = field(default_factory=list)
    blocking: Counter[str] = field(default_factory=Counter)
    n_waits: int = 0
    guessed_waits: int = 0


def issue(step: TracedStep) -> IssuedStep:
    """Return the instructions of a step."""
    return _Issuer(step).issue()


class _Issuer:
    """Reads the calls of a step in their order and writes instructions."""

    def __init__(self, step: TracedStep) -> None:
        self._step = step
        self._calls = step.events.calls
        self._start = step.start
        self._end = step.end
        self._lane_of = step.lane_of
        self._lanes = step.lanes
        self._begin = step.window.begin
        self._issued = IssuedStep([0] * len(step.start), [start - self._begin for start in step.start[: step.n_own]])
        self._joins: dict[int, list[int]] = defaultdict(list)  # lane -> operators of a captured graph to wait for
        self._holds: dict[int, int] = {}  # lane -> end of the operators that its next operator waits for
        self._record_of = records_by_order(self._calls, step.events.syncs)
        self._pending: dict[tuple[int, int], list[int]] = {}  # device and stream -> awaited since its last launch
        self._recorded: dict[int, list[int]] = {}  # row of a record -> the operators that end before it
        self._is_issued = [call < 0 or op >= step.n_own for op, call in enumerate(step.call.tolist())]
        self._usual = round(1e3 * step.costs.get("launch", 0.0))

    def issue(self) -> IssuedStep:
        """Return the instructions of all threads."""
        calls = self._calls
        window = self._step.window
        ops_of: dict[int, list[int]] = defaultdict(list)
        for op, call in enumerate(self._step.call[: self._step.n_own].tolist()):
            ops_of[call].append(op)
        lost = ops_of.pop(-1, [])
        rows = np.flatnonzero((calls.start >= window.begin) & (calls.start < window.end))
        rows = rows[np.argsort(calls.start[rows], kind="stable")]
        numbers = calls.thread[rows].tolist()
        givers = handed_over(calls.thread[rows], calls.start[rows], calls.end[rows])
        following = next_launches(rows.tolist(), numbers, ops_of)
        threads: defaultdict[int, HostThread] = defaultdict(lambda: HostThread(self._begin))
        self._recorded_later = frozenset(self._record_of.values())
        for k, (call, number) in enumerate(zip(rows.tolist(), numbers, strict=True)):
            thread = threads[number]
            if givers[k] in threads:
                self._hand_over(threads[givers[k]], thread)
            self._issue(thread, call, ops_of.get(call, ()), following[k])
        issued = self._issued
        issued.n_lost = len(lost)
        issued.ahead = self._earlier_work()
        issued.threads = [self._without_call(lost), *(thread for thread in threads.values() if thread.rows)]
        return issued

    def _hand_over(self, giver: HostThread, taker: HostThread) -> None:
        """Let a thread continue at the time that another one has reached."""
        event = -2 - self._issued.n_handed  # its final number follows the events of operators
        self._issued.n_handed += 1
        giver.rows.append((RECORD, -1, event, 0, 0))
        taker.rows.append((SYNC, -1, event, 0, 0))
        taker.cursor = max(taker.cursor, giver.cursor)

    def _issue(self, thread: HostThread, call: int, ops: Sequence[int], following: int) -> None:
        """Write the instructions of a call."""
        calls = self._calls
        name = calls.names[int(calls.name[call])]
        start = int(calls.start[call])
        end = int(calls.end[call])
        if ops:
            self._launch(thread, name, ops, start, end)
        elif call in self._recorded_later:
            self._record(thread, call, start)
        elif waits_for_event(name):
            self._wait(thread, call, start, end, following)
        elif synchronises(name):
            self._block(thread, name, self._awaited_ops(thread, call, name, start, end), start, end)
        elif frees(name) and end - start > HELD:
            self._block(thread, name, self._ended_within(start, end), start, end)

    def _row(self, thread: HostThread, action: int, lane: int, argument: int, start: int, end: int) -> None:
        """Write an instruction from `start` to `end`, in ns, or later if the time of the thread is later."""
        begin = max(thread.cursor, start)
        over = max(begin, end)
        thread.rows.append((action, lane, argument, begin - thread.cursor, over - begin))
        thread.host += over - thread.cursor
        thread.cursor = over

    def _launch(self, thread: HostThread, name: str, ops: Sequence[int], start: int, end: int) -> None:
        op = ops[0]
        lane = self._lane_of[op]
        for other in self._joins.pop(lane, ()):
            self._issued.n_waits += 1
            self._depend(thread, lane, op, other, start, start)
        self._issued.blocking.update(thread.blocked)
        thread.blocked = []
        thread.place = self._step.places[lane]
        self._pending.pop(thread.place, None)
        last = self._step.latest(ops)
        may_block = copies_blocking(name) is not None or "ageable" in self._step.kind(op).name
        blocks = self._end[last] <= end and may_block
        before = self._step.before[op]
        held = max(self._holds.pop(lane, 0), self._end[before] if before >= 0 else 0)
        notified = min(end, max(start, self._start[op] - self._step.lag))
        late = 0
        if blocks and (held > notified - self._usual or held - start > HELD > self._start[op] - held):
            notified = min(notified, start + self._usual)  # it did not start before the stream was free
            late = max(0, self._start[op] - max(held + self._step.gap, notified + self._step.lag))
        begin = start
        if self._holds_untraced(lane, op, max(held, notified + self._step.lag)):
            self._row(thread, LAUNCH, lane, self._hold_number, start, notified)
            begin = notified
        thread.host -= notified - max(thread.cursor, start)  # the device's `launch` covers the call itself
        self._row(thread, LAUNCH, lane, op, begin, notified)
        self._issued.hosts[op] = max(0, thread.host)
        thread.host = 0
        self._follow(thread, op)
        if len(ops) > 1:
            self._launch_nodes(thread, ops)
        if blocks:
            self._block(thread, name, [last], notified, end, late)

    def _holds_untraced(self, lane: int, op: int, free: int, least: int = _UNEXPLAINED) -> bool:
        """Note a hold if an operator waited without a traced cause; return whether it did.

        It did if the device was idle for longer than `least` although the stream was free and the operator called for.
        """
        start = self._start[op]
        self._issued.ready[op] = min(free, start) - self._begin
        idle = start - max(free, self._step.reached[op])
        if idle <= least:
            return False
        over = start - self._step.gap
        self._issued.untraced.append(Untraced(lane, op, min(free, over), over, idle))
        return True

    @property
    def _hold_number(self) -> int:
        """Number of the last hold in instructions, until operators are numbered."""
        return -1 - len(self._issued.untraced)

    def _follow(self, thread: HostThread, op: int) -> None:
        """Add the dependencies that a launched operator has by its thread."""
        self._is_issued[op] = True
        lane = self._lane_of[op]
        if lane not in thread.served:
            thread.served.add(lane)
            for other in thread.behind:
                self._add_edge(other, op)
        thread.last = op

    def _launch_nodes(self, thread: HostThread, ops: Sequence[int]) -> None:
        """Launch the nodes of a captured graph except the first one."""
        first_lane = self._lane_of[ops[0]]
        at = thread.cursor
        before = self._step.before[ops[0]]
        for op, previous, sources, _ in self._step.nodes[ops[0]]:
            lane = self._lane_of[op]
            if previous < 0 and before >= 0:
                self._issued.n_waits += 1
                self._depend(thread, lane, op, before, at, at)
            self._issued.n_waits += bool(sources)
            self._issued.guessed_waits += bool(sources)
            for source in sources:
                self._depend(thread, lane, op, source, at, at)
            free = max(self._end[previous] if previous >= 0 else 0, self._holds.pop(lane, 0), at + self._step.lag)
            if self._holds_untraced(lane, op, free, _UNEXPLAINED_NODE):
                self._row(thread, LAUNCH, lane, self._hold_number, at, at)
            self._row(thread, LAUNCH, lane, op, at, at)
            self._follow(thread, op)
        self._joins[first_lane] += [op for op in self._step.last_by_lane(ops) if self._lane_of[op] != first_lane]

    def _wait(self, thread: HostThread, call: int, start: int, end: int, following: int) -> None:
        """Let a stream wait for another one, by the ids of events or else by the rule."""
        stream, _, _, device, _ = self._sync_of(call)
        sources = self._by_ids(call)
        if sources is None:
            sources = self._by_order(call, start)
        if stream >= 0:
            thread.place = (device, stream)
        if sources is None:
            self._guess_wait(thread, start, end, following)
            return
        lane = self._step.lane_at.get((device, stream), -1)
        if stream >= 0:
            pending = self._pending.get((device, stream), [])
            self._pending[device, stream] = self._step.last_by_lane([*pending, *sources])
        others = [op for op in sources if self._lane_of[op] != lane]
        if lane >= 0 and others:
            self._issued.n_waits += 1
            target = self._lanes[lane].first_after(start)
            for source in others:
                self._depend(thread, lane, target, source, start, end)

    def _guess_wait(self, thread: HostThread, start: int, end: int, following: int) -> None:
        """Let the stream of the thread's next launch wait for the last end before that launch's start."""
        self._issued.guessed_waits += 1
        self._issued.n_waits += 1
        if following < 0:
            return
        lane = self._lane_of[following]
        sources = [
            self._lanes[k].last_before(start, self._start[following] + TOLERANCE)
            for k, (device, _) in enumerate(self._step.places)
            if k != lane and device == self._step.places[lane][0]
        ]
        free = [op for op in sources if op >= 0 and (op, following) not in self._issued.edges]
        if free:
            self._depend(thread, lane, following, self._step.latest(free), start, end)

    def _record(self, thread: HostThread, call: int, start: int) -> None:
        """Note the operators that end before an event: the last one on its stream, and those that the stream awaits.

        The stream is the last one that the thread used.
        """
        if thread.place is None:
            return
        lane = self._step.lane_at.get(thread.place, -1)
        if lane >= 0:
            last = self._lanes[lane].last_before(start, _EVER)
        else:
            last = -1
        waits = self._pending.get(thread.place, ())
        self._recorded[call] = self._step.last_by_lane([*([last] if last >= 0 else []), *waits])

    def _by_ids(self, call: int) -> list[int] | None:
        """Return the operators of this step that a call waits for; None if no event id states them."""
        _, record, source, device, _ = self._sync_of(call)
        if record > 0:
            at = self._row_with.get(record, -1)
        else:
            at = -1
        if at < 0 or source < 0:
            return None
        lane = self._step.lane_at.get((device, source), -1)
        if lane < 0:
            op = -1
        else:
            op = self._lanes[lane].last_before(int(self._calls.start[at]), _EVER)
        return [op] if op >= 0 else []

    def _by_order(self, call: int, start: int) -> list[int] | None:
        """Return the operators that a wait is for by the order of events; None if they did not run in that order."""
        stream, _, _, device, _ = self._sync_of(call)
        sources = self._recorded.get(self._record_of.get(call, -1))
        if sources is None or stream < 0:
            return None
        lane = self._step.lane_at.get((device, stream), -1)
        if lane >= 0:
            target = self._lanes[lane].first_after(start)
        else:
            target = -1
        over = max((self._end[op] for op in sources), default=0)
        if target < 0 or over <= self._start[target] + TOLERANCE:
            return sources
        return None

    @cached_property
    def _row_with(self) -> dict[int, int]:
        """The row of the first call with each correlation id."""
        order = np.argsort(self._calls.start, kind="stable")[::-1]
        return dict(zip(self._calls.correlation[order].tolist(), order.tolist(), strict=True))

    def _sync_of(self, call: int) -> tuple[int, ...]:
        """Return stream, record, source, device and event of a synchronisation, -1 where the trace lacks one."""
        return self._step.events.syncs.get(int(self._calls.correlation[call]), (-1, -1, -1, -1, -1))

    def _awaited_ops(self, thread: HostThread, call: int, name: str, start: int, end: int) -> list[int]:
        """Return the operators that a synchronising call waits for."""
        reached = [lane.last_before(start, end + TOLERANCE) for lane in self._lanes]
        sources = self._by_ids(call)
        if sources is not None:
            return sources
        stream, _, _, device, _ = self._sync_of(call)
        if stream >= 0 and "Stream" in name:
            lane = self._step.lane_at.get((device, stream), -1)
            if lane >= 0 and reached[lane] >= 0:
                return [reached[lane]]
            return []
        fits = [op for op in reached if op >= 0]
        if synchronises_all(name) or not fits:
            return fits
        if end - start < HELD and thread.last >= 0 and self._end[thread.last] <= end + TOLERANCE:
            return [thread.last]
        return [self._step.latest(fits)]

    def _ended_within(self, start: int, end: int) -> list[int]:
        """Return the last operator that ended within a call, if the call ended soon after it."""
        fits = [op for lane in self._lanes if (op := lane.last_before(start, end)) >= 0]
        if not fits:
            return []
        last = self._step.latest(fits)
        if max(start, end - _FREED) < self._end[last]:
            return [last]
        return []

    def _block(self, thread: HostThread, name: str, ops: list[int], start: int, end: int, late: int = 0) -> None:
        """Let a thread wait for the ends of operators, and take `late` ns more: what the last one was late by."""
        ops = [op for op in ops if self._is_issued[op]]  # wrong records may put a call before the launch that it awaits
        if not ops:
            return
        events_of = self._issued.events_of
        *others, last = sorted(ops, key=self._end.__getitem__)
        for op in others:
            self._row(thread, SYNC, -1, events_of[op], start, start)
        begin = max(thread.cursor, start)
        over = max(begin, min(end, self._end[last]))
        thread.rows.append((SYNC, -1, events_of[last], begin - thread.cursor, max(0, end - over) + late))
        thread.host += begin - thread.cursor
        thread.cursor = max(begin, end)
        thread.behind = dict.fromkeys(ops)
        thread.blocked.append(name)
        thread.served = set()

    def _depend(self, thread: HostThread, lane: int, op: int, source: int, start: int, end: int) -> None:
        """Let a stream, and so its next operator (-1: none), wait for another operator."""
        if not self._is_issued[source]:
            return
        self._holds[lane] = max(self._holds.get(lane, 0), self._end[source])
        self._row(thread, WAIT, lane, self._issued.events_of[source], start, end)
        if op >= 0:
            self._add_edge(source, op)

    def _add_edge(self, source: int, op: int) -> None:
        if (self._start[source], source) < (self._start[op], op):
            self._issued.edges[source, op] = None

    def _earlier_work(self) -> list[list[int]]:
        """Return earlier work on each stream, in groups that end with an operator that is waited for."""
        groups: list[list[int]] = []
        for lane in self._lanes:
            group: list[int] = []
            for op in lane.ops:
                if op < self._step.n_own:
                    break
                group.append(op)
                if op in self._issued.events_of:
                    groups.append(group)
                    group = []
            if group:
                groups.append(group)
        return groups

    def _without_call(self, lost: list[int]) -> HostThread:
        """Return a thread that launches the operators without a call: earlier work, then lost operators."""
        thread = HostThread(self._begin)
        for group in self._issued.ahead:
            thread.rows.append((LAUNCH, self._lane_of[group[-1]], group[-1], 0, 0))
        latest_call = self._step.latest_call
        lag = self._step.lag
        for op in sorted(lost, key=lambda op: (latest_call[op], op)):
            lane = self._lane_of[op]
            at = max(self._begin, min(self._start[op] - lag, latest_call[op]))
            before = self._step.before[op]
            if self._holds_untraced(
                lane, op, max(at + lag, self._end[before] if before >= 0 else 0), _UNEXPLAINED_NODE
            ):
                self._row(thread, LAUNCH, lane, self._hold_number, at, at)
            self._row(thread, LAUNCH, lane, op, at, at)
        return thread
