"""Traces as Chrome JSON, which ui.perfetto.dev, its trace processor and chrome://tracing read.

Times are rounded to whole nanoseconds, start and end alike, because the importers count in them:
slices that touch then still touch, while one nanosecond of overlap would make an importer drop
a slice. Exact times in us are in the arguments of each slice.
"""

import math
import os
from collections.abc import Iterator
from importlib.metadata import version
from operator import itemgetter
from typing import Any

import numpy as np

from simsched.base.errors import SimulationError
from simsched.base.io import dump_json, write_file
from simsched.base.numeric import group_by_key
from simsched.base.text import printable
from simsched.model.trace import COPY, HOST, KERNEL, KINDS, Trace
from simsched.model.trace.timeline import lanes

Event = dict[str, Any]
_LONGEST = 2**62 / 1e3  # us
_SLICE, _FLOW_END, _FLOW_START = range(3)  # at one instant a slice comes before the flows that bind to it


def to_perfetto(trace: Trace, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the trace in the Chrome Trace Event format, with printable names, and write it if a path is given.

    A process per device with a thread per stream, and one more for the host with a thread per
    issuing thread. Spans that overlap on a stream, as measured ones may, get further threads
    such as ``stream 0 (2)``. Arrows lead from each operator, or its copy, to the operators of
    other threads that read it. Counters are the loads of the SMs and of DRAM.

    Raises
    ------
    FileError
        If the file cannot be written.
    SimulationError
        If the trace is longer than Perfetto can count.
    """
    if trace.makespan > _LONGEST:
        raise SimulationError(f"a trace of {trace.makespan:.3g} us is too long for Perfetto, which counts in ns")
    start, end = (np.rint(times * 1e3).astype(np.int64).tolist() for times in (trace.start, trace.end))
    tracks, named = _tracks(trace, start, end)
    timed: list[tuple[int, bool, int, int, Event]] = []

    def add(ns: int, span: int, phase: int, **event: Any) -> None:
        pid, tid = tracks[span]
        # at one instant spans without duration come first, then in the order of the trace
        timed.append((ns, end[span] > start[span], span, phase, event | {"ts": _us(ns), "pid": pid, "tid": tid}))

    for i, (begun, ended) in enumerate(zip(start, end, strict=True)):
        add(
            begun,
            i,
            _SLICE,
            name=printable(trace.name(i)),
            cat=KINDS[trace.kind[i]],
            ph="X",
            dur=_us(ended - begun),
            args=_arguments(trace, i),
        )
    for number, (source, target) in enumerate(_arrows(trace, tracks), start=1):
        # An importer binds an arrow to the slice that is open at its time, and drops one that goes back in time.
        leave = max(start[source], end[source] - 1)
        arrive = start[target]
        if arrive < leave:  # only where clocks disagree or a consumer did not wait
            leave = arrive = max(start[source], arrive)
            if arrive > max(start[target], end[target] - 1):
                continue
        if arrive > leave or target > source:  # if both take no time the importer would meet the end first
            common = {"name": "dependency", "cat": "flow", "id": number}
            add(leave, source, _FLOW_START, ph="s", **common)
            add(arrive, target, _FLOW_END, ph="f", bp="e", **common)
    timed.sort(key=itemgetter(0, 1, 2, 3))
    info = {
        "graph": printable(trace.graph.name),
        "cluster": printable(trace.cluster.name),
        "execution": trace.program.execution,
        "makespan_us": trace.makespan,
        "simsched": version("simsched"),
    }
    events = [*named, *(event for *_, event in timed), *_counters(trace)]
    document = {"displayTimeUnit": "ns", "traceEvents": events, "otherData": info}
    if path is not None:
        write_file(path, dump_json(document, indent=None))
    return document


def _tracks(trace: Trace, start: list[int], end: list[int]) -> tuple[list[tuple[int, int]], list[Event]]:
    """Return the process and the thread of each span, and the events that name both."""
    program = trace.program
    devices = [*map(printable, trace.program.devices)]
    host = len(devices) + 1  # devices come first, from 1: pid 0 is the idle process
    on_host = (trace.kind == HOST) | (trace.stream < 0)
    # a host span is on the thread of the instruction that it is about
    thread = np.searchsorted(program.thread_ptr, trace.item, side="right") - 1
    thread = np.clip(thread, 0, 0 if program.execution == "graph" else len(program.thread_ptr) - 2)
    pids = np.where(on_host, host, trace.device + 1).tolist()
    rows = zip(pids, np.where(on_host, thread, trace.stream).tolist(), strict=True)
    named = [("process", p, p, [*devices, "host"][p - 1], p) for p in sorted(set(pids))]
    tracks = [(0, 0)] * len(trace)
    first = tid = host + 1  # unlike any pid: a thread numbered as its process is its main thread
    for (p, row), spans in sorted(group_by_key((place, i) for i, place in enumerate(rows)).items()):
        lane = lanes([start[i] for i in spans], [end[i] for i in spans])
        for k in range(lane.max() + 1):
            members = np.array(spans)[lane == k]
            copies = members[trace.kind[members] == COPY]
            name = f"stream {row}"
            if p == host:
                served = np.unique(program.device[slice(*program.thread_ptr[row : row + 2])])
                if len(served) == 1:
                    name = f"thread {row} -> {devices[served[0]]}"
                else:
                    name = f"thread {row}"
            elif len(copies) and not (trace.kind[members] == KERNEL).any():
                to = np.unique(program.copies.device[trace.item[copies]])
                name = f"copy stream {row} -> {', '.join(devices[d] for d in to)}"
            named.append(("thread", p, tid, f"{name} ({k + 1})" if k else name, tid - first))
            for i in members.tolist():
                tracks[i] = p, tid
            tid += 1
    return tracks, [
        {"name": f"{what}_{key}", "ph": "M", "pid": p, "tid": tid, "ts": 0.0, "args": {key: value}}
        for what, p, tid, name, place in named
        for key, value in (("name", name), ("sort_index", place))
    ]


def _arguments(trace: Trace, i: int) -> dict[str, Any]:
    graph = trace.graph
    kind = trace.kind[i]
    op = int(trace.op[i])
    row = int(trace.item[i])
    arguments: dict[str, Any] = {"start": float(trace.start[i]), "duration": float(trace.end[i] - trace.start[i])}
    if op >= 0:
        arguments["operator"] = printable(graph.names[op])
    if kind == KERNEL:
        if 0 <= row < len(trace.program.launches):
            arguments["kernel"] = int(trace.program.launches.kernel[row])
        block = graph.label("block", op)
        arguments |= {
            "kind": printable(graph.label("kind", op) or ""),
            "flops": float(graph.flops[op]),
            "nbytes": float(graph.nbytes[op]),
            "block": None if block is None else printable(block),
        }
    elif kind == COPY:
        arguments["to"] = printable(trace.program.devices[trace.program.copies.device[row]])
        arguments["nbytes"] = float(trace.program.copies.nbytes[row])
    if kind <= COPY:
        solo = float(trace.solo[i])
        arguments |= {"ready": float(trace.ready[i]), "solo": solo, "contention": arguments["duration"] - solo}
    return {key: value for key, value in arguments.items() if value is not None and value == value}  # no NaN


def _arrows(trace: Trace, tracks: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield pairs of spans: last kernel to copy, copy to first kernel, last kernel to first kernel."""
    graph = trace.graph
    kernels = np.flatnonzero(trace.kind == KERNEL)
    copies = np.flatnonzero(trace.kind == COPY)
    by_end = kernels[np.argsort(trace.end[kernels], kind="stable")]
    first = np.full(len(graph), -1)
    last = np.full(len(graph), -1)
    first[trace.op[kernels][::-1]] = kernels[::-1]  # of equal ones the last written stays
    last[trace.op[by_end]] = by_end
    op = trace.op[copies]
    to = trace.program.copies
    row = trace.item[copies]
    keys = zip(op.tolist(), to.device[row].tolist(), to.nbytes[row].tolist(), strict=True)
    sent = group_by_key(zip(keys, copies.tolist(), strict=True))
    yield from ((source, i) for source, i in zip(last[op].tolist(), copies.tolist(), strict=True) if source >= 0)
    ran = (first[graph.src] >= 0) & (first[graph.dst] >= 0)
    src = graph.src[ran].tolist()
    dst = graph.dst[ran].tolist()
    sizes = graph.edge_nbytes[ran].tolist()
    seen: dict[tuple[int, int], None] = {}
    for u, v, nbytes in zip(src, dst, sizes, strict=True):
        source = int(last[u])
        target = int(first[v])
        crosses = trace.device[source] != trace.device[target]
        fitting = sent.get((u, int(trace.device[target]), nbytes))
        if crosses and fitting:  # one copy per edge, or the last one for all edges that are left
            if len(fitting) > 1:
                source = fitting.pop(0)
            else:
                source = fitting[0]
        if (source, target) not in seen and tracks[source] != tracks[target]:
            seen[source, target] = None
            yield source, target


def _counters(trace: Trace) -> Iterator[Event]:
    for d, device in enumerate(trace.program.devices):
        curve = trace.load_curve(device)
        for name, values in (("SM", curve.sm), ("DRAM", curve.dram)):
            changes = np.r_[True, values[1:] != values[:-1]] & values.any()
            for time, value in zip(curve.time[changes].tolist(), values[changes].tolist(), strict=True):
                # readers call the track by both names: "SM load"
                yield {
                    "name": name,
                    "ph": "C",
                    "ts": _us(round(time * 1e3)),
                    "pid": d + 1,
                    "tid": d + 1,
                    "args": {"load": value},
                }


def _us(ns: int) -> float:
    """Return whole nanoseconds in us, such that an importer that cuts off `1000 * us` gets them back."""
    us = ns / 1e3
    if int(us * 1e3) == ns:
        return us
    return math.nextafter(us, math.inf)
