"""What each operator of ONNX costs and how `workloads.models.network.Network` would call it.

Bytes
    Inputs, weights and outputs, each moved once, in their own number formats; what only moves data reads as much
    as it writes. A constant input is weights, and a tensor of no axes just a number.
Format
    That of the first output; a product computes in that of its first input.
"""

import re
from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final

from simsched.base.errors import FormatError, SimschedError
from simsched.model.graph import Operator
from workloads.costs import ACTIVATION_FLOPS, NOTHING, ROW_FLOPS, Cost, Costs, keyed, launched
from workloads.formats.onnx_products import PRODUCTS, sliding
from workloads.formats.onnx_tensors import Step, Tensor

_POOLS: Final = {
    "AveragePool": "avg", "LpPool": "lp", "MaxPool": "max",
    "GlobalAveragePool": "global_avg", "GlobalLpPool": "global_lp", "GlobalMaxPool": "global_max",
}  # fmt: skip
# FLOP per element of the output; those of activations stand in `ACTIVATION_FLOPS`
_FLOPS: Final[Mapping[str, int]] = keyed(
    {
        0: "ConstantOfShape EyeLike OneHot Range Where",
        1: """
            Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil CumProd CumSum Div Equal Floor Greater
            GreaterOrEqual IsInf IsNaN Less LessOrEqual Mod Mul Neg Not Or Reciprocal Round Sign Sub Xor
        """,
        2: "BatchNormalization Clip DequantizeLinear QuantizeLinear Shrink Softsign ThresholdedRelu",
        4: "Acos Acosh Asin Asinh Atan Atanh Cos Cosh DynamicQuantizeLinear Erf Exp Log Pow Sin Sinh Sqrt Tan",
        6: "Celu RotaryEmbedding",
        10: "LRN",
    }
)
_NARY: Final = ("Max", "Mean", "Min", "Sum")  # these take one FLOP less than they have inputs, but at least one
_READ_WHOLE: Final = ("Cast", "CastLike", "Expand", "Tile")  # of other copies only what is written is read
_RESIZE_FLOPS: Final = {"linear": 8, "cubic": 32}
_NAMES: Final = {
    "Sum": "add", "Swish": "silu", "BatchNormalization": "batch_norm", "InstanceNormalization": "instance_norm",
    "GroupNormalization": "group_norm", "LayerNormalization": "layer_norm", "RMSNormalization": "rms_norm",
    "QuantizeLinear": "quantize", "DequantizeLinear": "dequantize", "DynamicQuantizeLinear": "dynamic_quantize",
    "LRN": "local_response_norm",
}  # fmt: skip


def is_supported(step: Step) -> bool:
    """Say whether there is a rule for an operator."""
    return not step.domain and step.op_type in RULES


def operator_of(step: Step, name: str) -> tuple[Operator, tuple[Tensor, ...]]:
    """Return an operator and the tensors that it reads of others; one that is not supported counts no FLOP.

    Raises
    ------
    FormatError
        If a shape that the costs need is not known, or inputs and attributes do not fit together.
    """
    supported = is_supported(step)
    computes = supported and step.op_type in PRODUCTS
    try:
        elem = next((x.elem for x in (step.given if computes else step.written)), 0)
        costs = step.formats.costs(elem)
        cost = RULES[step.op_type](step, costs) if supported else _unsupported(step)
        shape = step.shape_out() if supported else next((out.shape for out in step.written), None)
    except SimschedError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FormatError(f"{step.where}: its inputs and attributes do not fit ({error})") from error
    weights = (x for x in step.given if x.constant and x.shape)
    weight_nbytes = step.nbytes(*weights) if cost.weight_nbytes is None else cost.weight_nbytes
    reads = step.read if cost.reads is None else cost.reads
    nbytes = step.nbytes(*reads, *step.written) + weight_nbytes if cost.nbytes is None else cost.nbytes
    kernels = launched(f"operator {name!r}", *cost.kernels, cost.work.kernel)
    operator = Operator(
        name,
        kind=cost.kind,
        flops=cost.work.flops,
        nbytes=nbytes,
        weight_nbytes=weight_nbytes,
        time=0.0 if supported and not (kernels or cost.work.flops or nbytes) else None,
        kernels=kernels,
        intensity=costs.intensity(computes, cost.work.flops, nbytes),
        dtype=costs.dtype,
        attributes=cost.attributes,
        input_shapes=tuple(x.shape for x in reads if x.shape is not None),
        output_shape=shape,
    )
    return operator, reads


