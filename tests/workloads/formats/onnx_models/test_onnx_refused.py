"""What is not an ONNX model, or one that cannot be imported: one line that says what to do."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx")

import numpy as np
import onnx
from onnx import defs, helper
from onnx_makers import MODELS, made, model

from simsched.base.errors import FileError, FormatError, SimschedError
from workloads.formats.onnx.models import from_onnx, read_onnx


def refused(read, error=FormatError):
    """The one line with which something is refused."""
    with pytest.raises(error) as caught:
        read()
    return str(caught.value)


NEWEST = defs.onnx_opset_version()
RELU = "operator 'y' (Relu): "


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda m: setattr(m.opset_import[0], "version", 99),
            f"opset 99 is not one of 7 to {NEWEST}; upgrade the package onnx",
        ),
        (lambda m: m.ClearField("opset_import"), f"{RELU}the model does not say which version"),
        (lambda m: setattr(m, "ir_version", 99), "field 'ir_version' is 99"),
        (lambda m: setattr(m, "ir_version", 0), "not an ONNX model"),
        (lambda m: m.ClearField("graph"), "the model has no operator that depends on an input"),
        (lambda m: setattr(m.graph.node[0], "op_type", ""), "operator 'y' has no type"),
        (lambda m: setattr(m.graph.initializer[0], "name", ""), "the name of a tensor is '', not a text"),
        (lambda m: m.graph.initializer[0].dims.append(-3), "'w' has shape (2, -3); sizes must be at least 0"),
    ],
)
def test_models_that_are_none(change, expected):
    made = model("(float[2] x) => (y) { y = Relu (x) }", w=(2,))
    change(made)
    assert refused(lambda: from_onnx(made, source="m.onnx")).startswith(f"m.onnx: {expected}")


SUM = "(float[n, 3] a, float[n, 3] b) => (y) { y = Add (a, b) }"
BOTH = {"a": [4, 3], "b": [4, 3]}


@pytest.mark.parametrize(
    ("text", "shapes", "expected"),
    [
        ("(float[2] x) => (y) { y = Relu (z)  z = Relu (x) }", {}, f"{RELU}it reads 'z', which nothing before"),
        ("(float[2] x) => (y) { y = Relu (x)  y = Exp (x) }", {}, "tensor 'y' is written twice"),
        ("(float[2] x) => (z) { y = Relu (x) }", {}, "output: it reads 'z', which nothing before it writes"),
        (f"(float[{10**18}] x) => (y) {{ y = Relu (x) }}", {}, "'x' of shape (1000000000000000000,) is more than any"),
        ("(float[] x) => (y) { y = Exp (x) }", {}, "input 'x' has unknown size 'shape'; give shapes="),
        (
            "(float[n, ?] x) => (y) { y = Exp (x) }",
            {},
            """input 'x' has unknown size 'n', 'axis 1'; give shapes={"x": [1, 1]}""",
        ),
        (
            SUM,
            {},
            "input 'a' has unknown size 'n', input 'b' has unknown size 'n'; "
            """give shapes={"a": [1, 3], "b": [1, 3]}""",
        ),
        (SUM, BOTH | {"b": [5, 3]}, "size 'n' is given as 4 and as 5"),
        (SUM, {"a": [4, 3, 1]}, "input 'a' has 2 axes; 3 are given"),
        (SUM, BOTH | {"image": [1]}, "no input 'image'; the inputs are: a, b"),
        (SUM, BOTH | {"y": [4, 4]}, "tensor 'y' has shape (4, 3), not the (4, 4) given"),
        (SUM, {"a": [2**30, 2**30]}, "'a' of shape (1073741824, 1073741824) is more than any device holds"),
    ],
)
def test_graphs_and_sizes_that_do_not_fit(text, shapes, expected):
    assert refused(lambda: from_onnx(model(text), shapes=shapes), SimschedError).startswith(f"model: {expected}")


STARTS = {"starts": [0], "ends": [1], "sizes": [2, 3], "one": 1}


@pytest.mark.parametrize(
    "call", ["Transpose (foo)", "Slice (foo, starts, ends)", "Expand (foo, sizes)", "Split (foo)", "Gather (foo, one)"]
)
def test_a_view_of_a_tensor_of_unknown_shape_is_refused(call):
    """The shape of what the view writes is given, and the shape of what it reads is not."""
    numbers = {name: np.array(value) for name, value in STARTS.items() if name in call}
    graph = model(f"(float[2, 3] x) => (y) {{ foo = com.acme.Foo (x)  y = {call} }}", **numbers)
    refusal = refused(lambda: from_onnx(graph, shapes={"y": [2, 3]}))
    assert "the shape of 'foo' cannot be inferred; give it too" in refusal


def test_files_that_are_no_models(tmp_path):
    """Of other formats, empty, cut off anywhere; of 3 GB none of which is read; a folder."""
    path = tmp_path / "model.onnx"
    whole = made("branches").SerializeToString()
    others = [b"\x00" * 50, b"PK\x03\x04 a zip file", b'{"format": "x"}']
    for content in (*others, *(whole[:length] for length in range(1, len(whole), len(whole) // 60))):
        path.write_bytes(content)
        assert refused(lambda: read_onnx(path)).startswith(f"{path}: ")
    path.write_bytes(b"")
    assert refused(lambda: read_onnx(path)) == f"{path}: the file is empty"
    with path.open("wb") as file:
        file.truncate(3 * 10**9)
    assert f"{path}: 3000000000 bytes are more than protobuf reads" in refused(lambda: read_onnx(path))
    assert refused(lambda: read_onnx(tmp_path), FileError).startswith(f"cannot read {tmp_path}")


def test_names_that_are_not_text_or_of_several_lines():
    data = made("conv_norm_relu").SerializeToString().replace(b"conv.relu", b"conv\xff\xfeelu")
    assert "UTF-8" in refused(lambda: from_onnx(onnx.ModelProto.FromString(data)))
    lines = model("(float[n] x) => (y) { foo = com.acme.Foo (x)  y = Relu (foo) }")
    lines.graph.input[0].name = lines.graph.node[0].input[0] = "x\ny"
    assert refused(lambda: from_onnx(lines)).endswith(r'give shapes={"x\ny": [1]}')
    assert "the inputs are: x\\ny" in refused(lambda: from_onnx(lines, shapes={"x\ny": [2], "foo": [2], "z": [2]}))


NUMBERS = st.sampled_from([0, 1, -1, 2, 3, 7, 10**12, 2**31, 2**62, -(2**63)])
OPERATORS = sorted({schema.name for schema in defs.get_all_schemas() if schema.domain == ""})
ATTRIBUTES = (
    "axis",
    "axes",
    "pads",
    "strides",
    "kernel_shape",
    "dilations",
    "group",
    "auto_pad",
    "perm",
    "to",
    "value",
    "equation",
    "num_groups",
    "q_num_heads",
    "start",
    "end",
    "transA",
    "mode",
    "ceil_mode",
    "allowzero",
)
TEXTS_AND_FLOATS = ["", "SAME_UPPER", "ij,jk->ik", "...", 0.5, float("nan"), float("inf"), [0.5, 1e30]]
VALUES = NUMBERS | st.lists(NUMBERS, min_size=1, max_size=5) | st.sampled_from(TEXTS_AND_FLOATS)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(sorted(MODELS)), data=st.data())
def test_fields_that_are_changed(name, data):
    """A graph or one line."""
    changed = made(name)
    graph = changed.graph
    image = graph.input[0].type.tensor_type
    tensors = [*(x for node in graph.node for x in (*node.input, *node.output)), "none", ""]

    def one_of(values):
        return data.draw(st.sampled_from(list(values)))

    changes = (
        lambda node: setattr(node, "op_type", one_of(OPERATORS)),
        lambda node: node.input.append(one_of(tensors)),
        lambda node: node.input and (node.input.pop(0), node.input.insert(0, one_of(tensors))),
        lambda node: node.input and node.input.pop(),
        lambda node: len(node.output) > 1 and node.output.pop(),
        lambda node: node.attribute.append(helper.make_attribute(one_of(ATTRIBUTES), data.draw(VALUES))),
        lambda node: setattr(changed.opset_import[0], "version", data.draw(st.integers(5, 40))),
        lambda node: image.shape.dim.add(dim_value=data.draw(NUMBERS)),
        lambda node: setattr(image, "elem_type", data.draw(st.integers(0, 30))),
        lambda node: graph.initializer and one_of(graph.initializer).dims.append(data.draw(NUMBERS)),
        lambda node: graph.initializer and setattr(one_of(graph.initializer), "data_type", one_of(range(31))),
    )
    for _ in range(data.draw(st.integers(1, 3))):
        one_of(changes)(one_of(graph.node))
    for granularity in ("unit", "operator"):
        with suppress(SimschedError):
            graph = from_onnx(changed, granularity=granularity, shapes={"x": (2, 6, 32)} if name == "attention" else {})
            assert len(graph) >= 1
            assert (graph.flops >= 0).all()
