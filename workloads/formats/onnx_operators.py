"""What each operator of ONNX costs and how `workloads.models.network.Network` would call it.

Bytes
    Inputs, weights and outputs, each moved once, in their own number formats; what only moves data reads as much
    as it writes. A constant input is weights, and a tensor of no axes just a number.
Format
    That of the first output; a product of integers computes in that of its first input.
"""

import re
from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from simsched.base.errors import FormatError
from simsched.model.graph import Kernel
from workloads.costs import ACTIVATION_FLOPS, Costs, Work
from workloads.formats.onnx_products import PRODUCTS, Product
from workloads.formats.onnx_tensors import Formats, Shape, Step, Tensor

_POOLS: Final = {
    "AveragePool": "avg", "LpPool": "lp", "MaxPool": "max",
    "GlobalAveragePool": "global_avg", "GlobalLpPool": "global_lp", "GlobalMaxPool": "global_max",
}  # fmt: skip

_ACTIVATIONS: Final = {"Swish": "silu", "PRelu": "prelu"}  # those that are not called as in ONNX

# FLOP per element of the output; those of activations stand in `ACTIVATION_FLOPS`
_FLOPS: Final[Mapping[str, float]] = MappingProxyType(
    {
        **dict.fromkeys(("Abs", "Add", "And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"), 1),
        **dict.fromkeys(("Ceil", "Div", "Equal", "Floor", "Greater", "GreaterOrEqual", "IsInf", "IsNaN"), 1),
        **dict.fromkeys(("Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or"), 1),
        **dict.fromkeys(("Reciprocal", "Round", "Sign", "Sub", "Sum", "Xor", "CumSum", "CumProd"), 1),
        **dict.fromkeys(("Clip", "Shrink", "ThresholdedRelu", "BatchNormalization", "QuantizeLinear"), 2),
        **dict.fromkeys(("DequantizeLinear", "Softsign"), 2),
        **dict.fromkeys(("Acos", "Asin", "Atan", "Cos", "Cosh", "Erf", "Exp", "Log", "Pow", "Sin", "Sinh"), 4),
        **dict.fromkeys(("Acosh", "Asinh", "Atanh", "Sqrt", "Tan", "DynamicQuantizeLinear"), 4),
        **dict.fromkeys(("Celu", "RotaryEmbedding"), 6),
        "LRN": 10,
        **dict.fromkeys(("ConstantOfShape", "EyeLike", "OneHot", "Range", "Where"), 0),
    }
)
_NARY: Final = ("Max", "Mean", "Min", "Sum")  # these take one FLOP less than they have inputs, but at least one

# Normalisations and the like: FLOP per element, a block of threads for each row
_ROWS: Final = {
    "GroupNormalization": 8, "Hardmax": 2, "InstanceNormalization": 8, "LayerNormalization": 8, "LogSoftmax": 6,
    "LpNormalization": 4, "MeanVarianceNormalization": 8, "RMSNormalization": 4, "Softmax": 5,
}  # fmt: skip
_COPIES: Final = (
    "Cast", "CastLike", "CenterCropPad", "Compress", "DepthToSpace", "Expand", "Gather", "GatherElements", "GatherND",
    "Pad", "ReverseSequence", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "TensorScatter", "Tile",
    "Transpose", "Trilu",
)  # fmt: skip
_VIEWS: Final = {
    "Dropout": "dropout", "Flatten": "flatten", "Identity": "view", "Reshape": "view", "Squeeze": "view",
    "Unsqueeze": "view",
}  # fmt: skip
_RESIZE_FLOPS: Final = {"nearest": 0, "linear": 8, "cubic": 32}
_NAMES: Final = {
    "Sum": "add", "BatchNormalization": "batch_norm", "InstanceNormalization": "instance_norm",
    "GroupNormalization": "group_norm", "LayerNormalization": "layer_norm", "RMSNormalization": "rms_norm",
    "QuantizeLinear": "quantize", "DequantizeLinear": "dequantize", "DynamicQuantizeLinear": "dynamic_quantize",
    "LRN": "local_response_norm",
}  # fmt: skip


class Described(NamedTuple):
    """What an operator becomes; `reads` are the tensors that it reads from others, `shape` that of its output."""

    kind: str
    work: Work
    nbytes: float
    weight_nbytes: float
    reads: tuple[Tensor, ...]
    shape: Shape | None
    elem: int
    computes: bool = False
    attributes: Mapping[str, Any] = MappingProxyType({})
    kernels: tuple[Kernel, ...] | None = None  # if more than that of `work`
    supported: bool = True


def describe(step: Step, formats: Formats) -> Described:
    """Return what an operator costs; one that is not supported has its bytes and no FLOP.

    Raises
    ------
    FormatError
        If a shape that the costs need is not known, or an attribute is not what it should be.
    """
    rule = RULES.get(step.op_type) if not step.domain else None
    return _unsupported(step, formats) if rule is None else rule(step, formats)


def kind_of(op_type: str) -> str:
    """Return the kind for an operator type without a name of its own here.

    >>> kind_of("ReduceMean"), kind_of("LSTM"), kind_of("ReduceL2"), kind_of("Sum")
    ('reduce_mean', 'lstm', 'reduce_l2', 'add')
    """
    return _NAMES.get(op_type) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op_type).lower()


