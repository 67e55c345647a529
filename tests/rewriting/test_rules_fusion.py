"""Rules R1 and R13: where they hold, what they cost, and that they compute the same."""

from dataclasses import replace

from rewritten import applied, matches, of_text, refused, with_attributes

from simsched.model import Edge, Kernel, Operator, OpGraph
from simsched.rewriting import RULES, Draft

C = "c = conv(x, 4, 3, activation=None)"

# R1


def test_r1_takes_an_activation_in():
    """The convolution's 2 x 4 x 4 x 36 = 1152 FLOP and its bytes stay; the activation's launch and bytes go."""
    graph = of_text(f"{C}; r = activation(c)")
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
    graph = of_text("c = conv(x, 4, 3, norm=True, bias=False, activation=None)")
    op = applied("R1", graph)["c.norm"]
    assert (op.kind, op.weight_nbytes) == ("conv", 144 * 4 + 16.0)
    assert op.nbytes == graph["c"].nbytes + 16.0
    assert op.attributes["weights"] == {"normalized": {"of": "c"}, "by": {"of": "c.norm"}}
    assert applied("R1", of_text(f"{C}; n = batch_norm(c)"))["n"].weight_nbytes == 144 * 4 + 16.0  # it had one


def test_r1_works_off_a_chain_of_three():
    original = of_text("c = conv(x, 4, 3, norm=True)")
    after = applied("R1", applied("R1", original, ("c", "c.norm")), original=original)
    assert after.names == ("x", "c.relu")
    assert after["c.relu"].attributes["activation"] == "relu"


def test_r1_of_other_products():
    text = (
        "l = linear(x, 5); s = activation(l, 'sigmoid'); r = linear(z, 4); m = matmul(s, r); t = activation(m, 'tanh')"
    )
    graph = of_text(text, x=(2, 3, 4), z=(2, 5, 4))
    assert matches("R1", graph) == [("l", "s"), ("m", "t")]
    assert applied("R1", graph, ("l", "s"))["s"].attributes["activation"] == "sigmoid"
    assert applied("R1", graph, ("m", "t"))["t"].kind == "matmul"


def test_r1_conditions():
    assert matches("R1", of_text(f"{C}; r = activation(c); s = add([r, c])")) == []  # c is read twice
    graph = of_text(f"{C}; r = activation(c)")
    kept = Draft(Draft.from_graph(graph).rows.values(), kept=["c"])  # and here outside
    assert list(RULES["R1"].matches(kept)) == []
    assert RULES["R1"].apply(kept, ("c", "r")) is None
    assert RULES["R1"].apply(Draft.from_graph(graph), ("x", "c")) is None
    assert matches("R1", with_attributes(graph, "c", activation="tanh")) == []
    linear = of_text("l = linear(x, 5); n = batch_norm(l)", x=(2, 3, 4, 5))
    assert matches("R1", linear) == []  # axis 1 is not what the weights make
    assert matches("R1", of_text(f"{C}; r = activation(c, 'prelu')")) == []  # has weights
    # scale and shift go into the weights; the activation that somebody put behind them would be lost
    normed = of_text("c = conv(x, 4, 3, norm=True, activation=None)")
    assert matches("R1", normed) == [("c", "c.norm")]
    assert matches("R1", with_attributes(normed, "c.norm", activation="relu")) == []
    # the activation reads channels 0 and 1 of 4, and nobody the rest
    half = replace(graph["r"], input_shapes=[(1, 2, 4, 4)], output_shape=(1, 2, 4, 4))
    graph = with_attributes(OpGraph([graph["x"], graph["c"], half], graph.edges), "r", slices={"0": [1, 0, 2]})
    assert matches("R1", graph) == []


# R13


def test_r13_adds_three_at_once():
    """288 FLOP of 144 elements; reads three tensors and writes one, of 576 bytes each."""
    after = applied("R13", of_text("two = add([y, z]); all = add([x, two])"))
    op = after["all"]
    assert (op.kind, op.flops, op.nbytes, dict(op.attributes)) == ("add", 288.0, 4 * 576.0, {})
    assert [edge.src for edge in after.edges] == ["x", "y", "z"]
    assert op.kernels == (Kernel(1, 256, 32),)


def test_r13_puts_other_elementwise_operators_in_a_row():
    """relu((x + y) n) z: 1 + 2 + 1 + 1 FLOP per element, three tensors read and one written."""
    graph = original = of_text("a = add([x, y]); n = batch_norm(a); r = activation(n); m = elementwise('mul', [z, r])")
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
    first, second, third = (
        of_text(text)
        for text in (
            "i = elementwise('sub', [x, y]); o = elementwise('sub', [i, z])",
            "i = elementwise('sub', [y, z]); o = elementwise('sub', [x, i])",
            "i = elementwise('sub', [x, y]); r = activation(i); s = add([z, r]); o = elementwise('sub', [s, z])",
        )
    )
    for graph in (first, second):
        assert [edge.src for edge in applied("R13", graph).edges] == ["x", "y", "z"]
    graph = third
    while matches("R13", graph):
        graph = applied("R13", graph, matches("R13", graph)[0], third)
    assert [edge.src for edge in graph.edges] == ["z", "x", "y", "z"]


def test_r13_conditions():
    graph = of_text("c = conv(x, 4, 1, activation=None); r = activation(c); t = activation(r, 'tanh'); s = add([r, t])")
    assert matches("R13", graph) == [("t", "s")]  # r is read twice
    shapes = {"input_shapes": ((1, 4), (1, 1)), "output_shape": (1, 4)}  # b is spread over a
    rows = [
        Operator("a", "relu", input_shapes=((1, 4),), output_shape=(1, 4)),
        Operator("b", "relu", input_shapes=((1, 1),), output_shape=(1, 1)),
        Operator("s", "add", **shapes),
    ]
    spread = OpGraph(rows, [Edge("a", "s", 16.0), Edge("b", "s", 4.0)])
    refused("R13", spread, "a", "s")
