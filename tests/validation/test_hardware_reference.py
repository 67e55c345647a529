"""What single operators should compute: small cases worked by hand."""

from collections import Counter

import numpy as np
import pytest

from simsched.base.errors import BackendError
from simsched.model.graph import Operator
from validation.hardware.graphs import NETWORKS, WHOLE, convolutions, subjects, unequal, workload
from validation.hardware.reference import error_of
from workloads.models.network import Network


def operator(build):
    net = Network("one")
    build(net)
    (op,) = net.graph().operators
    return op


ROW = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)


CASES = {
    # weights 1, 10, 100 and a column of zeros on both sides, bias 0.5: 0 + 10 + 200, 1 + 20 + 300, ...
    "padding": (
        lambda net: net.conv("op", net.input(1, 1, 1, 4), 1, (1, 3), padding=(0, 1), activation=None),
        [ROW],
        {"weight": [[[[1, 10, 100]]]], "bias": [0.5]},
        [210.5, 321.5, 432.5, 43.5],
    ),
    # every second window of two: 1 - 2 and 3 - 4 are negative, ReLU makes them 0; 2 - 1 and 4 - 3 are not
    "stride": (
        lambda net: net.conv("op", net.input(1, 1, 1, 4), 2, (1, 2), stride=(1, 2)),
        [ROW],
        {"weight": [[[[1, -1]]], [[[-1, 1]]]], "bias": [0, 0]},
        [0, 0, 1, 1],
    ),
    # two groups of one channel each: each output is its own channel, twice and three times
    "groups": (
        lambda net: net.conv("op", net.input(1, 2, 1, 2), 2, 1, groups=2, activation=None),
        [ROW.reshape(1, 2, 1, 2)],
        {"weight": [[[[2]]], [[[3]]]], "bias": [0, 0]},
        [2, 4, 9, 12],
    ),
    "max": (lambda net: net.pool("op", net.input(1, 1, 1, 4), "max", (1, 2), stride=(1, 2)), [ROW], {}, [2, 4]),
    # the last window holds the 4 alone
    "rounded up": (
        lambda net: net.pool("op", net.input(1, 1, 1, 4), "max", (1, 3), stride=(1, 3), ceil_mode=True),
        [ROW],
        {},
        [3, 4],
    ),
    # averages count the padding: (0 + 1 + 2) / 3, ..., (3 + 4 + 0) / 3
    "average": (
        lambda net: net.pool("op", net.input(1, 1, 1, 4), "avg", (1, 3), padding=(0, 1)),
        [ROW],
        {},
        [1, 2, 3, 7 / 3],
    ),
    "global": (lambda net: net.global_pool("op", net.input(1, 1, 1, 4)), [ROW], {}, [2.5]),
    "linear": (
        lambda net: net.linear("op", net.input(1, 2), 2),
        [[[1, 2]]],
        {"weight": [[1, 1], [0, 5]], "bias": [1, 0]},
        [4, 10],
    ),
    "matmul": (
        lambda net: net.matmul("op", net.input(1, 1, 2), net.input(1, 2, 1)),
        [[[[1, 2]]], [[[3], [4]]]],
        {},
        [11],
    ),
    "softmax": (lambda net: net.softmax("op", net.input(1, 2)), [[[0, np.log(3)]]], {}, [0.25, 0.75]),
    # mean 2 and variance 1: -1 and 1, but for the 1e-5 under the root; then scale 2, shift 3
    "layer norm": (
        lambda net: net.layer_norm("op", net.input(1, 2)),
        [[[1, 3]]],
        {"scale": [2, 2], "shift": [3, 3]},
        [3 - 2 / np.sqrt(1.00001), 3 + 2 / np.sqrt(1.00001)],
    ),
    # the mean of the squares of 3 and 4 is 12.5
    "rms norm": (
        lambda net: net.layer_norm("op", net.input(1, 2), kind="rms_norm"),
        [[[3, 4]]],
        {"scale": [1, 1]},
        [3 / np.sqrt(12.50001), 4 / np.sqrt(12.50001)],
    ),
    "add": (lambda net: net.add("op", [net.input(2), net.input(2)], activation="relu"), [[1, -5], [2, 3]], {}, [3, 0]),
    "concat": (
        lambda net: net.concat("op", [net.input(1, 1), net.input(1, 2)], axis=1),
        [[[1]], [[2, 3]]],
        {},
        [1, 2, 3],
    ),
    # floor(0.0025 * 1024) = 2: the third row of the table
    "embedding": (
        lambda net: net.embedding("op", net.input(1), 3, 2),
        [[0.0025]],
        {"table": [[0, 1], [2, 3], [4, 5]]},
        [4, 5],
    ),
}


