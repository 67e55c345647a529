"""Rules R2 to R8: where they hold, what they cost, and that they compute the same."""

from dataclasses import replace

import pytest
from rewritten import applied, matches, network, refused, source, with_attributes

from simsched.model.graph import Kernel, OpGraph
from simsched.rewriting import RULES, Draft

# R2 and R3


def inception(*convs, batch=1, granularity="unit", join=True):
    net = network(granularity)
    x = source(net, (batch, 4, 6, 6))
    outs = [net.conv(f"c{i}", x, out, kernel, **options) for i, (out, kernel, options) in enumerate(convs)]
    if join:
        net.concat("join", outs)
    return net.graph()


def test_r2_makes_one_of_two_and_drops_the_concatenation():
    """The join of all that one convolution writes is that: its readers read the convolution."""
    graph = inception((4, 1, {}), (8, 1, {}))
    after = applied("R2", graph)
    assert after.names == ("x", "c0+c1", "join")  # an output of the network: a view
    assert (after["join"].kind, after["join"].time) == ("slice", 0.0)
    net = network("unit")
    x = source(net)
    net.pool("pool", net.concat("join", [net.conv("a", x, 4, 1), net.conv("b", x, 8, 1)]), "max", 2)
    after = applied("R2", net.graph())
    assert after.names == ("x", "a+b", "pool")
    assert after["a+b"].flops == 2.0 * 12 * 36 * 4


@pytest.mark.parametrize("batch", [1, 3])
def test_r2_joins_parts_that_stay_together(batch):
    """The join reads all of c0+c1 at once, though a part of it on its own would have to be copied."""
    graph = inception((4, 1, {}), (8, 1, {}), (2, 1, {"activation": None}), batch=batch)
    after = applied("R2", graph)
    assert after.names == ("x", "c0+c1", "c2", "join")
    assert after["join"].input_shapes == ((batch, 12, 6, 6), (batch, 2, 6, 6))
    assert "slices" not in after["join"].attributes
    assert after["join"].nbytes == graph["join"].nbytes


def test_r2_takes_the_order_of_the_concatenation():
    net = network("unit")
    x = source(net)
    a, b = net.conv("a", x, 4, 1), net.conv("b", x, 8, 1)
    net.pool("pool", net.concat("join", [b, a]), "max", 2)
    assert applied("R2", net.graph()).names == ("x", "b+a", "pool")


@pytest.mark.parametrize(
    "second",
    [
        (8, 1, {"stride": 2}), (8, 1, {"activation": None}), (8, 1, {"padding": 1}), (8, 3, {"padding": 1}),
        (8, 1, {"groups": 2}), (8, 1, {"activation": "tanh"}),
    ],
)  # fmt: skip
def test_r2_conditions(second):
    graph = inception((4, 1, {}), second, join=False)
    refused("R2", graph, "c0", "c1")


def test_r2_needs_a_known_common_input():
    net = network("unit")
    image = net.input(1, 4, 6, 6)
    net.conv("a", image, 4, 1)
    net.conv("b", image, 4, 1)
    assert matches("R2", net.graph()) == []
    net.conv("c", source(net), 4, 1)
    net.conv("d", source(net, name="y"), 4, 1)
    assert matches("R2", net.graph()) == []


@pytest.mark.parametrize("batch", [1, 2])
def test_r3_enlarges_the_smaller(batch):
    """3 x 3 for both: 12 channels x 36 pixels x 4 x 9 x 2 FLOP, each image; weights 12 x 37 x 4 bytes."""
    graph = inception((4, 1, {}), (8, 3, {"padding": 1}), batch=batch)
    after = applied("R3", graph)
    op = after["c0+c1"]
    assert op.flops == batch * 12 * 36 * 72.0
    assert op.weight_nbytes == 12 * 37 * 4.0
    assert op.attributes["weights"]["concat"][0] == {"pad": {"of": "c0"}, "kernel": [3, 3]}
    assert matches("R2", graph) == []


