"""What an operator consists of, and the values that its weights and inputs are drawn with."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from simsched.base.errors import BackendError
from simsched.model import Floats, Operator

Shape = tuple[int, ...]
Call = Callable[[Sequence[Any]], Any]
"""From the tensors that are read to the one that is written."""

_WEIGHTED: Final = ("conv", "conv_transpose", "linear", "batch_norm", "embedding")


class Piece(NamedTuple):
    """What one call computes: an operator, or part number `part` of one.

    `reads` are numbers of earlier parts, or ~i for input i of the operator; `shapes` are theirs.
    """

    op: str
    part: int | None
    kind: str
    given: Mapping[str, Any]
    reads: tuple[int, ...]
    shapes: tuple[Shape, ...]
    output: Shape

    @property
    def has_weights(self) -> bool:
        """Whether it has weights, or a constant where another would have a second input."""
        alone = self.kind in ("add", "mul", "sub") and len(self.reads) == 1 and "factor" not in self.given
        return alone or self.kind in _WEIGHTED


Parameters = Callable[[Piece], tuple[Any, Any]]
"""From a piece with weights to them and the bias, arrays; the latter may be None."""


def pieces(op: Operator) -> tuple[Piece, ...]:
    """Return the calls that make up an operator, in order.

    Raises
    ------
    BackendError
        If the shape of its output is not known.
    """
    if op.output_shape is None:
        raise BackendError(f"operator {op.name!r} of kind {op.kind!r} has no output_shape, so it cannot be computed")
    parts = op.attributes.get("parts")
    if parts is None:
        reads = tuple(~i for i in range(len(op.input_shapes)))
        return (Piece(op.name, None, op.kind, op.attributes, reads, op.input_shapes, op.output_shape),)
    outputs = [tuple(part["output_shape"]) for part in parts]
    found = []
    for i, part in enumerate(parts):
        shapes = tuple(op.input_shapes[~r] if r < 0 else outputs[r] for r in part["inputs"])
        found.append(Piece(op.name, i, part["kind"], part, tuple(part["inputs"]), shapes, outputs[i]))
    return tuple(found)


def draw_values(label: str, shape: Shape) -> Floats:
    """Return normally distributed values that depend on nothing but a text and the shape."""
    return np.random.default_rng(crc32(label.encode())).normal(size=shape)


def drawn_parameters(piece: Piece) -> tuple[Any, Any]:
    """Return weights that keep the size of values, and a bias, by the name of the operator and the part."""
    if piece.part is None:
        name = piece.op
    else:
        name = f"{piece.op}[{piece.part}]"
    given = piece.given
    output = piece.output
    if piece.kind == "batch_norm":
        return 1.0 + 0.1 * draw_values(f"{name}.scale", output[1:2]), 0.1 * draw_values(f"{name}.shift", output[1:2])
    if piece.kind == "embedding":
        return draw_values(f"{name}.table", (given.get("rows", 1000), output[-1])), None
    if piece.kind not in _WEIGHTED:
        return draw_values(f"{name}.constant", ()), None
    fan_in = piece.shapes[0][-1]
    shape = (output[-1], fan_in)
    n_biases = output[-1]
    if piece.kind != "linear":
        n_biases = output[1]
        inward = piece.shapes[0][1]
        if piece.kind == "conv":
            ends = (n_biases, inward)
        else:
            ends = (inward, n_biases)
        shape = (ends[0], ends[1] // given.get("groups", 1), *given["kernel"])
        fan_in = inward // given.get("groups", 1) * prod(given["kernel"])
    bias = draw_values(f"{name}.bias", (n_biases,)) * bool(given.get("bias", True))
    return draw_values(f"{name}.weight", shape) / np.sqrt(fan_in), bias


def fit_to_shape(x: Any, shape: Shape) -> Any:
    """Return a tensor in another shape: its first elements, or all of them again and again."""
    if tuple(x.shape) == shape:
        return x
    flat = x.reshape(-1)
    n = prod(shape)
    if flat.numel() < n:
        flat = flat.repeat(-(-n // flat.numel()))
    return flat[:n].reshape(shape)
