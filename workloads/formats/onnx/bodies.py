"""ONNX models made ready to be read: old operator sets are converted, and functions of the model are inlined."""

import logging
from typing import TYPE_CHECKING, Final

from simsched.base.errors import FormatError

if TYPE_CHECKING:
    import onnx

_logger = logging.getLogger(__name__)

OLDEST_OPSET: Final = 7
_STANDARD: Final = ("", "ai.onnx")
_MOST_REASON_SHOWN: Final = 200


def prepared(model: "onnx.ModelProto", source: str) -> "onnx.ModelProto":
    """Return a model of operator set 7 or later without functions of its own; it is itself if it is one.

    Raises
    ------
    FormatError
        If it cannot be converted.
    """
    old = [one.version for one in model.opset_import if one.domain in _STANDARD]
    if old and 0 < old[0] < OLDEST_OPSET:
        model = _converted(model, source, old[0])
    return _inlined(model, source) if model.functions else model


def _converted(model: "onnx.ModelProto", source: str, version: int) -> "onnx.ModelProto":
    from onnx import version_converter

    try:
        converted = version_converter.convert_version(model, OLDEST_OPSET)
    except Exception as error:  # ONNX's C++ raises several kinds
        raise FormatError(
            f"{source}: opset {version} is older than {OLDEST_OPSET}, and onnx cannot convert it ({_line(error)}); "
            "export the model again"
        ) from error
    _logger.warning("%s: opset %d is read as onnx converts it to opset %d", source, version, OLDEST_OPSET)
    return converted


def _inlined(model: "onnx.ModelProto", source: str) -> "onnx.ModelProto":
    """Return the model with its functions in place of their calls; unchanged where onnx cannot do that."""
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # ONNX's C++ raises several kinds, and protobuf from 2 GB on
        _logger.warning("%s: functions of the model cannot be inlined (%s)", source, _line(error))
        return model


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:_MOST_REASON_SHOWN] or type(error).__name__
