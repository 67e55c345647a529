"""The CUDA kernels run by the host: what `launches_of` describes, on guarded memory, and what should come out."""

import ctypes
import shutil
import subprocess
import sys
from functools import cache, partial
from math import prod
from mmap import PAGESIZE, mmap
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import numpy as np
import pytest
from rewriting.interpreter import ACTIVATIONS, computed, parts_of

from hwbackend.kernels import launches as cuda

HERE = Path(__file__).resolve().parent / "emulation"
TOLERANCE = 1e-4
PROT_NONE = 0  # of mprotect
_GUARDED = np.float32(-7.25e31)
_OUTCOMES = ("", "arguments do not fit", "a barrier that not all come to", "memory beyond a buffer")


@cache
def library():
    """The kernels as a library for the host, or a skip that says what is missing."""
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("g++ on Linux is needed: it compiles the CUDA kernels for the host")
    entries = "\n".join(f"ENTRY({name})" for name in cuda.KERNEL_NAMES)
    pieces = (HERE / "prelude.hpp").read_text(), cuda.kernel_source(), (HERE / "epilogue.hpp").read_text(), entries
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
        source.write_text("\n".join(pieces), encoding="utf-8")
        words = [compiler, "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-o", str(target), str(source)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode and "unrecognized" in done.stderr:
            pytest.skip("g++ is too old for C++20")
        assert not done.returncode, done.stderr
        return ctypes.CDLL(str(target))


class Buffer:
    """Float32 elements that end (or, if `at_begin`, begin) where memory ends, with guards at the other side."""

    def __init__(self, values, *, at_begin=False):
        values = np.asarray(values, np.float32).ravel()
        nbytes = -(-max(4, values.nbytes) // PAGESIZE) * PAGESIZE
        self.memory = mmap(-1, nbytes + 2 * PAGESIZE)
        inside = np.frombuffer(self.memory, np.float32)[PAGESIZE // 4 : -PAGESIZE // 4]
        inside[:] = _GUARDED
        start = 0 if at_begin else inside.size - values.size
        self.values = inside[start : start + values.size]
        self.values[:] = values
        self.others = (inside[:start], inside[start + values.size :])
        for page in (inside.ctypes.data - PAGESIZE, inside.ctypes.data + nbytes):
            assert _mprotect()(ctypes.c_void_p(page), ctypes.c_size_t(PAGESIZE), PROT_NONE) == 0

    @property
    def address(self):
        return self.values.ctypes.data

    def check(self):
        assert all((other == _GUARDED).all() for other in self.others), "written beyond a buffer"


@cache
def _mprotect():
    return ctypes.CDLL(None).mprotect


@cache
def stream_buffer(role):
    """Pages of zeros that exist once they are touched."""
    return np.zeros(cuda.STREAM_NBYTES // 4 + 16, np.float32)


class Run:
    """One run of an operator's launches, `backwards` in the order of the threads; everything written is NaN first."""

    def __init__(self, launches, inputs, size, *, backwards=False, stamps=False, streams=None):
        buffer = partial(Buffer, at_begin=backwards)
        read = {cuda.Input(i): buffer(x) for i, x in enumerate(inputs)}
        read |= {p: buffer(drawn(p)) for p in cuda.parameters_of(launches)}
        self.output = buffer(np.full(size, np.nan))
        scratch = {s: buffer(np.full(s.nbytes // 4, np.nan)) for s in cuda.scratch_of(launches)}
        self.buffers, self.streams = read | scratch | {cuda.Output(): self.output}, streams
        self.tables, self.spans, self.blocks = [], [], []
        before = [x.values.copy() for x in read.values()]
        for launch in launches:
            words = [self.word(argument, launch, stamps) for argument in launch.arguments]
            launched(launch.kernel, launch.grid, launch.block, words, backwards)
        for each in self.buffers.values():
            each.check()
        for each, old in zip(read.values(), before, strict=True):
            assert np.array_equal(each.values, old, equal_nan=True), "an input was written"

    def address(self, argument):
        if isinstance(argument, int):
            return argument
        if isinstance(argument, cuda.Input):
            return self.buffers[cuda.Input(argument.index)].address + 4 * argument.offset
        return self.buffers[argument].address

    def word(self, argument, launch, stamps):
        """What the kernel gets for an argument."""
        match argument:
            case np.int32() | np.float32():
                return argument
            case None:
                return np.uint64(0)
            case cuda.StreamBuffer(role):
                buffer = stream_buffer(role) if self.streams is None else self.streams[role].values
                return np.uint64(buffer.ctypes.data + -buffer.ctypes.data % 16)
            case cuda.Table(entries):
                self.tables.append(np.array([self.address(entry) for entry in entries], np.uint64))
                return np.uint64(self.tables[-1].ctypes.data)
            case cuda.Stamps():
                self.spans.append(np.array([2**64 - 1, 0], np.uint64))
                return np.uint64(self.spans[-1].ctypes.data if stamps else 0)
            case cuda.BlockStamps():
                self.blocks.append(np.zeros((launch.blocks, 3), np.uint64))
                return np.uint64(self.blocks[-1].ctypes.data if stamps else 0)
        return np.uint64(self.address(argument))


def launched(kernel, grid, block, arguments, backwards=False):
    """Run a kernel on numbers and addresses."""
    words = [np.array(argument) for argument in arguments]
    n = len(words)
    pointers = (ctypes.c_void_p * n)(*(word.ctypes.data for word in words))
    sizes, three = (ctypes.c_uint32 * n)(*(word.nbytes for word in words)), ctypes.c_uint32 * 3
    found = getattr(library(), f"launch_{kernel}")(three(*grid), three(*block), n, sizes, pointers, int(backwards))
    assert found == 0, f"{kernel}: {_OUTCOMES[found]}"


def drawn(parameter):
    """Values of a parameter as its description says, always the same."""
    rng = np.random.default_rng(crc32(repr(parameter).encode()))
    return rng.normal(parameter.mean, parameter.spread, parameter.shape)


def ran(op, xs, *, sms=132, reads=None, **options):
    """Output of an operator, run on arrays, in its shape."""
    run = Run(cuda.launches_of(op, sms, reads), xs, cuda.output_size(op), **options)
    return run.output.values.reshape(cuda.output_size(op) if op.output_shape is None else op.output_shape).copy()


# What should come out, in float64


FUNCTIONS = ACTIVATIONS | {
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "leaky_relu": lambda x: np.where(x < 0.0, 0.01 * x, x),
    "prelu": lambda x: np.where(x < 0.0, 0.25 * x, x),
    "hard_sigmoid": lambda x: np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hard_swish": lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "elu": lambda x: np.where(x < 0.0, np.expm1(np.minimum(x, 0.0)), x),
    "selu": lambda x: 1.0507009873554805 * np.where(x < 0.0, 1.6732632423543772 * np.expm1(np.minimum(x, 0.0)), x),
    "softplus": lambda x: np.logaddexp(0.0, x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0.0, x)),
    "square": lambda x: x**2,
}


def expected_of(kind, xs, given, output, parameters):
    """Value of an operator or part, from what it read and the parameters that it was given by name."""
    x, weight, bias = xs[0], parameters.get("weight"), parameters.get("bias", np.zeros(()))
    if kind in ("layer_norm", "rms_norm"):
        mean = x.mean(-1, keepdims=True) if kind == "layer_norm" else 0.0
        value = (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * parameters["scale"]
        value = value + parameters.get("shift", 0.0)
    elif kind == "embedding":
        rows = np.floor(np.abs(x.astype(np.float32)) * np.float32(1024)).astype(np.int64) % given["rows"]
        value = parameters["table"][rows].reshape(output)
    elif kind == "expand":
        lengths = zip(x.shape[::-1], output[::-1], strict=False)
        fits = x.ndim <= len(output) and all(small in (1, size) for small, size in lengths)
        value = np.broadcast_to(x, output) if fits else np.resize(x, output)
    elif kind in FUNCTIONS:
        value = FUNCTIONS[kind](x).reshape(output)
    else:
        if kind == "batch_norm":
            weight, bias = parameters["scale"], parameters["shift"]
        elif kind in ("add", "mul", "sub"):
            weight = parameters.get("constant")
            xs = [np.broadcast_to(each, output) for each in xs]
        if kind == "conv" and len(given["padding"]) > x.ndim - 2:
            given = {**given, "padding": given["padding"][: x.ndim - 2]}
        plain = {key: value for key, value in given.items() if key != "activation"}
        value = computed(kind, xs, weight, bias, plain, output)
    return FUNCTIONS[given["activation"]](value) if given.get("activation") else value


def expected(op, xs, parameters):
    """Output of an operator in float64, from what it reads or more, and its parameters by part and name."""
    own = {}
    for (part, name), values in parameters.items():
        own.setdefault(part, {})[name] = np.asarray(values, np.float32).astype(float)
    xs = [np.asarray(x, np.float32).astype(float) for x in xs]
    made = []
    for i, (part, shapes) in enumerate(parts_of(op)):
        sources = [xs[~r] if r < 0 else made[r] for r in part["inputs"]]
        sources = [x.ravel()[: prod(shape)].reshape(shape) for x, shape in zip(sources, shapes, strict=True)]
        mine = own.get(i if "parts" in op.attributes else None, {})
        made.append(expected_of(part["kind"], sources, part, part["output_shape"], mine))
    return made[-1]


def close(found, wanted):
    """Whether all is as it should be, to a part of the largest."""
    assert found.shape == wanted.shape
    assert np.isfinite(found).all(), "something was not written, or read before it was"
    error, largest = np.abs(found - wanted).max(), np.abs(wanted).max()
    assert error <= TOLERANCE * largest, (error, largest)  # all may be 0
    return True
