"""Operators and networks through the cupy backend: its CUDA kernels run by the host, on streams of a fake CUDA."""

from functools import partial

import numpy as np
import pytest
from emulated import close, expected, launched
from fake_cuda import FakeCuda, on_fake
from shortened import in_order, nasnet_cell, operator

import workloads
from hwbackend.kernels.launches import KERNEL_NAMES
from simsched.calibration.training import random_schedule
from simsched.model import Edge, OpGraph
from simsched.rewriting.merging import merge
from validation.hardware.graphs import KERNELS, kernel_graph
from validation.hardware.reference import error_of

_ALIGNMENT = 256


class HostCuda(FakeCuda):
    """A fake CUDA whose addresses are those of the host, on which kernels of the host can work."""

    def __init__(self, gpus=1, rng=0):
        super().__init__(gpus, rng, kernels={name: on_host(name) for name in KERNEL_NAMES})
        self._kept = []  # an address is never given twice

    def _room(self, nbytes):
        whole = np.zeros(nbytes + _ALIGNMENT, np.uint8)
        start = -whole.ctypes.data % _ALIGNMENT
        self._kept.append(whole)
        return whole.ctypes.data + start, whole[start : start + nbytes]


def on_host(name):
    """The kernel of a name as the fake runs it; times are the fake's."""
    stamps_at = 10 if name == "synth" else -1

    def kernel(memory, arguments, start, end):
        given = list(arguments)
        memory.stamp(given[stamps_at], start, end)
        given[stamps_at] = np.uint64(0)
        launched(name, memory.grid, memory.block, given)

    return kernel


def merged_convolutions():
    """Branches of 1 x 1 and 3 x 3 as one convolution, of whose output others read parts."""
    graph, _ = merge(workloads.load("tiny_inception", image_size=10), [("one", "three_1", "five_1")])
    assert any("slices" in op.attributes for op in graph.operators)
    return graph


@pytest.mark.parametrize(
    ("load", "execution", "place"),
    [
        (partial(workloads.load, "tiny_inception"), "graph", "one"),
        (partial(workloads.load, "tiny_inception", granularity="operator"), "events", "one"),
        (partial(workloads.load, "tiny_resnet", granularity="operator"), "stages", "one"),
        (partial(workloads.load, "tiny_transformer"), "events", "two"),
        (nasnet_cell, "events", "one"),
        (merged_convolutions, "events", "one"),
    ],
)
def test_networks(load, execution, place):
    """A random schedule gives what sequential execution gives, and that is what the operators mean."""
    _, backend = on_fake(place, 1, fake=HostCuda)
    graph = backend.realise(load())
    plan = random_schedule(graph, backend.cluster, rng=2, streams=3, execution=execution)
    work = backend._work_on(graph)
    with backend._run(plan.lower(backend.cluster), work) as run:
        assert work.largest_error(run) < 1e-6
    found = backend.outputs(graph)
    assert list(found) == list(graph.names)
    for op, (reads, parameters, wrote) in zip(graph.operators, found.values(), strict=True):
        assert close(wrote.reshape(op.output_shape).astype(float), expected(op, reads, parameters))


def test_operators_of_several_kernels():
    """relu(x) + relu(x) of one unit in three launches, through two scratch buffers, then a batch norm.

    Scale and shift are drawn from the name and the seed, so another seed gives other values.
    """
    shape = (1, 4, 8, 8)
    parts = [
        {"name": name, "kind": kind, "inputs": inputs, "output_shape": shape}
        for name, kind, inputs in (("r", "relu", [-1]), ("s", "relu", [-1]), ("t", "add", [0, 1]))
    ]
    unit, norm = operator("unit", [shape], shape, "unit", parts=parts), operator("batch_norm", [shape], shape, "norm")
    outputs = []
    for seed in (0, 0, 1):
        _, backend = on_fake(fake=HostCuda, seed=seed)
        realised = backend.realise(OpGraph([unit, norm], [Edge("unit", "norm", 1024.0)]))
        assert [len(op.kernels) for op in realised.operators] == [3, 1]
        assert realised.operators[1].kernels[0].registers == 40 + len("affine")  # as the fake compiles it
        assert backend.realise(realised) is realised
        assert backend.replay(in_order(realised, stream=[0, 1]), repeats=1).max_relative_error == 0.0
        outputs.append(backend._work.reference[1])
    assert np.array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


def test_part_of_a_tensor_is_read_where_it_lies():
    """relu reads channels 2 and 3 of 4, 64 numbers each: 128 numbers from the 128th on."""
    shape, part = (1, 4, 8, 8), (1, 2, 8, 8)
    norm = operator("batch_norm", [shape], shape, "norm")
    relu = operator("relu", [part], part, "relu", slices={"0": [1, 2, 4]})
    graph, (_, backend) = OpGraph([norm, relu], [Edge("norm", "relu", 512.0)]), on_fake(fake=HostCuda)
    backend.replay(in_order(graph), repeats=1)
    whole, found = (backend._work.reference[i] for i in range(2))
    assert np.array_equal(found, np.maximum(whole[128:], 0))
    assert found.any()
    shown = backend.outputs(graph)
    assert [set(parameters) for _, parameters, _ in shown.values()] == [{(None, "scale"), (None, "shift")}, set()]
    (read,), _, wrote = shown["relu"]
    assert read.shape == part
    assert np.array_equal(read.ravel(), whole[128:])
    assert wrote is found


LONG = {"conv 3x3", "conv 7x7, 3 channels", "linear", "softmax", "layer norm"}  # others are of the same kind, or short


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in LONG])
def test_what_kernels_compute_is_held_against_numpy(name):
    """As a campaign on a device does it, with two operators that are independent; all errors are of float32."""
    _, backend = on_fake(fake=HostCuda)
    graph = backend.realise(kernel_graph(name))
    assert (len(graph), len(graph.edges)) == (2, 0)
    errors = {op: error_of(graph[op], *found) for op, found in backend.outputs(graph).items()}
    assert list(errors) == list(graph.names)
    assert max(errors.values()) < 2e-6
