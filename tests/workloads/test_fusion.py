"""Single operators to schedule units."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsched.base.errors import GraphError
from simsched.model.graph import Edge, Kernel, Operator, OpGraph
from workloads import load
from workloads.costs import Work
from workloads.formats.fusion import fuse, without_io
from workloads.models.network import Network


def chain(*operators):
    names = [op.name for op in operators]
    return OpGraph(operators, [Edge(a, b, 4.0) for a, b in pairwise(names)], "chain")


def op(name, kind, **more):
    settings = {"kernels": (Kernel(1),), "output_shape": (1, 8), "nbytes": 64.0} | more
    return Operator(name, kind, **settings)


def view(name, **more):
    return Operator(name, "view", time=0.0, **more)


def built(granularity):
    """Everything that `Network` makes one operator at granularity "unit"."""
    net = Network("net", granularity=granularity)
    image = net.input(2, 3, 16, 16)
    a = net.conv("a", image, 8, 3, padding=1, norm=True)
    b = net.conv("b", a, 8, 3, padding=1, norm=True, activation=None)
    c = net.conv("c", a, 8, (1, 3), padding=(0, 1), groups=2, activation="sigmoid")
    d = net.add("d", [b, c], activation="relu")
    e = net.concat("e", [d, a])
    f = net.linear("f", net.global_pool("pool", e), 1, activation="gelu")
    net.linear("g", f, 5, bias=False, activation="tanh")
    return net.graph()


def test_units_are_those_of_a_network_built_by_units():
    units = fuse(built("operator"))
    assert units == built("unit")
    assert units["a"].attributes["activation"] == "relu"
    assert len(built("operator")) == len(units) + 2 + 1 + 1 + 1 + 1 + 1  # a and b, c, d, f, g


def test_inception_v3_in_units():
    """94 convolutions and the 12 pools and 2 + 11 pools and concatenations of the units, 2 concatenations, 1 linear.

    314 single operators: 94 times normalisation and activation (188) and 2 views (dropout, flatten) go.
    """
    units, ours = fuse(load("inception_v3", granularity="operator")), load("inception_v3")
    assert len(units) == 314 - 188 - 2
    convolutions = [op for op in ours.operators if op.kind == "conv"]
    assert len(convolutions) == 94
    assert [op for op in units.operators if op.kind == "conv"] == convolutions


def test_bytes_of_a_unit():
    """Input 10 + weights 32 + output 32 = 74 bytes; bias (32) added, the sum's own 64 + 32 bytes forgotten: 106."""
    units = fuse(
        chain(
            op("product", "matmul", nbytes=74.0, weight_nbytes=32.0, flops=16.0),
            op("bias", "add", nbytes=96.0, weight_nbytes=32.0, flops=8.0),
            op("active", "gelu", flops=64.0),
        )
    )
    assert units.names == ("product",)
    unit = units["product"]
    assert (unit.nbytes, unit.weight_nbytes, unit.flops, unit.kernels) == (106.0, 64.0, 16.0, (Kernel(1),))
    assert unit.attributes == {"activation": "gelu"}


@pytest.mark.parametrize(
    ("kind", "flops", "weights", "bias"),
    [("conv", 2.0 * 8 * 27, 8 * 27, 8), ("conv", 2.0 * 8 * 27, 8 * 27 + 8, 0), ("conv_transpose", 1.0, 216, 8)],
)
def test_a_normalisation_leaves_one_bias_per_channel(kind, flops, weights, bias):
    """Weights of 8 x 27, one output pixel: 8 values more if there was no bias; the norm's own 4 x 8 never count."""
    shape = (1, 8, 1, 1)
    attributes = {"bias": False} if kind == "conv_transpose" else {}
    first = op("c", kind, flops=flops, weight_nbytes=4.0 * weights, output_shape=shape, attributes=attributes)
    (unit,) = fuse(chain(first, op("n", "batch_norm", weight_nbytes=128.0, output_shape=shape))).operators
    assert unit.weight_nbytes == 4.0 * (weights + bias)
    assert unit.nbytes == first.nbytes + 4.0 * bias
    assert unit.attributes == ({"bias": True} if attributes else {})


@pytest.mark.parametrize(
    ("kinds", "units"),
    [
        (("conv", "relu", "relu"), ("conv0", "relu2")),
        (("conv", "relu", "batch_norm"), ("conv0", "batch_norm2")),
        (("add", "relu"), ("add0",)),
        (("mul", "sigmoid"), ("mul0",)),
        (("pool", "relu"), ("pool0", "relu1")),
        (("add", "batch_norm"), ("add0", "batch_norm1")),
        (("matmul", "batch_norm", "relu"), ("matmul0", "batch_norm1", "relu2")),  # no weights to fold it into
    ],
)
def test_what_takes_in_what(kinds, units):
    weights = {"conv": 96.0, "batch_norm": 128.0}
    rows = [op(f"{kind}{i}", kind, weight_nbytes=weights.get(kind, 0.0)) for i, kind in enumerate(kinds)]
    assert fuse(chain(*rows)).names == units


def test_a_sum_that_is_no_bias():
    """It reads a second tensor, adds a constant without weights, or a weight per element instead of per channel."""
    wide = {"output_shape": (4, 8)}
    product = op("product", "linear", weight_nbytes=96.0, **wide)
    for second in (
        op("sum", "add", input_shapes=((4, 8), (4, 8)), weight_nbytes=32.0, **wide),
        op("sum", "add", **wide),
        op("sum", "add", weight_nbytes=128.0, **wide),
    ):
        assert fuse(chain(product, second)).names == ("product", "sum")
    assert fuse(chain(product, op("sum", "add", weight_nbytes=32.0, **wide))).names == ("product",)


