"""The builder: units and single operators, what is read, and what is refused."""

import pytest
from small import edges, works

from simsched.base.errors import GraphError
from simsched.model.graph import Work
from workloads.models.network import Network


def network(granularity="unit", **options):
    net = Network("net", granularity=granularity, **options)
    return net, net.input(1, 4, 8, 8)


def test_a_unit_is_one_operator_of_several_works():
    """ReLU of 256 elements (256 FLOP, 1024 bytes each way), then 1x1 of 64 pixels to 8 channels (2 * 512 * 4 FLOP; 1024
    bytes read, 8 * 5 weights, 2048 bytes written).
    """
    net, x = network()
    with net.unit("both", "sequential"):
        y = net.conv("point", net.activation("relu", x), 8, 1, activation=None)
    net.pool("pool", y, "max", 2, stride=2)
    op = net.graph()["both"]
    assert (op.kind, op.flops, op.nbytes, op.weight_nbytes) == ("sequential", 256 + 4096, 2048 + 3232, 4 * 40)
    assert (works(op), op.kernels) == (
        (
            Work("elementwise", "map", 256.0, 1024.0, 0.0, 1024.0, rows=256),
            Work(
                "convolution",
                "plain",
                4096.0,
                1024.0,
                160.0,
                2048.0,
                rows=64,
                columns=8,
                inner=4,
                elements=256,
                tf32=True,
            ),
        ),
        (),
    )
    assert (op.input_shapes, op.output_shape, op.intensity) == (((1, 4, 8, 8),), (1, 8, 8, 8), "compute")
    relu, conv = op.attributes["parts"]
    assert relu == {"kind": "relu", "inputs": [-1], "output_shape": [1, 4, 8, 8]}
    assert (conv["kind"], conv["inputs"], conv["out_channels"]) == ("conv", [0], 8)
    assert list(net.graph().edges) == edges("both-pool=2048")


def test_a_unit_of_one_part_is_that_part():
    net, x = network()
    with net.unit("sum", "identity"):
        net.add("inner", [x, x])
    (op,) = net.graph().operators
    assert (op.name, op.kind, dict(op.attributes)) == ("sum", "add", {})


def test_normalisation_is_folded_into_units():
    """4 * 8 weights and 8 biases as a unit; alone no bias, and the normalisation keeps 4 values per channel."""
    for granularity, weights in (("unit", [40]), ("operator", [32, 32, 0])):
        net, x = network(granularity)
        net.conv("point", x, 8, 1, norm=True)
        assert [op.weight_nbytes / 4 for op in net.graph().operators] == weights


def test_views_vanish_from_units():
    net, x = network()
    net.linear("scores", net.view("flat", net.pool("pool", x, "avg", 2), (1, 4 * 49)), 10)
    assert net.graph().names == ("pool", "scores")
    assert net.graph()["scores"].input_shapes == ((1, 196),)


def test_a_slice_is_read_where_it_lies():
    net, x = network()
    net.activation("relu", net.slice("half", net.pool("pool", x, "avg", 1), (1, 2, 8, 8)))
    assert list(net.graph().edges) == edges("pool-relu=512")


def test_ceil_mode():
    """7 pixels in windows of 2 by steps of 2: 3, rounded up 4; a window that would begin in the padding is left out:
    7 pixels with padding 1, windows of 3 by steps of 3, (7 + 2 - 3) / 3 + 1 = 3, rounded up the same.
    """
    net = Network("net")
    x = net.input(1, 1, 7, 7)
    assert net.pool("down", x, "max", 2, stride=2).shape == (1, 1, 3, 3)
    assert net.pool("up", x, "max", 2, stride=2, ceil_mode=True).shape == (1, 1, 4, 4)
    assert net.pool("padded", x, "max", 3, stride=3, padding=1, ceil_mode=True).shape == (1, 1, 3, 3)
    # 5 + 2 pixels, windows of 2 by steps of 3: 0, 3, and 6, which is padding
    assert net.pool("end", net.input(1, 1, 5, 5), "max", 2, stride=3, padding=1, ceil_mode=True).shape == (1, 1, 2, 2)


def inside(net, x):
    with net.unit("unit", "sequential"):
        first = net.activation("a", x)
        net.activation("b", first)
    net.activation("c", first)


def nested(net, x):
    with net.unit("outer", "sequential"), net.unit("inner", "sequential"):
        net.activation("a", x)


def empty(net, x):
    with net.unit("empty", "sequential"):
        pass


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (inside, "c: cannot read from within unit unit, only its last output"),
        (nested, "inner: unit outer is still open"),
        (empty, "empty: the unit is empty"),
        (lambda net, x: net.add("sum", []), "sum: there is nothing to read"),
        (lambda net, x: net.concat("j", []), "j: there is nothing to concatenate"),
        (lambda net, x: net.concat("j", [x, net.pool("p", x, "max", 2)]), "j: cannot concatenate"),
        (lambda net, x: net.concat("j", [x, x], axis=4), "j: axis must be at most 3, not 4"),
        (lambda net, x: net.conv("c", x, 8, 9), "c: a window of 9 x 9 does not fit into 8 x 8"),
        (lambda net, x: net.conv("c", x, 9, 1, groups=2), "c: groups = 2 does not divide 4 channels"),
        (lambda net, x: net.conv("c", x, 4, (3,)), r"c: kernel must be a whole number, not \(3,\)"),
        (lambda net, x: net.pool("p", x, "min", 2), "p: pool must be 'max' or 'avg'"),
        (lambda net, x: net.reduce("r", x, (1, 0)), r"r: \(1, 4, 8, 8\) cannot be summed up to \(1, 0\)"),
        (lambda net, x: net.layer_norm("n", x, kind="norm"), "n: kind must be 'layer_norm' or 'rms_norm', not 'norm'"),
        (lambda net, x: net.add("sum", [x, net.input(1, 4)]), r"sum: the shapes \(1, 4\) and \(1, 4, 8, 8\) differ"),
        (lambda net, x: net.activation("act", x, "swish"), "act: unknown activation 'swish'; known are: relu, relu6"),
        (lambda net, x: net.conv("c", net.input(4, 4), 4, 1), r"c: needs a tensor of 4 axes, not of shape \(4, 4\)"),
        (lambda net, x: net.matmul("m", x, x.__class__(None, (1, 4, 7, 8))), "m: cannot multiply"),
        (lambda net, x: net.view("v", x, (3,)), r"v: \(1, 4, 8, 8\) cannot become \(3,\)"),
        (lambda net, x: net.slice("s", x, (1, 5, 8, 8)), r"s: \(1, 5, 8, 8\) is no part of"),
        (lambda net, x: net.input(2**20, 2**20, 2), "is more than any device holds"),
        (lambda net, x: Network("net", granularity="layer"), "granularity must be 'unit' or 'operator', not 'layer'"),
        (lambda net, x: Network("net", dtype="fp12"), "unknown dtype 'fp12'; known are: fp64"),
        (lambda net, x: Network("net", device="a100"), "Network: there is no option 'device' any more: launch shapes"),
    ],
)
def test_refusals(build, message):
    with pytest.raises(GraphError, match=message):
        build(*network())
