"""What single ONNX operators cost: windows, products, normalisations, copies, recurrent layers."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx_makers import model, operator
from small import works

from simsched.base.errors import FormatError, GraphError
from simsched.model.graph import Work
from workloads.formats.onnx.models import from_onnx
from workloads.models.network import Network


def one(*described, **options):
    """What a model of one operator becomes."""
    (op,) = from_onnx(operator(*described, **options), granularity="operator").operators
    return op


WINDOW = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}


@pytest.mark.parametrize(
    ("op_type", "attributes", "shape", "weights", "ours"),
    [
        ("MaxPool", WINDOW, (2, 3, 9, 8), [], lambda net, x: net.pool("y0", x, "max", 3, stride=2, ceil_mode=True)),
        ("GlobalAveragePool", {}, (2, 3, 9, 8), [], lambda net, x: net.global_pool("y0", x)),
        ("Softmax", {}, (2, 5, 8), [], lambda net, x: net.softmax("y0", x)),
        ("LayerNormalization", {}, (2, 5, 8), [(8,), (8,)], lambda net, x: net.layer_norm("y0", x)),
        ("RMSNormalization", {}, (2, 5, 8), [(8,)], lambda net, x: net.layer_norm("y0", x, kind="rms_norm")),
        ("Relu", {}, (3, 5), [], lambda net, x: net.activation("y0", x)),
        ("Gelu", {}, (3, 5), [], lambda net, x: net.activation("y0", x, "gelu")),
    ],
)
def test_as_our_networks_have_it(op_type, attributes, shape, weights, ours):
    net = Network("net")
    ours(net, net.input(*shape))
    assert one(op_type, shape, weights=weights, opset=23, **attributes) == net.graph()["y0"]


@pytest.mark.parametrize(
    ("image", "weights", "attributes", "shape", "products", "recorded"),
    [
        ([1, 4, 10], (6, 4, 3), {}, (1, 6, 8), 6 * 8 * 12, {"kernel": [3], "padding": [0]}),
        ([2, 1, 4, 4, 4], (5, 1, 2, 2, 2), {}, (2, 5, 3, 3, 3), 2 * 5 * 27 * 8, {"kernel": [2, 2, 2]}),
        (
            [1, 8, 5, 5],
            (12, 2, 3, 3),
            {"group": 4, "pads": [1] * 4},
            (1, 12, 5, 5),
            12 * 25 * 18,
            {"groups": 4, "out_channels": 12, "padding": [1, 1]},
        ),
        ([1, 1, 9, 9], (1, 1, 3, 3), {"dilations": [2, 4]}, (1, 1, 5, 1), 5 * 9, {"dilation": [2, 4]}),
        ([1, 1, 4, 4], (1, 1, 2, 2), {"pads": [0, 0, 1, 1]}, (1, 1, 4, 4), 16 * 4, {"padding": [0, 0, 1, 1]}),
        # 7 pixels in steps of 2 make 4; these need 3 * 2 + 3 = 9, one more on either side
        (
            [1, 1, 7, 7],
            (1, 1, 3, 3),
            {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
            (1, 1, 4, 4),
            16 * 9,
            {"padding": [1, 1], "stride": [2, 2]},
        ),
        # 8 pixels in steps of 2 make 4; these need 9, the odd one at the beginning
        (
            [1, 1, 8, 8],
            (1, 1, 3, 3),
            {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
            (1, 1, 4, 4),
            16 * 9,
            {"padding": [1, 1, 0, 0]},
        ),
        ([1, 1, 8, 8], (1, 1, 3, 3), {"auto_pad": "VALID"}, (1, 1, 6, 6), 36 * 9, {"padding": [0, 0]}),
    ],
)
def test_convolution(image, weights, attributes, shape, products, recorded):
    op = one("Conv", image, weights=[weights], **attributes)
    assert (op.kind, op.output_shape, op.flops) == ("conv", shape, 2.0 * products)
    assert op.weight_nbytes == 4.0 * np.prod(weights)
    assert recorded.items() <= op.attributes.items()


def test_transposed_convolution():
    """Each of 2 * 3 * 5 * 5 inputs is multiplied with 4 * 2 * 2 weights; the output has 10 x 10 pixels."""
    op = one("ConvTranspose", [2, 3, 5, 5], weights=[(3, 4, 2, 2)], strides=[2, 2])
    assert (op.kind, op.intensity) == ("conv_transpose", "compute")
    assert (op.output_shape, op.flops) == ((2, 4, 10, 10), 2.0 * 150 * 16)


def test_convolution_whose_weights_are_computed():
    """Weights that come from outside are read, and kept by nobody."""
    op = one("Conv", [1, 2, 4, 4], [3, 2, 1, 1])
    assert (op.weight_nbytes, op.nbytes, len(op.input_shapes)) == (0.0, 4.0 * (32 + 6 + 48), 2)


@pytest.mark.parametrize(
    ("op_type", "attributes", "shapes", "weights", "kind", "flops", "sizes"),
    [
        ("MatMul", {}, [[2, 5, 8]], [(8, 3)], "linear", 2 * 10 * 8 * 3, (1, 10, 8, 3)),
        ("MatMul", {}, [[8, 70, 8], [8, 8, 70]], [], "matmul", 2 * 8 * 70 * 8 * 70, (8, 70, 8, 70)),
        ("MatMul", {}, [[8, 70, 8], [8, 70]], [], "matmul", 2 * 8 * 70 * 8 * 70, (1, 560, 8, 70)),  # with one matrix
        ("MatMul", {}, [[4, 5, 8]], [(4, 8, 3)], "matmul", 2 * 4 * 5 * 8 * 3, (4, 5, 8, 3)),  # with weights for each
        ("MatMul", {}, [[8], [8]], [], "matmul", 2 * 8, (1, 1, 8, 1)),
        ("MatMul", {}, [[5, 8], [8]], [], "matmul", 2 * 5 * 8, (1, 5, 8, 1)),
        ("Gemm", {}, [[5, 8]], [(8, 3)], "linear", 240, (1, 5, 8, 3)),
        ("Gemm", {"transB": 1}, [[5, 8]], [(3, 8)], "linear", 240, (1, 5, 8, 3)),
        ("Einsum", {"equation": "bij,bjk->bik"}, [[2, 3, 4], [2, 4, 5]], [], "matmul", 2 * 2 * 3 * 4 * 5, (2, 3, 4, 5)),
        (
            "Einsum",
            {"equation": "...ij,...jk->...ik"},
            [[2, 2, 3, 4], [2, 2, 4, 5]],
            [],
            "matmul",
            2 * 240,
            (4, 3, 4, 5),
        ),
        (
            "Einsum",
            {"equation": "bhqd,bkhd->bhqk"},
            [[2, 4, 6, 8], [2, 7, 4, 8]],
            [],
            "matmul",
            2 * 8 * 6 * 8 * 7,
            (8, 6, 8, 7),
        ),
        ("Einsum", {"equation": "ij,jk"}, [[3, 4], [4, 5]], [], "matmul", 2 * 3 * 4 * 5, (1, 3, 4, 5)),
        ("Einsum", {"equation": "ij->ji"}, [[3, 4]], [], "einsum", 0, (1, 12, 1, 1)),
    ],
)
def test_product(op_type, attributes, shapes, weights, kind, flops, sizes):
    """Sizes are those of a stack of products: how many, rows, what is summed, columns."""
    op = one(op_type, *shapes, weights=weights, **attributes)
    (work,) = op.works
    assert (work.batch, work.rows, work.inner, work.columns) == sizes
    assert (op.kind, op.flops, op.intensity) == (kind, float(flops), "compute")
    if op_type == "Gemm":
        assert op.attributes == {"in_features": 8, "out_features": 3, "bias": False}


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers(op_type, gates):
    """7 steps of 2 rows: each row times gates * 5 columns of 3 inputs and of 5 states."""
    op = one(op_type, [7, 2, 3], weights=[(1, gates * 5, 3), (1, gates * 5, 5)], n_outputs=2, hidden_size=5)
    found = (op.kind, op.output_shape, op.flops, op.weight_nbytes)
    assert found == (op_type.lower(), (7, 1, 2, 5), 2.0 * 7 * 2 * gates * 5 * (3 + 5), 4.0 * gates * 40)
    (work,) = op.works
    assert (work.family, work.rows, work.batch, work.columns, work.inner, work.window) == (
        "recurrence",
        7,
        2,
        5,
        3,
        gates,
    )


def test_attention_in_one_operator():
    """3 heads of 4 on 6 by 7 tokens: two products of 2 * 3 * 6 * 7 * 4 FLOP, and 5 for each of 3 * 42 scores."""
    op = one("Attention", [1, 3, 6, 4], [1, 3, 7, 4], [1, 3, 7, 4], opset=23)
    assert (op.kind, op.flops, op.attributes) == ("attention", 2.0 * 2 * 126 * 4 + 5 * 126, {"heads": 3})
    flat = one("Attention", [1, 6, 12], [1, 7, 12], [1, 7, 12], opset=23, q_num_heads=3, kv_num_heads=3)
    assert flat.flops == op.flops


def test_a_clip_from_0_to_6_is_an_activation():
    text = "(float[1, 1, 2, 2] x) => (y) { conv = Conv (x, w)  y = Clip (conv, low, high) }"
    clipped = model(text, w=(1, 1, 1, 1), low=np.float32(0), high=np.float32(6))
    (unit,) = from_onnx(clipped, granularity="unit").operators
    assert (unit.kind, unit.attributes["activation"]) == ("conv", "relu6")
    assert one("Clip", [4], opset=10, min=0.0, max=6.0).kind == "relu6"
    assert one("Clip", [4], opset=10, min=-1.0, max=6.0).kind == "clip"


@pytest.mark.parametrize(
    ("op_type", "opset", "attributes", "shape", "weights", "rows"),
    [
        ("Softmax", 17, {"axis": -1}, (3, 5, 4), [], 15),
        ("Softmax", 17, {"axis": 1}, (3, 5, 4), [], 12),
        ("Softmax", 12, {"axis": 1}, (3, 5, 4), [], 3),
        ("Softmax", 12, {"axis": 2}, (3, 5, 4), [], 15),
        ("LayerNormalization", 17, {"axis": 1}, (2, 5, 8), [(5, 8)], 2),
        ("InstanceNormalization", 17, {}, (2, 6, 4, 4), [(6,), (6,)], 12),
        ("GroupNormalization", 21, {"num_groups": 3}, (2, 6, 4, 4), [(6,), (6,)], 6),
    ],
)
def test_rows(op_type, opset, attributes, shape, weights, rows):
    """Of 3 x 5 x 4 15 rows along the last axis, 12 along the middle one; until opset 12 all from the axis on."""
    op = one(op_type, shape, weights=weights, opset=opset, **attributes)
    assert (op.works[0].family, op.works[0].rows, op.works[0].columns) == ("rows", rows, np.prod(shape) // rows)
    assert op.flops == float(np.prod(shape) * (5 if op_type == "Softmax" else 8))


TWICE = np.array([1, 1, 2, 2], np.float32)


@pytest.mark.parametrize(
    ("op_type", "attributes", "shapes", "weights", "shape", "flops", "numbers"),
    [
        ("ReduceMean", {"axes": [2, 3], "keepdims": 0}, [[2, 3, 4, 5]], [], (2, 3), 120, 120 + 6),
        ("Slice", {}, [[9, 5]], [[5], [3], [0], [-1]], (2, 5), 0, 2 * 10),  # two rows, the last first, and no more
        ("Pad", {}, [[2, 3]], [[0, 1, 0, 1]], (2, 5), 0, 6 + 10),
        ("Resize", {"mode": "linear"}, [[1, 1, 2, 2]], [None, TWICE], (1, 1, 4, 4), 128, 4 + 16),
    ],
)
def test_reductions_and_copies(op_type, attributes, shapes, weights, shape, flops, numbers):
    """A reduction counts what it reads; a copy moves what it writes both ways; what is between pixels costs 8 FLOP."""
    op = one(op_type, *shapes, weights=weights, **attributes)
    assert (op.output_shape, op.flops, op.nbytes) == (shape, flops, 4.0 * numbers)


@pytest.mark.parametrize(
    ("op_type", "shapes", "weights", "attributes", "work"),
    [
        ("Gather", [[3, 4, 5]], [[0, 3]], {"axis": 1}, Work("gather", reads=120, writes=120, rows=6, columns=5)),
        (
            "ScatterND",
            [[1000, 64]],
            [[[0], [5]], (2, 64)],
            {},
            Work("gather", reads=512, writes=512, rows=2, columns=64),
        ),
        (
            "ScatterElements",
            [[1000, 4]],
            [[[0, 1, 2, 3]], (1, 4)],
            {},
            Work("elementwise", "permute", reads=16, writes=16, rows=4),
        ),
        (
            "GatherElements",
            [[1000, 4]],
            [[[0, 1, 2, 3]]],
            {},
            Work("elementwise", "permute", reads=16, writes=16, rows=4),
        ),
        ("GlobalAveragePool", [[2, 3, 4, 5]], [], {}, Work("reduction", "sum", 120, 480, 0, 24, rows=6, columns=20)),
        ("ReduceSum", [[2, 3, 4]], [[2]], {"keepdims": 0}, Work("reduction", "sum", 24, 96, 0, 24, rows=6, columns=4)),
        ("CumSum", [[2, 3, 4]], [1], {}, Work("rows", "layer_norm", 24, 96, 0, 96, rows=8, columns=3)),
        ("DepthToSpace", [[1, 4, 2, 3]], [], {"blocksize": 2}, Work("elementwise", "permute", 0, 96, 0, 96, rows=24)),
        ("Resize", [[1, 1, 2, 2]], [None, TWICE], {}, Work("elementwise", "upsample", 0, 16, 0, 64, rows=16)),
        ("Add", [[2, 3], [2, 3]], [], {}, Work("elementwise", "map", 6, 48, 0, 24, rows=6)),
        ("Mul", [[2, 3], [2, 1]], [], {}, Work("elementwise", "channels", 6, 32, 0, 24, rows=6)),
        ("Exp", [[2, 3]], [], {}, Work("elementwise", "activation", 24, 24, 0, 24, rows=6)),
    ],
)
def test_work(op_type, shapes, weights, attributes, work):
    op = one(op_type, *shapes, weights=weights, **attributes)
    assert works(op) == (work,)
    assert op.nbytes == work.reads + work.weights + work.writes


def test_rows_of_a_table():
    """Of 1000 rows of 8 values six are read, by numbers of 8 bytes; all stay on the device."""
    text = "(int64[2, 3] x) => (y) { y = Gather (table, x) }"
    (op,) = from_onnx(model(text, table=(1000, 8))).operators
    assert works(op) == (Work("gather", reads=6 * 32 + 48, writes=192, rows=6, columns=8),)
    assert (op.kind, op.weight_nbytes) == ("embedding", 32_000)


def test_a_bias_of_a_convolution():
    """A kernel of its own adds it, but not in a unit; 8 x 8 pixels by 6 channels of 3 inputs."""
    text = "(float[1, 3, 8, 8] x) => (y) { y = Conv (x, w, b) }"
    for granularity, bias in (("operator", True), ("unit", False)):
        (op,) = from_onnx(model(text, w=(6, 3, 1, 1), b=(6,)), granularity=granularity).operators
        assert works(op) == (
            Work(
                "convolution",
                "plain",
                2 * 64 * 18,
                768,
                4 * 24,
                1536,
                rows=64,
                columns=6,
                inner=3,
                elements=192,
                bias=bias,
                tf32=True,
            ),
        )


def test_a_normalisation_alone():
    text = "(float[2, 3, 4, 4] x) => (y) { y = BatchNormalization (x, a, b, c, d) }"
    (op,) = from_onnx(model(text, **dict.fromkeys("abcd", (3,)))).operators
    assert works(op) == (Work("batch_norm", "plain", 192, 384, 48, 384, batch=2, rows=16, columns=3),)


def test_the_option_device_is_refused():
    with pytest.raises(GraphError, match=r"^from_onnx: there is no option 'device' any more: launch shapes follow"):
        from_onnx(model("(float[2] x) => (y) { y = Relu (x) }"), device="h100")


def test_copies_that_change_nothing_are_views():
    text = """(float[2, 3] x) => (y) {
        padded = Pad (x, pads)  expanded = Expand (padded, sizes)  same = Cast <to = 1> (expanded)  y = Relu (same)
    }"""
    made = model(text, pads=[0] * 4, sizes=[2, 3])
    assert from_onnx(made, granularity="unit").names == ("y",)
    views = from_onnx(made, granularity="operator").operators
    assert [(op.kind, op.time) for op in views] == [("view", 0.0)] * 3 + [("relu", None)]


@pytest.mark.parametrize(
    ("opset", "last", "first", "flat"),
    [
        (17, "Slice (s, ones, twos, zeros)", "Unsqueeze (n, zeros)", "Squeeze (width, zero)"),
        (9, "Slice <starts = [1], ends = [2]> (s)", "Unsqueeze <axes = [0]> (n)", "Squeeze <axes = [0]> (width)"),
    ],
)
def test_arithmetic_on_shapes_is_worked_out(opset, last, first, flat):
    """x of 2 x 12 becomes (2, 12 // 4, 4), after a division and a choice; older sets have attributes for inputs."""
    text = f"""(float[n, 12] x) => (y) {{
        s = Shape (x)  width = {last}  size = {flat}  quarter = Div (size, four)  n = Gather (s, zero)  row = {first}
        sizes = Concat <axis = 0> (row, quarter, four)  large = Greater (sizes, four)
        chosen = Where (large, four, sizes)  wide = Cast <to = 7> (chosen)  view = Reshape (x, wide)  y = Relu (view)
    }}"""
    made = model(text, opset, zero=0, zeros=[0], ones=[1], twos=[2], four=[4])
    graph = from_onnx(made, shapes={"x": (2, 12)}, granularity="unit")
    assert (graph.names, graph["y"].output_shape) == (("y",), (2, 3, 4))


def test_the_greatest_elements_are_looked_for_among_all():
    """8 x 100 values are read; 5 a row are written, each with an index of 8 bytes."""
    graph = from_onnx(model("(float[8, 100] x) => (y, i) { y, i = TopK (x, k) }", k=[5]))
    (op,) = [op for op in graph.operators if op.works]
    assert "unknown" not in op.attributes
    assert op.nbytes == 4 * 800 + 40 * (4 + 8)


@pytest.mark.parametrize(("parts", "onesided", "n_out", "share"), [(2, 0, 16, 1.0), (1, 0, 16, 0.5), (1, 1, 9, 0.5)])
def test_a_fourier_transform(parts, onesided, n_out, share):
    """3 rows of 16 numbers: 5 * 16 * 4 FLOP a row, half of that if the signal is real."""
    text = f"(float[3, 16, {parts}] x) => (y) {{ y = DFT <axis = 1, onesided = {onesided}> (x) }}"
    (op,) = from_onnx(model(text, 17)).operators
    assert (op.kind, op.flops) == ("fft", share * 3 * 5 * 16 * 4)
    assert op.nbytes == 4 * 3 * (16 * parts + n_out * 2)


@pytest.mark.parametrize(
    ("op_type", "shapes", "weights", "attributes", "match"),
    [
        ("Conv", [[1, 4, 8, 8]], [(6, 3, 1, 1)], {}, "do not fit 4 channels"),
        ("Conv", [[1, 4, 8, 8]], [(6, 4, 1, 1)], {"strides": [0, 1]}, "stride"),
        ("LayerNormalization", [[3, 4]], [(4,)], {"axis": 7}, "axis 7 is not one of 2"),
        ("Einsum", [[3, 4], [4, 5]], [], {"equation": "ijk,kl->il"}, "inferred"),
        ("InstanceNormalization", [[3]], [(3,), (3,)], {}, "its inputs and attributes do not fit"),
        ("Attention", [[1, 6, 12]] * 3, [], {"q_num_heads": 5, "kv_num_heads": 3}, "5 and 3 heads do not divide"),
        ("LSTM", [[7, 2, 3]], [(1, 20, 4), (1, 20, 5)], {"hidden_size": 5}, "do not fit 3 features"),
    ],
)
def test_operators_that_cannot_be(op_type, shapes, weights, attributes, match):
    with pytest.raises(FormatError, match=rf"^model: operator 'y0' \({op_type}\): .*({match})"):
        one(op_type, *shapes, weights=weights, opset=23 if op_type == "Attention" else 17, **attributes)


def test_a_product_that_rounds_its_first_factor_computes_in_whole_numbers():
    """4 x 64 by 64 x 32: 2 FLOP for each of 8,192 pairs, in int8."""
    text = """(float[4, 64] x) => (y) {
        w = Cast <to = 3> (weights)  y = com.microsoft.DynamicQuantizeMatMul (x, w, scale)
    }"""
    graph = from_onnx(model(text, weights=(64, 32), scale=(1,)))
    (op,) = [op for op in graph.operators if op.kind == "linear"]
    assert (op.dtype, op.flops) == ("int8", 2 * 8192)
