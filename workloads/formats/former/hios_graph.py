"""The former name of `workloads.formats.ios_hios.hios_graph`."""

from workloads.formats.ios_hios.hios_graph import read_hios_graph

__all__ = ["read_hios_graph"]
