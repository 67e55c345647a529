"""`CupyApi`: CUDA through CuPy. The runtime's functions are called as they are, with numbers for streams and addresses.

CuPy's arrays and memory pool stay out of it: a pool hands memory that was freed on one stream to another, and memory
that a captured graph still uses to anybody.
"""

import ctypes
import importlib
import importlib.util
import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, ClassVar, Final

import numpy as np

from hwbackend.cuda.errors import INSTALL, OLDEST_CUPY, insufficient_driver, translate_error, version_text
from hwbackend.cuda.interface import Array, Call, CudaDevice, Function, Size
from simsched.base.errors import BackendError, MissingDependencyError

CONNECTIONS_VARIABLE: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
CONNECTIONS: Final = 32

_DRIVER_VERSION: Final = "/proc/driver/nvidia/version"
_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 1, 2, 3
_CLOCK_RATE, _MEMORY_CLOCK_RATE, _BUS_WIDTH, _MOST_BLOCKS, _RESERVED = 13, 36, 37, 106, 111  # of cudaDeviceAttr
_NODE_PRIORITIES: Final = 8  # a flag of cuGraphInstantiateWithFlags
_MOST_DYNAMIC: Final = 8  # a CUfunction_attribute: bytes of dynamic shared memory
_REGISTERS, _STATIC = 4, 1  # likewise: registers of a thread, static bytes of shared memory
_POLL: Final = "clocks.sm,clocks.mem,clocks.max.sm,power.limit,driver_version"


