"""The former name of `workloads.formats.torch.files`."""

from workloads.formats.torch.files import read_exported_file, read_python

__all__ = ["read_exported_file", "read_python"]