def _read(step: Step) -> tuple[Tensor, ...]:
    """Return the inputs that come from other operators or from outside, in order."""
    return tuple(x for x in (*step.inputs, *step.captured) if x is not None and not x.constant)


def _weights(step: Step, formats: Formats) -> float:
    """Return the bytes of the constant inputs, less single numbers."""
    return sum(formats.nbytes(x) for x in (*step.inputs, *step.captured) if x is not None and x.constant and x.shape)


def _described(
    step: Step,
    formats: Formats,
    kind: str,
    work: Work,
    attributes: Mapping[str, Any] | None = None,
    *,
    nbytes: float | None = None,
    weights: float | None = None,
    shape: Shape | None = None,
) -> Described:
    """Return an operator with the bytes of its inputs, weights and outputs, unless other bytes are given."""
    reads, written = _read(step), step.written()
    weights = _weights(step, formats) if weights is None else weights
    if nbytes is None:
        nbytes = sum(formats.nbytes(x) for x in (*reads, *written)) + weights
    shape = written[0].shape if shape is None else shape
    return Described(kind, work, nbytes, weights, reads, shape, written[0].elem, attributes=attributes or {})


def _costs(step: Step, formats: Formats) -> Costs:
    return formats.costs(step.written()[0].elem)


def _unsupported(step: Step, formats: Formats) -> Described:
    outputs = [out for out in step.outputs if out is not None]
    sized = [out for out in outputs if out.shape is not None]
    kind = kind_of(step.op_type) if not step.domain else f"{step.domain}.{step.op_type}"
    kernel = formats.costs(sized[0].elem).elementwise(sized[0].shape or ()).kernel if sized else None
    reads, weights = _read(step), _weights(step, formats)
    nbytes = sum(formats.nbytes(x) for x in (*reads, *outputs)) + weights
    shape = outputs[0].shape if outputs else None
    elem = outputs[0].elem if outputs else 0
    return Described(kind, Work(0.0, 0, kernel), nbytes, weights, reads, shape, elem, supported=False)


def _elementwise(step: Step, formats: Formats) -> Described:
    flops = _FLOPS[step.op_type]
    if step.op_type in _NARY:
        flops = max(1, len(step.inputs) - 1)
    work = _costs(step, formats).elementwise(step.shape_out(), flops=flops)
    if step.op_type == "Clip" and _bounds(step) == (0.0, 6.0):
        return _described(step, formats, "relu6", work)
    return _described(step, formats, kind_of(step.op_type), work)


def _bounds(step: Step) -> tuple[Any, Any]:
    """Return the two bounds of a clip, None for one that is not known."""
    if "min" in step.attributes or "max" in step.attributes:
        return step.attributes.get("min"), step.attributes.get("max")
    found = []
    for bound in (step.input(1), step.input(2)):
        numbers = None if bound is None else bound.numbers()
        found.append(None if numbers is None or numbers.size != 1 else float(numbers.reshape(-1)[0]))
    return found[0], found[1]


def _activation(step: Step, formats: Formats) -> Described:
    kind = _ACTIVATIONS.get(step.op_type) or kind_of(step.op_type)
    work = _costs(step, formats).elementwise(step.shape_out(), flops=ACTIVATION_FLOPS[kind])
    return _described(step, formats, kind, work)


