"""ONNX models made by hand: which operators they become, and what these cost."""

from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto
from onnx_makers import external, made, model
from small import edges

from simsched.base.errors import FormatError
from workloads.formats.onnx.models import from_onnx, read_onnx
from workloads.models.network import Network

SEQUENCES = {"x": (2, 6, 32)}  # what `attention` needs


def conv_norm_relu(net):
    net.conv("conv", net.input(1, 3, 8, 8), 16, 3, padding=1, norm=True, bias=False)


def branches(net):
    x = net.input(2, 8, 4, 4)
    left = net.conv("left", x, 16, 1, bias=False)
    right = net.conv("right", x, 24, 3, padding=1, bias=False, activation=None)
    net.concat("both", [left, right, net.pool("pool", x, "avg", 3, padding=1)])


def mlp(net):
    x = net.input(5, 10)
    for i, (features, activation) in enumerate([(20, "relu"), (30, "relu"), (4, None)]):
        x = net.linear(f"fc{i}", x, features, activation=activation)


@pytest.mark.parametrize("granularity", ["unit", "operator"])
@pytest.mark.parametrize("build", [conv_norm_relu, branches, mlp])
def test_what_exporters_write_is_what_our_networks_build(build, granularity):
    net = Network("by hand", granularity=granularity)
    build(net)
    graph = from_onnx(made(build.__name__), granularity=granularity)
    assert Counter(graph.operators) == Counter(net.graph().operators)
    assert Counter(graph.edges) == Counter(net.graph().edges)


def test_attention_with_its_arithmetic_on_shapes():
    """Batch 2: products with weights have 2 * 12 * 32 * 32 = 24,576 FLOP.

    Attention has two products of 2 * (2 * 4) * 6 * 8 * 6 = 4,608, a division of 8 * 6 * 6 = 288 scores and a softmax
    of 5 FLOP for each of them. The model calls these one by one, and so does PyTorch.

    What computes the shapes is no operator, biases are in the products, reshapes and transpositions are read through
    but for the one that joins heads that lie apart.
    """
    graph = from_onnx(made("attention"), shapes=SEQUENCES, granularity="unit")
    assert " ".join(f"{op.name}:{op.kind}:{op.flops:g}" for op in graph.operators) == (
        "q:linear:24576 k:linear:24576 v:linear:24576 scores:matmul:4608 scaled:div:288 weights:softmax:1440 "
        "mixed:matmul:4608 mixed_joined:copy:0 out:linear:24576"
    )
    assert (graph["q"].weight_nbytes, graph["mixed"].weight_nbytes) == (33 * 32 * 4, 0.0)
    assert list(graph.edges)[:2] == edges("q-scores=1536 k-scores=1536")
    single = from_onnx(made("attention"), shapes=SEQUENCES, granularity="operator")
    assert len(single) == 12 + 4
    assert single["k_turned"].output_shape == (2, 4, 8, 6)
    for name, kind in (("q_heads", "view"), ("q_turned", "transpose")):
        assert (single[name].kind, single[name].time, single[name].works) == (kind, 0.0, ())


def test_split_has_the_shape_of_the_whole():
    """A split copies nothing; its parts of 2 * 2 * 10 and 2 * 4 * 10 numbers are the edges, and what units read."""
    text = """(float[2, 6, 10] x) => (gate, state) {
        y = Exp (x)  small, large = Split <axis = 1> (y, sizes)  gate = Sigmoid (large)  state = Tanh (small)
    }"""
    graph = from_onnx(model(text, sizes=[2, 4]), granularity="operator")
    split = graph["small"]
    assert (split.kind, split.output_shape, split.nbytes, split.time) == ("split", (2, 6, 10), 0.0, 0.0)
    assert split.attributes["output_shapes"] == [[2, 2, 10], [2, 4, 10]]
    assert list(graph.edges) == edges("y-small=480 small-gate=320 small-state=160")
    units = from_onnx(model(text, sizes=[2, 4]), granularity="unit")
    assert list(units.edges) == edges("y-gate=320 y-state=160")


def test_what_is_read_twice_or_returned_is_not_fused():
    """`active` is returned and read, `conv` read by it and twice by `twice`: it moves once."""
    text = """(float[1, 3, 4, 4] x) => (active, both) {
        conv = Conv (x, w)  active = Relu (conv)  twice = Mul (conv, conv)  both = Mul (twice, active)
    }"""
    graph = from_onnx(model(text, w=(3, 3, 1, 1)))
    assert list(graph.edges) == edges("conv-active conv-twice twice-both active-both", nbytes=192.0)


