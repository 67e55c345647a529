"""What is not an ONNX model, or one that cannot be imported: one line that says what to do."""

import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx")

import onnx
from onnx import defs, helper
from onnx_makers import MODELS, attention, branches, conv_norm_relu, model

from simsched.base.errors import FileError, FormatError, GraphError, MissingDependencyError, SimschedError
from workloads.formats.onnx_models import from_onnx, read_onnx

VALID = {name: make().SerializeToString() for name, make in MODELS.items()}
fuzzed = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def refused(read, error=FormatError):
    """The one line with which something is refused."""
    with pytest.raises(error) as caught:
        read()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def changed(model, path, value):
    """Put a value in the field at a path such as "graph.node.0.op_type", or clear it."""
    *parts, last = path.split(".")
    for part in parts:
        model = model[int(part)] if part.isdigit() else getattr(model, part)
    if value is None:
        model.ClearField(last)
    elif last.isdigit():
        model[int(last)] = value
    else:
        setattr(model, last, value)


NEWEST = defs.onnx_opset_version()
CONV = "operator 'conv' (Conv): "


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"opset_import.0.version": 6}, f"opset 6 is not one of 7 to {NEWEST}; convert it with onnx.version_converter"),
        ({"opset_import.0.version": 99}, f"opset 99 is not one of 7 to {NEWEST}; upgrade the package onnx"),
        ({"ir_version": 99}, "field 'ir_version' is 99"),
        ({"ir_version": 0}, "not an ONNX model"),
        ({"opset_import": None}, "field 'opset_import' is missing"),
        ({"opset_import.0.domain": "other"}, f"{CONV}the model does not say which version of ONNX's operator set"),
        ({"graph": None}, "not an ONNX model: it has no graph"),
        ({"graph.node": None, "graph.output": None}, "the model has no operator that depends on an input"),
        ({"graph.node.0.op_type": ""}, "operator 'conv' has no type"),
        ({"graph.node.0.input.0": "conv.norm"}, f"{CONV}it reads 'conv.norm', which nothing before it writes"),
        ({"graph.node.1.output.0": "conv"}, "tensor 'conv' is written twice"),
        ({"graph.output.0.name": "z"}, "output: it reads 'z', which nothing before it writes"),
        ({"graph.initializer.0.dims.0": -3}, "'conv.w' has shape (-3, 3, 3, 3); sizes must be at least 0"),
        ({"graph.initializer.0.dims.0": 2**62}, "'conv.w' of shape (4611686018427387904, 3, 3, 3) is more than any"),
        ({"graph.input.0.type.tensor_type.shape.dim.0.dim_value": 10**18}, "'x' of shape (1000000000000000000, 3, 8, "),
    ],
)
def test_models_that_are_none(changes, expected):
    model = conv_norm_relu()
    for path, value in changes.items():
        changed(model, path, value)
    assert refused(lambda: from_onnx(model, source="m.onnx")).startswith(f"m.onnx: {expected}")


def test_files_that_are_no_models(tmp_path):
    """Of other formats, empty, cut off anywhere; of 3 GB none of which is read; a folder."""
    path = tmp_path / "model.onnx"
    whole = VALID["branches"]
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


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install 'simsched[onnx]'" in refused(lambda: read_onnx(tmp_path / "x"), MissingDependencyError)


def test_a_granularity_that_is_none():
    assert "granularity" in refused(lambda: from_onnx(branches(), granularity="block"), GraphError)


SUM = "(float[n, 3] a, float[n, 3] b) => (y) { y = Add (a, b) }"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (attention(), "input 'x' has unknown size 'batch'; give --shape x=1,6,32"),
        (
            model(SUM.replace("3", "?")),
            "input 'a' has unknown size 'n', 'axis 1', input 'b' has unknown size 'n', 'axis 1'; "
            "give --shape a=1,1 --shape b=1,1",
        ),
        (model("(float[] x) => (y) { y = Exp (x) }"), "input 'x' has unknown size 'shape'; give --shape x=1,3,224,224"),
    ],
)
def test_sizes_that_are_open_are_asked_for(made, expected):
    assert refused(lambda: from_onnx(made)) == f"model: {expected}"


