"""Operators that are not ONNX's own, but that ONNX Runtime and TensorRT fuse and exporters write.

ONNX does not infer their shapes, so each has two functions: the shapes of its outputs, and its cost. `CONTRIB` lists
them by name, of the domains `DOMAINS`, and of ONNX's own where exporters leave the domain out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Final, NamedTuple

from simsched.base.errors import FormatError
from simsched.model.graph import Work
from workloads.costs import Cost, Costs
from workloads.formats.onnx.products import PRODUCTS
from workloads.formats.onnx.tensors import Shape, Step

DOMAINS: Final = ("", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc", "trt", "TRT", "trt.plugins")

_OTHERS: Final = ("Attention", "Gelu", "RotaryEmbedding", "QuantizeLinear", "DequantizeLinear")
"""Names that ONNX has its own operators for."""

Shapes = Sequence[Shape | None]
Written = list[tuple[int, Shape | None]]


class Contrib(NamedTuple):
    """How an operator is read: the shapes of its outputs, which of its inputs has their element type, and its cost."""

    shapes: Callable[[Step], Shapes]
    cost: Callable[[Step, Costs], Cost]
    typed_by: int = 0
    computes: bool = False


def contrib_rule(step: Step) -> Callable[[Step, Costs], Cost] | None:
    """Return the rule for an operator, None if there is none."""
    operator = _of(step)
    if operator is None:
        return None
    return operator.cost


def _of(step: Step) -> Contrib | None:
    if step.domain not in DOMAINS or (not step.domain and step.op_type in _OTHERS):
        return None
    return CONTRIB.get(step.op_type)


def shapes_of(step: Step, n_outputs: int) -> Written | None:
    """Return element type (0 if unknown) and shape of each output, None of an operator that is not known.

    Raises
    ------
    FormatError
        If inputs and attributes do not fit the operator.
    """
    operator = _of(step)
    if operator is None:
        return None
    try:
        shapes = [*operator.shapes(step), *[None] * n_outputs][:n_outputs]
    except FormatError:  # an input of unknown shape
        return None
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise FormatError(f"{step.where}: its inputs and attributes do not fit ({error})") from error
    typed = step.input(operator.typed_by)
    return [(0 if typed is None else typed.elem, shape) for shape in shapes]


def _like_first(step: Step) -> Shapes:
    return [step.shape_in(0)]


def _activation(kind: str, *, adds: int = 0) -> Contrib:
    """Return how an activation is read that may add a bias before."""

    def cost(step: Step, costs: Costs) -> Cost:
        work = costs.activation(kind, step.shape_out())
        return Cost(kind, (replace(work, flops=work.flops + adds * float(prod(step.shape_out()))),))

    return Contrib(_like_first, cost)


def _broadcast_rule(kind: str, flops: int) -> Contrib:
    """Return the rule of an operator with some FLOP per element of output, whose inputs are broadcast to one shape."""

    def shapes(step: Step) -> Shapes:
        shapes_in = [x.shape for x in step.given if x.shape is not None and x.shape]
        rank = max(map(len, shapes_in), default=0)
        wide = [(1,) * (rank - len(shape)) + shape for shape in shapes_in]
        return [tuple(max(sizes) for sizes in zip(*wide, strict=True))]

    def cost(step: Step, costs: Costs) -> Cost:
        return Cost(kind, (costs.elementwise(step.shape_out(), flops=flops),))

    return Contrib(shapes, cost)


def _quantizes(kind: str) -> Contrib:
    def cost(step: Step, costs: Costs) -> Cost:
        return Cost(kind, (costs.elementwise(step.shape_out(), flops=2),))

    return Contrib(_like_first, cost, typed_by=1)


def _norm(kind: str, *, skips: int) -> Contrib:
    """Return how a normalisation of the last axis is read that adds so many tensors before."""

    def shapes(step: Step) -> Shapes:
        shape = step.shape_in(0)
        if skips:
            return [shape, None, None, shape]
        return [shape]

    def cost(step: Step, costs: Costs) -> Cost:
        shape = step.shape_in(0)
        work = costs.rows(kind, prod(shape[:-1]), shape[-1])
        return Cost(kind, (replace(work, flops=work.flops + skips * float(prod(shape))),))

    return Contrib(shapes, cost)


def _embedded_norm(step: Step, costs: Costs) -> Cost:
    """Look up words, positions and segments, add them and normalise the sum: of tables, the rows that are read."""
    rows = prod(step.shape_in(0))
    features = step.shape_out()[-1]
    tables = [x for x in (step.input(i) for i in (2, 3, 4)) if x is not None]
    indices = step.nbytes(*(x for x in step.read if x.elem in (6, 7)))
    looked = costs.gather(rows * len(tables), features, indices=indices, window=len(tables))
    embedded = float(rows * features * costs.width)
    norm = replace(costs.rows("layer_norm", rows, features), reads=embedded, writes=embedded)
    return Cost("embedding", (replace(looked, writes=embedded), norm), is_counted=True)


def _embedded_norm_shapes(step: Step) -> Shapes:
    batch, length = step.shape_in(0)
    return [(batch, length, step.shape_in(2)[-1]), (batch,), (batch, length, step.shape_in(2)[-1])]


def _window_shapes(step: Step) -> Shapes:
    """Return the shape of a convolution of (N, C, spatial...)."""
    x = step.shape_in(0)
    w = step.shape_in(1)
    axes = len(w) - 2
    stride, dilation = (step.attributes.get(key, (1,) * axes) for key in ("strides", "dilations"))
    pads = step.attributes.get("pads", (0,) * 2 * axes)
    automatic = step.attributes.get("auto_pad", "NOTSET").startswith("SAME")
    sizes = [
        -(-x[2 + i] // stride[i])
        if automatic
        else (x[2 + i] + pads[i] + pads[i + axes] - dilation[i] * (w[2 + i] - 1) - 1) // stride[i] + 1
        for i in range(axes)
    ]
    return [(x[0], w[0], *sizes)]


def _as(op_type: str) -> Callable[[Step, Costs], Cost]:
    """Return the rule of one of ONNX's own products, for an operator that fuses others to it."""

    def cost(step: Step, costs: Costs) -> Cost:
        return PRODUCTS[op_type](step, costs)

    return cost


