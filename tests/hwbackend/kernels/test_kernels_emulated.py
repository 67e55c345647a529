"""The CUDA kernels compute what operators mean: run by the host, thread by thread, and compared with float64.

Everything that is written is NaN before, guards lie around every buffer, and every kernel is run with threads that take
turns in either order, so a barrier that is missing, an element left out or one too many shows.
"""

from dataclasses import replace

import numpy as np
import pytest
from emulated import FUNCTIONS, TOLERANCE, Buffer, Run, close, drawn, expected, ran
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting.interpreter import read
from shortened import operator

from hwbackend.kernels.launches import STREAM_NBYTES, launches_of, output_size, parameters_of
from hwbackend.kernels.steps import as_argument
from simsched.model.graph import Kernel, Operator

EMBEDDING = operator("embedding", [(3, 20)], (3, 20, 9), rows=50, features=9)
EITHER = pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
TILES = {"128x128": 1, "64x64": 4, "32x32": 10**6}  # a tile, and processors with which it is chosen below


def inputs(op, rng=0):
    rng = np.random.default_rng(rng)
    return [rng.normal(size=shape) for shape in op.input_shapes]


def drawn_for(launches):
    return {(p.part, p.name): drawn(p) for p in parameters_of(launches)}


def checked(op, *, xs=None, sms=132, reads=None, backwards=False):
    """Kernels of an operator that was seen to compute what it should."""
    xs = inputs(op) if xs is None else xs
    launches = launches_of(op, sms, reads)
    whole = expected(op, [read(x, op, i) for i, x in enumerate(xs)], drawn_for(launches))
    assert close(ran(op, xs, sms=sms, reads=reads, backwards=backwards), whole)
    return [launch.kernel for launch in launches]


def conv_of(n, channels, size, outputs, kernel, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, **more):
    out = [
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, t, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    ]
    given = {"kernel": kernel, "stride": stride, "padding": padding, "groups": groups, "dilation": dilation, **more}
    return operator("conv", [(n, channels, *size)], (n, outputs, *out), **given)


sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))


@st.composite
def convs(draw):
    groups = draw(st.integers(1, 3))
    inputs, outputs = draw(st.integers(1, 6)), draw(st.integers(1, 40))
    kernel, dilation = draw(st.tuples(*[st.integers(1, 4)] * 2)), draw(st.tuples(*[st.integers(1, 2)] * 2))
    padding, stride = draw(st.tuples(*[st.integers(0, 2)] * 2)), draw(st.tuples(*[st.integers(1, 3)] * 2))
    least = [d * (k - 1) + 1 - 2 * p for k, d, p in zip(kernel, dilation, padding, strict=True)]
    size = [max(1, n, low) for n, low in zip(draw(sizes), least, strict=True)]
    return conv_of(
        draw(st.integers(1, 2)),
        groups * inputs,
        size,
        groups * outputs,
        kernel,
        stride,
        padding,
        dilation,
        groups,
        activation=draw(st.sampled_from([None, "relu", "silu"])),
    )


@settings(max_examples=60, deadline=None)
@given(op=convs(), sms=st.sampled_from([1, 3, 1000]), backwards=st.booleans())
def test_convolutions_of_all_shapes(op, sms, backwards):
    checked(op, sms=sms, backwards=backwards)


def test_convolution_of_one_axis_and_of_padding_at_one_end():
    """Padding before and behind each axis, as in ONNX: 8 + 1 + 0 pixels and a kernel of 3 make 7, of 2 axes too."""
    one = {"kernel": [3], "stride": [1], "padding": [1, 0], "groups": 1}
    two = {"kernel": [3, 3], "stride": [1, 1], "padding": [1, 1, 0, 0], "groups": 1}
    flat, deep = operator("conv", [(2, 3, 8)], (2, 4, 7), **one), operator("conv", [(2, 3, 8, 8)], (2, 4, 7, 7), **two)
    for op in (flat, deep):
        (x,) = inputs(op)
        wide = np.pad(x, [(0, 0), (0, 0)] + [(1, 0)] * (x.ndim - 2))
        plain = {**op.attributes, "padding": [0] * (x.ndim - 2)}
        whole = replace(op, input_shapes=(wide.shape,), attributes=plain)
        assert close(ran(op, [x]), expected(whole, [wide], drawn_for(launches_of(op, 132))))


