"""Streams and events of one program, and the calls that issue it."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import numpy as np

from hwbackend.cuda.buffers import Buffers
from hwbackend.cuda.errors import quietly
from hwbackend.cuda.interface import Call, CudaApi, Function
from hwbackend.cuda.kernels.launches import CudaLaunch
from hwbackend.cuda.operators import Launched
from hwbackend.executor.issue import issue
from hwbackend.executor.lanes import Lane, crossing_events, ends_of, priorities_of, threads_of
from simsched.base.errors import BackendError
from simsched.model.program import COPY, LAUNCH, RECORD, Program

STAMP: Final = "stamp"
STAMP_SOURCE: Final = """
// The time now, in ns: around copies, which cannot stamp themselves.
extern "C" __global__ void stamp(unsigned long long* word) {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    *word = time;
}
"""

_DEFAULT_SHARED_MEMORY: Final = 48 * 1024
_STAMP_THREADS: Final = 1
_ONE: Final = (1, 1, 1)


class Streams:
    """Streams and events of a program on all devices that it uses; a context manager that frees them.

    Parameters
    ----------
    api
        Calls of CUDA.
    program
        What is to run.
    physical
        The GPU of each of the program's devices.

    Attributes
    ----------
    lanes
        (device, stream) of every stream in use, in the order in which instructions first name them.
    ends
        Those whose work may end last, each with the host thread that names it last, in the order in which they are
        last named, backwards.
    gates
        Set when the record of an event is issued that another host thread waits for.

    Notes
    -----
    The priority of a stream is the most urgent among its operators, as `priorities_of` numbers them.
    """

    def __init__(self, api: CudaApi, program: Program, physical: Sequence[int]) -> None:
        self.api, self.program, self.physical = api, program, physical
        self._stack = ExitStack()
        self._priority = priorities_of(program)
        self.lanes: tuple[Lane, ...] = tuple(self._priority)
        self.ends = ends_of(program)
        self.gates: Mapping[int, threading.Event] = {event: threading.Event() for event in crossing_events(program)}
        self.stream: dict[Lane, int] = {}
        self.events: dict[int, int] = {}
        self._allowed: dict[int, int] = {}  # bytes of shared memory that a launch of a function may ask for

    def __enter__(self) -> "Streams":
        api, program = self.api, self.program
        try:
            for lane in self.lanes:
                api.set_device(self.physical[lane[0]])
                self.stream[lane] = stream = api.stream(self._priority[lane])
                self._stack.callback(quietly, api.destroy_stream, stream)
            for row in np.flatnonzero(program.action == RECORD).tolist():
                self.events[int(program.argument[row])] = self.event(int(program.device[row]), timing=False)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def event(self, device: int, timing: bool) -> int:
        """Make an event on a device, which is freed with the rest."""
        self.api.set_device(self.physical[device])
        event = self.api.event(timing)
        self._stack.callback(quietly, self.api.destroy_event, event)
        return event

    def calls(
        self,
        buffers: Buffers,
        launched: Sequence[Launched],
        functions: Sequence[Mapping[str, Function]],
        *,
        traced: bool,
    ) -> list[list[Call]]:
        """Return for each host thread the calls that issue its instructions, in order.

        Parameters
        ----------
        functions
            Compiled kernels by name, for each of the program's devices.
        traced
            Whether kernels write stamps, and kernels that do are launched around each copy.
        """
        lists = _CallLists(self, buffers, launched, functions, traced=traced)
        issue(self.program, threads_of(self.program), lists)
        return lists.calls

    def launch_call(
        self,
        buffers: Buffers,
        launched: Sequence[Launched],
        functions: Mapping[str, Function],
        lane: Lane,
        row: int,
        traced: bool,
    ) -> Call:
        """Return the call that launches a row of the program's launches."""
        program, here = self.program, buffers.devices[lane[0]]
        op = int(program.launches.op[row])
        launch = launched[op].launches[int(program.launches.kernel[row])]
        stamps = here.stamps[LAUNCH, row] if traced else 0
        arguments = [here.address(op, argument, stamps) for argument in launch.arguments]
        function = functions[launch.kernel]
        self._allow(function, launch, lane[0], program.graph.names[op])
        return self.api.launcher(
            function, launch.grid, launch.block, launch.shared_memory, self.stream[lane], arguments
        )

    def _allow(self, function: Function, launch: CudaLaunch, device: int, name: str) -> None:
        least = _DEFAULT_SHARED_MEMORY - function.shared_memory
        if launch.shared_memory <= self._allowed.get(function.handle, least):
            return  # what was allowed to an earlier launch must stay so
        self.api.set_device(self.physical[device])
        try:
            self.api.allow_shared_memory(function, launch.shared_memory)
        except RuntimeError as error:
            raise BackendError(
                f"operator {name!r}: {launch.shared_memory} bytes of shared memory are more than a block can have here"
            ) from error
        self._allowed[function.handle] = launch.shared_memory

    def copy_calls(
        self, buffers: Buffers, functions: Mapping[str, Function], lane: Lane, row: int, traced: bool
    ) -> list[Call]:
        """Return the calls of a row of the program's copies."""
        api, device, stream = self.api, lane[0], self.stream[lane]
        op, target = int(self.program.copies.op[row]), int(self.program.copies.device[row])
        here, there = buffers.devices[device], buffers.devices[target]
        moved = [(there.outputs[op], here.outputs[op], buffers.copied[row])]
        if buffers.padded[row]:
            moved.insert(0, (there.padding["padding"], here.padding["padding"], buffers.padded[row]))
        ends = self.physical[target], self.physical[device]
        calls: list[Call] = []
        for to, source, nbytes in moved:
            if ends[0] == ends[1]:
                calls.append(api.copy(to, source, nbytes, stream))
            else:
                calls.append(partial(api.copy_peer, to, ends[0], source, ends[1], nbytes, stream))
        if not traced:
            return calls
        words = here.stamps[COPY, row]
        return [self.stamp(functions, lane, words), *calls, self.stamp(functions, lane, words + 8)]

    def stamp(self, functions: Mapping[str, Function], lane: Lane, word: int) -> Call:
        """Return the call that launches a kernel which writes the time."""
        return self.api.launcher(
            functions[STAMP], _ONE, (_STAMP_THREADS, 1, 1), 0, self.stream[lane], [np.uint64(word)]
        )


