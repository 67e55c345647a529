"""Rules R9 to R12: where they hold, what they cost, and that they compute the same."""

from dataclasses import replace

import pytest
from rewritten import applied, matches, network, refused, source, with_attributes

from simsched.model.graph import OpGraph
from simsched.rewriting import RULES, Draft

# R9


def products(**second):
    net = network("unit")
    x = source(net, (1, 1, 6))
    net.activation("r", net.concat("join", [net.linear("a", x, 4), net.linear("b", x, 8, **second)], axis=2))
    return net.graph()


def test_r9_multiplies_once():
    """12 outputs of 6 inputs: 144 FLOP; 12 x 7 weights, 6 values read and 12 written, of 4 bytes."""
    after = applied("R9", products())
    assert after.names == ("x", "a+b", "r")
    op = after["a+b"]
    assert (op.kind, op.flops, op.weight_nbytes, op.nbytes) == ("linear", 144.0, 336.0, 336.0 + 4 * 18)
    assert op.attributes == {
        "in_features": 6, "out_features": 12, "bias": True,
        "weights": {"concat": [{"of": "a"}, {"of": "b"}], "axis": 0},
    }  # fmt: skip


def test_r9_gives_both_a_bias_if_one_has_one():
    """8 zeros more."""
    op = applied("R9", products(bias=False))["a+b"]
    assert op.attributes["bias"] is True
    assert op.weight_nbytes == 84 * 4.0


def test_r9_twice_makes_one_of_query_key_and_value():
    net = network()
    x = source(net, (2, 3, 6))
    query, key, value = (net.linear(name, x, 6) for name in ("query", "key", "value"))
    scores = net.matmul("scores", query, net.view("turned", key, (2, 6, 3)))
    net.matmul("context", net.softmax("softmax", scores), value)
    original = net.graph()
    assert len(matches("R9", original)) == 3
    once = applied("R9", original, ("query", "key"))
    after = applied("R9", once, original=original)
    assert after["query+key+value"].attributes["out_features"] == 18
    assert after["key"].attributes == {"axis": 2, "begin": 6, "end": 12} or "query+key" in after.names
    assert len(after) == len(original) + 1 + ("query+key" in after.names)


def test_r9_conditions():
    refused("R9", products(activation="relu"), "a", "b")


# R10


def sum_of(of_one=False, shared=False, bias=True, activation=None, inner=None, features=(6, 6), again=False):
    net = network("unit")
    x = source(net, (2, 3, features[0]))
    y = x if of_one else source(net, (2, 3, features[1]), "y")
    outs = [net.linear("a", x, 4, bias=bias, activation=inner), net.linear("b", y, 4, activation=inner)]
    total = net.add("sum", outs, activation=activation)
    if again:
        net.add("more", [total, outs[0]])
    graph = net.graph()
    return with_attributes(graph, "b", weights={"of": "a"}, bias=bias) if shared else graph


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_r10_multiplies_both_at_once(activation):
    """6 rows of 4 outputs of 6 + 5 inputs: 528 FLOP; 44 weights and one bias of 4."""
    after = applied("R10", sum_of(activation=activation, features=(6, 5)))
    op = after["sum"]
    assert after.order == ("x", "y", "sum.input", "sum")
    assert (op.flops, op.weight_nbytes, op.nbytes) == (528.0, 48 * 4.0, 4.0 * (66 + 48 + 24))
    assert op.attributes["weights"] == {"concat": [{"of": "a"}, {"of": "b"}], "axis": 1}
    assert op.attributes.get("activation") == activation


@pytest.mark.parametrize("bias", [True, False])
def test_r10_adds_up_weights(bias):
    """x (w1 + w2): one product of 6 rows, 4 outputs and 6 inputs, 288 FLOP; a bias if one had one."""
    after = applied("R10", sum_of(of_one=True, bias=bias))
    assert after.names == ("x", "sum")
    op = after["sum"]
    assert (op.flops, op.weight_nbytes, op.attributes["bias"]) == (288.0, 28 * 4.0, True)
    assert op.attributes["weights"] == {"sum": [{"of": "a"}, {"of": "b"}]}


@pytest.mark.parametrize("bias", [True, False])
def test_r10_adds_up_inputs(bias):
    """(x + y) w: a sum of 36 values before the product; the bias counts twice."""
    after = applied("R10", sum_of(shared=True, bias=bias))
    assert after.order == ("x", "y", "sum.input", "sum")
    assert (after["sum.input"].kind, after["sum.input"].flops, after["sum.input"].nbytes) == ("add", 36.0, 3 * 144.0)
    assert after["sum"].flops == 288.0
    recipe = {"of": "a"}
    assert after["sum"].attributes["weights"] == ({"bias": recipe, "times": 2} if bias else recipe)


