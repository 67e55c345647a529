"""From the calls of a torch.profiler trace to the instructions of a program."""

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import count, pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from simsched.base.errors import ClusterError, FormatError, SimschedError
from simsched.model import Cluster, Device, Floats, Ints, Kernel, OpGraph, Program
from simsched.model.cluster import occupancy
from simsched.model.program import LAUNCH, RECORD, SYNC, WAIT, Copies
from simsched.model.trace import Trace, measured_trace
from workloads.formats.kineto_device import measured_device, traced_device
from workloads.formats.kineto_events import Activities, Codes, Events, MeasuredKind
from workloads.formats.kineto_hosts import HostThread, Stream, handed_over, next_launches
from workloads.formats.kineto_join import first_with

_logger = logging.getLogger(__name__)

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
_FREED: Final = 50_000
"""Ns within which a call that frees memory returns once what it waited for has ended."""
_USUAL_LAG: Final = 2_000
_LONGEST_GAP: Final = 10_000
_FEW: Final = 5


class Window(NamedTuple):
    """When a step begins and ends on the host in ns, and its number."""

    begin: int
    end: int
    step: int | None = None

    def __str__(self) -> str:
        return "" if self.step is None else f" in step {self.step}"


class TracedProgram(Program):
    """The program of a trace, with what was measured.

    Attributes
    ----------
    cluster
        The devices that ran it: what the trace says of them, `launch`, `launch_latency` and `gap` as measured there,
        and contention off, since the times of operators were measured in place.
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

    def __init__(self, events: Events, source: str, window: Window, *, by_streams: bool) -> None:
        self._events, self._source, self._window, self._by_streams = events, source, window, by_streams
        self._begin, self._finish, self._step = window
        calls, all_acts = events.calls, events.activities
        call = first_with(calls.correlation, calls.start, all_acts.correlation)
        called = np.where(call >= 0, calls.start[call] if len(calls.start) else 0, all_acts.start)
        inside = (called >= self._begin) & (called < self._finish)
        before = (called < self._begin) & (all_acts.start + all_acts.duration > self._begin)
        rows = np.flatnonzero(inside)
        if not len(rows):
            raise FormatError(f"{source}: nothing was launched on a GPU{window}")
        rows = rows[np.lexsort((all_acts.correlation[rows], all_acts.start[rows]))]
        self._acts: Activities = all_acts.take(rows)
        self._call: Ints = call[rows]
        self._called: list[int] = called[rows].tolist()
        self._start: list[int] = self._acts.start.tolist()
        self._end: list[int] = (self._acts.start + self._acts.duration).tolist()
        self._lag, self._costs = self._measure_costs()
        self._lane_at = Codes()  # of a device and a stream
        self._lane_of = self._number_lanes(all_acts, np.flatnonzero(before))
        self._events_of = Codes()  # of an operator, recorded behind it
        self._edges: dict[tuple[int, int], None] = {}
        self._joins: dict[int, list[int]] = defaultdict(list)  # lane -> operators of a captured graph to wait for
        self._holds: dict[int, int] = {}  # lane -> end of what it waits for before its next operator
        self._usual = round(1e3 * self._costs.get("launch", 0.0))
        self._hosts = [0] * len(self._start)
        self.n_waits = self.guessed_waits = 0

    # --- what is where

    def _number_lanes(self, acts: Activities, earlier: Ints) -> list[int]:
        """Return the number of the stream of each operator, and put operators on streams, behind earlier work."""
        keys = zip(self._acts.device.tolist(), self._acts.stream.tolist(), strict=True)
        lane_of = [self._lane_at[key] for key in keys]
        self._earlier: dict[int, int] = {}  # lane -> end
        for row in earlier.tolist():
            lane = self._lane_at[int(acts.device[row]), int(acts.stream[row])]
            self._earlier[lane] = max(self._earlier.get(lane, 0), int(acts.start[row] + acts.duration[row]))
        self._places: list[tuple[int, int]] = list(self._lane_at)
        self._lanes = [Stream() for _ in self._places]
        self._before: list[int] = []  # the operator before each on its stream, or -1
        for i, lane in enumerate(lane_of):
            mine = self._lanes[lane]
            self._before.append(mine.ops[-1] if mine.ops else -1)
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
        launching = calls.are(_LAUNCH.match)
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
        numbers = calls.thread[rows].tolist()
        handed = handed_over(calls.thread[rows], calls.start[rows], calls.end[rows])
        following = next_launches(rows.tolist(), numbers, mine)
        threads: defaultdict[int, HostThread] = defaultdict(lambda: HostThread(self._begin))
        self._n_handed = 0
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
        elif _WAIT.match(name):
            self._wait(thread, call, start, end, following)
        elif _SYNC.match(name):
            self._block(thread, self._awaited(thread, call, name, start, end), start, end)
        elif _FREE.match(name) and end - start > _HELD:
            self._block(thread, self._ended_within(start, end), start, end)

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
            self._depend(thread, lane, op, other, start, start)
        last = self._latest(ops)
        blocks = self._end[last] <= end and (_BLOCKING_COPY.match(name) is not None or "ageable" in self._kind(op).name)
        before = self._before[op]
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
                self._depend(thread, mine, op, before, at, at)
            others = [other for k, other in latest.items() if k != mine]
            fits = [o for o in others if free < self._end[o] <= self._start[op] + _TOLERANCE]
            if fits and (previous is None or self._start[op] - free > _TOLERANCE):
                self.guessed_waits += 1
                self._depend(thread, mine, op, self._latest(fits), at, at)
            self._row(thread, LAUNCH, mine, op, at, at)
            self._follow(thread, op)
            latest[mine] = op
        self._joins[lane] += [op for k, op in latest.items() if k != lane]

    def _wait(self, thread: HostThread, call: int, start: int, end: int, following: int) -> None:
        """Let a stream wait for another one: as event ids say, or else by the rule."""
        found = self._by_ids(call)
        if found is not None:
            lane, source = found
            if source >= 0 and lane >= 0:
                target = self._lanes[lane].first_after(start)
                self._depend(thread, lane, target, source, start, end)
            return
        self.guessed_waits += 1
        free: list[int] = []
        if following >= 0:
            lane = self._lane_of[following]
            sources = [
                self._lanes[k].last_before(start, self._start[following] + _TOLERANCE)
                for k, (device, _) in enumerate(self._places)
                if k != lane and device == self._places[lane][0]
            ]
            free = [op for op in sources if op >= 0 and (op, following) not in self._edges]
        if not free:
            self.n_waits += 1
            return
        self._depend(thread, lane, following, self._latest(free), start, end)

    def _latest(self, ops: Iterable[int]) -> int:
        """Return the operator that ended last, the first of equals."""
        return max(ops, key=self._end.__getitem__)

    def _by_ids(self, call: int) -> tuple[int, int] | None:
        """Return the stream that waits, and the operator it waits for (-1: nothing of this step); None: unknown."""
        stream, record, source, device = self._sync_of(call)
        lane = self._lane_at.get((device, stream), -1)
        if record <= 0:
            return None
        calls = self._events.calls
        at = int(first_with(calls.correlation, calls.start, np.array([record]))[0])
        if at < 0 or source < 0:
            return None
        recorded = self._lane_at.get((device, source), -1)
        op = -1 if recorded < 0 else self._lanes[recorded].last_before(int(calls.start[at]), 2**62)
        return lane, op

    def _sync_of(self, call: int) -> tuple[int, ...]:
        """Return stream, record, source and device of a synchronisation, -1 where they are not known."""
        return self._events.syncs.get(int(self._events.calls.correlation[call]), (-1, -1, -1, -1))

    def _awaited(self, thread: HostThread, call: int, name: str, start: int, end: int) -> list[int]:
        """Return the operators that a synchronising call waits for."""
        reached = [lane.last_before(start, end + _TOLERANCE) for lane in self._lanes]
        found = self._by_ids(call)
        if found is not None:
            return [found[1]] if found[1] >= 0 else []
        stream, _, _, device = self._sync_of(call)
        if stream >= 0 and "Stream" in name:
            lane = self._lane_at.get((device, stream), -1)
            return [reached[lane]] if lane >= 0 and reached[lane] >= 0 else []
        fits = [op for op in reached if op >= 0]
        if _ALL.match(name) or not fits:
            return fits
        if end - start < _HELD and thread.last >= 0 and self._end[thread.last] <= end + _TOLERANCE:
            return [thread.last]
        return [self._latest(fits)]

    def _ended_within(self, start: int, end: int) -> list[int]:
        """Return the last operator that ended within a call, if the call ended soon after."""
        fits = [op for lane in self._lanes if (op := lane.last_before(start, end)) >= 0]
        return [self._latest(fits)] if fits and max(start, end - _FREED) < self._end[self._latest(fits)] else []

    def _block(self, thread: HostThread, ops: list[int], start: int, end: int) -> None:
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
        thread.served = set()

    def _depend(self, thread: HostThread, lane: int, op: int, source: int, start: int, end: int) -> None:
        """Let a stream, and so the operator launched next on it (-1: none), wait for another operator."""
        self.n_waits += 1
        self._holds[lane] = max(self._holds.get(lane, 0), self._end[source])
        self._row(thread, WAIT, lane, self._events_of[source], start, end)
        if op >= 0:
            self._add_edge(source, op)

    def _add_edge(self, source: int, op: int) -> None:
        if (self._start[source], source) < (self._start[op], op):
            self._edges[source, op] = None

    # --- putting it together

    def _built(self, threads: list[HostThread], lost: list[int]) -> TracedProgram:
        devices = sorted({device for device, _ in self._places})
        cluster = self._cluster(devices)
        graph, ahead = self._graph(devices, cluster)
        columns: list[tuple[int, int, int, int, int]] = []
        ptr = [0]
        n_events = len(self._events_of)
        for thread in [self._others(lost, ahead), *threads]:
            for action, lane, argument, lead, own in thread.rows:
                columns.append((action, lane, argument if argument >= 0 else n_events - 2 - argument, lead, own))
                if action == LAUNCH and argument in self._events_of:
                    columns.append((RECORD, lane, self._events_of[argument], 0, 0))
            ptr.append(len(columns))
        if ptr[1] == 0:
            del ptr[0]
        action, lane, argument, lead, own = np.array(columns, np.int64).T
        nowhere = max(stream for _, stream in self._places) + 1  # a stream that nothing runs on
        place = np.array([*((devices.index(device), stream) for device, stream in self._places), (0, nowhere)])
        device, stream = place[lane].T
        stream = np.where(action == SYNC, -1, stream)
        names = [each.name for each in cluster.devices]
        none, whole = np.zeros(0), np.zeros(0, np.int32)
        try:
            found = TracedProgram(
                graph, names, "events", ptr, action, device, stream, argument, Copies(whole, whole, none, none),
                n_events + self._n_handed, 0, lead / 1e3, own / 1e3,
            )  # fmt: skip
            found.check()
        except SimschedError as error:
            raise FormatError(f"{self._source}: {error}") from error
        times = np.array([self._start, self._end]).T - self._begin
        begun = [(-1, end - self._begin) for end in self._earlier.values()]
        found.__dict__.update(
            cluster=cluster, step=self._step, n_waits=self.n_waits, guessed_waits=self.guessed_waits,
            n_lost=len(lost), times=np.concatenate([times, np.array(begun, np.int64).reshape(-1, 2)]) / 1e3,
        )  # fmt: skip
        return found

    def _cluster(self, devices: list[int]) -> Cluster:
        header, source = self._events.header, self._source
        rows = [(f"gpu{number}", measured_device(header, number, source)) for number in devices]
        made = tuple(traced_device(found, name, self._costs, source) for name, found in rows)
        return Cluster(made, name=made[0].model)

    def _launches(self, cluster: Cluster) -> list[tuple[Kernel, ...]]:
        """Return the launch of each kind of operator; one that no device of the trace could hold is left out."""
        launches = [kind.launch for kind in self._acts.kinds]
        found: list[tuple[Kernel, ...]] = [(k,) if k and any(_fits(device, k) for device in cluster.devices) else ()
                                           for k in launches]  # fmt: skip
        n_unfit = len(launches) - launches.count(None) - sum(map(len, found))
        if n_unfit:
            _logger.warning("%s: %d kinds of kernels do not fit on an SM; they load nothing", self._source, n_unfit)
        return found

    def _others(self, lost: list[int], ahead: dict[int, int]) -> HostThread:
        """Return a thread for what no call in the trace stands for: earlier work, then what is lost."""
        thread = HostThread(self._begin)
        for lane, op in ahead.items():
            thread.rows.append((LAUNCH, lane, op, 0, 0))
        for op in lost:
            at = self._start[op] - self._lag
            self._row(thread, LAUNCH, self._lane_of[op], op, at, at)
        return thread

    def _graph(self, devices: list[int], cluster: Cluster) -> tuple[OpGraph, dict[int, int]]:
        """Return the graph, and the operators that stand for earlier work, by lane."""
        kinds = self._acts.kinds
        short, counters = [_short(kind.name) for kind in kinds], defaultdict[str, "count[int]"](count)
        names = [f"{short[code]}#{next(counters[short[code]])}" for code in self._acts.what.tolist()]
        ahead: dict[int, int] = {}
        for lane in self._earlier:
            ahead[lane] = len(names)
            device, stream = self._places[lane]
            names.append(f"earlier work on stream {stream}" + (f" of device {device}" if len(devices) > 1 else ""))
        order = [(a, b) for lane in self._lanes for a, b in pairwise(lane.ops)]
        order += [(op, self._lanes[lane].ops[0]) for lane, op in ahead.items() if self._lanes[lane].ops]
        ends = dict.fromkeys([*(order if self._by_streams else ()), *self._edges])
        src, dst = np.array(list(ends), np.int64).reshape(-1, 2).T
        code = np.concatenate([self._acts.what, np.full(len(ahead), len(kinds))])
        nbytes = np.array([kind.nbytes or 0.0 for kind in kinds] + [0.0])
        earlier = [max(0, end - self._begin - self._lag) for end in self._earlier.values()]
        places = [{"device": devices.index(device), "stream": stream} for device, stream in self._places]
        graph = OpGraph.from_columns(
            names, src, dst, name=Path(self._source).name.split(".")[0] + str(self._window),
            kind=(code, [*map(_class_of, kinds), "earlier"]), nbytes=nbytes[code],
            time=np.concatenate([self._acts.duration, earlier]) / 1e3,
            host=np.array(self._hosts + [0] * len(ahead)) / 1e3,
            attributes=([*self._lane_of, *ahead], places),
            kernels=(code, [*self._launches(cluster), ()]),
        )  # fmt: skip
        return graph, ahead


def _fits(device: Device, kernel: Kernel) -> bool:
    try:
        return occupancy(device, kernel).blocks > 0
    except ClusterError:
        return False


def _median(values: Ints, otherwise: int) -> int:
    return int(np.median(values)) if len(values) >= _FEW else otherwise


def _class_of(kind: MeasuredKind) -> str:
    return "collective" if kind.what == "kernel" and _COLLECTIVE.search(kind.name) else kind.what


def _short(name: str) -> str:
    """Return the name of a kernel without its types.

    >>> _short("void at::native::(anonymous namespace)::CatArray<float, 4>(float*, int)"), _short("volta_sgemm_tn")
    ('at::native::CatArray', 'volta_sgemm_tn')
    """
    bare = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", bare, maxsplit=1)[0].strip() or name
