"""A CUDA that runs without a GPU, keeps the rules of the real one, and shows every order that streams allow.

Memory is numpy's, time is counted. What streams were given runs at random in any order that streams and events
allow, often as late as possible, so that a wait that is missing shows in what is computed. A call that CUDA would
refuse, or answer with garbage, raises `RuleBroken`, which is no error of CUDA and is not translated.
"""

import threading
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

import numpy as np

from hwbackend.cupy_interface import CudaDevice, Function
from simsched.base.units import MIB

H200 = CudaDevice("NVIDIA H200", "9.0", 132, 2048, 32, 65536, 233472, 232448, 1024, 141_000_000_000, 60 * MIB, 3)
KERNEL_NS = 10_000
COPY_NS = 3_000
HOST_NS = {"launch": 4_000, "record": 1_000, "wait": 1_000, "copy": 4_000, "copy_peer": 4_000, "launch_graph": 6_000}
_LAZY = 32 * MIB  # allocations that nobody looks into take no memory
_DURING_CAPTURE = (
    "malloc", "free", "fill", "write", "read", "synchronize", "synchronize_stream", "synchronize_event", "elapsed",
)  # fmt: skip


class RuleBroken(AssertionError):
    """A rule of CUDA was broken."""


def _refuse(broken: Any, text: str) -> None:
    if broken:
        raise RuleBroken(text)


class FakeError(RuntimeError):
    """An error as CuPy raises it: ``name: message``."""


@dataclass
class Allocation:
    base: int
    nbytes: int
    device: int
    data: Any
    alive: bool = True


@dataclass(eq=False)
class Record:
    """What one record of an event has come to."""

    capture: "Capture | None" = None
    tail: frozenset[int] = frozenset()
    done: bool = False
    time: int = 0


@dataclass(eq=False)
class Stream:
    device: int
    priority: int
    queue: deque[Any] = field(default_factory=deque)
    time: int = 0
    capture: "Capture | None" = None
    tail: frozenset[int] = frozenset()


@dataclass(eq=False)
class Event:
    device: int
    timing: bool
    last: Record | None = None


@dataclass(eq=False)
class Capture:
    """Nodes of a graph: what each does, how long it takes, and what it waits for."""

    origin: int
    thread: int
    nodes: list[tuple[Any, int, frozenset[int]]] = field(default_factory=list)
    behind: list[list[int]] = field(default_factory=list)

    def add(self, run: Any, duration: int, before: frozenset[int]) -> int:
        node = len(self.nodes)
        self.nodes.append((run, duration, before))
        self.behind.append([])
        for other in before:
            self.behind[other].append(node)
        return node

    def before(self, tail: frozenset[int]) -> set[int]:
        found: set[int] = set()
        todo = list(tail)
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo += self.nodes[node][2]
        return found


