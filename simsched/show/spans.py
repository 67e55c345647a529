"""What Gantt charts show, whoever draws them: rows of spans that do not overlap, and what bars are coloured by."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple

import numpy as np

from simsched.model import LAUNCH, Floats, Ints
from simsched.model.program import COPY as DO_COPY
from simsched.model.trace import Trace
from simsched.model.trace.metrics import lanes
from simsched.model.trace.timeline import COPY, HOST, KERNEL, WAIT
from simsched.show.looks import kind_colours, paint

_THIN: Final = 0.5  # height of rows of copies and hosts
_GAP: Final = 0.35  # between devices, in rows
_MOST_COPIES: Final = 4  # rows of copies of a device, where rows are shared
_NAMED: Final = 3  # streams of a row that several share


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a chart: spans that do not overlap, of one stream, the copies from a device, or one host thread.

    Parameters
    ----------
    device
        Where.
    trace, measured
        Of which trace, and whether that is the second of two.
    codes
        Number of the kind of each span of the trace.
    spans
        Numbers of the spans in their trace.
    what
        ``"stream"``, ``"copy"`` or ``"host"``.
    label
        What it is, without the device.
    first
        Whether it is the first of its label: overlapping spans, as measured ones may be, take further rows.
    middle
        Where it lies, from 0 downward.
    """

    device: str
    trace: Trace
    measured: bool
    codes: Ints
    spans: Ints
    what: str = "stream"
    label: str = ""
    first: bool = True
    middle: float = 0.0

    @property
    def height(self) -> float:
        """1 of streams, less of others."""
        return 1.0 if self.what == "stream" else _THIN

    @property
    def bars(self) -> tuple[Ints, Floats, Floats]:
        """Number of the kind, start and end in us of each span, shape (n_spans,) each."""
        return self.codes[self.spans], self.trace.start[self.spans], self.trace.end[self.spans]


class Kind(NamedTuple):
    """What a bar may be: its name, its colour, and ``"kernel"``, ``"copy"``, ``"wait"``, ``"launch"`` or ``"sync"``."""

    name: str
    colour: str
    what: str


class GanttRows:
    """What a Gantt chart shows: rows by device, its host threads, its streams, then those of its copies.

    Parameters
    ----------
    traces
        One, or two of one program: the rows of the second stand below those of the first.
    host
        Whether host threads have rows.
    until
        Spans that start later are left out, in us.
    most
        Streams of a device beyond which such as follow each other share rows, without their waits; many copies, too,
        share one then. None: any number.
    """

    def __init__(
        self, traces: Sequence[Trace], *, host: bool = False, until: float = inf, most: int | None = None
    ) -> None:
        found = [kinds_of(trace) for trace in traces]
        self.traces, self.kinds, self.paired = traces, found[0][1], len(traces) > 1
        self.longest = max(trace.makespan for trace in traces)
        self.rows: list[Row] = []
        self.bottom = 0.0
        for d, device in enumerate(traces[0].program.devices):
            here = [np.flatnonzero((trace.device == d) & (trace.start <= until)) for trace in traces]
            whole = [Row(device, trace, t > 0, found[t][0], here[t]) for t, trace in enumerate(traces)]
            for i, row in enumerate(_of_device(whole, host, most)):
                self.bottom += _GAP if self.rows and not i else 0.0
                self.rows.append(replace(row, middle=self.bottom + row.height / 2))
                self.bottom += row.height
        several = len({row.device for row in self.rows}) > 1
        which = (" simulated", " measured") if self.paired else ("", "")
        self.names = [f"{f'{row.device} ' * several}{row.label}{which[row.measured]}" for row in self.rows]


def _of_device(whole: Sequence[Row], host: bool, most: int | None) -> list[Row]:
    """Return the rows of a device, given all its spans of each trace."""
    hosts: list[Row] = []
    compute: list[Row] = []
    copying: list[Row] = []
    for stream in np.unique(np.concatenate([each.trace.stream[each.spans] for each in whole])).tolist():
        for each in whole:
            trace = each.trace
            mine = each.spans[trace.stream[each.spans] == stream]
            copies = mine[trace.kind[mine] == COPY]
            if stream < 0:
                hosts += _lanes(replace(each, spans=mine, what="host", label="host"))
            elif len(copies) and not (trace.kind[mine] == KERNEL).any():  # that they wait for data needs no bar
                to = np.unique(trace.program.copies.device[trace.item[copies]]).tolist()
                label = f"copy to {', '.join(trace.program.devices[i] for i in to)}"
                copying += _lanes(replace(each, spans=copies, what="copy", label=label))
            else:
                compute += _lanes(replace(each, spans=mine, label=f"stream {stream}"))
    if most is not None and len(compute) > most:
        compute = _shared(compute)
    if most is not None and len(copying) > _MOST_COPIES:
        copying = [replace(copying[0], label="copies", spans=np.concatenate([row.spans for row in copying]))]
    return hosts * host + compute + copying


def _lanes(row: Row) -> list[Row]:
    """Return a row of spans as many rows as it takes to have none overlap."""
    lane = lanes(*row.bars[1:])
    return [replace(row, spans=row.spans[lane == k], first=not k) for k in range(lane.max(initial=-1) + 1)]


def _shared(rows: Sequence[Row]) -> list[Row]:
    """Return the kernels of streams, of which such as follow each other are on one row."""
    work = [replace(row, spans=row.spans[row.trace.kind[row.spans] == KERNEL]) for row in rows]
    busy = sorted((row for row in work if len(row.spans)), key=lambda row: row.bars[1].min())
    lane = lanes([row.bars[1].min() for row in busy], [row.bars[2].max() for row in busy])
    found = []
    for k in range(lane.max() + 1):
        mine = [row for row, at in zip(busy, lane.tolist(), strict=True) if at == k]
        numbers = [row.label.removeprefix("stream ") for row in mine]
        label = mine[0].label if len(mine) == 1 else f"streams {', '.join(numbers[:_NAMED])}"
        label += ", ..." if len(mine) > _NAMED else ""
        found.append(replace(mine[0], label=label, spans=np.concatenate([row.spans for row in mine])))
    return found


def kinds_of(trace: Trace) -> tuple[Ints, list[Kind]]:
    """Return what each span is, shape (n_spans,), and what each number stands for.

    Colours go to the kinds of operators by how many the graph has of each, so that two schedules of one graph look
    alike; kinds after the seventh share grey.
    """
    colour, names = kind_colours(trace.graph)
    program, host = trace.program, trace.kind == HOST
    found = np.full(len(trace), len(names))
    found[trace.kind == WAIT] += 1
    issues = np.full(len(trace), program.execution == "graph")
    issues[host] |= np.isin(program.action[trace.item[host]], (LAUNCH, DO_COPY))
    found[host] += np.where(issues[host], 2, 3)
    found[trace.kind == KERNEL] = colour[trace.op[trace.kind == KERNEL]]
    kinds = [Kind(name, paint(code), "kernel") for code, name in enumerate(names)]
    kinds += [Kind("copy", "#7A7A7A", "copy"), Kind("wait", "#B9B9B9", "wait"),
              Kind("host: issues work", "#8FA3B8", "launch"), Kind("host: orders work", "#C2A5CF", "sync")]  # fmt: skip
    return found, kinds
