"""Rules R9 to R12: where they hold, what they cost, and that they compute the same."""

from dataclasses import replace

import pytest
from rewritten import applied, matches, of_text, refused, with_attributes

from simsched.model import OpGraph

# R9


def products(second="x, 8"):
    text = f"a = linear(x, 4); b = linear({second}); join = concat([a, b], axis=2); r = activation(join)"
    return of_text(text, "unit", x=(1, 1, 6))


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
    op = applied("R9", products("x, 8, bias=False"))["a+b"]
    assert op.attributes["bias"] is True
    assert op.weight_nbytes == 84 * 4.0


def test_r9_twice_makes_one_of_query_key_and_value():
    text = "query = linear(x, 6); key = linear(x, 6); value = linear(x, 6); turned = view(key, (2, 6, 3))"
    text += "; scores = matmul(query, turned); weights = softmax(scores); context = matmul(weights, value)"
    original = of_text(text, x=(2, 3, 6))
    assert len(matches("R9", original)) == 3
    once = applied("R9", original, ("query", "key"))
    after = applied("R9", once, original=original)
    assert after["query+key+value"].attributes["out_features"] == 18
    assert after["key"].attributes == {"axis": 2, "begin": 6, "end": 12} or "query+key" in after.names
    assert len(after) == len(original) + 1 + ("query+key" in after.names)


def test_r9_conditions():
    refused("R9", products("x, 8, activation='relu'"), "a", "b")


# R10


def sum_of(first="", second="y", last="sum = add([a, b])", features=6, shared=False):
    text = f"a = linear(x, 4{first}); b = linear({second}, 4{first if shared else ''}); {last}"
    graph = of_text(text, "unit", x=(2, 3, 6), y=(2, 3, features))
    return with_attributes(graph, "b", weights={"of": "a"}) if shared else graph


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_r10_multiplies_both_at_once(activation):
    """6 rows of 4 outputs of 6 + 5 inputs: 528 FLOP; 44 weights and one bias of 4."""
    after = applied("R10", sum_of(last=f"sum = add([a, b], activation={activation!r})", features=5))
    op = after["sum"]
    assert after.order == ("x", "y", "sum.input", "sum")
    assert (op.flops, op.weight_nbytes, op.nbytes) == (528.0, 48 * 4.0, 4.0 * (66 + 48 + 24))
    assert op.attributes["weights"] == {"concat": [{"of": "a"}, {"of": "b"}], "axis": 1}
    assert op.attributes.get("activation") == activation


@pytest.mark.parametrize("bias", [True, False])
def test_r10_adds_up_weights(bias):
    """x (w1 + w2): one product of 6 rows, 4 outputs and 6 inputs, 288 FLOP; a bias if one had one."""
    after = applied("R10", sum_of(f", bias={bias}", "x"))
    assert "sum.input" not in after.names
    op = after["sum"]
    assert (op.flops, op.weight_nbytes, op.attributes["bias"]) == (288.0, 28 * 4.0, True)
    assert op.attributes["weights"] == {"sum": [{"of": "a"}, {"of": "b"}]}


@pytest.mark.parametrize("bias", [True, False])
def test_r10_adds_up_inputs(bias):
    """(x + y) w: a sum of 36 values before the product; the bias counts twice."""
    after = applied("R10", sum_of(f", bias={bias}", shared=True))
    assert after.order == ("x", "y", "sum.input", "sum")
    assert (after["sum.input"].kind, after["sum.input"].flops, after["sum.input"].nbytes) == ("add", 36.0, 3 * 144.0)
    assert after["sum"].flops == 288.0
    recipe = {"of": "a"}
    assert after["sum"].attributes["weights"] == ({"bias": recipe, "times": 2} if bias else recipe)


@pytest.mark.parametrize(
    "changed",
    [{"first": ", activation='relu'", "shared": True}, {"last": "sum = add([a, b]); more = add([sum, a])"}],
)
def test_r10_conditions(changed):
    refused("R10", sum_of(**changed), "a", "b", "sum")


# R11


def test_r11_activates_what_is_joined():
    """All 144 + 72 values at once; the copy is as large as before."""
    text = "rx = activation(x); ry = activation(y); join = concat([rx, ry]); p = pool(join, 'max', 2)"
    graph = of_text(text, x=(1, 4, 6, 6), y=(1, 2, 6, 6))
    after = applied("R11", graph)
    assert after.order == ("x", "y", "join.input", "join", "p")
    op = after["join"]
    assert (op.kind, op.flops, op.nbytes) == ("relu", 216.0, 2 * 216 * 4.0)
    assert (after["join.input"].nbytes, after["join.input"].attributes) == (graph["join"].nbytes, {"axis": 1})


TWO_PARTS = "a = conv(x, 4, 1, activation=None); b = conv(x, 2, 1, activation=None); "


@pytest.mark.parametrize(
    "text",
    [
        "ra = activation(a); p = pool(ra, 'max', 2); rb = activation(b); q = pool(rb, 'avg', 2)",
        "rb = activation(b); q = pool(rb, 'avg', 2); ra = activation(a); p = pool(ra, 'max', 2)",
    ],
)
def test_r11_activates_parts_of_one_tensor_at_once(text):
    """What R2 made: relu of both parts is relu of the whole, and nothing needs to be joined, whichever comes first."""
    original = of_text(TWO_PARTS + text)
    after = applied("R11", applied("R2", original), original=original)
    assert sorted(after.names) == ["a+b", "p", "q", "ra+rb", "x"]
    assert after["q"].attributes["slices"] == {"0": [1, 4, 6]}


