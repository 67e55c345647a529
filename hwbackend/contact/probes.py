"""Launches that only the driver of CUDA makes: programmatic ones, and those on a part of the SMs.

Not run on a device yet. Kernels are the probe of `hwbackend.contact.cuda`: each block stamps its start, end and SM. All
launches of a measurement are made by one loop without the interpreter, so that a host does not hold up the device.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

from hwbackend.contact.device import Halves
from hwbackend.executor.driver import value_of
from hwbackend.executor.packed import SIGNATURES, PackedCalls
from simsched.base.errors import BackendError
from simsched.model import Ints

STAMPS: Final = 3
"""Words that a block stamps: start and end in ns, and its SM."""
_CALL: Final = "cuLaunchKernelEx"
_SIGNATURE: Final = SIGNATURES.index(("i64",) * 4)
_CHAIN: Final = 100  # kernels
# Turns of the probe: more than a launch takes, and much more than two do.
_SHORT = 1500
_LONG = 40_000
_THREADS: Final = 256
_CHAINS: Final = 4  # of FMAs
_REPEATS: Final = 9
_NS: Final = 1e-3  # us
_WORD: Final = 8  # bytes


@dataclass(frozen=True)
class ProbeDriver:
    """The driver of CUDA, and what a probe needs.

    Parameters
    ----------
    driver, addresses
        ``cuda.bindings.driver``, and the functions of the driver by name.
    function, sink
        Handle of the probe, and the address that it never writes to.
    stamps
        Allocates so many words on the device; returns their address and what reads them.
    synchronise
        Waits for the end of all work.
    """

    driver: Any
    addresses: Mapping[str, int]
    function: int
    sink: int
    stamps: Callable[[int], tuple[int, Callable[[], Ints]]]
    synchronise: Callable[[], None]

    def chain(self, stream: int, *, programmatic: bool) -> float:
        """Return the us from the start of a kernel of one block in a chain on a stream to the start of the next.

        Parameters
        ----------
        programmatic
            Whether a kernel may be launched before the last one has ended (PDL).
        """
        address, read = self.stamps(STAMPS * _CHAIN)
        launches = [ProbeLaunch(address + STAMPS * _WORD * i, 1, _SHORT, stream, programmatic) for i in range(_CHAIN)]
        calls = self.pack(launches)
        for _ in range(2):  # the first time loads the code
            calls()
            self.synchronise()
        start = read().reshape(-1, STAMPS)[:, 0]
        return float(start[-1] - start[0]) * _NS / (_CHAIN - 1)

    def halves(self, sms: int, streams: Sequence[int]) -> Halves:
        """Return how long two kernels of a block an SM take on two streams, and on two parts of the SMs.

        Parameters
        ----------
        sms
            Number of SMs of the device: the first part is half of them, or as many more as the driver has to give.
        streams
            Two streams of the whole device.
        """
        shared, _ = self._together(sms, streams)
        with green_streams(self.driver, sms // 2) as parts:
            apart, seen = self._together(sms, parts)
        return Halves(shared, apart, (seen[0], seen[1]))

    def _together(self, blocks: int, streams: Sequence[int]) -> tuple[float, list[int]]:
        """Return the median us from the first start to the last end of kernels on streams, and the SMs of each."""
        address, read = self.stamps(STAMPS * blocks * len(streams))
        launches = [
            ProbeLaunch(address + STAMPS * _WORD * blocks * i, blocks, _LONG, stream, False)
            for i, stream in enumerate(streams)
        ]
        calls = self.pack(launches)
        times = []
        for turn in range(_REPEATS + 1):
            calls()
            self.synchronise()
            table = read().reshape(len(streams), blocks, STAMPS)
            if turn:  # one to warm up
                times.append(float(table[..., 1].max() - table[..., 0].min()) * _NS)
        return median(times), [len(np.unique(part[:, 2])) for part in table]

    def pack(self, launches: Sequence["ProbeLaunch"]) -> PackedCalls:
        """Return the launches as calls that are made one after the other without the interpreter."""
        rows = []
        kept: list[object] = []
        for launch in launches:
            config, attributes = self._config(launch)
            arguments: list[Any] = [
                np.array([launch.stamps], np.uint64),
                np.array([self.sink], np.uint64),
                np.array([launch.turns], np.int32),
                np.array([_CHAINS], np.int32),
            ]
            pointers = np.array([argument.ctypes.data for argument in arguments], np.uint64)
            words = (int(config.getPtr()), self.function, int(pointers.ctypes.data), 0)
            rows.append((_SIGNATURE, self.addresses[_CALL], words))
            kept += [config, attributes, arguments, pointers]
        return PackedCalls(rows, kept)

    def _config(self, launch: "ProbeLaunch") -> tuple[Any, list[Any]]:
        driver = self.driver
        config = driver.CUlaunchConfig()
        config.gridDimX = launch.blocks
        config.gridDimY = 1
        config.gridDimZ = 1
        config.blockDimX = _THREADS
        config.blockDimY = 1
        config.blockDimZ = 1
        config.hStream = launch.stream
        attributes = []
        if launch.programmatic:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
            config.attrs = attributes
            config.numAttrs = len(attributes)
        return config, attributes


class ProbeLaunch(NamedTuple):
    """A launch of the probe: where it stamps, its blocks and turns, its stream, and whether it may start early."""

    stamps: int
    blocks: int
    turns: int
    stream: int
    programmatic: bool


@contextmanager
def green_streams(driver: Any, sms: int) -> Iterator[list[int]]:
    """Give streams of two green contexts within a ``with`` block: of so many SMs or more, and of all the others.

    Raises
    ------
    BackendError
        If the driver refuses, or has no SMs left for the second one.
    """
    device = value_of(driver.cuDeviceGet(0))
    whole = value_of(driver.cuDeviceGetDevResource(device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    groups, count, rest = value_of(driver.cuDevSmResourceSplitByCount(1, whole, 0, sms))
    if int(count) < 1 or not int(rest.sm.smCount):
        raise BackendError(f"the driver cannot split {int(whole.sm.smCount)} SMs into parts of {sms} and others")
    contexts: list[Any] = []
    streams: list[Any] = []
    try:
        for part in (groups[0], rest):
            description = value_of(driver.cuDevResourceGenerateDesc([part], 1))
            flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
            contexts.append(value_of(driver.cuGreenCtxCreate(description, device, flags)))
            streams.append(
                value_of(driver.cuGreenCtxStreamCreate(contexts[-1], driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
            )
        yield [int(stream) for stream in streams]
    finally:
        for stream in streams:
            driver.cuStreamDestroy(stream)
        for context in contexts:
            driver.cuGreenCtxDestroy(context)
