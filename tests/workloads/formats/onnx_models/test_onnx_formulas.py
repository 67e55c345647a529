"""Formulas that exporters write in place of one operator: which are recognised, and which are something else."""

import numpy as np
import pytest
from onnx import numpy_helper
from onnx_makers import model

from workloads.formats.onnx.models import from_onnx

pytest.importorskip("onnx")

ELEMENTS = "float[4, 16]"
GELU = {
    "after": """(X x) => (y) {
        a = Div (x, root)  b = Erf (a)  c = Add (b, one)  d = Mul (x, c)  y = Mul (d, half)
     }""",
    "before": """(X x) => (y) {
        a = Div (x, root)  b = Erf (a)  c = Add (b, one)  d = Mul (x, half)  y = Mul (d, c)
     }""",
    "tangent of a cube": """(X x) => (y) {
        s = Mul (x, x)  a = Mul (s, x)  b = Mul (a, slope)  c = Add (x, b)  d = Mul (c, root)  e = Tanh (d)
        f = Add (e, one)  g = Mul (x, f)  y = Mul (g, half)
     }""",
    "tangent": """(X x) => (y) {
        a = Pow (x, three)  b = Mul (a, slope)  c = Add (x, b)  d = Mul (c, root)  e = Tanh (d)  f = Add (e, one)
        g = Mul (x, f)  y = Mul (g, half)
     }""",
}
NUMBERS = {"root": 1.4142, "one": 1.0, "half": 0.5, "three": 3.0, "slope": 0.044715}
NORM = """(X x) => (y) {
    a = ReduceMean <axes = [-1]> (x)  b = Sub (x, a)  c = Pow (b, two)  d = ReduceMean <axes = [-1]> (c)
    e = Add (d, eps)  f = Sqrt (e)  g = Div (b, f) REST
 }"""
HEADS = "float[2, 4, 6, 8]"
ATTENTION = """(H q, H k, H v, float[2, 1, 6, 6] mask) => (y) {
    turned = Transpose <perm = [0, 1, 3, 2]> (k)  q_scaled = Mul (q, scale)  k_scaled = Mul (turned, scale)
    scores = MatMul (q_scaled, k_scaled)  masked = Add (scores, mask)  weights = Softmax <axis = -1> (masked)
    y = MatMul (weights, v)
 }"""


def kinds(text, **weights):
    """The kinds of the operators of a model, and its graph."""
    typed = text.replace("(X x", f"({ELEMENTS} x").replace("H ", f"{HEADS} ")
    singles = {
        name: numpy_helper.from_array(np.array(value, np.float32)) if isinstance(value, float) else value
        for name, value in weights.items()
    }
    graph = from_onnx(model(typed, **singles))
    return [op.kind for op in graph.operators], graph


def numbers(*names):
    """The constants of a formula."""
    return {name: NUMBERS[name] for name in names}


@pytest.mark.parametrize("way", GELU)
def test_a_gelu_is_one_operator(way):
    constants = {name: number for name, number in NUMBERS.items() if name in GELU[way]}
    found, graph = kinds(GELU[way], **constants)
    assert found == ["gelu"]
    assert (graph["y"].flops, graph["y"].nbytes) == (8 * 64, 2 * 64 * 4)


def test_a_gelu_of_which_a_part_is_read_elsewhere_stays_in_parts():
    text = GELU["after"].replace("=> (y)", "=> (y, c)")
    assert kinds(text, **numbers("root", "one", "half"))[0] == ["div", "erf", "add", "mul", "mul"]


def test_a_silu_is_one_operator_and_a_gate_of_another_tensor_is_not():
    assert kinds("(X x) => (y) { s = Sigmoid (x)  y = Mul (s, x) }")[0] == ["silu"]
    gated = "(float[4, 32] x) => (y) { a, b = Split <axis = 1> (x, parts)  s = Sigmoid (b)  y = Mul (a, s) }"
    assert kinds(gated, parts=[16, 16])[0] == ["split", "sigmoid", "mul"]


def test_a_layer_norm_is_one_operator_with_its_parameters():
    text = NORM.replace("REST", "h = Mul (g, scale)  y = Add (h, shift)")
    found, graph = kinds(text, two=2.0, eps=1e-5, scale=(16,), shift=(16,))
    assert found == ["layer_norm"]
    assert (graph["y"].weight_nbytes, graph["y"].flops) == (2 * 16 * 4, 8 * 64)
    bare = kinds(NORM.replace("g = Div (b, f) REST", "y = Div (b, f)"), two=2.0, eps=1e-5)[1]
    assert [op.kind for op in bare.operators] == ["layer_norm"]


