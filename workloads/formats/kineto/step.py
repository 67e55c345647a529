"""The operators of one step of a torch.profiler trace: their streams, devices and measured times."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from simsched.base.errors import ClusterError, FormatError
from simsched.model import Cluster, Device, Floats, Ints, Kernel
from simsched.model.cluster import occupancy
from workloads.formats.kineto.apis import launches_early, launches_kernel
from workloads.formats.kineto.captured import CapturedNode, nodes_of
from workloads.formats.kineto.collectives import RankCollective, communicators, is_of_nccl, short_name
from workloads.formats.kineto.device import measured_device, traced_device
from workloads.formats.kineto.events import Activities, Codes, MeasuredKind
from workloads.formats.kineto.hosts import Stream
from workloads.formats.kineto.records import (
    EARLY,
    LONG,
    NO_LAUNCH,
    ZERO,
    Flags,
    Records,
    faults_of_calls,
)
from workloads.formats.kineto.statements import exchanges_of
from workloads.formats.kineto.streams import called_at, latest_ends_before

_logger = logging.getLogger(__name__)

HELD: Final = 10_000
"""Ns from which on a call that synchronises counts as having waited."""
_USUAL_LAG: Final = 2_000
"""Ns from the end of a launch to the start of its kernel, where the trace has too few launches to measure it."""
_LONGEST_GAP: Final = 10_000
"""Ns between two kernels of a stream up to which the second one counts as queued."""
_FEW: Final = 5
"""Fewest samples of which a median is taken."""


_LONG_SILENCE: Final = 5_000_000
"""Ns for which nothing is recorded, from which on that is told."""
_SILENT_SHARE: Final = 0.2
"""The same as a part of the step."""


class Silence(NamedTuple):
    """A time for which nothing is recorded: its begin in the step, and its length, in ns."""

    begin: int
    length: int


class Window(NamedTuple):
    """The begin and the end of a step on the host, in ns, and its number."""

    begin: int
    end: int
    step: int | None = None

    def __str__(self) -> str:
        if self.step is None:
            return ""
        return f" in step {self.step}"

    @property
    def remedy(self) -> str:
        """A remedy for a step in which nothing was launched, for the end of a message."""
        if self.step is None:
            return "; profile with ProfilerActivity.CUDA"
        return "; choose another step, or all"


class TracedStep:
    """The operators of a step, numbered by their start; those that earlier calls launched come last.

    Parameters
    ----------
    records
        The repaired events of the trace.
    source
        Name of the trace in errors.
    window
        Begin, end and number of the step.

    Attributes
    ----------
    n_own
        Number of operators that were launched in the step.
    activities, call
        Record of each operator, and the row of its call (-1 without one).
    latest_call, start, end
        Latest time of the call, start and end of each operator, in ns.
    lag
        Ns from the end of a launch to the start of its kernel on an idle device.
    costs
        Measured fields of the device, in us.
    nodes
        Nodes of captured graphs without the first one of each launch, by that one.
    lane_at, lane_of, places, lanes
        Number of each device and stream, number of the stream of each operator, device and stream of each number, and
        the streams.
    before
        Previous operator on the stream of each operator, or -1.
    reached
        Per operator the latest end, in ns, of the earlier operators on its device.
    devices, cluster, is_stated
        Numbers of the devices, their description, and whether the trace names them.
    faults
        Number of wrong records in the step, by kind.
    """

    def __init__(self, records: Records, source: str, window: Window) -> None:
        self.events = records.events
        self.source = source
        self.window = window
        calls = self.events.calls
        activities = self.events.activities
        called, latest = called_at(activities, calls, records.call)
        rows = np.flatnonzero((called >= window.begin) & (called < window.end))
        if not len(rows):
            raise FormatError(f"{source}: nothing was launched on a GPU{window}{window.remedy}")
        rows = rows[np.lexsort((activities.correlation[rows], activities.start[rows]))]
        runs_into_step = activities.start + activities.duration > window.begin
        earlier = np.flatnonzero((called < window.begin) & runs_into_step)
        earlier = earlier[np.lexsort((activities.start[earlier],))]
        self.n_own = len(rows)
        self.faults = records.dropped + self._count_faults(records, rows)
        rows = np.concatenate([rows, earlier])
        self.activities: Activities = activities.take(rows)
        self.call: Ints = records.call[rows]
        self.latest_call: list[int] = latest[rows].tolist()
        self.start: list[int] = self.activities.start.tolist()
        self.end: list[int] = (self.activities.start + self.activities.duration).tolist()
        self.lane_at = Codes()
        self.lane_of: list[int] = [
            self.lane_at[key]
            for key in zip(self.activities.device.tolist(), self.activities.stream.tolist(), strict=True)
        ]
        self.places: list[tuple[int, int]] = list(self.lane_at)
        self.nodes = self._nodes()
        self.lag, self.costs = self._measure_costs()
        self.lanes = [Stream() for _ in self.places]
        self.before = [-1] * len(rows)
        self._fill_lanes(called[rows].tolist())
        self.reached = latest_ends_before(self.activities)
        self.devices = sorted({device for device, _ in self.places})
        self.cluster = self._make_cluster()
        self.gap = round(1e3 * self.cluster.devices[0].gap)

    def _count_faults(self, records: Records, rows: Ints) -> Counter[str]:
        """Return the number of wrong records of the step, by kind."""
        calls = self.events.calls
        activities = self.events.activities
        inside = np.flatnonzero((calls.start >= self.window.begin) & (calls.start < self.window.end))
        faults = faults_of_calls(activities, calls, inside)
        is_kernel = np.array([kind.what == "kernel" for kind in activities.kinds], bool)[activities.what[rows]]
        faults[ZERO] = int((is_kernel & (activities.duration[rows] == 0) & ~records.long[rows]).sum())
        faults[EARLY] = int(records.early[rows].sum())
        faults[LONG] = int(records.long[rows].sum())
        faults[NO_LAUNCH] = int((records.call[rows] < 0).sum())
        return faults

    def _fill_lanes(self, called: list[int]) -> None:
        """Put operators on their streams, earlier work first."""
        for op in (*range(self.n_own, len(called)), *range(self.n_own)):
            lane = self.lanes[self.lane_of[op]]
            if lane.ops:
                self.before[op] = lane.ops[-1]
            lane.ops.append(op)
            time = called[op] - (self.call[op] < 0)  # an unrecorded call was before the recorded ones
            lane.called.append(max(int(time), lane.called[-1] if lane.called else 0))
            lane.ends.append(max(self.end[op], lane.ends[-1] if lane.ends else 0))

    def _nodes(self) -> dict[int, list[CapturedNode]]:
        """Return the nodes of each launch of a captured graph, without the first one, by the first one."""
        launched: dict[int, list[int]] = defaultdict(list)
        for op, call in enumerate(self.call[: self.n_own].tolist()):
            if call >= 0:
                launched[call].append(op)
        several = [ops for ops in launched.values() if len(ops) > 1]
        return {ops[0]: nodes_of(ops, self.lane_of, self.start, self.end) for ops in several}

    def _measure_costs(self) -> tuple[int, dict[str, float]]:
        """Return the ns from the end of a launch to the start of a kernel, and the costs of the device in us."""
        calls = self.events.calls
        activities = self.activities.take(np.arange(self.n_own))
        call = self.call[: self.n_own]
        has_call = call >= 0
        start = activities.start
        end = start + activities.duration
        call_start, call_end = (
            np.where(has_call, times[call] if len(times) else 0, 0) for times in (calls.start, calls.end)
        )
        is_kernel = np.array([kind.what == "kernel" for kind in activities.kinds], bool)[activities.what]
        earlier = np.maximum.accumulate(np.concatenate([[0], end[:-1]]))
        idle = has_call & is_kernel & (earlier < call_start) & (start >= call_start)
        lag = _median((start - call_end)[idle], _USUAL_LAG)
        launching = calls.are(launches_kernel)
        launch = _median((calls.end - calls.start)[launching], -1)
        order = np.lexsort((start, activities.stream, activities.device))
        follows = np.concatenate([[False], (np.diff(activities.stream[order]) == 0)])
        gap = start[order] - np.concatenate([[0], end[order][:-1]])
        queued = follows & has_call[order] & (call_end[order] + HELD < start[order] - gap) & (gap < _LONGEST_GAP)
        waiting = [node for nodes in self.nodes.values() for node in nodes if node.lag >= 0]
        queued &= ~np.isin(order, [node.op for node in waiting])
        costs: dict[str, float] = {}
        if launch >= 0:
            costs = {"launch": launch / 1e3, "launch_latency": (launch + max(0, lag)) / 1e3}
        if queued.sum() >= _FEW:
            costs["gap"] = float(np.maximum(0, gap[queued]).mean()) / 1e3
        if len(waiting) >= _FEW:
            costs["hop"] = max(0.0, float(np.median([node.lag for node in waiting]))) / 1e3
        return max(0, lag), costs

    def _make_cluster(self) -> Cluster:
        header = self.events.header
        rows = [(f"gpu{number}", measured_device(header, number, self.source)) for number in self.devices]
        self.is_stated = all(device is not None for _, device in rows)
        devices = tuple(traced_device(device, name, self.costs, self.source) for name, device in rows)
        return Cluster(devices, name=devices[0].model)

    def longest_silence(self) -> Silence | None:
        """Return the longest time without a record of a host or a device.

        Returns
        -------
        Silence or None
            None if it is below 5 ms or below a fifth of the step.
        """
        parts = [self.events.operators, self.events.calls]
        inside = [rows.take(np.flatnonzero(self._is_inside(rows.start))) for rows in parts]
        begins = np.concatenate([[self.window.begin], *(rows.start for rows in inside), self.start])
        ends = np.concatenate([[self.window.begin], *(rows.end for rows in inside), self.end])
        order = np.argsort(begins, kind="stable")
        reached = np.maximum.accumulate(ends[order])
        silent = begins[order][1:] - reached[:-1]
        k = int(np.argmax(silent))
        whole = max(self.end[: self.n_own]) - self.window.begin
        if silent[k] < max(_LONG_SILENCE, _SILENT_SHARE * whole):
            return None
        return Silence(int(reached[k]) - self.window.begin, int(silent[k]))

    def _is_inside(self, times: Ints) -> Flags:
        return (times >= self.window.begin) & (times < min(self.window.end, max(self.end[: self.n_own])))

    def kind(self, op: int) -> MeasuredKind:
        """Return the kind of an operator."""
        return self.activities.kinds[int(self.activities.what[op])]

    def latest(self, ops: Iterable[int]) -> int:
        """Return the operator that ended last, on ties the first one."""
        return max(ops, key=self.end.__getitem__)

    def last_by_lane(self, ops: Iterable[int]) -> list[int]:
        """Return the last of some operators on each stream."""
        last: dict[int, int] = {}
        for op in ops:
            lane = self.lane_of[op]
            if lane not in last or self.start[op] >= self.start[last[lane]]:
                last[lane] = op
        return list(last.values())

    @cached_property
    def starts_early(self) -> Flags:
        """Whether each operator starts before the previous one on its stream ends, and its call allows that."""
        may = np.zeros(len(self.start), bool)
        with_call = np.flatnonzero(self.call >= 0)
        may[with_call] = self.events.calls.are(launches_early)[self.call[with_call]]
        before = np.array(self.before)
        early: Flags = may & (before >= 0) & (self.activities.start < np.array(self.end)[before])
        return early

    def times(self) -> Floats:
        """Return the time of each own operator in us; if it starts early, from the end of the previous one."""
        over = {op: end for lane in self.lanes for op, end in zip(lane.ops[1:], lane.ends, strict=False)}
        times = self.activities.duration[: self.n_own] / 1e3
        for op in np.flatnonzero(self.starts_early[: self.n_own]).tolist():
            times[op] = max(0, self.end[op] - over[op] - self.gap) / 1e3
        return times

    def collectives(self) -> tuple[RankCollective, ...]:
        """Return the collectives of the step, by their start."""
        activities = self.activities
        rows = [op for op in range(self.n_own) if self.kind(op).is_collective]
        names = [short_name(self.kind(op).name) for op in rows]
        groups = communicators(names, activities.group[rows], self.events.groups)
        sequence = activities.sequence[rows].tolist()
        time = (activities.duration[rows] / 1e3).tolist()
        exchanges = exchanges_of(self.events, activities.take(np.array(rows, np.int64)), self.call[rows])
        return tuple(map(RankCollective, rows, groups, sequence, time, exchanges, map(is_of_nccl, names)))

    def launches(self) -> list[tuple[Kernel, ...]]:
        """Return the launch of each kind of operator; a launch that fits on no device of the trace is left out."""
        launches = [kind.launch for kind in self.activities.kinds]
        fitting: list[tuple[Kernel, ...]] = [
            (kernel,) if kernel and any(_fits(device, kernel) for device in self.cluster.devices) else ()
            for kernel in launches
        ]
        n_unfit = len(launches) - launches.count(None) - sum(map(len, fitting))
        if n_unfit:
            _logger.warning("%s: %d kinds of kernels do not fit on an SM; they load nothing", self.source, n_unfit)
        return fitting


def _fits(device: Device, kernel: Kernel) -> bool:
    try:
        return occupancy(device, kernel).blocks > 0
    except ClusterError:
        return False


def _median(values: Ints, otherwise: int) -> int:
    if len(values) >= _FEW:
        return int(np.median(values))
    return otherwise