@pytest.mark.parametrize(("build", "inputs", "parameters", "expected"), CASES.values(), ids=CASES)
def test_by_hand(build, inputs, parameters, expected):
    op, known = operator(build), {(None, name): np.array(value) for name, value in parameters.items()}
    expected = np.array(expected, float)
    assert error_of(op, inputs, known, expected) < 1e-12
    expected[-1] += 0.01 * np.abs(expected).max()
    assert error_of(op, inputs, known, expected) == pytest.approx(0.01)


def test_a_unit_by_hand():
    """ReLU of (-1, 2) is (0, 2); both parts of the sum read it: (0, 4)."""

    def build(net):
        with net.unit("op", "unit"):
            x = net.activation("op.relu", net.input(2))
            net.add("op.sum", [x, x])

    assert error_of(operator(build), [np.array([-1.0, 2.0])], {}, np.array([0.0, 4.0])) == 0.0


def test_an_operator_without_reference_is_named():
    with pytest.raises(BackendError, match="no reference for operators of kind 'fft'"):
        error_of(Operator("op", kind="fft", input_shapes=((1,),), output_shape=(1,)), [np.ones(1)], {}, np.ones(1))


# What is measured


def test_subjects_are_those_of_the_readme():
    made = {name: workload(*what) for name, what in subjects().items()}
    assert {name: len(graph) for name, graph in made.items() if name.endswith("@1")} == {
        "squeezenet@1": 50,
        "inception_v3@1": 119,
        "googlenet@1": 80,
        "randwire/stage2@1": 33,
        "nasnet_a_large/cell2@1": 16,
    }
    assert [len(graph) for name, graph in made.items() if name.startswith("random:")] == [30, 30, 30]
    assert len(made) == 13
    for name in ("inception_v3", "randwire/stage2"):
        one, many = (made[f"{name}@{batch}"].flops.sum() for batch in (1, 16))
        assert many == pytest.approx(16 * one)
    assert list(made)[5:8] == [name for name in made if name.startswith("random:")]
    assert all(len(workload(spec, 1)) >= 9 for spec in WHOLE)


@pytest.mark.parametrize("name", [name for name in NETWORKS if "/" in name])
def test_a_block_reads_the_rest_as_inputs_of_the_network(name):
    """None of its operators reads from the block and from outside: which input were which would not be known."""
    block = workload(name, 1)
    reads = Counter(edge.dst for edge in block.edges)
    assert all(reads[op.name] in (0, len(op.input_shapes)) for op in block.operators)
    assert 0 < len(block.inputs) < len(block)


def test_pairs_are_independent():
    """A 5x5 convolution of 48 to 48 channels on 32 x 32 pixels: 2 * 48 * 48 * 25 * 1024 FLOP and a bias for each."""
    graph = convolutions(32)
    assert len(graph.src) == 0
    assert graph.flops[0] == graph.flops[1] == pytest.approx(2 * 48 * 48 * 25 * 1024, rel=1e-3)
    assert [op.kind for op in unequal("conv", 28).operators] == ["relu", "conv"]
    assert [op.kind for op in unequal("relu", 28).operators] == ["relu", "relu"]
