"""Costs of calls of PyTorch: kind, works and attributes, as `workloads.models.network.Network` has them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log2, prod
from types import MappingProxyType
from typing import Any, Final

from simsched.model.graph import UNKNOWN, Work
from workloads.costs import ACTIVATION_FLOPS, ELEMENT_FLOPS, GATES, Cost, Costs, by_word, conv_layout
from workloads.equations import axes_of
from workloads.formats.torch.calls import (
    CHOICES,
    COPIED_IF_SCATTERED,
    ELEMENTWISE,
    FILLS,
    MOVES,
    PICKS,
    PUTS,
    READ_WHOLE,
    REDUCTIONS,
    TRANSCENDENTAL,
    VIEWS,
    Call,
    Operand,
    Shape,
)

_KINDS: Final = {kind.replace("_", ""): kind for kind in ACTIVATION_FLOPS}
_CASTS: Final = ("to", "type", "typeas", "float", "half", "bfloat16", "double")
_SHUFFLING: Final = ("pixelshuffle", "pixelunshuffle", "channelshuffle", "im2col", "unfold")
_PERMUTING: Final = (*COPIED_IF_SCATTERED, *_SHUFFLING)
_SCANS: Final = ("cumsum", "cumprod", "normalize")


def cost_of(call: Call, costs: Costs) -> Cost | None:
    """Return the cost of a call, or None if the operation is unknown."""
    rule = RULES.get(call.key)
    if rule is None and call.key.removeprefix("foreach") in ELEMENTWISE:  # one kernel for many tensors
        return Cost(call.key, (costs.elementwise((sum(x.n for x in call.outputs),), flops=1),))
    if rule is None:
        return None
    return rule(call, costs)


def unknown(call: Call, costs: Costs) -> Cost:
    """Return the cost of an operation that is not known: all its bytes and no FLOP."""
    return Cost(call.key, (costs.elementwise(call.output.shape),), {UNKNOWN: call.key})


def _view(call: Call, costs: Costs) -> Cost:
    """Launch nothing, unless elements that do not lie one after the other have to be moved."""
    if call.operands:
        read = call.operands[0]
        out = call.output
        scattered = call.key in COPIED_IF_SCATTERED and not read.contiguous
        if read.strides != out.strides if call.key == "contiguous" else scattered:
            return _move(call, costs)
    return Cost("dropout" if "drop" in call.key else call.key)


def _move(call: Call, costs: Costs) -> Cost:
    """Return the cost of a copy, which reads no more than it writes; a cast to the same format is not a copy."""
    if call.operands:
        read = call.operands[0]
    else:
        read = call.output
    out = call.output
    if call.in_place and len(call.operands) > 1:
        read = call.operands[1]  # `copy_` writes to the first
        if read.place is not None and read[:4] == out[:4] and read.place == out.place:
            return Cost("view")  # as the end of `y[:, 0] += p`, where all is in place
    if call.key in _CASTS and (read.dtype, read.strides) == (out.dtype, out.strides):
        return Cost("view")
    indices = sum(x.nbytes for x in call.operands[1:] if x.dtype is None and x is not read)
    if call.key in _PERMUTING or (read.n == out.n and read.strides != out.strides):
        in_rows = call.key not in _SHUFFLING and read.strides[-1:] == out.strides[-1:] == (1,)
        work = costs.regroup(out.shape, in_rows=in_rows)
    else:
        resizes = call.key.startswith("upsample") or call.key == "interpolate"
        work = costs.elementwise(out.shape, rule="upsample" if resizes else "copy")
    if call.key in READ_WHOLE:
        n_read = read.n_stored
    else:
        n_read = min(out.n, read.n_stored)
    work = replace(work, reads=float(n_read * read.width) + indices, writes=_nbytes(call.outputs))
    if call.key in VIEWS or call.key in ("clone", *_CASTS[:3]):
        kind = "copy"
    else:
        kind = call.key
    return Cost(kind, (work,), is_counted=True)


def _pick(call: Call, costs: Costs) -> Cost:
    """Read rows, or single elements, that indices number: these and no others."""
    out = call.output
    indices = _indices(call)
    if call.key in ("gather", "take"):
        n = out.n
    else:
        n = _broadcast(indices)
    length = out.n // n if n and out.n % n == 0 else 1
    work = costs.moved_rows(out.n // length, length)
    return Cost(call.key, (replace(work, reads=out.nbytes + _nbytes(indices), writes=out.nbytes),), is_counted=True)


def _put(call: Call, costs: Costs) -> Cost:
    """Write rows, or single elements, that indices number; unless in place to a copy of all."""
    target = call.operands[0]
    indices = _indices(call)
    values = [x for x in call.operands[1:] if x.dtype is not None]
    n = _broadcast(indices)
    length = 1
    if call.key == "indexput":
        numbered = call.settings.get("indices")
        if isinstance(numbered, list | tuple):
            axes = len(numbered)
        else:
            axes = 1
        length = prod(target.shape[axes:])
    elif call.key.startswith("index"):
        axis = call.settings.get("dim", 0)
        if isinstance(axis, int):
            length = target.n // target.shape[axis]
        else:
            length = 1
    written = float(min(n * length, target.n) * target.width)  # a row that is written twice is in the cache
    adds = call.key.endswith(("add", "reduce")) or call.settings.get("accumulate") is True
    touched = replace(
        costs.moved_rows(n, max(1, length)),
        flops=float(n * length) if adds else 0.0,
        reads=_nbytes(values) + _nbytes(indices) + (written if adds else 0.0),
        writes=written,
    )
    if call.in_place:
        return Cost(call.key, (touched,), is_counted=True)
    whole = replace(costs.elementwise(target.shape, rule="copy"), reads=target.nbytes, writes=call.output.nbytes)
    return Cost(call.key, (whole, touched), is_counted=True)


def _indices(call: Call) -> list[Operand]:
    return [x for x in call.operands[1:] if x.dtype is None]


def _nbytes(operands: Sequence[Operand]) -> float:
    return sum((x.nbytes for x in operands), 0.0)


def _broadcast(operands: Sequence[Operand]) -> int:
    """Return how many elements tensors have that are brought to one shape."""
    rank = max((len(x.shape) for x in operands), default=0)
    shapes = [(1,) * (rank - len(x.shape)) + x.shape for x in operands]
    return prod(max(sizes) for sizes in zip(*shapes, strict=True))


def _fill(call: Call, costs: Costs) -> Cost:
    work = replace(costs.elementwise(call.output.shape), writes=call.output.nbytes)
    return Cost("fill", (work,), is_counted=True)


def _elementwise(call: Call, costs: Costs) -> Cost:
    kind = _KINDS.get(call.key, call.key)
    out = call.output
    if kind in ACTIVATION_FLOPS:
        work = costs.activation(kind, out.shape)
    else:
        flops = ELEMENT_FLOPS.get(call.key, 1)
        work = costs.elementwise(out.shape, flops=flops, rule="activation" if call.key in TRANSCENDENTAL else "map")
    if any(_needs_arithmetic(x, out) for x in call.operands):
        work = replace(work, rule="channels")
    return Cost(kind, (work,))


def _needs_arithmetic(x: Operand, out: Operand) -> bool:
    """Say whether an input lies otherwise than the output, so that a kernel works out where each element is."""
    return x.n not in (1, out.n) or (x.n > 1 and x.contiguous != out.contiguous)


def _batch_norm(call: Call, costs: Costs) -> Cost:
    return Cost("batch_norm", (costs.batch_norm(call.output.shape),))


def _reduce(call: Call, costs: Costs) -> Cost:
    """Return one FLOP per element that is read; the maximum of two tensors is not a reduction."""
    if call.key in ELEMENTWISE and len(call.operands) != 1:
        return _elementwise(call, costs)
    read = call.operands[0]
    out = call.output
    attributes = {"reduction": call.key}
    if call.key in _SCANS:
        axis = call.settings.get("dim", call.settings.get("argument 1", -1))
        if isinstance(axis, int) and -len(read.shape) <= axis < len(read.shape):
            length = read.shape[axis]
        else:
            length = 1
        return Cost("reduce", (costs.rows("layer_norm", out.n // length, length, flops=float(read.n)),), attributes)
    picks = call.key.startswith("arg") or len(call.outputs) > 1
    work = costs.reduction(out.n, -(-read.n // out.n), flops=float(read.n), rule="argmax" if picks else "sum")
    return Cost("reduce", (work,), attributes)


def _conv(call: Call, costs: Costs) -> Cost | None:
    x, weight = call.operands[:2]
    n_axes = len(weight.shape) - 2
    window = weight.shape[2:]
    settings = call.settings
    if n_axes < 1:
        return None
    output = _with_batch(call.output.shape, n_axes)
    image = _with_batch(x.shape, n_axes)
    groups = settings.get("groups", 1)
    bias = len(call.operands) > 2
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
    layout = conv_layout(attributes["stride"], attributes["padding"], dilation)
    if x.channels_last or weight.channels_last:
        layout = "channels_last"
    if call.key.startswith("convtranspose") or settings.get("transposed") is True:
        if layout == "channels_last":
            layout = layout
        else:
            layout = "strided"
        work = costs.conv_transpose(
            output, image, weight.shape, groups=groups, bias=bias, adds_bias=bias, layout=layout
        )
        return Cost("conv_transpose", (work,), attributes | {"bias": bias})
    work = costs.conv(output, image, window, groups=groups, bias=bias, adds_bias=bias, layout=layout)
    return Cost("conv", (work,), attributes)


def _linear(call: Call, costs: Costs) -> Cost:
    bias = len(call.operands) > 2
    return _by_weights(call, costs, call.operands[0].shape[-1], prod(call.output.shape[-1:]), bias=bias)


def _by_weights(call: Call, costs: Costs, k: int, n: int, *, bias: bool) -> Cost:
    attributes = {"in_features": k, "out_features": n, "bias": bias}
    return Cost("linear", (costs.linear(call.output.n // n, k, n, bias=bias, adds_bias=bias),), attributes)


def _product(call: Call, costs: Costs) -> Cost:
    """Make a product of matrices; with a matrix of weights on the right it is "linear"."""
    a, b = call.operands[-2:]
    k = a.shape[-1]
    if b.is_weight and len(b.shape) == 2 and not a.is_weight:
        bias = len(call.operands) > 2 and call.operands[0].is_weight
        return _by_weights(call, costs, k, b.shape[1], bias=bias)
    n = b.shape[-1] if len(b.shape) > 1 else 1
    m = a.shape[-2] if len(a.shape) > 1 else 1
    if len(b.shape) < 3:  # one matrix for a whole stack makes one product of many rows
        return Cost("matmul", (costs.matmul(1, max(1, call.output.n // n), k, n),))
    return Cost("matmul", (costs.matmul(max(1, call.output.n // (m * n)), m, k, n),))


def _scaled_product(call: Call, costs: Costs) -> Cost:
    """Return the cost of a product whose scales follow its two matrices in the arguments."""
    return _product(replace(call, operands=call.operands[:2]), costs)


def _packed_product(call: Call, costs: Costs) -> Cost:
    """Return the cost of a product with a matrix of packed whole numbers, in the format of the other matrix."""
    rows = call.output.n // call.output.shape[-1]
    columns = call.output.shape[-1]
    return Cost("linear", (costs.linear(rows, call.operands[0].shape[-1], columns, bias=False),))


def _bilinear(call: Call, costs: Costs) -> Cost:
    """Make a product of each pair of features of two inputs with a matrix for each output."""
    columns = call.output.shape[-1]
    inner = call.operands[0].shape[-1] * call.operands[1].shape[-1]
    return Cost("linear", (costs.linear(call.output.n // columns, inner, columns, bias=len(call.weights) > 1),))


def _fft(call: Call, costs: Costs) -> Cost:
    """Make a Fourier transform of 5 n log2(n) FLOP for n complex numbers, half of them where one side is real."""
    x = call.operands[0]
    axes = call.settings.get("dim", (-1,))
    read = x if x.n >= call.output.n else call.output
    if isinstance(axes, list | tuple):
        length = prod(read.shape[axis] for axis in axes)
    else:
        length = read.shape[-1]
    flops = 5.0 * log2(max(2, length)) * (1.0 if call.key == "fftc2c" else 0.5)
    return Cost("fft", (costs.elementwise(read.shape, flops=flops, rule="permute"),))


def _sample(call: Call, costs: Costs) -> Cost:
    """Make a bilinear sample for each output."""
    return Cost("grid_sample", (costs.elementwise(call.output.shape, flops=8, rule="upsample"),))


def _einsum(call: Call, costs: Costs) -> Cost | None:
    """Make a sum of products: products of two tensors at a time, in the best order."""
    equation = str(call.settings.get("equation", "")).replace(" ", "")
    inputs, arrow, result = equation.partition("->")
    terms = [axes_of(term, len(x.shape)) for term, x in zip(inputs.split(","), call.operands, strict=True)]
    sizes: dict[str, int] = {}
    for term, x in zip(terms, call.operands, strict=True):
        for axis, size in zip(term, x.shape, strict=True):
            sizes[axis] = max(size, sizes.get(axis, 1))
    if arrow:
        output = axes_of(result, len(call.output.shape))
    else:
        joined = [axis for term in terms for axis in term]
        output = tuple(sorted(axis for axis in sizes if axis.startswith(".") or joined.count(axis) == 1))
    works = costs.einsum(terms, output, sizes)
    return Cost("matmul" if len(terms) > 1 else "einsum", works)


def _attention(call: Call, costs: Costs) -> Cost | None:
    """Make softmax(q k) v for all heads, as one kernel that writes no scores."""
    q, k, v = (x.shape for x in call.operands[:3])
    if min(len(q), len(k), len(v)) < 2:
        return None
    return Cost("attention", (costs.attention(prod(q[:-2]), q[-2], k[-2], q[-1], v[-1]),))


def _multihead(call: Call, costs: Costs) -> Cost:
    """Make projections and attention: queries, keys and values of one tensor by one product, and of others by more."""
    heads = call.settings["num_heads"]
    embedding = call.settings["embed_dim"]
    q, k, v = (x.shape for x in call.operands[:3])
    if call.settings.get("batch_first") or len(q) == 2:
        axis = -2
    else:
        axis = -3
    batch = prod(q[:-1]) // q[axis]
    n_queries = batch * q[axis]
    n_keys = batch * k[axis]
    bias = any(len(x.shape) == 1 for x in call.weights)
    if q == k == v:
        sizes = [(n_queries, embedding, 3 * embedding)]
    else:
        sizes = [(n_queries, embedding, embedding), (n_keys, k[-1], embedding), (n_keys, v[-1], embedding)]
    inputs = [costs.linear(*size, bias=bias, adds_bias=bias) for size in sizes]
    inner = costs.attention(batch * heads, q[axis], k[axis], embedding // heads)
    output = costs.linear(n_queries, embedding, embedding, bias=bias, adds_bias=bias)
    return Cost("attention", _in_a_row([*inputs, inner, output], costs), {"num_heads": heads})


def _in_a_row(works: Sequence[Work], costs: Costs) -> tuple[Work, ...]:
    """Return works of which each except the last is read by a later one: products and attention."""
    row = []
    waiting = 0.0
    for i, work in enumerate(works):
        if work.family == "attention" or i == len(works) - 1:
            reads = waiting
        else:
            reads = 0.0
        if work.family == "attention":
            size = work.inner
        else:
            size = work.columns
        if i == len(works) - 1:
            written = 0.0
        else:
            written = float(work.batch * work.rows * size * costs.width)
        row.append(replace(work, reads=reads, writes=written))
        waiting += written - reads
    return tuple(row)


def _recurrent(call: Call, costs: Costs) -> Cost | None:
    """Make the layers of a recurrent network one work each, a chain of steps, and both directions beside each other."""
    matrices = [x.shape for x in call.weights if len(x.shape) == 2]
    if not matrices or not call.inputs:
        return None
    x = call.inputs[0]
    state = call.outputs[-1].shape  # (layers and directions, batch, features)
    batch = state[-2] if len(state) > 2 else 1
    steps = x.n // x.shape[-1] // batch
    if call.settings.get("bidirectional"):
        directions = 2
    else:
        directions = 1
    n_layers = max(1, state[0] // directions)
    per_layer = len(matrices) // n_layers
    works = []
    for layer in range(n_layers):
        own = matrices[layer * per_layer : (layer + 1) * per_layer]
        gates, features = own[0]
        hidden = gates // GATES[call.key]
        work = costs.recurrence(call.key, steps, batch, features, hidden, directions=directions)
        n_weights = sum(prod(shape) for shape in own)  # with a projection of the state, where there is one
        written = float(steps * batch * directions * state[-1] * costs.width)
        work = replace(work, flops=2.0 * steps * batch * n_weights, weights=float(n_weights * costs.width))
        works.append(replace(work, reads=written * (layer > 0), writes=written * (layer < n_layers - 1)))
    return Cost(call.key, tuple(works), {"steps": steps, "hidden": state[-1]})


def _row_norm(call: Call, costs: Costs) -> Cost:
    """Make a normalisation over the last axes, or over the channels of each group."""
    shape = call.output.shape
    kind = {"layernorm": "layer_norm", "rmsnorm": "rms_norm"}.get(call.key, "group_norm")
    if kind == "group_norm":
        rows = shape[0] * call.settings.get("num_groups", shape[1] if len(shape) > 1 else 1)
    else:
        over = call.settings.get("normalized_shape") or shape[-1:]
        rows = call.output.n // (over if isinstance(over, int) else prod(over))
    return Cost(kind, (costs.rows(kind, rows, call.output.n // max(1, rows)),))


def _softmax(call: Call, costs: Costs) -> Cost:
    shape = call.output.shape or (1,)
    axis = call.settings.get("dim")
    length = shape[axis if isinstance(axis, int) and -len(shape) <= axis < len(shape) else -1]
    return Cost("softmax", (costs.rows("softmax", call.output.n // length, length),))


def _embedding(call: Call, costs: Costs) -> Cost:
    """Look rows up in a table, for a bag several that are added up; rows that are not looked up are not read."""
    indices = [x for x in call.operands if x.dtype is None]
    table = next((x for x in call.operands if x.dtype is not None and len(x.shape) == 2), call.output)
    rows = table.shape[0]
    features = table.shape[-1]
    if indices:
        n = indices[0].n
    else:
        n = call.output.n // features
    n_outputs = call.output.n // features
    work = costs.gather(n, features, indices=_nbytes(indices), window=max(1, n // max(1, n_outputs)))
    work = replace(work, reads=float(n * features * table.width) + _nbytes(indices), writes=call.output.nbytes)
    if call.key == "embeddingbag":
        kind = "embedding_bag"
    else:
        kind = "embedding"
    return Cost(kind, (work,), {"rows": rows, "features": features}, is_counted=True)


def _concat(call: Call, costs: Costs) -> Cost:
    axis = call.settings.get("dim", 0)
    if isinstance(axis, int) and axis < 0:
        axis += len(call.output.shape)
    return Cost("concat", (costs.elementwise(call.output.shape, rule="copy"),), {"axis": axis})


def _pool(call: Call, costs: Costs) -> Cost:
    settings = call.settings
    output = call.output.shape
    n_axes = int(call.key[-2])
    pool = "max" if "max" in call.key else "avg"
    stride = settings.get("stride")
    padding = settings.get("padding", 0)
    adaptive = call.key.startswith("adaptive")
    whole = False
    if adaptive:
        sizes = list(zip(call.operands[0].shape[-n_axes:], output[-n_axes:], strict=True))
        window: Any = tuple(-(-before // after) for before, after in sizes)
        whole = output[-n_axes:] == (1,) * n_axes
        pool = f"global_{pool}" if whole else pool
        padding = 0
        if whole:
            stride = 1
        else:
            stride = tuple(before // after for before, after in sizes)
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
    return Cost("pool", ((costs.global_pool if whole else costs.pool)(output, window),), attributes)


def _with_batch(shape: Shape, n_axes: int) -> Shape:
    """Return the shape with a batch of 1 in front if it has no batch."""
    if len(shape) > n_axes + 1:
        return shape
    return (1, *shape)


def _per_axis(value: Any, n_axes: int) -> Any:
    """Return a setting as one number per axis; "same" and "valid" stay as they are."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        values = (value,)
    else:
        values = tuple(value)
    if len(values) == 1:
        return values * n_axes
    return values


