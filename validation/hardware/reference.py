"""Results of single operators, in numpy and float64: kernels on a device are held against them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import BackendError
from simsched.model.graph import Operator

Array = npt.NDArray[Any]
Given = Mapping[str, Any]
Own = Mapping[str, Array]
Parameters = Mapping[tuple[int | None, str], Array]
"""By part of a unit (None for an operator of one part) and name: "weight", "bias", "scale", "shift", "table"."""

TOLERANCE: Final = 1e-4
"""Largest difference over the largest value, in single precision and sums of some thousand terms."""

_EPSILON: Final = 1e-5
_ACTIVATIONS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "relu": lambda x: np.where(x > 0.0, x, 0.0),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
}


def error_of(op: Operator, inputs: Sequence[Array], parameters: Parameters, found: Array) -> float:
    """Return the largest difference of an output from its reference, relative to the reference's largest value.

    Parameters
    ----------
    op
        A single operator or a unit.
    inputs
        Its inputs, each of the shape in `input_shapes`.
    parameters
        Its parameters, of the shapes that its kernels need.
    found
        Its output, of any shape.

    Raises
    ------
    BackendError
        If there is no reference for an operator of its kind.
    """
    wide = [np.asarray(x, np.float64) for x in inputs]
    known = {key: np.asarray(value, np.float64) for key, value in parameters.items()}
    expected = _value(op, wide, known).ravel()
    return float(np.abs(found.ravel() - expected).max() / (np.abs(expected).max() or 1.0))


def _value(op: Operator, inputs: Sequence[Array], parameters: Parameters) -> Array:
    of_all = [~i for i in range(len(inputs))]
    shape = op.output_shape or ()
    whole = {**op.attributes, "kind": op.kind, "inputs": of_all, "output_shape": shape}
    parts: Mapping[int | None, Given] = dict(enumerate(op.attributes.get("parts", ()))) or {None: whole}
    made: list[Array] = []
    for number, part in parts.items():
        if (kind := part["kind"]) not in (*_VALUES, *_ACTIVATIONS):
            raise BackendError(f"there is no reference for operators of kind {kind!r}")
        reads = [inputs[~i] if i < 0 else made[i] for i in part["inputs"]]
        own = {name: value for (of, name), value in parameters.items() if of == number}
        output = tuple(part["output_shape"])
        value = _VALUES[kind](reads, part, own, output) if kind in _VALUES else _ACTIVATIONS[kind](reads[0])
        activation = part.get("activation")
        made.append(np.asarray(value if activation is None else _ACTIVATIONS[activation](value)))
    return made[-1]


def _windows(x: Array, kernel: Sequence[int], given: Given, fill: float, output: Sequence[int]) -> Array:
    """Return the pixels under the window at each output, shape (n, channels, height, width, *kernel)."""
    top, left = given["padding"]
    down, right = given["stride"]
    height, width = ((n - 1) * step + k for n, step, k in zip(output, (down, right), kernel, strict=True))
    padded = np.full((*x.shape[:2], max(height, x.shape[2] + 2 * top), max(width, x.shape[3] + 2 * left)), fill)
    padded[:, :, top : top + x.shape[2], left : left + x.shape[3]] = x
    seen = np.lib.stride_tricks.sliding_window_view(padded, tuple(kernel), axis=(2, 3))
    seen = seen[:, :, ::down, ::right][:, :, : output[0], : output[1]]
    return np.asarray(seen)


def _convolution(xs: Sequence[Array], given: Given, own: Own, output: tuple[int, ...]) -> Array:
    x = xs[0]
    weight = own["weight"]
    groups = given["groups"]
    seen = _windows(x, weight.shape[2:], given, 0.0, output[2:])
    seen = seen.reshape(seen.shape[0], groups, -1, *seen.shape[2:])
    weights = weight.reshape(groups, -1, *weight.shape[1:])
    found = np.einsum("ngchwij,gocij->ngohw", seen, weights, optimize=True)
    return np.asarray(found.reshape(x.shape[0], -1, *output[2:]) + _by_channel(own.get("bias", np.zeros(1))))


def _pool(xs: Sequence[Array], given: Given, _own: Own, output: tuple[int, ...]) -> Array:
    if given["pool"].startswith("global"):
        return np.asarray(xs[0].mean(axis=(2, 3), keepdims=True))
    largest = given["pool"] == "max"
    seen = _windows(xs[0], given["kernel"], given, -np.inf if largest else 0.0, output[2:])
    return np.asarray(seen.max(axis=(4, 5)) if largest else seen.mean(axis=(4, 5)))


def _by_channel(values: Array) -> Array:
    return values.reshape(1, -1, 1, 1)


def _normed(x: Array, own: Own) -> Array:
    value = x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + _EPSILON)
    return np.asarray(value * own["scale"] + own.get("shift", 0.0))


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _embedding(x: Array, own: Own, rows: int) -> Array:
    found = np.floor(np.abs(x.astype(np.float32)) * np.float32(1024.0)).astype(np.int64)
    return np.asarray(own["table"][found % rows])


_VALUES: Final[Mapping[str, Callable[[Sequence[Array], Given, Own, tuple[int, ...]], Array]]] = {
    "conv": _convolution,
    "pool": _pool,
    "linear": lambda xs, _given, own, _: np.einsum("...i,oi->...o", xs[0], own["weight"]) + own.get("bias", 0.0),
    "matmul": lambda xs, _given, _own, _: np.einsum("...ik,...kj->...ij", *xs),
    "add": lambda xs, _given, _own, _: np.sum(xs, axis=0),
    "mul": lambda xs, _given, _own, _: np.prod(xs, axis=0),
    "concat": lambda xs, given, _own, _: np.concatenate(xs, axis=given["axis"]),
    "batch_norm": lambda xs, _given, own, _: xs[0] * _by_channel(own["scale"]) + _by_channel(own["shift"]),
    "layer_norm": lambda xs, _given, own, _: _normed(xs[0] - xs[0].mean(axis=-1, keepdims=True), own),
    "rms_norm": lambda xs, _given, own, _: _normed(xs[0], own),
    "softmax": lambda xs, _given, _own, _: _softmax(xs[0]),
    "reduce_sum": lambda xs, _given, _own, _: xs[0].sum(axis=-1, keepdims=True),
    "embedding": lambda xs, given, own, _: _embedding(xs[0], own, given["rows"]),
    "copy": lambda xs, _given, _own, _: xs[0],
}
"""Per kind: the value of the inputs, attributes, parameters, and the shape of the output."""
