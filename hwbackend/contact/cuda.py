"""`ContactGpu`: a GPU of NVIDIA as the device of a contact, through CuPy. Not run on a device yet."""

import importlib
import json
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from hwbackend.contact.clocks import DeviceState, state_of_gpu
from hwbackend.contact.device import BackendDevice, Halves, Session, StampedBlock, UnsupportedError
from hwbackend.contact.probes import ProbeDriver
from hwbackend.executor.driver import addresses, require_driver
from simsched.base.errors import MissingDependencyError
from simsched.model import Ints, Kernel, Schedule
from simsched.model.backend import Backend

SOURCE: Final = "probe.cu"
KERNELS: Final = ("probe", "ticks")
"""Kernels of the source."""
_OPTIONS: Final = ("-std=c++17",)
_NS: Final = 1e-3  # us
_LANES: Final = 32  # of a warp
_FMAS: Final = 4  # of a thread in a turn
_TURNS: Final = 4000  # of the sweep over warps
_TICKS: Final = 4096
_ROW: Final = 10  # kernels of a chain bound by one unit
_REPEATS: Final = 9
_PRODUCT: Final = {"fp32": ("float32", 4096), "fp16": ("float16", 8192)}
_STREAMED: Final = 1 << 27  # floats, far more than L2 holds
_CACHED: Final = 1 << 21  # floats, which L2 holds
_SHAPES: Final = ((64, 0), (128, 0), (256, 0), (256, 16384), (512, 0), (1024, 0))
_PROPERTIES: Final = {
    "sms": "multiProcessorCount",
    "threads_per_sm": "maxThreadsPerMultiProcessor",
    "blocks_per_sm": "maxBlocksPerMultiProcessor",
    "registers_per_sm": "regsPerMultiprocessor",
    "shared_memory_per_sm": "sharedMemPerMultiprocessor",
}
"""Limits of a `Device`, and their names in the properties of CUDA."""


