"""A CUDA that runs without a GPU, keeps the rules of the real one, and shows every order that streams allow.

Memory is numpy's, time is counted. What streams were given runs at random in any order that streams and events
allow, often as late as possible, so that a wait that is missing shows in what is computed. A call that CUDA would
refuse, or answer with garbage, raises `RuleBroken`, which is no error of CUDA and is not translated.
"""

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial, wraps

import numpy as np

from hwbackend.cuda.backend import CupyBackend
from hwbackend.cuda.interface import CudaApi, CudaDevice, Function
from hwbackend.cuda.kernels.sources import KERNEL_NAMES, KERNEL_RESOURCES
from simsched.base.units import MIB

H200 = CudaDevice("NVIDIA H200", "9.0", 132, 2048, 32, 65536, 233472, 232448, 1024, 141_000_000_000, 60 * MIB, 3)
KERNEL_NS = 10_000
COPY_NS = 3_000
HOST_NS = {"launch": 4_000, "record": 1_000, "wait": 1_000, "copy": 4_000, "copy_peer": 4_000, "launch_graph": 6_000}
_LAZY = 32 * MIB  # allocations that nobody looks into take no memory
_SHARED_MEMORY = 48 * 1024  # of a block that was not allowed more
_MADE = {"malloc": "allocations", "stream": "streams", "event": "events", "end_capture": "graphs"}
_FREED = {"free": "allocations", "destroy_stream": "streams", "destroy_event": "events", "destroy_graph": "graphs"}
_NOT_CAPTURED = {
    "malloc",
    "free",
    "fill",
    "write",
    "read",
    "synchronize",
    "synchronize_stream",
    "synchronize_event",
    "elapsed",
    "query",
}


class RuleBroken(AssertionError):
    """A rule of CUDA was broken."""


def _refuse(broken, text):
    if broken:
        raise RuleBroken(text)


class FakeError(RuntimeError):
    """An error as CuPy raises it: ``name: message``."""


@dataclass
class Allocation:
    base: int
    nbytes: int
    device: int
    data: object
    alive: bool = True


@dataclass(eq=False)
class Record:
    """What one record of an event has come to."""

    capture: object = None
    tail: frozenset = frozenset()
    done: bool = False
    time: int = 0


@dataclass(eq=False)
class Stream:
    device: int
    priority: int
    queue: deque = field(default_factory=deque)
    time: int = 0
    capture: object = None
    tail: frozenset = frozenset()


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
    nodes: list = field(default_factory=list)
    direct: list = field(default_factory=list)  # what each node was given after, without what that waits for

    def add(self, run, duration, tail):
        self.direct.append(tail)
        self.nodes.append((run, duration, self.up_to(tail)))
        return len(self.nodes) - 1

    def up_to(self, tail):
        """Nodes, and all that they wait for."""
        return tail.union(*(self.nodes[node][2] for node in tail))


def _call(method):
    """Have a method be made one at a time, written down, and fail when it is told to."""
    name = method.__name__.removeprefix("_")

    @wraps(method)
    def called(self, *arguments):
        with self.lock:
            self._enter(name, arguments)
            try:
                found = method(self, *arguments)
                self._live[_MADE.get(name)] += 1
                return found
            finally:
                while self._rng.random() < 0.4 and self._step():
                    pass

    return called


def _calls(fake):
    """Make what a fake does for CUDA calls; of copies and launches what is returned is one."""
    plain = {"devices", "versions", "clocks", "host_ns", "copy", "launcher", "abandon_capture"}
    for name in {"_copy", "_launch", "query", *(name for name in vars(CudaApi) if name[0] != "_")} - plain:
        setattr(fake, name, _call(vars(fake)[name]))
    return fake


