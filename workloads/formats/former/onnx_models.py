"""The former name of `workloads.formats.onnx.models`."""

from workloads.formats.onnx.models import from_onnx, read_onnx

__all__ = ["from_onnx", "read_onnx"]
