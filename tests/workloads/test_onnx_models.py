"""ONNX models made by hand: which operators they become, and what these cost."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper
from onnx_makers import MODELS, Maker, attention, branches, conv_norm_relu, with_if

import simsched as ss
from simsched.base.errors import FormatError
from workloads.formats.onnx_models import from_onnx, read_onnx
from workloads.models.network import Network

SEQUENCES = {"x": (2, 6, 32)}  # what `attention` needs


def edges(graph):
    return [(edge.src, edge.dst, edge.nbytes) for edge in graph.edges]


def test_convolution_normalisation_and_activation_are_one_unit():
    """2 * 16 * 64 pixels * 27 = 55,296 FLOP; weights of 16 * 27 + 16 numbers; 192 numbers read, 1,024 written."""
    (op,) = from_onnx(conv_norm_relu()).operators
    assert (op.name, op.kind, op.flops, op.weight_nbytes) == ("conv", "conv", 55296.0, 448 * 4)
    assert op.nbytes == (192 + 448 + 1024) * 4


def _conv_norm_relu(net):
    net.conv("conv", net.input(1, 3, 8, 8), 16, 3, padding=1, norm=True)


def _mlp(net):
    x = net.input(5, 10)
    for i, (features, activation) in enumerate([(20, "relu"), (30, "relu"), (4, None)]):
        x = net.linear(f"fc{i}", x, features, activation=activation)


def _inception_block(net):
    x = net.input(1, 192, 35, 35)

    def conv(name, x, channels, kernel=1):
        return net.conv(name, x, channels, kernel, padding=kernel // 2, norm=True)

    one = conv("branch1x1", x, 64)
    five = conv("branch5x5_2", conv("branch5x5_1", x, 48), 64, 5)
    double = conv("branch3x3dbl_3", conv("branch3x3dbl_2", conv("branch3x3dbl_1", x, 64), 96, 3), 96, 3)
    pool = conv("branch_pool", net.pool("pool", x, "avg", 3, padding=1), 32)
    net.concat("concat", [one, five, double, pool])


@pytest.mark.parametrize(("granularity", "device"), [("unit", None), ("operator", None), ("unit", "a100")])
@pytest.mark.parametrize("build", [_conv_norm_relu, _mlp, _inception_block])
def test_what_exporters_write_is_what_our_networks_build(build, granularity, device):
    net = Network("by hand", granularity=granularity, device=device)
    build(net)
    graph = from_onnx(MODELS[build.__name__.removeprefix("_")](), granularity=granularity, device=device)
    assert set(graph.operators) == set(net.graph().operators)
    assert sorted(edges(graph)) == sorted(edges(net.graph()))


def test_branches_meet_in_a_concatenation():
    """2 * 2 * 16 * 16 * 8 and 2 * 2 * 24 * 16 * 72 FLOP; edges of 2 * 16 * 16 and 2 * 24 * 16 numbers."""
    graph = from_onnx(branches())
    assert edges(graph) == [("left", "both", 2048.0), ("right", "both", 3072.0)]
    assert [(op.kind, op.flops) for op in graph.operators] == [("conv", 8192.0), ("conv", 110592.0), ("concat", 0.0)]
    assert (graph["both"].attributes, graph["both"].nbytes) == ({"axis": 1}, 2 * 5120)


def test_attention_with_its_arithmetic_on_shapes():
    """Batch 2: products with weights 2 * 12 * 32 * 32 = 24,576 FLOP, scores 2 * (2 * 4) * 6 * 8 * 6 = 4,608.

    What computes the shapes is no operator, biases are in the products, reshapes are read through.
    """
    graph = from_onnx(attention(), shapes=SEQUENCES)
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
    single = from_onnx(attention(), shapes=SEQUENCES, granularity="operator")
    assert len(single) == 12 + 3 + 4
    assert (single["q.heads"].kind, single["q.heads"].time, single["q.heads"].kernels) == ("view", 0.0, ())


@pytest.mark.parametrize("granularity", ["unit", "operator"])
def test_import_schedule_simulate(granularity, caplog):
    graph, cluster = from_onnx(attention(), shapes=SEQUENCES, granularity=granularity), ss.Cluster.preset("a100")
    assert 0.0 < ss.simulate(ss.schedule(graph, cluster, "lios"), cluster).makespan < 1e5
    assert not caplog.records


def test_split_has_the_shape_of_the_whole():
    """A split copies 2 * 6 * 10 numbers; its parts of 2 * 2 * 10 and 2 * 4 * 10 numbers are the edges."""
    made = Maker()
    made.conv("conv", made.input("x", [2, 3, 10, 1]), 3, 6)
    made.op("Split", ["conv", made.numbers("sizes", [2, 4])], ["small", "large"], axis=1)
    made.op("Sigmoid", ["large"], "gate")
    graph = from_onnx(made.model("gate", made.op("Tanh", ["small"], "state")))
    split = graph["small"]
    assert (split.kind, split.output_shape, split.nbytes) == ("split", (2, 6, 10, 1), 2 * 480.0)
    assert split.attributes["output_shapes"] == [[2, 2, 10, 1], [2, 4, 10, 1]]
    assert edges(graph) == [("conv", "small", 480.0), ("small", "gate", 320.0), ("small", "state", 160.0)]


def test_an_intermediate_that_is_returned_or_read_twice_is_not_fused():
    """The convolution's output is a result here, and read twice there: two edges of 3 * 16 numbers."""
    made = Maker()
    made.conv("conv", made.input("x", [1, 3, 4, 4]), 3, 3, relu=True)
    assert from_onnx(made.model("conv.relu")).names == ("conv",)
    assert from_onnx(made.model("conv", "conv.relu")).names == ("conv", "conv.relu")
    graph = from_onnx(made.model(made.op("Mul", ["conv", "conv"], "square")))
    assert edges(graph) == [("conv", "conv.relu", 192.0), *[("conv", "square", 192.0)] * 2]
    assert graph["square"].nbytes == 3 * 192.0


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
    assert edges(graph) == [("conv", "chosen", 1024.0), ("chosen", "after", 1024.0)]
    assert (graph["chosen"].kind, graph["chosen"].nbytes) == ("if", 2049.0)
    assert "If (1)" in caplog.text


