"""What ONNX itself says of an operator: the shapes it writes, and the numbers it makes of small constants."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from simsched.base.errors import FormatError
from workloads.formats.onnx.tensors import WHOLE, Array, Shape, Tensor

if TYPE_CHECKING:
    import onnx

_SIZES_FROM_FLOATS: Final = ("Range", "Resize", "Upsample")
_LIKE_FIRST_INPUT: Final = ("GroupNormalization", "MeanVarianceNormalization")  # ONNX gives these no rule
_RULE_OF: Final = {"GreaterOrEqual": "Greater", "LessOrEqual": "Less"}  # nor these until operator set 15
_MOST_REASON_SHOWN: Final = 200

EVALUATED: Final = (
    "Abs",
    "Add",
    "And",
    "Cast",
    "Ceil",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Div",
    "Equal",
    "Expand",
    "Floor",
    "Gather",
    "Greater",
    "GreaterOrEqual",
    "Identity",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Neg",
    "NonZero",
    "Not",
    "Or",
    "Pow",
    "Range",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Reshape",
    "Round",
    "Slice",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Tile",
    "Transpose",
    "Unsqueeze",
    "Where",
)
"""What shapes, axes and pads are computed with. The result has as many numbers as inference says, or (NonZero) no
more than a few times those of its input. `ScatterND` and the like are not here: no exporter needs them for a shape."""


def infer(
    where: str, node: "onnx.NodeProto", inputs: Sequence[Tensor | None], versions: Mapping[str, int]
) -> list[tuple[int, Shape | None]]:
    """Return element type (0 if unknown) and shape of each output, as far as ONNX's rule finds them.

    Parameters
    ----------
    where
        How errors name the operator.
    versions
        The operator sets of the model, by domain.

    Raises
    ------
    FormatError
        If inputs or attributes do not fit the operator.
    """
    from onnx import AttributeProto, defs, helper, numpy_helper, shape_inference

    unknown: list[tuple[int, Shape | None]] = [(0, None)] * len(node.output)
    version, given = versions.get(node.domain, 1), [x for x in inputs if x is not None]
    has_graphs = any(one.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for one in node.attribute)
    if has_graphs or not 0 < version < 2**31 or not all(x.elem for x in given):
        return unknown
    try:
        schema = defs.get_schema(_RULE_OF.get(node.op_type, node.op_type), version, node.domain)
    except defs.SchemaError:
        return unknown
    if node.op_type in _LIKE_FIRST_INPUT:
        return [(given[0].elem, given[0].shape)] if given else unknown
    named = {name: x for name, x in zip(node.input, inputs, strict=True) if x is not None}
    floats = node.op_type in _SIZES_FROM_FLOATS
    sizes = {name: x for name, x in named.items() if x.constant and (x.elem in WHOLE or floats)}
    try:
        found = shape_inference.infer_node_outputs(
            schema,
            node,
            {name: _type(x.elem, x.shape) for name, x in named.items()},
            {
                name: numpy_helper.from_array(array, name)
                for name, x in sizes.items()
                if (array := x.numbers()) is not None
            },
            opset_imports=[helper.make_opsetid(domain, version) for domain, version in versions.items()],
        )
    except Exception as error:  # ONNX's C++ raises several kinds, RuntimeError and IndexError among them
        reason = " ".join(str(error).split())[:_MOST_REASON_SHOWN] or type(error).__name__
        raise FormatError(f"{where}: its shape cannot be inferred: {reason}") from error
    return [_sizes_of(found.get(out)) for out in node.output]


@lru_cache(maxsize=1000)  # the tensors of a network repeat
def _type(elem: int, shape: Shape | None) -> "onnx.TypeProto":
    from onnx import helper

    return helper.make_tensor_type_proto(elem, shape)


def _sizes_of(found: "onnx.TypeProto | None") -> tuple[int, Shape | None]:
    """Return element type and shape of an inferred tensor, the shape None if a size of it is unknown."""
    if found is None or not found.HasField("tensor_type"):
        return 0, None
    declared = found.tensor_type
    if not declared.HasField("shape") or any(not dim.HasField("dim_value") for dim in declared.shape.dim):
        return declared.elem_type, None
    return declared.elem_type, tuple(dim.dim_value for dim in declared.shape.dim)


def evaluate(node: "onnx.NodeProto", inputs: Sequence[Tensor | None], version: int) -> Array | None:
    """Return what an operator of `EVALUATED` makes of small constants, None where that is not known."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    given = {name: x for name, x in zip(node.input, inputs, strict=True) if x is not None}
    numbers = {name: array for name, x in given.items() if (array := x.numbers()) is not None}
    if len(numbers) < len(given):
        return None
    if node.op_type == "Squeeze":  # exporters give an axis that is no list
        numbers = {name: np.atleast_1d(array) for name, array in numbers.items()}
    graph = helper.make_graph([node], "constants", [], [])  # of a node alone the version would not count
    try:
        with np.errstate(all="ignore"):
            return np.asarray(ReferenceEvaluator(graph, opsets={"": version}).run(node.output[:1], numbers)[0])
    except Exception:  # of many kinds: the shapes do not fit together, and who reads the result says so
        return None
