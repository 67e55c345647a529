"""Bodies of ONNX's branches and loops, functions of models, old operator sets, sizes of 0."""

import numpy as np
import pytest
from onnx import helper
from onnx_makers import made, model, operator
from small import edges

from simsched.base.errors import FormatError
from workloads.formats.onnx.models import from_onnx, read_onnx
from workloads.registry import from_spec


def test_the_costlier_branch_counts(caplog):
    """Relu or Sigmoid of 256 numbers: 1 or 4 FLOP each. The branch waits for what it reads and for the choice."""
    graph = from_onnx(made("with_if"))
    assert graph.names == ("conv", "chosen.else.b", "after")
    assert graph["chosen.else.b"].flops == 4 * 256
    assert list(graph.edges) == edges("conv-chosen.else.b chosen.else.b-after", nbytes=1024.0)
    assert "chosen: one of two branches runs; the costlier one counts (else: 1.02e+03 FLOP" in caplog.text


def test_a_branch_waits_for_its_condition():
    """The condition is worked out of `x`, and the branch reads `y` alone."""
    graph = from_onnx(
        model("""(float[1] x, float[4] y) => (out) <float zero = {0.0}> {
        positive = Greater (x, zero)
        out = If (positive) <
            then_branch = one () => (float[4] a) { a = Exp (y) }, else_branch = other () => (float[4] b) { b = Neg (y) }
        >
    }""")
    )
    assert [(e.src, e.dst, e.nbytes) for e in graph.edges] == [("positive", "out.then.a", 1.0)]


def test_a_condition_that_is_constant_decides(caplog):
    text = """(float[4] x) => (out) <bool yes = {1}> {
        out = If (yes) <
            then_branch = one () => (float[4] a) { a = Relu (x) },
            else_branch = other () => (float[4] b) { b = Exp (x) }
        >
    }"""
    assert [op.kind for op in from_onnx(model(text)).operators] == ["relu"]
    assert not caplog.records


LOOP = """(float[4, 4] x{more}) => (last, all) <int64 three = {{3}}, bool yes = {{1}}> {{
    last, all = Loop ({count}, yes, x) <body = rounds (int64 i, bool c, float[4, 4] a) => (c2, b, kept) {{
        c2 = Identity (c)  b = MatMul (a, w)  kept = Relu (b)
    }}>
}}"""


def test_a_loop_is_its_rounds():
    """Three products of 4 x 4 by 4 x 4 in a row, each with an activation that is kept beside the others."""
    graph = from_onnx(model(LOOP.format(more="", count="three"), w=(4, 4)))
    assert graph.flops.sum() == 3 * (2 * 64 + 16)
    assert [op.kind for op in graph.operators] == ["linear", "relu"] * 3 + ["view"]
    products = [op.name for op in graph.operators if op.kind == "linear"]
    assert products == ["last[0].b", "last[1].b", "last[2].b"]
    assert [(e.src, e.dst) for e in graph.edges if e.dst in products] == [
        (products[0], products[1]),
        (products[1], products[2]),
    ]
    assert graph.operators[-1].output_shape == (3, 4, 4)


def test_a_loop_whose_rounds_are_not_known_counts_one(caplog):
    graph = from_onnx(model(LOOP.format(more=", int64 n", count="n"), w=(4, 4)))
    assert graph.flops.sum() == 2 * 64 + 16
    assert "last: how often it runs is not known before; one round counts" in caplog.text


def test_a_scan_is_its_steps():
    """Six steps of a product of 1 x 4 by 4 x 4, each waiting for the one before."""
    graph = from_onnx(
        model(
            """(float[1, 4] h, float[6, 1, 4] xs) => (last, all) {
        last, all = Scan <num_scan_inputs = 1, body = step (float[1, 4] a, float[1, 4] x) => (b, y) {
            c = MatMul (a, w)  b = Add (c, x)  y = Identity (b)
        }> (h, xs)
    }""",
            w=(4, 4),
        )
    )
    assert graph.flops.sum() == 6 * (2 * 16 + 4)
    assert graph.depth >= 12


