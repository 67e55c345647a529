"""What a call of PyTorch costs: kind, work and attributes, as `workloads.models.network.Network` has them."""

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final

from workloads.costs import ACTIVATION_FLOPS, NOTHING, ROW_FLOPS, Cost, Costs, Work, keyed
from workloads.formats.torch_calls import COPIED_IF_SCATTERED, ELEMENTWISE, FILLS, MOVES, REDUCTIONS, VIEWS, Call, Shape

_FLOPS: Final = {"batch_norm": 2, **ACTIVATION_FLOPS}
_KINDS: Final = {kind.replace("_", ""): kind for kind in _FLOPS}
_CASTS: Final = ("to", "type", "typeas", "float", "half", "bfloat16", "double")


def cost_of(call: Call, costs: Costs) -> Cost | None:
    """Return what a call costs, or None if the operation is not known."""
    rule = RULES.get(call.key)
    return None if rule is None else rule(call, costs)


def unknown(call: Call, costs: Costs) -> Cost:
    """Return the cost of an operation that is not known: all its bytes and no FLOP."""
    return Cost(call.key, costs.elementwise(call.output.shape))


def _view(call: Call, costs: Costs) -> Cost:
    """Launch nothing, unless elements that do not lie one after the other have to be moved."""
    if call.key in COPIED_IF_SCATTERED and call.operands and not call.operands[0].contiguous:
        return _move(call, costs)
    return Cost("dropout" if "drop" in call.key else call.key, NOTHING, nbytes=0.0)


def _move(call: Call, costs: Costs) -> Cost:
    """Make a copy, which reads what it writes; a cast to the format there is already is none."""
    read, out = call.operands[0] if call.operands else call.output, call.output
    if call.key in _CASTS and read.dtype == out.dtype:
        return Cost("view", NOTHING, nbytes=0.0)
    indices = sum(x.nbytes for x in call.operands[1:] if x.dtype is None)
    nbytes = float(out.n * read.width) + out.nbytes + indices
    kind = "copy" if call.key in VIEWS or call.key in ("clone", *_CASTS[:3]) else call.key
    return Cost(kind, costs.elementwise(out.shape), nbytes=nbytes)


def _fill(call: Call, costs: Costs) -> Cost:
    return Cost("fill", costs.elementwise(call.output.shape), nbytes=call.output.nbytes)


def _elementwise(call: Call, costs: Costs) -> Cost:
    kind = _KINDS.get(call.key, call.key)
    return Cost(kind, costs.elementwise(call.output.shape, flops=_FLOPS.get(kind, 1)))


def _reduce(call: Call, costs: Costs) -> Cost:
    """Make one FLOP of each element that is read; the maximum of two tensors is no reduction."""
    if call.key in ELEMENTWISE and len(call.operands) != 1:
        return _elementwise(call, costs)
    work = costs.elementwise(call.output.shape)
    return Cost("reduce", work._replace(flops=float(call.operands[0].n)), {"reduction": call.key})


def _conv(call: Call, costs: Costs) -> Cost | None:
    x, weight = call.operands[:2]
    n_axes, window, settings = len(weight.shape) - 2, weight.shape[2:], call.settings
    if n_axes < 1:
        return None
    output, image = _batched(call.output.shape, n_axes), _batched(x.shape, n_axes)
    groups, bias = settings.get("groups", 1), len(call.operands) > 2
    attributes = {
        "kernel": window,
        "stride": _per_axis(settings.get("stride", 1), n_axes),
        "padding": _per_axis(settings.get("padding", 0), n_axes),
        "groups": groups,
        "out_channels": output[1],
    }
    dilation = _per_axis(settings.get("dilation", 1), n_axes)
    if dilation != (1,) * n_axes:
        attributes["dilation"] = dilation
    if call.key.startswith("convtranspose") or settings.get("transposed") is True:
        work = costs.conv_transpose(output, image, weight.shape, groups=groups, bias=bias)
        return Cost("conv_transpose", work, attributes | {"bias": bias})
    return Cost("conv", costs.conv(output, image[1], window, groups=groups, bias=bias), attributes)


def _linear(call: Call, costs: Costs) -> Cost:
    bias = len(call.operands) > 2
    return _by_weights(call, costs, call.operands[0].shape[-1], prod(call.output.shape[-1:]), bias=bias)