def kind_of(op_type: str) -> str:
    """Return the kind for an operator type without a name of its own here.

    >>> kind_of("ReduceMean"), kind_of("LSTM"), kind_of("ReduceL2"), kind_of("Sum")
    ('reduce_mean', 'lstm', 'reduce_l2', 'add')
    """
    return _NAMES.get(op_type) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op_type).lower()


def _unsupported(step: Step) -> Cost:
    kind = f"{step.domain}.{step.op_type}" if step.domain else kind_of(step.op_type)
    sized = next((out for out in step.written if out.shape is not None), None)
    if sized is None or sized.shape is None:
        return Cost(kind, NOTHING)
    return Cost(kind, step.formats.costs(sized.elem).elementwise(sized.shape))


def _elementwise(step: Step, costs: Costs) -> Cost:
    kind = kind_of(step.op_type)
    if step.op_type in _NARY:
        flops = max(1, len(step.inputs) - 1)
    else:
        flops = _FLOPS[step.op_type] if step.op_type in _FLOPS else ACTIVATION_FLOPS[kind]
    if step.op_type == "Clip" and _bounds(step) == (0.0, 6.0):
        kind = "relu6"
    return Cost(kind, costs.elementwise(step.shape_out(), flops=flops))


def _bounds(step: Step) -> tuple[Any, Any]:
    """Return the two bounds of a clip, None for one that is not known."""
    if "min" in step.attributes or "max" in step.attributes:
        return step.attributes.get("min"), step.attributes.get("max")
    numbers = [None if x is None else x.numbers() for x in (step.input(1), step.input(2))]
    low, high = (None if n is None or n.size != 1 else n.item() for n in numbers)
    return low, high


