"""Rules R2 to R8: where they hold, what they cost, and that they compute the same."""

from dataclasses import replace

import pytest
from rewritten import applied, matches, of_text, refused, with_attributes

from simsched.model.graph import Kernel, OpGraph
from simsched.rewriting import RULES, Draft

# R2 and R3


def test_r2_makes_one_of_two_and_drops_the_concatenation():
    """The join of all that one convolution writes is that: its readers read the convolution."""
    two = "a = conv(x, 4, 1); b = conv(x, 8, 1)"
    after = applied("R2", of_text(f"{two}; join = concat([a, b])", "unit"))
    assert after.names == ("x", "a+b", "join")  # an output of the network: a view
    assert (after["join"].kind, after["join"].time) == ("slice", 0.0)
    after = applied("R2", of_text(f"{two}; join = concat([a, b]); p = pool(join, 'max', 2)", "unit"))
    assert after.names == ("x", "a+b", "p")
    assert after["a+b"].flops == 2.0 * 12 * 36 * 4
    # in the order of the concatenation
    graph = of_text(f"{two}; join = concat([b, a]); p = pool(join, 'max', 2)", "unit")
    assert applied("R2", graph).names == ("x", "b+a", "p")


@pytest.mark.parametrize("batch", [1, 3])
def test_r2_joins_parts_that_stay_together(batch):
    """The join reads all of a+b at once, though a part of it on its own would have to be copied."""
    text = "a = conv(x, 4, 1); b = conv(x, 8, 1); c = conv(x, 2, 1, activation=None); join = concat([a, b, c])"
    graph = of_text(text, "unit", x=(batch, 4, 6, 6))
    after = applied("R2", graph)
    assert after.names == ("x", "a+b", "c", "join")
    assert after["join"].input_shapes == ((batch, 12, 6, 6), (batch, 2, 6, 6))
    assert "slices" not in after["join"].attributes
    assert after["join"].nbytes == graph["join"].nbytes


@pytest.mark.parametrize(
    "second",
    ["1, stride=2", "1, activation=None", "1, padding=1", "3, padding=1", "1, groups=2", "1, activation='tanh'"],
)
def test_r2_conditions(second):
    refused("R2", of_text(f"a = conv(x, 4, 1); b = conv(x, 8, {second})", "unit"), "a", "b")


def test_r2_needs_a_known_common_input():
    assert matches("R2", of_text("a = conv(input(1, 4, 6, 6), 4, 1); b = conv(input(1, 4, 6, 6), 4, 1)", "unit")) == []
    assert matches("R2", of_text("c = conv(x, 4, 1); d = conv(y, 4, 1)", "unit")) == []


@pytest.mark.parametrize("batch", [1, 2])
def test_r3_enlarges_the_smaller(batch):
    """3 x 3 for both: 12 channels x 36 pixels x 4 x 9 x 2 FLOP, each image; weights 12 x 37 x 4 bytes."""
    text = "a = conv(x, 4, 1); b = conv(x, 8, 3, padding=1); join = concat([a, b])"
    graph = of_text(text, "unit", x=(batch, 4, 6, 6))
    op = applied("R3", graph)["a+b"]
    assert op.flops == batch * 12 * 36 * 72.0
    assert op.weight_nbytes == 12 * 37 * 4.0
    assert op.attributes["weights"]["concat"][0] == {"pad": {"of": "a"}, "kernel": [3, 3]}
    assert matches("R2", graph) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1, stride=2", "3, padding=1, stride=2"),  # not stride 1
        ("(1, 3), padding=(0, 1)", "(3, 1), padding=(1, 0)"),  # neither is the larger
        ("1", "3"),  # not padded to the same size
        ("1", "1"),  # the same: R2
        ("2", "4, padding=1"),  # even
        ("1", "3, padding=1, groups=2"),
        ("1", "3, padding=1, activation=None"),
    ],
)
def test_r3_conditions(first, second):
    refused("R3", of_text(f"a = conv(x, 4, {first}); b = conv(x, 8, {second})", "unit"), "a", "b")


# R4


def shared(text):
    """Convolutions a and b of one weight."""
    return with_attributes(of_text(text, "unit", y=(2, 4, 6, 6)), "b", weights={"of": "a"})


