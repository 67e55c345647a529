"""`Trace`: a run, simulated or measured, with its spans, loads and critical path."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import BackendError
from simsched.base.numeric import sum_in_order
from simsched.base.units import format_bytes
from simsched.base.views import VIEWS, as_html, frame_of
from simsched.model.cluster import WARP, Cluster, Device
from simsched.model.graph.columns import Floats, Ints, distinct
from simsched.model.program import COPY as DO_COPY
from simsched.model.program import LAUNCH, Program
from simsched.model.trace.timeline import COPY, HOST, KERNEL, Load, Span, SpanRow, Timeline

BLAMES: Final = ("compute", "contention", "launch", "sync", "transfer", "dependency")


@dataclass(frozen=True, slots=True)
class Step:
    """A stretch of the critical path: from `start` to `end` in us, its cause, and the span."""

    start: float
    end: float
    blame: str
    span: str


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The chain of stretches, without holes, from time 0 to the makespan.

    Parameters
    ----------
    steps
        In order of time.
    blame
        us by cause; they add up to the makespan. ``compute``: kernels, as long as they would take alone;
        ``contention``: delays by sharing the device or a link, and by waiting for block slots; ``launch``: the host
        issuing kernels and copies, its lead before, and their way to the device; ``sync``: the host issuing records,
        waits and barriers; ``transfer``: copies, uncontended; ``dependency``: gaps on the device between a span and the
        one that waits for it.
    operators
        Names of the operators whose kernels lie on the path, in order.
    spans
        Numbers of the spans on the path in the trace, in order.
    """

    steps: tuple[Step, ...]
    blame: dict[str, float]
    operators: tuple[str, ...]
    spans: tuple[int, ...]

    @property
    def shares(self) -> dict[str, float]:
        """Times by cause as parts of the makespan, in [0, 1]."""
        total = sum_in_order(self.blame.values())
        return {name: us / total if total else 0.0 for name, us in self.blame.items()}


