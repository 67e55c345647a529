"""The calls of PyTorch by kind of operator: convolutions, products, pools, normalisations, elementwise."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, Final

from hwbackend.torch.pieces import Call, Piece
from simsched.base.errors import BackendError

Make = Callable[[Any, Piece, Any, Any], Call]
"""From PyTorch, a piece, its weights and its bias to what computes it."""

_EPSILON: Final = 1e-5
_INDEX_SCALE: Final = 1024.0  # an index is floor(abs(x) * 1024), modulo the rows of the table
_ACTIVATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "relu": "relu",
        "relu6": "relu6",
        "leaky_relu": "leaky_relu",
        "hard_sigmoid": "hardsigmoid",
        "sigmoid": "sigmoid",
        "tanh": "tanh",
        "silu": "silu",
        "hard_swish": "hardswish",
        "elu": "elu",
        "selu": "selu",
        "softplus": "softplus",
        "mish": "mish",
        "prelu": "leaky_relu",
        "gelu": "gelu",
    }
)
"""By the names of `torch.nn.functional`; a graph does not say the slope of a prelu."""


def activation(torch: Any, kind: str) -> Callable[[Any], Any]:
    """Return an activation; a kind that is none is refused."""
    if kind not in _ACTIVATIONS:
        raise BackendError(f"unknown activation {kind!r}; known are: {', '.join(_ACTIVATIONS)}")
    found = getattr(torch.nn.functional, _ACTIVATIONS[kind])
    if kind == "gelu":
        return partial(found, approximate="tanh")
    return partial(found)


def _activation(torch: Any, piece: Piece, _weight: Any, _bias: Any) -> Call:
    found = activation(torch, piece.kind)
    return lambda xs: found(xs[0])


def _conv(torch: Any, piece: Piece, weight: Any, bias: Any) -> Call:
    given = piece.given
    n_axes = weight.dim() - 2
    function = getattr(torch.nn.functional, f"conv{n_axes}d")
    stride = _plain(given["stride"])
    padding = _plain(given["padding"])
    dilation = _plain(given.get("dilation", (1,) * n_axes))
    groups = given.get("groups", 1)
    return lambda xs: function(xs[0], weight, bias, stride, padding, dilation, groups)


def _conv_transpose(torch: Any, piece: Piece, weight: Any, bias: Any) -> Call:
    given = piece.given
    n_axes = weight.dim() - 2
    function = getattr(torch.nn.functional, f"conv_transpose{n_axes}d")
    stride = _plain(given["stride"])
    padding = _plain(given["padding"])
    dilation = _plain(given.get("dilation", (1,) * n_axes))
    groups = given.get("groups", 1)
    reach = [
        (size - 1) * s - 2 * p + d * (k - 1) + 1
        for size, s, p, d, k in zip(piece.shapes[0][2:], stride, padding, dilation, weight.shape[2:], strict=True)
    ]
    more = tuple(out - least for out, least in zip(piece.output[2:], reach, strict=True))
    return lambda xs: function(xs[0], weight, bias, stride, padding, more, groups, dilation)


def _linear(torch: Any, _piece: Piece, weight: Any, bias: Any) -> Call:
    return lambda xs: torch.nn.functional.linear(xs[0], weight, bias)


def _batch_norm(torch: Any, _piece: Piece, weight: Any, bias: Any) -> Call:
    mean = torch.zeros_like(weight)
    spread = torch.full_like(weight, 1.0 - _EPSILON)
    return lambda xs: torch.nn.functional.batch_norm(xs[0], mean, spread, weight, bias, eps=_EPSILON)


def _matmul(torch: Any, _piece: Piece, _weight: Any, _bias: Any) -> Call:
    return lambda xs: torch.matmul(xs[0], xs[1])


def _attention(torch: Any, piece: Piece, _weight: Any, _bias: Any) -> Call:
    if len(piece.reads) != 3:
        raise BackendError(f"operator {piece.op!r}: attention of other than queries, keys and values has no call")
    return lambda xs: torch.nn.functional.scaled_dot_product_attention(*xs)


def _pool(torch: Any, piece: Piece, _weight: Any, _bias: Any) -> Call:
    """Make a pool; an average counts the whole window, also where it is padding or beyond the image."""
    given = piece.given
    functional = torch.nn.functional
    kernel, stride, padding = (_plain(given[key]) for key in ("kernel", "stride", "padding"))
    image = piece.shapes[0][2:]
    output = piece.output[2:]
    n_axes = len(kernel)
    is_max = "max" in given["pool"]
    if kernel == tuple(image) and not any(padding):
        name = f"adaptive_{'max' if is_max else 'avg'}_pool{n_axes}d"
        whole = getattr(functional, name)
        return lambda xs: whole(xs[0], 1)
    behind = [
        (out - 1) * s + k - size - p for out, s, k, size, p in zip(output, stride, kernel, image, padding, strict=True)
    ]
    own = all(b <= p and 2 * p <= k for b, p, k in zip(behind, padding, kernel, strict=True))  # PyTorch pads by itself
    margins = [m for p, b in zip(reversed(padding), reversed(behind), strict=True) for m in (p, max(0, b))]
    inner = padding if own else (0,) * n_axes
    if is_max:
        pool = partial(getattr(functional, f"max_pool{n_axes}d"), kernel_size=kernel, stride=stride, padding=inner)
    else:
        pool = partial(getattr(functional, f"avg_pool{n_axes}d"), kernel_size=kernel, stride=stride, padding=inner)
    if own:
        return lambda xs: pool(xs[0])
    fill = float("-inf") if is_max else 0.0
    return lambda xs: pool(functional.pad(xs[0], margins, value=fill))


def _concat(torch: Any, piece: Piece, _weight: Any, _bias: Any) -> Call:
    axis = piece.given["axis"]
    return lambda xs: torch.cat(list(xs), axis)


def _add(torch: Any, piece: Piece, weight: Any, _bias: Any) -> Call:
    if len(piece.reads) == 1:
        return lambda xs: torch.add(xs[0], weight)
    return lambda xs: reduce(torch.add, xs)


def _mul(torch: Any, piece: Piece, weight: Any, _bias: Any) -> Call:
    if len(piece.reads) == 1:
        factor = piece.given.get("factor", weight)
        return lambda xs: torch.mul(xs[0], factor)
    return lambda xs: reduce(torch.mul, xs)


def _sub(torch: Any, piece: Piece, weight: Any, _bias: Any) -> Call:
    if len(piece.reads) == 1:
        return lambda xs: torch.sub(weight, xs[0])
    return lambda xs: torch.sub(xs[0], xs[1])


def _square(torch: Any, _piece: Piece, _weight: Any, _bias: Any) -> Call:
    return lambda xs: torch.square(xs[0])


def _reduce_sum(_torch: Any, piece: Piece, _weight: Any, _bias: Any) -> Call:
    shape = piece.output
    return lambda xs: xs[0].reshape(*shape, -1).sum(-1)


def _softmax(torch: Any, _piece: Piece, _weight: Any, _bias: Any) -> Call:
    return lambda xs: torch.softmax(xs[0], -1)


def _layer_norm(torch: Any, piece: Piece, _weight: Any, _bias: Any) -> Call:
    size = piece.shapes[0][-1:]
    return lambda xs: torch.nn.functional.layer_norm(xs[0], size, eps=_EPSILON)


def _embedding(torch: Any, piece: Piece, weight: Any, _bias: Any) -> Call:
    rows = weight.shape[0]

    def look_up(xs: Sequence[Any]) -> Any:
        index = (xs[0].abs() * _INDEX_SCALE).nan_to_num(0.0).long().remainder(rows)
        return torch.nn.functional.embedding(index, weight).reshape(piece.output)

    return look_up


def _plain(sizes: Any) -> Any:
    """Return one number per axis as PyTorch takes them; "same" and "valid" stay."""
    if isinstance(sizes, str):
        return sizes
    return tuple(sizes)


KINDS: Final[Mapping[str, Make]] = MappingProxyType(
    {
        "conv": _conv,
        "conv_transpose": _conv_transpose,
        "linear": _linear,
        "matmul": _matmul,
        "attention": _attention,
        "pool": _pool,
        "batch_norm": _batch_norm,
        "layer_norm": _layer_norm,
        "rms_norm": _layer_norm,
        "softmax": _softmax,
        "concat": _concat,
        "add": _add,
        "mul": _mul,
        "sub": _sub,
        "square": _square,
        "reduce_sum": _reduce_sum,
        "embedding": _embedding,
    }
    | dict.fromkeys(_ACTIVATIONS, _activation)
)
