"""`CudaApi`: the few calls of CUDA that are used, as `hwbackend.cuda.api` makes them; tests have another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Call = Callable[[], object]
Array = npt.NDArray[Any]
Size = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A GPU as the driver describes it.

    Parameters
    ----------
    name
        Of the product.
    capability
        Compute capability, such as ``"9.0"``.
    sms, threads_per_sm, blocks_per_sm, registers_per_sm, shared_memory_per_sm
        Streaming multiprocessors, and what one can hold at once.
    shared_memory_per_block, shared_memory_reserved
        Most bytes that a block may ask for, and bytes that the system adds.
    memory, l2
        Bytes.
    copy_engines
        Engines that copy while kernels run.
    clock, bandwidth
        Highest SM clock in MHz and DRAM bytes per us; 0 if the driver does not say.
    """

    name: str
    capability: str
    sms: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_memory_per_sm: int
    shared_memory_per_block: int
    shared_memory_reserved: int
    memory: int
    l2: int
    copy_engines: int
    clock: float = 0.0
    bandwidth: float = 0.0


@dataclass(frozen=True, slots=True)
class Function:
    """A compiled kernel on one device.

    Parameters
    ----------
    name
        In the source.
    handle
        Of the function.
    registers, shared_memory
        Per thread, and bytes per block besides what a launch adds.
    """

    name: str
    handle: int
    registers: int
    shared_memory: int


class CudaApi(Protocol):
    """Calls of the CUDA runtime and driver. Devices, streams, events, graphs and addresses are numbers.

    Errors are those of CuPy (`RuntimeError`); `cupy_errors.cuda_errors` turns them into ours, where
    a whole run has failed rather than at each call, which would cost time. Calls that name no device concern the one
    that the calling thread has set.
    """

    def devices(self) -> tuple[CudaDevice, ...]:
        """Return the GPUs; raises `BackendError` if there is none, or no driver for this build of CuPy."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Return versions of the library, runtime and driver, and settings that bear on times."""
        ...

    def clocks(self, device: int) -> str:
        """Return the clocks of a GPU now, as far as they are known."""
        ...

    def host_ns(self) -> int:
        """Return the time of the host's clock in ns."""
        ...

    def set_device(self, device: int, /) -> object:
        """Let the calling thread use a GPU."""
        ...

    def synchronize(self) -> object:
        """Wait until the GPU has done all it was given."""
        ...

    def enable_peer(self, device: int, peer: int) -> bool:
        """Let a GPU access the memory of another; False if it cannot, and copies go through the host."""
        ...

    def malloc(self, nbytes: int, /) -> int:
        """Allocate memory."""
        ...

    def free(self, address: int, /) -> object:
        """Free memory."""
        ...

    def fill(self, address: int, byte: int, nbytes: int, stream: int, /) -> object:
        """Set every byte of memory."""
        ...

    def write(self, address: int, values: Array, stream: int) -> None:
        """Copy an array from the host, and wait for it."""
        ...

    def read(self, address: int, values: Array, stream: int) -> None:
        """Copy to an array of the host, and wait for it."""
        ...

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> Call:
        """Return the call that copies within a device."""
        ...

    def copy_peer(
        self, target: int, target_device: int, source: int, source_device: int, nbytes: int, stream: int, /
    ) -> object:
        """Copy from one GPU to another."""
        ...

    def stream(self, priority: int) -> int:
        """Make a stream that does not wait for the default one; lower priorities go first, 0 is the last."""
        ...

    def destroy_stream(self, stream: int, /) -> object:
        """Free a stream."""
        ...

    def synchronize_stream(self, stream: int, /) -> object:
        """Wait until a stream has done all it was given."""
        ...

    def event(self, timing: bool) -> int:
        """Make an event."""
        ...

    def destroy_event(self, event: int, /) -> object:
        """Free an event."""
        ...

    def record(self, event: int, stream: int, /) -> object:
        """Record an event behind the work of a stream."""
        ...

    def wait(self, stream: int, event: int, /) -> object:
        """Hold a stream until the last record of an event has run."""
        ...

    def synchronize_event(self, event: int, /) -> object:
        """Wait until the last record of an event has run."""
        ...

    def elapsed(self, first: int, last: int) -> float:
        """Return the us between two records."""
        ...

    def compile(self, source: str, names: Sequence[str], options: Sequence[str]) -> dict[str, Function]:
        """Compile kernels for the GPU, and return them by name."""
        ...

    def allow_shared_memory(self, function: Function, nbytes: int) -> None:
        """Let launches of a kernel ask for more shared memory than 48 KiB."""
        ...

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
        ...

    def begin_capture(self, stream: int, /) -> object:
        """Capture what is given to a stream from now on instead of running it."""
        ...

    def end_capture(self, stream: int) -> int:
        """End a capture and return a graph that can be launched."""
        ...

    def abandon_capture(self, stream: int) -> None:
        """End a capture that has failed."""
        ...

    def upload_graph(self, graph: int, stream: int, /) -> object:
        """Bring a graph to the device, so that its first launch takes no longer than the others."""
        ...

    def launch_graph(self, graph: int, stream: int, /) -> object:
        """Launch a graph."""
        ...

    def destroy_graph(self, graph: int, /) -> object:
        """Free a graph."""
        ...
