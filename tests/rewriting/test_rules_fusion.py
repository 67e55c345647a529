"""Rules R1 and R13: where they hold, what they cost, and that they compute the same."""

from dataclasses import replace

from rewritten import applied, matches, network, refused, source, with_attributes

from simsched.model.graph import Edge, Kernel, Operator, OpGraph
from simsched.rewriting import RULES, Draft

# R1


def test_r1_takes_an_activation_in():
    """The convolution's 2 x 4 x 4 x 36 = 1152 FLOP and its bytes stay; the activation's launch and bytes go."""
    net = network()
    x = net.conv("c", source(net), 4, 3, activation=None)
    net.activation("r", x)
    graph = net.graph()
    after = applied("R1", graph)
    assert after.names == ("x", "r")
    before, op = graph["c"], after["r"]
    assert (op.kind, op.flops, op.nbytes, op.kernels) == ("conv", before.flops, before.nbytes, before.kernels)
    assert op.weight_nbytes == before.weight_nbytes
    assert op.intensity == "compute"
    assert op.attributes == {**before.attributes, "activation": "relu", "weights": {"of": "c"}}
    assert [(edge.src, edge.dst) for edge in after.edges] == [("x", "r")]


def test_r1_folds_a_normalization_with_the_bias_it_makes():
    """4 x 36 weights and no bias: 4 values of 4 bytes more, in weights and in traffic."""
    net = network()
    x = net.conv("c", source(net), 4, 3, norm=True, bias=False, activation=None)
    graph = net.graph()
    op = applied("R1", graph)["c.norm"]
    assert x.producer == "c.norm"
    assert (op.kind, op.weight_nbytes) == ("conv", 144 * 4 + 16.0)
    assert op.nbytes == graph["c"].nbytes + 16.0
    assert op.attributes["weights"] == {"normalized": {"of": "c"}, "by": {"of": "c.norm"}}
    net = network()
    net.batch_norm("n", net.conv("c", source(net), 4, 3, activation=None))
    assert applied("R1", net.graph())["n"].weight_nbytes == 144 * 4 + 16.0  # it had one


def test_r1_works_off_a_chain_of_three():
    net = network()
    net.conv("c", source(net), 4, 3, norm=True)
    original = net.graph()
    graph = applied("R1", original, ("c", "c.norm"))
    after = applied("R1", graph, original=original)
    assert after.names == ("x", "c.relu")
    assert after["c.relu"].attributes["activation"] == "relu"


def test_r1_of_other_products():
    net = network()
    x = source(net, (2, 3, 4))
    y = net.activation("act1", net.linear("l", x, 5), "sigmoid")
    net.activation("act2", net.matmul("m", y, net.linear("r", source(net, (2, 5, 4), "z"), 4)), "tanh")
    graph = net.graph()
    assert matches("R1", graph) == [("l", "act1"), ("m", "act2")]
    assert applied("R1", graph, ("l", "act1"))["act1"].attributes["activation"] == "sigmoid"
    assert applied("R1", graph, ("m", "act2"))["act2"].kind == "matmul"


def test_r1_needs_a_single_consumer():
    net = network()
    x = net.conv("c", source(net), 4, 3, activation=None)
    net.add("sum", [net.activation("r", x), x])
    assert matches("R1", net.graph()) == []


def test_r1_leaves_what_is_read_outside_and_what_is_no_chain():
    net = network()
    x = net.conv("c", source(net), 4, 3, activation=None)
    net.activation("r", x)
    graph = net.graph()
    kept = Draft(Draft.from_graph(graph).rows.values(), kept=["c"])
    assert list(RULES["R1"].matches(kept)) == []
    assert RULES["R1"].apply(kept, ("c", "r")) is None
    assert RULES["R1"].apply(Draft.from_graph(graph), ("x", "c")) is None
    assert matches("R1", with_attributes(graph, "c", activation="tanh")) == []
    net = network()
    net.batch_norm("n", net.linear("l", source(net, (2, 3, 4, 5)), 5))  # axis 1 is not what the weights make
    assert matches("R1", net.graph()) == []
    net = network()
    net.activation("r", net.conv("c", source(net), 4, 3, activation=None), "prelu")  # has weights
    assert matches("R1", net.graph()) == []


