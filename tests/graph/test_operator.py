"""Operators, kernels and edges: what is refused when they are made, and what is kept."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given, settings
from strategies import operators

from simsched.base.errors import GraphError
from simsched.model.graph import DTYPE_NBYTES, Edge, Kernel, Operator, OpGraph

NAN = float("nan")


def test_a_refusal_names_operator_field_and_value():
    with pytest.raises(GraphError, match="operator 'conv1': flops must be finite and not negative, not nan"):
        Operator("conv1", flops=NAN)
    with pytest.raises(GraphError, match=r"edge a -> b: transfer must be finite and not negative, not -1\.0"):
        Edge("a", "b", transfer=-1.0)
    with pytest.raises(GraphError, match="kernel: threads must be a whole number from 1 to 1,024"):
        Kernel(1, threads=1025)
    with pytest.raises(GraphError, match="column 'flops' must hold numbers"):
        OpGraph.from_columns(["a"], [], [], flops=10**400)


def test_borders_of_ranges_are_allowed():
    op = Operator("x", flops=0.0, nbytes=0, time=0.0, utilization=1.0)
    assert (op.time, op.utilization) == (0.0, 1.0)
    assert Edge("a", "b", 0.0, 0.0).transfer == 0.0
    assert Kernel(1, 1024, 1, 0, 1.0).threads == 1024


def test_shares_add_up_to_one():
    """0.5 + 0.25 = 0.75; three times 1/3 is 1 but for rounding, which is allowed."""
    with pytest.raises(GraphError, match=r"operator 'x': the shares of its kernels must add up to 1, not 0.75"):
        Operator("x", kernels=(Kernel(1, share=0.5), Kernel(1, share=0.25)))
    assert len(Operator("x", kernels=(Kernel(1, share=1 / 3),) * 3).kernels) == 3


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
