"""Section: programmatic dependent launches and green contexts, through cuda-bindings. Not run on a device yet."""

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any, Final

import numpy as np

from hwbackend.contact.cuda import ContactGpu
from hwbackend.contact.device import UnsupportedError
from hwbackend.contact.sections.item import Bench, ContactItem, Json
from hwbackend.cuda.driver import value_of

_SECONDS: Final = 1.0
_CHAIN: Final = 100  # kernels
_REPEATS: Final = 15
# Turns of the probe.
_SHORT = 20
_LONG = 4000
_THREADS: Final = 256


def launch_items() -> list[ContactItem]:
    """Return the items."""
    return [
        ContactItem("launches/ordered", _SECONDS, partial(_chain, programmatic=False)),
        ContactItem("launches/dependent", _SECONDS, partial(_chain, programmatic=True)),
        ContactItem("launches/green", _SECONDS, _green),
    ]


def _gpu(bench: Bench) -> tuple[ContactGpu, Any]:
    """Return the device and the driver of CUDA.

    Raises
    ------
    UnsupportedError
        If the device is no GPU, or cuda-bindings are not installed.
    """
    if not isinstance(bench.device, ContactGpu):
        raise UnsupportedError(f"{bench.device.name!r} is not a GPU: this section needs one, and cuda-bindings")
    try:
        return bench.device, importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise UnsupportedError("this section needs cuda-bindings: pip install cuda-bindings") from error


def _chain(bench: Bench, programmatic: bool) -> Json:
    """Return the us of a kernel in a chain on one stream, where the next may start before the last has ended or not."""
    device, driver = _gpu(bench)
    stamps = device.stamps(1)
    stream = device.stream()
    times = []
    for turn in range(_REPEATS + 2):
        device.synchronise()
        begun = time.perf_counter()
        for _ in range(_CHAIN):
            _launch(device, driver, stamps, 1, _SHORT, int(stream.ptr), programmatic=programmatic)
        device.synchronise()
        if turn > 1:  # two to warm up
            times.append((time.perf_counter() - begun) * 1e6 / _CHAIN)
    return {"us": median(times)}


def _launch(
    device: ContactGpu, driver: Any, stamps: Any, blocks: int, turns: int, stream: int, *, programmatic: bool = False
) -> None:
    """Launch the probe through the driver, which takes attributes."""
    config = driver.CUlaunchConfig()
    config.gridDimX = blocks
    config.gridDimY = 1
    config.gridDimZ = 1
    config.blockDimX = _THREADS
    config.blockDimY = 1
    config.blockDimZ = 1
    config.hStream = stream
    if programmatic:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config.attrs = [attribute]
        config.numAttrs = 1
    arguments: list[Any] = [
        np.array([stamps.data.ptr], np.uint64),
        np.array([device.sink.data.ptr], np.uint64),
        np.array([turns], np.int32),
        np.array([4], np.int32),
    ]
    addresses = np.array([argument.ctypes.data for argument in arguments], np.uint64)
    value_of(driver.cuLaunchKernelEx(config, device.function, addresses.ctypes.data, 0))


def _green(bench: Bench) -> Json:
    """Return the us of two kernels of a block an SM, on two streams of the device, and on halves of its SMs."""
    device, driver = _gpu(bench)
    sms = device.cluster.devices[0].sms
    plain = [device.stream() for _ in range(2)]
    shared = _together(device, driver, sms, [int(stream.ptr) for stream in plain])
    with _halves(driver) as streams:
        halved = _together(device, driver, sms, streams)
    return {"shared": shared, "halves": halved}


def _together(device: ContactGpu, driver: Any, blocks: int, streams: list[int]) -> float:
    tables = [device.stamps(blocks) for _ in streams]
    times = []
    for turn in range(_REPEATS + 2):
        device.synchronise()
        begun = time.perf_counter()
        for stamps, stream in zip(tables, streams, strict=True):
            _launch(device, driver, stamps, blocks, _LONG, stream)
        device.synchronise()
        if turn > 1:
            times.append((time.perf_counter() - begun) * 1e6)
    return median(times)


@contextmanager
def _halves(driver: Any) -> Iterator[list[int]]:
    """Give streams of two green contexts, each with half of the SMs, within a ``with`` block."""
    device = value_of(driver.cuDeviceGet(0))
    whole = value_of(driver.cuDeviceGetDevResource(device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    groups, _, rest = value_of(driver.cuDevSmResourceSplitByCount(1, whole, 0, whole.sm.smCount // 2))
    contexts = []
    streams = []
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
