"""Convolutions: what their attributes say, and the one that several become."""

import json
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

from simsched.model.graph import DTYPE_NBYTES, Operator
from simsched.rewriting.recipes import ATTRIBUTE, concat, pad, recipe_of
from simsched.rewriting.works import REMEMBERED, Shape, made_from, tensor_nbytes

_GEOMETRY: Final = ("kernel", "stride", "padding")
_KNOWN: Final = (*_GEOMETRY, "groups", "out_channels", "activation", "bias", ATTRIBUTE)


class Conv(NamedTuple):
    """A convolution: one value per axis of the image; `rest` are the attributes that are not known here, as JSON."""

    kernel: Shape
    stride: Shape
    padding: Shape
    groups: int
    activation: str | None
    rest: str
    input_shape: Shape
    output_shape: Shape
    dtype: str

    @property
    def in_channels(self) -> int:
        """Channels of the input, of all groups."""
        return self.input_shape[1]

    @property
    def out_channels(self) -> int:
        """Channels of the output."""
        return self.output_shape[1]

    @property
    def n_weights(self) -> int:
        """Elements of the weight, without the bias."""
        return self.out_channels * self.in_channels // self.groups * prod(self.kernel)


@lru_cache(maxsize=REMEMBERED)
def conv_of(op: Operator) -> Conv | None:
    """Return what the attributes of a convolution say; None if it is none or shapes and attributes do not agree."""
    if op.kind != "conv" or len(op.input_shapes) != 1 or op.output_shape is None:
        return None
    given, axes = op.attributes, len(op.output_shape) - 2
    sizes = [given.get(key) for key in _GEOMETRY]
    if axes < 1 or len(op.input_shapes[0]) != axes + 2 or not all(_are_counts(size, axes) for size in sizes):
        return None
    kernel, stride, padding = (tuple(size) for size in sizes if size is not None)
    groups, activation = given.get("groups", 1), given.get("activation")
    rest = {key: value for key, value in given.items() if key not in _KNOWN}
    conv = Conv(
        kernel,
        stride,
        padding,
        groups,
        activation,
        json.dumps(rest, sort_keys=True),
        op.input_shapes[0],
        op.output_shape,
        op.dtype,
    )
    if type(groups) is not int or groups < 1 or conv.in_channels % groups or conv.out_channels % groups:
        return None
    if activation is not None and not isinstance(activation, str):
        return None
    if min(*stride, *kernel) < 1 or given.get("out_channels", conv.out_channels) != conv.out_channels:
        return None
    dilation = rest.get("dilation", [1] * axes)
    return conv if _are_counts(dilation, axes) and _output_size(conv, dilation) == op.output_shape[2:] else None


def _are_counts(values: Any, n: int) -> bool:
    return isinstance(values, list) and len(values) == n and all(type(value) is int and value >= 0 for value in values)


def _output_size(conv: Conv, dilation: Sequence[int]) -> Shape:
    """Return height and width of what a convolution makes of its input."""
    return tuple(
        (size + 2 * p - (d * (k - 1) + 1)) // s + 1
        for size, k, s, p, d in zip(conv.input_shape[2:], conv.kernel, conv.stride, conv.padding, dilation, strict=True)
    )


@lru_cache(maxsize=REMEMBERED)
def why_not_alike(convs: tuple[Conv, ...]) -> str | None:
    """Return why convolutions of one tensor are not one convolution with the largest kernel, or None if they are.

    Kernel k_i ends up (K - k_i) // 2 behind the edge of the merged one, K; it reads the same pixels as before only
    if the merged padding less that is its own padding. The largest then has the merged padding: the output size stays.
    """
    first = convs[0]
    for what in ("input_shape", "stride", "activation", "dtype", "rest"):
        if any(getattr(conv, what) != getattr(first, what) for conv in convs):
            return f"{_SAID.get(what, what)} differs"
    if any(conv.groups != 1 for conv in convs):
        return "groups are not 1"
    if any(conv.output_shape[2:] != first.output_shape[2:] for conv in convs):
        return "output size differs"
    if all(conv.kernel == first.kernel and conv.padding == first.padding for conv in convs):
        return None
    if "dilation" in first.rest:
        return "kernels with dilation differ"
    whole = padded_to_largest(convs)
    for conv in convs:
        for big, small, margin, own in zip(whole.kernel, conv.kernel, whole.padding, conv.padding, strict=True):
            if margin - (big - small) // 2 != own:
                return "kernels do not align"
    return None


_SAID: Final = {"input_shape": "input size", "rest": "another attribute"}


def padded_to_largest(convs: Sequence[Conv]) -> Conv:
    """Return the first of some convolutions with the largest kernel and padding of all, along each axis."""
    kernel = tuple(max(sizes) for sizes in zip(*(conv.kernel for conv in convs), strict=True))
    padding = tuple(max(sizes) for sizes in zip(*(conv.padding for conv in convs), strict=True))
    return convs[0]._replace(kernel=kernel, padding=padding)


@lru_cache(maxsize=REMEMBERED)
def merged_convs(ops: tuple[Operator, ...], name: str) -> Operator:
    """Return the convolution that several of one tensor become, output channels in their order.

    FLOP and weights are those of the padded kernels; the input is read once.
    """
    convs = [conv for conv in map(conv_of, ops) if conv is not None]
    first, whole = convs[0], padded_to_largest(convs)
    width, area = DTYPE_NBYTES[first.dtype], prod(whole.kernel)
    flops = weight_nbytes = nbytes = 0.0
    for op, conv in zip(ops, convs, strict=True):
        own = prod(conv.kernel)
        flops += op.flops * area / own
        zeros = float(conv.n_weights // own * (area - own) * width) if op.weight_nbytes else 0.0
        weight_nbytes += op.weight_nbytes + zeros
        nbytes += op.nbytes + zeros
    nbytes -= (len(ops) - 1) * tensor_nbytes(first.input_shape, first.dtype)
    channels = sum(conv.out_channels for conv in convs)
    recipes = [pad(recipe_of(op), conv.kernel, whole.kernel) for op, conv in zip(ops, convs, strict=True)]
    return made_from(
        ops,
        name,
        kind="conv",
        flops=flops,
        nbytes=max(0.0, nbytes),
        weight_nbytes=weight_nbytes,
        attributes=conv_attributes(
            ops, kernel=whole.kernel, padding=whole.padding, out_channels=channels, weights=concat(recipes, 0)
        ),
        input_shapes=(first.input_shape,),
        output_shape=(first.output_shape[0], channels, *first.output_shape[2:]),
    )


def conv_attributes(ops: Sequence[Operator], **changed: Any) -> dict[str, Any]:
    """Return the attributes of the first of some operators with others changed; a bias if one of them has one."""
    found = {**ops[0].attributes, **changed}
    if any("bias" in op.attributes for op in ops):
        found["bias"] = any(op.attributes.get("bias", False) for op in ops)
    return found