def test_r4_runs_a_larger_batch():
    """1 + 2 images of 8 x 16 outputs, 72 FLOP each; inputs 3 x 144, outputs 3 x 128 and 296 weights, of 4 bytes."""
    two = "a = conv(x, 8, 3); b = conv(y, 8, 3)"
    after = applied("R4", shared(f"{two}; join = concat([a, b], axis=0); p = pool(join, 'max', 2)"))
    assert sorted(after.names) == ["a+b", "a+b.input", "p", "x", "y"]
    op = after["a+b"]
    assert (op.flops, op.nbytes, op.weight_nbytes) == (3 * 128 * 72.0, 4.0 * (432 + 384 + 296), 296 * 4.0)
    assert op.attributes["weights"] == {"of": "a"}
    joined = after["a+b.input"]
    assert (joined.kind, joined.flops, joined.nbytes) == ("concat", 0.0, 2 * 432 * 4.0)
    assert joined.kernels == (Kernel(2, 256, 32),)
    graph = shared(f"{two}; p = pool(a, 'max', 2); q = pool(b, 'max', 2)")
    assert applied("R4", graph)["q"].attributes["slices"] == {"0": [0, 1, 3]}
    assert matches("R4", with_attributes(graph, "b", weights={"of": "b"})) == []
    assert matches("R4", with_attributes(graph, "b", activation="tanh")) == []
    refused("R4", shared("a = conv(x, 8, 3); b = conv(x, 8, 3)"), "a", "b")  # of one tensor: the same twice


def test_r4_does_not_make_a_circle():
    """The same convolution twice in a row: both are alike, but the second reads the first."""
    graph = shared("a = conv(x, 4, 3, padding=1); b = conv(a, 4, 3, padding=1)")
    assert matches("R4", graph) == [("a", "b")]
    assert RULES["R4"].apply(Draft.from_graph(graph), ("a", "b")) is None


# R5


def two_of_eight(last, second="3", groups=1, y=6):
    """Convolutions a and b of 8 channels each, of another tensor, and what reads them."""
    text = f"a = conv(x, 8, 3, groups={groups}); b = conv(y, 8, {second}, groups={groups}); {last}"
    return of_text(text.removesuffix("; "), "unit", x=(1, 8, 6, 6), y=(1, 8, y, y))


JOINED = "join = concat([a, b]); p = pool(join, 'max', 2)"


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_r5_makes_groups(groups):
    """Twice the groups and channels; FLOP 16 x 16 x 9 x 8 / groups x 2, as before."""
    graph = two_of_eight(JOINED, groups=groups)
    after = applied("R5", graph, ("a", "b", "join"))
    op = after["a+b"]
    assert after.order == ("x", "y", "a+b.input", "a+b", "p")
    assert (op.attributes["groups"], op.attributes["out_channels"]) == (2 * groups, 16)
    assert op.flops == 16 * 16 * 9 * 8 // groups * 2.0 == graph["a"].flops + graph["b"].flops
    assert op.weight_nbytes == 2 * graph["a"].weight_nbytes
    assert op.nbytes == 2 * graph["a"].nbytes


def test_r5_splits_depthwise_convolutions():
    after = applied("R5", two_of_eight("", groups=8), ("a", "b"))
    assert after["b"].attributes == {"axis": 1, "begin": 8, "end": 16}
    assert after["a+b"].attributes["groups"] == 16


def test_r5_conditions():
    assert matches("R5", two_of_eight("")) == []  # neither joined nor depthwise
    assert matches("R5", two_of_eight(f"{JOINED}; again = pool(a, 'max', 2)")) == []  # read elsewhere
    for last, groups in ((JOINED, 1), ("", 8)):
        assert matches("R5", two_of_eight(last, "1", groups, y=4)) == []  # another kernel
    graph = of_text("a = conv(x, 4, 1); b = conv(x, 4, 1); join = concat([a, b])", "unit")  # of one tensor: R2
    refused("R5", graph, "a", "b", "join")
    graph = of_text("a = conv(x, 4, 1); b = conv(y, 4, 1); join = concat([a, b], axis=0)", "unit")
    assert matches("R5", graph) == []  # joined along another axis


# R6


def summed(first="8, 1, activation=None", second="y, 8, 1, activation=None", last="sum = add([a, b])"):
    text = f"a = conv(x, {first}); b = conv({second}); {last}"
    return of_text(text, "unit", x=(1, 4, 6, 6), y=(1, 6, 6, 6))


@pytest.mark.parametrize("activation", [None, "relu"])
def test_r6_convolves_both_at_once(activation):
    """FLOP 8 x 36 x (4 + 6) x 2; weights 8 x 10 and one bias; reads 10 x 36, writes 8 x 36 values of 4 bytes."""
    after = applied("R6", summed(last=f"sum = add([a, b], activation={activation!r})"))
    op = after["sum"]
    assert after.order == ("x", "y", "sum.input", "sum")
    assert (op.kind, op.flops, op.weight_nbytes) == ("conv", 5760.0, 88 * 4.0)
    assert op.nbytes == 4.0 * (360 + 288 + 88)
    assert op.attributes.get("activation") == activation
    assert op.attributes["weights"] == {"concat": [{"of": "a"}, {"of": "b"}], "axis": 1}


