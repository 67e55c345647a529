"""Streams and events of one program, and the calls that issue it."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import numpy as np

from hwbackend.cuda.buffers import Buffers
from hwbackend.cuda.errors import quietly
from hwbackend.cuda.hosts import crossing_events, thread_of_rows
from hwbackend.cuda.interface import Call, CudaApi, Function
from hwbackend.cuda.operators import Launched
from hwbackend.kernels.launches import CudaLaunch
from simsched.base.errors import BackendError
from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Program

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
Lane = tuple[int, int]


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
    The priority of a stream is the most urgent among its operators; those that differ are numbered from 0, the
    least urgent, downwards, and CUDA takes as many as it has.
    """

    def __init__(self, api: CudaApi, program: Program, physical: Sequence[int]) -> None:
        self._api, self._program, self._physical = api, program, physical
        self._stack = ExitStack()
        rows = zip(program.action.tolist(), program.device.tolist(), program.stream.tolist(), strict=True)
        found: dict[Lane, int | None] = {}
        priority = program.priority[program.launches.op].tolist()
        for (action, device, stream), argument in zip(rows, program.argument.tolist(), strict=True):
            if stream < 0:
                continue
            lane = device, stream
            least = found.setdefault(lane, None)
            if action == LAUNCH:
                found[lane] = priority[argument] if least is None else min(least, priority[argument])
        self.lanes: tuple[Lane, ...] = tuple(found)
        levels = sorted({level for level in found.values() if level is not None}, reverse=True)
        self._priority = {lane: -levels.index(level) if level is not None else 0 for lane, level in found.items()}
        self.ends = _ends(program)
        self.gates: Mapping[int, threading.Event] = {event: threading.Event() for event in crossing_events(program)}
        self.stream: dict[Lane, int] = {}
        self._event: dict[int, int] = {}
        self._allowed: dict[int, int] = {}  # bytes of shared memory that a launch of a function may ask for

    def __enter__(self) -> "Streams":
        api, program = self._api, self._program
        try:
            for lane in self.lanes:
                api.set_device(self._physical[lane[0]])
                self.stream[lane] = stream = api.stream(self._priority[lane])
                self._stack.callback(quietly, api.destroy_stream, stream)
            for row in np.flatnonzero(program.action == RECORD).tolist():
                self._event[int(program.argument[row])] = self.event(int(program.device[row]), timing=False)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def event(self, device: int, timing: bool) -> int:
        """Make an event on a device, which is freed with the rest."""
        self._api.set_device(self._physical[device])
        event = self._api.event(timing)
        self._stack.callback(quietly, self._api.destroy_event, event)
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
        api, program = self._api, self._program
        lists: list[list[Call]] = [[] for _ in range(len(program.thread_ptr) - 1)]
        current = [-1] * len(lists)
        undrained: dict[int, dict[Lane, None]] = {}
        columns = (program.action, program.device, program.stream, program.argument)
        for thread, action, device, number, argument in zip(
            thread_of_rows(program), *(column.tolist() for column in columns), strict=True
        ):
            calls, lane = lists[thread], (device, number)
            physical = self._physical[device]
            if current[thread] != physical:
                current[thread] = physical
                calls.append(partial(api.set_device, physical))
            if action == LAUNCH:
                calls.append(self._launch(buffers, launched, functions[device], lane, argument, traced))
                undrained.setdefault(device, {})[lane] = None
            elif action == RECORD:
                calls.append(partial(api.record, self._event[argument], self.stream[lane]))
                if argument in self.gates:
                    calls.append(self.gates[argument].set)
            elif action in (WAIT, SYNC):
                if argument in self.gates:
                    calls.append(self.gates[argument].wait)
                event = self._event[argument]
                calls.append(
                    partial(api.wait, self.stream[lane], event)
                    if action == WAIT
                    else partial(api.synchronize_event, event)
                )
            elif action == COPY:
                calls += self._copy(buffers, functions[device], lane, argument, traced)
            else:  # streams that were idle since the last barrier are drained
                calls += [partial(api.synchronize_stream, self.stream[lane]) for lane in undrained.pop(device, {})]
        return lists

    def _launch(
        self,
        buffers: Buffers,
        launched: Sequence[Launched],
        functions: Mapping[str, Function],
        lane: Lane,
        row: int,
        traced: bool,
    ) -> Call:
        program, here = self._program, buffers.devices[lane[0]]
        op = int(program.launches.op[row])
        launch = launched[op].launches[int(program.launches.kernel[row])]
        stamps = here.stamps[LAUNCH, row] if traced else 0
        arguments = [here.address(op, argument, stamps) for argument in launch.arguments]
        function = functions[launch.kernel]
        self._allow(function, launch, lane[0], program.graph.names[op])
        return self._api.launcher(
            function, launch.grid, launch.block, launch.shared_memory, self.stream[lane], arguments
        )

    def _allow(self, function: Function, launch: CudaLaunch, device: int, name: str) -> None:
        least = _DEFAULT_SHARED_MEMORY - function.shared_memory
        if launch.shared_memory <= self._allowed.get(function.handle, least):
            return  # what was allowed to an earlier launch must stay so
        self._api.set_device(self._physical[device])
        try:
            self._api.allow_shared_memory(function, launch.shared_memory)
        except RuntimeError as error:
            raise BackendError(
                f"operator {name!r}: {launch.shared_memory} bytes of shared memory are more than a block can have here"
            ) from error
        self._allowed[function.handle] = launch.shared_memory

    def _copy(
        self, buffers: Buffers, functions: Mapping[str, Function], lane: Lane, row: int, traced: bool
    ) -> list[Call]:
        api, device, stream = self._api, lane[0], self.stream[lane]
        op, target = int(self._program.copies.op[row]), int(self._program.copies.device[row])
        here, there = buffers.devices[device], buffers.devices[target]
        moved = [(there.outputs[op], here.outputs[op], buffers.copied[row])]
        if buffers.padded[row]:
            moved.insert(0, (there.padding["padding"], here.padding["padding"], buffers.padded[row]))
        ends = self._physical[target], self._physical[device]
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
        return self._api.launcher(
            functions[STAMP], _ONE, (_STAMP_THREADS, 1, 1), 0, self.stream[lane], [np.uint64(word)]
        )