class _CallLists:
    """A driver that writes the calls of each host thread, which are made later and at the same time.

    A thread that waits for an event of another is held at a gate until that record is issued; barriers and host syncs
    are calls that block.
    """

    def __init__(
        self,
        streams: Streams,
        buffers: Buffers,
        launched: Sequence[Launched],
        functions: Sequence[Mapping[str, Function]],
        *,
        traced: bool,
    ) -> None:
        self.thread = 0
        n_threads = len(streams.program.thread_ptr) - 1
        self.calls: list[list[Call]] = [[] for _ in range(n_threads)]
        self._current = [-1] * n_threads
        self._streams, self._api = streams, streams.api
        self._buffers, self._launched, self._functions, self._traced = buffers, launched, functions, traced

    def launch(self, row: int, device: int, stream: int) -> None:
        self._add(
            device,
            self._streams.launch_call(
                self._buffers, self._launched, self._functions[device], (device, stream), row, self._traced
            ),
        )

    def record(self, event: int, device: int, stream: int) -> None:
        streams = self._streams
        self._add(device, partial(self._api.record, streams.events[event], streams.stream[device, stream]))
        if event in streams.gates:
            self._add(device, streams.gates[event].set)

    def wait(self, event: int, device: int, stream: int) -> None:
        streams = self._streams
        self._hold(event, device)
        self._add(device, partial(self._api.wait, streams.stream[device, stream], streams.events[event]))

    def copy(self, row: int, device: int, stream: int) -> None:
        functions = self._functions[device]
        for call in self._streams.copy_calls(self._buffers, functions, (device, stream), row, self._traced):
            self._add(device, call)

    def is_drained(self, device: int, lanes: Sequence[Lane]) -> bool:
        for lane in lanes:
            self._add(device, partial(self._api.synchronize_stream, self._streams.stream[lane]))
        return True

    def has_passed(self, event: int) -> bool:
        self._hold(event, None)
        self._add(None, partial(self._api.synchronize_event, self._streams.events[event]))
        return True

    def _hold(self, event: int, device: int | None) -> None:
        if event in self._streams.gates:
            self._add(device, self._streams.gates[event].wait)

    def _add(self, device: int | None, call: Call) -> None:
        """Add a call for the GPU of a device; None for a call that concerns whichever is current."""
        calls = self.calls[self.thread]
        if device is not None:
            physical = self._streams.physical[device]
            if self._current[self.thread] != physical:
                self._current[self.thread] = physical
                calls.append(partial(self._api.set_device, physical))
        calls.append(call)