def test_functions_of_the_model_are_inlined():
    """A dozen calls of a function of a product and an activation, a product after each."""
    chain = model("(float[8, 8] x) => (y0) {}", w=(8, 8))
    last = "x"
    for i in range(12):
        chain.graph.node.append(helper.make_node("Act", [last, "w"], [f"a{i}"], domain="com.acme"))
        chain.graph.node.append(helper.make_node("MatMul", [f"a{i}", "w"], [f"y{i}" if i < 11 else "y0"]))
        last = f"y{i}"
    for i, node in enumerate(chain.graph.node):  # y0 is what it returns
        node.output[0] = "first" if i == 1 else node.output[0]
        node.input[0] = "first" if node.input[0] == "y0" else node.input[0]
    body = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Relu", ["c"], ["d"])]
    sets = [helper.make_opsetid("", 17)]
    chain.functions.append(helper.make_function("com.acme", "Act", ["a", "b"], ["d"], body, sets))
    graph = from_onnx(chain)
    assert [op.kind for op in graph.operators] == ["linear", "relu", "linear"] * 12
    assert graph.flops.sum() == 12 * (2 * 2 * 512 + 64)


def test_an_old_operator_set_is_converted(caplog):
    old = model("(float[2] x, float[2] y) => (z) { s = Add (x, y)  z = Relu (s) }", opset=6)
    assert [op.kind for op in from_onnx(old).operators] == ["add", "relu"]
    assert "model: opset 6 is read as onnx converts it to opset 7" in caplog.text


@pytest.mark.parametrize("given", [None, {"past": (1, 2, 0, 8)}])
def test_a_size_of_0_is_a_size(given, tmp_path):
    """An empty past of keys: what is joined to it is all there is, and nothing of it is read."""
    length = "n" if given else "0"
    text = f"""(float[1, 2, 3, 8] new, float[1, 2, {length}, 8] past) => (z) {{
        y = Concat <axis = 2> (past, new)  z = Exp (y)
    }}"""
    graph = from_onnx(model(text), shapes=given)
    assert graph["z"].output_shape == (1, 2, 3, 8)
    assert graph["y"].nbytes == 2 * 4 * 48
    path = tmp_path / "kv.onnx"
    path.write_bytes(model(text).SerializeToString())
    assert read_onnx(path, shapes=given)["z"] == graph["z"]
    assert from_spec(str(path), shapes=given)["z"] == graph["z"]


def test_einsum_takes_the_best_order():
    """2 * 2 * 64^3 multiply-adds, not 64^4."""
    graph = from_onnx(operator("Einsum", (64, 64), (64, 64), (64, 64), equation="ij,jk,kl->il"))
    assert graph.flops.sum() == 2 * 2 * 64**3


def contributed(op_type, *shapes, weights=(), n_outputs=1, elems=None, **attributes):
    """One operator of ONNX Runtime, with a product behind that needs its shape where it has one of rank 2 or more."""
    made = operator(op_type, *shapes, weights=weights, n_outputs=n_outputs, **attributes)
    made.graph.node[0].domain = "com.microsoft"
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for i, elem in (elems or {}).items():
        made.graph.input[i].type.tensor_type.elem_type = elem
    return from_onnx(made).operators[0]


BITS = np.zeros((64, 4, 16), np.uint8)  # 64 columns, 4 groups of 32 numbers of 4 bits
PAST = (1, 8, 100, 64)


