"""The adapter to CuPy, on a module in its place that writes down the calls: names, order of arguments, packing."""

import ctypes
import importlib
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from hwbackend.cuda import api as cupy_api
from hwbackend.cuda.api import CupyApi
from hwbackend.cuda.interface import Function
from simsched.base.errors import BackendError, MissingDependencyError


class CompileException(Exception):
    pass


PROPERTIES = {
    "name": b"NVIDIA H100",
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 132,
    "l2CacheSize": 50 << 20,
    "maxThreadsPerMultiProcessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 233472,
    "sharedMemPerBlockOptin": 232448,
    "totalGlobalMem": 80 << 30,
    "asyncEngineCount": 3,
}
ANSWERS = {
    "getDeviceCount": lambda: 2,
    "driverGetVersion": lambda: 12040,
    "runtimeGetVersion": lambda: 13000,
    "getDeviceProperties": lambda device: PROPERTIES,
    "deviceGetAttribute": lambda number, device: {13: 1_980_000, 36: 2_619_000, 37: 5120, 106: 32, 111: 1024}[number],
    "funcGetAttribute": lambda number, handle: {4: 63, 1: 8704}[number],
}


class Library:
    """What of ``cupy.cuda.runtime`` and ``cupy.cuda.driver`` is used; other functions are written down and answer 7."""

    CUDARuntimeError = RuntimeError
    streamNonBlocking, eventDefault, eventDisableTiming, streamCaptureModeRelaxed = 1, 0, 2, 2

    def __init__(self, **answers):
        self.calls, self.answers = [], ANSWERS | answers

    def __getattr__(self, name):
        return self.answers.get(name) or (lambda *arguments: self.calls.append((name, *arguments)) or 7)


@pytest.fixture
def stub(monkeypatch):
    """Return what puts a module in the place of CuPy and makes the adapter of it."""
    monkeypatch.setattr(cupy_api, "_loaded_driver", lambda: None)
    monkeypatch.setenv(cupy_api.CONNECTIONS_VARIABLE, "8")

    def made(version="14.2.0", **answers):
        library = Library(**answers)
        nvrtc = SimpleNamespace(getVersion=lambda: (12, 9))
        compiler = SimpleNamespace(CompileException=CompileException)
        cuda = SimpleNamespace(runtime=library, driver=library, nvrtc=nvrtc, compiler=compiler)
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__version__=version, __spec__=None, cuda=cuda))
        return CupyApi(), library

    return made


VALUES = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda api: api.copy(1, 2, 64, 9)(), [("memcpyAsync", 1, 2, 64, 3, 9)]),
        (lambda api: api.copy_peer(1, 0, 2, 1, 64, 9), [("memcpyPeerAsync", 1, 0, 2, 1, 64, 9)]),
        (lambda api: api.fill(1, 255, 64, 9), [("memsetAsync", 1, 255, 64, 9)]),
        (lambda api: api.record(3, 9), [("eventRecord", 3, 9)]),
        (lambda api: api.wait(9, 3), [("streamWaitEvent", 9, 3)]),
        (lambda api: api.stream(-1), [("streamCreateWithPriority", 1, -1)]),
        (lambda api: api.event(True), [("eventCreateWithFlags", 0)]),
        (lambda api: api.event(False), [("eventCreateWithFlags", 2)]),
        (lambda api: api.elapsed(3, 4) / 1000, [("eventElapsedTime", 3, 4)]),
        (
            lambda api: api.write(1, VALUES, 9),
            [("memcpyAsync", 1, VALUES.ctypes.data, 16, 1, 9), ("streamSynchronize", 9)],
        ),
        (
            lambda api: api.read(1, VALUES, 9),
            [("memcpyAsync", VALUES.ctypes.data, 1, 16, 2, 9), ("streamSynchronize", 9)],
        ),
        (lambda api: api.begin_capture(9), [("streamBeginCapture", 9, 2)]),
        (lambda api: api.end_capture(9), [("streamEndCapture", 9), ("graphInstantiate", 7), ("graphDestroy", 7)]),
        (lambda api: api.launch_graph(7, 9), [("graphLaunch", 7, 9)]),
        (lambda api: api.destroy_graph(7), [("graphExecDestroy", 7)]),
        (lambda api: api.allow_shared_memory(Function("k", 77, 63, 8704), 65536), [("funcSetAttribute", 77, 8, 65536)]),
    ],
)
def test_arguments_go_where_cuda_wants_them(stub, call, expected):
    """What each call of the API calls; what it returns is what CUDA does, times in us."""
    api, library = stub()
    assert call(api) in (7, None)
    assert library.calls == expected