@pytest.mark.parametrize(
    "convs",
    [
        ((4, 1, {"stride": 2}), (8, 3, {"padding": 1, "stride": 2})),  # not stride 1
        ((4, (1, 3), {"padding": (0, 1)}), (8, (3, 1), {"padding": (1, 0)})),  # neither is the larger
        ((4, 1, {}), (8, 3, {})),  # not padded to the same size
        ((4, 1, {}), (8, 1, {})),  # the same: R2
        ((4, 2, {}), (8, 4, {"padding": 1})),  # even
        ((4, 1, {}), (8, 3, {"padding": 1, "groups": 2})),
        ((4, 1, {}), (8, 3, {"padding": 1, "activation": None})),
    ],
)
def test_r3_conditions(convs):
    graph = inception(*convs, join=False)
    refused("R3", graph, "c0", "c1")


# R4


def shared(batches=(1, 2), granularity="unit", join=True):
    net = network(granularity)
    outs = [net.conv(name, source(net, (n, 4, 6, 6), f"x{name}"), 8, 3) for name, n in zip("ab", batches, strict=True)]
    if join:
        net.pool("pool", net.concat("join", outs, axis=0), "max", 2)
    else:
        net.pool("p", outs[0], "max", 2)
        net.pool("q", outs[1], "max", 2)
    return with_attributes(net.graph(), "b", weights={"of": "a"})


def test_r4_runs_a_larger_batch():
    """1 + 2 images of 8 x 16 outputs, 72 FLOP each; inputs 3 x 144, outputs 3 x 128 and 296 weights, of 4 bytes."""
    after = applied("R4", shared())
    assert after.order == ("xa", "xb", "a+b.input", "a+b", "pool")
    op = after["a+b"]
    assert (op.flops, op.nbytes, op.weight_nbytes) == (3 * 128 * 72.0, 4.0 * (432 + 384 + 296), 296 * 4.0)
    assert op.attributes["weights"] == {"of": "a"}
    joined = after["a+b.input"]
    assert (joined.kind, joined.flops, joined.nbytes) == ("concat", 0.0, 2 * 432 * 4.0)
    assert joined.kernels == (Kernel(2, 256, 32),)
    after = applied("R4", shared(join=False))
    assert after["q"].attributes["slices"] == {"0": [0, 1, 3]}


def test_r4_conditions():
    graph = shared()
    assert matches("R4", with_attributes(graph, "b", weights={"of": "b"})) == []
    assert matches("R4", with_attributes(graph, "b", activation="tanh")) == []
    net = network("unit")
    x = source(net)
    net.conv("a", x, 8, 3)
    net.conv("b", x, 8, 3)
    graph = with_attributes(net.graph(), "b", weights={"of": "a"})  # of one tensor: the same twice
    refused("R4", graph, "a", "b")


def test_r4_does_not_make_a_circle():
    """The same convolution twice in a row: both are alike, but the second reads the first."""
    net = network("unit")
    net.conv("b", net.conv("a", source(net), 4, 3, padding=1), 4, 3, padding=1)
    graph = with_attributes(net.graph(), "b", weights={"of": "a"})
    assert matches("R4", graph) == [("a", "b")]
    assert RULES["R4"].apply(Draft.from_graph(graph), ("a", "b")) is None


# R5


