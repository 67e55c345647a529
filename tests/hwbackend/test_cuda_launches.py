"""What operators launch: kernels, grids, arguments and costs, as plain data."""

from inspect import signature
from math import prod

import numpy as np
import pytest
from shortened import operator

from hwbackend import cuda_launches as cuda
from simsched.base.errors import BackendError
from simsched.model.graph import Kernel, Operator
from workloads import WORKLOADS, load

NETWORKS = [name for name in WORKLOADS if "granularity" in signature(WORKLOADS[name]).parameters]
CONV = {"kernel": [3, 3], "stride": [1, 1], "padding": [1, 1], "groups": 1}


def launched(*graphs):
    """The operators of graphs with their launches; of those that are alike but for the name one."""
    seen = set()
    for graph in graphs:
        ptr, order = graph.incoming
        for i, op in enumerate(graph.operators):
            brought = [graph[graph.edge(int(e)).src].output_shape for e in order[ptr[i] : ptr[i + 1]]]
            edges = cuda.edges_of_inputs(op, brought)
            reads = [shape if e is None else brought[e] for e, shape in zip(edges, op.input_shapes, strict=True)]
            alike = op.kind, repr(op.attributes), op.input_shapes, op.output_shape, tuple(reads)
            if alike not in seen:
                seen.add(alike)
                yield op, cuda.launches_of(op, 132, reads)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_launches(name):
    """One kernel for each of the operator's works, as many FLOP and bytes; the parameters are its weights.

    A batch normalisation has 2 numbers for each channel here, not 4, and an index 4 bytes, not 8. What takes no time
    in a graph, a view, is a copy.
    """
    for op, launches in launched(*(load(name, granularity=granularity) for granularity in ("unit", "operator"))):
        assert launches
        for launch in launches:
            assert launch.kernel in cuda.KERNEL_NAMES
            assert launch.blocks >= 1
            assert launch.threads in range(32, 257, 32)
            assert isinstance(launch.arguments[-1], cuda.Stamps)
        assert sum(kernel.share for kernel in cuda.kernels_of(launches)) == pytest.approx(1.0)
        if not op.works:
            assert [launch.kernel for launch in launches] == ["affine"]
            continue
        assert len(launches) == len(op.works)
        assert sum(launch.flops for launch in launches) == pytest.approx(op.flops)
        kinds = [part["kind"] for part in op.attributes.get("parts", [])] or [op.kind]
        if not {"batch_norm", "embedding", "conv"} & set(kinds):
            assert sum(launch.nbytes for launch in launches) == pytest.approx(op.nbytes)
        if kinds == ["conv"]:  # with a bias in any case
            bias = 4 * op.output_shape[1]
            assert sum(launch.nbytes for launch in launches) - op.nbytes in (0, bias)
            assert sum(p.nbytes for p in cuda.parameters_of(launches)) - op.weight_nbytes in (0, bias)


def test_a_convolution():
    """1 x 96 x 35 x 35 outputs of 64 channels: 128 x 128 outputs a block make 10 blocks, 64 x 64 make 20 x 2 and
    32 x 32 39 x 3: as 132 processors are to have something to do, the smallest; 40 are content with 64 x 64.
    """
    op = operator("conv", [(1, 64, 35, 35)], (1, 96, 35, 35), **CONV, activation="relu")
    (small,), (middle,), (large,) = (cuda.launches_of(op, sms) for sms in (132, 40, 10))
    assert (small.kernel, small.grid, small.block) == ("conv_32x32", (39, 3, 1), (128, 1, 1))
    assert (middle.kernel, middle.grid, middle.block) == ("conv_64x64", (20, 2, 1), (256, 1, 1))
    assert (large.kernel, large.grid) == ("conv_128x128", (10, 1, 1))
    assert small.flops == 2 * 96 * 35 * 35 * 64 * 9
    assert small.nbytes == 4 * (64 * 35 * 35 + 96 * 64 * 9 + 96 + 96 * 35 * 35)
    weight = cuda.Parameter("weight", (96, 64, 3, 3), 0.0, 1 / 24)
    bias = cuda.Parameter("bias", (96,), 0.0, 0.1)
    assert small.arguments[:4] == (cuda.Input(0), weight, bias, cuda.Output())
    assert [int(n) for n in small.arguments[4:-1]] == [1, 64, 96, 35, 35, 35, 35, 3, 3, 1, 1, 1, 1, 1, 1, 1]
    assert all(type(n) is np.int32 for n in small.arguments[4:-1])
    assert cuda.parameters_of([small]) == (weight, bias)
    assert cuda.scratch_of([small]) == cuda.tables_of([small]) == ()
    assert cuda.kernels_of([small]) == (Kernel(117, 128, cuda.KERNEL_RESOURCES["conv_32x32"].registers, 4608),)
    assert cuda.kernels_of([small], {"conv_32x32": cuda.Resources(40, 100)}) == (Kernel(117, 128, 40, 100),)