@pytest.mark.parametrize("shape", [None, (), (8,)])
def test_without_channels_nothing_but_an_activation_is_folded(shape):
    conv = op("c", "conv", weight_nbytes=96.0, output_shape=shape)
    for kind in ("add", "batch_norm"):
        graph = chain(conv, op("n", kind, weight_nbytes=4.0, output_shape=shape))
        assert fuse(graph) == graph
    assert fuse(chain(conv, op("r", "relu", output_shape=shape))).names == ("c",)


def test_a_tensor_that_is_read_twice_stays():
    graph = OpGraph(
        [op("c", "conv", weight_nbytes=96.0), op("r", "relu"), op("s", "add")],
        [Edge("c", "r"), Edge("r", "s"), Edge("c", "s")],
    )
    assert fuse(graph) == graph
    twice = OpGraph(
        [op("c", "conv"), op("s", "mul"), op("r", "relu")], [Edge("c", "s"), Edge("c", "s"), Edge("s", "r")]
    )
    assert fuse(twice).names == ("c", "s")


def test_a_tensor_that_is_returned_stays():
    """The convolution's output is returned as well: two readers, the activation and the output."""
    out = Operator("out", "output", time=0.0)
    edges = [Edge("x", "c"), Edge("c", "r"), Edge("r", "out"), Edge("c", "out")]
    graph = OpGraph([Operator("x", "placeholder", time=0.0), op("c", "conv"), op("r", "relu"), out], edges)
    assert fuse(graph) == graph
    assert without_io(graph).names == ("c", "r")
    assert without_io(graph).edges == (Edge("c", "r"),)


def test_views_are_left_out():
    """a -> part, part -> b: b reads the 2 bytes of each part from a, twice; the size read over 0 bytes is forgotten."""
    graph = OpGraph(
        [op("a", "pool"), op("z", "pool"), view("p"), view("q"), view("size"), op("b", "concat")],
        [Edge("a", "p", 4.0), Edge("a", "q", 4.0), Edge("z", "size"), Edge("size", "q"), Edge("p", "b", 2.0),
         Edge("q", "b", 2.0)],
    )  # fmt: skip
    units = fuse(graph)
    assert units.names == ("a", "z", "b")
    assert units.edges == (Edge("a", "b", 2.0), Edge("a", "b", 2.0))


def test_a_view_of_an_input_leaves_no_edge():
    graph = chain(view("v"), op("a", "pool"))
    assert fuse(graph).edges == ()
    with pytest.raises(GraphError, match="nothing but inputs, outputs and views"):
        fuse(chain(view("v"), view("w")))


def test_a_view_of_two_tensors_joins_them():
    join = OpGraph([op("a", "pool"), op("b", "pool"), view("j"), op("c", "pool")],
                   [Edge("a", "j", 1.0), Edge("b", "j", 1.0), Edge("j", "c", 2.0)])  # fmt: skip
    assert fuse(join) == join


def test_an_activation_behind_a_view_is_folded():
    """The view of 16 elements out of 4 x 4: its activation is the convolution's, of the view's shape."""
    conv = op("c", "conv", output_shape=(1, 1, 4, 4))
    (unit,) = fuse(chain(conv, view("v"), op("r", "relu", output_shape=(1, 16)))).operators
    assert (unit.name, unit.output_shape, unit.nbytes) == ("c", (1, 16), conv.nbytes)


def test_times_add_up_where_all_have_one():
    conv, relu = op("c", "conv", time=3.0), op("r", "relu", time=1.0)
    assert fuse(chain(conv, relu))["c"].time == 4.0
    assert fuse(chain(conv, replace(relu, time=None)))["c"].time is None


@st.composite
def networks(draw):
    """Networks of every kind that folding looks at, wired at random."""
    net = Network("drawn", granularity="operator")
    tensors = [net.input(1, 4, 4, 4)]
    for i in range(draw(st.integers(1, 12))):
        x = tensors[draw(st.integers(0, len(tensors) - 1))]
        y = tensors[draw(st.integers(0, len(tensors) - 1))]
        kind = draw(st.sampled_from(["conv", "norm", "relu", "add", "view", "bias"]))
        name = f"{kind}{i}"
        made = {
            "conv": lambda n=name, x=x: net.conv(n, x, 4, 1, activation=None),
            "norm": lambda n=name, x=x: net.batch_norm(n, x),
            "relu": lambda n=name, x=x: net.activation(n, x),
            "add": lambda n=name, x=x, y=y: net.add(n, [x, y]),
            "view": lambda n=name, x=x: net.view(n, x, x.shape),
            "bias": lambda n=name, x=x: net.add_operator(n, "add", [x], x.shape, Work(0.0, 4, Kernel(1))),
        }[kind]
        tensors.append(made())
    return net.graph()


@given(networks())
def test_fusion_keeps_what_there_is_to_compute(graph):
    """Reachability among what is left is as before, no FLOP of a product is lost, and a second pass changes nothing."""
    try:
        units = fuse(graph)
    except GraphError:
        assert all(op.kind == "view" for op in graph.operators)
        return
    assert all(op.kind != "view" for op in units.operators)
    assert sum(op.flops for op in units.operators if op.kind == "conv") == sum(
        op.flops for op in graph.operators if op.kind == "conv"
    )
    assert units.nbytes.sum() <= graph.nbytes.sum()
    before, after = reachable(graph), reachable(units)
    for name in units.names:
        assert after[name] == before[name] & set(units.names)
    assert fuse(units) == units


def reachable(graph):
    """Names that each operator leads to."""
    found = {name: set() for name in graph.names}
    for name in reversed(graph.order):
        for edge in graph.edges:
            if edge.src == name:
                found[name] |= {edge.dst} | found[edge.dst]
    return found