def _call(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method a call of the API: one at a time, written down, and failing when it is told to."""
    name = method.__name__.removeprefix("_")

    @wraps(method)
    def called(self: "FakeCuda", *arguments: Any) -> Any:
        with self._lock:
            self._enter(name, arguments)
            try:
                return method(self, *arguments)
            finally:
                self._leave(name)

    return called


class FakeCuda:
    """`hwbackend.cupy_interface.CudaApi` without a GPU.

    Parameters
    ----------
    gpus
        How many there are.
    rng
        Seed of the order in which streams go on.
    faults
        By call: which one of them fails, from 1 on, and the text of the error.
    sticky
        Whether every later call fails in the same way, as after a kernel has failed.
    kernels
        Further kernels, or others: called with the memory, arguments, and start and end in ns.
    skew
        ns by which the clock of each GPU is ahead.
    """

    def __init__(
        self, gpus: int = 1, rng: int = 0, *, faults: Mapping[str, tuple[int, str]] | None = None, sticky: bool = False,
        kernels: Mapping[str, Callable[..., None]] | None = None, skew: Sequence[int] = (),
        device: CudaDevice = H200,
    ) -> None:  # fmt: skip
        self._lock = threading.RLock()
        self._rng = np.random.default_rng(rng)
        self._faults, self._sticky, self._broken = dict(faults or {}), sticky, ""
        self._kernels = {**KERNELS, **(kernels or {})}
        self._found = (device,) * gpus
        self._skew = tuple(skew) or (0,) * gpus
        self._current: dict[int, int] = {}
        self._streams: dict[int, Stream] = {}
        self._events: dict[int, Event] = {}
        self._graphs: dict[int, Capture] = {}
        self._functions: dict[int, tuple[str, int]] = {}
        self._allocations: list[Allocation] = []
        self._bases: list[int] = []
        self._captures: list[Capture] = []
        self._next = 0x1000
        self._allowed: dict[int, int] = {}
        self.now = 1_000_000
        self.calls: list[tuple[Any, ...]] = []
        self.count: Counter[str] = Counter()

    # -- what tests ask

    @property
    def live(self) -> dict[str, int]:
        """What was made and not freed."""
        counts = {
            "streams": len(self._streams),
            "events": len(self._events),
            "graphs": len(self._graphs),
            "allocations": sum(a.alive for a in self._allocations),
        }
        return {what: n for what, n in counts.items() if n}

    # -- bookkeeping

    def _enter(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.calls.append((name, *arguments))
        self.count[name] += 1
        mine = [capture for capture in self._captures if capture.thread == threading.get_ident()]
        _refuse(mine and name in _DURING_CAPTURE, f"{name} during a capture")
        number, text = self._faults.get(name, (0, ""))
        if self._broken or self.count[name] == number:
            if self._sticky:
                self._broken = self._broken or text
                if name in ("free", "destroy_stream", "destroy_event", "destroy_graph"):
                    self._forget(name, arguments[0])
            raise FakeError(self._broken or text)
        self.now += HOST_NS.get(name, 500)

    def _leave(self, name: str) -> None:
        while self._rng.random() < 0.4 and self._step():
            pass

    def _forget(self, name: str, handle: int) -> None:
        if name == "free":
            self._allocation(handle).alive = False
        else:
            {"destroy_stream": self._streams, "destroy_event": self._events, "destroy_graph": self._graphs}[name].pop(
                handle
            )

    def _handle(self) -> int:
        self._next += 16
        return self._next

    def _device(self) -> int:
        thread = threading.get_ident()
        _refuse(thread not in self._current, "a thread that has set no device makes a call")
        return self._current[thread]

    def _stream(self, stream: int) -> Stream:
        if stream not in self._streams:
            raise RuleBroken("the default stream is used" if not stream else "a stream is used that was freed")
        return self._streams[stream]

    def _event(self, event: int) -> Event:
        _refuse(event not in self._events, "an event is used that was freed")
        return self._events[event]

    def _allocation(self, address: int) -> Allocation:
        at = bisect_right(self._bases, address) - 1
        _refuse(at < 0 or not self._allocations[at].alive, f"address {address:#x} is not allocated, or not any more")
        return self._allocations[at]

    def view(self, address: int, nbytes: int, device: int) -> Any:
        """Return memory as bytes; checked."""
        found = self._allocation(address)
        if address + nbytes > found.base + found.nbytes:
            raise RuleBroken(f"{nbytes} bytes at {address:#x} go beyond what was allocated")
        _refuse(found.device != device, f"memory of GPU {found.device} is accessed on GPU {device}")
        _refuse(found.data is None, "a buffer is read that is too large for this fake")
        return found.data[address - found.base : address - found.base + nbytes]

    # -- running what streams were given

    def _ready(self, stream: Stream) -> bool:
        if not stream.queue:
            return False
        kind, what, _ = stream.queue[0]
        return kind != "wait" or what.done

    def _step(self) -> bool:
        ready = [stream for stream in self._streams.values() if self._ready(stream)]
        if ready:
            self._advance(ready[self._rng.integers(len(ready))])
        return bool(ready)

    def _advance(self, stream: Stream) -> None:
        kind, what, issued = stream.queue.popleft()
        stream.time = max(stream.time, issued)
        if kind == "wait":
            stream.time = max(stream.time, what.time)
        elif kind == "record":
            what.done, what.time = True, stream.time
        elif kind == "graph":
            stream.time = self._run_graph(what, stream.time)
        else:
            run, duration = what
            run(stream.time, stream.time + duration)
            stream.time += duration

    def _run_graph(self, graph: Capture, begin: int) -> int:
        ends: dict[int, int] = {}
        missing = [len(before) for _, _, before in graph.nodes]
        ready = [node for node, n in enumerate(missing) if not n]
        while ready:
            node = ready.pop(self._rng.integers(len(ready)))
            run, duration, before = graph.nodes[node]
            start = max([begin, *(ends[d] for d in before)])
            run(start, start + duration)
            ends[node] = start + duration
            for other in graph.behind[node]:
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
        return max([begin, *ends.values()])

    def _drain(self, done: Callable[[], bool]) -> None:
        while not done():
            _refuse(not self._step(), "the device waits for ever")

    def _give(self, handle: int, run: Callable[[int, int], None], duration: int) -> None:
        stream = self._stream(handle)
        if stream.capture is None:
            stream.queue.append(("run", (run, duration), self.now))
        else:
            stream.tail = frozenset([stream.capture.add(run, duration, stream.tail)])

    # -- devices

    def devices(self) -> tuple[CudaDevice, ...]:
        return self._found

    def versions(self) -> Mapping[str, str]:
        return {"cupy": "14.2.0", "runtime": "12.9", "driver": "13.0", "connections": "32"}

    def clocks(self, device: int) -> str:
        return "1980 MHz"

    def host_ns(self) -> int:
        return self.now

    @_call
    def set_device(self, device: int) -> None:
        _refuse(not 0 <= device < len(self._found), f"there is no GPU {device}")
        self._current[threading.get_ident()] = device

    @_call
    def synchronize(self) -> None:
        device = self._device()
        here = [stream for stream in self._streams.values() if stream.device == device]
        self._drain(lambda: not any(stream.queue for stream in here))
        self.now = max([self.now, *(stream.time for stream in here)])

    @_call
    def enable_peer(self, device: int, peer: int) -> bool:
        self._current[threading.get_ident()] = device
        return True

    # -- memory

    @_call
    def malloc(self, nbytes: int) -> int:
        _refuse(nbytes <= 0, f"{nbytes} bytes are allocated")
        base, data = self._room(nbytes)
        at = bisect_right(self._bases, base)
        self._bases.insert(at, base)
        self._allocations.insert(at, Allocation(base, nbytes, self._device(), data))
        return base

    def _room(self, nbytes: int) -> tuple[int, Any]:
        """Return an address that was never given before, and what is there; None where it is large."""
        base = (self._bases[-1] + self._allocations[-1].nbytes if self._bases else 0x7F0000000000) + 4096
        return -(-base // 256) * 256, None if nbytes >= _LAZY else np.full(nbytes, 0xA5, np.uint8)

    @_call
    def free(self, address: int) -> None:
        found = self._allocation(address)
        _refuse(found.base != address, "an address is freed that was not allocated")
        self._drain(lambda: not any(s.queue for s in self._streams.values() if s.device == found.device))
        found.alive = False

    @_call
    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        device = self._stream(stream).device
        found = self._allocation(address)
        if found.data is None:
            return

        def run(start: int, end: int) -> None:
            self.view(address, nbytes, device)[:] = byte

        self._give(stream, run, COPY_NS)

    @_call
    def write(self, address: int, values: Any, stream: int) -> None:
        found = self._stream(stream)
        self._drain(lambda: not found.queue)
        self.view(address, values.nbytes, found.device)[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)

    @_call
    def read(self, address: int, values: Any, stream: int) -> None:
        found = self._stream(stream)
        self._drain(lambda: not found.queue)
        values.reshape(-1).view(np.uint8)[:] = self.view(address, values.nbytes, found.device)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> Callable[[], None]:
        return partial(self._copy, target, source, nbytes, stream)

    @_call
    def _copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        device = self._stream(stream).device
        self._give(stream, partial(self._move, (target, device), (source, device), nbytes), COPY_NS)

    def _move(self, target: tuple[int, int], source: tuple[int, int], nbytes: int, start: int, end: int) -> None:
        for address, device in (target, source):
            found = self._allocation(address)
            if found.data is None and found.device == device and address + nbytes <= found.base + found.nbytes:
                return  # nobody looks into it
        self.view(target[0], nbytes, target[1])[:] = self.view(source[0], nbytes, source[1])

    @_call
    def copy_peer(
        self, target: int, target_device: int, source: int, source_device: int, nbytes: int, stream: int
    ) -> None:
        _refuse(target_device == source_device, "a copy to a peer stays on one GPU")
        _refuse(self._stream(stream).device != source_device, "a copy is not on a stream of the GPU that it comes from")
        self._give(
            stream, partial(self._move, (target, target_device), (source, source_device), nbytes), COPY_NS
        )  # fmt: skip

    # -- streams and events

    @_call
    def stream(self, priority: int) -> int:
        _refuse(priority > 0, f"a stream has priority {priority}")
        handle = self._handle()
        self._streams[handle] = Stream(self._device(), priority)
        return handle

    @_call
    def destroy_stream(self, stream: int) -> None:
        found = self._stream(stream)
        self._drain(lambda: not found.queue)
        del self._streams[stream]

    @_call
    def synchronize_stream(self, stream: int) -> None:
        found = self._stream(stream)
        self._drain(lambda: not found.queue)
        self.now = max(self.now, found.time)

    @_call
    def event(self, timing: bool) -> int:
        handle = self._handle()
        self._events[handle] = Event(self._device(), timing)
        return handle

    @_call
    def destroy_event(self, event: int) -> None:
        self._event(event)
        del self._events[event]

    @_call
    def record(self, event: int, stream: int) -> None:
        found, on = self._event(event), self._stream(stream)
        _refuse(found.device != on.device, "an event is recorded on a stream of another GPU")
        found.last = record = Record(on.capture, on.tail)
        if on.capture is None:
            on.queue.append(("record", record, self.now))

    @_call
    def wait(self, stream: int, event: int) -> None:
        on, record = self._stream(stream), self._event(event).last
        _refuse(record is None, "a stream waits for an event that was never recorded: CUDA would not wait")
        if record.capture is not None and record.capture not in self._captures:
            raise RuleBroken("a stream waits for an event of a capture that has ended")
        if on.capture is not None and record.capture is not on.capture:
            raise RuleBroken("a captured stream waits for an event outside of its capture")
        if record.capture is not None:
            _refuse(on.capture is None and on.queue, "a stream with work of its own joins a capture")
            on.capture = record.capture
            on.tail |= record.tail
        else:
            on.queue.append(("wait", record, self.now))

    @_call
    def synchronize_event(self, event: int) -> None:
        record = self._event(event).last
        _refuse(record is None or record.capture is not None, "the host waits for an event that was not recorded")
        self._drain(lambda: record.done)
        self.now = max(self.now, record.time)

    @_call
    def elapsed(self, first: int, last: int) -> float:
        events = [self._event(first), self._event(last)]
        _refuse(events[0].device != events[1].device, "time is measured between events of two GPUs")
        for event in events:
            if not event.timing or event.last is None or not event.last.done:
                raise RuleBroken("time is measured with an event that keeps none, or has not run")
        records = [event.last for event in events if event.last is not None]
        return (records[1].time - records[0].time) / 1e3

    # -- kernels

    @_call
    def compile(self, source: str, names: Sequence[str], options: Sequence[str]) -> dict[str, Function]:
        found = {}
        for name in names:
            handle = self._handle()
            self._functions[handle] = name, self._device()
            found[name] = Function(name, handle, 40 + len(name), 16)
        return found

    @_call
    def allow_shared_memory(self, function: Function, nbytes: int) -> None:
        if nbytes > self._found[0].shared_memory_per_block:
            raise FakeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        self._allowed[function.handle] = nbytes

    def launcher(
        self, function: Function, grid: Any, block: Any, shared_memory: int, stream: int, arguments: Sequence[Any]
    ) -> Callable[[], None]:
        assert len(grid) == len(block) == 3
        assert all(isinstance(argument, np.uint64 | np.int32 | np.float32) for argument in arguments)
        return partial(self._launch, function, grid, block, shared_memory, stream, tuple(arguments))

    def _launch(
        self, function: Function, grid: Any, block: Any, shared_memory: int, stream: int, arguments: tuple[Any, ...]
    ) -> None:
        with self._lock:
            self._enter("launch", (function.name, grid, block, stream))
            name, device = self._functions[function.handle]
            if not self._stream(stream).device == device == self._device():
                raise RuleBroken(f"{name}: kernel, stream and thread are not on one GPU")
            if shared_memory > self._allowed.get(function.handle, 48 * 1024):
                raise FakeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
            kernel = self._kernels[name]
            memory, skew = Memory(self, device, grid, block), self._skew[device]

            def run(start: int, end: int) -> None:
                kernel(memory, arguments, start + skew, end + skew)

            self._give(stream, run, 1000 if name == "stamp" else KERNEL_NS)
            self._leave("launch")

    # -- graphs

    @_call
    def begin_capture(self, stream: int) -> None:
        found = self._stream(stream)
        _refuse(found.capture is not None, "a stream is captured twice")
        self._drain(lambda: not found.queue)
        found.capture = capture = Capture(stream, threading.get_ident())
        self._captures.append(capture)

    @_call
    def end_capture(self, stream: int) -> int:
        capture, streams = self._ended(stream)
        joined = capture.before(self._streams[stream].tail)
        loose = [other for other in streams if not capture.before(other.tail) <= joined]
        for other in streams:
            other.tail = frozenset()
        if loose:
            raise FakeError("cudaErrorStreamCaptureUnjoined: capturing stream has unjoined work")
        handle = self._handle()
        self._graphs[handle] = capture
        return handle

    def _ended(self, stream: int) -> tuple[Capture, list[Stream]]:
        capture = self._stream(stream).capture
        _refuse(capture is None or capture.origin != stream, "a capture ends that did not begin on this stream")
        self._captures.remove(capture)
        streams = [other for other in self._streams.values() if other.capture is capture]
        for other in streams:
            other.capture = None
        return capture, streams

    def abandon_capture(self, stream: int) -> None:
        if self._streams[stream].capture is not None:
            for other in self._ended(stream)[1]:
                other.tail = frozenset()

    @_call
    def upload_graph(self, graph: int, stream: int) -> None:
        assert graph in self._graphs
        self._stream(stream)

    @_call
    def launch_graph(self, graph: int, stream: int) -> None:
        _refuse(graph not in self._graphs, "a graph is launched that was freed")
        _refuse(self._stream(stream).device != self._device(), "a graph is launched on a stream of another GPU")
        self._stream(stream).queue.append(("graph", self._graphs[graph], self.now))

    @_call
    def destroy_graph(self, graph: int) -> None:
        del self._graphs[graph]


@dataclass
class Memory:
    """What a kernel sees of the memory of its GPU, and the size of its grid."""

    api: FakeCuda
    device: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    def floats(self, address: Any, n: int) -> Any:
        return self.api.view(int(address), 4 * int(n), self.device).view(np.float32)

    def words(self, address: Any, n: int) -> Any:
        return self.api.view(int(address), 8 * int(n), self.device).view(np.uint64)

    def stamp(self, address: Any, start: int, end: int) -> None:
        if address:
            words = self.words(address, 2)
            words[0], words[1] = min(int(words[0]), start), max(int(words[1]), end)


def synth(memory: Memory, arguments: tuple[Any, ...], start: int, end: int) -> None:
    """The output of ``synth`` in ``kernels.cu``, on numpy."""
    reads, n_reads, constant, y, size = arguments[:5]
    offset = memory.floats(constant, 1)[0]
    total = np.zeros(size, np.float32)
    entries = memory.words(reads, 2 * n_reads) if n_reads else ()
    for k in range(n_reads):
        n = int(entries[2 * k + 1])
        total += memory.floats(entries[2 * k], n)[np.arange(size) % n]
    memory.floats(y, size)[:] = offset + (np.float32(0.5 / n_reads) * total if n_reads else 0)
    memory.stamp(arguments[10], start, end)


def affine(memory: Memory, arguments: tuple[Any, ...], start: int, end: int) -> None:
    """``affine`` in ``kernels.cu`` with relu or nothing."""
    x, scale, shift, y, n, _, channels, inner, times, activation, stamps = arguments
    value = times * memory.floats(x, n)
    channel = np.arange(n) // inner % channels
    if scale:
        value = value * memory.floats(scale, channels)[channel]
    if shift:
        value = value + memory.floats(shift, channels)[channel]
    memory.floats(y, n)[:] = np.where(value < 0, 0, value) if activation == 1 else value
    memory.stamp(stamps, start, end)


def combine(memory: Memory, arguments: tuple[Any, ...], start: int, end: int) -> None:
    """``combine`` in ``kernels.cu`` with sum and no activation."""
    reads, n_reads, y, n, _, operation, _, stamps = arguments
    assert operation == 0
    memory.floats(y, n)[:] = sum(memory.floats(address, n) for address in memory.words(reads, n_reads))
    memory.stamp(stamps, start, end)


def stamp(memory: Memory, arguments: tuple[Any, ...], start: int, end: int) -> None:
    """``stamp`` of `hwbackend.cupy_streams`."""
    memory.words(arguments[0], 1)[0] = end


KERNELS = {"synth": synth, "affine": affine, "combine": combine, "stamp": stamp}
