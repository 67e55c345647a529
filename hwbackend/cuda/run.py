"""One program made ready on GPUs: run it, time it, trace it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from hwbackend.cuda.buffers import Buffers
from hwbackend.cuda.errors import quietly
from hwbackend.cuda.hosts import Hosts
from hwbackend.cuda.interface import Call, CudaApi, Function
from hwbackend.cuda.operators import Launched, Numbers, Values
from hwbackend.cuda.streams import Streams
from hwbackend.executor.capture import issue_within
from hwbackend.executor.lanes import Lane
from simsched.base.errors import BackendError
from simsched.base.signals import without_collector
from simsched.model.program import COPY, LAUNCH, Program

Times = npt.NDArray[np.float64]
_UNSET: Final = 2**64 - 1
_NS: Final = 1e-3  # us in a ns


class Run:
    """A program made ready to run; a context manager that frees streams, events, graphs and memory, also after errors.

    Parameters
    ----------
    api
        Calls of CUDA.
    program, launched, numbers
        What runs, and on which numbers.
    physical
        The GPU of each of the program's devices.
    functions
        Compiled kernels of each GPU by name.
    cold_nbytes
        Bytes that are written on each device before each timed run, to leave nothing else in its caches; 0 for none.

    Notes
    -----
    *Latency* is the device time from an event that is recorded before the first instruction to the last of those that
    are recorded behind the work of the streams that may end last (through the first stream, where one is on another
    GPU). *Spans* come from runs of their own, in which kernels write the time at which they begin and end, and copies
    stand between two kernels that write the time; the host begins when such a kernel runs ahead of the first
    instruction. The clock that they read ticks once in up to 1 us, by GPU.

    A graph is captured once with stamps and once without, from a first stream that every other one is forked from and
    joined to.
    """

    def __init__(
        self,
        api: CudaApi,
        program: Program,
        launched: Sequence[Launched],
        numbers: Numbers,
        *,
        physical: Sequence[int],
        functions: Mapping[int, Mapping[str, Function]],
        cold_nbytes: int = 0,
    ) -> None:
        self._api, self._program, self._physical = api, program, physical
        self._launched, self._numbers = launched, numbers
        self._functions = [functions[device] for device in physical]
        self._streams = Streams(api, program, physical)
        self._buffers = Buffers(api, program, launched, physical, cold_nbytes)
        self._hosts = Hosts(len(program.thread_ptr) - 1, tuple(self._streams.gates.values()))
        self._origin: Lane = self._streams.lanes[0]
        self._stack = ExitStack()
        self._begin = -1
        self._ends: list[int] = []
        self._joins: list[int] = []  # events on other GPUs, behind which the last of `_ends` is recorded
        self._plain: list[list[Call]] = []
        self._traced: list[list[Call]] = []

    def __enter__(self) -> "Run":
        with ExitStack() as stack:
            for part in (self._buffers, self._streams, self._hosts):
                stack.enter_context(part)
            stack.callback(quietly, self._synchronize)  # before anything is freed that may be in use
            self._buffers.fill(self._numbers)
            self._begin = self._streams.event(self._origin[0], timing=True)
            self._plain = self._issue_calls(stack, traced=False)
            self._end()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _issue_calls(self, stack: ExitStack, *, traced: bool) -> list[list[Call]]:
        """Return the calls of each host thread; a graph has one call, which launches it."""
        calls = self._streams.calls(self._buffers, self._launched, self._functions, traced=traced)
        if self._program.execution != "graph":
            return calls
        api, stream = self._api, self._streams.stream[self._origin]
        graph = self._capture(calls[0])
        stack.callback(quietly, api.destroy_graph, graph)
        api.upload_graph(graph, stream)
        self._synchronize()
        return [[self._on(self._origin), partial(api.launch_graph, graph, stream)]]

    def _capture(self, calls: Sequence[Call]) -> int:
        """Return a graph of what the calls give to the streams."""
        api, streams = self._api, self._streams
        origin, others = streams.stream[self._origin], streams.lanes[1:]
        events = [streams.event(lane[0], timing=False) for lane in (self._origin, *others)]
        lane_of = {streams.stream[lane]: lane for lane in others}

        def body() -> None:
            for call in calls:
                call()

        self._on(self._origin)()
        api.begin_capture(origin)
        try:
            issue_within(api, origin, list(lane_of), events, body, lambda stream: self._on(lane_of[stream])())
            self._on(self._origin)()
            return api.end_capture(origin)
        except BaseException:
            quietly(api.abandon_capture, origin)
            raise

    def _end(self) -> None:
        """Let each host thread record events behind the streams that may end last, the one it used last first."""
        streams, gpu = self._streams, self._physical[self._origin[0]]
        used: dict[Lane, int] = {self._origin: 0}
        if self._program.execution != "graph":
            used = streams.ends
        for lane, thread in used.items():
            same = self._physical[lane[0]] == gpu
            event = streams.event(lane[0], timing=same)
            self._plain[thread] += [self._on(lane), partial(self._api.record, event, streams.stream[lane])]
            if same:
                self._ends.append(event)
            else:
                self._joins.append(event)
        if self._joins:
            self._ends.append(streams.event(self._origin[0], timing=True))

    def _on(self, lane: Lane) -> Call:
        return partial(self._api.set_device, self._physical[lane[0]])

    def _synchronize(self) -> None:
        """Wait for all GPUs."""
        for device in dict.fromkeys(self._physical[device] for device in self._buffers.devices):
            self._api.set_device(device)
            self._api.synchronize()

    def once(self) -> float:
        """Run the program and return its latency in us."""
        api, stream = self._api, self._streams.stream[self._origin]
        self._hosts.run([self._on(self._origin), partial(api.record, self._begin, stream)], self._plain)
        if self._joins:
            self._on(self._origin)()
            for event in self._joins:
                api.wait(stream, event)
            api.record(self._ends[-1], stream)
        self._synchronize()
        return max(api.elapsed(self._begin, end) for end in self._ends)

    def outputs(self) -> Iterator[tuple[int, str, Values]]:
        """Run on buffers full of NaN; yield operator, device and output, in the order of the graph."""
        self._buffers.poison()
        self.once()
        number = {name: i for i, name in enumerate(self._program.graph.names)}
        for name in self._program.graph.order:
            for device, values in self._buffers.outputs(number[name]):
                yield number[name], self._program.devices[device], values

    def latencies(self, repeats: int, warmup: int) -> list[float]:
        """Return the us of each of `repeats` runs, after `warmup` others."""
        found = []
        with without_collector():
            for _ in range(warmup + repeats):
                self._buffers.evict()
                found.append(self.once())
        return found[warmup:]

    def spans(self, repeats: int, offsets: Mapping[int, int]) -> tuple[Times, Times]:
        """Return start and end in us of launches and copies, each the median of `repeats` runs.

        Parameters
        ----------
        offsets
            By how many ns the clock of each GPU is ahead.
        """
        if not self._traced:
            self._traced = self._issue_calls(self._stack, traced=True)
        device = self._origin[0]
        word = self._buffers.devices[device].stamps["begin"]
        begin = [self._on(self._origin), self._streams.stamp(self._functions[device], self._origin, word)]
        found = []
        with without_collector():
            for i in range(1 + repeats):  # the first one warms up what was not run yet
                self._buffers.reset_stamps()
                self._buffers.evict()
                self._hosts.run(begin, self._traced)
                self._synchronize()
                if i:
                    found.append(self._read_spans(offsets))
        launches, copies = (np.median([run[k] for run in found], axis=0).reshape(-1, 2) for k in (0, 1))
        return launches, copies

    def _read_spans(self, offsets: Mapping[int, int]) -> tuple[Times, Times]:
        program, buffers = self._program, self._buffers
        ahead = {device: offsets[self._physical[device]] for device in buffers.devices}
        words = {device: buffers.read_stamps(device) for device in buffers.devices}
        origin = self._origin[0]
        zero = words[origin]("begin")[0] - ahead[origin]

        def span(device: int, action: int, row: int, op: int) -> tuple[float, float]:
            first, last = words[device]((action, row))
            if first == _UNSET or last == 0:
                raise BackendError(f"operator {program.graph.names[op]!r}: what it launched left no time stamps")
            start, end = ((word - ahead[device] - zero) * _NS for word in (first, last))
            return max(0.0, start), max(0.0, start, end)

        ops = program.launches.op.tolist()
        launches = [
            span(device, LAUNCH, row, op)
            for row, (device, op) in enumerate(zip(buffers.launch_device, ops, strict=True))
        ]
        copies = [span(buffers.home[op], COPY, row, op) for row, op in enumerate(program.copies.op.tolist())]
        return np.array(launches).reshape(-1, 2), np.array(copies).reshape(-1, 2)