@pytest.mark.parametrize("options", [{"inner": "relu"}, {"again": True}])
def test_r10_conditions(options):
    graph = sum_of(**options)
    refused("R10", graph, "a", "b", "sum")


# R11


def test_r11_activates_what_is_joined():
    """All 144 + 72 values at once; the copy is as large as before."""
    net = network()
    outs = [net.activation(f"r{name}", source(net, (1, c, 6, 6), name)) for name, c in (("x", 4), ("y", 2))]
    net.pool("pool", net.concat("join", outs), "max", 2)
    graph = net.graph()
    after = applied("R11", graph)
    assert after.order == ("x", "y", "join.input", "join", "pool")
    op = after["join"]
    assert (op.kind, op.flops, op.nbytes) == ("relu", 216.0, 2 * 216 * 4.0)
    assert (after["join.input"].nbytes, after["join.input"].attributes) == (graph["join"].nbytes, {"axis": 1})


def test_r11_activates_parts_of_one_tensor_at_once():
    """What R2 made: relu of both parts is relu of the whole, and nothing needs to be joined."""
    net = network()
    x = source(net)
    a, b = (net.conv(name, x, c, 1, activation=None) for name, c in (("a", 4), ("b", 2)))
    net.pool("p", net.activation("ra", a), "max", 2)
    net.pool("q", net.activation("rb", b), "avg", 2)
    original = net.graph()
    once = applied("R2", original)
    after = applied("R11", once, original=original)
    assert after.names == ("x", "a+b", "ra+rb", "p", "q")
    assert after["q"].attributes["slices"] == {"0": [1, 4, 6]}


def test_r11_takes_parts_in_their_order():
    """The activation of the second part comes first: the whole is still read as it is."""
    net = network()
    x = source(net)
    a, b = (net.conv(name, x, c, 1, activation=None) for name, c in (("a", 4), ("b", 2)))
    net.pool("q", net.activation("rb", b), "avg", 2)
    net.pool("p", net.activation("ra", a), "max", 2)
    original = net.graph()
    after = applied("R11", applied("R2", original), original=original)
    assert sorted(after.names) == ["a+b", "p", "q", "ra+rb", "x"]
    assert after["q"].attributes["slices"] == {"0": [1, 4, 6]}


def test_r11_of_two_branches_of_one_tensor():
    """Both 4 x 36 values: joined along the first axis, which to split is free."""
    net = network()
    x = source(net)
    for name in ("a", "b"):
        net.pool(f"{name}.pool", net.activation(f"r{name}", net.conv(name, x, 4, 1, activation=None)), "max", 2)
    graph = net.graph()
    after = applied("R11", graph)
    assert after["ra+rb"].output_shape == (2, 4, 6, 6)
    assert after["b.pool"].attributes["slices"] == {"0": [0, 1, 2]}


def test_r11_conditions():
    net = network()
    outs = [net.activation("r", source(net)), net.activation("t", source(net, name="y"), "sigmoid")]
    net.concat("join", outs)
    assert matches("R11", net.graph()) == []  # not the same activation
    net = network()
    r = net.activation("r", source(net))
    net.concat("join", [r, net.activation("s", source(net, name="y"))])
    net.pool("pool", r, "max", 2)
    assert matches("R11", net.graph()) == []  # read elsewhere
    net = network()
    net.concat("join", [net.activation("r", source(net)), source(net, name="y")])
    assert matches("R11", net.graph()) == []  # one is no relu
    net = network()
    x = source(net)
    net.add("sum", [net.activation("r", x), net.activation("s", x)])
    assert matches("R11", net.graph()) == []  # twice the same
    assert RULES["R11"].apply(Draft.from_graph(net.graph()), ("r", "s")) is None
    net = network()
    net.activation("r", net.activation("x1", source(net)))
    net.activation("s", net.activation("y1", source(net, name="y")))
    assert ("r", "s") not in matches("R11", net.graph())  # nothing in common


# R12


