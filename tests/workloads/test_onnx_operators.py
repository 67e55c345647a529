"""What single ONNX operators cost: windows, products, normalisations, copies, recurrent layers."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto
from onnx_makers import Maker

from simsched.base.errors import FormatError
from workloads.formats.fusion import ACTIVATION_FLOPS
from workloads.formats.onnx_models import from_onnx
from workloads.models.network import Network

INT64 = TensorProto.INT64


def only(made, *outputs, **options):
    """The one operator of a model."""
    (op,) = from_onnx(made.model(*outputs), granularity="operator", **options).operators
    return op


def one(op_type, *shapes, weights=(), opset=17, n_outputs=1, **attributes):
    """The operator that an ONNX operator of inputs and then weights of such shapes becomes."""
    made = Maker(opset)
    reads = [made.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    reads += [made.weight(f"w{i}", *shape) for i, shape in enumerate(weights)]
    return only(made, made.op(op_type, reads, [f"y{i}" for i in range(n_outputs)], **attributes))


# (image, weights, attributes) -> output, multiply-adds, recorded attributes
CONVOLUTIONS = {
    "of a line": ([1, 4, 10], (6, 4, 3), {}, (1, 6, 8), 6 * 8 * 12, {"kernel": [3], "padding": [0]}),
    "of a volume": ([2, 1, 4, 4, 4], (5, 1, 2, 2, 2), {}, (2, 5, 3, 3, 3), 2 * 5 * 27 * 8, {"kernel": [2, 2, 2]}),
    "in groups": ([1, 8, 5, 5], (12, 2, 3, 3), {"group": 4, "pads": [1] * 4}, (1, 12, 5, 5), 12 * 25 * 18,
                  {"groups": 4, "out_channels": 12, "padding": [1, 1]}),
    "that is dilated": ([1, 1, 9, 9], (1, 1, 3, 3), {"dilations": [2, 4]}, (1, 1, 5, 1), 5 * 9, {"dilation": [2, 4]}),
    "that is padded at the end": ([1, 1, 4, 4], (1, 1, 2, 2), {"pads": [0, 0, 1, 1]}, (1, 1, 4, 4), 16 * 4,
                                  {"padding": [0, 0, 1, 1]}),
    # 7 pixels in steps of 2 make 4; these need 3 * 2 + 3 = 9, one more on either side
    "that pads as it needs": ([1, 1, 7, 7], (1, 1, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (1, 1, 4, 4),
                              16 * 9, {"padding": [1, 1], "stride": [2, 2]}),
    # 8 pixels in steps of 2 make 4; these need 9, the odd one at the beginning
    "that pads below": ([1, 1, 8, 8], (1, 1, 3, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (1, 1, 4, 4),
                        16 * 9, {"padding": [1, 1, 0, 0]}),
    "without padding": ([1, 1, 8, 8], (1, 1, 3, 3), {"auto_pad": "VALID"}, (1, 1, 6, 6), 36 * 9, {"padding": [0, 0]}),
}  # fmt: skip


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case):
    image, weights, attributes, shape, products, recorded = CONVOLUTIONS[case]
    op = one("Conv", image, weights=[weights], **attributes)
    assert (op.kind, op.output_shape, op.flops) == ("conv", shape, 2.0 * products)
    assert op.weight_nbytes == 4.0 * np.prod(weights)
    assert recorded.items() <= op.attributes.items()


def test_transposed_convolution():
    """Each of 2 * 3 * 5 * 5 inputs is multiplied with 4 * 2 * 2 weights; the output has 10 x 10 pixels."""
    op = one("ConvTranspose", [2, 3, 5, 5], weights=[(3, 4, 2, 2)], strides=[2, 2])
    assert (op.kind, op.output_shape, op.flops) == ("conv_transpose", (2, 4, 10, 10), 2.0 * 150 * 16)
    assert op.intensity == "compute"


def test_convolution_whose_weights_are_computed():
    """Weights that come from outside are read, and kept by nobody."""
    op = one("Conv", [1, 2, 4, 4], [3, 2, 1, 1])
    assert (op.weight_nbytes, op.nbytes, len(op.input_shapes)) == (0.0, 4.0 * (32 + 6 + 48), 2)


@pytest.mark.parametrize(
    ("op_type", "pool"),
    [("MaxPool", "max"), ("AveragePool", "avg"), ("GlobalAveragePool", "global_avg"), ("GlobalMaxPool", "global_max")],
)
def test_pool(op_type, pool):
    """Windows of 3 x 3 in steps of 2 on 8 x 8 pixels, rounded up: 4 x 4; or one of 8 x 8."""
    if pool.startswith("global"):
        op = one(op_type, [2, 3, 8, 8])
        assert (op.output_shape, op.flops, op.attributes["kernel"]) == ((2, 3, 1, 1), 6.0 * 64, [8, 8])
    else:
        op = one(op_type, [2, 3, 8, 8], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        assert (op.output_shape, op.flops) == ((2, 3, 4, 4), 96.0 * 9)
        net = Network("net")
        net.pool("y0", net.input(2, 3, 8, 8), pool, 3, stride=2, ceil_mode=True)
        assert op == net.graph()["y0"]
    assert (op.kind, op.attributes["pool"]) == ("pool", pool)


# shapes, shape of weights -> kind, FLOP
PRODUCTS = {
    "rows with weights": ([[2, 5, 8]], (8, 3), "linear", 2 * 10 * 8 * 3),
    "stacks": ([[2, 4, 5, 8], [2, 4, 8, 3]], None, "matmul", 2 * 8 * 5 * 8 * 3),
    "a stack with one matrix": ([[2, 4, 5, 8], [8, 3]], None, "matmul", 2 * 40 * 8 * 3),
    "a stack with weights for each": ([[4, 5, 8]], (4, 8, 3), "matmul", 2 * 4 * 5 * 8 * 3),
    "a row with a column": ([[8], [8]], None, "matmul", 2 * 8),
    "a matrix with a column": ([[5, 8], [8]], None, "matmul", 2 * 5 * 8),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_product(case):
    shapes, weights, kind, flops = PRODUCTS[case]
    op = one("MatMul", *shapes, weights=[] if weights is None else [weights])
    assert (op.kind, op.flops, op.intensity) == (kind, float(flops), "compute")


def test_products_of_stacks_launch_a_grid_for_each():
    """8 products of 70 x 8 by 8 x 70: 2 x 2 tiles of 64 x 64 each. One matrix for all: 9 x 2 tiles of 560 rows."""
    assert one("MatMul", [8, 70, 8], [8, 8, 70]).kernels[0].blocks == 32
    assert one("MatMul", [8, 70, 8], [8, 70]).kernels[0].blocks == 18


@pytest.mark.parametrize(("transposed", "weights"), [(0, (8, 3)), (1, (3, 8))])
def test_gemm_either_way_round(transposed, weights):
    op = one("Gemm", [5, 8], weights=[weights], transB=transposed)
    assert op.attributes == {"in_features": 8, "out_features": 3, "bias": False}
    assert op.flops == 240.0


@pytest.mark.parametrize(
    ("equation", "shapes", "flops"),
    [
        ("bij,bjk->bik", ([2, 3, 4], [2, 4, 5]), 2 * 2 * 3 * 4 * 5),
        ("...ij,...jk->...ik", ([2, 2, 3, 4], [2, 2, 4, 5]), 2 * 4 * 3 * 4 * 5),
        ("bhqd,bkhd->bhqk", ([2, 4, 6, 8], [2, 7, 4, 8]), 2 * 8 * 6 * 8 * 7),
        ("ij,jk", ([3, 4], [4, 5]), 2 * 3 * 4 * 5),
        ("ij->ji", ([3, 4],), 0),
    ],
)
def test_einsum(equation, shapes, flops):
    assert one("Einsum", *shapes, equation=equation).flops == flops


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers(op_type, gates):
    """7 steps of 2 rows: each row times gates * 5 columns of 3 inputs and of 5 states."""
    op = one(op_type, [7, 2, 3], weights=[(1, gates * 5, 3), (1, gates * 5, 5)], n_outputs=2, hidden_size=5)
    assert op.flops == 2.0 * 7 * 2 * gates * 5 * (3 + 5)
    assert (op.kind, op.output_shape, op.weight_nbytes) == (op_type.lower(), (7, 1, 2, 5), 4.0 * gates * 40)
    assert [kernel.share for kernel in op.kernels] == pytest.approx([3 / 8, 5 / 8])


def test_attention_in_one_operator():
    """3 heads of 4 on 6 by 7 tokens: two products of 2 * 3 * 6 * 7 * 4 FLOP, and 5 for each of 3 * 42 scores."""
    op = one("Attention", [1, 3, 6, 4], [1, 3, 7, 4], [1, 3, 7, 4], opset=23)
    assert (op.kind, op.flops, op.attributes) == ("attention", 2.0 * 2 * 126 * 4 + 5 * 126, {"heads": 3})
    flat = one("Attention", [1, 6, 12], [1, 7, 12], [1, 7, 12], opset=23, q_num_heads=3, kv_num_heads=3)
    assert flat.flops == op.flops


def test_activations_cost_what_our_networks_say():
    for op_type, kind in (("Relu", "relu"), ("Sigmoid", "sigmoid"), ("Tanh", "tanh"), ("HardSwish", "hard_swish")):
        op = one(op_type, [3, 5], opset=20)
        assert (op.kind, op.flops) == (kind, 15.0 * ACTIVATION_FLOPS[kind])
    net = Network("net")
    net.activation("y0", net.input(3, 5), "gelu")
    assert one("Gelu", [3, 5], opset=20) == net.graph()["y0"]


def test_a_clip_from_0_to_6_is_an_activation():
    made = Maker()
    made.numbers("low", 0.0, np.float32), made.numbers("high", 6.0, np.float32)
    x = made.conv("conv", made.input("x", [1, 1, 2, 2]), 1, 1)
    graph = from_onnx(made.model(made.op("Clip", [x, "low", "high"], "y")))
    assert (graph.names, graph["conv"].attributes["activation"]) == (("conv",), "relu6")
    assert one("Clip", [4], opset=10, min=0.0, max=6.0).kind == "relu6"
    assert one("Clip", [4], opset=10, min=-1.0, max=6.0).kind == "clip"


def test_normalisations():
    """A block of threads for each row: 2 * 5 rows of 8, in 2 * 6 channels, in 2 * 3 groups of channels."""
    layer = one("LayerNormalization", [2, 5, 8], weights=[(8,), (8,)])
    net = Network("net")
    net.layer_norm("y0", net.input(2, 5, 8))
    assert layer == net.graph()["y0"]
    rms = one("RMSNormalization", [2, 5, 8], weights=[(8,)], opset=23)
    net = Network("net")
    net.layer_norm("y0", net.input(2, 5, 8), kind="rms_norm")
    assert rms == net.graph()["y0"]
    instance = one("InstanceNormalization", [2, 6, 4, 4], weights=[(6,), (6,)])
    group = one("GroupNormalization", [2, 6, 4, 4], weights=[(6,), (6,)], num_groups=3, opset=21)
    assert [op.kernels[0].blocks for op in (layer, instance, group)] == [10, 12, 6]
    assert [op.flops for op in (instance, group)] == [192.0 * 8] * 2
    assert one("LayerNormalization", [2, 5, 8], weights=[(5, 8)], axis=1).kernels[0].blocks == 2


@pytest.mark.parametrize(("opset", "axis", "rows"), [(17, -1, 15), (17, 1, 12), (12, 1, 3), (12, 2, 15)])
def test_rows_of_a_softmax(opset, axis, rows):
    """3 x 5 x 4: 15 rows along the last axis, 12 along the middle one; until opset 12 all from the axis on."""
    op = one("Softmax", [3, 5, 4], opset=opset, axis=axis)
    assert (op.kernels[0].blocks, op.flops) == (rows, 300.0)


def test_reductions_count_what_they_read():
    made = Maker()
    op = only(made, made.op("ReduceMean", [made.input("x", [2, 3, 4, 5])], "y", axes=[2, 3], keepdims=0))
    assert (op.kind, op.flops, op.output_shape, op.nbytes) == ("reduce_mean", 120.0, (2, 3), 4.0 * 126)


def test_copies_read_what_they_write():
    """A slice of 2 of 9 rows moves 2 rows each way; a gather the rows it finds and their numbers."""
    made = Maker()
    x = made.input("x", [9, 5])
    made.numbers("from", [3]), made.numbers("to", [5]), made.numbers("axes", [0])
    assert only(made, made.op("Slice", [x, "from", "to", "axes"], "part")).nbytes == 4.0 * 2 * 10
    made = Maker()
    made.op("Gather", [made.input("x", [9, 5]), made.input("i", [4], INT64)], "y")
    assert (only(made, "y").kind, only(made, "y").nbytes) == ("gather", 4.0 * 2 * 20 + 32)
    made = Maker()
    made.numbers("pads", [0, 1, 0, 1])
    op = only(made, made.op("Pad", [made.input("x", [2, 3]), "pads"], "y"))
    assert (op.output_shape, op.nbytes, op.flops) == ((2, 5), 4.0 * (6 + 10), 0.0)


def test_copies_that_change_nothing_are_views():
    made = Maker()
    made.numbers("pads", [0] * 4), made.numbers("shape", [2, 3])
    x = made.op("Pad", [made.input("x", [2, 3]), "pads"], "padded")
    x = made.op("Cast", [made.op("Expand", [x, "shape"], "expanded")], "same", to=1)
    made.op("Relu", [x], "y")
    assert from_onnx(made.model("y")).names == ("y",)
    views = from_onnx(made.model("y"), granularity="operator").operators
    assert [(op.kind, op.time) for op in views] == [("view", 0.0)] * 3 + [("relu", None)]


def test_resizing():
    """Twice the height and width: of 4 pixels 16, 8 FLOP each if between pixels."""
    made = Maker()
    made.numbers("scales", [1, 1, 2, 2], np.float32)
    made.op("Resize", [made.input("x", [1, 1, 2, 2]), "", "scales"], "y", mode="linear")
    op = only(made, "y")
    assert (op.output_shape, op.flops, op.nbytes) == ((1, 1, 4, 4), 128.0, 80.0)


def test_arithmetic_on_shapes_is_worked_out():
    """x of 2 x 12 becomes (2, 12 // 4, 4), after a division and a choice between equal numbers."""
    made = Maker()
    x = made.input("x", ["n", 12])
    made.op("Shape", [x], "s")
    made.numbers("four", [4])
    made.numbers("first", [0]), made.numbers("end", [2]), made.numbers("second", [1])
    made.op("Slice", ["s", "second", "end", "first"], "width")
    made.op("Div", ["width", "four"], "quarter")
    made.op("Gather", ["s", "first"], "n")
    made.op("Concat", ["n", "quarter", "four"], "sizes", axis=0)
    made.op("Equal", ["sizes", "four"], "same")
    made.op("Where", ["same", "four", "sizes"], "chosen")
    made.op("Cast", ["chosen"], "wide", to=INT64)
    made.op("Reshape", [x, "wide"], "view")
    graph = from_onnx(made.model(made.op("Relu", ["view"], "y")), shapes={"x": (2, 12)})
    assert graph.names == ("y",)
    assert graph["y"].output_shape == (2, 3, 4)


def test_what_has_no_elements_is_not_read():
    """A cache of length 0, as a slice that takes nothing, joined to 3 rows: a copy of 3 rows."""
    made = Maker()
    made.numbers("zero", [0])
    made.conv("conv", made.input("x", [1, 3, 1, 1]), 3, 3)
    made.op("Slice", ["conv", "zero", "zero", "zero"], "nothing")
    made.op("Concat", ["nothing", "conv"], "y", axis=0)
    graph = from_onnx(made.model("y"))
    assert (graph.names, graph["y"].nbytes, graph["y"].input_shapes) == (("conv", "y"), 24.0, ((1, 3, 1, 1),))


@pytest.mark.parametrize(
    ("op_type", "shapes", "weights", "attributes", "match"),
    [
        ("Conv", [[1, 4, 8, 8]], [(6, 3, 1, 1)], {}, "do not fit 4 channels"),
        ("Conv", [[1, 4, 8, 8]], [(6, 2, 1, 1)], {"group": 3}, "in 3 groups"),
        ("Conv", [[1, 4, 8, 8]], [(6, 4, 1, 1)], {"strides": [0, 1]}, "strides|stride"),
        ("MaxPool", [[1, 4, 8, 8]], [], {"kernel_shape": [2**40, 1]}, "size|shape"),
        ("MatMul", [[3, 4], [5, 6]], [], {}, "Incompatible dimensions"),
        ("Softmax", [[3, 4]], [], {"axis": 7}, "axis"),
        ("Einsum", [[3, 4], [4, 5]], [], {"equation": "ijk,kl->il"}, "inferred|does not fit"),
    ],
)
def test_operators_that_cannot_be(op_type, shapes, weights, attributes, match):
    with pytest.raises(FormatError, match=rf"^model: operator 'y0' \({op_type}\): .*({match})"):
        one(op_type, *shapes, weights=weights, **attributes)