RULES: Final[Mapping[str, Callable[[Call, Costs], Cost | None]]] = MappingProxyType(
    dict.fromkeys(VIEWS, _view)
    | dict.fromkeys(MOVES, _move)
    | dict.fromkeys(PICKS, _pick)
    | dict.fromkeys(PUTS, _put)
    | dict.fromkeys(FILLS, _fill)
    | dict.fromkeys((*ELEMENTWISE, *CHOICES, *_KINDS), _elementwise)
    | dict.fromkeys(REDUCTIONS, _reduce)
    | by_word(
        {
            _conv: "conv1d conv2d conv3d convtranspose1d convtranspose2d convtranspose3d convolution",
            _product: "matmul mm bmm mv dot addmm baddbmm addbmm intmm",
            _scaled_product: "scaledmm",
            _packed_product: "weightint8packmm weightint4packmm",
            _bilinear: "bilinear",
            _fft: "fftr2c fftc2c fftc2r",
            _sample: "gridsampler gridsampler2d gridsampler3d cudnngridsampler",
            _row_norm: "layernorm rmsnorm groupnorm instancenorm localresponsenorm",
            _recurrent: "lstm gru rnn",
            _linear: "linear",
            _einsum: "einsum",
            _attention: """
                scaleddotproductattention scaleddotproductflashattention scaleddotproductflashattentionforcpu
                scaleddotproductefficientattention scaleddotproductcudnnattention flexattention
            """,
            _multihead: "multiheadattention",
            _softmax: "softmax logsoftmax",
            _pool: """
                maxpool1d maxpool2d maxpool3d adaptivemaxpool1d adaptivemaxpool2d adaptivemaxpool3d
                avgpool1d avgpool2d avgpool3d adaptiveavgpool1d adaptiveavgpool2d adaptiveavgpool3d
            """,
            _batch_norm: "batchnorm",
            _embedding: "embedding embeddingbag",
            _concat: "cat stack",
        }
    )
)
"""By `Call.key`, all that is known."""
