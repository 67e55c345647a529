"""What is not an ONNX model, or one that cannot be imported: one line that says what to do."""

import json
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, defs, helper
from onnx_makers import MODELS, Maker, attention, branches, conv_norm_relu

from simsched.base.errors import (
    FileError,
    FormatError,
    GraphError,
    MissingDependencyError,
    SimschedError,
    UnknownNameError,
)
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


def changed(change, make=conv_norm_relu):
    """The error for a model with something changed in it."""
    model = make()
    change(model)
    return refused(lambda: from_onnx(model, source="m.onnx"))


@pytest.mark.parametrize("content", [b"\x00" * 50, b"PK\x03\x04 a zip file", json.dumps({"format": "x"}).encode()])
def test_files_of_other_formats(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert refused(lambda: read_onnx(path)).startswith(f"{path}: not an ONNX model")


def test_files_that_are_empty_missing_or_folders(tmp_path):
    (tmp_path / "empty.onnx").touch()
    assert refused(lambda: read_onnx(tmp_path / "empty.onnx")).endswith("empty.onnx: the file is empty")
    assert "embedded null" in refused(lambda: read_onnx("a\0b"), FileError)
    for path in (tmp_path / "none.onnx", tmp_path):
        assert refused(lambda path=path: read_onnx(path), FileError).startswith(f"cannot read {path}")


def test_a_file_of_over_2_gb(tmp_path):
    """3 GB, none of which is read."""
    path = tmp_path / "huge.onnx"
    with path.open("wb") as file:
        file.truncate(3 * 10**9)
    message = refused(lambda: read_onnx(path))
    assert "3000000000 bytes are more than protobuf reads" in message
    assert "save_as_external_data=True" in message


def test_a_file_that_is_cut_off_anywhere(tmp_path):
    path = tmp_path / "model.onnx"
    whole = VALID["branches"]
    outcomes = []
    for length in range(1, len(whole), len(whole) // 60):
        path.write_bytes(whole[:length])
        outcomes.append(refused(lambda: read_onnx(path)))
    assert sum("cut off" in outcome for outcome in outcomes) > 50


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install 'simsched[onnx]'" in refused(lambda: read_onnx(tmp_path / "x"), MissingDependencyError)


def test_versions():
    newest = defs.onnx_opset_version()

    def opset(version):
        def change(model):
            model.opset_import[0].version = version

        return change

    assert changed(opset(6)) == (f"m.onnx: opset 6 is not one of 7 to {newest}; convert it with onnx.version_converter")
    assert changed(opset(newest + 1)).endswith(f"is not one of 7 to {newest}; upgrade the package onnx")
    assert "ir_version' is 99" in changed(lambda model: setattr(model, "ir_version", 99))
    assert "not an ONNX model" in changed(lambda model: setattr(model, "ir_version", 0))
    assert "'opset_import' is missing" in changed(lambda model: model.ClearField("opset_import"))
    assert "does not say which version" in changed(lambda model: setattr(model.opset_import[0], "domain", "other"))
    assert "has no graph" in changed(lambda model: model.ClearField("graph"))


def test_sizes_that_are_open_are_asked_for():
    assert refused(lambda: from_onnx(attention(), source="m.onnx")) == (
        "m.onnx: input 'x' has unknown size 'batch'; give --shape x=1,6,32"
    )
    made = Maker()
    made.op("Add", [made.input("a", ["n", None]), made.input("b", ["n", None])], "y")
    assert refused(lambda: from_onnx(made.model("y"))) == (
        "model: input 'a' has unknown size 'n', 'axis 1', input 'b' has unknown size 'n', 'axis 1'; "
        "give --shape a=1,1 --shape b=1,1"
    )
    made = Maker()
    made.inputs.append(helper.make_value_info("x", helper.make_tensor_type_proto(1, None)))
    message = refused(lambda: from_onnx(made.model(made.op("Relu", ["x"], "y"))))
    assert message == "model: input 'x' has unknown size 'shape'; give --shape x=1,3,224,224"


def test_sizes_that_are_given():
    """n is 4 for both inputs once it is given for one; what is not a shape of the input is refused."""
    made = Maker()
    made.op("Add", [made.input("a", ["n", 3]), made.input("b", ["n", 3])], "y")
    model = made.model("y")
    assert from_onnx(model, shapes={"a": [4, 3]})["y"].input_shapes == ((4, 3), (4, 3))
    assert "'n' is given as 4 and as 5" in refused(lambda: from_onnx(model, shapes={"a": [4, 3], "b": [5, 3]}))
    assert "has 2 axes; 3 are given" in refused(lambda: from_onnx(model, shapes={"a": [4, 3, 1]}))
    both = {"a": [4, 3], "b": [4, 3]}
    message = refused(lambda: from_onnx(model, shapes={**both, "image": [1]}))
    assert message == "model: no input 'image'; the inputs are: a, b"
    message = refused(lambda: from_onnx(model, shapes={**both, "y": [4, 4]}))
    assert message == "model: tensor 'y' has shape (4, 3), not the (4, 4) given"
    for size in (0, -1, 2.5, True, 2**31, "4"):
        assert "size of 'a'" in refused(lambda size=size: from_onnx(model, shapes={"a": [size, 3]}), GraphError)
    assert "more than any device" in refused(lambda: from_onnx(model, shapes={"a": [2**30, 2**30]}))


def test_graphs_that_are_none():
    def loop(model):
        model.graph.node[0].input[0] = "conv.norm"

    assert changed(loop) == "m.onnx: the operators form a cycle: 'conv' -> 'conv.norm' -> 'conv'"

    def unsorted(model):
        first, *rest = [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
        model.graph.ClearField("node")
        model.graph.node.extend([*rest, first])

    message = changed(unsorted)
    assert message == "m.onnx: operator 'conv.norm' reads 'conv' but stands before it; sort them topologically"

    def unwritten(model):
        model.graph.node[1].input[0] = "nothing"

    assert changed(unwritten).endswith("'conv.norm' (BatchNormalization): it reads 'nothing', which nothing writes")

    def twice(model):
        model.graph.node[1].output[0] = "conv"

    assert changed(twice) == "m.onnx: tensor 'conv' is written twice"

    def result(model):
        model.graph.output[0].name = "z"

    assert changed(result) == "m.onnx: output: it reads 'z', which nothing writes"
    assert "no operator that depends on an input" in changed(lambda model: model.graph.ClearField("node") or
                                                             model.graph.ClearField("output"))  # fmt: skip


def test_sizes_that_are_absurd():
    def negative(model):
        model.graph.initializer[0].dims[0] = -3

    assert "has shape (-3, 3, 3, 3); sizes must be at least 0" in changed(negative)

    def huge(model):
        model.graph.initializer[0].dims[0] = 2**62

    assert "more than any device holds" in changed(huge)

    def wide(model):
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 10**18

    assert "more than any device holds" in changed(wide)

    def filled(model):
        model.graph.initializer.append(helper.make_tensor("many", TensorProto.INT64, [1], [10**12]))
        model.graph.node.append(helper.make_node("ConstantOfShape", ["many"], ["filled"]))
        model.graph.node.append(helper.make_node("Relu", ["filled"], ["z"]))

    model = conv_norm_relu()
    filled(model)
    assert from_onnx(model).names == ("conv",)


def test_names_that_are_not_text():
    data = conv_norm_relu().SerializeToString().replace(b"conv.norm.relu", b"conv.\xff\xfe.relu!!")
    assert "UTF-8" in refused(lambda: from_onnx(onnx.ModelProto.FromString(data)))


def test_names_of_several_lines():
    made = Maker(domains=["a\nb"])
    made.op("Foo", [made.input("x\ny", ["n"])], "foo\nbar", domain="a\nb")
    model = made.model(made.op("Relu", ["foo\nbar"], "y"))
    assert refused(lambda: from_onnx(model)).endswith(r"give --shape x\ny=1")
    assert "the inputs are: x\\ny" in refused(lambda: from_onnx(model, shapes={"x\ny": [2], "foo\nbar": [2], "z": [2]}))
    assert r"--shape foo\nbar=" in refused(lambda: from_onnx(model, shapes={"x\ny": [2]}))


def test_options_that_are_none():
    assert "granularity" in refused(lambda: from_onnx(branches(), granularity="block"), GraphError)
    assert "unknown dtype 'fp3'" in refused(lambda: from_onnx(branches(), dtype="fp3"), GraphError)
    assert "unknown device" in refused(lambda: from_onnx(branches(), device="abacus"), UnknownNameError)


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
