"""Operators, kernels and edges: what is refused when they are made, and what is kept."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import operators

from simsched.base.errors import GraphError
from simsched.model.graph import DTYPE_NBYTES, Edge, Kernel, Operator, OpGraph

NAN, INF = float("nan"), float("inf")
BAD_COSTS = [NAN, INF, -INF, -1.0, -1e-300]
each_bad_cost = pytest.mark.parametrize("value", BAD_COSTS)


@pytest.mark.parametrize("field", ["flops", "nbytes", "weight_nbytes", "time"])
@each_bad_cost
def test_bad_cost_names_operator_field_and_value(field, value):
    with pytest.raises(GraphError, match=rf"operator 'conv1': {field} must be finite and not negative, not {value!r}"):
        Operator("conv1", **{field: value})


@pytest.mark.parametrize("field", ["nbytes", "transfer"])
@each_bad_cost
def test_bad_edge_cost_names_edge_field_and_value(field, value):
    with pytest.raises(GraphError, match=rf"edge a -> b: {field} must be finite and not negative, not {value!r}"):
        Edge("a", "b", **{field: value})


def test_whole_numbers_beyond_floats():
    with pytest.raises(GraphError, match="operator 'x': flops must be finite and not negative, not 1000"):
        Operator("x", flops=10**400)
    with pytest.raises(GraphError, match="edge a -> b: nbytes must be finite"):
        Edge("a", "b", nbytes=10**400)
    with pytest.raises(GraphError, match="column 'flops' must hold numbers"):
        OpGraph.from_columns(["a"], [], [], flops=10**400)
    assert Operator("x", flops=np.float32(1)).flops == 1


@pytest.mark.parametrize("value", [0.0, -0.5, 1.0000001, NAN, INF])
def test_utilization_outside_its_range(value):
    with pytest.raises(GraphError, match=r"operator 'x': utilization must be in \(0, 1\]"):
        Operator("x", utilization=value)


def test_borders_of_ranges_are_allowed():
    op = Operator("x", flops=0.0, nbytes=0, time=0.0, utilization=1.0)
    assert (op.time, op.utilization) == (0.0, 1.0)
    assert Edge("a", "b", 0.0, 0.0).transfer == 0.0
    assert Kernel(1, 1024, 1, 0, 1.0).threads == 1024


@pytest.mark.parametrize("name", ["", None, 3, b"conv"])
def test_a_name_is_a_text(name):
    with pytest.raises(GraphError, match="name must be a text that is not empty"):
        Operator(name)


def test_a_dtype_is_a_text():
    with pytest.raises(GraphError, match="operator 'x': unknown dtype"):
        Operator("x", dtype=["fp32"])


def test_unknown_dtype_lists_the_known():
    with pytest.raises(GraphError, match=r"unknown dtype 'float32'; known are: fp64, fp32, tf32"):
        Operator("x", dtype="float32")


@pytest.mark.parametrize("value", ["both", "", 0])
def test_unknown_intensity(value):
    with pytest.raises(GraphError, match="operator 'x': intensity must be 'compute', 'memory' or None"):
        Operator("x", intensity=value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("blocks", 0), ("blocks", -1), ("blocks", NAN), ("threads", 0), ("threads", 1025), ("registers", 0),
     ("shared_memory", -1), ("share", 0.0), ("share", 1.5), ("share", NAN), ("efficiency", 0.0),
     ("efficiency", 1.5)],
)  # fmt: skip
def test_bad_kernel(field, value):
    with pytest.raises(GraphError, match=f"kernel: {field} must be"):
        Kernel(**{"blocks": 1, field: value})


@pytest.mark.parametrize("field", ["blocks", "threads", "registers", "shared_memory"])
def test_half_a_kernel_is_refused(field):
    """1.5 blocks are not a count; cutting it to 1 would change the model without a word."""
    with pytest.raises(GraphError):
        Kernel(**{"blocks": 1, field: 1.5})


@pytest.mark.parametrize("field", ["blocks", "registers", "shared_memory"])
def test_a_count_too_large_for_a_column(field):
    """2^70 fits no column of 64-bit whole numbers."""
    with pytest.raises(GraphError):
        Kernel(**{"blocks": 1, field: 2**70})


def test_shares_add_up_to_one():
    """0.5 + 0.25 = 0.75; three times 1/3 is 1 but for rounding, which is allowed."""
    with pytest.raises(GraphError, match=r"operator 'x': the shares of its kernels must add up to 1, not 0.75"):
        Operator("x", kernels=(Kernel(1, share=0.5), Kernel(1, share=0.25)))
    assert len(Operator("x", kernels=(Kernel(1, share=1 / 3),) * 3).kernels) == 3


@pytest.mark.parametrize("field", ["flops", "time", "utilization"])
@pytest.mark.parametrize("value", ["3", [1.0], {}])
def test_a_cost_that_is_no_number(field, value):
    with pytest.raises(GraphError, match=field):
        Operator("x", **{field: value})


@pytest.mark.parametrize("shape", [(-1, 2), (0,), (1.5,), ("a",), "ab"])
def test_a_shape_is_whole_numbers_of_at_least_one(shape):
    """What a file may not say, an argument may not say either: a saved graph has to load again."""
    with pytest.raises(GraphError):
        Operator("x", output_shape=shape)


@pytest.mark.parametrize("value", [NAN, INF, object()])
def test_attributes_are_json_values(value):
    """Otherwise saving the graph fails long after the mistake, with an error of Python's."""
    with pytest.raises(GraphError, match="attributes"):
        Operator("x", attributes={"scale": value})


def test_frozen():
    op, edge, kernel = Operator("x"), Edge("a", "b"), Kernel(1)
    for row, field in ((op, "time"), (edge, "nbytes"), (kernel, "blocks")):
        with pytest.raises(FrozenInstanceError):
            setattr(row, field, 1)
    with pytest.raises(TypeError):
        op.attributes["new"] = 1


def test_attributes_are_copied():
    given_ones = {"stride": 1}
    op = Operator("x", attributes=given_ones)
    given_ones["stride"] = 2
    assert op.attributes["stride"] == 1


def test_kernels_become_a_tuple():
    assert Operator("x", kernels=[Kernel(1)]).kernels == (Kernel(1),)


def test_replace_checks_again():
    op = replace(Operator("x", time=1.0), time=2.0)
    assert op.time == 2.0
    with pytest.raises(GraphError):
        replace(op, time=-1.0)


@pytest.mark.parametrize(("dtype", "width"), sorted(DTYPE_NBYTES.items()))
def test_output_nbytes(dtype, width):
    """A tensor of 2 x 3 x 4 has 24 elements."""
    assert Operator("x", output_shape=(2, 3, 4), dtype=dtype).output_nbytes == 24 * width


def test_output_nbytes_of_an_unknown_shape():
    assert Operator("x").output_nbytes is None


def test_output_of_no_dimension_is_one_element():
    """A scalar in fp32: 4 bytes."""
    assert Operator("x", output_shape=()).output_nbytes == 4.0


@settings(deadline=None, max_examples=30)
@given(op=operators("x"))
def test_pickled_and_copied_operators_are_equal(op):
    assert pickle.loads(pickle.dumps(op)) == op
    assert copy.deepcopy(op) == op