def side_by_side(groups=1, join=True, out=8, kernels=(3, 3), sizes=(6, 6), again=False):
    net = network("unit")
    xs = [source(net, (1, 8, size, size), f"x{i}") for i, size in enumerate(sizes)]
    outs = [
        net.conv(f"c{i}", x, out, kernel, groups=groups) for i, (x, kernel) in enumerate(zip(xs, kernels, strict=True))
    ]
    if join:
        net.pool("pool", net.concat("join", outs), "max", 2)
    if again:
        net.pool("again", outs[0], "max", 2)
    return net.graph()


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_r5_makes_groups(groups):
    """Twice the groups and channels; FLOP 16 x 16 x 9 x 8 / groups x 2, as before."""
    graph = side_by_side(groups)
    after = applied("R5", graph, ("c0", "c1", "join"))
    op = after["c0+c1"]
    assert after.order == ("x0", "x1", "c0+c1.input", "c0+c1", "pool")
    assert (op.attributes["groups"], op.attributes["out_channels"]) == (2 * groups, 16)
    assert op.flops == 16 * 16 * 9 * 8 // groups * 2.0 == graph["c0"].flops + graph["c1"].flops
    assert op.weight_nbytes == 2 * graph["c0"].weight_nbytes
    assert op.nbytes == 2 * graph["c0"].nbytes


def test_r5_splits_depthwise_convolutions():
    after = applied("R5", side_by_side(8, join=False), ("c0", "c1"))
    assert after["c1"].attributes == {"axis": 1, "begin": 8, "end": 16}
    assert after["c0+c1"].attributes["groups"] == 16


def test_r5_conditions():
    assert matches("R5", side_by_side(join=False)) == []  # neither joined nor depthwise
    assert matches("R5", side_by_side(again=True)) == []  # read elsewhere
    assert matches("R5", side_by_side(kernels=(3, 1), sizes=(6, 4))) == []
    assert matches("R5", side_by_side(8, join=False, kernels=(3, 1), sizes=(6, 4))) == []
    net = network("unit")
    x = source(net)
    net.concat("join", [net.conv("a", x, 4, 1), net.conv("b", x, 4, 1)])
    graph = net.graph()
    assert matches("R5", graph) == []  # of one tensor: R2
    assert RULES["R5"].apply(Draft.from_graph(graph), ("a", "b", "join")) is None
    net = network("unit")
    outs = [net.conv("a", source(net), 4, 1), net.conv("b", source(net, name="y"), 4, 1)]
    net.concat("join", outs, axis=0)
    assert matches("R5", net.graph()) == []  # joined along another axis


# R6


