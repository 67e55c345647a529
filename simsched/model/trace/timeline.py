"""Spans by columns, and the load curves of devices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Checked
from simsched.base.errors import SimulationError
from simsched.base.numeric import same_columns
from simsched.base.units import TIE, TIE_LIMIT
from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph, RowsView
from simsched.model.graph.columns import Columnar, Floats, Ints
from simsched.model.program import ACTIONS, Program

KERNEL, COPY, WAIT, HOST = range(4)
KINDS: Final = ("kernel", "copy", "wait", "host")
_COLUMNS: Final = {
    "kind": np.int8,
    "item": np.int64,
    "op": np.int64,
    "device": np.int64,
    "stream": np.int64,
    "start": np.float64,
    "end": np.float64,
    "ready": np.float64,
    "solo": np.float64,
    "cause": np.int64,
}
Maker = Callable[[], tuple[Mapping[str, npt.NDArray[Any]], Sequence["Load"]]]
SpanRow = tuple[int, int, int, int, int, float, float, float, float, int]


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time.

    Parameters
    ----------
    kind
        ``"kernel"``, ``"copy"``, ``"wait"`` (a stream or a host held up) or ``"host"`` (issuing).
    name
        Name in tables and pictures.
    op
        The operator that a kernel computes; None for every other kind.
    device
        Where; for a host span, the device it acts on.
    stream
        Stream of the device, or None on the host.
    start, end
        In us.
    ready
        When a kernel or copy reached the head of its stream with all it waits for; `start` of the rest.
    """

    kind: str
    name: str
    op: str | None
    device: str
    stream: int | None
    start: float
    end: float
    ready: float

    @property
    def duration(self) -> float:
        """Length in us."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, eq=False)
class Load(Checked):
    """Load of a device, piecewise constant: value i holds from ``time[i]`` to ``time[i + 1]``.

    Parameters
    ----------
    time
        Start of each piece in us; the last value holds to the makespan.
    sm, dram
        Load of the issue slots and of DRAM as a share of the device; above 1 it is oversubscribed.
    warps
        Resident warps of kernels with a known grid.
    active_sms
        SMs with at least one resident block.
    """

    SUBJECT = "the load of a device"
    ERROR = SimulationError
    time: Floats
    sm: Floats
    dram: Floats
    warps: Floats
    active_sms: Floats

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Load) and same_columns(self, other, ("time", "sm", "dram", "warps", "active_sms"))


class Timeline(Columnar):
    """Spans by columns: the base of `Trace`."""

    kind: npt.NDArray[np.int8]
    item: Ints
    op: Ints
    device: Ints
    stream: Ints
    start: Floats
    end: Floats
    ready: Floats
    solo: Floats
    cause: Ints

    def __init__(self, program: Program, cluster: Cluster, rows: Sequence[SpanRow], loads: Sequence[Load]) -> None:
        table = np.array(list(rows), dtype=list(_COLUMNS.items()))
        self._fill(program, cluster, {name: table[name] for name in _COLUMNS}, loads)

    @classmethod
    def from_columns(
        cls, program: Program, cluster: Cluster, columns: Mapping[str, npt.NDArray[Any]], loads: Sequence[Load]
    ) -> Self:
        """Make a trace from spans given as columns, in the order in which they ended."""
        trace = cls.__new__(cls)
        trace._fill(program, cluster, columns, loads)
        return trace

    @classmethod
    def deferred(cls, program: Program, cluster: Cluster, makespan: float, spans: "Maker") -> Self:
        """Make a trace with a known makespan, whose spans are computed on first use.

        Parameters
        ----------
        makespan
            In us.
        spans
            Called once at most; returns the arguments `columns` and `loads` of `from_columns`.
        """
        trace = cls.__new__(cls)
        trace.__dict__.update(program=program, cluster=cluster, makespan=makespan, _spans=spans)
        return trace

    def __getattr__(self, name: str) -> Any:
        if name not in (*_COLUMNS, "loads") or "_spans" not in self.__dict__:
            raise AttributeError(f"a Trace has no attribute {name!r}")
        columns, loads = self.__dict__["_spans"]()
        self._fill(self.program, self.cluster, columns, loads)
        self.__dict__.pop("_spans", None)
        return self.__dict__[name]

    def __getstate__(self) -> dict[str, Any]:
        _ = self.kind  # spans not made yet are made now
        return super().__getstate__()

    def _fill(
        self, program: Program, cluster: Cluster, columns: Mapping[str, npt.NDArray[Any]], loads: Sequence[Load]
    ) -> None:
        order = _order(columns)
        new_place = np.empty(len(order) + 1, np.int64)
        new_place[order] = np.arange(len(order))
        new_place[-1] = -1
        for name, dtype in _COLUMNS.items():
            self.__dict__[name] = columns[name][order].astype(dtype, copy=False)
        self.cause = new_place[self.cause]
        self.program = program
        self.cluster = cluster
        self.loads = tuple(loads)
        self._freeze()

    def __len__(self) -> int:
        return len(self.kind)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        alike = self.program == other.program and self.cluster == other.cluster and self.loads == other.loads
        return alike and same_columns(self, other, _COLUMNS)

    def __repr__(self) -> str:
        # Spans that do not exist yet would take a simulation.
        if "_spans" in self.__dict__:
            spans = ""
        else:
            spans = f"{len(self)} spans, "
        return f"Trace({self.program.graph.name!r}, {spans}makespan {self.makespan:.6g} us)"

    @property
    def graph(self) -> OpGraph:
        """The graph that ran."""
        return self.program.graph

    @property
    def spans(self) -> RowsView[Span]:
        """The spans, by start."""
        return RowsView(len(self.kind), self._span)

    def _span(self, i: int) -> Span:
        kind = KINDS[self.kind[i]]
        stream = int(self.stream[i])
        if kind == "kernel":
            op = self.graph.names[self.op[i]]
        else:
            op = None
        device = self.program.devices[self.device[i]]
        times = (self.start[i], self.end[i], self.ready[i])
        return Span(kind, self.name(i), op, device, stream if stream >= 0 else None, *map(float, times))

    def name(self, i: int) -> str:
        """Return the name of span number `i`."""
        kind = int(self.kind[i])
        item = int(self.item[i])
        subject = self.graph.names[self.op[i]] if self.op[i] >= 0 else ""
        if kind == KERNEL:
            return subject
        if kind == COPY:
            return f"{subject} -> {self.program.devices[self.program.copies.device[item]]}"
        if kind == WAIT:
            if subject:
                return f"wait for {subject}"
            return "wait"
        if self.program.execution == "graph":
            return "graph launch"
        action = ACTIONS[self.program.action[item]]
        if subject:
            return f"{action} {subject}"
        return action

    @cached_property
    def makespan(self) -> float:
        """When the last kernel or copy ended, in us."""
        work = self.kind <= COPY
        if work.any():
            return float(self.end[work].max())
        return 0.0

    def operator_times(self) -> dict[str, tuple[float, float]]:
        """Return start and end in us of every operator, over all its kernels, in graph order."""
        start, end = (column.tolist() for column in self._bounds())
        return dict(zip(self.graph.names, zip(start, end, strict=True), strict=True))

    def _bounds(self) -> tuple[Floats, Floats]:
        """Return start and end of every operator; infinity and 0 where it has no kernel here."""
        start = np.full(len(self.graph), np.inf)
        end = np.zeros(len(self.graph))
        kernels = self.kind == KERNEL
        np.minimum.at(start, self.op[kernels], self.start[kernels])
        np.maximum.at(end, self.op[kernels], self.end[kernels])
        return start, end


def _order(columns: Mapping[str, npt.NDArray[Any]]) -> Ints:
    """Return the order of spans by start, end, kind, device, stream and item; times of one instant are equal."""
    start = columns["start"]
    order = np.argsort(start, kind="stable")
    alike = _same_instant(start[order])
    same = np.concatenate([[False], alike, [False]])
    places = np.flatnonzero(same[1:] | same[:-1])[: len(order)]  # only there the other keys count
    if len(places):
        rows = order[places]
        instant = np.cumsum(~np.concatenate([[True], alike]))[places]
        ends = np.argsort(columns["end"][rows], kind="stable")
        end = np.empty(len(rows), np.int64)
        end[ends] = np.cumsum(~np.concatenate([[True], _same_instant(columns["end"][rows][ends])]))
        keys = (columns[key][rows] for key in ("item", "stream", "device", "kind"))  # the last counts first
        order[places] = rows[np.lexsort([*keys, end, instant])]
    return order


def _same_instant(times: Floats) -> npt.NDArray[np.bool_]:
    """Return, for times in order, which of them are within the rounding of the one before."""
    same: npt.NDArray[np.bool_] = times[1:] <= np.minimum(times[:-1] * (1.0 + TIE), times[:-1] + TIE * TIE_LIMIT)
    return same


def union_length(starts: npt.ArrayLike, ends: npt.ArrayLike) -> float:
    """Return the total length of a union of intervals, in any order.

    >>> union_length([0.0, 5.0, 2.0], [3.0, 6.0, 4.0])
    5.0
    """
    start = np.asarray(starts, np.float64)
    end = np.asarray(ends, np.float64)
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start = start[order]
    reach = np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate([[True], start[1:] > reach[:-1]]))  # of each connected piece
    last = np.concatenate([first[1:], [len(start)]]) - 1
    return float((reach[last] - start[first]).sum())


def lanes(starts: npt.ArrayLike, ends: npt.ArrayLike) -> Ints:
    """Return for each interval the lowest lane in which it overlaps no earlier one.

    Parameters
    ----------
    starts, ends
        Shape (n,), sorted by start. Intervals that only touch share a lane.

    >>> lanes([0.0, 2.0, 4.0, 5.0], [5.0, 4.0, 6.0, 7.0]).tolist()
    [0, 1, 1, 0]
    """
    start = np.asarray(starts)
    end = np.asarray(ends)
    lane = np.zeros(len(start), np.int64)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for i, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heappush(free, heappop(busy)[1])
        if free:
            lane[i] = heappop(free)
        else:
            lane[i] = len(busy)
        heappush(busy, (until, int(lane[i])))
    return lane