def test_what_is_not_supported_keeps_its_bytes_and_is_counted_in_one_warning(caplog):
    """Two operators of another domain, one without a known output: 48 numbers read, 48 or none known written."""
    text = """(float[1, 3, 4, 4] x) => (second, places) <float[1, 3, 4, 4] first> {
        first = com.acme.Foo (x, v)  conv = Conv (first, w)  second = com.acme.Foo (conv)  places = NonZero (conv)
    }"""
    graph = from_onnx(model(text, v=(5,), w=(3, 3, 1, 1)), source="acme.onnx")
    assert [record.getMessage() for record in caplog.records] == [
        "acme.onnx: operators that are not supported count their bytes and no FLOP, 65.2 % of all bytes: "
        "com.acme.Foo (2), NonZero (1); "
        "2 of them write tensors of unknown size, which count nothing"
    ]
    first, second = graph["first"], graph["second"]
    assert (first.kind, first.flops, first.nbytes, first.weight_nbytes) == ("com.acme.Foo", 0.0, 4 * 101.0, 20.0)
    assert (second.nbytes, second.output_shape, second.time, second.works) == (192.0, None, None, ())
    assert list(graph.edges) == edges("first-conv conv-second conv-places", nbytes=192.0)


@pytest.mark.parametrize(
    ("declared", "shapes", "output"),
    [
        ("", {}, None),
        ("", {"foo": (1, 3, 4, 4)}, (1, 5, 4, 4)),
        ("<float[1, 3, 4, 4] foo>", {}, (1, 5, 4, 4)),
        ("<float[1, 3, 4, 4] foo>", {"x": (2, 3, 4, 4)}, None),  # what is declared for a batch of 1 is not used for 2
        ("<float[1, 3, 4, 4] foo>", {"x": (2, 3, 4, 4), "foo": (2, 3, 4, 4)}, (2, 5, 4, 4)),
    ],
)
def test_what_an_operator_that_is_not_supported_writes_may_be_given(declared, shapes, output):
    text = f"(float[1, 3, 4, 4] x) => (conv) {declared} {{ foo = com.acme.Foo (x)  conv = Conv (foo, w) }}"
    missing = "'conv' \\(Conv\\): the shape of 'foo' cannot be inferred; give it too"
    with nullcontext() if output else pytest.raises(FormatError, match=missing):
        assert from_onnx(model(text, w=(5, 3, 1, 1)), shapes=shapes)["conv"].output_shape == output


def test_weights_in_other_files_are_counted_and_not_read(tmp_path):
    """A matrix of 30,000 x 25,000 numbers: 3 GB of weights in a file that is not there. Sizes in one are asked for."""
    made = model("(float[1, 30000] x) => (y) { y = MatMul (x, w) }", w=external(TensorProto.FLOAT, 30_000, 25_000))
    path = tmp_path / "large.onnx"
    path.write_bytes(made.SerializeToString())
    graph = read_onnx(path)
    assert (graph.name, graph["y"].weight_nbytes, graph["y"].flops) == ("large", 3e9, 1.5e9)
    text = "(float[2, 6] x) => (y) { flat = Reshape (x, sizes)  y = Relu (flat) }"
    made = model(text, sizes=external(TensorProto.INT64, 2))
    with pytest.raises(FormatError, match=r"shape of 'flat' cannot be inferred; give it too: shapes=\{\"flat\": "):
        from_onnx(made)
    assert from_onnx(made, shapes={"flat": (3, 4)})["y"].output_shape == (3, 4)


def test_a_number_format_in_place_of_the_models():
    """As fp16 every tensor and weight has half the bytes; whole numbers keep theirs."""
    made = model("(int64[1, 7] ids) => (rows) { rows = Gather (table, ids) }", table=(100, 16))
    half = from_onnx(made, dtype="fp16")["rows"]
    assert (half.weight_nbytes, half.nbytes, half.dtype) == (3200.0, 448 + 56.0, "fp16")
    net = Network("net")
    net.embedding("rows", net.input(1, 7), 100, 16)
    assert from_onnx(made)["rows"] == net.graph()["rows"]