def test_both_sides_of_a_convolution_read_all_they_should():
    """A NaN in one pixel shows in the outputs whose windows hold it, and in no other."""
    op = conv_of(1, 3, (6, 6), 4, (3, 3), padding=(1, 1))
    (x,) = inputs(op)
    x[0, 1, 2, 2] = np.nan
    found = np.isnan(ran(op, [x]))
    assert found[:, :, 1:4, 1:4].all()
    assert found.sum() == 4 * 9


@settings(max_examples=30, deadline=None)
@given(
    stack=st.lists(st.integers(1, 3), max_size=2),
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    shared=st.booleans(),
    bias=st.booleans(),
    sms=st.sampled_from([1, 3, 1000]),
)
def test_products_of_all_shapes(stack, sizes, shared, bias, sms):
    """Stacks of matrices, by as many or by one; products with weights, of a few rows by another kernel."""
    m, k, n = sizes
    b = (k, n) if shared else (*stack, k, n)
    checked(operator("matmul", [(*stack, m, k), b], (*stack, m, n)), sms=sms)
    checked(operator("linear", [(*stack, m, k)], (*stack, m, n), bias=bias, activation="tanh"), sms=sms)


POOLS = [  # size, output, kernel, stride, padding; the last windows of the last reach beyond the image
    ((9, 8), (9, 8), (3, 3), (1, 1), (1, 1)),
    ((9, 8), (4, 4), (3, 2), (2, 2), (0, 0)),
    ((8, 8), (5, 5), (2, 2), (2, 2), (1, 1)),
    ((8, 7), (4, 4), (3, 3), (2, 2), (0, 0)),
]


def cases():
    """Kernels that are launched, the operator, and options."""
    for tile, sms in TILES.items():
        # 198 outputs (of 9 x 11 pixels) by 70, and 70 by 133: no multiples of any tile, so 1 to 7 x 1 to 5 blocks
        conv = conv_of(2, 5, (9, 11), 70, (3, 3), padding=(1, 1), activation="relu")
        yield [f"conv_{tile}"], conv, {"sms": sms}
        yield [f"linear_{tile}"], operator("linear", [(2, 35, 21)], (2, 35, 133), activation="gelu"), {"sms": sms}
        yield [f"matmul_{tile}"], operator("matmul", [(1, 70, 35), (1, 35, 133)], (1, 70, 133)), {"sms": sms}
    for outputs in (6, 12):
        more = {"stride": (2, 1), "padding": (2, 0), "groups": 6, "activation": "relu6"}
        yield ["depthwise"], conv_of(2, 6, (9, 7), outputs, (5, 3), **more), {}
    yield ["linear_few"], operator("linear", [(3, 77)], (3, 21), activation="sigmoid"), {}
    for kind in ("max", "avg"):
        for size, output, kernel, stride, padding in POOLS:
            given = {"pool": kind, "kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": True}
            yield ["pool"], operator("pool", [(2, 3, *size)], (2, 3, *output), **given), {}
    for kind in ("global_max", "global_avg", "avg"):
        given = {"pool": kind, "kernel": (7, 9), "stride": (1, 1), "padding": (0, 0)}
        yield ["reduce"], operator("pool", [(2, 5, 7, 9)], (2, 5, 1, 1), **given), {"shift": -3.0}
    yield ["pool"], operator("pool", [(2, 3, 9)], (2, 3, 5), pool="max", kernel=[3], stride=[2], padding=[1]), {}
    yield ["reduce"], operator("reduce_sum", [(3, 5, 40)], (3, 5), activation="tanh"), {}
    for kind, counts in {"add": (2, 9), "mul": (2, 9), "sub": (2,)}.items():
        for n in counts:
            yield ["combine"], operator(kind, [(2, 3, 50)] * n, (2, 3, 50)), {}
        yield ["gather", "combine"], operator(kind, [(2, 3, 5), (3, 1)], (2, 3, 5)), {}
        yield ["affine"], operator(kind, [(700,)], (700,)), {}  # with a constant
    yield ["affine"], operator("mul", [(700,)], (700,), factor=0.125), {}
    for axis in range(3):
        # six tensors of different lengths in one launch; one processor: blocks of 1024 elements
        rest, lengths = [4, 5, 6], (3, 1, 40, 7, 1, 16)
        *shapes, output = ((*rest[:axis], n, *rest[axis + 1 :]) for n in (*lengths, sum(lengths)))
        for sms in (1, 132):
            yield ["concat"], operator("concat", shapes, output, axis=axis), {"sms": sms}
        part = (*rest[:axis], 2, *rest[axis + 1 :])
        yield ["gather"], operator("slice", [(4, 5, 6)], part, axis=axis, begin=1, end=3), {}
    yield ["affine"], operator("slice", [(4, 5, 6)], (4, 7)), {}  # the first elements
    for kind in ("view", "transpose", "copy", "dropout", "flatten"):
        yield ["affine"], operator(kind, [(4, 5, 6)], (6, 20)), {}
    yield ["gather"], operator("expand", [(3, 1, 5)], (2, 3, 4, 5)), {}
    yield ["gather"], operator("expand", [(7, 3)], (2, 3, 7)), {}  # all of a tensor again and again
    for length in (1, 33, 700):  # shorter than a warp, a warp and one, and longer than a block
        yield ["softmax"], operator("softmax", [(2, 3, length)], (2, 3, length)), {"factor": 30.0}
        if length > 1:  # a row of one number less its mean is nothing but the shift
            for kind in ("layer_norm", "rms_norm"):
                yield ["normalize"], operator(kind, [(5, length)], (5, length)), {"shift": 2.0}
    yield ["affine"], operator("batch_norm", [(2, 5, 4, 3)], (2, 5, 4, 3), activation="relu"), {}
    yield ["embed"], EMBEDDING, {"factor": 10.0}