def _rows(step: Step, costs: Costs) -> Cost:
    shape, op_type = step.shape_out(), step.op_type
    if op_type == "MeanVarianceNormalization":
        n_rows = prod(shape[1:2])
    elif op_type in ("InstanceNormalization", "GroupNormalization"):
        n_rows = shape[0] * (step.attributes["num_groups"] if op_type == "GroupNormalization" else shape[1])
    elif op_type in ("LayerNormalization", "RMSNormalization") or (step.version < 13 and op_type != "LpNormalization"):
        n_rows = prod(shape[: step.axis(-1 if op_type.endswith("Normalization") else 1, len(shape))])
    else:
        axis = step.axis(-1, len(shape))
        n_rows = prod(shape) // prod(shape[axis : axis + 1])
    work = costs.rows((n_rows, -(-prod(shape) // n_rows)))
    kind = kind_of(op_type)
    return Cost(kind, work._replace(flops=float(prod(shape) * ROW_FLOPS[kind])))


def _pool(step: Step, costs: Costs) -> Cost:
    pool, image, shape = _POOLS[step.op_type], step.shape_in(0)[2:], step.shape_out()
    window = image if pool.startswith("global") else step.attributes["kernel_shape"]
    attributes = {"pool": pool} | sliding(step, window, image, shape[2:])
    if step.attributes.get("ceil_mode"):
        attributes["ceil_mode"] = True
    return Cost("pool", costs.pool(shape, window), attributes)


def _concat(step: Step, costs: Costs) -> Cost:
    shape = step.shape_out()
    return Cost("concat", costs.elementwise(shape), {"axis": step.axis(1, len(shape))})


def _reduce(step: Step, costs: Costs) -> Cost:
    """Reduce: one FLOP per element of the input, one thread per element of the output."""
    work = costs.elementwise(step.shape_out())._replace(flops=float(prod(step.shape_in(0))))
    return Cost(kind_of(step.op_type), work, weight_nbytes=0.0)


def _resize(step: Step, costs: Costs) -> Cost:
    flops = _RESIZE_FLOPS.get(step.attributes.get("mode", "nearest"), 0)
    return Cost("resize", costs.elementwise(step.shape_out(), flops=flops), weight_nbytes=0.0)


def _copy(step: Step, costs: Costs) -> Cost:
    """Move data: what is written is read, and no more; where, and which part, are numbers and not weights."""
    if _leaves_all_in_place(step):
        return _view(step, costs)
    source, index, written = step.given[0], step.input(1), step.nbytes(*step.written)
    if step.op_type in _READ_WHOLE:
        read = step.nbytes(source)
    else:
        read = written if source.constant else min(written, step.nbytes(source))
    if step.op_type.startswith("Gather") and index is not None and not index.constant:
        read += step.nbytes(index)
    kind, attributes = kind_of(step.op_type), dict[str, Any]()
    if step.op_type == "Gather" and source.constant and len(step.shape_in(0)) == 2 and step.axis(0, 2) == 0:
        kind, attributes = "embedding", dict(zip(("rows", "features"), step.shape_in(0), strict=True))
    if len(step.written) > 1:
        attributes["output_shapes"] = [out.shape for out in step.written]
    weights = step.nbytes(source) if source.constant else 0.0
    return Cost(kind, costs.elementwise(step.shape_out()), attributes, read + written, weights)


def _leaves_all_in_place(step: Step) -> bool:
    """Say whether a copy changes nothing: no cast, no padding, no repetition."""
    source, out = step.given[0], step.written[0]
    if source.shape is None or (source.shape, source.elem) != (out.shape, out.elem):
        return False
    if step.op_type == "Pad":
        pads = step.input(1)
        numbers = step.attributes["pads"] if pads is None else pads.numbers()
        return numbers is not None and not any(numbers)
    return step.op_type in _READ_WHOLE


def _view(step: Step, _costs: Costs) -> Cost:
    """Change the shape and nothing else; a parameter of it is not read on the device."""
    source = step.given[0]
    kind = step.op_type.lower() if step.op_type in ("Dropout", "Flatten") else "view"
    reads = tuple(x for x in step.read if x is source or source.constant)
    return Cost(kind, NOTHING, {}, 0.0, step.nbytes(source) if source.constant else 0.0, reads)


RULES: Final[Mapping[str, Callable[[Step, Costs], Cost]]] = MappingProxyType(
    dict.fromkeys((*_FLOPS, *_NARY), _elementwise)
    | dict.fromkeys(_POOLS, _pool)
    | keyed(
        {
            _elementwise: """
                Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Sigmoid Softplus Swish Tanh
            """,
            _copy: """
                Cast CastLike CenterCropPad Compress DepthToSpace Expand Gather GatherElements GatherND Pad
                ReverseSequence ScatterElements ScatterND Slice SpaceToDepth Split TensorScatter Tile Transpose Trilu
            """,
            _rows: """
                GroupNormalization Hardmax InstanceNormalization LayerNormalization LogSoftmax LpNormalization
                MeanVarianceNormalization RMSNormalization Softmax
            """,
            _view: "Dropout Flatten Identity Reshape Squeeze Unsqueeze",
            _reduce: """
                ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
                ReduceSum ReduceSumSquare
            """,
            _resize: "Resize Upsample",
            _concat: "Concat",
        }
    )
    | dict(PRODUCTS)
)
"""What is supported, by ONNX's name."""