def _ends(program: Program) -> dict[Lane, int]:
    """Return the streams that `Streams.ends` names, each with its host thread.

    What ends last is on a stream behind whose last work nothing waits that has work after it. Events behind the others
    would only cost time: a host that is behind the device records them when all has run. Where several host threads
    name one stream, which no lowered schedule does, all streams are taken. O(V + E), and the streams for each barrier.
    """
    lanes: list[Lane] = list(zip(program.device.tolist(), program.stream.tolist(), strict=True))
    rows = list(zip(program.action.tolist(), lanes, thread_of_rows(program), program.argument.tolist(), strict=True))
    work: dict[Lane, int] = {}  # row of the last launch or copy of a stream
    busy: dict[int, int] = {}  # likewise of a host thread
    recorded: dict[int, int] = {}
    for row, (action, lane, thread, argument) in enumerate(rows):
        if action in (LAUNCH, COPY):
            work[lane] = busy[thread] = row
        elif action == RECORD:
            recorded[argument] = row
    last_named = {lane: thread for _, lane, thread, _ in rows}
    shared = any(last_named[lane] != thread for _, lane, thread, _ in rows if lane[1] >= 0)

    waited_for: set[Lane] = set()
    for row, (action, lane, thread, argument) in enumerate(rows):
        if shared or (work.get(lane, -1) if action == WAIT else busy.get(thread, -1)) < row:
            continue
        if action in (WAIT, SYNC):
            before = recorded[argument]
            if work.get(lanes[before], before) < before:
                waited_for.add(lanes[before])
        elif action == BARRIER:
            waited_for.update(
                other
                for other, last in work.items()
                if last < row and rows[last][:3:2] == (LAUNCH, thread) and other[0] == lane[0]
            )

    found: dict[Lane, int] = {}
    for _, lane, thread, _ in reversed(rows):
        if lane in work and lane not in waited_for:
            found.setdefault(lane, thread)
    return found
