"""Parameters of networks: a wrong one is named whatever it is, and numpy's whole numbers count as Python's."""

from inspect import signature

import numpy as np
import pytest

from simsched.base.errors import GraphError
from workloads import WORKLOADS, load
from workloads.models.network import Network

NETWORKS = [name for name in WORKLOADS if not name.startswith("random:")]
NEITHER = (True, -1, 1.5, float("nan"), b"x", [], {}, -(10**5000), object())  # a size of, nor the name of, anything


def network():
    net = Network("net")
    return net, net.input(1, 4, 8, 8)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_wrong_is_named(name):
    for parameter in signature(WORKLOADS[name]).parameters:
        for value in NEITHER if parameter != "graphs" else ():  # a path, for the reader to refuse
            with pytest.raises(GraphError, match=parameter) as caught:
                load(name, **{parameter: value})
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("granularity", ["unit", "operator"])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet50", {"batch": 3, "image_size": 100}),
        ("randwire", {"channels": 10}),
        ("bert_base", {"batch": 100, "sequence_length": 4}),
        ("t5_small_encoder", {"batch": 2, "sequence_length": 100}),
        ("deepfm", {"batch": 100, "rows": 100, "factors": 100, "hidden": 100}),
        ("rnntc_sru", {"layers": 2, "sequence_length": 2, "features": 100, "classes": 100}),
    ],
)
def test_narrow_numbers_do_not_overflow(name, parameters, granularity):
    """100 of 8 bits times anything from 2 on would."""
    narrow = {key: np.int8(value) for key, value in parameters.items()}
    assert load(name, **narrow, granularity=granularity) == load(name, **parameters, granularity=granularity)


def test_narrow_reals():
    """A float of 32 bits cannot hold the largest of 64, which is no reason to take its infinity for a number."""
    assert load("random:fft", comm_ratio=np.float32(0.5)) == load("random:fft", comm_ratio=0.5)
    with pytest.raises(GraphError, match="comm_ratio must be finite"):
        load("random:fft", comm_ratio=np.float32("inf"))


def test_narrow_sizes_of_layers():
    """100 * 4 weights and 100 biases, and 100 * 100 of a table."""
    net, x = network()
    net.linear("linear", net.conv("conv", x, np.int8(100), 1), np.int8(100))
    net.embedding("table", net.input(7), np.int8(100), np.int8(100))
    assert [op.weight_nbytes / 4 for op in net.graph().operators] == [500, 900, 10_000]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda net, x: net.conv("c", x, 4, 1, activation="swish"), "c: unknown activation 'swish'; known are: relu"),
        (lambda net, x: net.add("a", [x], activation="swish"), "a: unknown activation 'swish'; known are: relu"),
        (lambda net, x: net.concat("j", [x, x], axis=-1), "j: axis must be at least 0, not -1"),
        (lambda net, x: net.concat("j", [x, x], axis=4), "j: axis must be at most 3, not 4"),
        (lambda net, x: net.embedding("e", x, 0, 4), "e: rows must be at least 1, not 0"),
        (lambda net, x: net.embedding("e", x, 4, 2.0), "e: features must be a whole number, not 2.0"),
        (lambda net, x: net.linear("l", x, True), "l: out_features must be a whole number, not True"),
        (lambda net, x: net.conv("c", x, 4, (3,)), r"c: kernel must be a whole number, not \(3,\)"),
        (lambda net, x: net.pool("p", x, "max", "3"), "p: kernel must be a whole number, not '3'"),
        (lambda net, x: net.pool("p", x, "max", 2, stride=0), "p: stride must be at least 1, not 0"),
        (lambda net, x: net.batch_norm("n", net.input(4)), r"n: needs a tensor of 4 axes, not of shape \(4,\)"),
        (lambda net, x: net.matmul("m", net.input(4), x), r"m: cannot multiply \(4,\) by \(1, 4, 8, 8\)"),
        (lambda net, x: net.view("v", x, (-1, -256)), r"v: \(1, 4, 8, 8\) cannot become \(-1, -256\)"),
        (lambda net, x: net.slice("s", x, (0,)), r"s: \(0,\) is no part of \(1, 4, 8, 8\)"),
        (lambda net, x: net.reduce("r", x, (1, 0)), r"r: \(1, 4, 8, 8\) cannot be summed up to \(1, 0\)"),
        (lambda net, x: net.layer_norm("n", x, kind="norm"), "n: kind must be 'layer_norm' or 'rms_norm', not 'norm'"),
    ],
)
def test_refused_layers(build, message):
    net, x = network()
    with pytest.raises(GraphError, match=message):
        build(net, x)
