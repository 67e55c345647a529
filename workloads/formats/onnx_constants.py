"""Arithmetic on the small constants of an ONNX graph: what shapes, axes and pads are computed from."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from workloads.formats.onnx_tensors import Array, numbers_of, numpy_type

Inputs = Sequence[Array]
Attributes = Mapping[str, Any]


def evaluate(op_type: str, inputs: Inputs, attributes: Attributes, elem: int) -> Array | None:
    """Return what an operator makes of small constants, or None if that is not known.

    Parameters
    ----------
    op_type
        Name in ONNX's own operator set; the versions of an operator are told apart by where its
        parameters stand, among the inputs or the attributes.
    inputs
        All inputs that are given, in order.
    elem
        Element type of the output.
    """
    rule, kind = RULES.get(op_type), numpy_type(elem)
    if rule is None or kind is None:
        return None
    try:
        with np.errstate(all="ignore"):
            return np.asarray(rule(inputs, attributes)).astype(kind)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError):
        return None  # the shapes do not fit together; who reads the result says so


def _axes(inputs: Inputs, attributes: Attributes, place: int) -> tuple[int, ...] | None:
    """Return axes given as an input or, in older operator sets, as an attribute."""
    axes = inputs[place].reshape(-1).tolist() if len(inputs) > place else attributes.get("axes")
    return None if axes is None else tuple(axes)


def _divide(inputs: Inputs, _attributes: Attributes) -> Array:
    a, b = inputs
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    quotient, rest = np.divmod(a, b)  # rounds down, and ONNX towards zero
    return np.asarray(quotient + ((rest != 0) & ((a < 0) != (b < 0))))


def _slice(inputs: Inputs, attributes: Attributes) -> Array:
    x, parts = inputs[0], [part.reshape(-1).tolist() for part in inputs[1:]]
    if len(inputs) == 1:
        parts = [list(attributes["starts"]), list(attributes["ends"])]
        parts += [list(attributes["axes"])] if "axes" in attributes else []
    starts, ends = parts[:2]
    axes = parts[2] if len(parts) > 2 else range(len(starts))
    steps = parts[3] if len(parts) > 3 else [1] * len(starts)
    cut = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cut[axis] = slice(start, end, step)
    return x[tuple(cut)]


def _reshape(inputs: Inputs, attributes: Attributes) -> Array:
    x, sizes = inputs[0], inputs[1].tolist()
    if not attributes.get("allowzero"):
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return x.reshape(sizes)


def _unsqueeze(inputs: Inputs, attributes: Attributes) -> Array:
    return np.expand_dims(inputs[0], _axes(inputs, attributes, 1) or ())


def _filled(inputs: Inputs, attributes: Attributes) -> Array:
    value = numbers_of(attributes["value"]) if "value" in attributes else np.zeros(1, np.float32)
    assert value is not None or "value" in attributes
    return np.full(tuple(inputs[0].tolist()), np.asarray(value).reshape(-1)[0])


def _reduce(function: Callable[..., Any]) -> Callable[[Inputs, Attributes], Any]:
    def rule(inputs: Inputs, attributes: Attributes) -> Any:
        return function(inputs[0], axis=_axes(inputs, attributes, 1), keepdims=bool(attributes.get("keepdims", 1)))

    return rule


def _plain(function: Callable[..., Any]) -> Callable[[Inputs, Attributes], Any]:
    return lambda inputs, _attributes: function(*inputs)


def _folded(function: Callable[[Any, Any], Any]) -> Callable[[Inputs, Attributes], Any]:
    def rule(inputs: Inputs, _attributes: Attributes) -> Any:
        result = inputs[0]
        for x in inputs[1:]:
            result = function(result, x)
        return result

    return rule


RULES: Final[Mapping[str, Callable[[Inputs, Attributes], Any]]] = {
    "Abs": _plain(np.abs),
    "Add": _plain(np.add),
    "And": _plain(np.logical_and),
    "Cast": _plain(np.asarray),
    "Ceil": _plain(np.ceil),
    "Concat": lambda xs, a: np.concatenate(xs, axis=a["axis"]),
    "ConstantOfShape": _filled,
    "Div": _divide,
    "Equal": _plain(np.equal),
    "Expand": lambda xs, _: np.broadcast_to(xs[0], np.broadcast_shapes(xs[0].shape, tuple(xs[1].tolist()))),
    "Floor": _plain(np.floor),
    "Gather": lambda xs, a: np.take(xs[0], xs[1], axis=a.get("axis", 0)),
    "Greater": _plain(np.greater),
    "GreaterOrEqual": _plain(np.greater_equal),
    "Identity": _plain(np.asarray),
    "Less": _plain(np.less),
    "LessOrEqual": _plain(np.less_equal),
    "Max": _folded(np.maximum),
    "Min": _folded(np.minimum),
    "Mod": lambda xs, a: (np.fmod if a.get("fmod") else np.mod)(xs[0], xs[1]),
    "Mul": _plain(np.multiply),
    "Neg": _plain(np.negative),
    "NonZero": lambda xs, _: np.stack(np.nonzero(xs[0])),
    "Not": _plain(np.logical_not),
    "Or": _plain(np.logical_or),
    "Pow": _plain(np.power),
    "Range": _plain(np.arange),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "Round": _plain(np.round),
    "Slice": _slice,
    "Sqrt": _plain(np.sqrt),
    "Squeeze": lambda xs, a: np.squeeze(xs[0], _axes(xs, a, 1)),
    "Sub": _plain(np.subtract),
    "Tile": lambda xs, _: np.tile(xs[0], xs[1].tolist()),
    "Transpose": lambda xs, a: np.transpose(xs[0], a.get("perm")),
    "Unsqueeze": _unsqueeze,
    "Where": _plain(np.where),
}
"""What is computed, for operators whose result has as many numbers as inference says, or (NonZero) no more
than a few times those of its input. `ScatterND` and the like are not: no exporter needs them for a shape."""