def _rows(step: Step, formats: Formats) -> Described:
    shape, op_type = step.shape_out(), step.op_type
    if op_type in ("InstanceNormalization", "GroupNormalization"):
        per_group = step.integer("num_groups", 1) if op_type == "GroupNormalization" else prod(shape[1:2])
        n_rows = prod(shape[:1]) * max(1, min(per_group, prod(shape)))
    elif op_type == "MeanVarianceNormalization":
        n_rows = prod(shape[1:2])
    elif op_type in ("LayerNormalization", "RMSNormalization") or (step.version < 13 and op_type != "LpNormalization"):
        n_rows = prod(shape[: step.axis(-1 if op_type.endswith("Normalization") else 1, len(shape))])
    else:
        axis = step.axis(-1, len(shape))
        n_rows = prod(shape) // prod(shape[axis : axis + 1])
    work = _costs(step, formats).rows((n_rows, -(-prod(shape) // n_rows)), flops=0)
    work = work._replace(flops=float(prod(shape) * _ROWS[op_type]))
    return _described(step, formats, kind_of(op_type), work)


def _pool(step: Step, formats: Formats) -> Described:
    pool, image, shape = _POOLS[step.op_type], step.shape_in(0)[2:], step.shape_out()
    if pool.startswith("global"):
        n = len(image)
        attributes: dict[str, Any] = {"pool": pool, "kernel": image, "stride": (1,) * n, "padding": (0,) * n}
        return _described(step, formats, "pool", _costs(step, formats).pool(shape, image), attributes)
    sliding = Product(step, formats).sliding(step.integers("kernel_shape", len(image), 1, 1), image, shape[2:])
    attributes = {"pool": pool, **sliding}
    if step.integer("ceil_mode", 0):
        attributes["ceil_mode"] = True
    return _described(step, formats, "pool", _costs(step, formats).pool(shape, sliding["kernel"]), attributes)


def _concat(step: Step, formats: Formats) -> Described:
    shape = step.shape_out()
    attributes = {"axis": step.axis(1, len(shape))}
    return _described(step, formats, "concat", _costs(step, formats).elementwise(shape), attributes)


def _reduce(step: Step, formats: Formats) -> Described:
    """Reduce: one FLOP per element of the input, one thread per element of the output."""
    work = _costs(step, formats).elementwise(step.shape_out())._replace(flops=float(prod(step.shape_in(0))))
    return _described(step, formats, kind_of(step.op_type), work, weights=0.0)


def _resize(step: Step, formats: Formats) -> Described:
    flops = _RESIZE_FLOPS.get(step.text("mode", "nearest"), 0)
    work = _costs(step, formats).elementwise(step.shape_out(), flops=flops)
    return _described(step, formats, "resize", work, weights=0.0)


def _copy(step: Step, formats: Formats) -> Described:
    """Move data: what is written is read, and no more; where, and which part, are numbers and not weights."""
    if _leaves_all_in_place(step):
        return _view(step, formats)
    shape, source = step.shape_out(), step.input(0)
    outputs = step.written()
    written = sum(formats.nbytes(out) for out in outputs)
    weights = formats.nbytes(source) if source is not None and source.constant else 0.0
    if step.op_type == "Split":
        shape = step.shape_in(0)
    work = _costs(step, formats).elementwise(shape)
    index = step.input(1) if step.op_type.startswith("Gather") else None
    read = written if source is None or source.constant else min(written, formats.nbytes(source))
    if step.op_type in ("Cast", "CastLike", "Expand", "Tile") and source is not None:
        read = formats.nbytes(source)
    nbytes = read + written + (0.0 if index is None or index.constant else formats.nbytes(index))
    kind, attributes = kind_of(step.op_type), dict[str, Any]()
    if source is not None and source.constant and len(source.shape or ()) == 2 and step.op_type == "Gather":
        rows, features = step.shape_in(0)
        if step.axis(0, 2) == 0:
            kind, attributes = "embedding", {"rows": rows, "features": features}
    if len(outputs) > 1:
        attributes["output_shapes"] = [out.shape for out in outputs]
    return _described(step, formats, kind, work, attributes, nbytes=nbytes, weights=weights, shape=shape)


def _leaves_all_in_place(step: Step) -> bool:
    """Say whether a copy changes nothing: no cast, no padding, no repetition."""
    source, out = step.input(0), step.written()[0]
    if source is None or source.shape is None or (source.shape, source.elem) != (out.shape, out.elem):
        return False
    if step.op_type == "Pad":
        pads = step.attributes.get("pads")
        given = step.input(1)
        numbers = None if given is None else given.numbers()
        return not any(pads) if pads is not None else numbers is not None and not numbers.any()
    return step.op_type in ("Cast", "CastLike", "Expand", "Tile")


def _view(step: Step, formats: Formats) -> Described:
    """Change the shape and nothing else; a parameter of it is not read on the device."""
    source = step.input(0)
    if source is None:
        raise FormatError(f"{step.where}: input 0 is missing")
    reads = tuple(x for x in _read(step) if x is source or source.constant)
    kind, shape, elem = _VIEWS.get(step.op_type, "view"), step.shape_out(), step.written()[0].elem
    weights = formats.nbytes(source) if source.constant else 0.0
    return Described(kind, Work(0.0, 0, None), 0.0, weights, reads, shape, elem)


def _product(step: Step, formats: Formats) -> Described:
    """Ask the rule of a convolution, matrix product or recurrent layer."""
    kind, work, attributes, kernels = PRODUCTS[step.op_type](Product(step, formats))
    found = _described(step, formats, kind, work, attributes)
    first = step.input(0)
    elem = first.elem if step.op_type.endswith("Integer") and first is not None else found.elem
    return found._replace(computes=True, kernels=kernels, elem=elem)


Rule = Callable[[Step, Formats], Described]
RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        **dict.fromkeys(_FLOPS, _elementwise),
        **dict.fromkeys(("Relu", "LeakyRelu", "PRelu", "Sigmoid", "HardSigmoid", "Tanh"), _activation),
        **dict.fromkeys(("Swish", "HardSwish", "Elu", "Selu", "Softplus", "Mish", "Gelu"), _activation),
        **dict.fromkeys(_ROWS, _rows),
        **dict.fromkeys(_POOLS, _pool),
        **dict.fromkeys(_COPIES, _copy),
        **dict.fromkeys(_VIEWS, _view),
        **dict.fromkeys(("ArgMax", "ArgMin", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), _reduce),
        **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), _reduce),
        **dict.fromkeys(("ReduceSumSquare",), _reduce),
        **dict.fromkeys(PRODUCTS, _product),
        "Concat": _concat,
        "Resize": _resize,
        "Upsample": _resize,
    }
)
"""What is supported, by ONNX's name."""
