"""The former name of `workloads.formats.ios_hios.ios`."""

from workloads.formats.ios_hios.ios import read_ios, read_ios_graph

__all__ = ["read_ios", "read_ios_graph"]
