"""ONNX models made by hand: which operators they become, and what these cost."""

import logging
from math import prod

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper
from onnx_makers import MODELS, Maker, attention, branches, conv_norm_relu, inception_block, mlp, with_if

import simsched as ss
from simsched.base.errors import FormatError
from simsched.model.graph import OpGraph
from workloads.formats.onnx_models import from_onnx, read_onnx
from workloads.models.network import Network


def edges(graph):
    return [(edge.src, edge.dst, edge.nbytes) for edge in graph.edges]


def test_convolution_normalisation_and_activation_are_one_unit():
    """2 * 16 * 64 pixels * 27 = 55,296 FLOP; weights of 16 * 27 + 16 numbers; 192 numbers read, 1,024 written."""
    graph = from_onnx(conv_norm_relu())
    (op,) = graph.operators
    assert (op.name, op.kind, op.flops, op.weight_nbytes) == ("conv", "conv", 55296.0, 448 * 4)
    assert op.nbytes == (192 + 448 + 1024) * 4
    net = Network("by hand")
    net.conv("conv", net.input(1, 3, 8, 8), 16, 3, padding=1, norm=True)
    assert graph == net.graph()


def test_single_operators_are_those_of_our_networks():
    graph = from_onnx(conv_norm_relu(), granularity="operator")
    net = Network("by hand", granularity="operator")
    net.conv("conv", net.input(1, 3, 8, 8), 16, 3, padding=1, norm=True)
    expected = net.graph().to_dict()
    assert graph.names == ("conv", "conv.norm", "conv.norm.relu")
    text = {"conv.relu": "conv.norm.relu"}
    for row in expected["operators"]:
        row["name"] = text.get(row["name"], row["name"])
    for row in expected["edges"]:
        row["dst"] = text.get(row["dst"], row["dst"])
    assert graph.to_dict() == expected


def test_branches_meet_in_a_concatenation():
    """2 * 2 * 16 * 16 * 8 and 2 * 2 * 24 * 16 * 72 FLOP; edges of 2 * 16 * 16 and 2 * 24 * 16 numbers."""
    graph = from_onnx(branches())
    assert edges(graph) == [("left", "both", 2048.0), ("right", "both", 3072.0)]
    assert [(op.kind, op.flops) for op in graph.operators] == [("conv", 8192.0), ("conv", 110592.0), ("concat", 0.0)]
    assert graph["both"].attributes == {"axis": 1}
    assert graph["both"].nbytes == 2 * 5120