def _by_weights(call: Call, costs: Costs, k: int, n: int, *, bias: bool) -> Cost:
    attributes = {"in_features": k, "out_features": n, "bias": bias}
    return Cost("linear", costs.linear(call.output.n // n, k, n, bias=bias), attributes)


def _product(call: Call, costs: Costs) -> Cost:
    """Make a product of matrices; with a matrix of weights on the right it is "linear"."""
    a, b = call.operands[-2:]
    k = a.shape[-1]
    if b.is_weight and len(b.shape) == 2 and not a.is_weight:
        bias = len(call.operands) > 2 and call.operands[0].is_weight
        return _by_weights(call, costs, k, b.shape[1], bias=bias)
    n = b.shape[-1] if len(b.shape) > 1 else 1
    m = a.shape[-2] if len(a.shape) > 1 else 1
    return Cost("matmul", costs.matmul(max(1, call.output.n // (m * n)), m, k, n))


def _einsum(call: Call, costs: Costs) -> Cost | None:
    """Make a sum of products: a multiply-add for each value of all indices together."""
    equation = str(call.settings.get("equation", "")).replace(" ", "")
    terms = equation.partition("->")[0].split(",")
    if "." in equation or [len(term) for term in terms] != [len(x.shape) for x in call.operands]:
        return None
    sizes = {axis: size for term, x in zip(terms, call.operands, strict=True) for axis, size in zip(term, x.shape,
             strict=True)}  # fmt: skip
    n = call.output.shape[-1] if call.output.shape else 1
    rows = call.output.n // n
    return Cost("matmul", costs.matmul(1, rows, prod(sizes.values()) // max(1, call.output.n), n))


def _attention(call: Call, costs: Costs) -> Cost | None:
    """Make softmax(q k) v for all heads, as one kernel that writes no scores."""
    q, k, v = (x.shape for x in call.operands[:3])
    if min(len(q), len(k), len(v)) < 2:
        return None
    return _scores(costs, prod(q[:-2]), q[-2], k[-2], q[-1], v[-1])


def _scores(costs: Costs, batch: int, m: int, n: int, depth: int, width: int) -> Cost:
    work = costs.matmul(batch, m, depth + width, n)
    softmax = float(ROW_FLOPS["softmax"] * batch * m * n)
    return Cost("attention", Work(work.flops + softmax, 0, costs.matmul(batch, m, n, width).kernel))


def _multihead(call: Call, costs: Costs) -> Cost:
    """Make projections and attention in one: each matrix of weights is applied to each position once."""
    heads, embedding = call.settings["num_heads"], call.settings["embed_dim"]
    q, k = call.operands[0].shape, call.operands[1].shape
    axis = -2 if call.settings.get("batch_first") or len(q) == 2 else -3
    batch = prod(q[:-1]) // q[axis]
    inner = _scores(costs, batch * heads, q[axis], k[axis], embedding // heads, embedding // heads)
    matrices = sum(x.n for x in call.weights if len(x.shape) == 2)
    # a quarter of the weights each for queries, keys, values and output, of which half go by the number of keys
    flops = 2.0 * batch * matrices * (q[axis] + k[axis]) / 2
    return Cost("attention", inner.work._replace(flops=inner.work.flops + flops), {"num_heads": heads})


def _recurrent(call: Call, costs: Costs) -> Cost | None:
    """Make all steps of a recurrent network one operator, whose kernel is that of one step."""
    matrices = [x.shape for x in call.weights if len(x.shape) == 2]
    if not matrices or not call.inputs:
        return None
    x = call.inputs[0]
    steps_and_batch = x.n // x.shape[-1]
    state = call.outputs[-1].shape  # (layers and directions, batch, features)
    batch = state[-2] if len(state) > 2 else 1
    gates, features = matrices[0]
    kernel = costs.linear(batch, features, gates).kernel
    flops = 2.0 * steps_and_batch * sum(rows * columns for rows, columns in matrices)
    attributes = {"steps": steps_and_batch // batch, "hidden": state[-1]}
    return Cost(call.key, Work(flops, 0, kernel), attributes)


def _row_norm(call: Call, costs: Costs) -> Cost:
    """Make a normalisation over the last axes, or over the channels of each group."""
    shape, kind = call.output.shape, {"layernorm": "layer_norm", "rmsnorm": "rms_norm"}.get(call.key, "group_norm")
    if kind == "group_norm":
        rows = shape[0] * call.settings.get("num_groups", shape[1] if len(shape) > 1 else 1)
    else:
        over = call.settings.get("normalized_shape") or shape[-1:]
        rows = call.output.n // (over if isinstance(over, int) else prod(over))
    return Cost(kind, costs.rows((rows, call.output.n // max(1, rows)), flops=ROW_FLOPS[kind]))


def _softmax(call: Call, costs: Costs) -> Cost:
    shape, axis = call.output.shape or (1,), call.settings.get("dim")
    length = shape[axis if isinstance(axis, int) and -len(shape) <= axis < len(shape) else -1]
    return Cost("softmax", costs.rows((call.output.n // length, length), flops=ROW_FLOPS["softmax"]))


def _embedding(call: Call, costs: Costs) -> Cost:
    indices = sum(x.nbytes for x in call.inputs)
    table = next((x for x in call.weights if len(x.shape) == 2), call.output)
    attributes = {"rows": table.shape[0], "features": table.shape[-1]}
    return Cost("embedding", costs.elementwise(call.output.shape), attributes, 2.0 * call.output.nbytes + indices)


def _concat(call: Call, costs: Costs) -> Cost:
    axis = call.settings.get("dim", 0)
    if isinstance(axis, int) and axis < 0:
        axis += len(call.output.shape)
    return Cost("concat", costs.elementwise(call.output.shape), {"axis": axis})


def _pool(call: Call, costs: Costs) -> Cost:
    settings, output, n_axes = call.settings, call.output.shape, int(call.key[-2])
    pool, stride, padding = "max" if "max" in call.key else "avg", settings.get("stride"), settings.get("padding", 0)
    adaptive = call.key.startswith("adaptive")
    if adaptive:
        sizes = list(zip(call.operands[0].shape[-n_axes:], output[-n_axes:], strict=True))
        window: Any = tuple(-(-before // after) for before, after in sizes)
        whole = output[-n_axes:] == (1,) * n_axes
        pool, padding = f"global_{pool}" if whole else pool, 0
        stride = 1 if whole else tuple(before // after for before, after in sizes)
    else:
        window = _per_axis(settings.get("kernel_size", 1), n_axes)
    attributes = {
        "pool": pool,
        "kernel": window,
        "stride": _per_axis(stride or window, n_axes),
        "padding": _per_axis(padding, n_axes),
    }
    if settings.get("ceil_mode") and not adaptive:
        attributes["ceil_mode"] = True
    return Cost("pool", costs.pool(output, window), attributes)


def _batched(shape: Shape, n_axes: int) -> Shape:
    """Return the shape with a batch of 1 in front if it has no batch."""
    return shape if len(shape) > n_axes + 1 else (1, *shape)


def _per_axis(value: Any, n_axes: int) -> Any:
    """Return a setting as one number per axis; "same" and "valid" stay as they are."""
    if isinstance(value, str):
        return value
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * n_axes if len(values) == 1 else values


RULES: Final[Mapping[str, Callable[[Call, Costs], Cost | None]]] = MappingProxyType(
    dict.fromkeys(VIEWS, _view)
    | dict.fromkeys(MOVES, _move)
    | dict.fromkeys(FILLS, _fill)
    | dict.fromkeys((*ELEMENTWISE, *_KINDS), _elementwise)
    | dict.fromkeys(REDUCTIONS, _reduce)
    | keyed(
        {
            _conv: "conv1d conv2d conv3d convtranspose1d convtranspose2d convtranspose3d convolution",
            _product: "matmul mm bmm mv dot addmm baddbmm addbmm",
            _row_norm: "layernorm rmsnorm groupnorm instancenorm localresponsenorm",
            _recurrent: "lstm gru rnn",
            _linear: "linear",
            _einsum: "einsum",
            _attention: """
                scaleddotproductattention scaleddotproductflashattention scaleddotproductflashattentionforcpu
                scaleddotproductefficientattention
            """,
            _multihead: "multiheadattention",
            _softmax: "softmax logsoftmax",
            _pool: """
                maxpool1d maxpool2d maxpool3d adaptivemaxpool1d adaptivemaxpool2d adaptivemaxpool3d
                avgpool1d avgpool2d avgpool3d adaptiveavgpool1d adaptiveavgpool2d adaptiveavgpool3d
            """,
            _embedding: "embedding",
            _concat: "cat stack",
        }
    )
)
"""By `Call.key`, all that is known."""