def pieces(batch, last):
    """A join of x (4 channels) and y (2), of which pieces are copied; then `last` reads them, in order or "turned"."""
    net = network()
    both = net.concat("both", [source(net, (batch, 4, 6, 6)), source(net, (batch, 2, 6, 6), "y")])
    cuts = [net.copy(name, both, (batch, n, 6, 6), kind="slice") for name, n in (("s", 4), ("t", 2))]
    net.add("keep", [both])
    if last != "pools":
        net.activation("r", net.concat("again", cuts if last == "concat" else cuts[::-1]))
    else:
        net.pool("p", cuts[0], "max", 2)
        net.pool("q", cuts[1], "max", 2)
    graph = net.graph()
    for name, begin, end in (("s", 0, 4), ("t", 4, 6)):
        graph = with_attributes(graph, name, axis=1, begin=begin, end=end)
    return graph


def test_r12_reads_what_was_joined():
    graph = pieces(2, "pools")
    assert matches("R12", graph) == [("both", "s"), ("both", "t")]
    once = applied("R12", graph, ("both", "s"))
    after = applied("R12", once, original=graph)
    assert sorted(after.names) == ["both", "keep", "p", "q", "x", "y"]
    assert [(edge.src, edge.dst) for edge in after.edges if edge.dst in "pq"] == [("x", "p"), ("y", "q")]


def test_r12_leaves_out_a_join_that_nobody_needs():
    net = network()
    both = net.concat("both", [source(net), source(net, name="y")])
    net.copy("s", both, (1, 4, 6, 6), kind="slice")
    net.activation("r", net.copy("t", both, (1, 4, 6, 6), kind="slice"))
    graph = with_attributes(net.graph(), "t", axis=1, begin=4, end=8)
    assert matches("R12", graph) == [("both", "t")]
    assert len(applied("R12", graph)) == len(graph) - 1  # it is still read by s


def test_r12_leaves_a_tensor_that_nobody_would_read():
    """Without the join x would be an output of the network."""
    net = network()
    both = net.concat("both", [source(net), source(net, name="y")])
    net.activation("r", net.copy("t", both, (1, 4, 6, 6), kind="slice"))
    graph = with_attributes(net.graph(), "t", axis=1, begin=4, end=8)
    refused("R12", graph, "both", "t")


@pytest.mark.parametrize("batch", [1, 2])
def test_r12_leaves_out_a_join_of_all_slices(batch):
    """again(s, t) is both; the two copies go, and who read it reads both."""
    graph = pieces(batch, "concat")
    after = applied("R12", graph, ("again",))
    assert sorted(after.names) == ["both", "keep", "r", "x", "y"]
    assert [edge.src for edge in after.edges if edge.dst == "r"] == ["both"]


def test_r12_of_slices_that_are_read_where_they_lie():
    """Who reads channels 4 and 5 of both reads y; who reads 3 and 4 does not."""
    net = network()
    both = net.concat("both", [source(net), source(net, (1, 2, 6, 6), "y")])
    net.activation("r", net.slice("p", both, (1, 2, 6, 6)))
    net.activation("s", both)
    graph = net.graph()
    rows = [replace(op, kind="relu") if op.name == "p" else op for op in graph.operators]
    rows = [replace(op, input_shapes=op.input_shapes if op.name != "p" else [(1, 2, 6, 6)]) for op in rows]
    exact = with_attributes(OpGraph(rows, graph.edges), "p", slices={"0": [1, 4, 6]})
    after = applied("R12", exact)
    assert after.names == graph.names
    assert [edge.src for edge in after.edges if edge.dst == "p"] == ["y"]
    assert matches("R12", with_attributes(exact, "p", slices={"0": [1, 3, 5]})) == []


@pytest.mark.parametrize("batch", [1, 2])
def test_r12_joins_slices_in_order_only(batch):
    """t before s is another tensor."""
    assert matches("R12", pieces(batch, "turned")) == [("both", "s"), ("both", "t")]


def other_format(graph, name, dtype):
    """The graph in which an operator works in another number format."""
    return OpGraph([replace(op, dtype=dtype) if op.name == name else op for op in graph.operators], graph.edges)


def test_r12_needs_a_join_that_does_nothing_else():
    """With an activation behind it, along an axis from the end, or in another number format than what it joins."""
    graph = pieces(1, "pools")
    assert matches("R12", graph) == [("both", "s"), ("both", "t")]
    assert matches("R12", with_attributes(graph, "both", activation="relu")) == []
    assert matches("R12", with_attributes(graph, "both", axis=-3)) == []
    assert matches("R12", other_format(graph, "both", "fp16")) == []
