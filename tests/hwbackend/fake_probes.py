"""The calls of ``cuda.bindings.driver`` for programmatic launches and green contexts, on a `FakeCuda` with a truth.

Kernels are probes: they stamp start, end and SM of their blocks into memory of the host, in time that is counted.
"""

import ctypes
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
from fake_cuda import FakeCuda, RuleBroken
from fake_driver import INVALID, SUCCESS, FakeDriver, LaunchConfig

from hwbackend.contact.probes import STAMPS, ProbeDriver

PROBE = 0x77
SINK = 0x88
TURN_NS = 2
"""Of a turn of the probe, if the SM has one block of it."""


class ProbeConfig(LaunchConfig):
    """A ``CUlaunchConfig`` whose attributes are found by its address."""

    known: ClassVar = {}

    def getPtr(self):
        address = super().getPtr()
        self.known[address] = self
        return address


class FakeProbeDriver(FakeDriver):
    """The module ``cuda.bindings.driver``.

    Parameters
    ----------
    cuda
        A `FakeCuda`.
    sms
        SMs of the device.
    step
        SMs by whose multiples a green context gets them.
    gap_ns, saved_ns
        ns between kernels of a stream, and by how much they are fewer before a programmatic launch.
    """

    CUlaunchConfig = ProbeConfig
    CUdevResourceType = SimpleNamespace(CU_DEV_RESOURCE_TYPE_SM="sm")
    CUgreenCtxCreate_flags = SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)

    def __init__(self, cuda, *, sms=132, step=8, gap_ns=1500, saved_ns=0):
        super().__init__(cuda)
        self.sms, self.step = sms, step
        self.gap_ns, self.saved_ns = gap_ns, saved_ns
        self.contexts, self.most_contexts = {}, 2
        self._sms_of = {}  # by stream

    @staticmethod
    def CUlaunchAttribute():
        return SimpleNamespace(id=None, value=SimpleNamespace())

    def cuDeviceGet(self, ordinal):
        return (SUCCESS, f"device {ordinal}") if ordinal == 0 else (INVALID, None)

    def cuDeviceGetDevResource(self, device, typename):
        if (device, typename) != ("device 0", "sm"):
            return INVALID, None
        return SUCCESS, self._resource(range(self.sms))

    def cuDevSmResourceSplitByCount(self, nbGroups, input_, flags, minCount):
        size = -(-minCount // self.step) * self.step
        if nbGroups != 1 or flags or size > input_.sm.smCount:
            return INVALID, [], 0, None
        return SUCCESS, [self._resource(input_.numbers[:size])], 1, self._resource(input_.numbers[size:])

    def _resource(self, numbers):
        return SimpleNamespace(numbers=list(numbers), sm=SimpleNamespace(smCount=len(numbers)))

    def cuDevResourceGenerateDesc(self, resources, nbResources):
        (resource,) = resources
        return (SUCCESS, resource.numbers) if nbResources == 1 and resource.numbers else (INVALID, None)

    def cuGreenCtxCreate(self, desc, dev, flags):
        if dev != "device 0" or flags != 1 or len(self.contexts) == self.most_contexts:
            return INVALID, None
        handle = self.handle()
        self.contexts[handle] = desc
        return SUCCESS, handle

    def cuGreenCtxStreamCreate(self, greenCtx, flags, priority):
        if flags != 1:
            return INVALID, None
        stream = self.cuda.stream(priority)
        self._sms_of[stream] = self.contexts[greenCtx]
        return SUCCESS, stream

    def cuStreamDestroy(self, stream):
        self.cuda.destroy_stream(stream)
        del self._sms_of[stream]
        return (SUCCESS,)

    def cuGreenCtxDestroy(self, hCtx):
        if self.contexts.pop(hCtx) in self._sms_of.values():
            raise RuleBroken("a stream outlives its green context")
        return (SUCCESS,)

    def _launched(self, config, function, arguments, extra):
        found = ProbeConfig.known[config]
        assert (function, extra) == (PROBE, 0)
        assert (found.gridDimY, found.gridDimZ, found.blockDimY, found.blockDimZ) == (1, 1, 1, 1)
        pointers = (ctypes.c_uint64 * 4).from_address(arguments)
        stamps, sink = (ctypes.c_uint64.from_address(address).value for address in pointers[:2])
        turns, chains = (ctypes.c_int32.from_address(address).value for address in pointers[2:])
        assert (sink, chains) == (SINK, 4)
        numbers = self._sms_of.get(found.hStream, range(self.sms))
        blocks = found.gridDimX
        took = turns * TURN_NS * -(-blocks // len(numbers))
        words = (ctypes.c_uint64 * (STAMPS * blocks)).from_address(stamps)
        pause = self.gap_ns - self.saved_ns * self._is_programmatic(found)
        self.cuda.give(found.hStream, partial(_stamp, words, numbers, took), took + pause)

    def _is_programmatic(self, config):
        attributes = config.attrs[: config.numAttrs]
        assert all(attribute.id == "PROGRAMMATIC_STREAM_SERIALIZATION" for attribute in attributes)
        return any(attribute.value.programmaticStreamSerializationAllowed for attribute in attributes)


def _stamp(words, numbers, took, start, _end):
    for block in range(len(words) // STAMPS):
        words[STAMPS * block : STAMPS * (block + 1)] = [start, start + took, numbers[block % len(numbers)]]


def probes_on(driver):
    """Return the probes of a fake driver; their memory is numpy's."""
    cuda = driver.cuda

    def stamps(count):
        table = np.zeros(count, np.uint64)
        return table.ctypes.data, lambda: table.astype(np.int64)

    return ProbeDriver(driver, driver.addresses(), PROBE, SINK, stamps, cuda.synchronize)


def fake_probes(**truth):
    """Return a fake driver of a truth on a device of its own, and its probes."""
    cuda = FakeCuda(1, 0)
    cuda.set_device(0)
    driver = FakeProbeDriver(cuda, **truth)
    return driver, probes_on(driver)