def test_parts_of_a_unit_write_scratch_buffers():
    """relu of 400 numbers and their sum with the input: 3 of the 5 tensors that are moved are the second's."""
    parts = [
        {"kind": "relu", "inputs": [-1], "output_shape": [400]},
        {"kind": "add", "inputs": [0, -2], "output_shape": [400]},
    ]
    op = operator("sequential", [(400,), (400,)], (400,), parts=parts)
    first, second = cuda.launches_of(op, 1)
    between = cuda.Scratch(0, 1600)
    assert (first.arguments[0], first.arguments[3]) == (cuda.Input(0), between)
    assert (second.arguments[0], second.arguments[2]) == (cuda.Table((between, cuda.Input(1))), cuda.Output())
    assert cuda.scratch_of([first, second]) == (between,)
    assert cuda.tables_of([first, second]) == (second.arguments[0],)
    assert [kernel.share for kernel in cuda.kernels_of([first, second])] == pytest.approx([0.4, 0.6])


def test_a_synthetic_operator():
    """8192 FLOP in 4 blocks of 32 threads are 64 of a thread, 8 for an iteration; 1280 bytes are 10 words a block."""
    kernel = Kernel(4, 32, 32, 10_000)
    op = Operator("s", "synth", flops=8192, nbytes=1280, kernels=(kernel,))
    (launch,) = cuda.launches_of(op, 132, [(256,), (3, 5)])
    constant = cuda.Parameter("constant", (), 0.5, 0.1)
    assert launch.grid == (4, 1, 1)
    assert launch.block == (32, 1, 1)
    assert launch.arguments == (
        cuda.Table((cuda.Input(0), 256, cuda.Input(1), 15)),
        2,
        constant,
        cuda.Output(),
        256,
        8,
        10,
        cuda.StreamBuffer("source"),
        cuda.StreamBuffer("sink"),
        cuda.STREAM_NBYTES // 16,
        cuda.Stamps(),
        cuda.BlockStamps(),
    )
    assert cuda.kernels_of([launch]) == (kernel,)
    (alone,) = cuda.launches_of(op, 132)
    assert alone.arguments[:2] == (None, 0)
    assert cuda.output_size(op) == 256
    assert cuda.output_size(Operator("s", "synth", output_shape=(2, 3))) == 6


def test_which_edge_brings_which_input():
    """Edges come in the order of the inputs; what no edge brings is an input of the network."""
    op = operator("concat", [(2, 4), (2, 8), (2, 4)], (2, 16), axis=1)
    assert cuda.edges_of_inputs(op, [(2, 4), (2, 8), (2, 4)]) == (0, 1, 2)
    assert cuda.edges_of_inputs(op, [(2, 8), (2, 4)]) == (None, 0, 1)
    assert cuda.edges_of_inputs(op, [(2, 4), (2, 4)]) == (0, None, 1)
    assert cuda.edges_of_inputs(op, [(16,)]) == (None, 0, None)
    assert cuda.edges_of_inputs(op, []) == (None, None, None)
    assert cuda.edges_of_inputs(Operator("s", "synth"), [(7,)]) == (0,)
    with pytest.raises(BackendError, match="no input is what edge 0 brings"):
        cuda.edges_of_inputs(op, [(2,)])