def test_arguments_of_a_launch_are_packed_and_kept(stub):
    """The kernel is given pointers to its arguments: they still hold 2^40 + 1, -5 and 0.5 when it is launched."""
    api, library = stub()
    arguments = [np.uint64(2**40 + 1), np.int32(-5), np.float32(0.5)]
    call = api.launcher(Function("k", 77, 32, 0), (3, 1, 1), (256, 1, 1), 16, 9, arguments)
    del arguments
    call()
    (name, *sizes, address, extra), *_ = library.calls
    assert (name, sizes, extra) == ("launchKernel", [77, 3, 1, 1, 256, 1, 1, 16, 9], 0)
    pointers = (ctypes.c_void_p * 3).from_address(address)
    assert ctypes.c_uint64.from_address(pointers[0]).value == 2**40 + 1
    assert ctypes.c_int32.from_address(pointers[1]).value == -5
    assert ctypes.c_float.from_address(pointers[2]).value == 0.5


def test_the_driver_makes_graphs_with_priorities_where_it_can(stub):
    """Flag 8; an error is told, and what was captured is freed all the same."""
    asked = []

    def instantiate(made, graph, flags):
        asked.append((graph.value, flags.value))
        made._obj.value = 55
        return len(asked) - 1  # 0 is success

    api, library = stub()
    api._libcuda = SimpleNamespace(cuGraphInstantiateWithFlags=instantiate)
    assert api.end_capture(9) == 55
    assert asked == [(7, 8)]
    with pytest.raises(BackendError, match="error 1"):
        api.end_capture(9)
    assert [call[0] for call in library.calls].count("graphDestroy") == 2
    assert api.versions()["graph_priorities"] == "yes"


def test_kernels_are_compiled_by_nvrtc(stub):
    api, _ = stub()
    asked, function = [], SimpleNamespace(ptr=77)
    kernel = SimpleNamespace(kernel=function)
    api._cupy.RawModule = lambda **given: asked.append(given) or SimpleNamespace(get_function=lambda name: kernel)
    assert api.compile("source", ["k"], ["-O3"]) == {"k": Function("k", 77, 63, 8704)}
    assert asked == [{"code": "source", "options": ("-O3",), "backend": "nvrtc"}]
    assert api._kernels == [function]  # which keeps the module


def test_a_source_that_does_not_compile(stub):
    """What CuPy raises is no RuntimeError, and many lines long."""

    def fails(name):
        raise CompileException("kern.cu(1): error: x\n\n1 error detected in the compilation")

    api, _ = stub()
    api._cupy.RawModule = lambda **given: SimpleNamespace(get_function=fails)
    with pytest.raises(BackendError, match=r"NVRTC must be installed and know the GPU .* error: x 1 error detected"):
        api.compile("source", ["k"], [])


def test_devices_are_described(stub):
    """2619 MHz and 5120 bits: 2 * 2619e6 * 640 bytes a second are 3352 bytes a ns."""
    api, _ = stub()
    first, second = api.devices()
    assert first == second
    assert (first.name, first.capability, first.sms, first.clock) == ("NVIDIA H100", "9.0", 132, 1980.0)
    assert first.bandwidth == pytest.approx(3_352_320.0)
    assert (first.blocks_per_sm, first.shared_memory_reserved) == (32, 1024)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("InsufficientDriver: old", r"supports CUDA 12.4, CuPy needs 13.0: pip install 'simsched\[cuda12\]'"),
        ("NoDevice: no CUDA-capable device", "check nvidia-smi and CUDA_VISIBLE_DEVICES"),
    ],
)
def test_no_device(stub, error, says):
    def fails():
        raise RuntimeError(f"cudaError{error}")

    api, _ = stub(getDeviceCount=fails)
    with pytest.raises(BackendError, match=says):
        api.devices()


def test_an_old_cupy_is_refused(stub):
    with pytest.raises(MissingDependencyError, match=r"CuPy 13.6.0 is older than 14: pip install 'simsched\[cuda12\]'"):
        stub("13.6.0")


@pytest.mark.parametrize(
    ("spec", "kind", "says"),
    [
        (None, MissingDependencyError, r"needs CuPy: pip install 'simsched\[cuda12\]'"),
        (object(), BackendError, "CuPy is installed but cannot be loaded"),
    ],
)
def test_no_cupy(spec, kind, says, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it fails
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(kind, match=says):
        CupyApi()


def test_connections_are_asked_for_before_cuda_is_used(stub, monkeypatch):
    """32, unless the environment says otherwise; a context that is there already keeps what it has.

    The variable is set before the driver is asked for contexts, which starts it.
    """
    seen = []

    def has_context(api):
        seen.append(os.environ.get(cupy_api.CONNECTIONS_VARIABLE))
        return True

    assert stub()[0].versions()["connections"] == "8"
    monkeypatch.delenv(cupy_api.CONNECTIONS_VARIABLE)
    assert stub()[0].versions()["connections"] == "32"
    assert os.environ[cupy_api.CONNECTIONS_VARIABLE] == "32"
    monkeypatch.delenv(cupy_api.CONNECTIONS_VARIABLE)
    monkeypatch.setattr(CupyApi, "_has_context", has_context)
    monkeypatch.setattr(CupyApi, "_too_late", False)
    for _ in range(2):
        assert stub()[0].versions()["connections"] == "32, but CUDA was in use before it was set"
    assert seen == ["32"]