def summed(activation=None, of=None, kernels=(1, 1), groups=1, inner=None, again=False):
    net = network("unit")
    xs = [source(net, (1, 4, 6, 6), "x"), source(net, (1, 6, 6, 6), "y")]
    if of is not None:
        xs[1] = xs[0]
    outs = [
        net.conv(f"c{i}", x, 8, kernel, padding=kernel // 2, activation=inner, groups=groups)
        for i, (x, kernel) in enumerate(zip(xs, kernels, strict=True))
    ]
    total = net.add("sum", outs, activation=activation)
    if again:
        net.add("more", [total, outs[0]])
    return net.graph()


@pytest.mark.parametrize("activation", [None, "relu"])
def test_r6_convolves_both_at_once(activation):
    """FLOP 8 x 36 x (4 + 6) x 2; weights 8 x 10 and one bias; reads 10 x 36, writes 8 x 36 values of 4 bytes."""
    after = applied("R6", summed(activation))
    op = after["sum"]
    assert after.order == ("x", "y", "sum.input", "sum")
    assert (op.kind, op.flops, op.weight_nbytes) == ("conv", 5760.0, 88 * 4.0)
    assert op.nbytes == 4.0 * (360 + 288 + 88)
    assert op.attributes.get("activation") == activation
    assert op.attributes["weights"] == {"concat": [{"of": "c0"}, {"of": "c1"}], "axis": 1}


@pytest.mark.parametrize(
    "options", [{"of": "x"}, {"kernels": (1, 3)}, {"groups": 2}, {"inner": "relu"}, {"again": True}]
)
def test_r6_conditions(options):
    graph = summed(**options)
    refused("R6", graph, "c0", "c1", "sum")


def test_r6_needs_all_of_both():
    """The sum reads half of the channels of each."""
    graph = summed()
    given = [(1, 4, 6, 6)] * 2
    rows = [*graph.operators[:-1], replace(graph["sum"], input_shapes=given, output_shape=given[0])]
    half = with_attributes(OpGraph(rows, graph.edges), "sum", slices={"0": [1, 0, 4], "1": [1, 0, 4]})
    refused("R6", half, "c0", "c1", "sum")


# R7


def pooled(second="x", pool=("avg", "avg"), activation=None, kernels=(3, 3), stride=1, again=False):
    net = network("unit")
    x = source(net)
    y = x if second == "x" else source(net, name=second)
    outs = [
        net.pool(f"p{i}", t, kind, kernel, padding=kernel // 2, stride=stride)
        for i, (t, kind, kernel) in enumerate(zip((x, y), pool, kernels, strict=True))
    ]
    net.add("sum", outs, activation=activation)
    if again:
        net.add("more", outs)
    return net.graph()


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_r7_pools_one_tensor_once(activation):
    """Twice the pool: 4 x 36 values read, doubled and written."""
    after = applied("R7", pooled(activation=activation))
    assert after.names == ("x", "p0", "sum")
    op = after["sum"]
    assert (op.kind, op.flops, op.nbytes, op.attributes["factor"]) == ("mul", 144.0, 2 * 144 * 4.0, 2.0)
    assert op.attributes.get("activation") == activation


@pytest.mark.parametrize("stride", [1, 2])
def test_r7_pools_the_sum(stride):
    """The sum is of 144 values; the pool costs what one of both did."""
    graph = pooled("y", stride=stride)
    after = applied("R7", graph)
    assert after.order == ("x", "y", "sum.input", "sum")
    assert (after["sum"].kind, after["sum"].flops, after["sum"].kernels) == (
        "pool", graph["p0"].flops, graph["p0"].kernels,
    )  # fmt: skip
    assert (after["sum.input"].flops, after["sum.input"].nbytes) == (144.0, 3 * 144 * 4.0)


@pytest.mark.parametrize(
    "options",
    [
        {"pool": ("max", "max")}, {"pool": ("avg", "max")}, {"kernels": (3, 5)}, {"again": True},
        {"second": "y", "activation": "relu"},
    ],
)  # fmt: skip
def test_r7_conditions(options):
    graph = pooled(**options)
    refused("R7", graph, "p0", "p1", "sum")


# R8


def test_r7_leaves_pools_with_an_activation():
    """The sum of two relus is not the relu of the sum."""
    graph = pooled(second="y")
    names = [name for name in graph.names if graph[name].kind == "pool"]
    assert len(matches("R7", graph)) == 1
    for name in names:
        graph = with_attributes(graph, name, activation="relu")
    assert matches("R7", graph) == []


@pytest.mark.parametrize("groups", [2, 4, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_r8_fills_pairs_of_groups_with_zeros(groups, stride):
    """Of 16 channels: twice the FLOP and the 16 x 16 / groups x 9 weights; as many outputs in as many blocks."""
    net = network("unit")
    net.conv("c", source(net, (1, 16, 6, 6)), 16, 3, stride=stride, padding=1, groups=groups)
    graph = net.graph()
    before, op = graph["c"], applied("R8", graph)["c"]
    assert op.attributes["groups"] == groups // 2
    assert op.flops == 2 * before.flops
    zeros = 16 * 16 // groups * 9 * 4.0
    assert (op.weight_nbytes, op.nbytes) == (before.weight_nbytes + zeros, before.nbytes + zeros)
    assert op.kernels == before.kernels


@pytest.mark.parametrize(
    "options",
    [{"groups": 1}, {"groups": 3}, {"groups": 12}, {"groups": 2, "stride": 3}, {"groups": 2, "activation": "tanh"}],
)  # fmt: skip
def test_r8_conditions(options):
    net = network("unit")
    net.conv("c", source(net, (1, 12, 6, 6)), 12, 3, **options)
    graph = net.graph()
    refused("R8", graph, "c")