def test_a_residual_is_no_part_of_a_layer_norm():
    found, _ = kinds(NORM.replace("REST", "y = Add (g, x)"), two=2.0, eps=1e-5)
    assert found == ["layer_norm", "add"]


def test_attention_is_one_operator_with_scales_and_mask():
    """Of 8 heads: two products of 2 * 6 * 6 * 8 FLOP and 5 for each of 6 * 6 scores; q, k, v, y of 384 numbers each."""
    found, graph = kinds(ATTENTION, scale=0.35)
    assert found == ["transpose", "attention"]
    work = graph["y"].works[0]
    assert (work.batch, work.rows, work.columns, work.inner) == (8, 6, 6, 8)
    assert graph["y"].flops == 8 * (2 * 2 * 6 * 6 * 8 + 5 * 6 * 6)
    assert graph["y"].nbytes == 4 * (4 * 384 + 2 * 36)


@pytest.mark.parametrize("read_elsewhere", ["weights", "scores", "masked"])
def test_attention_whose_scores_are_read_elsewhere_stays_in_parts(read_elsewhere):
    text = ATTENTION.replace("=> (y)", f"=> (y, {read_elsewhere})")
    assert kinds(text, scale=0.35)[0] == ["transpose", "mul", "mul", "matmul", "add", "softmax", "matmul"]


def test_a_scale_that_others_read_is_no_part_of_attention():
    text = ATTENTION.replace("=> (y)", "=> (y, q_scaled)")
    assert kinds(text, scale=0.35)[0] == ["transpose", "mul", "attention"]


def test_attention_that_a_model_calls_in_parts_stays_in_parts():
    """PyTorch's exporter scales queries and keys; what multiplies queries or scores alone was written by the model."""
    for text in (
        ATTENTION.replace("k_scaled = Mul (turned, scale)", "k_scaled = Identity (turned)"),
        ATTENTION.replace("k_scaled = Mul (turned, scale)", "").replace("k_scaled", "turned"),
    ):
        assert "attention" not in kinds(text, scale=0.35)[0]


def test_heads_of_attention_are_joined_without_a_copy():
    """PyTorch writes (2, 6, 4, 8) and shows it as (2, 4, 6, 8), so the order of tokens and heads is a view."""
    text = ATTENTION.replace("y = MatMul (weights, v)", "heads = MatMul (weights, v) REST")
    rest = "turned_back = Transpose <perm = [0, 2, 1, 3]> (heads)  y = Reshape (turned_back, shape)"
    text = text.replace("REST", rest)
    graph = kinds(text, scale=0.35, shape=[2, 6, 32])[1]
    assert [op.name for op in graph.operators if op.works] == ["heads"]


GROUPS = """(float[2, 8, 5, 5] x) => (y) {
    a = Reshape (x, groups)  b = InstanceNormalization (a, ones, zeros)  c = Reshape (b, whole)
    d = Mul (c, scale)  y = Add (d, shift)
 }"""


@pytest.mark.parametrize("n", [1, 4])
def test_a_group_norm_is_one_operator(n):
    """2 x 8 x 25 elements, of 8 FLOP; they are read and written, and 8 channels have a scale and a shift."""
    constants = {"ones": (n,), "zeros": (n,), "scale": (8, 1, 1), "shift": (8, 1, 1)}
    found, graph = kinds(GROUPS, groups=[2, n, -1], whole=[2, 8, 5, 5], **constants)
    assert found == ["group_norm"]
    assert (graph["y"].flops, graph["y"].nbytes) == (8 * 400, 4 * (400 + 400 + 16))
    assert graph["y"].works[0].rows == 2 * n


def test_an_instance_norm_is_no_group_norm():
    text = GROUPS.replace("d = Mul (c, scale)  y = Add (d, shift)", "y = Relu (c)")
    assert "instance_norm" in kinds(text, groups=[2, 4, -1], whole=[2, 8, 5, 5], ones=(4,), zeros=(4,))[0]


def test_a_softmax_over_other_axes_is_no_attention():
    text = ATTENTION.replace("axis = -1", "axis = 1")
    assert "softmax" in kinds(text, scale=0.35)[0]