@pytest.mark.parametrize("device", [None, "a100"])
def test_an_inception_block_is_that_of_our_network(device):
    """The block as an exporter writes it, and as `Network` builds it, are one graph."""
    net = Network("by hand", device=device)
    x = net.input(1, 192, 35, 35)

    def conv(name, x, channels, kernel=1):
        return net.conv(name, x, channels, kernel, padding=kernel // 2, norm=True)

    one = conv("branch1x1", x, 64)
    five = conv("branch5x5_2", conv("branch5x5_1", x, 48), 64, 5)
    double = conv("branch3x3dbl_3", conv("branch3x3dbl_2", conv("branch3x3dbl_1", x, 64), 96, 3), 96, 3)
    pool = conv("branch_pool", net.pool("pool", x, "avg", 3, padding=1), 32)
    net.concat("concat", [one, five, double, pool])
    assert set(from_onnx(inception_block(), device=device).operators) == set(net.graph().operators)
    assert sorted(edges(from_onnx(inception_block(), device=device))) == sorted(edges(net.graph()))


def test_gemm_is_a_linear_layer():
    """5 rows: 2 * 5 * 10 * 20, 2 * 5 * 20 * 30 and 2 * 5 * 30 * 4 FLOP; 220, 630 and 124 weights of 4 bytes."""
    graph = from_onnx(mlp())
    assert [(op.kind, op.flops, op.weight_nbytes) for op in graph.operators] == [
        ("linear", 2000.0, 880.0), ("linear", 6000.0, 2520.0), ("linear", 1200.0, 496.0),
    ]  # fmt: skip
    net = Network("by hand")
    x = net.input(5, 10)
    for i, (features, activation) in enumerate([(20, "relu"), (30, "relu"), (4, None)]):
        x = net.linear(f"fc{i}", x, features, activation=activation)
    assert graph == net.graph()


def test_attention_with_its_arithmetic_on_shapes():
    """Batch 2: products with weights 2 * 12 * 32 * 32 = 24,576 FLOP, scores 2 * (2 * 4) * 6 * 8 * 6 = 4,608.

    What computes the shapes is no operator, biases are in the products, reshapes are read through.
    """
    graph = from_onnx(attention(), shapes={"x": (2, 6, 32)})
    assert [(op.name, op.kind, op.flops) for op in graph.operators] == [
        ("q.product", "linear", 24576.0), ("q.turned", "transpose", 0.0),
        ("k.product", "linear", 24576.0), ("k.turned", "transpose", 0.0),
        ("v.product", "linear", 24576.0), ("v.turned", "transpose", 0.0),
        ("scores", "matmul", 4608.0), ("scaled", "div", 288.0), ("weights", "softmax", 1440.0),
        ("mixed", "matmul", 4608.0), ("mixed.turned", "transpose", 0.0), ("out", "linear", 24576.0),
    ]  # fmt: skip
    assert graph["q.product"].weight_nbytes == 33 * 32 * 4
    assert graph["scaled"].weight_nbytes == 0.0
    assert graph["k.turned"].output_shape == (2, 4, 8, 6)
    assert edges(graph)[:2] == [("q.product", "q.turned", 1536.0), ("k.product", "k.turned", 1536.0)]
    single = from_onnx(attention(), shapes={"x": (2, 6, 32)}, granularity="operator")
    assert len(single) == 12 + 3 + 4
    assert (single["q.heads"].kind, single["q.heads"].time, single["q.heads"].kernels) == ("view", 0.0, ())


@pytest.mark.parametrize("name", [name for name in MODELS if name != "with_if"])
@pytest.mark.parametrize("granularity", ["unit", "operator"])
def test_import_schedule_simulate(name, granularity, caplog):
    graph = from_onnx(
        MODELS[name](), shapes={"x": (2, 6, 32)} if name == "attention" else None, granularity=granularity
    )
    cluster = ss.Cluster.preset("a100")
    trace = ss.simulate(ss.schedule(graph, cluster, "lios"), cluster)
    assert len(trace) >= len(graph)
    assert 0.0 < trace.makespan < 1e5
    assert not caplog.records
    assert OpGraph.from_dict(graph.to_dict()) == graph


def test_split_has_the_shape_of_the_whole():
    """A split copies 2 * 6 * 10 numbers; its parts of 2 * 2 * 10 and 2 * 4 * 10 numbers are the edges."""
    made = Maker()
    made.conv("conv", made.input("x", [2, 3, 10, 1]), 3, 6)
    made.numbers("sizes", [2, 4])
    made.op("Split", ["conv", "sizes"], ["small", "large"], axis=1)
    made.op("Sigmoid", ["large"], "gate")
    graph = from_onnx(made.model("gate", made.op("Tanh", ["small"], "state")))
    split = graph["small"]
    assert (split.kind, split.output_shape, split.nbytes) == ("split", (2, 6, 10, 1), 2 * 480.0)
    assert split.attributes["output_shapes"] == [[2, 2, 10, 1], [2, 4, 10, 1]]
    assert edges(graph) == [("conv", "small", 480.0), ("small", "gate", 320.0), ("small", "state", 160.0)]


def test_an_intermediate_that_is_returned_or_read_twice_is_not_fused():
    """The convolution's output is a result here, and read twice there."""
    made = Maker()
    made.relu(made.conv("conv", made.input("x", [1, 3, 4, 4]), 3, 3))
    assert from_onnx(made.model("conv.relu")).names == ("conv",)
    assert from_onnx(made.model("conv", "conv.relu")).names == ("conv", "conv.relu")
    made.op("Mul", ["conv", "conv.relu"], "both")
    assert from_onnx(made.model("both")).names == ("conv", "conv.relu", "both")


def test_what_is_not_supported_keeps_its_bytes_and_is_counted_in_one_warning(caplog):
    """Two operators of another domain, one without a known output: 48 numbers read, 48 or none known written."""
    made = Maker(domains=["com.acme"])
    x = made.input("x", [1, 3, 4, 4])
    made.info("first", [1, 3, 4, 4])
    made.op("Foo", [x, made.weight("w", 5)], "first", domain="com.acme")
    made.op("Foo", [made.conv("conv", "first", 3, 3)], "second", domain="com.acme")
    made.op("NonZero", ["conv"], "places")
    graph = from_onnx(made.model("second", "places"), source="acme.onnx")
    assert [record.getMessage() for record in caplog.records] == [
        "acme.onnx: operators that are not supported count their bytes and no FLOP: com.acme.Foo (2), NonZero (1); "
        "2 of them write tensors of unknown size, which count nothing"
    ]
    assert caplog.records[0].levelno == logging.WARNING
    first, second = graph["first"], graph["second"]
    assert (first.kind, first.flops, first.nbytes, first.weight_nbytes) == ("com.acme.Foo", 0.0, 4 * 101.0, 20.0)
    assert (second.nbytes, second.output_shape, second.time, second.kernels) == (192.0, None, None, ())
    assert edges(graph) == [("first", "conv", 192.0), ("conv", "second", 192.0), ("conv", "places", 192.0)]


def test_what_an_operator_that_is_not_supported_writes_may_be_given():
    """Without a declaration the next convolution asks; what is declared for a batch of 1 is not used for 2."""
    made = Maker(domains=["com.acme"])
    made.op("Foo", [made.input("x", [1, 3, 4, 4])], "foo", domain="com.acme")
    model = made.model(made.conv("conv", "foo", 3, 5))
    with pytest.raises(FormatError, match="'conv' \\(Conv\\): the shape of 'foo' cannot be inferred; give it too"):
        from_onnx(model)
    assert from_onnx(model, shapes={"foo": (1, 3, 4, 4)})["conv"].output_shape == (1, 5, 4, 4)
    made.info("foo", [1, 3, 4, 4])
    model = made.model("conv")
    assert from_onnx(model)["conv"].output_shape == (1, 5, 4, 4)
    with pytest.raises(FormatError, match="shape of 'foo' cannot be inferred"):
        from_onnx(model, shapes={"x": (2, 3, 4, 4)})
    assert from_onnx(model, shapes={"x": (2, 3, 4, 4), "foo": (2, 3, 4, 4)})["conv"].output_shape == (2, 5, 4, 4)


def test_control_flow_is_one_operator_that_reads_what_its_graphs_read(caplog):
    """The choice reads the convolution's 256 numbers from around it and a byte that chooses, and writes 256."""
    graph = from_onnx(with_if())
    assert graph.names == ("conv", "chosen", "after")
    assert edges(graph) == [("conv", "chosen", 1024.0), ("chosen", "after", 1024.0)]
    assert (graph["chosen"].kind, graph["chosen"].nbytes) == ("if", 2049.0)
    assert "If (1)" in caplog.text


def test_weights_in_other_files_are_counted_and_not_read(tmp_path):
    """A matrix of 30,000 x 25,000 numbers: 3 GB of weights in a file that is not there."""
    made = Maker()
    made.op("MatMul", [made.input("x", [1, 30_000]), made.external("w", 30_000, 25_000)], "y")
    path = tmp_path / "large.onnx"
    path.write_bytes(made.model("y").SerializeToString())
    graph = read_onnx(path)
    assert graph.name == "large"
    assert graph["y"].weight_nbytes == 3e9
    assert graph["y"].flops == 1.5e9


def test_sizes_that_stand_in_other_files_are_asked_for():
    made = Maker()
    made.op("Reshape", [made.input("x", [2, 6]), made.external("sizes", 2, elem=TensorProto.INT64)], "flat")
    model = made.model(made.op("Relu", ["flat"], "y"))
    with pytest.raises(FormatError, match="shape of 'flat' cannot be inferred; give it too: --shape flat="):
        from_onnx(model)
    assert from_onnx(model, shapes={"flat": (3, 4)})["y"].output_shape == (3, 4)


def test_a_number_format_in_place_of_the_models():
    """As fp16 every tensor and weight has half the bytes; whole numbers keep theirs."""
    made = Maker()
    ids = made.input("ids", [1, 7], TensorProto.INT64)
    made.op("Gather", [made.weight("table", 100, 16), ids], "rows")
    own = from_onnx(made.model("rows"))["rows"]
    half = from_onnx(made.model("rows"), dtype="fp16")["rows"]
    assert (own.kind, own.attributes, own.dtype) == ("embedding", {"rows": 100, "features": 16}, "fp32")
    assert (own.weight_nbytes, own.nbytes) == (6400.0, 2 * 448 + 56.0)
    assert (half.weight_nbytes, half.nbytes, half.dtype) == (3200.0, 448 + 56.0, "fp16")
    net = Network("net")
    assert net.embedding("rows", net.input(1, 7), 100, 16) is not None
    assert own == net.graph()["rows"]


def test_tensors_have_their_own_formats():
    """A half-precision input cast to single: 2 bytes read and 4 written for each of 10 numbers."""
    made = Maker()
    made.op("Cast", [made.input("x", [10], TensorProto.FLOAT16)], "wide", to=1)
    made.op("ArgMax", ["wide"], "place", axis=0)
    graph = from_onnx(made.model("place"))
    assert (graph["wide"].nbytes, graph["wide"].dtype) == (60.0, "fp32")
    assert (graph["place"].nbytes, graph["place"].output_nbytes, graph["place"].flops) == (48.0, 8.0, 10.0)


def test_quantised_products():
    """QLinearConv: bytes of 3 * 16 pixels, 5 * 3 weights and 5 * 16 pixels and its scales; 2 * 5 * 16 * 3 FLOP."""
    made = Maker()
    made.numbers("s", 0.5, np.float32), made.numbers("z", 0, np.int8)
    x = made.op("QuantizeLinear", [made.input("x", [1, 3, 4, 4]), "s", "z"], "q")
    w = made.weight("w", 5, 3, 1, 1, elem=TensorProto.INT8)
    made.op("QLinearConv", [x, "s", "z", w, "s", "z", "s", "z"], "conv")
    made.op("DequantizeLinear", ["conv", "s", "z"], "y")
    graph = from_onnx(made.model("y"))
    assert [op.kind for op in graph.operators] == ["quantize", "conv", "dequantize"]
    conv = graph["conv"]
    assert (conv.flops, conv.weight_nbytes, conv.nbytes, conv.dtype) == (480.0, 15.0, 48 + 15 + 80.0, "int8")


def test_weights_that_are_kept_quantised_count_as_kept():
    """12 x 8 weights of one byte, dequantised and turned before they are used: 96 bytes and not 384."""
    made = Maker()
    made.numbers("s", 0.5, np.float32), made.numbers("z", 0, np.int8)
    made.op("DequantizeLinear", [made.weight("w", 12, 8, elem=TensorProto.INT8), "s", "z"], "wide")
    made.op("Transpose", ["wide"], "turned")
    graph = from_onnx(made.model(made.op("MatMul", [made.input("x", [2, 8]), "turned"], "y")))
    assert (graph["y"].kind, graph["y"].weight_nbytes, graph["y"].flops) == ("linear", 96.0, 384.0)


@pytest.mark.parametrize("dtype", [TensorProto.BFLOAT16, TensorProto.INT32, TensorProto.DOUBLE])
def test_formats_of_elements(dtype):
    made = Maker()
    op = from_onnx(made.model(made.op("Add", [made.input("a", [8], dtype), made.input("b", [8], dtype)], "y")))["y"]
    width = {TensorProto.BFLOAT16: 2, TensorProto.INT32: 4, TensorProto.DOUBLE: 8}[dtype]
    assert (op.nbytes, op.output_nbytes, op.flops) == (24.0 * width, 8.0 * width, 8.0)


def test_names_are_unique_and_do_not_depend_on_the_rest():
    """Nodes without a name have that of their output; the second of a name gets a number."""
    made = Maker()
    x = made.input("x", [4])
    for i, name in enumerate(["", "act", "act", "act#2"]):
        x = made.op("Relu", [x], f"t{i}", name=name)
    assert from_onnx(made.model(x), granularity="operator").names == ("t0", "act", "act#3", "act#2")


def test_reading_a_tensor_twice_makes_two_edges():
    made = Maker()
    made.conv("conv", made.input("x", [1, 1, 2, 2]), 1, 1)
    graph = from_onnx(made.model(made.op("Mul", ["conv", "conv"], "square")))
    assert edges(graph) == [("conv", "square", 16.0)] * 2
    assert graph["square"].nbytes == 48.0


def test_choice_of_a_default_operator_set_domain():
    model = conv_norm_relu()
    for node in model.graph.node:
        node.domain = "ai.onnx"
    assert from_onnx(model) == from_onnx(conv_norm_relu())


def test_an_initialiser_may_stand_among_the_inputs():
    """As in models of IR version 3."""
    made = Maker()
    made.conv("conv", made.input("x", [1, 3, 8, 8]), 3, 4)
    made.input("conv.w", [4, 3, 1, 1])
    assert from_onnx(made.model("conv"))["conv"].weight_nbytes == 64.0


def test_functions_of_the_model_are_not_looked_into(caplog):
    model = conv_norm_relu()
    model.opset_import.append(helper.make_opsetid("mine", 1))
    body = [helper.make_node("Relu", ["a"], ["b"])]
    model.functions.append(helper.make_function("mine", "Act", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    model.graph.node[-1].CopyFrom(helper.make_node("Act", ["conv.norm"], ["conv.norm.relu"], domain="mine"))
    graph = from_onnx(model)
    assert [op.kind for op in graph.operators] == ["conv", "mine.Act"]
    assert "mine.Act (1)" in caplog.text


def test_the_makers_weights_are_all_counted():
    """Bytes of weights of the block: all initialisers but the normalisations, of which a bias each is left."""
    graph = from_onnx(inception_block())
    kernels = sum(prod(w.dims) for w in inception_block().graph.initializer if w.name.endswith(".w"))
    assert graph.weight_nbytes.sum() == 4 * (kernels + 64 + 48 + 64 + 64 + 96 + 96 + 32)