@pytest.mark.parametrize(
    ("op", "reads", "reason"),
    [
        (operator("lstm", [(4, 4)], (4, 4)), None, "there is no CUDA kernel for it"),
        (Operator("op", "relu"), None, "its output shape is not known"),
        (operator("relu", [(4,)], (5,)), None, "the shapes"),
        (operator("relu", [(4,)], (4,)), [(3,)], "input 0 brings 3 elements"),
        (operator("relu", [(4,)], (4,)), [(4,), (4,)], "has 1 inputs, not 2"),
        (operator("add", [(4,), (3,)], (4,)), None, "cannot be repeated"),
        (operator("add", [(4,)] * 2, (4,), activation="step"), None, "activation 'step'"),
        (operator("concat", [(4,)] * 2, (9,), axis=0), None, "does not add up"),
        (operator("concat", [(4,)] * 2, (8,), axis=1), None, "axis 1 is none"),
        (operator("conv", [(1, 2, 4, 4, 4)], (1, 2, 4, 4, 4), **CONV), None, "one or two axes"),
        (operator("conv", [(1, 3, 4, 4)], (1, 2, 4, 4), **{**CONV, "groups": 2}), None, "2 groups"),
        (operator("conv", [(1, 2, 4, 4)], (1, 2, 4, 4), **{**CONV, "stride": [0, 1]}), None, "stride must be 2"),
        (operator("pool", [(1, 2, 4, 4)], (1, 2, 4, 4), **CONV, pool="lp"), None, "pool 'lp'"),
        (operator("matmul", [(4, 5), (4, 6)], (4, 6)), None, "the product of"),
        (operator("matmul", [(4, 5)], (4, 6)), None, "does not read 1 tensors"),
        (operator("linear", [(4, 5)], (3, 6)), None, "no matrix of weights"),
        (operator("embedding", [(4,)], (4, 8)), None, "no table of None rows"),
        (operator("slice", [(4,)], (2,), axis=0, begin=3, end=5), None, "no part of"),
        (operator("reduce_sum", [(7,)], (2,)), None, "cannot be summed"),
        (operator("batch_norm", [(7,)], (7,)), None, "no channels"),
        (operator("relu", [(2**30 + 1,)], (2**30 + 1,)), None, "larger than the CUDA kernels can count"),
        (operator("matmul", [(65536, 1, 1)] * 2, (65536, 1, 1)), None, "larger than a CUDA grid can be"),
        (Operator("op", "synth"), None, "must have a kernel"),
        (Operator("op", "synth", flops=1e15, kernels=(Kernel(1, 1),)), None, "more than 32 bits"),
    ],
)
def test_what_has_no_kernel_is_refused(op, reads, reason):
    """In one line, that names the operator and its kind and what to do instead."""
    with pytest.raises(BackendError, match=rf"operator 'op' of kind {op.kind!r}.*{reason}.*\Z"):
        cuda.launches_of(op, 132, reads)


def test_a_billion_elements_can_be_counted():
    assert cuda.launches_of(operator("softmax", [(2**29, 2)], (2**29, 2)), 132)


def test_grids_cover_the_output():
    """Blocks of 256 threads: 4 elements a thread if each processor has a block even so."""
    n = 256 * 4 * 10
    op = operator("relu", [(n,)], (n,))
    for sms, items, blocks in ((10, 4, 10), (11, 2, 20), (21, 1, 40), (1000, 1, 40)):
        (launch,) = cuda.launches_of(op, sms)
        assert (launch.grid[0], int(launch.arguments[5])) == (blocks, items)
        assert prod(launch.grid) * 256 * items >= n


def test_the_last_kernel_of_a_synthetic_operator_alone_writes_its_output():
    """800 FLOP, a quarter of them by the first kernel: 200, and 600."""
    kernels = (Kernel(2, 32, share=0.25), Kernel(2, 32, share=0.75))
    first, last = cuda.launches_of(Operator("op", "synth", flops=800.0, nbytes=1600.0, kernels=kernels), 132, ())
    assert [first.flops, last.flops] == [200.0, 600.0]
    assert [cuda.Output() in launch.arguments for launch in (first, last)] == [False, True]
    assert cuda.scratch_of((first, last)) == (cuda.Scratch(0, 4 * 256),)