def test_r1_leaves_a_normalization_with_an_activation():
    """Scale and shift go into the weights; the activation that somebody put behind them would be lost."""
    net = network()
    net.conv("c", source(net), 4, 3, norm=True, activation=None)
    assert matches("R1", net.graph()) == [("c", "c.norm")]
    assert matches("R1", with_attributes(net.graph(), "c.norm", activation="relu")) == []


def test_r1_needs_all_of_what_it_follows():
    """The activation reads channels 0 and 1 of 4, and nobody the rest."""
    net = network()
    net.activation("r", net.conv("c", source(net), 4, 3, activation=None))
    graph = net.graph()
    half = [replace(graph["r"], input_shapes=[(1, 2, 4, 4)], output_shape=(1, 2, 4, 4))]
    graph = with_attributes(OpGraph([graph["x"], graph["c"], *half], graph.edges), "r", slices={"0": [1, 0, 2]})
    assert matches("R1", graph) == []


# R13


def test_r13_adds_three_at_once():
    """288 FLOP of 144 elements; reads three tensors and writes one, of 576 bytes each."""
    net = network()
    xs = [source(net, name=name) for name in "xyz"]
    net.add("all", [xs[0], net.add("two", xs[1:])])
    after = applied("R13", net.graph())
    op = after["all"]
    assert (op.kind, op.flops, op.nbytes, dict(op.attributes)) == ("add", 288.0, 4 * 576.0, {})
    assert [edge.src for edge in after.edges] == ["x", "y", "z"]
    assert op.kernels == (Kernel(1, 256, 32),)


def test_r13_puts_other_elementwise_operators_in_a_row():
    """relu((x + y) n) z: 1 + 2 + 1 + 1 FLOP per element, three tensors read and one written."""
    net = network()
    x, y, z = (source(net, name=name) for name in "xyz")
    hidden = net.activation("r", net.batch_norm("n", net.add("a", [x, y])))
    net.elementwise("m", "mul", [z, hidden])
    graph = original = net.graph()
    for last, n in (("n", 6), ("r", 5), ("m", 4)):
        match = next(match for match in matches("R13", graph) if match[1] == last)
        graph = applied("R13", graph, match, original)
        assert len(graph) == n
    op = graph["m"]
    assert op.kind == "elementwise"
    assert op.flops == 144 * 5.0
    assert op.nbytes == 4 * 576.0 + 16 * 4  # the normalization has 4 values per channel
    assert [part["kind"] for part in op.attributes["parts"]] == ["add", "batch_norm", "relu", "mul"]
    assert [part["inputs"] for part in op.attributes["parts"]] == [[-2, -3], [0], [1], [-1, 2]]


def test_r13_keeps_the_order_of_inputs():
    """(x - y) - z, x - (y - z) and z - relu(x - y)."""
    for first in (True, False):
        net = network()
        x, y, z = (source(net, name=name) for name in "xyz")
        inner = net.elementwise("inner", "sub", [x, y] if first else [y, z])
        net.elementwise("outer", "sub", [inner, z] if first else [x, inner])
        after = applied("R13", net.graph())
        assert [edge.src for edge in after.edges] == ["x", "y", "z"]
    net = network()
    x, y, z = (source(net, name=name) for name in "xyz")
    inner = net.activation("r", net.elementwise("inner", "sub", [x, y]))
    net.elementwise("outer", "sub", [net.add("s", [z, inner]), z])
    graph = original = net.graph()
    while matches("R13", graph):
        graph = applied("R13", graph, matches("R13", graph)[0], original)
    assert [edge.src for edge in graph.edges] == ["z", "x", "y", "z"]


def test_r13_conditions():
    net = network()
    x = source(net)
    y = net.activation("r", net.conv("c", x, 4, 1, activation=None))
    net.add("s", [y, net.activation("t", y, "tanh")])  # r is read twice
    graph = net.graph()
    assert matches("R13", graph) == [("t", "s")]
    shapes = {"input_shapes": ((1, 4), (1, 1)), "output_shape": (1, 4)}  # b is spread over a
    rows = [
        Operator("a", "relu", input_shapes=((1, 4),), output_shape=(1, 4)),
        Operator("b", "relu", input_shapes=((1, 1),), output_shape=(1, 1)),
        Operator("s", "add", **shapes),
    ]
    spread = OpGraph(rows, [Edge("a", "s", 16.0), Edge("b", "s", 4.0)])
    refused("R13", spread, "a", "s")
