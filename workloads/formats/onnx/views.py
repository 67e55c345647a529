"""Views of ONNX's tensors: what PyTorch would not copy, and how elements lie then.

A transposition, a part cut out, an expansion and most changes of shape only change strides: how many elements lie from
one to the next along each axis. Whoever reads such a tensor pays for it; reshaping one may have to copy it.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from operator import mul

from workloads.formats.onnx.tensors import Shape, Step, Tensor


def dense(shape: Sequence[int]) -> Shape:
    """Return the strides of a tensor whose elements lie one after the other.

    >>> dense((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(accumulate(reversed(shape[1:]), mul, initial=1))[::-1] if shape else ()


def strides_in(step: Step) -> Shape:
    """Return the strides of the first tensor that an operator reads, which must have a known shape."""
    source = step.given[0]
    shape = step.formats.shape_of(step.where, source)
    return dense(shape) if source.strides is None else source.strides


def lay(tensor: Tensor | None, strides: Sequence[int] | None) -> None:
    """Note how a tensor lies, unless its elements lie one after the other."""
    if tensor is None or tensor.shape is None or strides is None:
        return
    usual = dense(tensor.shape)
    if any(size > 1 and a != b for size, a, b in zip(tensor.shape, strides, usual, strict=True)):
        tensor.strides = tuple(strides)


def transposed(step: Step) -> Shape:
    """Return the strides of what a transposition writes."""
    strides = strides_in(step)
    order = step.attributes.get("perm", range(len(strides))[::-1])
    return tuple(strides[axis] for axis in order)


def expanded(step: Step) -> Shape | None:
    """Return the strides of what an expansion writes: 0 along an axis on which elements are repeated."""
    out = step.shape_out()
    shape = step.formats.shape_of(step.where, step.given[0])
    lead = len(out) - len(shape)
    sizes = (1,) * lead + shape
    strides = (0,) * lead + strides_in(step)
    return tuple(stride if size == wide else 0 for size, wide, stride in zip(sizes, out, strides, strict=True))


def sliced(step: Step) -> Shape | None:
    """Return the strides of what a slice writes; None if its steps are not known or go backwards."""
    strides = list(strides_in(step))
    steps, axes = step.input(4), step.input(3)
    if steps is None:
        return tuple(strides)
    numbers = steps.numbers()
    places = None if axes is None else axes.numbers()
    if numbers is None or (axes is not None and places is None) or (numbers < 1).any():
        return None
    for axis, pace in zip(range(len(numbers)) if places is None else places.tolist(), numbers.tolist(), strict=True):
        strides[axis] *= pace
    return tuple(strides)


def selected(step: Step, axis: int) -> Shape:
    """Return the strides of what is left of a tensor at one place of an axis."""
    strides = strides_in(step)
    return strides[:axis] + strides[axis + 1 :]


def reshaped(shape: Sequence[int], strides: Sequence[int], to: Sequence[int]) -> Shape | None:
    """Return the strides of a tensor in another shape, or None if that is impossible without a copy.

    Axes that lie as one may be divided and joined, as `torch.Tensor.view` does it.

    >>> reshaped((2, 3, 4), (12, 4, 1), (6, 4)), reshaped((2, 3, 4), (4, 8, 1), (6, 4))
    ((4, 1), None)
    """
    if prod(to) == 0:
        return dense(to)
    runs: list[list[int]] = []  # [size, stride of the last element] of axes that lie as one, from the last on
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if runs and stride == runs[-1][0] * runs[-1][1]:
            runs[-1][0] *= size
        else:
            runs.append([size, stride])
    found: list[int] = []
    left, stride = runs.pop(0) if runs else (1, 1)
    for size in reversed(to):
        if left == 1 and size > 1 and runs:
            left, stride = runs.pop(0)
        if left % size:
            return None
        found.append(stride)
        left, stride = left // size, stride * size
    return tuple(reversed(found))
