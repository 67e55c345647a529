"""What Gantt charts show, whoever draws them: rows of spans that do not overlap, and what bars are coloured by."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.model import LAUNCH, Ints
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
    label
        What it is, without the device.
    device, what
        Where, and ``"stream"``, ``"copy"`` or ``"host"``.
    trace
        0, or 1 of the second of two traces.
    spans
        Numbers of the spans in their trace.
    first
        Whether it is the first of its label: overlapping spans, as measured ones may be, take further rows.
    """

    label: str
    device: str
    what: str
    trace: int
    spans: Ints
    first: bool = True

    def name(self, *, several: bool, paired: bool) -> str:
        """Return what it is called beside those of several devices, or of two traces."""
        which = ("simulated", "measured")[self.trace]
        return f"{f'{self.device} ' * several}{self.label}{f' {which}' * paired}"

    @property
    def height(self) -> float:
        """1 of streams, less of others."""
        return 1.0 if self.what == "stream" else _THIN


class Kind(NamedTuple):
    """What a bar may be: its name, its colour, and ``"kernel"``, ``"copy"``, ``"wait"``, ``"launch"`` or ``"sync"``."""

    name: str
    colour: str
    what: str


def rows_of(traces: Sequence[Trace], *, host: bool, until: float = inf, most: int | None = None) -> list[Row]:
    """Return rows by device: its host threads, its streams, then those of its copies; of the second trace below.

    Parameters
    ----------
    traces
        One, or two of one program.
    host
        Whether host threads have rows.
    until
        Spans that start later are left out, in us.
    most
        Streams of a device beyond which such as follow each other share rows, without their waits; many copies, too,
        share one then. None: any number.
    """
    found: list[Row] = []
    for d, device in enumerate(traces[0].program.devices):
        here = [(trace.device == d) & (trace.start <= until) for trace in traces]
        if host:
            for t, trace in enumerate(traces):
                found += _lanes("host", device, "host", t, trace, here[t] & (trace.stream < 0))
        compute: list[Row] = []
        copying: list[Row] = []
        streams = np.unique(np.concatenate([t.stream[h & (t.stream >= 0)] for t, h in zip(traces, here, strict=True)]))
        for stream in streams.tolist():
            for t, trace in enumerate(traces):
                mine = here[t] & (trace.stream == stream)
                copies = mine & (trace.kind == COPY)
                if copies.any() and not (trace.kind[mine] == KERNEL).any():  # that they wait for data needs no bar
                    to = np.unique(trace.program.copies.device[trace.item[copies]]).tolist()
                    label = f"copy to {', '.join(trace.program.devices[i] for i in to)}"
                    copying += _lanes(label, device, "copy", t, trace, copies)
                else:
                    compute += _lanes(f"stream {stream}", device, "stream", t, trace, mine)
        if most is not None and len(compute) > most:
            compute = _shared(traces[0], compute)
        if most is not None and len(copying) > _MOST_COPIES:
            copying = [replace(copying[0], label="copies", spans=np.concatenate([row.spans for row in copying]))]
        found += compute + copying
    return found


def _lanes(label: str, device: str, what: str, t: int, trace: Trace, chosen: npt.NDArray[np.bool_]) -> list[Row]:
    spans = np.flatnonzero(chosen)
    lane = lanes(trace.start[spans], trace.end[spans])
    return [Row(label, device, what, t, spans[lane == k], not k) for k in range(lane.max(initial=-1) + 1)]


def _shared(trace: Trace, rows: list[Row]) -> list[Row]:
    """Return the kernels of streams, of which such as follow each other are on one row."""
    work = [row.spans[trace.kind[row.spans] == KERNEL] for row in rows]
    busy = [i for i, spans in enumerate(work) if len(spans)]
    busy.sort(key=lambda i: trace.start[work[i]].min())
    ends = np.array([(trace.start[work[i]].min(), trace.end[work[i]].max()) for i in busy])  # (n_busy, 2)
    lane = lanes(ends[:, 0], ends[:, 1])
    found = []
    for k in range(lane.max() + 1):
        mine = [i for i, at in zip(busy, lane.tolist(), strict=True) if at == k]
        numbers = [rows[i].label.removeprefix("stream ") for i in mine]
        label = rows[mine[0]].label if len(mine) == 1 else f"streams {', '.join(numbers[:_NAMED])}"
        label += ", ..." if len(mine) > _NAMED else ""
        found.append(replace(rows[mine[0]], label=label, spans=np.concatenate([work[i] for i in mine])))
    return found


def centres_of(rows: Sequence[Row]) -> list[float]:
    """Return where each row lies, from 0 downward, with a gap between devices."""
    at, found = 0.0, []
    for i, row in enumerate(rows):
        at += row.height / 2 + (_GAP if i and rows[i - 1].device != row.device else 0.0)
        found.append(at)
        at += row.height / 2
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
