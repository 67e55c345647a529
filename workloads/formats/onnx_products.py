"""Convolutions, matrix products, attention and recurrent layers of ONNX: shapes to work."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from simsched.base.errors import FormatError
from simsched.model.graph import Kernel
from workloads.costs import Costs, Work, make_kernel
from workloads.formats.onnx_tensors import Formats, Shape, Step, Tensor

_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
_WEIGHTS_AT: Final = {"QLinearConv": 3, "QLinearMatMul": 3}  # the second operand stands behind scales and zeros


class Found(NamedTuple):
    """A product's kind, work and attributes, and its kernels if there are more than that of the work."""

    kind: str
    work: Work
    attributes: Mapping[str, Any]
    kernels: tuple[Kernel, ...] | None = None


class Product:
    """One operator and the rules of cost for its format."""

    def __init__(self, step: Step, formats: Formats) -> None:
        self.step = step
        self.formats = formats
        self.second = _WEIGHTS_AT.get(step.op_type, 1)

    @property
    def costs(self) -> Costs:
        """The rules of cost for the format it computes in."""
        first = self.step.input(0)
        return self.formats.costs(first.elem if first is not None else 0)

    def operand(self) -> Tensor:
        """Return the second operand, the weights if it is constant."""
        found = self.step.input(self.second)
        if found is None:
            raise self.error(f"input {self.second} is missing")
        return found

    def error(self, text: str) -> FormatError:
        """Return an error that names the operator."""
        return FormatError(f"{self.step.where}: {text}")

    def sliding(self, window: Shape, image: Shape, output: Shape) -> dict[str, Any]:
        """Return what describes a sliding window, as `Network` records it.

        `padding` is one size per axis, or ONNX's list of all beginnings and then all ends if these differ;
        `dilation` stands there only if it is not 1.
        """
        n, step = len(image), self.step
        if len(window) != n:
            raise self.error(f"its window has {len(window)} axes and its image {n}")
        stride, dilation = step.integers("strides", n, 1, 1), step.integers("dilations", n, 1, 1)
        pads = step.integers("pads", 2 * n, 0, 0)
        automatic = step.text("auto_pad", "NOTSET")
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            begins, ends = [], []
            for i in range(n):
                wide = max(0, (output[i] - 1) * stride[i] + (window[i] - 1) * dilation[i] + 1 - image[i])
                begins.append(wide // 2 if automatic == "SAME_UPPER" else wide - wide // 2)
                ends.append(wide - begins[-1])
            pads = (*begins, *ends)
        padding = pads[:n] if pads[:n] == pads[n:] else pads
        found: dict[str, Any] = {"kernel": window, "stride": stride, "padding": padding}
        if set(dilation) != {1} and dilation:
            found["dilation"] = dilation
        return found


def _conv(product: Product) -> Found:
    step = product.step
    x, w, shape = step.shape_in(0), step.shape_in(product.second), step.shape_out()
    groups = step.integer("group", 1)
    if len(x) < 3 or len(w) != len(x) or len(shape) != len(x):
        raise product.error(f"a convolution of {len(x)} axes with weights of {len(w)}")
    if groups < 1 or w[1] * groups != x[1] or w[0] % groups or shape[1] != w[0]:
        raise product.error(f"weights of shape {w} in {groups} groups do not fit {x[1]} channels")
    sliding = product.sliding(w[2:], x[2:], shape[2:])
    work = product.costs.conv(shape, x[1], w[2:], groups=groups)
    kind = "deform_conv" if step.op_type == "DeformConv" else "conv"
    return Found(kind, work, {**sliding, "groups": groups, "out_channels": w[0]})


def _conv_transpose(product: Product) -> Found:
    """Each input pixel adds to a window of the output; the kernel is the product that makes the output's pixels."""
    step = product.step
    x, w, shape = step.shape_in(0), step.shape_in(1), step.shape_out()
    groups = step.integer("group", 1)
    if len(x) < 3 or len(w) != len(x) or len(shape) != len(x):
        raise product.error(f"a convolution of {len(x)} axes with weights of {len(w)}")
    if groups < 1 or w[0] != x[1] or w[0] % groups or shape[1] != w[1] * groups:
        raise product.error(f"weights of shape {w} in {groups} groups do not fit {x[1]} channels")
    sliding = product.sliding(w[2:], x[2:], shape[2:])
    if step.text("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        sliding["padding"] = step.text("auto_pad", "NOTSET").lower()
    kernel = product.costs.conv(shape, x[1], w[2:], groups=groups).kernel
    work = Work(2.0 * prod(x) * prod(w[1:]), 0, kernel)
    return Found("conv_transpose", work, {**sliding, "groups": groups, "out_channels": shape[1]})


def _gemm(product: Product) -> Found:
    step = product.step
    a, b, shape = step.shape_in(0), step.shape_in(1), step.shape_out()
    if len(a) != 2 or len(b) != 2 or len(shape) != 2:
        raise product.error(f"a product of matrices of shapes {a} and {b}")
    k = a[0] if step.integer("transA", 0) else a[1]
    bias = step.input(2)
    return _matrices(product, 1, shape[0], k, shape[1], bias is not None and bias.constant)


def _matmul(product: Product) -> Found:
    """Multiply stacks of matrices; one matrix for the whole stack makes one product of many rows."""
    step = product.step
    a, b, shape = step.shape_in(0), step.shape_in(product.second), step.shape_out()
    if not a or not b:
        raise product.error(f"a product of tensors of shapes {a} and {b}")
    k, n = a[-1], b[-1] if len(b) > 1 else 1
    rows = prod(shape) // n
    batch = 1 if prod(b[:-2]) == 1 else rows // (a[-2] if len(a) > 1 else 1)
    return _matrices(product, batch, rows // batch, k, n, False)


def _matrices(product: Product, batch: int, m: int, k: int, n: int, bias: bool) -> Found:
    if product.operand().constant and batch == 1:
        work = product.costs.linear(m, k, n)
        return Found("linear", work, {"in_features": k, "out_features": n, "bias": bias})
    return Found("matmul", product.costs.matmul(batch, m, k, n), {})


def _einsum(product: Product) -> Found:
    """Contract two tensors, which is a stack of products; of more, each product of all sizes counts.

    An index that both operands and the output have numbers the stack, one that only the operands have is summed.
    """
    step = product.step
    equation = step.text("equation", "").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    sizes: dict[str, int] = {}
    operands = []
    for i, term in enumerate(terms.split(",")):
        letters = _letters(product, term, step.shape_in(i))
        operands.append(letters)
        for letter, n in zip(letters, step.shape_in(i), strict=True):
            sizes[letter] = max(n, sizes.get(letter, 1))
    if arrow:
        output = _letters(product, result, step.shape_out())
    else:
        joined = [letter for letters in operands for letter in letters]
        output = tuple(letter for letter in sizes if letter.startswith(".") or joined.count(letter) == 1)

    def size(letters: Sequence[str]) -> int:
        return prod(sizes.get(letter, 1) for letter in letters)

    if len(operands) != 2:
        flops = 2.0 * (len(operands) - 1) * size(tuple(sizes))
        return Found("einsum", product.costs.elementwise(step.shape_out())._replace(flops=flops), {})
    first, second = operands
    stack = [x for x in dict.fromkeys(first) if x in second and x in output]
    rows = [x for x in dict.fromkeys(first) if x not in second]
    columns = [x for x in dict.fromkeys(second) if x not in first]
    inner = [x for x in dict.fromkeys(first) if x in second and x not in output]
    work = product.costs.matmul(size(stack), size(rows), size(inner), size(columns))
    return Found("matmul", work, {"equation": equation})


def _letters(product: Product, term: str, shape: Shape) -> tuple[str, ...]:
    """Return the index of each axis; an ellipsis stands for indices counted from the last."""
    front, dots, back = term.partition("...")
    hidden = len(shape) - len(front) - len(back)
    if hidden < 0 or (hidden and not dots):
        raise product.error(f"equation term {term!r} does not fit the shape {shape}")
    return (*front, *(f".{i}" for i in range(hidden, 0, -1)), *back)


def _attention(product: Product) -> Found:
    """Scaled dot-product attention in one kernel: two products and a softmax of 5 FLOP between them."""
    step = product.step
    q, k, v = (step.shape_in(i) for i in range(3))
    if not all(len(x) in (3, 4) for x in (q, k, v)):
        raise product.error(f"attention of tensors of shapes {q}, {k} and {v}")
    heads, kv_heads = step.integer("q_num_heads", 1), step.integer("kv_num_heads", 1)
    if len(q) == 3:
        if heads < 1 or kv_heads < 1 or q[2] % heads or k[2] % kv_heads or v[2] % kv_heads:
            raise product.error(f"{heads} and {kv_heads} heads do not divide {q[2]}, {k[2]} and {v[2]} features")
        length, keys, width, value_width = q[1], k[1], q[2] // heads, v[2] // kv_heads
    else:
        heads, length, keys, width, value_width = q[1], q[2], k[2], q[3], v[3]
    past = step.input(4)
    if past is not None and past.shape is not None and len(past.shape) == 4:
        keys += past.shape[2]
    scores = q[0] * heads * length * keys
    kernel = product.costs.matmul(q[0] * heads, length, width, value_width).kernel
    flops = 2.0 * scores * (width + value_width) + 5.0 * scores
    return Found("attention", Work(flops, 0, kernel), {"heads": heads})


def _recurrent(product: Product) -> Found:
    """Go over a sequence: the products with the inputs at once, then those with the states.

    The steps of the sequence stand for one kernel, whose grid is that of a step.
    """
    step = product.step
    x, w, r = (step.shape_in(i) for i in range(3))
    if len(x) != 3 or len(w) != 3 or len(r) != 3 or w[0] != r[0]:
        raise product.error(f"a recurrent layer of tensors of shapes {x}, {w} and {r}")
    directions, gates, features = w
    hidden = r[2]
    if gates != _GATES[step.op_type] * hidden or features != x[2]:
        raise product.error(f"weights of shapes {w} and {r} do not fit {x[2]} features")
    batch = x[0] if step.integer("layout", 0) else x[1]
    inputs = product.costs.linear(x[0] * x[1], features, directions * gates)
    states = product.costs.matmul(directions, batch, hidden, gates)
    flops = 2.0 * x[0] * x[1] * directions * gates * hidden
    share = inputs.flops / (inputs.flops + flops)
    kernels = []
    for work, part in ((inputs, share), (states, 1.0 - share)):
        assert work.kernel is not None
        one = work.kernel
        kernels.append(make_kernel(one.blocks, one.threads, one.registers, one.shared_memory, part))
    attributes = {"hidden": hidden, "directions": directions}
    return Found(step.op_type.lower(), Work(inputs.flops + flops, 0, None), attributes, tuple(kernels))


PRODUCTS: Final[Mapping[str, Callable[[Product], Found]]] = MappingProxyType(
    {
        "Attention": _attention,
        "Conv": _conv,
        "ConvInteger": _conv,
        "ConvTranspose": _conv_transpose,
        "DeformConv": _conv,
        "Einsum": _einsum,
        "GRU": _recurrent,
        "Gemm": _gemm,
        "LSTM": _recurrent,
        "MatMul": _matmul,
        "MatMulInteger": _matmul,
        "QLinearConv": _conv,
        "QLinearMatMul": _matmul,
        "RNN": _recurrent,
    }
)
"""Rules by ONNX's name."""