@EITHER
@pytest.mark.parametrize(("kernels", "op", "options"), list(cases()))
def test_operators(kernels, op, options, backwards):
    """On numbers around 0, unless they are multiplied by a factor, or shifted."""
    factor, shift = (options.get(name, usual) for name, usual in (("factor", 1.0), ("shift", 0.0)))
    xs = [factor * x + shift for x in inputs(op)]
    assert checked(op, xs=xs, sms=options.get("sms", 132), backwards=backwards) == kernels


def test_no_row_is_beyond_the_table():
    assert np.isnan(ran(EMBEDDING, [np.full((3, 20), np.nan)])).all()
    assert np.isfinite(ran(EMBEDDING, [np.full((3, 20), np.inf)])).all()


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions_of_one_number(kind):
    """Alone on 1000 numbers from -30 to 30, NaN among them; and in another kernel."""
    x = np.append(np.linspace(-30.0, 30.0, 999), np.nan)
    found = ran(operator(kind, [(1000,)], (1000,)), [x])
    assert np.isnan(found[-1])
    wanted = FUNCTIONS[kind](x[:-1].astype(np.float32).astype(float))
    assert np.abs(found[:-1] - wanted).max() <= TOLERANCE * max(1.0, np.abs(wanted).max())
    assert checked(operator("add", [(7, 3), (7, 3)], (7, 3), activation=kind)) == ["combine"]
    assert checked(conv_of(1, 2, (4, 4), 3, (1, 1), activation=kind)) == ["conv_32x32"]


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_tensors_are_read_where_they_lie(axis):
    """Channels 2 to 6 of one image lie in one piece, those of two do not: the part is copied first."""
    for n in (1, 2):
        whole = (n, 9, 4, 4) if axis else (9, n, 4, 4)
        part = (n, 4, 4, 4) if axis else (4, n, 4, 4)
        op = operator("add", [part, part], part, slices={"1": [axis, 2, 6]})
        xs = [np.random.default_rng(0).normal(size=shape) for shape in (part, whole)]
        copies = ["gather"] if axis and n > 1 else []
        assert checked(op, xs=xs, reads=[part, whole]) == [*copies, "combine"]