class ContactGpu(BackendDevice):
    """The first GPU: schedules run on a backend, and kernels of the contact's own are launched by CuPy.

    Parameters
    ----------
    backend
        Runs schedules and networks.

    Raises
    ------
    MissingDependencyError
        If CuPy is not installed.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        try:
            self._cupy: Any = importlib.import_module("cupy")
        except ImportError as error:
            raise MissingDependencyError("a contact by CUDA needs CuPy: pip install 'simsched[cuda12]'") from error

    @cached_property
    def _functions(self) -> dict[str, Any]:
        source = files(__package__).joinpath(SOURCE).read_text()
        module = self._cupy.RawModule(code=source, options=_OPTIONS)
        return {name: module.get_function(name) for name in KERNELS}

    @cached_property
    def _sink(self) -> Any:
        """Memory that a probe writes to if its sum is a certain number, which it never is."""
        return self._cupy.zeros(4, dtype="float32")

    def facts(self) -> dict[str, Any]:
        """Return versions, and limits as the driver reports them."""
        runtime = self._cupy.cuda.runtime
        properties = runtime.getDeviceProperties(0)
        limits = {name: int(properties[key]) for name, key in _PROPERTIES.items() if key in properties}
        name = properties["name"]
        return {
            "model": name.decode() if isinstance(name, bytes) else str(name),
            "cupy": self._cupy.__version__,
            "runtime": runtime.runtimeGetVersion(),
            "driver": runtime.driverGetVersion(),
            "numpy": np.__version__,
            **limits,
            "capability": f"{properties['major']}.{properties['minor']}",
        }

    def state(self) -> DeviceState | None:
        """Return the condition of the GPU."""
        return state_of_gpu()

    # --- kernels of the contact

    def _launch(self, stamps: Any, blocks: int, threads: int, turns: int, chains: int, stream: Any) -> None:
        numbers = (np.int32(turns), np.int32(chains))
        self._functions["probe"]((blocks,), (threads,), (stamps, self._sink, *numbers), stream=stream)

    def _stamps(self, blocks: int) -> Any:
        """Return memory for start, end and SM of blocks."""
        return self._cupy.zeros((blocks, 3), dtype="uint64")

    def _stream(self) -> Any:
        """Return a stream that does not wait for the default one."""
        return self._cupy.cuda.Stream(non_blocking=True)

    def _synchronise(self) -> None:
        """Wait for the end of all work."""
        self._cupy.cuda.runtime.deviceSynchronize()

    def blocks(self, plan: Schedule) -> list[StampedBlock]:
        """Launch the probe for each operator, on a stream of its own, with the blocks and FLOP of its kernel."""
        launches = []
        for op in plan.graph.operators:
            kernel = op.kernels[0]
            turns = max(1, round(op.flops / (2 * _FMAS * kernel.threads * kernel.blocks)))
            launches.append((self._stamps(kernel.blocks), kernel, turns, self._stream()))
        for _ in range(2):  # the first time loads the code
            self._synchronise()
            for stamps, kernel, turns, stream in launches:
                self._launch(stamps, kernel.blocks, kernel.threads, turns, _FMAS, stream)
        self._synchronise()
        tables = [stamps.get().astype(np.int64) for stamps, *_ in launches]
        zero = min(int(table[:, 0].min()) for table in tables)
        return [
            StampedBlock(op, int(sm), (int(start) - zero) * _NS, (int(end) - zero) * _NS)
            for op, table in enumerate(tables)
            for start, end, sm in table.tolist()
        ]

    def tick(self) -> float:
        """Return the least step between two values of the timer."""
        values = self._cupy.zeros(_TICKS, dtype="uint64")
        self._functions["ticks"]((1,), (1,), (values, np.int32(_TICKS)))
        steps = np.diff(values.get().astype(np.int64))
        return float(steps[steps > 0].min()) * _NS

    def fma(self, warps: int, chains: int) -> float:
        """Return the median us of a block, by its stamps."""
        sms = self.cluster.devices[0].sms
        stamps = self._stamps(sms)
        for _ in range(2):
            self._launch(stamps, sms, _LANES * warps, _TURNS, chains, self._stream())
            self._synchronise()
        table = stamps.get().astype(np.int64)
        return float(np.median(table[:, 1] - table[:, 0])) * _NS

    def occupancies(self) -> list[tuple[Kernel, int]]:
        """Return shapes of the probe, and how many blocks of each an SM holds as the driver counts."""
        function = self._functions["probe"]
        count = self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        return [
            (Kernel(1, threads, function.num_regs, shared), int(count(function.kernel.ptr, threads, shared)))
            for threads, shared in _SHAPES
        ]

    def copy(self, nbytes: float, ways: Sequence[str]) -> float:
        """Copy between pinned memory and the GPU, each way on a stream of its own; return us by the host's clock."""
        cupy = self._cupy
        size = int(nbytes)
        copies = []
        for way in ways:
            pinned = cupy.cuda.alloc_pinned_memory(size)
            there = cupy.cuda.alloc(size)
            target, source, kind = (there.ptr, pinned.ptr, 1) if way == "in" else (pinned.ptr, there.ptr, 2)
            copies.append((target, source, kind, self._stream(), (pinned, there)))
        times = []
        for _ in range(_REPEATS):
            self._synchronise()
            begun = time.perf_counter()
            for target, source, kind, stream, _ in copies:
                cupy.cuda.runtime.memcpyAsync(target, source, size, kind, stream.ptr)
            self._synchronise()
            times.append((time.perf_counter() - begun) * 1e6)
        return median(times)

    def matmul(self, dtype: str) -> float:
        """Return the FLOP per us of a large product by cuBLAS."""
        name, size = _PRODUCT[dtype]
        a = self._cupy.ones((size, size), dtype=name)
        b = self._cupy.empty_like(a)
        us = self._time_chains([lambda: self._cupy.matmul(a, a, out=b)])
        return float(2.0 * size**3 / us)

    def beside(self, first: str, second: str) -> tuple[float, float, float]:
        """Return us of ten kernels bound by a unit, of ten bound by another, and of both on two streams."""
        works = [self._bound_by(unit) for unit in (first, second)]
        alone = [self._time_chains([work] * _ROW) for work in works]
        return alone[0], alone[1], self._time_chains([works[0]] * _ROW, [works[1]] * _ROW)

    def _bound_by(self, unit: str) -> Callable[[], object]:
        """Return a call that launches a kernel bound by a unit on the current stream; its memory is its own."""
        cupy = self._cupy
        if unit == "compute":
            sms = self.cluster.devices[0].sms
            stamps = self._stamps(sms)
            return lambda: self._launch(stamps, sms, 256, _TURNS, _FMAS, cupy.cuda.get_current_stream())
        if unit == "tensor":
            a = cupy.ones((2048, 2048), dtype="float16")
            product = cupy.empty_like(a)
            return lambda: cupy.matmul(a, a, out=product)
        x = cupy.ones(_STREAMED if unit == "dram" else _CACHED, dtype="float32")
        y = cupy.empty_like(x)
        return lambda: cupy.add(x, 1.0, out=y)

    def _time_chains(self, *chains: Sequence[Callable[[], object]]) -> float:
        """Return the median us of chains of calls, each on a stream of its own, from event to event."""
        cuda = self._cupy.cuda
        streams = [self._stream() for _ in chains]
        times = []
        for turn in range(_REPEATS + 2):
            self._synchronise()
            start = cuda.Event()
            end = cuda.Event()
            start.record(streams[0])
            for stream in streams[1:]:
                stream.wait_event(start)
            for calls, stream in zip(chains, streams, strict=True):
                with stream:
                    for call in calls:
                        call()
            for stream in streams[1:]:
                done = cuda.Event(disable_timing=True)
                done.record(stream)
                streams[0].wait_event(done)
            end.record(streams[0])
            end.synchronize()
            if turn > 1:  # two to warm up
                times.append(float(cuda.get_elapsed_time(start, end)) * 1e3)
        return median(times)

    @cached_property
    def _probes(self) -> ProbeDriver:
        """Launches through the driver.

        Raises
        ------
        UnsupportedError
            If cuda-bindings are not installed.
        """
        try:
            driver = require_driver()
        except MissingDependencyError as error:
            raise UnsupportedError(str(error)) from error
        function = int(self._functions["probe"].kernel.ptr)
        return ProbeDriver(driver, addresses(), function, int(self._sink.data.ptr), self._words, self._synchronise)

    def _words(self, count: int) -> tuple[int, Callable[[], Ints]]:
        """Return the address of so many words on the device, and what reads them."""
        words = self._cupy.zeros(count, dtype="uint64")
        return int(words.data.ptr), lambda: np.asarray(words.get().astype(np.int64))

    def chain(self, *, programmatic: bool) -> float:
        """Return the us from start to start of kernels in a chain, by their stamps."""
        return self._probes.chain(int(self._stream().ptr), programmatic=programmatic)

    def halves(self) -> Halves:
        """Return the times of two kernels by their stamps: on two streams, and on two green contexts."""
        streams = [self._stream() for _ in range(2)]
        return self._probes.halves(self.cluster.devices[0].sms, [int(stream.ptr) for stream in streams])

    def profile_once(self, plan: Schedule) -> Session:
        """Run a schedule under the profiler of PyTorch, which is CUPTI; count kernels and ids of nodes.

        Raises
        ------
        UnsupportedError
            If PyTorch is not installed.
        """
        try:
            profiler: Any = importlib.import_module("torch.profiler")
        except ImportError as error:
            raise UnsupportedError("a profiler session needs PyTorch: pip install torch") from error
        names = {op.kind for op in plan.graph.operators}  # kernels are named as the kinds that they compute
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as session:
            self.backend.replay(plan, repeats=1, warmup=0)
            self._synchronise()
        with TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            session.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        kernels = [event for event in events if event.get("cat") == "kernel" and event.get("name") in names]
        nodes = [event for event in kernels if event.get("args", {}).get("graph node id")]
        return Session(min(len(kernels), len(plan.graph)), min(len(nodes), len(plan.graph)))
