"""The part of PyTorch for CUDA that hosts use, on a CUDA that runs without a GPU."""

from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

from fake_cuda import KERNEL_NS, FakeCuda

from hwbackend.torch.hosts import CudaHost


class FakeTorchCuda:
    """`hwbackend.torch.hosts.TorchCuda` on a `FakeCuda`; an event is made where it is first recorded, as there."""

    def __init__(self, gpus=1, rng=0):
        self.cuda, self.current = FakeCuda(gpus, rng), None
        self.cuda.set_device(0)

    def work(self, action):
        """Issue something to the current stream."""
        with self.cuda.lock:
            self.cuda.count["work"] += 1
            self.cuda.give(self.current, lambda start, end: action(), KERNEL_NS)

    def host(self, program, compute, move, **options):
        """A host that issues operators and copies."""
        issued = (lambda number, do=do: self.work(partial(do, number)) for do in (compute, move))
        return CudaHost(self, program, *issued, **options)

    def stream(self, device, priority):
        self.cuda.set_device(device)
        return self.cuda.stream(priority)

    def event(self, *, timing=False):
        return SimpleNamespace(timing=timing, handle=None)

    @contextmanager
    def on(self, stream):
        before, self.current = self.current, stream
        self.cuda.set_device(self.cuda._stream(stream).device)
        yield
        self.current = before

    def record(self, event, stream):
        with self.on(stream):
            event.handle = event.handle or self.cuda.event(event.timing)
            self.cuda.record(event.handle, stream)

    def wait(self, stream, event):
        self.cuda.wait(stream, event.handle)

    def is_done(self, stream_or_event):
        return self.cuda.query(stream_or_event, getattr(stream_or_event, "handle", 0))

    def synchronize(self, device):
        self.cuda.set_device(device)
        self.cuda.synchronize()

    def elapsed(self, start, end):
        return self.cuda.elapsed(start.handle, end.handle)

    def graph(self):
        return SimpleNamespace(handle=None)

    @contextmanager
    def capture(self, graph, stream):
        with self.on(stream):
            self.cuda.begin_capture(stream)
            try:
                yield
                graph.handle = self.cuda.end_capture(stream)
            finally:
                self.cuda.abandon_capture(stream)

    def launch(self, graph):
        self.cuda.launch_graph(graph.handle, self.current)

    def current_stream(self, device):
        return next(iter(self.cuda._streams))

    def is_current(self, device):
        return True

    def keep_for(self, tensor, stream):
        self.cuda.count["keep"] += 1

    def mark(self, name):
        return nullcontext()