# Synthetic kernels


def synth(blocks, *, flops=0.0, nbytes=0.0, **more):
    return Operator("s", "synth", flops=flops, nbytes=nbytes, kernels=(Kernel(blocks, 64, 32, 8),), **more)


def constant_of(op):
    (constant,) = parameters_of(launches_of(op, 1))
    return np.float32(drawn(constant))


@EITHER
@pytest.mark.parametrize("blocks", [1, 7, 300])
def test_synth_depends_on_all_it_reads(blocks, backwards):
    """``out[i] = c + 0.5 / n * sum(x[i % x.size])``; whatever work it does besides."""
    xs = [np.random.default_rng(i).normal(size=n) for i, n in enumerate((256, 40, 1000))]
    op = synth(blocks, flops=64.0 * 8 * 3 * blocks, nbytes=3200.0 * blocks)
    found = ran(op, xs, reads=[x.shape for x in xs], backwards=backwards)
    constant = constant_of(op)
    wanted = constant + 0.5 / 3 * sum(np.resize(x, 256) for x in xs)
    assert close(found, wanted)
    for x in xs:
        broken = x.copy()
        broken[5] = np.nan
        given = [broken if other is x else other for other in xs]
        assert np.isnan(ran(op, given, reads=[x.shape for x in xs])[5])
    assert close(ran(op, []), np.full(256, constant))
    shaped = synth(blocks, output_shape=(3, 200))
    assert close(ran(shaped, [np.ones(7)], reads=[(7,)]), np.full((3, 200), constant_of(shaped) + 0.5))


@EITHER
def test_synth_moves_what_it_says(backwards):
    """5 blocks of 9600 bytes read 300 words of 16 bytes each and write as many, in rounds of 2 for each of 64 threads.

    They begin where the last kernel ended and go round buffers of 1700 words: 200 in one piece are left out.
    """
    (launch,) = launches_of(synth(5, nbytes=5 * 9600.0), 1)
    arguments = [1700 if argument == STREAM_NBYTES // 16 else argument for argument in launch.arguments]
    launch = replace(launch, arguments=tuple(map(as_argument, arguments)))
    for _ in range(3):
        source, sink = Buffer(np.arange(6800)), Buffer(np.full(6800, np.nan))
        run = Run([launch], [], 256, backwards=backwards, streams={"source": source, "sink": sink})
        assert np.isfinite(run.output.values).all()
        moved = np.isfinite(sink.values)
        assert moved.sum() == 6000
        assert (moved != np.roll(moved, 1)).sum() == 2
        assert (sink.values[moved] == source.values[moved]).all()
        sink.check()


@EITHER
def test_stamps(backwards):
    """The host's clock ticks each time it is read: a span holds those of all its blocks, which follow each other."""
    run = Run(launches_of(synth(6), 1), [], 256, backwards=backwards, stamps=True)
    ((begin, end),), (blocks,) = run.spans, run.blocks
    assert begin < blocks[:, 0].min()
    assert blocks[:, 1].max() < end
    assert (blocks[:, 0] < blocks[:, 1]).all()
    assert (blocks[1:, 0] > blocks[:-1, 1]).all()
    assert blocks[:, 2].tolist() == [0, 1, 2, 3, 0, 1]


EVERY_KERNEL = {tuple(kernels): op for kernels, op, _ in cases()}


@pytest.mark.parametrize("op", EVERY_KERNEL.values(), ids=map("-".join, EVERY_KERNEL))
def test_every_kernel_has_spans_and_spreads_what_is_broken(op):
    """A span of every launch, and NaN for what depends on an input that is NaN."""
    xs = inputs(op)
    launches = launches_of(op, 132)
    run = Run(launches, xs, output_size(op), stamps=True)
    assert len(run.spans) == len(launches)
    assert all(1000 <= begin < end for begin, end in run.spans)
    for i in range(len(xs)):
        broken = [np.full(x.shape, np.nan) if j == i else x for j, x in enumerate(xs)]
        assert np.isnan(ran(op, broken)).any()