def test_functions_of_the_model_are_not_looked_into(caplog):
    model = conv_norm_relu()
    model.opset_import.append(helper.make_opsetid("mine", 1))
    body = [helper.make_node("Relu", ["a"], ["b"])]
    model.functions.append(helper.make_function("mine", "Act", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    model.graph.node[-1].CopyFrom(helper.make_node("Act", ["conv.norm"], ["conv.relu"], domain="mine"))
    assert [op.kind for op in from_onnx(model).operators] == ["conv", "mine.Act"]
    assert "mine.Act (1)" in caplog.text


def test_weights_in_other_files_are_counted_and_not_read(tmp_path):
    """A matrix of 30,000 x 25,000 numbers: 3 GB of weights in a file that is not there. Sizes in one are asked for."""
    made = Maker()
    made.op("MatMul", [made.input("x", [1, 30_000]), made.external("w", 30_000, 25_000)], "y")
    path = tmp_path / "large.onnx"
    path.write_bytes(made.model("y").SerializeToString())
    graph = read_onnx(path)
    assert (graph.name, graph["y"].weight_nbytes, graph["y"].flops) == ("large", 3e9, 1.5e9)
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
    model = made.model(made.op("Gather", [made.weight("table", 100, 16), ids], "rows"))
    half = from_onnx(model, dtype="fp16")["rows"]
    assert (half.weight_nbytes, half.nbytes, half.dtype) == (3200.0, 448 + 56.0, "fp16")
    net = Network("net")
    net.embedding("rows", net.input(1, 7), 100, 16)
    assert from_onnx(model)["rows"] == net.graph()["rows"]


def test_tensors_have_their_own_formats():
    """A half-precision input cast to single: 2 bytes read and 4 written for each of 10 numbers."""
    made = Maker()
    made.op("Cast", [made.input("x", [10], TensorProto.FLOAT16)], "wide", to=1)
    made.op("ArgMax", ["wide"], "place", axis=0)
    graph = from_onnx(made.model("place"))
    assert (graph["wide"].nbytes, graph["wide"].dtype) == (60.0, "fp32")
    assert (graph["place"].nbytes, graph["place"].output_nbytes, graph["place"].flops) == (48.0, 8.0, 10.0)


@pytest.mark.parametrize(
    ("elem", "width"), [(TensorProto.BFLOAT16, 2), (TensorProto.INT32, 4), (TensorProto.DOUBLE, 8)]
)
def test_formats_of_elements(elem, width):
    made = Maker()
    op = from_onnx(made.model(made.op("Add", [made.input("a", [8], elem), made.input("b", [8], elem)], "y")))["y"]
    assert (op.nbytes, op.output_nbytes, op.flops) == (24.0 * width, 8.0 * width, 8.0)


def test_quantised_products():
    """QLinearConv: bytes of 3 * 16 pixels, 5 * 3 weights and 5 * 16 pixels and its scales; 2 * 5 * 16 * 3 FLOP."""
    made = Maker()
    scale = made.numbers("s", 0.5, np.float32), made.numbers("z", 0, np.int8)
    x = made.op("QuantizeLinear", [made.input("x", [1, 3, 4, 4]), *scale], "q")
    made.op("QLinearConv", [x, *scale, made.weight("w", 5, 3, 1, 1, elem=TensorProto.INT8), *scale, *scale], "conv")
    graph = from_onnx(made.model(made.op("DequantizeLinear", ["conv", *scale], "y")))
    assert [op.kind for op in graph.operators] == ["quantize", "conv", "dequantize"]
    conv = graph["conv"]
    assert (conv.flops, conv.weight_nbytes, conv.nbytes, conv.dtype) == (480.0, 15.0, 48 + 15 + 80.0, "int8")


def test_weights_that_are_kept_quantised_count_as_kept():
    """12 x 8 weights of one byte, dequantised and turned before they are used: 96 bytes and not 384."""
    made = Maker()
    scale = made.numbers("s", 0.5, np.float32), made.numbers("z", 0, np.int8)
    made.op("DequantizeLinear", [made.weight("w", 12, 8, elem=TensorProto.INT8), *scale], "wide")
    made.op("Transpose", ["wide"], "turned")
    graph = from_onnx(made.model(made.op("MatMul", [made.input("x", [2, 8]), "turned"], "y")))
    assert (graph["y"].kind, graph["y"].weight_nbytes, graph["y"].flops) == ("linear", 96.0, 384.0)


def test_names_are_unique_and_do_not_depend_on_the_rest():
    """Nodes without a name have that of their output; the second of a name gets a number."""
    made = Maker()
    x = made.input("x", [4])
    for i, name in enumerate(["", "act", "act", "act#2"]):
        x = made.op("Relu", [x], f"t{i}", name=name)
    assert from_onnx(made.model(x), granularity="operator").names == ("t0", "act", "act#3", "act#2")


def test_the_other_name_of_the_own_operator_set():
    model = attention()
    for node in model.graph.node:
        node.domain = "ai.onnx"
    assert from_onnx(model, shapes=SEQUENCES) == from_onnx(attention(), shapes=SEQUENCES)


def test_an_initialiser_may_stand_among_the_inputs():
    """As in models of IR version 3."""
    made = Maker()
    made.conv("conv", made.input("x", [1, 3, 8, 8]), 3, 4)
    made.input("conv.w", [4, 3, 1, 1])
    assert from_onnx(made.model("conv"))["conv"].weight_nbytes == 64.0