class CupyApi:
    """CUDA through CuPy, see `hwbackend.cuda.interface.CudaApi`.

    Raises
    ------
    MissingDependencyError
        If CuPy is not installed, or older than 14.
    BackendError
        If it cannot be loaded.

    Notes
    -----
    Sets ``CUDA_DEVICE_MAX_CONNECTIONS`` to 32 unless the environment says otherwise; `versions` tells whether that came
    too late. Graphs are instantiated by the driver, with the priorities of the streams that they were captured from,
    which CuPy would drop.
    """

    _too_late: ClassVar[bool] = False  # contexts have the number of queues that was asked for when they were made

    def __init__(self) -> None:
        self._cupy = cupy = _import_cupy()
        runtime, self._driver = cupy.cuda.runtime, cupy.cuda.driver
        self._runtime = runtime
        self._libcuda = _loaded_driver()
        self._connections = self._set_connections()
        self._kernels: list[Any] = []  # functions die with their module, which lives as long as one of these
        self.set_device, self.synchronize = runtime.setDevice, runtime.deviceSynchronize
        self.malloc, self.free, self.fill = runtime.malloc, runtime.free, runtime.memsetAsync
        self.copy_peer = runtime.memcpyPeerAsync
        self.destroy_stream, self.synchronize_stream = runtime.streamDestroy, runtime.streamSynchronize
        self.destroy_event, self.record = runtime.eventDestroy, runtime.eventRecord
        self.wait, self.synchronize_event = runtime.streamWaitEvent, runtime.eventSynchronize
        self.upload_graph, self.launch_graph = runtime.graphUpload, runtime.graphLaunch
        self.destroy_graph = runtime.graphExecDestroy

    def devices(self) -> tuple[CudaDevice, ...]:
        """Return the GPUs; raises `BackendError` if there is none, or no driver for this build of CuPy."""
        runtime = self._runtime
        try:
            count = runtime.getDeviceCount()
        except runtime.CUDARuntimeError as error:
            if "InsufficientDriver" in str(error):
                raise insufficient_driver(runtime.driverGetVersion(), runtime.runtimeGetVersion()) from error
            raise translate_error(error) from error
        return tuple(self._device(i) for i in range(count))

    def _device(self, i: int) -> CudaDevice:
        found = self._runtime.getDeviceProperties(i)
        name = found["name"]
        # newer CUDA has no clock rates among the properties; kHz, and two transfers in a cycle
        memory_clock = self._attribute(_MEMORY_CLOCK_RATE, i)
        return CudaDevice(
            name=name.decode() if isinstance(name, bytes) else str(name),
            capability=f"{found['major']}.{found['minor']}",
            sms=found["multiProcessorCount"],
            threads_per_sm=found["maxThreadsPerMultiProcessor"],
            blocks_per_sm=self._attribute(_MOST_BLOCKS, i) or 16,
            registers_per_sm=found["regsPerMultiprocessor"],
            shared_memory_per_sm=found["sharedMemPerMultiprocessor"],
            shared_memory_per_block=found["sharedMemPerBlockOptin"],
            shared_memory_reserved=self._attribute(_RESERVED, i),
            memory=found["totalGlobalMem"],
            l2=found["l2CacheSize"],
            copy_engines=max(1, found["asyncEngineCount"]),
            clock=self._attribute(_CLOCK_RATE, i) / 1e3,
            bandwidth=2 * memory_clock * 1e3 * self._attribute(_BUS_WIDTH, i) / 8 / 1e6,
        )

    def _attribute(self, number: int, device: int) -> int:
        """Return an attribute of a GPU, 0 if the driver does not know it."""
        try:
            return max(0, int(self._runtime.deviceGetAttribute(number, device)))
        except self._runtime.CUDARuntimeError:
            return 0

    def versions(self) -> Mapping[str, str]:
        """Return versions of the library, runtime and driver, and settings that bear on times."""
        runtime = self._runtime
        return {
            "cupy": str(self._cupy.__version__),
            "runtime": version_text(runtime.runtimeGetVersion()),
            "driver": version_text(runtime.driverGetVersion()),
            "driver_release": _driver_release(),
            "nvrtc": ".".join(map(str, self._cupy.cuda.nvrtc.getVersion())),
            "connections": self._connections,
            "graph_priorities": "yes" if self._libcuda is not None else "no",
        }

    def clocks(self, device: int) -> str:
        """Return the clocks of a GPU now as ``nvidia-smi`` names them, or "unknown"."""
        words = ["nvidia-smi", f"--query-gpu={_POLL}", "--format=csv,noheader", "-i", str(device)]
        try:
            found = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return "unknown"
        return f"{_POLL}: {found.stdout.strip()}"

    def host_ns(self) -> int:
        """Return the time of the host's clock in ns."""
        return perf_counter_ns()

    def enable_peer(self, device: int, peer: int) -> bool:
        """Let a GPU access the memory of another; False if it cannot, and copies go through the host."""
        runtime = self._runtime
        if not runtime.deviceCanAccessPeer(device, peer):
            return False
        runtime.setDevice(device)
        try:
            runtime.deviceEnablePeerAccess(peer)
        except runtime.CUDARuntimeError as error:
            if "AlreadyEnabled" not in str(error):
                raise
        return True

    def write(self, address: int, values: Array, stream: int) -> None:
        """Copy an array from the host, and wait for it."""
        self._runtime.memcpyAsync(address, values.ctypes.data, values.nbytes, _HOST_TO_DEVICE, stream)
        self.synchronize_stream(stream)

    def read(self, address: int, values: Array, stream: int) -> None:
        """Copy to an array of the host, and wait for it."""
        self._runtime.memcpyAsync(values.ctypes.data, address, values.nbytes, _DEVICE_TO_HOST, stream)
        self.synchronize_stream(stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> Call:
        """Return the call that copies within a device."""
        return partial(self._runtime.memcpyAsync, target, source, nbytes, _DEVICE_TO_DEVICE, stream)

    def stream(self, priority: int) -> int:
        """Make a stream that does not wait for the default one; lower priorities go first, 0 is the last."""
        return int(self._runtime.streamCreateWithPriority(self._runtime.streamNonBlocking, priority))

    def event(self, timing: bool) -> int:
        """Make an event."""
        runtime = self._runtime
        return int(runtime.eventCreateWithFlags(runtime.eventDefault if timing else runtime.eventDisableTiming))

    def elapsed(self, first: int, last: int) -> float:
        """Return the us between two records."""
        return float(self._runtime.eventElapsedTime(first, last)) * 1e3  # of ms

    def compile(self, source: str, names: Sequence[str], options: Sequence[str]) -> dict[str, Function]:
        """Compile kernels for the GPU, and return them by name."""
        module = self._cupy.RawModule(code=source, options=tuple(options), backend="nvrtc")
        try:
            kernels = [module.get_function(name).kernel for name in names]
        except self._cupy.cuda.compiler.CompileException as error:  # which is no RuntimeError
            raise translate_error(error) from error
        self._kernels += kernels
        found = {}
        for name, kernel in zip(names, kernels, strict=True):
            handle = int(kernel.ptr)
            registers, static = (self._driver.funcGetAttribute(number, handle) for number in (_REGISTERS, _STATIC))
            found[name] = Function(name, handle, registers, static)
        return found

    def allow_shared_memory(self, function: Function, nbytes: int) -> None:
        """Let launches of a kernel ask for more shared memory than 48 KiB."""
        self._driver.funcSetAttribute(function.handle, _MOST_DYNAMIC, nbytes)

    def launcher(
        self,
        function: Function,
        grid: Size,
        block: Size,
        shared_memory: int,
        stream: int,
        arguments: Sequence[np.generic],
    ) -> Call:
        """Return the call that launches a kernel with arguments that are packed now."""
        values = [np.array(argument) for argument in arguments]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        address = pointers.ctypes.data if len(values) else 0
        call = partial(self._driver.launchKernel, function.handle, *grid, *block, shared_memory, stream, address, 0)
        call.__dict__["kept"] = values, pointers  # as long as it can be called
        return call

    def begin_capture(self, stream: int, /) -> None:
        """Capture what is given to a stream from now on instead of running it."""
        # relaxed: the first launch of a kernel may load it
        self._runtime.streamBeginCapture(stream, self._runtime.streamCaptureModeRelaxed)

    def end_capture(self, stream: int) -> int:
        """End a capture and return a graph that can be launched."""
        graph = int(self._runtime.streamEndCapture(stream))
        try:
            return self._instantiate(graph)
        finally:
            self._runtime.graphDestroy(graph)

    def _instantiate(self, graph: int) -> int:
        if self._libcuda is None:
            return int(self._runtime.graphInstantiate(graph))
        made = ctypes.c_void_p()
        status = self._libcuda.cuGraphInstantiateWithFlags(
            ctypes.byref(made), ctypes.c_void_p(graph), ctypes.c_ulonglong(_NODE_PRIORITIES)
        )
        if status or not made.value:
            raise BackendError(f"the driver cannot make a graph of what was captured (error {status})")
        return int(made.value)

    def abandon_capture(self, stream: int) -> None:
        """End a capture that has failed."""
        try:
            self._runtime.graphDestroy(self._runtime.streamEndCapture(stream))
        except self._runtime.CUDARuntimeError:
            return  # there is no graph then

    def _set_connections(self) -> str:
        """Ask for as many hardware queues as there can be; return how many there are, and whether that is certain."""
        if CONNECTIONS_VARIABLE not in os.environ:
            os.environ[CONNECTIONS_VARIABLE] = str(CONNECTIONS)  # before anything starts the driver, as the next does
            CupyApi._too_late = self._has_context()
        asked = os.environ[CONNECTIONS_VARIABLE]
        return f"{asked}, but CUDA was in use before it was set" if CupyApi._too_late else asked

    def _has_context(self) -> bool:
        """Whether this process has used a GPU already."""
        if self._libcuda is None or self._libcuda.cuInit(0):
            return False
        count = ctypes.c_int()
        self._libcuda.cuDeviceGetCount(ctypes.byref(count))
        flags, active = ctypes.c_uint(), ctypes.c_int()
        for device in range(count.value):
            self._libcuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
            if active.value:
                return True
        return False


def _import_cupy() -> Any:
    """Return the package cupy."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        if importlib.util.find_spec("cupy") is None:
            raise MissingDependencyError(f"the cupy backend needs CuPy: {INSTALL}") from error
        raise BackendError(f"CuPy is installed but cannot be loaded; {INSTALL}: {_first_line(error)}") from error
    return checked_version(cupy)


def checked_version(cupy: Any) -> Any:
    """Return the package cupy if it is new enough."""
    if int(str(cupy.__version__).partition(".")[0]) < OLDEST_CUPY:
        raise MissingDependencyError(f"CuPy {cupy.__version__} is older than {OLDEST_CUPY}: {INSTALL}")
    return cupy


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _loaded_driver() -> Any:
    """Return the driver's library, None if there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def _driver_release() -> str:
    """Return the version of the driver itself, or "unknown"."""
    try:
        words = Path(_DRIVER_VERSION).read_text(encoding="utf-8").split()
    except OSError:
        return "unknown"
    return next((word for word in words if word[0].isdigit() and "." in word), "unknown")
