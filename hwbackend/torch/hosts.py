"""What carries out programs for PyTorch: a plain CPU, or CUDA with its streams, events and graphs."""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from hwbackend.executor.capture import issue_within
from hwbackend.executor.issue import issue
from hwbackend.executor.lanes import Lane, first_rows, priorities_of, threads_of
from hwbackend.torch.devices import line
from simsched.base.errors import BackendError, SimschedError
from simsched.model import COPY, LAUNCH, Floats, Program


class CpuHost:
    """Runs each operator and copy at once when it is issued; `operators` and `copies` are their times in us.

    Parameters
    ----------
    program
        What to run.
    compute, move
        Run an operator, a copy, by number.
    """

    def __init__(self, program: Program, compute: Callable[[int], None], move: Callable[[int], None]) -> None:
        self.thread = 0
        self.operators: Floats = np.zeros((len(program.graph), 2))
        self.copies: Floats = np.zeros((len(program.copies.op), 2))
        self._program, self._threads = program, threads_of(program)
        self._first = first_rows(program)
        self._compute, self._move = compute, move
        self._began = 0

    def run(self) -> float:
        """Run the program once; return how long it took in us."""
        self._began = time.perf_counter_ns()
        issue(self._program, self._threads, self)
        return self._now()

    def launch(self, row: int, _device: int, _stream: int, /) -> None:
        """Run an operator with its first launch."""
        op = self._first.get(row)
        if op is not None:
            start = self._now()
            self._compute(op)
            self.operators[op] = start, self._now()

    def record(self, _event: int, _device: int, _stream: int, /) -> None:
        """Do nothing: all that was issued has been done."""

    def wait(self, _event: int, _device: int, _stream: int, /) -> None:
        """Do nothing: all that was issued has been done."""

    def copy(self, row: int, _device: int, _stream: int, /) -> None:
        """Copy."""
        start = self._now()
        self._move(row)
        self.copies[row] = start, self._now()

    def is_drained(self, _device: int, _lanes: Sequence[Lane], /) -> bool:
        """Say yes: all that was issued has been done."""
        return True

    def has_passed(self, _event: int, /) -> bool:
        """Say yes: all that was issued has been done."""
        return True

    def _now(self) -> float:
        return (time.perf_counter_ns() - self._began) / 1000.0


class TorchCuda:
    """The calls of PyTorch for CUDA that are used here; a test has another that checks their order."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def stream(self, device: int, priority: int) -> Any:
        """Return a stream of a device that does not wait for the default stream; the lower number is served first."""
        return self._torch.cuda.Stream(device=device, priority=priority)

    def event(self, *, timing: bool = False) -> Any:
        """Return an event."""
        return self._torch.cuda.Event(enable_timing=timing)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Have the device of a stream, and that stream, be current."""
        context: AbstractContextManager[Any] = self._torch.cuda.stream(stream)
        return context

    def record(self, event: Any, stream: Any) -> None:
        """Record an event behind the work of a stream."""
        event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        """Have a stream wait for an event."""
        stream.wait_event(event)

    def is_done(self, stream_or_event: Any) -> bool:
        """Say whether a stream has nothing left to do, or an event has run."""
        return bool(stream_or_event.query())

    def elapsed(self, start: Any, end: Any) -> float:
        """Return the time between two events in us."""
        return 1000.0 * float(start.elapsed_time(end))

    def synchronize(self, device: int) -> None:
        """Wait until a device has nothing left to do."""
        self._torch.cuda.synchronize(device)

    def graph(self) -> Any:
        """Return a graph with nothing in it."""
        return self._torch.cuda.CUDAGraph()

    def capture(self, graph: Any, stream: Any) -> AbstractContextManager[Any]:
        """Have the work of a stream, and of those that join it, be captured; what it allocates stays the graph's."""
        context: AbstractContextManager[Any] = self._torch.cuda.graph(graph, stream=stream)
        return context

    def launch(self, graph: Any) -> None:
        """Launch a graph on the current stream."""
        graph.replay()

    def current_stream(self, device: Any) -> Any:
        """Return the stream of a device that the caller's work goes to."""
        return self._torch.cuda.current_stream(device)

    def is_current(self, device: Any) -> bool:
        """Say whether a device is the one that launches go to."""
        return bool(self._torch.cuda.current_device() == device.index)

    def keep_for(self, tensor: Any, stream: Any) -> None:
        """Have the memory of a tensor not be used again before a stream has done what it was given."""
        tensor.record_stream(stream)

    def mark(self, name: str) -> AbstractContextManager[Any]:
        """Annotate what is issued meanwhile for the profiler."""
        context: AbstractContextManager[Any] = self._torch.profiler.record_function(name)
        return context


