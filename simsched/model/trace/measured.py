"""A `Trace` from times that a backend measured."""

from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.base.errors import BackendError
from simsched.model.cluster import Cluster
from simsched.model.program import COPY as DO_COPY
from simsched.model.program import LAUNCH, Program
from simsched.model.trace.timeline import COPY, KERNEL, Load, SpanRow
from simsched.model.trace.trace import Trace


def measured_trace(program: Program, cluster: Cluster, launches: npt.ArrayLike, copies: npt.ArrayLike = ()) -> Trace:
    """Return the trace of a measured run.

    Parameters
    ----------
    program, cluster
        What ran, and on what.
    launches
        Start and end in us of each launch, shape (n_launches, 2), time 0 being when the host began.
    copies
        The same of each copy, shape (n_copies, 2).

    Raises
    ------
    BackendError
        If there are more or fewer times than launches or copies, one is not finite, or ends before it starts.

    Notes
    -----
    The cause of a span is the one of those before it that ended last: on its stream, or what its operator reads.
    Waits, what the hosts did and loads are not measured, so such a trace has none.
    """
    spans = [
        *_spans(program, LAUNCH, KERNEL, launches, program.launch_op),
        *_spans(program, DO_COPY, COPY, copies, program.copies.op),
    ]
    if min((row[5] for row in spans), default=0.0) < 0.0:
        raise BackendError(f"{program.graph.name}: a measured span begins before the run does")
    spans.sort(key=lambda row: (row[6], row[5]))
    none = np.zeros(1)
    loads = [Load(none, none, none, none, none) for _ in program.devices]
    return Trace(program, cluster, _with_causes(program, spans), loads)


def _spans(program: Program, action: int, kind: int, times: npt.ArrayLike, op: npt.NDArray[Any]) -> list[SpanRow]:
    given = np.asarray(times, np.float64).reshape(-1, 2)
    what = "launches" if kind == KERNEL else "copies"
    if len(given) != len(op):
        raise BackendError(f"{program.graph.name}: {len(op)} {what} ran, but {len(given)} were measured")
    bad = ~(np.isfinite(given).all(axis=1) & (given[:, 1] >= given[:, 0]))
    if bad.any():
        i = int(np.argmax(bad))
        name, (start, end) = program.graph.names[op[i]], given[i]
        raise BackendError(f"{program.graph.name}: {name!r} was measured from {start:g} to {end:g} us")
    at = np.flatnonzero(program.action == action)
    place = np.empty(len(op), np.int64)
    place[program.argument[at]] = at
    rows: list[SpanRow] = []
    for i, (start, end) in enumerate(given.tolist()):
        device, stream = int(program.device[place[i]]), int(program.stream[place[i]])
        rows.append((kind, i, int(op[i]), device, stream, start, end, start, end - start, -1))
    return rows


def _with_causes(program: Program, spans: list[SpanRow]) -> list[SpanRow]:
    """Return spans that are in order of their ends, each with the row of the one that let it start."""
    wrote: dict[tuple[int, int], int] = {}  # what last wrote the output of an operator on a device
    behind: dict[tuple[int, int, int], int] = {}
    graph = program.graph
    ptr, incoming = graph.incoming
    found: list[SpanRow] = []
    for row, (kind, item, op, device, stream, start, end, ready, solo, _) in enumerate(spans):
        before = [behind.get((kind, device, stream), -1)]
        if kind == KERNEL:
            before += [wrote.get((p, device), -1) for p in graph.src[incoming[ptr[op] : ptr[op + 1]]].tolist()]
        else:
            before.append(wrote.get((op, device), -1))
        cause = max((b for b in before if b >= 0 and spans[b][6] <= start), default=-1)
        found.append((kind, item, op, device, stream, start, end, ready, solo, cause))
        behind[kind, device, stream] = row
        wrote[op, device if kind == KERNEL else int(program.copies.device[item])] = row
    return found
