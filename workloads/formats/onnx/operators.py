"""Costs of each operator of ONNX, with the kinds of `workloads.models.network.Network`.

Bytes
    Inputs, weights and outputs, each moved once, in their own number formats; an operator that only moves data reads
    as much as it writes. A constant input is weights, and a tensor of no axes just a number.
Views
    As in PyTorch a transposition, a part, an expansion and a new shape copy nothing: they have no work. A new shape of
    a tensor that is not contiguous is a copy.
Format
    The format of the first output; a product computes in the format of its first input.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import log2, prod
from types import MappingProxyType
from typing import Any, Final

from simsched.base.errors import FormatError, SimschedError
from simsched.model.graph import UNKNOWN, Operator, Work
from workloads.costs import (
    ACTIVATION_FLOPS,
    ELEMENT_FLOPS,
    ROW_FLOPS,
    Cost,
    Costs,
    by_word,
    intensity,
    nbytes_of,
    with_bytes,
)
from workloads.formats.onnx.contrib import CONTRIB_PRODUCTS, contrib_rule
from workloads.formats.onnx.products import PRODUCTS, sliding
from workloads.formats.onnx.tensors import STACK, Shape, Step, Tensor
from workloads.formats.onnx.views import (
    expanded_strides,
    lay,
    reshaped_strides,
    selected_strides,
    sliced_strides,
    strides_in,
    transposed_strides,
)

_POOLS: Final = {
    "AveragePool": "avg",
    "LpPool": "lp",
    "MaxPool": "max",
    "GlobalAveragePool": "global_avg",
    "GlobalLpPool": "global_lp",
    "GlobalMaxPool": "global_max",
}
_MAPS: Final = (
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Ceil",
    "Celu",
    "Clip",
    "ConstantOfShape",
    "Cos",
    "Cosh",
    "DequantizeLinear",
    "Div",
    "DynamicQuantizeLinear",
    "Equal",
    "Erf",
    "Exp",
    "EyeLike",
    "Floor",
    "Greater",
    "GreaterOrEqual",
    "IsInf",
    "IsNaN",
    "LRN",
    "Less",
    "LessOrEqual",
    "Log",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "OneHot",
    "Or",
    "Pow",
    "QuantizeLinear",
    "Range",
    "Reciprocal",
    "RotaryEmbedding",
    "Round",
    "Shrink",
    "Sign",
    "Sin",
    "Sinh",
    "Softsign",
    "Sqrt",
    "Sub",
    "Tan",
    "ThresholdedRelu",
    "Where",
    "Xor",
)
"""Operators that compute element by element, with the FLOP of `ELEMENT_FLOPS`."""
_TRANSCENDENTAL: Final = (
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Celu",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Log",
    "Pow",
    "RotaryEmbedding",
    "Sin",
    "Sinh",
    "Softsign",
    "Sqrt",
    "Tan",
)
_NARY: Final = ("Max", "Mean", "Min", "Sum")  # these take one FLOP less than they have inputs, but at least one
_READ_WHOLE: Final = ("Cast", "CastLike", "Expand", "Tile")  # other copies read only the part that they write
_PERMUTING: Final = ("DepthToSpace", "ReverseSequence", "SpaceToDepth", "Transpose")
_RESIZE_FLOPS: Final = {"linear": 8, "cubic": 32}
_DYNAMIC: Final = ("DynamicQuantizeMatMul",)
"""Products that round their first factor to the format of the second."""
_NAMES: Final = {
    "Sum": "add",
    "Swish": "silu",
    "BatchNormalization": "batch_norm",
    "InstanceNormalization": "instance_norm",
    "GroupNormalization": "group_norm",
    "LayerNormalization": "layer_norm",
    "RMSNormalization": "rms_norm",
    "QuantizeLinear": "quantize",
    "DequantizeLinear": "dequantize",
    "DynamicQuantizeLinear": "dynamic_quantize",
    "LRN": "local_response_norm",
}


def rule_of(step: Step) -> Callable[[Step, Costs], Cost] | None:
    """Return the rule for an operator, None if there is none."""
    if step.domain:
        rule = None
    else:
        rule = RULES.get(step.op_type)
    return rule or contrib_rule(step)


def is_supported(step: Step) -> bool:
    """Say whether there is a rule for an operator."""
    return rule_of(step) is not None


def operator_of(step: Step, name: str) -> tuple[Operator, tuple[Tensor, ...]]:
    """Return an operator and the tensors that it reads of others; one that is not supported counts no FLOP.

    Raises
    ------
    FormatError
        If a shape that the costs need is not known, or inputs and attributes do not fit together.
    """
    rule = rule_of(step)
    supported = rule is not None
    computes = supported and (step.op_type in PRODUCTS or step.op_type in CONTRIB_PRODUCTS)
    try:
        if step.op_type in _DYNAMIC:
            named = step.given[1:]
        elif computes:
            named = step.given
        else:
            named = step.written
        elem = next((x.elem for x in named), 0)
        costs = step.formats.costs(elem)
        if rule is None:
            cost = _unsupported_cost(step)
        else:
            cost = rule(step, costs)
        shape = step.shape_out() if supported else next((out.shape for out in step.written), None)
    except SimschedError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FormatError(f"{step.where}: its inputs and attributes do not fit ({error})") from error
    weights = (x for x in step.given if x.constant and x.shape)
    if cost.weight_nbytes is None:
        weight_nbytes = step.nbytes(*weights)
    else:
        weight_nbytes = cost.weight_nbytes
    reads = tuple(dict.fromkeys(step.read if cost.reads is None else cost.reads))  # a tensor read twice moves once
    works = cost.works
    if not cost.is_counted:
        works = with_bytes(works, step.nbytes(*reads), weight_nbytes, step.nbytes(*step.written))
    # of an operator that is not supported at least the bytes may be known
    if supported or works:
        nbytes = nbytes_of(works)
    else:
        nbytes = step.nbytes(*reads, *step.written) + weight_nbytes
    operator = Operator(
        name,
        kind=cost.kind,
        flops=cost.flops,
        nbytes=nbytes,
        weight_nbytes=weight_nbytes,
        time=0.0 if supported and not works else None,
        works=works,
        intensity=intensity(computes),
        dtype=costs.dtype,
        attributes=cost.attributes,
        input_shapes=tuple(x.shape for x in reads if x.shape is not None),
        output_shape=shape,
    )
    return operator, reads


def kind_of(op_type: str) -> str:
    """Return the kind for an operator type without an own name here.

    >>> kind_of("ReduceMean"), kind_of("LSTM"), kind_of("ReduceL2"), kind_of("Sum")
    ('reduce_mean', 'lstm', 'reduce_l2', 'add')
    """
    return _NAMES.get(op_type) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op_type).lower()


def _unsupported_cost(step: Step) -> Cost:
    if step.domain:
        kind = f"{step.domain}.{step.op_type}"
    else:
        kind = kind_of(step.op_type)
    sized = next((out for out in step.written if out.shape is not None), None)
    if sized is None or sized.shape is None:
        return Cost(kind, attributes={UNKNOWN: kind})
    return Cost(kind, (step.formats.costs(sized.elem).elementwise(sized.shape),), {UNKNOWN: kind})


def _elementwise(step: Step, costs: Costs) -> Cost:
    kind = kind_of(step.op_type)
    shape = step.shape_out()
    if kind in ACTIVATION_FLOPS:
        work = costs.activation(kind, shape)
    else:
        if step.op_type in _NARY:
            flops = max(1, len(step.inputs) - 1)
        else:
            flops = ELEMENT_FLOPS.get(step.op_type.lower(), 1)
        if step.op_type in _TRANSCENDENTAL:
            rule = "activation"
        else:
            rule = "map"
        work = costs.elementwise(shape, flops=flops, rule=rule)
    read = [x for x in step.inputs if x is not None and x.shape is not None and prod(x.shape) > 1]
    ways = {x.strides if x.shape == shape else () for x in read}
    if len(ways) > 1 or () in ways:  # a kernel works out where each element is
        work = replace(work, rule="channels")
    elif ways:
        lay(step.written[0], ways.pop())
    if step.op_type == "Clip" and _bounds(step) == (0.0, 6.0):
        kind = "relu6"
    return Cost(kind, (work,))


def _batch_norm(step: Step, costs: Costs) -> Cost:
    return Cost("batch_norm", (costs.batch_norm(step.shape_out()),))


def _bounds(step: Step) -> tuple[Any, Any]:
    """Return the two bounds of a clip, None for one that is not known."""
    if "min" in step.attributes or "max" in step.attributes:
        return step.attributes.get("min"), step.attributes.get("max")
    numbers = [None if x is None else x.numbers() for x in (step.input(1), step.input(2))]
    low, high = (None if n is None or n.size != 1 else n.item() for n in numbers)
    return low, high


def _rows(step: Step, costs: Costs) -> Cost:
    shape = step.shape_out()
    op_type = step.op_type
    if op_type == "MeanVarianceNormalization":
        n_rows = prod(shape[1:2])
    elif op_type in ("InstanceNormalization", "GroupNormalization"):
        n_rows = shape[0] * (step.attributes["num_groups"] if op_type == "GroupNormalization" else shape[1])
    elif op_type in ("LayerNormalization", "RMSNormalization") or (step.version < 13 and op_type != "LpNormalization"):
        n_rows = prod(shape[: step.axis(-1 if op_type.endswith("Normalization") else 1, len(shape))])
    else:
        axis = step.axis(-1, len(shape))
        n_rows = prod(shape) // prod(shape[axis : axis + 1])
    kind = kind_of(op_type)
    length = -(-prod(shape) // n_rows)
    work = costs.rows(kind, n_rows, length)
    return Cost(kind, (replace(work, flops=float(prod(shape) * ROW_FLOPS[kind])),))


def _pool(step: Step, costs: Costs) -> Cost:
    pool = _POOLS[step.op_type]
    image = step.shape_in(0)[2:]
    shape = step.shape_out()
    if pool.startswith("global"):
        window = image
    else:
        window = step.attributes["kernel_shape"]
    attributes = {"pool": pool} | sliding(step, window, image, shape[2:])
    if step.attributes.get("ceil_mode"):
        attributes["ceil_mode"] = True
    work = (costs.global_pool if pool.startswith("global") else costs.pool)(shape, window)
    return Cost("pool", (work,), attributes)


def _concat(step: Step, costs: Costs) -> Cost:
    shape = step.shape_out()
    return Cost("concat", (costs.elementwise(shape, rule="copy"),), {"axis": step.axis(1, len(shape))})


def _reduce(step: Step, costs: Costs) -> Cost:
    """Reduce: one FLOP per element of the input."""
    n_read = prod(step.shape_in(0))
    n_outputs = prod(step.shape_out())
    if step.op_type.startswith("Arg"):
        rule = "argmax"
    else:
        rule = "sum"
    work = costs.reduction(n_outputs, -(-n_read // max(1, n_outputs)), flops=float(n_read), rule=rule)
    return Cost(kind_of(step.op_type), (work,), weight_nbytes=0.0)


def _scan(step: Step, costs: Costs) -> Cost:
    """Go along an axis: a row for each position of the other axes."""
    shape = step.shape_out()
    axis = step.input(1)
    numbers = None if axis is None else axis.numbers()
    if numbers is not None and numbers.size == 1:
        length = shape[int(numbers.ravel()[0])]
    else:
        length = shape[-1]
    n = prod(shape)
    return Cost(kind_of(step.op_type), (costs.rows("layer_norm", n // length, length, flops=float(n)),))


def _resize(step: Step, costs: Costs) -> Cost:
    flops = _RESIZE_FLOPS.get(step.attributes.get("mode", "nearest"), 0)
    return Cost("resize", (costs.elementwise(step.shape_out(), flops=flops, rule="upsample"),), weight_nbytes=0.0)


def _copy(step: Step, costs: Costs) -> Cost:
    """Return the cost of moving data: as much is read as is written; places and parts are numbers and not weights."""
    if _leaves_all_in_place(step):
        return _view(step, costs)
    if step.op_type in _LAID:
        strides = _LAID[step.op_type](step)
        if strides is not None:
            for out in step.outputs:
                lay(out, strides)
            return _view_cost(step, kind_of(step.op_type))
    written = step.nbytes(*step.written)
    if step.op_type in _READ_WHOLE:
        read = step.nbytes(step.given[0])
    else:
        read = _part_read(step, written)
    if step.op_type in _PERMUTING:
        rule = "permute"
    else:
        rule = "copy"
    return _moving(step, costs.elementwise(step.shape_out(), rule=rule), read, written)


def _part_read(step: Step, written: float) -> float:
    """Return the bytes that a move reads: as many as it writes, unless it has fewer to read."""
    source = step.given[0]
    if source.constant:
        return written
    return min(written, step.nbytes(source))


def _moving(step: Step, work: Work, read: float, written: float, kind: str = "", **attributes: Any) -> Cost:
    """Return the cost of a move of so many bytes; the bytes of a constant are weights that stay on the device."""
    source = step.given[0]
    if len(step.written) > 1:
        attributes["output_shapes"] = [out.shape for out in step.written]
    if source.constant:
        stored = step.nbytes(source)
    else:
        stored = 0.0
    moved = replace(work, reads=read, writes=written)
    return Cost(kind or kind_of(step.op_type), (moved,), attributes, True, stored)


def _gather(step: Step, costs: Costs) -> Cost:
    """Read rows, or single elements, that indices number: these and no others."""
    x = step.shape_in(0)
    shape = step.shape_out()
    numbers = step.input(1)
    numbered: Shape = ()
    if numbers is not None and numbers.shape is not None:
        numbered = numbers.shape
    kind = ""
    attributes = dict[str, Any]()
    if step.op_type == "Gather":
        axis = step.axis(0, len(x))
        length = prod(x[axis + 1 :])
        if numbers is not None and numbers.constant and numbers.shape == () and not step.given[0].constant:
            lay(step.written[0], selected_strides(step, axis))
            return _view_cost(step, "gather")
        if step.given[0].constant and len(x) == 2 and axis == 0:
            kind = "embedding"
            attributes = dict(zip(("rows", "features"), x, strict=True))
    elif step.op_type == "GatherND" and numbered:
        length = prod(x[step.attributes.get("batch_dims", 0) + numbered[-1] :])
    else:
        length = 1
    written = step.nbytes(*step.written)
    read = _part_read(step, written)
    if numbers is not None and not numbers.constant:
        read += step.nbytes(numbers)
    return _moving(step, costs.moved_rows(prod(shape) // max(1, length), length), read, written, kind, **attributes)


def _scatter(step: Step, costs: Costs) -> Cost:
    """Return the cost of writing rows, or single elements, in place: the other elements are not read."""
    x = step.shape_in(0)
    updates = step.input(1 if step.op_type == "TensorScatter" else 2)
    numbers = step.input(2 if step.op_type == "TensorScatter" else 1)
    if updates is None or updates.shape is None:
        return _moving(step, costs.elementwise(x, rule="copy"), step.nbytes(step.given[0]), step.nbytes(*step.written))
    length = 1
    if step.op_type == "ScatterND" and numbers is not None and numbers.shape:
        length = prod(x[numbers.shape[-1] :])
    elif step.op_type == "TensorScatter":
        length = x[-1]
    touched = step.nbytes(updates)
    read = touched + (0.0 if numbers is None or numbers.constant else step.nbytes(numbers))
    adds = step.attributes.get("reduction", "none") != "none"
    work = costs.moved_rows(prod(updates.shape) // max(1, length), length)
    written = min(touched, step.nbytes(step.given[0]) or touched)  # a row that is written twice is in the cache
    if adds:
        read += written
    return _moving(step, work, read, written)


def _top(step: Step, costs: Costs) -> Cost:
    """Return the cost of the greatest elements of each row: all are read."""
    x = step.given[0]
    return _moving(step, costs.elementwise(step.shape_out(), rule="copy"), step.nbytes(x), step.nbytes(*step.written))


def _fourier(step: Step, costs: Costs) -> Cost:
    """Make a Fourier transform of 5 n log2(n) FLOP for n complex numbers, half of them where one side is real."""
    shapes = step.shape_in(0), step.shape_out()
    axis = step.attributes.get("axis", 1)
    given = step.input(2)
    if given is not None and (numbers := given.numbers()) is not None:
        axis = int(numbers.ravel()[0])
    complex_shape = max((shape[:-1] for shape in shapes), key=prod)
    n_parts = min(shape[-1] for shape in shapes)  # 2 where both sides are complex
    share = n_parts / 2.0
    length = max(shape[:-1][axis + (len(shape) * (axis < 0))] for shape in shapes)
    work = costs.elementwise(complex_shape, flops=5.0 * log2(max(2, length)) * share, rule="permute")
    return Cost("fft", (work,), weight_nbytes=0.0)


def _sample(step: Step, costs: Costs) -> Cost:
    """Make a bilinear sample for each output."""
    return Cost("grid_sample", (costs.elementwise(step.shape_out(), flops=8, rule="upsample"),))


def _fill(step: Step, costs: Costs) -> Cost:
    """Make a tensor of nothing."""
    shape = step.shape_out()
    work = replace(costs.elementwise(shape), writes=step.nbytes(*step.written))
    return Cost("fill", (work,), is_counted=True, weight_nbytes=0.0)


def _gate(step: Step, costs: Costs) -> Cost:
    """Multiply one half of each row by the SiLU of the other one."""
    flops = ACTIVATION_FLOPS["silu"] + 1
    return Cost(kind_of(step.op_type), (costs.elementwise(step.shape_out(), flops=flops, rule="activation"),))


def _leaves_all_in_place(step: Step) -> bool:
    """Say whether a copy changes nothing: no cast, no padding, no repetition."""
    source = step.given[0]
    out = step.written[0]
    if source.shape is None or (source.shape, source.elem) != (out.shape, out.elem):
        return False
    if step.op_type == "Pad":
        pads = step.input(1)
        if pads is None:
            numbers = step.attributes["pads"]
        else:
            numbers = pads.numbers()
        return numbers is not None and not any(numbers)
    return step.op_type in _READ_WHOLE


def _view(step: Step, costs: Costs) -> Cost:
    """Change the shape and nothing else, unless elements that do not lie one after the other have to be moved."""
    source = step.given[0]
    out = step.written[0]
    if source.shape is not None and out.shape is not None and source.strides is not None:
        strides = reshaped_strides(source.shape, source.strides, out.shape)
        if strides is None:
            written = step.nbytes(out)
            work = costs.regroup(out.shape, in_rows=source.strides[-1:] == (1,))
            return _moving(step, work, min(written, step.nbytes(source)), written, "copy")
        lay(out, strides)
    return _view_cost(step, step.op_type.lower() if step.op_type in ("Dropout", "Flatten") else "view")


def _view_cost(step: Step, kind: str) -> Cost:
    """Return the cost of a view; where a part lies, or which shape it is, is not read on the device."""
    source = step.given[0]
    reads = tuple(x for x in step.read if x is source or source.constant)
    if len(step.written) > 1:
        attributes = {"output_shapes": [out.shape for out in step.written]}
    else:
        attributes = {}
    if source.constant:
        stored = step.nbytes(source)
    else:
        stored = 0.0
    return Cost(kind, (), attributes, weight_nbytes=stored, reads=reads)


_LAID: Final[Mapping[str, Callable[[Step], Shape | None]]] = MappingProxyType(
    {"Transpose": transposed_strides, "Slice": sliced_strides, "Expand": expanded_strides, "Split": strides_in}
)
"""Functions of operators that only change strides: strides of the output, None if it has to be copied."""


RULES: Final[Mapping[str, Callable[[Step, Costs], Cost]]] = MappingProxyType(
    dict.fromkeys((*_MAPS, *_NARY), _elementwise)
    | dict.fromkeys(_POOLS, _pool)
    | by_word(
        {
            _elementwise: """
                Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Sigmoid Softplus Swish Tanh
            """,
            _copy: """
                Cast CastLike CenterCropPad Compress DepthToSpace Expand Pad ReverseSequence Slice SpaceToDepth Split
                Tile Transpose Trilu
            """,
            _gather: "Gather GatherElements GatherND",
            _scatter: "Scatter ScatterElements ScatterND TensorScatter",
            _top: "Col2Im TopK",
            _fourier: "DFT",
            _sample: "GridSample",
            _fill: "Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
            _gate: "SwiGLU",
            _batch_norm: "BatchNormalization",
            _scan: "CumProd CumSum",
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
    | {STACK: lambda _step, _costs: Cost("view")}  # each round of a loop writes its part
)
"""Rules of the supported operators, by ONNX's name."""
