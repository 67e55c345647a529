"""ONNX's own shape inference, an operator at a time."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from simsched.base.errors import FormatError
from workloads.formats.onnx_tensors import BOOL, INT32, INT64, Array, Shape, Tensor

if TYPE_CHECKING:
    import onnx

STANDARD: Final = ("", "ai.onnx")
"""The names of ONNX's own operator set."""

_SIZES_FROM_FLOATS: Final = ("Range", "Resize", "Upsample")
_LIKE_FIRST_INPUT: Final = ("GroupNormalization", "MeanVarianceNormalization")  # ONNX gives these no rule
_RULE_OF: Final = {"GreaterOrEqual": "Greater", "LessOrEqual": "Less"}  # nor these until operator set 15
_MOST_REASON_SHOWN: Final = 200

Inferred = tuple[tuple[int, Shape | None], ...]  # element type (0 if unknown) and shape of each output


class Inference:
    """Asks ONNX's rules for the outputs of operators; what was asked before is remembered.

    Parameters
    ----------
    imports
        The operator sets of the model.
    versions
        Their versions, by domain.
    functions
        Domains and names of the model's own functions, which have no rule.
    """

    def __init__(
        self,
        imports: Sequence["onnx.OperatorSetIdProto"],
        versions: Mapping[str, int],
        functions: Collection[tuple[str, str]],
    ) -> None:
        self._imports = list(imports)
        self._versions = versions
        self._functions = functions
        self._cache: dict[tuple[Any, ...], Inferred] = {}
        self._schemas: dict[tuple[str, str], Any] = {}
        self._types: dict[tuple[int, Shape | None], onnx.TypeProto] = {}

    def outputs(self, where: str, node: "onnx.NodeProto", inputs: Sequence[Tensor | None]) -> Inferred:
        """Return element type and shape of each output, as far as ONNX's rule finds them.

        Raises
        ------
        FormatError
            If the inputs do not fit the operator.
        """
        unknown: Inferred = ((0, None),) * len(node.output)
        schema = self._schema(node)
        if schema is None or any(x is not None and not x.elem for x in inputs):
            return unknown
        from onnx import AttributeProto, numpy_helper, shape_inference

        if any(one.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for one in node.attribute):
            return unknown
        if node.op_type in _LIKE_FIRST_INPUT and len(unknown) == 1 and inputs and inputs[0] is not None:
            return ((inputs[0].elem, inputs[0].shape),)
        numbers = _numbers(node.op_type, inputs)
        key = (
            node.domain,
            node.op_type,
            tuple(one.SerializeToString(deterministic=True) for one in node.attribute),
            tuple(x and (x.elem, x.shape, x.name in numbers and numbers[x.name].tobytes()) for x in inputs),
            tuple(map(bool, node.output)),
        )
        if key not in self._cache:
            try:
                found = shape_inference.infer_node_outputs(
                    schema,
                    node,
                    {x.name: self._type(x) for x in inputs if x is not None},
                    {name: numpy_helper.from_array(array, name) for name, array in numbers.items()},
                    opset_imports=self._imports,
                )
            except Exception as error:  # ONNX's C++ raises several kinds, RuntimeError and IndexError among them
                reason = " ".join(str(error).split())[:_MOST_REASON_SHOWN] or type(error).__name__
                raise FormatError(f"{where}: its shape cannot be inferred: {reason}") from error
            self._cache[key] = tuple(_sizes_of(found.get(out)) for out in node.output)
        return self._cache[key]

    def _schema(self, node: "onnx.NodeProto") -> Any:
        """Return ONNX's schema of a node's operator, or None if it has none."""
        key = (node.domain, node.op_type)
        if key not in self._schemas:
            from onnx import defs

            domain, version = "" if node.domain in STANDARD else node.domain, self._versions.get(node.domain, 1)
            op_type = _RULE_OF.get(node.op_type, node.op_type) if not domain else node.op_type
            try:
                known = key not in self._functions and 0 < version < 2**31
                self._schemas[key] = defs.get_schema(op_type, version, domain) if known else None
            except defs.SchemaError:
                self._schemas[key] = None
        return self._schemas[key]

    def _type(self, tensor: Tensor) -> "onnx.TypeProto":
        key = (tensor.elem, tensor.shape)
        if key not in self._types:
            from onnx import helper

            self._types[key] = helper.make_tensor_type_proto(*key)
        return self._types[key]


def _numbers(op_type: str, inputs: Sequence[Tensor | None]) -> dict[str, Array]:
    """Return the small constants that may be sizes, axes or pads."""
    found: dict[str, Array] = {}
    for x in inputs:
        if x is not None and x.constant and (x.elem in (INT32, INT64, BOOL) or op_type in _SIZES_FROM_FLOATS):
            array = x.numbers()
            if array is not None:
                found[x.name] = array
    return found


def _sizes_of(found: "onnx.TypeProto | None") -> tuple[int, Shape | None]:
    """Return element type and shape of an inferred tensor, the shape None if a size of it is unknown."""
    if found is None or not found.HasField("tensor_type"):
        return 0, None
    declared = found.tensor_type
    if not declared.HasField("shape") or any(not dim.HasField("dim_value") for dim in declared.shape.dim):
        return declared.elem_type, None
    return declared.elem_type, tuple(dim.dim_value for dim in declared.shape.dim)