def _matrices(step: Step, costs: Costs, shape: Shape, inner: int, second: int) -> Cost:
    """Return the cost of a product that writes a shape, with a matrix of weights if that is constant."""
    columns = shape[-1]
    other = step.input(second)
    rows = prod(shape) // columns
    weights = other is not None and other.constant
    if weights or other is None or other.shape is None or prod(other.shape[:-2]) == 1:
        if weights:
            attributes = {"in_features": inner, "out_features": columns, "bias": False}
            return Cost("linear", (costs.linear(rows, inner, columns, bias=False),), attributes)
        return Cost("matmul", (costs.matmul(1, rows, inner, columns),))
    batch = prod(shape[:-2])
    return Cost("matmul", (costs.matmul(batch, rows // batch, inner, columns),))


def _transposable(step: Step) -> tuple[Shape, int]:
    """Return the shape of a product, either side of which may be transposed, and the size that is summed over."""
    a = step.shape_in(0)
    b = step.shape_in(1)
    if step.attributes.get("transA", 0) and len(a) > 1:
        a = (*a[:-2], a[-1], a[-2])
    if step.attributes.get("transB", 0) and len(b) > 1:
        b = (*b[:-2], b[-1], b[-2])
    rank = max(len(a), len(b))
    stacks = zip((1,) * (rank - len(a)) + a[:-2], (1,) * (rank - len(b)) + b[:-2], strict=True)
    return (*map(max, stacks), *a[-2:-1], *b[-1:]), a[-1]


def _fused_matmul(step: Step, costs: Costs) -> Cost:
    shape, inner = _transposable(step)
    return _matrices(step, costs, shape, inner, 1)


def _packed_matmul(step: Step, costs: Costs) -> Cost:
    """Return the cost of a product with a matrix of a few bits a number, in the format of the other matrix."""
    return _matrices(step, costs, step.shape_out(), step.attributes["K"], 1)


def _packed_shapes(step: Step) -> Shapes:
    return [(*step.shape_in(0)[:-1], step.attributes["N"])]


class _Heads(NamedTuple):
    """The sizes of an attention."""

    batch: int
    heads: int
    queries: int
    keys: int
    size: int
    value_size: int
    kv_heads: int

    @property
    def written(self) -> Shape:
        return (self.batch, self.queries, self.heads * self.value_size)

    def kept(self, value: bool) -> Shape:
        """Return the shape of the keys, or values, after the new ones are added."""
        return (self.batch, self.kv_heads, self.keys, self.value_size if value else self.size)


def _multihead(step: Step) -> _Heads:
    """Return the sizes of MultiHeadAttention: queries, keys and values apart or packed, with a past or without."""
    q = step.shape_in(0)
    heads = step.attributes["num_heads"]
    if step.op_type.startswith("Decoder"):
        past_at = 5
    else:
        past_at = 6
    if len(q) == 5:  # (batch, length, heads, 3, size)
        return _Heads(q[0], heads, q[1], q[1], q[4], q[4], heads)
    size = q[2] // heads
    key = step.input(1)
    value = step.input(2)
    if key is None or key.shape is None:
        raise FormatError(f"{step.where}: input 1 is missing")
    if len(key.shape) == 5:  # (batch, length, heads, 2, size)
        keys = key.shape[1]
        value_size = key.shape[4]
    elif len(key.shape) == 4:
        keys = key.shape[2]
        value_size = step.shape_in(2)[3]
    else:
        keys = key.shape[1]
        if value is None or value.shape is None:
            value_size = size
        else:
            value_size = value.shape[2] // heads
    return _Heads(q[0], heads, q[1], keys + _past(step, past_at, keys), size, value_size, heads)


def _past(step: Step, at: int, new: int) -> int:
    """Return how many keys there are already; a buffer that is shared holds the new ones, too."""
    past = step.input(at)
    if past is None or past.shape is None or len(past.shape) < 3:
        return 0
    length = past.shape[-2]
    shared = step.attributes.get("past_present_share_buffer", 0)
    if shared:
        return max(0, length - new)
    return length


def _grouped_heads(step: Step) -> _Heads:
    """Return the sizes of GroupQueryAttention: several heads of queries share one of keys."""
    q = step.shape_in(0)
    heads = step.attributes["num_heads"]
    kv_heads = step.attributes["kv_num_heads"]
    key = step.input(1)
    packed = key is None or key.shape is None
    if packed:
        size = q[2] // (heads + 2 * kv_heads)
    else:
        size = q[2] // heads
    total = step.input(6)
    if total is not None and total.constant:
        numbers = total.numbers()
    else:
        numbers = None
    if numbers is not None and numbers.size == 1:
        keys = int(numbers.item())
    else:
        keys = q[1] + _past(step, 3, q[1])
    return _Heads(q[0], heads, q[1], keys, size, size, kv_heads)


def _attends(sizes: Callable[[Step], _Heads]) -> Contrib:
    """Return how an attention on queries, keys and values is read."""

    def shapes(step: Step) -> Shapes:
        heads = sizes(step)
        return [heads.written, heads.kept(False), heads.kept(True)]

    def cost(step: Step, costs: Costs) -> Cost:
        heads = sizes(step)
        work = costs.attention(heads.batch * heads.heads, heads.queries, heads.keys, heads.size, heads.value_size)
        new = heads.batch * heads.queries * heads.kv_heads * (heads.size + heads.value_size) * costs.width
        past_nbytes = heads.batch * heads.keys * heads.kv_heads * (heads.size + heads.value_size) * costs.width
        if heads.keys > heads.queries:
            past = past_nbytes - new
        else:
            past = 0
        query = step.nbytes(*(x for x in (step.input(i) for i in range(3)) if x is not None))
        others = step.nbytes(*(x for x in step.read if len(x.shape or ()) == 4 and x not in step.inputs[:8]))
        written = float(prod(heads.written) * costs.width) + (new if len(step.written) > 1 else 0)
        # all keys and values of the past are read, and only the new ones are written
        attended = replace(work, reads=query + past + others, writes=written)
        return Cost("attention", (attended,), {"heads": heads.heads}, is_counted=True)

    return Contrib(shapes, cost, computes=True)


def _whole(step: Step) -> tuple[int, int, int, int, int]:
    """Return batch, length, features that are read, and width of queries and of values, of a whole attention."""
    batch, length, features = step.shape_in(0)
    w = step.shape_in(1)
    sizes = step.attributes.get("qkv_hidden_sizes")
    if sizes:
        wide, values = (sizes[0], sizes[2])
    else:
        wide, values = (w[1] // 3, w[1] // 3)
    return batch, length, features, wide, values


def _whole_shapes(step: Step) -> Shapes:
    batch, length, _, wide, values = _whole(step)
    heads = step.attributes["num_heads"]
    past = step.input(8 if step.op_type == "QAttention" else 4)
    keys = length + (past.shape[3] if past is not None and past.shape and len(past.shape) == 5 else 0)
    return [(batch, length, values), (2, batch, heads, keys, wide // heads)]


def _whole_attention(step: Step, costs: Costs) -> Cost:
    """Project the input to queries, keys and values, and attend."""
    batch, length, features, wide, values = _whole(step)
    heads = step.attributes["num_heads"]
    keys = (_whole_shapes(step)[1] or (0,) * 5)[3]
    first = costs.linear(batch * length, features, 2 * wide + values, adds_bias=True)
    moved = float(batch * length * (2 * wide + values) * costs.width)
    past = float(batch * (keys - length) * (wide + values) * costs.width)
    works: list[Work] = [
        replace(first, writes=moved),
        replace(costs.attention(batch * heads, length, keys, wide // heads, values // heads), reads=moved + past),
    ]
    return Cost("attention", tuple(works), {"heads": heads})


def _gemm_shapes(step: Step) -> Shapes:
    a = step.shape_in(0)
    b = step.shape_in(3 if step.op_type == "QGemm" else 1)
    return [(a[1] if step.attributes.get("transA", 0) else a[0], b[0] if step.attributes.get("transB", 0) else b[1])]


def _quantized_gemm(step: Step, costs: Costs) -> Cost:
    a = step.shape_in(0)
    return _matrices(step, costs, step.shape_out(), a[0] if step.attributes.get("transA", 0) else a[1], 3)


def _product_shapes(step: Step) -> Shapes:
    return [_transposable(step)[0]]


def _quantized_pool(step: Step, costs: Costs) -> Cost:
    """Average over the whole image."""
    window = step.shape_in(0)[2:]
    return Cost("pool", (costs.global_pool(step.shape_out(), window),), {"pool": "global_avg", "kernel": window})


def _quantized_pool_shapes(step: Step) -> Shapes:
    x = step.shape_in(0)
    return [(*x[:2], *(1,) * (len(x) - 2))]


def _quantized_concat(step: Step, costs: Costs) -> Cost:
    return Cost("concat", (costs.elementwise(step.shape_out(), rule="copy"),), {"axis": step.attributes["axis"]})


def _quantized_concat_shapes(step: Step) -> Shapes:
    parts = [step.shape_in(i) for i in range(2, len(step.inputs), 3)]  # a scale and a zero follow each part
    axis = step.attributes["axis"] % len(parts[0])
    return [(*parts[0][:axis], sum(part[axis] for part in parts), *parts[0][axis + 1 :])]


def _rotary(step: Step, costs: Costs) -> Cost:
    return Cost("rotary_embedding", (costs.elementwise(step.shape_out(), flops=6, rule="activation"),))


_CONV: Final = Contrib(_window_shapes, _as("Conv"), computes=True)
_ATTENTION: Final = Contrib(_whole_shapes, _whole_attention, computes=True)
_PACKED: Final = Contrib(_packed_shapes, _packed_matmul, computes=True)

CONTRIB: Final[Mapping[str, Contrib]] = MappingProxyType(
    {
        "FusedConv": _CONV,
        "FusedGemm": Contrib(_gemm_shapes, _as("Gemm"), computes=True),
        "FusedMatMul": Contrib(_product_shapes, _fused_matmul, computes=True),
        "TransposeMatMul": Contrib(_product_shapes, _fused_matmul, computes=True),
        "GemmFastGelu": Contrib(_product_shapes, _fused_matmul, computes=True),
        "MatMulNBits": _PACKED,
        "MatMulBnb4": _PACKED,
        "MatMulFpQ4": _PACKED,
        "DynamicQuantizeMatMul": Contrib(_product_shapes, _fused_matmul, computes=True),
        "MatMulIntegerToFloat": Contrib(_product_shapes, _fused_matmul, typed_by=2, computes=True),
        "QGemm": Contrib(_gemm_shapes, _quantized_gemm, computes=True),
        "MultiHeadAttention": _attends(_multihead),
        "DecoderMaskedMultiHeadAttention": _attends(_multihead),
        "GroupQueryAttention": _attends(_grouped_heads),
        "Attention": _ATTENTION,
        "QAttention": Contrib(_whole_shapes, _whole_attention, typed_by=3, computes=True),
        "SkipLayerNormalization": _norm("layer_norm", skips=1),
        "SkipSimplifiedLayerNormalization": _norm("rms_norm", skips=1),
        "SimplifiedLayerNormalization": _norm("rms_norm", skips=0),
        "EmbedLayerNormalization": Contrib(_embedded_norm_shapes, _embedded_norm, typed_by=2),
        "Gelu": _activation("gelu"),
        "FastGelu": _activation("gelu", adds=1),
        "BiasGelu": _activation("gelu", adds=1),
        "QuickGelu": _activation("silu"),
        "BiasAdd": _broadcast_rule("add", 2),
        "QLinearAdd": _broadcast_rule("add", 3),
        "QLinearMul": _broadcast_rule("mul", 3),
        "QLinearSigmoid": _activation("sigmoid"),
        "QLinearLeakyRelu": _activation("leaky_relu"),
        "QLinearGlobalAveragePool": Contrib(_quantized_pool_shapes, _quantized_pool),
        "QLinearConcat": Contrib(_quantized_concat_shapes, _quantized_concat, typed_by=2),
        "RotaryEmbedding": Contrib(_like_first, _rotary),
        "QuantizeLinear": _quantizes("quantize"),
        "DequantizeLinear": _quantizes("dequantize"),
        "TRT_FP8QuantizeLinear": _quantizes("quantize"),
        "TRT_FP8DequantizeLinear": _quantizes("dequantize"),
        "TRT_INT8QuantizeLinear": _quantizes("quantize"),
        "TRT_INT8DequantizeLinear": _quantizes("dequantize"),
    }
)
"""Rules by the name of the operator, of ONNX Runtime and of the quantisation of TensorRT."""

CONTRIB_PRODUCTS: Final = frozenset(name for name, known in CONTRIB.items() if known.computes)
"""The operators of `CONTRIB` whose time is arithmetic."""
