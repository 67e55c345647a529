"""Convolutions, matrix products, attention and recurrent layers of ONNX: shapes to works."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any, Final

from simsched.base.errors import FormatError
from simsched.model.graph import Work
from workloads.costs import GATES, Cost, Costs, conv_layout, with_bytes
from workloads.equations import axes_of
from workloads.formats.onnx.tensors import Shape, Step, Tensor, n_stored
from workloads.formats.onnx.views import lay, reshaped_strides

_RECURRENT: Final = ("LSTM", "GRU", "RNN")
_WEIGHTS_AT: Final = {"QLinearConv": 3, "QLinearMatMul": 3}  # the second operand follows scales and zeros
_BIAS_AT: Final = {"QLinearConv": 8, "DeformConv": 3, "ConvInteger": 4}


def sliding(step: Step, window: Shape, image: Shape, output: Shape) -> dict[str, Any]:
    """Return the attributes of a sliding window, as `Network` records it.

    `padding` is one size per axis, or ONNX's list of all beginnings and then all ends if these differ, or for a
    transposed convolution "same_upper" and "same_lower"; `dilation` is left out if it is 1.
    """
    once = (1,) * len(window)
    stride = step.attributes.get("strides", once)
    dilation = step.attributes.get("dilations", once)
    pads = step.attributes.get("pads", (0,) * 2 * len(window))
    automatic = step.attributes.get("auto_pad", "NOTSET")
    if automatic.startswith("SAME"):
        begins = []
        ends = []
        for size, size_out, width, step_size, spread in zip(image, output, window, stride, dilation, strict=True):
            wide = max(0, (size_out - 1) * step_size + (width - 1) * spread + 1 - size)
            begins.append(wide // 2 if automatic == "SAME_UPPER" else wide - wide // 2)
            ends.append(wide - begins[-1])
        pads = (*begins, *ends)
    half = len(window)
    attributes = {"kernel": window, "stride": stride, "padding": pads[:half] if pads[:half] == pads[half:] else pads}
    if automatic.startswith("SAME") and step.op_type == "ConvTranspose":
        attributes["padding"] = automatic.lower()
    if dilation == once:
        return attributes
    return {**attributes, "dilation": dilation}


def _conv(step: Step, costs: Costs) -> Cost:
    transposed = step.op_type == "ConvTranspose"
    x = step.shape_in(0)
    w = step.shape_in(_WEIGHTS_AT.get(step.op_type, 1))
    shape = step.shape_out()
    groups = step.attributes.get("group", 1)
    if not 3 <= len(x) == len(w) == len(shape):
        raise FormatError(f"{step.where}: a convolution of {len(x)} axes with weights of {len(w)}")
    read, channels_out = (w[0], w[1] * groups) if transposed else (w[1] * groups, w[0])
    if groups < 1 or w[0] % groups or (read, channels_out) != (x[1], shape[1]):
        raise FormatError(f"{step.where}: weights of shape {w} in {groups} groups do not fit {x[1]} channels")
    attributes = sliding(step, w[2:], x[2:], shape[2:]) | {"groups": groups, "out_channels": channels_out}
    bias = step.input(_BIAS_AT.get(step.op_type, 2)) is not None
    if transposed:
        work = costs.conv_transpose(shape, x, w, groups=groups, bias=bias, adds_bias=bias)
        return Cost("conv_transpose", (work,), attributes)
    layout = conv_layout(attributes["stride"], attributes["padding"], attributes.get("dilation", 1))
    work = costs.conv(shape, x, w[2:], groups=groups, bias=bias, adds_bias=bias, layout=layout)
    return Cost("deform_conv" if step.op_type == "DeformConv" else "conv", (work,), attributes)


def _gemm(step: Step, costs: Costs) -> Cost:
    a = step.shape_in(0)
    m, n = step.shape_out()
    bias = step.input(2)
    k = a[0] if step.attributes.get("transA", 0) else a[1]
    return _matrices(step, costs, 1, m, k, n, bias is not None and bias.constant)


def _matmul(step: Step, costs: Costs) -> Cost:
    """Multiply stacks of matrices; one matrix for the whole stack makes one product of many rows."""
    a = step.shape_in(0)
    b = step.shape_in(_WEIGHTS_AT.get(step.op_type, 1))
    shape = step.shape_out()
    k = a[-1]
    n = b[-1] if len(b) > 1 else 1
    rows = prod(shape) // n
    if prod(b[:-2]) == 1:
        batch = 1
    else:
        batch = rows // (a[-2] if len(a) > 1 else 1)
    cost = _matrices(step, costs, batch, rows // batch, k, n, False)
    copies = []
    if step.op_type == "MatMul":
        copies = [x for x in step.inputs[:2] if x is not None and _is_scattered(x, as_rows=batch == 1)]
    if not copies:
        return cost
    whole = with_bytes(
        cost.works,
        step.nbytes(*step.read),
        step.nbytes(*(x for x in step.given if x.constant)),
        step.nbytes(*step.written),
    )
    return cost._replace(works=(*(_copy_work(step, x, costs) for x in copies), *whole), is_counted=True)


def _is_scattered(x: Tensor, *, as_rows: bool) -> bool:
    """Say whether the matrices of a stack do not lie one after the other, as PyTorch wants them: it copies them.

    Of a stack that one matrix multiplies all rows do.
    """
    if x.shape is None or x.strides is None or x.constant or len(x.shape) < 3:
        return False
    if as_rows:
        stack: Shape = (prod(x.shape[:-1]), x.shape[-1])
    else:
        stack = (prod(x.shape[:-2]), *x.shape[-2:])
    return reshaped_strides(x.shape, x.strides, stack) is None


def _copy_work(step: Step, x: Tensor, costs: Costs) -> Work:
    assert x.shape is not None
    assert x.strides is not None
    work = costs.regroup(x.shape, in_rows=x.strides[-1:] == (1,))
    dense = float(prod(x.shape)) * step.nbytes(x) / max(1, n_stored(x))
    return replace(work, reads=step.nbytes(x), writes=dense)


def _matrices(step: Step, costs: Costs, batch: int, m: int, k: int, n: int, bias: bool) -> Cost:
    second = step.input(_WEIGHTS_AT.get(step.op_type, 1))
    if second is not None and second.constant and batch == 1:
        attributes = {"in_features": k, "out_features": n, "bias": bias}
        return Cost("linear", (costs.linear(m, k, n, bias=bias, adds_bias=bias),), attributes)
    return Cost("matmul", (costs.matmul(batch, m, k, n),))


def _einsum(step: Step, costs: Costs) -> Cost:
    """Contract tensors, two at a time in the best order; of one tensor, sum or copy.

    An index that both operands and the output have numbers the stack, one that only the operands have is summed.
    """
    equation = step.attributes["equation"].replace(" ", "")
    terms, arrow, result = equation.partition("->")
    sizes: dict[str, int] = {}
    operands = []
    for i, term in enumerate(terms.split(",")):
        letters = _letters(step, term, step.shape_in(i))
        operands.append(letters)
        for letter, n in zip(letters, step.shape_in(i), strict=True):
            sizes[letter] = max(n, sizes.get(letter, 1))
    if arrow:
        output = _letters(step, result, step.shape_out())
    else:
        joined = [letter for letters in operands for letter in letters]
        output = tuple(letter for letter in sizes if letter.startswith(".") or joined.count(letter) == 1)

    works = costs.einsum(operands, output, sizes)
    return Cost("matmul" if len(operands) > 1 else "einsum", works, {"equation": equation})


def _letters(step: Step, term: str, shape: Shape) -> tuple[str, ...]:
    """Return the index of each axis; an ellipsis means indices counted from the last."""
    try:
        return axes_of(term, len(shape))
    except ValueError as error:
        raise FormatError(f"{step.where}: {error}: its shape is {shape}") from None


def _attention(step: Step, costs: Costs) -> Cost:
    """Scaled dot-product attention in one work: two products and a softmax of 5 FLOP between them."""
    q, k, v = (step.shape_in(i) for i in range(3))
    if len(q) == 3:
        heads = step.attributes["q_num_heads"]
        kv_heads = step.attributes["kv_num_heads"]
        if q[2] % heads or v[2] % kv_heads:
            raise FormatError(f"{step.where}: {heads} and {kv_heads} heads do not divide {q[2]} and {v[2]} features")
        length = q[1]
        keys = k[1]
        width = q[2] // heads
        value_width = v[2] // kv_heads
    else:
        _, heads, length, width = q
        keys = k[2]
        value_width = v[3]
        rows = (length * heads * value_width, value_width, heads * value_width, 1)
        lay(step.written[0], rows)  # as PyTorch writes it: the heads of a token one after the other
    past = step.input(4)
    if past is not None and past.shape is not None:
        keys += past.shape[2]
    work = costs.attention(q[0] * heads, length, keys, width, value_width)
    return Cost("attention", (work,), {"heads": heads})


def _recurrent(step: Step, costs: Costs) -> Cost:
    """Go over a sequence: the products with the inputs at once, then a chain of steps."""
    x, w, r = (step.shape_in(i) for i in range(3))
    kind = step.op_type.lower()
    directions = w[0]
    features = w[2]
    hidden = r[2]
    if w != (r[0], GATES[kind] * hidden, x[2]):
        raise FormatError(f"{step.where}: weights of shapes {w} and {r} do not fit {x[2]} features")
    n_steps, batch = (x[1], x[0]) if step.attributes.get("layout", 0) else x[:2]
    work = costs.recurrence(kind, n_steps, batch, features, hidden, directions=directions)
    return Cost(kind, (work,), {"hidden": hidden, "directions": directions})


PRODUCTS: Final[Mapping[str, Callable[[Step, Costs], Cost]]] = MappingProxyType(
    dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"), _conv)
    | dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _matmul)
    | dict.fromkeys(_RECURRENT, _recurrent)
    | {"Gemm": _gemm, "Einsum": _einsum, "Attention": _attention}
)
"""Rules by ONNX's name."""