BOTH = {"a": [4, 3], "b": [4, 3]}


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (BOTH | {"b": [5, 3]}, "size 'n' is given as 4 and as 5"),
        ({"a": [4, 3, 1]}, "input 'a' has 2 axes; 3 are given"),
        (BOTH | {"image": [1]}, "no input 'image'; the inputs are: a, b"),
        (BOTH | {"y": [4, 4]}, "tensor 'y' has shape (4, 3), not the (4, 4) given"),
        ({"a": [2**30, 2**30]}, "'a' of shape (1073741824, 1073741824) is more than any device holds"),
        *(({"a": [size, 3]}, "the size of 'a' must be") for size in (0, 2.5, True, 2**31, "4")),
    ],
)
def test_sizes_that_do_not_fit(shapes, expected):
    """n is 4 for both inputs once it is given for one."""
    assert from_onnx(model(SUM), shapes={"a": [4, 3]})["y"].input_shapes == ((4, 3), (4, 3))
    assert refused(lambda: from_onnx(model(SUM), shapes=shapes), SimschedError).startswith(f"model: {expected}")


def test_a_constant_that_is_huge_is_not_worked_out():
    text = "(float[2] x) => (y) { filled = ConstantOfShape (many)  z = Relu (filled)  y = Relu (x) }"
    assert from_onnx(model(text, many=[10**12])).names == ("y",)


def test_names_that_are_not_text_or_of_several_lines():
    data = conv_norm_relu().SerializeToString().replace(b"conv.relu", b"conv\xff\xfeelu")
    assert "UTF-8" in refused(lambda: from_onnx(onnx.ModelProto.FromString(data)))
    made = model("(float[n] x) => (y) { foo = com.acme.Foo (x)  y = Relu (foo) }")
    made.graph.input[0].name = made.graph.node[0].input[0] = "x\ny"
    assert refused(lambda: from_onnx(made)).endswith(r"give --shape x\ny=1")
    assert "the inputs are: x\\ny" in refused(lambda: from_onnx(made, shapes={"x\ny": [2], "foo": [2], "z": [2]}))


def outcome(name, read, model):
    """Import a model that may be none: a graph or one line."""
    shapes = {"x": (2, 6, 32)} if name == "attention" else {}
    for granularity in ("unit", "operator"):
        try:
            graph = read(model, granularity=granularity, shapes=shapes)
        except SimschedError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert len(graph) >= 1
            assert (graph.flops >= 0).all()


@fuzzed
@given(name=st.sampled_from(sorted(VALID)), data=st.data())
def test_bytes_that_are_changed(tmp_path, name, data):
    content = bytearray(VALID[name])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    outcome(name, read_onnx, path)


NUMBERS = st.sampled_from([0, 1, -1, 2, 3, 7, 10**12, 2**31, 2**62, -(2**63)])
OPERATORS = sorted({schema.name for schema in defs.get_all_schemas() if schema.domain == ""})
ATTRIBUTES = (
    "axis", "axes", "pads", "strides", "kernel_shape", "dilations", "group", "auto_pad", "perm", "to", "value",
    "equation", "num_groups", "q_num_heads", "start", "end", "transA", "mode", "ceil_mode", "allowzero",
)  # fmt: skip
VALUES = st.one_of(
    NUMBERS, st.lists(NUMBERS, min_size=1, max_size=5), st.sampled_from(["", "SAME_UPPER", "ij,jk->ik", "..."]),
    st.sampled_from([0.5, float("nan"), float("inf")]), st.just([0.5, 1e30]),
)  # fmt: skip


@fuzzed
@given(name=st.sampled_from(sorted(VALID)), data=st.data())
def test_fields_that_are_changed(name, data):
    model = MODELS[name]()
    graph = model.graph
    tensors = [*(x for node in graph.node for x in (*node.input, *node.output)), "none", ""]
    for _ in range(data.draw(st.integers(1, 3))):
        node = data.draw(st.sampled_from(list(graph.node)))
        change = data.draw(st.integers(0, 8))
        if change == 0:
            node.op_type = data.draw(st.sampled_from(OPERATORS))
        elif change == 1:
            node.input.append(data.draw(st.sampled_from(tensors)))
        elif change == 2 and node.input:
            node.input[0] = data.draw(st.sampled_from(tensors))
        elif change == 3:
            del node.input[-1:], node.output[1:]
        elif change == 4:
            node.attribute.append(helper.make_attribute(data.draw(st.sampled_from(ATTRIBUTES)), data.draw(VALUES)))
        elif change == 5:
            model.opset_import[0].version = data.draw(st.integers(5, 40))
        elif change == 6:
            graph.input[0].type.tensor_type.shape.dim.add(dim_value=data.draw(NUMBERS))
        elif change == 7:
            graph.input[0].type.tensor_type.elem_type = data.draw(st.integers(0, 30))
        elif graph.initializer:
            weights = data.draw(st.sampled_from(list(graph.initializer)))
            weights.dims.append(data.draw(NUMBERS))
            weights.data_type = data.draw(st.integers(0, 30))
    outcome(name, from_onnx, model)