class Trace(Timeline):
    """Spans of one run of a program, by columns.

    Parameters
    ----------
    program, cluster
        The program, and the cluster that ran it.
    rows
        Spans as (kind, item, op, device, stream, start, end, ready, solo, cause): codes of `KINDS`;
        row of the launches or copies, or the instruction, -1 for the wait of a stream; operator
        index or -1; device index; stream or -1 for the host; times in us; time it would have taken
        alone; and the row that had to end before it could be ready, or -1 (see `critical_path`).
    loads
        One `Load` per device.

    Notes
    -----
    Spans are sorted by start, end, kind, device, stream and item; times within 1e-9 relative are equal. Waits and host
    spans of no length are left out. Columns are arrays of shape (n_spans,) under the names above. A simulated trace
    computes its columns and loads on first use, by a second simulation.
    """

    def sm_utilization(self, device: str | None = None) -> float:
        """Return the mean over the makespan of the issue slots in use, in [0, 1]; None: over all devices."""
        return self._mean_share(device, lambda _, load: load.sm)

    def sm_efficiency(self, device: str | None = None) -> float:
        """Return the mean share of SMs with at least one resident block over the makespan, in [0, 1]."""
        return self._mean_share(device, lambda each, load: load.active_sms / each.sms)

    def active_warps(self, device: str | None = None) -> float:
        """Return the mean over the makespan of the resident warps per SM; None: of all SMs of the cluster."""
        loads = self._loads(device)
        room = self.makespan * sum(one.sms for one, _ in loads)
        if self.makespan:
            return sum_in_order(self._integral(load, load.warps) for _, load in loads) / room
        return 0.0

    def achieved_occupancy(self, device: str | None = None) -> float:
        """Return the resident warps over the most that the active SMs could hold, in [0, 1].

        Notes
        -----
        Operators without a grid keep SMs active by their `utilization` but have no warps that anyone
        knows of: they lower the result. It is 0 if no operator has a grid.
        """
        warps = room = 0.0
        for device_, load in self._loads(device):
            warps += self._integral(load, load.warps)
            room += self._integral(load, load.active_sms) * (device_.threads_per_sm // WARP)
        return warps / room if room > 0 else 0.0

    def load_curve(self, device: str) -> Load:
        """Return the load of a device from the first change to the makespan, where it ends with 0.

        Raises
        ------
        UnknownNameError
            If the cluster has no such device.
        """
        [(_, load)] = self._loads(device)
        n = int(np.searchsorted(load.time, self.makespan))
        columns = (np.append(column[:n], 0.0) for column in (load.sm, load.dram, load.warps, load.active_sms))
        return Load(np.append(load.time[:n], self.makespan), *columns)

    def _loads(self, device: str | None) -> list[tuple[Device, Load]]:
        """Return a device, or all of the cluster, idle ones too, each with its load."""
        devices = self.cluster.devices if device is None else (self.cluster[device],)
        return [(one, self.loads[self.cluster.index[one.name]]) for one in devices]

    def _integral(self, load: Load, value: Floats) -> float:
        """Return the integral up to the makespan of a step function: each value holds from its time on."""
        n = int(np.searchsorted(load.time, self.makespan))
        return float(np.diff(load.time[:n], append=self.makespan) @ value[:n])

    def _mean_share(self, device: str | None, share: Callable[[Device, Load], Floats]) -> float:
        """Return the mean over devices and the makespan of a share, with values above 1 as 1."""
        areas = [self._integral(load, np.minimum(1.0, share(one, load))) for one, load in self._loads(device)]
        if self.makespan:
            return float(np.mean([area / self.makespan for area in areas]))
        return 0.0

    def peak_memory(self) -> dict[str, float]:
        """Return the most bytes each device held at once: its weights and the live activations.

        An operator's output lives from its start to the end of its last reader on that device or
        of its last copy from it; a copied tensor lives at its destination from the start of the
        copy to the end of its last reader there. Outputs of the graph live to the end. The
        graph's own inputs are not counted.

        Notes
        -----
        Lifetimes are half-open: memory that is freed at an instant is free for an operator that starts then, since an
        operator holds its inputs until its end and its output from its start on. An operator whose kernels ran on
        several devices keeps its weights on each and its output on the device of its first kernel. Two copies of one
        tensor to one device both live to its last reader there. O((V + E) log(V + E)).
        """
        n_devices = len(self.program.devices)
        kernels = np.flatnonzero(self.kind == KERNEL)
        placed = distinct(self.op[kernels] * n_devices + self.device[kernels])
        weights = np.bincount(placed % n_devices, self.graph.weight_nbytes[placed // n_devices], n_devices)
        device, born, dead, nbytes = (np.concatenate(pair) for pair in zip(*self._lifetimes(kernels), strict=True))

        # deaths come first in the arrays, and so come first at one instant
        owner, time, change = map(np.concatenate, ((device, device), (dead, born), (-nbytes, nbytes)))
        order = np.lexsort((time, owner))
        bounds = np.searchsorted(owner[order], np.arange(n_devices + 1))
        live = [np.cumsum(change[order[a:b]]).max(initial=0.0) for a, b in pairwise(bounds.tolist())]
        return {name: float(weights[d] + live[d]) for d, name in enumerate(self.program.devices)}

    def _lifetimes(self, kernels: Ints) -> list[tuple[Ints, Floats, Floats, Floats]]:
        """Return device, birth, death and bytes of the operators' outputs, and of the copies at their destinations."""
        graph = self.graph
        n_devices = len(self.program.devices)
        home = np.full(len(graph), -1, np.int64)
        home[self.op[kernels][::-1]] = self.device[kernels][::-1]  # the first kernel is written last
        start, end = self._bounds()
        both_ran = (home[graph.src] >= 0) & (home[graph.dst] >= 0)
        u = graph.src[both_ran].astype(np.int64)
        v = graph.dst[both_ran]
        key, row = np.unique(np.append(u * n_devices + home[v], len(graph) * n_devices), return_inverse=True)
        read = np.zeros(len(key))  # when the last reader of an operator's output on a device ended
        np.maximum.at(read, row[:-1], end[v])

        def last_read(op: Ints, device: Ints) -> Floats:
            at = np.searchsorted(key, op * n_devices + device)
            return np.where(key[at] == op * n_devices + device, read[at], 0.0)

        copies = np.flatnonzero(self.kind == COPY)
        copied = self.op[copies]
        to = self.program.copies.device[self.item[copies]].astype(np.int64)
        gone = np.maximum(
            end, last_read(np.arange(len(graph)), home)
        )  # an output lives at least until its operator ends
        np.maximum.at(gone, copied, self.end[copies])
        gone[np.diff(graph.outgoing[0]) == 0] = self.makespan
        arrived = np.maximum(self.end[copies], last_read(copied, to))  # a copy lives at least until it has arrived
        ran = np.flatnonzero(home >= 0)
        return [
            (home[ran], start[ran], gone[ran], graph.output_nbytes[ran]),
            (to, self.start[copies], arrived, self.program.copies.nbytes[self.item[copies]]),
        ]

    def memory_warnings(self) -> list[str]:
        """Return a line such as ``"gpu0 needs 51.0 GiB but a40 has 48.0 GiB"`` for each device that is too small."""
        lines = []
        for name, need in self.peak_memory().items():
            device = self.cluster[name]
            if need > device.memory:
                lines.append(f"{name} needs {format_bytes(need)} but {device.model} has {format_bytes(device.memory)}")
        return lines

    def critical_path(self) -> CriticalPath:
        """Return the chain of spans that determined the makespan, and its time by cause.

        Walks back from the span that ends last (on ties the first in the trace) to the span that released it, and so on
        to time 0. O(length of the path).
        """
        steps: list[Step] = []
        operators: list[str] = []
        spans: list[int] = []
        exchanging = {member for meeting in self.program.graph.meetings for member in meeting.members}

        def step(start: float, end: float, blame: str, span: str) -> None:
            if end > start:
                steps.append(Step(start, end, blame, span))

        work = self.kind <= COPY
        if work.any():
            i = int((self.end * work).argmax())
        else:
            i = -1
        while i >= 0:
            spans.append(i)
            name = self.name(i)
            kind = self.kind[i]
            start = float(self.start[i])
            end = float(self.end[i])
            ready = float(self.ready[i])
            if kind <= COPY:
                alone = min(float(self.solo[i]), end - start)
                if alone < end - start:
                    middle = start + alone
                else:
                    middle = end
                step(middle, end, "contention", name)
                is_moving = kind == COPY or int(self.op[i]) in exchanging
                step(start, middle, "transfer" if is_moving else "compute", name)
                step(ready, start, "contention", name)
                if kind == KERNEL:
                    operators.append(name)
            elif kind == HOST:
                issues = self.program.execution == "graph" or self.program.action[self.item[i]] in (LAUNCH, DO_COPY)
                step(start, end, "launch" if issues else "sync", name)
            else:
                ready = end  # the host was delayed: the span that released it accounts for the time
            cause = int(self.cause[i])
            if cause >= 0:
                before = float(self.end[cause])
            else:
                before = 0.0
            ready_at = min(ready, before + self._on_the_way(i, cause))
            step(ready_at, ready, "dependency", name)
            step(before, ready_at, "launch", name)
            i = cause
        steps.reverse()
        blame = dict.fromkeys(BLAMES, 0.0)
        for part in steps:
            blame[part.blame] += part.end - part.start
        return CriticalPath(tuple(steps), blame, tuple(dict.fromkeys(reversed(operators))), tuple(spans[::-1]))

    def _on_the_way(self, i: int, cause: int) -> float:
        """Return the us that the host, or the way to the device, may take after the host span that released a span."""
        if self.program.execution == "graph" or (cause >= 0 and self.kind[cause] <= COPY):
            return 0.0
        if self.program.lead is not None:  # calls that take no time have no span, but something may come before them
            return inf
        device: Device = self.cluster.devices[self.device[i]]
        if self.kind[i] == KERNEL:
            return device.on_the_way(device.launch)
        if self.kind[i] == COPY:
            return device.on_the_way(device.copy)
        return 0.0

    _repr_html_ = as_html

    def to_pandas(self) -> Any:
        """Return the spans as a pandas DataFrame, a row each; without pandas MissingDependencyError is raised."""
        return frame_of(self.spans, Span)

    def to_perfetto(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Return the trace as Chrome JSON for ui.perfetto.dev, and write it if a path is given."""
        document: dict[str, Any] = VIEWS["perfetto"](self, path)
        return document

    def gantt(self, path: str | os.PathLike[str] | None = None, *, measured: "Trace | None" = None) -> Any:
        """Draw the trace, above a measured one, and return matplotlib axes; with a path, write it (PNG, SVG, PDF)."""
        return VIEWS["gantt"](self, path, measured=measured)


class Spans(NamedTuple):
    """When the launches and copies of a run began and ended, us: arrays of shape (n, 2), by row of the program's."""

    launches: Floats
    copies: Floats

    @property
    def makespan(self) -> float:
        """When the last of them ended."""
        return float(max(self.launches[:, 1].max(initial=0.0), self.copies[:, 1].max(initial=0.0)))


def spans_of(trace: Trace) -> Spans:
    """Return when the launches and copies of a trace ran."""
    return spans_in(trace.program, {name: getattr(trace, name) for name in ("kind", "item", "start", "end")})


def spans_in(program: Program, columns: Mapping[str, npt.NDArray[Any]]) -> Spans:
    """Return when the launches and copies of a program ran, given columns of a trace."""
    times = Spans(np.zeros((len(program.launches), 2)), np.zeros((len(program.copies.op), 2)))
    for kind, spans in zip((KERNEL, COPY), times, strict=True):
        rows = np.flatnonzero(columns["kind"] == kind)
        spans[columns["item"][rows]] = np.column_stack([columns["start"][rows], columns["end"][rows]])
    return times


def measured_trace(program: Program, cluster: Cluster, launches: npt.ArrayLike, copies: npt.ArrayLike = ()) -> Trace:
    """Return the trace of a measured run.

    Parameters
    ----------
    program, cluster
        The program, and the cluster that ran it.
    launches
        Start and end in us of each launch, shape (n_launches, 2), time 0 being when the host began.
    copies
        The same of each copy, shape (n_copies, 2).

    Raises
    ------
    BackendError
        If there are more or fewer times than launches or copies, one is not finite, negative, or ends before it starts.

    Notes
    -----
    The cause of a span is the earlier span that ended last: on its stream, or a producer of its operator. Waits, host
    spans and loads are not measured, so such a trace has none.
    """
    graph = program.graph
    spans = list[SpanRow]()
    for kind, action, what, times, ops in (
        (KERNEL, LAUNCH, "launches", launches, program.launches.op),
        (COPY, DO_COPY, "copies", copies, program.copies.op),
    ):
        bounds_of = np.asarray(times, np.float64).reshape(-1, 2)
        if len(bounds_of) != len(ops):
            raise BackendError(f"{graph.name}: {len(ops)} {what} ran, but {len(bounds_of)} were measured")
        good = (bounds_of[:, 0] >= 0) & (bounds_of[:, 0] <= bounds_of[:, 1]) & (bounds_of[:, 1] < inf)
        if not good.all():
            i = int(np.argmin(good))
            name = graph.names[ops[i]]
            (start, end) = bounds_of[i]
            raise BackendError(f"{graph.name}: {name!r} was measured from {start:g} to {end:g} us")
        place = np.empty(len(ops), np.int64)
        at = np.flatnonzero(program.action == action)
        place[program.argument[at]] = at
        columns = (ops, program.device[place], program.stream[place], *bounds_of.T)
        for i, (op, device, stream, start, end) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            spans.append((kind, i, op, device, stream, start, end, start, end - start, -1))
    spans.sort(key=lambda row: (row[6], row[5]))
    none = np.zeros(1)
    loads = [Load(none, none, none, none, none) for _ in program.devices]
    return Trace(program, cluster, _with_causes(program, spans), loads)


def _with_causes(program: Program, spans: list[SpanRow]) -> list[SpanRow]:
    """Return spans that are in order of their ends, each with the row of the one that let it start."""
    wrote: dict[tuple[int, int], int] = {}  # last writer of the output of an operator on a device
    behind: dict[tuple[int, int, int], int] = {}
    graph = program.graph
    ptr, incoming = graph.incoming
    rows: list[SpanRow] = []
    for row, (kind, item, op, device, stream, start, end, ready, solo, _) in enumerate(spans):
        before = [behind.get((kind, device, stream), -1)]
        if kind == KERNEL:
            before += [wrote.get((p, device), -1) for p in graph.src[incoming[ptr[op] : ptr[op + 1]]].tolist()]
        else:
            before.append(wrote.get((op, device), -1))
        cause = max((b for b in before if b >= 0 and spans[b][6] <= start), default=-1)
        rows.append((kind, item, op, device, stream, start, end, ready, solo, cause))
        behind[kind, device, stream] = row
        wrote[op, device if kind == KERNEL else int(program.copies.device[item])] = row
    return rows
