"""Convolutions, matrix products, attention and recurrent layers of ONNX: shapes to work."""

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final

from simsched.base.errors import FormatError
from workloads.costs import Cost, Costs, Work, make_kernel
from workloads.formats.onnx_tensors import Shape, Step

_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
_WEIGHTS_AT: Final = {"QLinearConv": 3, "QLinearMatMul": 3}  # the second operand stands behind scales and zeros


def sliding(step: Step, window: Shape, image: Shape, output: Shape) -> dict[str, Any]:
    """Return what describes a sliding window, as `Network` records it.

    `padding` is one size per axis, or ONNX's list of all beginnings and then all ends if these differ, or for a
    transposed convolution "same_upper" and "same_lower"; `dilation` stands there only if it is not 1.
    """
    once = (1,) * len(window)
    stride, dilation = step.attributes.get("strides", once), step.attributes.get("dilations", once)
    pads = step.attributes.get("pads", (0,) * 2 * len(window))
    automatic = step.attributes.get("auto_pad", "NOTSET")
    if automatic.startswith("SAME"):
        begins, ends = [], []
        for size, made, width, step_size, spread in zip(image, output, window, stride, dilation, strict=True):
            wide = max(0, (made - 1) * step_size + (width - 1) * spread + 1 - size)
            begins.append(wide // 2 if automatic == "SAME_UPPER" else wide - wide // 2)
            ends.append(wide - begins[-1])
        pads = (*begins, *ends)
    half = len(window)
    found = {"kernel": window, "stride": stride, "padding": pads[:half] if pads[:half] == pads[half:] else pads}
    if automatic.startswith("SAME") and step.op_type == "ConvTranspose":
        found["padding"] = automatic.lower()
    return found if dilation == once else {**found, "dilation": dilation}


def _conv(step: Step, costs: Costs) -> Cost:
    transposed = step.op_type == "ConvTranspose"
    x, w, shape = step.shape_in(0), step.shape_in(_WEIGHTS_AT.get(step.op_type, 1)), step.shape_out()
    groups = step.attributes.get("group", 1)
    if not 3 <= len(x) == len(w) == len(shape):
        raise FormatError(f"{step.where}: a convolution of {len(x)} axes with weights of {len(w)}")
    read, made = (w[0], w[1] * groups) if transposed else (w[1] * groups, w[0])
    if groups < 1 or w[0] % groups or (read, made) != (x[1], shape[1]):
        raise FormatError(f"{step.where}: weights of shape {w} in {groups} groups do not fit {x[1]} channels")
    attributes = sliding(step, w[2:], x[2:], shape[2:]) | {"groups": groups, "out_channels": made}
    if transposed:
        return Cost("conv_transpose", costs.conv_transpose(shape, x, w, groups=groups), attributes)
    kind = "deform_conv" if step.op_type == "DeformConv" else "conv"
    return Cost(kind, costs.conv(shape, x[1], w[2:], groups=groups), attributes)


def _gemm(step: Step, costs: Costs) -> Cost:
    a, (m, n), bias = step.shape_in(0), step.shape_out(), step.input(2)
    k = a[0] if step.attributes.get("transA", 0) else a[1]
    return _matrices(step, costs, 1, m, k, n, bias is not None and bias.constant)


def _matmul(step: Step, costs: Costs) -> Cost:
    """Multiply stacks of matrices; one matrix for the whole stack makes one product of many rows."""
    a, b, shape = step.shape_in(0), step.shape_in(_WEIGHTS_AT.get(step.op_type, 1)), step.shape_out()
    k, n = a[-1], b[-1] if len(b) > 1 else 1
    rows = prod(shape) // n
    batch = 1 if prod(b[:-2]) == 1 else rows // (a[-2] if len(a) > 1 else 1)
    return _matrices(step, costs, batch, rows // batch, k, n, False)


def _matrices(step: Step, costs: Costs, batch: int, m: int, k: int, n: int, bias: bool) -> Cost:
    second = step.input(_WEIGHTS_AT.get(step.op_type, 1))
    if second is not None and second.constant and batch == 1:
        return Cost("linear", costs.linear(m, k, n), {"in_features": k, "out_features": n, "bias": bias})
    return Cost("matmul", costs.matmul(batch, m, k, n))


def _einsum(step: Step, costs: Costs) -> Cost:
    """Contract two tensors, which is a stack of products; of more, each product of all sizes counts.

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

    if len(operands) != 2:
        flops = 2.0 * (len(operands) - 1) * prod(sizes.values())
        return Cost("einsum", costs.elementwise(step.shape_out())._replace(flops=flops))
    stack = rows = inner = columns = 1
    for letter, n in sizes.items():
        of_first, of_second = (letter in letters for letters in operands)
        if of_first and of_second:
            stack, inner = (stack * n, inner) if letter in output else (stack, inner * n)
        else:
            rows, columns = (rows * n, columns) if of_first else (rows, columns * n)
    return Cost("matmul", costs.matmul(stack, rows, inner, columns), {"equation": equation})


def _letters(step: Step, term: str, shape: Shape) -> tuple[str, ...]:
    """Return the index of each axis; an ellipsis stands for indices counted from the last."""
    front, dots, back = term.partition("...")
    hidden = len(shape) - len(front) - len(back)
    if hidden < 0 or (hidden and not dots):
        raise FormatError(f"{step.where}: equation term {term!r} does not fit the shape {shape}")
    return (*front, *(f".{i}" for i in range(hidden, 0, -1)), *back)


def _attention(step: Step, costs: Costs) -> Cost:
    """Scaled dot-product attention in one kernel: two products and a softmax of 5 FLOP between them."""
    q, k, v = (step.shape_in(i) for i in range(3))
    if len(q) == 3:
        heads, kv_heads = step.attributes["q_num_heads"], step.attributes["kv_num_heads"]
        if q[2] % heads or v[2] % kv_heads:
            raise FormatError(f"{step.where}: {heads} and {kv_heads} heads do not divide {q[2]} and {v[2]} features")
        length, keys, width, value_width = q[1], k[1], q[2] // heads, v[2] // kv_heads
    else:
        _, heads, length, width = q
        keys, value_width = k[2], v[3]
    past = step.input(4)
    if past is not None and past.shape is not None:
        keys += past.shape[2]
    scores = q[0] * heads * length * keys
    kernel = costs.matmul(q[0] * heads, length, width, value_width).kernel
    flops = 2.0 * scores * (width + value_width) + 5.0 * scores
    return Cost("attention", Work(flops, 0, kernel), {"heads": heads})


def _recurrent(step: Step, costs: Costs) -> Cost:
    """Go over a sequence: the products with the inputs at once, then those with the states.

    The steps of the sequence stand for one kernel, whose grid is that of a step.
    """
    x, w, r = (step.shape_in(i) for i in range(3))
    directions, gates, features = w
    hidden = r[2]
    if w != (r[0], _GATES[step.op_type] * hidden, x[2]):
        raise FormatError(f"{step.where}: weights of shapes {w} and {r} do not fit {x[2]} features")
    batch = x[0] if step.attributes.get("layout", 0) else x[1]
    inputs = costs.linear(x[0] * x[1], features, directions * gates)
    states = costs.matmul(directions, batch, hidden, gates)
    flops = inputs.flops + 2.0 * x[0] * x[1] * directions * gates * hidden
    share = inputs.flops / flops
    kernels = [
        make_kernel(one.blocks, one.threads, one.registers, one.shared_memory, part)
        for one, part in ((inputs.kernel, share), (states.kernel, 1.0 - share))
        if one is not None
    ]
    attributes = {"hidden": hidden, "directions": directions}
    return Cost(step.op_type.lower(), Work(flops, 0, None), attributes, kernels=tuple(kernels))


PRODUCTS: Final[Mapping[str, Callable[[Step, Costs], Cost]]] = MappingProxyType(
    dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"), _conv)
    | dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _matmul)
    | dict.fromkeys(_GATES, _recurrent)
    | {"Gemm": _gemm, "Einsum": _einsum, "Attention": _attention}
)
"""Rules by ONNX's name."""
