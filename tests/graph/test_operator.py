"""Operators, kernels and edges: what is refused when they are made, and what is kept."""

import pytest

from simsched.base.errors import GraphError
from simsched.model.graph import DTYPE_NBYTES, Kernel, Operator

NAN = float("nan")


def test_shares_add_up_to_one():
    """0.5 + 0.25 = 0.75; three times 1/3 is 1 but for rounding, which is allowed."""
    with pytest.raises(GraphError, match=r"operator 'x': the shares of its kernels must add up to 1, not 0.75"):
        Operator("x", kernels=(Kernel(1, share=0.5), Kernel(1, share=0.25)))
    assert len(Operator("x", kernels=(Kernel(1, share=1 / 3),) * 3).kernels) == 3


@pytest.mark.parametrize(("dtype", "width"), sorted(DTYPE_NBYTES.items()))
def test_output_nbytes(dtype, width):
    """A tensor of 2 x 3 x 4 has 24 elements."""
    assert Operator("x", output_shape=(2, 3, 4), dtype=dtype).output_nbytes == 24 * width


def test_output_nbytes_without_a_shape_or_a_dimension():
    """Nobody knows; a scalar in fp32: 4 bytes."""
    assert Operator("x").output_nbytes is None
    assert Operator("x", output_shape=()).output_nbytes == 4.0
