"""Views of ONNX's tensors: which operators copy nothing, and who pays for how elements lie."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("onnx")

from onnx_makers import model, operator

from workloads.formats.onnx.models import from_onnx
from workloads.formats.onnx.views import dense, reshaped


def single(text, **weights):
    """The operators of a model by name."""
    return {op.name: op for op in from_onnx(model(text, **weights), granularity="operator").operators}


@pytest.mark.parametrize(
    ("op_type", "shapes", "weights", "attributes", "shape"),
    [
        ("Transpose", [[2, 3]], [], {}, (3, 2)),
        ("Transpose", [[2, 3, 4]], [], {"perm": [0, 2, 1]}, (2, 4, 3)),
        ("Slice", [[9, 5]], [[3], [5], [0]], {}, (2, 5)),
        ("Slice", [[9, 5]], [[0], [9], [0], [2]], {}, (5, 5)),
        ("Expand", [[1, 5]], [[4, 5]], {}, (4, 5)),
        ("Gather", [[9, 5]], [3], {}, (5,)),
        ("Reshape", [[9, 5]], [[5, 9]], {}, (5, 9)),
        ("Unsqueeze", [[9, 5]], [[0]], {}, (1, 9, 5)),
    ],
)
def test_what_copies_nothing(op_type, shapes, weights, attributes, shape):
    (op,) = from_onnx(operator(op_type, *shapes, weights=weights, **attributes), granularity="operator").operators
    assert (op.works, op.nbytes, op.time, op.output_shape) == ((), 0.0, 0.0, shape)


def test_a_new_shape_of_what_lies_apart_is_a_copy():
    """6 numbers of 4 bytes read and written; turned back they lie as before."""
    text = """(float[2, 3] x) => (flat, back) {
        turned = Transpose (x)  flat = Reshape (turned, size)  again = Transpose (turned)  back = Reshape (again, size)
    }"""
    ops = single(text, size=[6])
    assert [(work.rule, work.reads, work.writes) for work in ops["flat"].works] == [("permute", 24.0, 24.0)]
    assert (ops["flat"].kind, ops["back"].kind, ops["back"].works) == ("copy", "view", ())


def test_rows_that_stay_together_are_copied_as_rows():
    """Heads of 4 joined to rows: of 2 x 3 heads those of one token do not lie behind each other."""
    ops = single(
        "(float[2, 3, 4] x) => (y) { t = Transpose <perm = [1, 0, 2]> (x)  y = Reshape (t, size) }", size=[3, 8]
    )
    assert [work.rule for work in ops["y"].works] == ["channels"]


def test_an_expanded_tensor_is_as_large_as_in_memory():
    """A row of 5 numbers, added to 4 x 5: 20 + 80 bytes read, 80 written, and each element has to be found."""
    ops = single("(float[1, 5] x, float[4, 5] y) => (z) { wide = Expand (x, size)  z = Add (wide, y) }", size=[4, 5])
    (work,) = ops["z"].works
    assert (work.rule, work.reads, work.writes) == ("channels", 100.0, 80.0)


def test_elements_of_all_that_lie_alike_are_not_searched():
    """A sum of two transposed tensors lies as they do; with one that is not, kernels work out where elements are."""
    text = """(float[2, 3] x, float[2, 3] y, float[3, 2] z) => (sum, other, flat) {
        a = Transpose (x)  b = Transpose (y)  sum = Add (a, b)  other = Add (a, z)  flat = Reshape (sum, size)
    }"""
    ops = single(text, size=[6])
    assert [ops[name].works[0].rule for name in ("sum", "other", "flat")] == ["map", "channels", "permute"]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_new_shapes_as_numpy_has_them(shape, data):
    """A new shape is a view where numpy needs no copy, and lies as numpy says."""
    order = data.draw(st.permutations(range(len(shape))))
    array = np.zeros(shape, np.int8).transpose(order)
    if data.draw(st.booleans()):
        array = array[::2]
    to, left = [], array.size
    while left > 1:
        to.append(data.draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0])))
        left //= to[-1]
    again, found = array.reshape(to), reshaped(array.shape, array.strides, to)
    assert (found is not None) == np.shares_memory(again, array)
    assert found in (None, again.strides)
    assert dense(to) == np.zeros(to, np.int8).strides
