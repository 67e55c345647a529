"""Arithmetic on small constants, against ONNX's own evaluator."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper
from onnx.reference import ReferenceEvaluator

from workloads.formats.onnx_constants import RULES, evaluate

A, B = np.array([7, -7, 0], np.int64), np.array([2, 2, 5], np.int64)
TABLE = np.arange(12, dtype=np.int64).reshape(3, 4)
ONE = np.array(1, np.int64)


def axes(*values):
    return np.array(values, np.int64)


CASES = {
    "Abs": ([A], {}), "Add": ([A, B], {}), "And": ([A > 0, B > 2], {}), "Cast": ([A], {"to": 1}),
    "Ceil": ([A / np.float64(2)], {}), "Concat": ([A, B], {"axis": 0}),
    "ConstantOfShape": ([axes(2, 3)], {"value": helper.make_tensor("v", 7, [1], [9])}), "Div": ([A, B], {}),
    "Equal": ([A, B], {}), "Expand": ([A, axes(2, 3)], {}), "Floor": ([A / np.float64(2)], {}),
    "Gather": ([TABLE, axes(2, -1)], {"axis": 1}), "Greater": ([A, B], {}), "GreaterOrEqual": ([A, B], {}),
    "Identity": ([A], {}), "Less": ([A, B], {}), "LessOrEqual": ([A, B], {}), "Max": ([A, B, A], {}),
    "Min": ([A, B], {}), "Mod": ([A, B], {}), "Mul": ([A, B], {}), "Neg": ([A], {}), "NonZero": ([TABLE % 3], {}),
    "Not": ([A > 0], {}), "Or": ([A > 0, B > 2], {}), "Pow": ([B, B], {}), "Range": ([ONE, 9 * ONE, 3 * ONE], {}),
    "ReduceMax": ([TABLE, axes(0)], {}), "ReduceMin": ([TABLE, axes(1)], {"keepdims": 0}), "ReduceProd": ([B], {}),
    "ReduceSum": ([TABLE, axes(-1)], {}), "Reshape": ([TABLE, axes(0, 2, -1)], {}),
    "Round": ([A / np.float64(2)], {}), "Slice": ([TABLE, axes(-1), axes(-(2**63)), axes(0), axes(-1)], {}),
    "Sqrt": ([B / np.float64(2)], {}), "Squeeze": ([TABLE[:1], axes(0)], {}), "Sub": ([A, B], {}),
    "Tile": ([A, axes(2)], {}), "Transpose": ([TABLE], {"perm": [1, 0]}), "Unsqueeze": ([A, axes(0, 2)], {}),
    "Where": ([A > 0, A, B], {}),
}  # fmt: skip


def test_there_is_a_case_for_each():
    assert sorted(CASES) == sorted(RULES)


@pytest.mark.parametrize("op_type", CASES)
def test_as_onnx_evaluates_it(op_type):
    inputs, attributes = CASES[op_type]
    names = [f"x{i}" for i in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_value_info("y", helper.make_tensor_type_proto(7, None))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    (expected,) = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    found = evaluate(op_type, inputs, attributes, helper.np_dtype_to_tensor_dtype(expected.dtype))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_parameters_that_older_operator_sets_have_as_attributes():
    assert evaluate("Slice", [TABLE], {"starts": (1,), "ends": (9,), "axes": (0,)}, 7).tolist() == TABLE[1:].tolist()
    assert evaluate("Slice", [A], {"starts": (0,), "ends": (1,)}, 7).tolist() == [7]
    assert evaluate("Squeeze", [TABLE[:1]], {"axes": (0,)}, 7).shape == (4,)
    assert evaluate("Unsqueeze", [A], {"axes": (1,)}, 7).shape == (3, 1)
    assert evaluate("ReduceSum", [TABLE], {"axes": (0,), "keepdims": 0}, 7).tolist() == [12, 15, 18, 21]


def test_what_does_not_fit_together_is_not_known():
    assert evaluate("Add", [A, axes(1, 2)], {}, 7) is None
    assert evaluate("Reshape", [A, axes(2)], {}, 7) is None
    assert evaluate("Gather", [A, axes(9)], {}, 7) is None
    assert evaluate("Concat", [A, B], {}, 7) is None
    assert evaluate("Erf", [A], {}, 7) is None
    assert evaluate("Add", [A, B], {}, 8) is None