def test_r11_of_two_branches_of_one_tensor():
    """Both 4 x 36 values: joined along the first axis, which to split is free."""
    branch = "{0} = conv(x, 4, 1, activation=None); r{0} = activation({0}); {0}.pool = pool(r{0}, 'max', 2)"
    after = applied("R11", of_text("; ".join(map(branch.format, "ab"))))
    assert after["ra+rb"].output_shape == (2, 4, 6, 6)
    assert after["b.pool"].attributes["slices"] == {"0": [0, 1, 2]}


@pytest.mark.parametrize(
    "text",
    [
        "r = activation(x); s = activation(y, 'sigmoid'); join = concat([r, s])",  # not the same activation
        "r = activation(x); s = activation(y); join = concat([r, s]); p = pool(r, 'max', 2)",  # read elsewhere
        "r = activation(x); join = concat([r, y])",  # one is no relu
        "r = activation(x); s = activation(x); sum = add([r, s])",  # twice the same
    ],
)
def test_r11_conditions(text):
    refused("R11", of_text(text), *(("r", "s") if "sum" in text else ()))


def test_r11_needs_something_in_common():
    graph = of_text("x1 = activation(x); r = activation(x1); y1 = activation(y); s = activation(y1)")
    assert ("r", "s") not in matches("R11", graph)


# R12


def pieces(batch, last):
    """A join of x (4 channels) and y (2), of which s and t are copied; then what reads those."""
    text = f"both = concat([x, y]); s = copy(both, ({batch}, 4, 6, 6), kind='slice')"
    text += f"; t = copy(both, ({batch}, 2, 6, 6), kind='slice'); keep = add([both]); {last}"
    graph = of_text(text, x=(batch, 4, 6, 6), y=(batch, 2, 6, 6))
    for name, begin, end in (("s", 0, 4), ("t", 4, 6)):
        graph = with_attributes(graph, name, axis=1, begin=begin, end=end)
    return graph


POOLS = "p = pool(s, 'max', 2); q = pool(t, 'max', 2)"


def test_r12_reads_what_was_joined():
    graph = pieces(2, POOLS)
    assert matches("R12", graph) == [("both", "s"), ("both", "t")]
    once = applied("R12", graph, ("both", "s"))
    after = applied("R12", once, original=graph)
    assert sorted(after.names) == ["both", "keep", "p", "q", "x", "y"]
    assert [(edge.src, edge.dst) for edge in after.edges if edge.dst in "pq"] == [("x", "p"), ("y", "q")]


HALF = "t = copy(both, (1, 4, 6, 6), kind='slice'); r = activation(t)"


def test_r12_leaves_out_a_join_that_nobody_needs():
    text = f"both = concat([x, y]); s = copy(both, (1, 4, 6, 6), kind='slice'); {HALF}"
    graph = with_attributes(of_text(text), "t", axis=1, begin=4, end=8)
    assert matches("R12", graph) == [("both", "t")]
    assert len(applied("R12", graph)) == len(graph) - 1  # it is still read by s


def test_r12_leaves_a_tensor_that_nobody_would_read():
    """Without the join x would be an output of the network."""
    graph = with_attributes(of_text(f"both = concat([x, y]); {HALF}"), "t", axis=1, begin=4, end=8)
    refused("R12", graph, "both", "t")


@pytest.mark.parametrize("batch", [1, 2])
def test_r12_leaves_out_a_join_of_all_slices(batch):
    """again(s, t) is both; the two copies go, and who read it reads both."""
    graph = pieces(batch, "again = concat([s, t]); r = activation(again)")
    after = applied("R12", graph, ("again",))
    assert sorted(after.names) == ["both", "keep", "r", "x", "y"]
    assert [edge.src for edge in after.edges if edge.dst == "r"] == ["both"]


def test_r12_of_slices_that_are_read_where_they_lie():
    """Who reads channels 4 and 5 of both reads y; who reads 3 and 4 does not."""
    graph = of_text(
        "both = concat([x, y]); p = activation(both); r = activation(p); s = activation(both)", y=(1, 2, 6, 6)
    )
    part = replace(graph["p"], input_shapes=[(1, 2, 6, 6)], output_shape=(1, 2, 6, 6))
    rows = [{"p": part, "r": replace(part, name="r")}.get(op.name, op) for op in graph.operators]
    exact = with_attributes(OpGraph(rows, graph.edges), "p", slices={"0": [1, 4, 6]})
    after = applied("R12", exact)
    assert after.names == graph.names
    assert [edge.src for edge in after.edges if edge.dst == "p"] == ["y"]
    assert matches("R12", with_attributes(exact, "p", slices={"0": [1, 3, 5]})) == []


@pytest.mark.parametrize("batch", [1, 2])
def test_r12_joins_slices_in_order_only(batch):
    """t before s is another tensor."""
    assert matches("R12", pieces(batch, "again = concat([t, s]); r = activation(again)")) == [
        ("both", "s"),
        ("both", "t"),
    ]


def other_format(graph, name, dtype):
    """The graph in which an operator works in another number format."""
    return OpGraph([replace(op, dtype=dtype) if op.name == name else op for op in graph.operators], graph.edges)


def test_r12_needs_a_join_that_does_nothing_else():
    """With an activation behind it, along an axis from the end, or in another number format than what it joins."""
    graph = pieces(1, POOLS)
    assert matches("R12", graph) == [("both", "s"), ("both", "t")]
    assert matches("R12", with_attributes(graph, "both", activation="relu")) == []
    assert matches("R12", with_attributes(graph, "both", axis=-3)) == []
    assert matches("R12", other_format(graph, "both", "fp16")) == []