@pytest.mark.parametrize(
    "changed",
    [
        {"second": "x, 8, 1, activation=None"},  # of one tensor
        {"second": "y, 8, 3, padding=1, activation=None"},
        {"first": "8, 1, activation=None, groups=2", "second": "y, 8, 1, activation=None, groups=2"},
        {"first": "8, 1", "second": "y, 8, 1"},  # with an activation in between
        {"last": "sum = add([a, b]); more = add([sum, a])"},  # read elsewhere
    ],
)
def test_r6_conditions(changed):
    refused("R6", summed(**changed), "a", "b", "sum")


def test_r6_needs_all_of_both():
    """The sum reads half of the channels of each."""
    graph = summed()
    given = [(1, 4, 6, 6)] * 2
    rows = [*graph.operators[:-1], replace(graph["sum"], input_shapes=given, output_shape=given[0])]
    half = with_attributes(OpGraph(rows, graph.edges), "sum", slices={"0": [1, 0, 4], "1": [1, 0, 4]})
    refused("R6", half, "a", "b", "sum")


# R7


def pooled(first="'avg'", second="x, 'avg'", kernel=3, stride=1, last="sum = add([a, b])"):
    rest = f"stride={stride}, padding="
    return of_text(
        f"a = pool(x, {first}, 3, {rest}1); b = pool({second}, {kernel}, {rest}{kernel // 2}); {last}", "unit"
    )


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_r7_pools_one_tensor_once(activation):
    """Twice the pool: 4 x 36 values read, doubled and written."""
    after = applied("R7", pooled(last=f"sum = add([a, b], activation={activation!r})"))
    assert after.names == ("x", "a", "sum")
    op = after["sum"]
    assert (op.kind, op.flops, op.nbytes, op.attributes["factor"]) == ("mul", 144.0, 2 * 144 * 4.0, 2.0)
    assert op.attributes.get("activation") == activation


@pytest.mark.parametrize("stride", [1, 2])
def test_r7_pools_the_sum(stride):
    """The sum is of 144 values; the pool costs what one of both did."""
    graph = pooled(second="y, 'avg'", stride=stride)
    after = applied("R7", graph)
    assert after.order == ("x", "y", "sum.input", "sum")
    op, pool = after["sum"], graph["a"]
    assert (op.kind, op.flops, op.kernels) == ("pool", pool.flops, pool.kernels)
    assert (after["sum.input"].flops, after["sum.input"].nbytes) == (144.0, 3 * 144 * 4.0)
    for name in "ab":  # the sum of two relus is not the relu of the sum
        graph = with_attributes(graph, name, activation="relu")
    assert matches("R7", graph) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"first": "'max'", "second": "x, 'max'"},
        {"second": "x, 'max'"},
        {"kernel": 5},
        {"last": "sum = add([a, b]); more = add([a, b])"},
        {"second": "y, 'avg'", "last": "sum = add([a, b], activation='relu')"},
    ],
)
def test_r7_conditions(changed):
    refused("R7", pooled(**changed), "a", "b", "sum")


# R8


@pytest.mark.parametrize("groups", [2, 4, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_r8_fills_pairs_of_groups_with_zeros(groups, stride):
    """Of 16 channels: twice the FLOP and the 16 x 16 / groups x 9 weights; as many outputs in as many blocks."""
    graph = of_text(f"c = conv(x, 16, 3, stride={stride}, padding=1, groups={groups})", "unit", x=(1, 16, 6, 6))
    before, op = graph["c"], applied("R8", graph)["c"]
    assert op.attributes["groups"] == groups // 2
    assert op.flops == 2 * before.flops
    zeros = 16 * 16 // groups * 9 * 4.0
    assert (op.weight_nbytes, op.nbytes) == (before.weight_nbytes + zeros, before.nbytes + zeros)
    assert op.kernels == before.kernels


@pytest.mark.parametrize(
    "given", ["groups=1", "groups=3", "groups=12", "groups=2, stride=3", "groups=2, activation='tanh'"]
)
def test_r8_conditions(given):
    refused("R8", of_text(f"c = conv(x, 12, 3, {given})", "unit", x=(1, 12, 6, 6)), "c")
