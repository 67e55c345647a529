"""The former name of `workloads.formats.ios_hios.hios`."""

from workloads.formats.ios_hios.hios import read_hios

__all__ = ["read_hios"]