class CudaHost:
    """Issues a program to CUDA: streams, events, copies, and graphs that are captured once.

    Parameters
    ----------
    api
        A `TorchCuda`.
    program
        What to run; its devices are CUDA's, by number.
    compute, move
        Issue an operator, a copy, to the current stream.
    timed
        Whether to record an event before and behind each operator and copy, see `spans`.
    marked
        Whether to annotate them for the profiler: by the operator's name, a copy as `copy_mark` says.

    Notes
    -----
    Streams and events are made at once and kept. The destination of a copy has a stream of its own that is current
    meanwhile, since PyTorch makes the current streams of both ends wait for each other.
    """

    def __init__(
        self,
        api: TorchCuda,
        program: Program,
        compute: Callable[[int], None],
        move: Callable[[int], None],
        *,
        timed: bool = False,
        marked: bool = False,
    ) -> None:
        self.thread = 0
        self._api, self._program, self._threads = api, program, threads_of(program)
        self._compute, self._move = compute, move
        self._marked = marked
        self._first = first_rows(program)
        self._events = [api.event() for _ in range(program.n_events)]
        self._streams = {lane: api.stream(lane[0], level) for lane, level in priorities_of(program).items()}
        copied = bool((program.action == COPY).any())
        self._landings = {d: api.stream(d, 0) for d in range(len(program.devices) if copied else 0)}
        self._used = sorted({device for device, _ in self._streams})
        self._origin = api.stream(self._used[0], 0)
        self._bases = {device: api.event(timing=True) for device in self._used}
        self._ends = {key: api.event(timing=True) for key in self._streams}
        n = len(program.graph) + len(program.copies.op) if timed else 0
        self._stamps = [(api.event(timing=True), api.event(timing=True)) for _ in range(n)]
        self._joins = [api.event() for _ in range(1 + len(self._streams) + len(self._landings))]
        self._graph: Any = None
        self.at = ""
        """What was issued last, by its mark."""

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Devices and numbers of the program's streams."""
        return tuple(self._streams)

    @property
    def events(self) -> Sequence[Any]:
        """The events that the program records, by number."""
        return self._events

    @property
    def stamps(self) -> Sequence[tuple[Any, Any]]:
        """The events around each operator and copy of a timed host."""
        return self._stamps

    @property
    def origin(self) -> Any:
        """The stream on which a graph is captured, and launched by `run`."""
        return self._origin

    @property
    def graph(self) -> Any:
        """The graph, None before `capture`."""
        return self._graph

    def stream(self, lane: Lane) -> Any:
        """Return a stream of the program."""
        return self._streams[lane]

    def adopt(self, graph: Any) -> None:
        """Take a graph of the program that was made elsewhere; `run` then launches it."""
        self._graph = graph

    def issue(self) -> None:
        """Issue the program once, without waiting for its end."""
        issue(self._program, self._threads, self)

    def run(self) -> float:
        """Issue the program, or launch the graph if it was captured; return how long it took in us.

        That is from an event recorded on the idle device before anything is issued to the end of the last stream.
        """
        api = self._api
        self.finish()
        if self._graph is not None:
            with api.on(self._origin):
                base, end = self._bases[self._used[0]], next(iter(self._ends.values()))
                api.record(base, self._origin)
                api.launch(self._graph)
                api.record(end, self._origin)
            self.finish()
            return api.elapsed(base, end)
        for device in self._used:
            api.record(self._bases[device], next(s for (on, _), s in self._streams.items() if on == device))
        self.issue()
        for key, stream in self._streams.items():
            api.record(self._ends[key], stream)
        self.finish()
        return max(api.elapsed(self._bases[device], end) for (device, _), end in self._ends.items())

    def issue_within(self, stream: Any) -> None:
        """Issue the program behind what a stream has to do; what the stream does then comes behind the program."""
        side = [*self._streams.values(), *self._landings.values()]
        issue_within(self._api, stream, side, self._joins, self.issue)

    def launch_graph(self) -> None:
        """Launch the graph on the current stream; it was captured."""
        self._api.launch(self._graph)

    def finish(self) -> None:
        """Wait until all devices have nothing left to do."""
        for device in self._used:
            self._api.synchronize(device)

    def capture(self) -> None:
        """Capture the program as a graph, which `run` then launches; it must have been issued before."""
        self.finish()
        self._graph = None  # the memory of one captured before is free again
        graph = self._api.graph()
        with self._api.capture(graph, self._origin):
            self.issue_within(self._origin)
        self._graph = graph

    def spans(self) -> tuple[Floats, Floats]:
        """Return start and end of each operator and copy of the last run in us, each of shape (n, 2)."""
        n = len(self._program.graph)
        times = np.zeros((len(self._stamps), 2))
        for i, device in self._device_of.items():
            times[i] = [self._api.elapsed(self._bases[device], event) for event in self._stamps[i]]
        times = np.maximum(times, 0.0)
        return times[:n], times[n:]

    @property
    def _device_of(self) -> dict[int, int]:
        """The device of each operator, and behind them of each copy."""
        found, n = {}, len(self._program.graph)
        for rows in self._threads:
            for action, device, _, argument in rows:
                if action == LAUNCH and argument in self._first:
                    found[self._first[argument]] = device
                elif action == COPY:
                    found[n + argument] = device
        return found

    def launch(self, row: int, device: int, stream: int) -> None:
        """Issue an operator with its first launch."""
        op = self._first.get(row)
        if op is not None:
            name = self._program.graph.names[op]
            with self._around(self._streams[device, stream], op, name):
                self._compute(op)

    def record(self, event: int, device: int, stream: int) -> None:
        """Record an event."""
        self._api.record(self._events[event], self._streams[device, stream])

    def wait(self, event: int, device: int, stream: int) -> None:
        """Have a stream wait for an event."""
        self._api.wait(self._streams[device, stream], self._events[event])

    def copy(self, row: int, device: int, stream: int) -> None:
        """Issue a copy to a stream of the source."""
        landing = self._landings[int(self._program.copies.device[row])]
        with (
            self._api.on(landing),
            self._around(self._streams[device, stream], len(self._program.graph) + row, copy_mark(row)),
        ):
            self._move(row)

    def is_drained(self, _device: int, lanes: Sequence[Lane]) -> bool:
        """Say whether streams have nothing left to do."""
        return all(self._api.is_done(self._streams[lane]) for lane in lanes)

    def has_passed(self, event: int) -> bool:
        """Say whether an event has run."""
        return self._api.is_done(self._events[event])

    @contextmanager
    def _around(self, stream: Any, i: int, name: str) -> Iterator[None]:
        api, self.at = self._api, name
        with api.on(stream), api.mark(name) if self._marked else nullcontext():
            if self._stamps:
                api.record(self._stamps[i][0], stream)
            yield
            if self._stamps:
                api.record(self._stamps[i][1], stream)


@contextmanager
def capture_errors(host: CudaHost, name: str) -> Iterator[None]:
    """Raise what PyTorch says to a capture as `BackendError`, with what was issued last; no frame holds memory then."""
    try:
        yield
    except SimschedError:
        raise
    except RuntimeError as error:
        traceback.clear_frames(error.__traceback__)
        raise BackendError(f"{name}: capture as a CUDA graph failed at {host.at!r}: {line(error)}") from None


def copy_mark(row: int) -> str:
    """Return how a copy is annotated."""
    return f"simsched.copy#{row}"


def issue_order(program: Program) -> Sequence[str]:
    """Return the marks of operators and copies in the order in which one host thread issues them."""
    first, names = first_rows(program), program.graph.names
    found = []
    for action, argument in zip(program.action.tolist(), program.argument.tolist(), strict=True):
        if action == LAUNCH and argument in first:
            found.append(names[first[argument]])
        elif action == COPY:
            found.append(copy_mark(argument))
    return found