@_calls
class FakeCuda:
    """`hwbackend.cuda.interface.CudaApi` without a GPU.

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

    def __init__(self, gpus=1, rng=0, *, faults=(), sticky=False, kernels=(), skew=(), device=H200):
        self.lock = threading.RLock()
        self._rng = np.random.default_rng(rng)
        self._faults, self._sticky, self._broken = dict(faults), sticky, ""
        self._kernels = KERNELS | dict(kernels)
        self._found = (device,) * gpus
        self._skew = tuple(skew) or (0,) * gpus
        self._current = {}  # device of each thread
        self._streams, self._events, self._graphs, self._functions = {}, {}, {}, {}
        self._allocations = []
        self._captures = []
        self._next = 0x1000
        self._allowed = {}
        self._live = Counter()
        self.now = 1_000_000
        self.calls = []
        self.count = Counter()

    @property
    def live(self):
        """What was made and not given back."""
        return {what: n for what, n in self._live.items() if what and n}

    # -- bookkeeping

    def _enter(self, name, arguments):
        self.calls.append((name, *arguments))
        self.count[name] += 1
        self._live[_FREED.get(name)] -= 1
        mine = [capture for capture in self._captures if capture.thread == threading.get_ident()]
        _refuse(mine and name in _NOT_CAPTURED, f"{name} during a capture")
        number, text = self._faults.get(name, (0, ""))
        if self._broken or self.count[name] == number:
            if self._sticky:
                self._broken = self._broken or text
            raise FakeError(self._broken or text)
        self.now += HOST_NS.get(name, 500)

    def _handle(self):
        self._next += 16
        return self._next

    def _device(self):
        thread = threading.get_ident()
        _refuse(thread not in self._current, "a thread that has set no device makes a call")
        return self._current[thread]

    def _stream(self, stream):
        _refuse(not stream, "the default stream is used")
        _refuse(stream not in self._streams, "a stream is used that was freed")
        return self._streams[stream]

    def _event(self, event):
        _refuse(event not in self._events, "an event is used that was freed")
        return self._events[event]

    def _allocation(self, address):
        found = [each for each in self._allocations if each.base <= address < each.base + each.nbytes]
        _refuse(not found or not found[0].alive, f"address {address:#x} is not allocated, or not any more")
        return found[0]

    def view(self, address, nbytes, device):
        """Return memory as bytes; checked."""
        found = self._allocation(address)
        _refuse(address + nbytes > found.base + found.nbytes, f"{nbytes} bytes at {address:#x} go beyond a buffer")
        _refuse(found.device != device, f"memory of GPU {found.device} is accessed on GPU {device}")
        _refuse(found.data is None, "a buffer is read that is too large for this fake")
        return found.data[address - found.base : address - found.base + nbytes]

    # -- running what streams were given

    def _step(self):
        """Run what comes next on one of the streams that can go on; say whether there was one."""
        ready = [s for s in self._streams.values() if s.queue and (s.queue[0][0] != "wait" or s.queue[0][1].done)]
        if not ready:
            return False
        stream = ready[self._rng.integers(len(ready))]
        kind, what, issued = stream.queue.popleft()
        stream.time = max(stream.time, issued)
        if kind == "wait":
            stream.time = max(stream.time, what.time)
        elif kind == "record":
            what.done, what.time = True, stream.time
        else:
            stream.time = self._run(what, stream.time)
        return True

    def _run(self, nodes, begin):
        """Run nodes of a graph in any order that they allow; return when they end."""
        ends, left = {}, set(range(len(nodes)))
        while left:
            ready = [node for node in sorted(left) if nodes[node][2].isdisjoint(left)]
            node = ready[self._rng.integers(len(ready))]
            run, duration, before = nodes[node]
            start = max([begin, *(ends[other] for other in before)])
            run(start, start + duration)
            ends[node] = start + duration
            left.remove(node)
        return max([begin, *ends.values()])

    def _drain(self, done):
        while not done():
            _refuse(not self._step(), "the device waits for ever")

    def _drained(self, stream):
        """Return a stream that has done all that it was given."""
        found = self._stream(stream)
        self._drain(lambda: not found.queue)
        return found

    def give(self, handle, run, duration):
        """Have a stream, or the graph that is captured from it, do something that takes ns."""
        stream = self._stream(handle)
        if stream.capture is None:
            stream.queue.append(("run", [(run, duration, frozenset())], self.now))
        else:
            stream.tail = frozenset([stream.capture.add(run, duration, stream.tail)])

    # -- devices

    def devices(self):
        return self._found

    def versions(self):
        return {"cupy": "14.2.0", "runtime": "12.9", "driver": "13.0", "connections": "32"}

    def clocks(self, device):
        return "1980 MHz"

    def host_ns(self):
        return self.now

    def set_device(self, device):
        _refuse(not 0 <= device < len(self._found), f"there is no GPU {device}")
        self._current[threading.get_ident()] = device

    def synchronize(self):
        here = [stream for stream in self._streams.values() if stream.device == self._device()]
        self._drain(lambda: not any(stream.queue for stream in here))
        self.now = max([self.now, *(stream.time for stream in here)])

    def enable_peer(self, device, peer):
        self._current[threading.get_ident()] = device
        return True

    # -- memory

    def malloc(self, nbytes):
        _refuse(nbytes <= 0, f"{nbytes} bytes are allocated")
        base, data = self._room(nbytes)
        self._allocations.append(Allocation(base, nbytes, self._device(), data))
        return base

    def _room(self, nbytes):
        """Return an address that was never given before, and what is there; None where it is large."""
        last = self._allocations[-1] if self._allocations else Allocation(0x7F0000000000, 0, 0, None)
        base = last.base + last.nbytes + 4096
        return -(-base // 256) * 256, None if nbytes >= _LAZY else np.full(nbytes, 0xA5, np.uint8)

    def free(self, address):
        found = self._allocation(address)
        _refuse(found.base != address, "an address is freed that was not allocated")
        self._drain(lambda: not any(s.queue for s in self._streams.values() if s.device == found.device))
        found.alive = False

    def fill(self, address, byte, nbytes, stream):
        device = self._stream(stream).device
        if self._allocation(address).data is not None:
            run = lambda start, end: self.view(address, nbytes, device).fill(byte)  # noqa: E731
            self.give(stream, run, COPY_NS)

    def write(self, address, values, stream):
        there = self.view(address, values.nbytes, self._drained(stream).device)
        there[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)

    def read(self, address, values, stream):
        values.reshape(-1).view(np.uint8)[:] = self.view(address, values.nbytes, self._drained(stream).device)

    def copy(self, target, source, nbytes, stream):
        return partial(self._copy, target, source, nbytes, stream)

    def _copy(self, target, source, nbytes, stream):
        device = self._stream(stream).device
        self.give(stream, partial(self._move, (target, device), (source, device), nbytes), COPY_NS)

    def _move(self, target, source, nbytes, start, end):
        for address, device in (target, source):
            found = self._allocation(address)
            if found.data is None and found.device == device and address + nbytes <= found.base + found.nbytes:
                return  # nobody looks into it
        self.view(target[0], nbytes, target[1])[:] = self.view(source[0], nbytes, source[1])

    def copy_peer(self, target, target_device, source, source_device, nbytes, stream):
        _refuse(target_device == source_device, "a copy to a peer stays on one GPU")
        _refuse(self._stream(stream).device != source_device, "a copy is not on a stream of the GPU that it comes from")
        self.give(stream, partial(self._move, (target, target_device), (source, source_device), nbytes), COPY_NS)

    # -- streams and events

    def stream(self, priority):
        _refuse(priority > 0, f"a stream has priority {priority}")
        handle = self._handle()
        self._streams[handle] = Stream(self._device(), priority)
        return handle

    def destroy_stream(self, stream):
        self._drained(stream)
        del self._streams[stream]

    def synchronize_stream(self, stream):
        self.now = max(self.now, self._drained(stream).time)

    def event(self, timing):
        handle = self._handle()
        self._events[handle] = Event(self._device(), timing)
        return handle

    def destroy_event(self, event):
        self._event(event)
        del self._events[event]

    def record(self, event, stream):
        found, on = self._event(event), self._stream(stream)
        _refuse(found.device != on.device, "an event is recorded on a stream of another GPU")
        found.last = record = Record(on.capture, on.tail)
        if on.capture is None:
            on.queue.append(("record", record, self.now))

    def wait(self, stream, event):
        on, record = self._stream(stream), self._event(event).last
        _refuse(record is None, "a stream waits for an event that was never recorded: CUDA would not wait")
        captured = record.capture
        _refuse(captured and captured not in self._captures, "a stream waits for an event of a capture that has ended")
        _refuse(on.capture not in (None, captured), "a captured stream waits for an event outside of its capture")
        if captured is None:
            on.queue.append(("wait", record, self.now))
        else:
            _refuse(on.capture is None and on.queue, "a stream with work of its own joins a capture")
            on.capture = captured
            on.tail |= record.tail

    def query(self, stream, event):
        """Say whether a stream has nothing left to do, or an event has run."""
        return self._event(event).last.done if event else not self._stream(stream).queue

    def synchronize_event(self, event):
        record = self._event(event).last
        _refuse(record is None or record.capture is not None, "the host waits for an event that was not recorded")
        self._drain(lambda: record.done)
        self.now = max(self.now, record.time)

    def elapsed(self, first, last):
        events = [self._event(first), self._event(last)]
        _refuse(events[0].device != events[1].device, "time is measured between events of two GPUs")
        for event in events:
            _refuse(not event.timing, "time is measured with an event that keeps none")
            _refuse(event.last is None or not event.last.done, "time is measured with an event that has not run")
        return (events[1].last.time - events[0].last.time) / 1e3

    # -- kernels

    def compile(self, source, names, options):
        found = {}
        for name in names:
            handle = self._handle()
            self._functions[handle] = name, self._device()
            found[name] = Function(name, handle, COMPILED.get(name, 16), 16)
        return found

    def allow_shared_memory(self, function, nbytes):
        if nbytes > self._found[0].shared_memory_per_block:
            raise FakeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        self._allowed[function.handle] = nbytes

    def launcher(self, function, grid, block, shared_memory, stream, arguments):
        assert len(grid) == len(block) == 3
        assert all(isinstance(argument, np.uint64 | np.int32 | np.float32) for argument in arguments)
        work = partial(self._work, function, grid, block, shared_memory, stream, tuple(arguments))
        return partial(self._launch, function.name, grid, block, stream, work)

    def _launch(self, name, grid, block, stream, work):
        work()

    def _work(self, function, grid, block, shared_memory, stream, arguments):
        name, device = self._functions[function.handle]
        on_one = self._stream(stream).device == device == self._device()
        _refuse(not on_one, f"{name}: kernel, stream and thread are not on one GPU")
        if shared_memory > self._allowed.get(function.handle, _SHARED_MEMORY):
            raise FakeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        memory, skew = Memory(self, device, grid, block), self._skew[device]

        def run(start, end):
            self._kernels[name](memory, arguments, start + skew, end + skew)

        self.give(stream, run, 1000 if name == "stamp" else KERNEL_NS)

    # -- graphs

    def begin_capture(self, stream):
        _refuse(self._stream(stream).capture is not None, "a stream is captured twice")
        capture = self._drained(stream).capture = Capture(stream, threading.get_ident())
        self._captures.append(capture)

    def end_capture(self, stream):
        capture, tails = self._ended(stream)
        if not all(tail <= capture.up_to(tails[stream]) for tail in tails.values()):
            raise FakeError("cudaErrorStreamCaptureUnjoined: capturing stream has unjoined work")
        handle = self._handle()
        self._graphs[handle] = capture
        return handle

    def _ended(self, stream):
        """Return the capture that ends on a stream, and the last nodes of each stream that was part of it."""
        capture = self._stream(stream).capture
        _refuse(capture is None or capture.origin != stream, "a capture ends that did not begin on this stream")
        self._captures.remove(capture)
        tails = {}
        for handle, other in self._streams.items():
            if other.capture is capture:
                tails[handle] = other.tail
                other.capture, other.tail = None, frozenset()
        return capture, tails

    def abandon_capture(self, stream):
        if self._streams[stream].capture is not None:
            self._ended(stream)

    def upload_graph(self, graph, stream):
        assert graph in self._graphs
        self._stream(stream)

    def launch_graph(self, graph, stream):
        _refuse(graph not in self._graphs, "a graph is launched that was freed")
        _refuse(self._stream(stream).device != self._device(), "a graph is launched on a stream of another GPU")
        self._stream(stream).queue.append(("run", self._graphs[graph].nodes, self.now))

    def destroy_graph(self, graph):
        del self._graphs[graph]


@dataclass
class Memory:
    """What a kernel sees of the memory of its GPU, and the size of its grid."""

    api: FakeCuda
    device: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    def floats(self, address, n):
        return self.api.view(int(address), 4 * int(n), self.device).view(np.float32)

    def words(self, address, n):
        return self.api.view(int(address), 8 * int(n), self.device).view(np.uint64)

    def stamp(self, address, start, end):
        if address:
            words = self.words(address, 2)
            words[0], words[1] = min(int(words[0]), start), max(int(words[1]), end)


def synth(memory, arguments, start, end):
    """The output of ``synth`` in ``synth.cu``, on numpy."""
    reads, n_reads, constant, y, size = arguments[:5]
    offset = memory.floats(constant, 1)[0]
    total = np.zeros(size, np.float32)
    entries = memory.words(reads, 2 * n_reads) if n_reads else ()
    for k in range(n_reads):
        n = int(entries[2 * k + 1])
        total += memory.floats(entries[2 * k], n)[np.arange(size) % n]
    memory.floats(y, size)[:] = offset + (np.float32(0.5 / n_reads) * total if n_reads else 0)
    memory.stamp(arguments[12], start, end)


def stamp(memory, arguments, start, end):
    """``stamp`` of `hwbackend.cuda.streams`."""
    memory.words(arguments[0], 1)[0] = end


KERNELS = {**dict.fromkeys(KERNEL_NAMES, synth), "stamp": stamp}
PLACES = {"one": (1, 1), "two": (2, 1), "virtual": (1, 2)}  # GPUs, and virtual devices of each
COMPILED = {name: resources.registers + 8 for name, resources in KERNEL_RESOURCES.items()}  # as another compiler would
USED = []  # by backends of the test that runs


def on_fake(place="one", rng=0, *, fake=FakeCuda, seed=0, cold=False, **options):
    """Return a fake CUDA and a backend on it, which gives everything back: that is checked when the test ends."""
    gpus, virtual = PLACES[place]
    USED.append(fake(gpus, rng, **options))
    return USED[-1], CupyBackend(api=USED[-1], seed=seed, cold=cold, virtual_devices=virtual)