@pytest.mark.parametrize(
    ("op", "kind", "flops", "shape"),
    [
        # 16 x 8 x 8 outputs of 3 channels by 3 x 3 taps
        (
            lambda: contributed(
                "FusedConv",
                (1, 3, 8, 8),
                weights=(np.zeros((16, 3, 3, 3), np.float32),),
                pads=[1, 1, 1, 1],
                activation="Relu",
            ),
            "conv",
            2 * 16 * 64 * 27,
            (1, 16, 8, 8),
        ),
        (
            lambda: contributed("FusedMatMul", (2, 5, 8), (2, 7, 8), transB=1, alpha=0.5),
            "matmul",
            20 * 7 * 8,
            (2, 5, 7),
        ),
        (
            lambda: contributed(
                "MatMulNBits",
                (2, 5, 128),
                weights=(BITS, np.zeros((256,), np.float32)),
                K=128,
                N=64,
                bits=4,
                block_size=32,
            ),
            "linear",
            2 * 10 * 128 * 64,
            (2, 5, 64),
        ),
        # 8 heads of 64: two products of 10 x 10 and 5 FLOP for each score
        (
            lambda: contributed("MultiHeadAttention", (1, 10, 512), (1, 10, 512), (1, 10, 512), num_heads=8),
            "attention",
            8 * 100 * (4 * 64 + 5),
            (1, 10, 512),
        ),
        # one query asks 101 keys of 8 heads, four heads of queries each
        (
            lambda: contributed(
                "GroupQueryAttention",
                (1, 1, 2048),
                (1, 1, 512),
                (1, 1, 512),
                PAST,
                PAST,
                num_heads=32,
                kv_num_heads=8,
                n_outputs=3,
            ),
            "attention",
            32 * 101 * (4 * 64 + 5),
            (1, 1, 2048),
        ),
        (
            lambda: contributed(
                "Attention",
                (1, 10, 512),
                weights=(np.zeros((512, 1536), np.float32), np.zeros((1536,), np.float32)),
                num_heads=8,
            ),
            "attention",
            2 * 10 * 512 * 1536 + 8 * 100 * (4 * 64 + 5),
            (1, 10, 512),
        ),
        (
            lambda: contributed(
                "SkipLayerNormalization", (1, 10, 512), (1, 10, 512), weights=(np.zeros((512,), np.float32),)
            ),
            "layer_norm",
            9 * 5120,
            (1, 10, 512),
        ),
    ],
)
def test_operators_of_onnx_runtime(op, kind, flops, shape):
    found = op()
    assert (found.kind, found.flops, found.output_shape) == (kind, flops, shape)


def test_a_matrix_of_few_bits_is_read_as_it_is_kept():
    """4 KB of 4 bits and 1 KB of scales; 10 rows of 128 numbers read and of 64 written."""
    op = contributed("MatMulNBits", (10, 128), weights=(BITS, np.zeros((256,), np.float32)), K=128, N=64, bits=4)
    assert (op.weight_nbytes, op.nbytes, op.dtype) == (4096 + 1024, 4096 + 1024 + 4 * 10 * (128 + 64), "fp32")


def test_attention_of_one_query_reads_all_keys_and_writes_one():
    """2 x 100 x 8 x 64 numbers of the past and a key and a value of 512, beside a query and an output of 2048."""
    op = contributed(
        "GroupQueryAttention",
        (1, 1, 2048),
        (1, 1, 512),
        (1, 1, 512),
        PAST,
        PAST,
        num_heads=32,
        kv_num_heads=8,
        n_outputs=3,
    )
    read = 4 * (2048 + 2 * 512 + 2 * 100 * 512)
    assert op.nbytes == read + 4 * (2048 + 2 * 512)


def test_integer_products_compute_in_int8():
    quantized = model("(int8[4, 8] x) => (y) { y = MatMulInteger (x, w) }", w=np.zeros((8, 16), np.int8))
    assert from_onnx(quantized)["y"].dtype == "int8"


def test_a_loop_without_end_is_refused():
    text = """(float[2] x) => (y) <int64 many = {90000}, bool yes = {1}> {
        y = Loop (many, yes, x) <body = b (int64 i, bool c, float[2] a) => (c2, d) {
            c2 = Identity (c)  e = Exp (a)  d = Neg (e)
        }>
    }"""
    with pytest.raises(FormatError, match="loops make more than 100,000 operators; export the model with fewer rounds"):
        from_onnx(model(text))