INT8 = {"s": np.float32(0.5), "z": np.int8(0)}


@pytest.mark.parametrize(
    ("text", "weights", "facts"),
    [
        # 10 numbers of 2 bytes read and of 4 written; 10 of 4 read and an index written; 3 x 8 of 2 bytes
        ("(float16[10] x) => (y) { y = Cast <to = 1> (x) }", {}, "y:cast:fp32:0:60:0"),
        ("(float[10] x) => (y) { y = ArgMax <axis = 0> (x) }", {}, "y:arg_max:fp64:10:48:0"),
        ("(bfloat16[8] a, bfloat16[8] b) => (y) { y = Add (a, b) }", {}, "y:add:bf16:8:48:0"),
        # a gather reads the 4 x 5 numbers that it finds, and their 4 indices
        ("(float[9, 5] x, int64[4] i) => (y) { y = Gather (x, i) }", {}, "y:gather:fp32:0:192:0"),
        # 3 x 16 pixels, 5 x 3 weights and 5 x 16 pixels of one byte, 2 * 5 * 16 * 3 FLOP; pixels have 4 bytes outside
        (
            """(float[1, 3, 4, 4] x) => (y) {
        q = QuantizeLinear (x, s, z)  conv = QLinearConv (q, s, z, w, s, z, s, z)  y = DequantizeLinear (conv, s, z)
     }""",
            INT8 | {"w": np.zeros((5, 3, 1, 1), np.int8)},
            "q:quantize:int8:96:240:0 conv:conv:int8:480:143:15 y:dequantize:fp32:160:400:0",
        ),
        # 12 x 8 weights of one byte, dequantised and turned before they are used: 96 bytes and not 384
        (
            "(float[2, 8] x) => (y) { wide = DequantizeLinear (w, s, z)  t = Transpose (wide)  y = MatMul (x, t) }",
            INT8 | {"w": np.zeros((12, 8), np.int8)},
            "y:linear:fp32:384:256:96",
        ),
        # nodes without a name have that of their output; the second of a name gets a number
        (
            '(float[4] x) => (d) { a = Exp (x)  [act] b = Exp (a)  [act] c = Exp (b)  ["act#2"] d = Exp (c) }',
            {},
            "a:exp:fp32:16:32:0 act:exp:fp32:16:32:0 act#3:exp:fp32:16:32:0 act#2:exp:fp32:16:32:0",
        ),
        # an initialiser may stand among the inputs, as in models of IR version 3
        (
            "(float[1, 3, 8, 8] x, float[4, 3, 1, 1] w) => (y) { y = Conv (x, w) }",
            {"w": (4, 3, 1, 1)},
            "y:conv:fp32:1536:1840:48",
        ),
        # what has no elements is not read: a cache of length 0, as a slice that takes nothing, joined to 3 numbers
        (
            """(float[1, 3] x) => (y) {
        full = Exp (x)  nothing = Slice (full, zero, zero, zero)  y = Concat <axis = 0> (nothing, full)
     }""",
            {"zero": [0]},
            "full:exp:fp32:12:24:0 y:concat:fp32:0:24:0",
        ),
        # a constant that is huge is not worked out
        (
            "(float[2] x) => (y) { filled = ConstantOfShape (many)  z = Relu (filled)  y = Relu (x) }",
            {"many": [10**12]},
            "y:relu:fp32:2:16:0",
        ),
    ],
)
def test_small_models(text, weights, facts):
    """Of each operator: name, kind, format, FLOP, bytes that it moves, bytes of weights."""
    assert facts == " ".join(
        f"{op.name}:{op.kind}:{op.dtype}:{op.flops:g}:{op.nbytes:g}:{op.weight_nbytes:g}"
        for op in from_onnx(model(text, **weights)).operators
    )


def test_the_other_name_of_the_own_operator_set():
    other = made("attention")
    for node in other.graph.node:
        node.domain = "ai.onnx"
    assert from_onnx(other, shapes=SEQUENCES) == from_onnx(made("attention"), shapes=SEQUENCES)


def test_an_initialiser_may_stand_among_the_inputs():
    """As in models of IR version 3."""
    made = model("(float[1, 3, 8, 8] x, float[4, 3, 1, 1] w) => (y) { y = Conv (x, w) }", w=(4, 3, 1, 1))
    assert from_onnx(made)["y"].weight_nbytes == 48.0
