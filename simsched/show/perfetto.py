"""Traces as Chrome JSON, which ui.perfetto.dev, its trace processor and chrome://tracing read.

Times are rounded to whole nanoseconds, start and end alike, because the importers count in them:
slices that touch then still touch, while one nanosecond of overlap would make an importer drop
a slice. Exact times in us are in the arguments of each slice.
"""

import math
import os
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np

from simsched.base.errors import SimulationError
from simsched.base.io import dump_json, write_file
from simsched.base.numeric import grouped
from simsched.model.graph.columns import Ints
from simsched.model.trace.timeline import COPY, HOST, KERNEL, KINDS, lanes
from simsched.model.trace.trace import Trace

Event = dict[str, Any]
_LONGEST = 2**62 / 1e3  # us
_SLICE, _FLOW_END, _FLOW_START = range(3)  # at one instant a slice comes before what binds to it


def to_perfetto(trace: Trace, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the trace in the Chrome Trace Event format, and write it if a path is given.

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
    found = _Export(trace).document()
    if path is not None:
        write_file(path, dump_json(found, indent=None))
    return found


class _Export:
    """Tracks and nanoseconds of the spans, and the events made of them."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        if trace.makespan > _LONGEST:
            raise SimulationError(f"a trace of {trace.makespan:.3g} us is too long for Perfetto, which counts in ns")
        self._start: list[int] = np.rint(trace.start * 1e3).astype(np.int64).tolist()
        self._end: list[int] = np.rint(trace.end * 1e3).astype(np.int64).tolist()
        self._host_pid = len(trace.program.devices) + 1  # devices come first, from 1: pid 0 is the idle process
        self._metadata: list[Event] = []
        self._track = self._tracks()  # (pid, tid) of each span

    def document(self) -> dict[str, Any]:
        trace = self._trace
        timed = sorted([*self._slices(), *self._flows()], key=lambda entry: entry[:2])
        info = {"graph": trace.graph.name, "cluster": trace.cluster.name, "execution": trace.program.execution,
                "makespan_us": trace.makespan, "simsched": version("simsched")}  # fmt: skip
        events = [*self._metadata, *(event for _, _, event in timed), *self._counters()]
        return {"displayTimeUnit": "ns", "traceEvents": events, "otherData": info}

    def _tracks(self) -> list[tuple[int, int]]:
        """Give each span a track of a process, and name both."""
        trace, names = self._trace, [*self._trace.program.devices, "host"]
        on_host = (trace.kind == HOST) | (trace.stream < 0)
        pid = np.where(on_host, self._host_pid, trace.device + 1).tolist()
        row = np.where(on_host, self._host_threads(), trace.stream).tolist()
        for p in sorted(set(pid)):
            self._name("process", p, p, names[p - 1], p)
        found = [(0, 0)] * len(trace)
        first = tid = self._host_pid + 1  # unlike any pid: a thread numbered as its process is its main thread
        for (p, r), spans in sorted(grouped((key, i) for i, key in enumerate(zip(pid, row, strict=True))).items()):
            lane = lanes([self._start[i] for i in spans], [self._end[i] for i in spans])
            for k in range(lane.max() + 1):
                members = np.array(spans)[lane == k]
                name = self._thread_name(r) if p == self._host_pid else self._stream_name(r, members)
                self._name("thread", p, tid, f"{name} ({k + 1})" if k else name, tid - first)
                for i in members.tolist():
                    found[i] = p, tid
                tid += 1
        return found

    def _host_threads(self) -> Ints:
        """Return the host thread of each span, from the instruction that a host span is about."""
        program = self._trace.program
        thread = np.searchsorted(program.thread_ptr, self._trace.item, side="right") - 1
        return np.clip(thread, 0, 0 if program.execution == "graph" else len(program.thread_ptr) - 2)

    def _thread_name(self, thread: int) -> str:
        program = self._trace.program
        served = np.unique(program.device[slice(*program.thread_ptr[thread : thread + 2])])
        return f"thread {thread} -> {program.devices[served[0]]}" if len(served) == 1 else f"thread {thread}"

    def _stream_name(self, stream: int, members: Ints) -> str:
        trace = self._trace
        copies = members[trace.kind[members] == COPY]
        if not len(copies) or (trace.kind[members] == KERNEL).any():
            return f"stream {stream}"
        to = np.unique(trace.program.copies.device[trace.item[copies]])
        return f"copy stream {stream} -> {', '.join(trace.program.devices[d] for d in to)}"

    def _name(self, what: str, pid: int, tid: int, name: str, place: int) -> None:
        place_of: Event = {"ph": "M", "pid": pid, "tid": tid, "ts": 0.0}
        self._metadata.append({"name": f"{what}_name", **place_of, "args": {"name": name}})
        self._metadata.append({"name": f"{what}_sort_index", **place_of, "args": {"sort_index": place}})

    def _slices(self) -> Iterator[tuple[int, tuple[int, ...], Event]]:
        trace = self._trace
        for i, (ts, end, (pid, tid)) in enumerate(zip(self._start, self._end, self._track, strict=True)):
            event = {"name": trace.name(i), "cat": KINDS[trace.kind[i]], "ph": "X", "ts": _us(ts), "dur": _us(end - ts)}
            yield ts, self._rank(i, _SLICE), event | {"pid": pid, "tid": tid, "args": self._arguments(i)}

    def _rank(self, i: int, phase: int) -> tuple[int, ...]:
        """Order events of one instant: what takes no time first, then as the spans stand in the trace."""
        return (self._end[i] > self._start[i], i, phase)

    def _arguments(self, i: int) -> dict[str, Any]:
        trace, graph = self._trace, self._trace.graph
        kind, op = trace.kind[i], int(trace.op[i])
        found: dict[str, Any] = {"start": float(trace.start[i]), "duration": float(trace.end[i] - trace.start[i])}
        if op >= 0:
            found["operator"] = graph.names[op]
        if kind == KERNEL:
            row = int(trace.item[i])
            if 0 <= row < len(trace.program.launch_kernel):
                found["kernel"] = int(trace.program.launch_kernel[row])
            found |= {"kind": graph.label("kind", op), "flops": float(graph.flops[op]),
                      "nbytes": float(graph.nbytes[op]), "block": graph.label("block", op)}  # fmt: skip
        elif kind == COPY:
            row = int(trace.item[i])
            found["to"] = trace.program.devices[trace.program.copies.device[row]]
            found["nbytes"] = float(trace.program.copies.nbytes[row])
        if kind <= COPY:
            solo = float(trace.solo[i])
            found |= {"ready": float(trace.ready[i]), "solo": solo, "contention": found["duration"] - solo}
        return {key: value for key, value in found.items() if value is not None and value == value}  # no NaN

    def _flows(self) -> list[tuple[int, tuple[int, ...], Event]]:
        """Return the two ends of an arrow for each tensor that goes to another thread."""
        events = []
        for number, (source, target) in enumerate(self._arrows(), start=1):
            # An importer binds an arrow to the slice that is open at its time, and drops one that goes back in time.
            leave = max(self._start[source], self._end[source] - 1)
            arrive = self._start[target]
            if arrive < leave:  # only where clocks disagree or a consumer did not wait
                leave = arrive = max(self._start[source], arrive)
                if arrive > max(self._start[target], self._end[target] - 1):
                    continue
            if arrive == leave and target < source:  # both take no time: the importer would meet the end first
                continue
            common: Event = {"name": "dependency", "cat": "flow", "id": number}
            for ph, ts, span, phase in (("s", leave, source, _FLOW_START), ("f", arrive, target, _FLOW_END)):
                pid, tid = self._track[span]
                event = {**common, "ph": ph, "ts": _us(ts), "pid": pid, "tid": tid}
                events.append((ts, self._rank(span, phase), event | {"bp": "e"} if ph == "f" else event))
        return events

    def _arrows(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of spans: last kernel to copy, copy to first kernel, last kernel to first kernel."""
        trace, graph = self._trace, self._trace.graph
        kernels, copies = np.flatnonzero(trace.kind == KERNEL), np.flatnonzero(trace.kind == COPY)
        by_end = kernels[np.argsort(trace.end[kernels], kind="stable")]
        first, last = np.full(len(graph), -1), np.full(len(graph), -1)
        first[trace.op[kernels][::-1]] = kernels[::-1]  # of equal ones the last written stays
        last[trace.op[by_end]] = by_end
        op, to, row = trace.op[copies], trace.program.copies, trace.item[copies]
        keys = zip(op.tolist(), to.device[row].tolist(), to.nbytes[row].tolist(), strict=True)
        sent = grouped(zip(keys, copies.tolist(), strict=True))
        yield from ((source, i) for source, i in zip(last[op].tolist(), copies.tolist(), strict=True) if source >= 0)
        ran = (first[graph.src] >= 0) & (first[graph.dst] >= 0)
        src, dst, sizes = graph.src[ran].tolist(), graph.dst[ran].tolist(), graph.edge_nbytes[ran].tolist()
        seen: dict[tuple[int, int], None] = {}
        for u, v, nbytes in zip(src, dst, sizes, strict=True):
            source, target = int(last[u]), int(first[v])
            crosses = trace.device[source] != trace.device[target]
            fitting = sent.get((u, int(trace.device[target]), nbytes))
            if crosses and fitting:  # one copy per edge, or the last one for all edges that are left
                source = fitting.pop(0) if len(fitting) > 1 else fitting[0]
            if (source, target) not in seen and self._track[source] != self._track[target]:
                seen[source, target] = None
                yield source, target

    def _counters(self) -> Iterator[Event]:
        trace = self._trace
        for d, device in enumerate(trace.program.devices):
            curve = trace.load_curve(device)
            for name, values in (("SM", curve.sm), ("DRAM", curve.dram)):
                changes = np.r_[True, values[1:] != values[:-1]] & values.any()
                for time, value in zip(curve.time[changes].tolist(), values[changes].tolist(), strict=True):
                    # readers call the track by both names: "SM load"
                    event: Event = {"name": name, "ph": "C", "ts": _us(round(time * 1e3)), "pid": d + 1, "tid": d + 1}
                    yield event | {"args": {"load": value}}


def _us(ns: int) -> float:
    """Return whole nanoseconds in us, such that an importer that cuts off `1000 * us` gets them back."""
    us = ns / 1e3
    return us if int(us * 1e3) == ns else math.nextafter(us, math.inf)
