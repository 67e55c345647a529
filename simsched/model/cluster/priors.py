"""What presets and the roofline take for granted until a calibration: value, interval and source of each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Prior(NamedTuple):
    """A number that stands until it is measured: the truth is taken to lie from `low` to `high`."""

    value: float
    low: float
    high: float
    source: str


PRIORS: Final[Mapping[str, Prior]] = MappingProxyType(
    {
        "compute_efficiency": Prior(
            0.9, 0.75, 1.0, "Inception-v3 at batch 128 on a V100 by IOS: 13.5 of 15.7 TFLOP/s; fitted 0.8 to 1.0"
        ),
        "tensor_efficiency": Prior(0.6, 0.4, 0.85, "prior: large products reach 0.7 to 0.85, convolutions less"),
        "memory_efficiency": Prior(0.8, 0.6, 0.9, "copies of 1 MiB or more within a device in published traces"),
        "shortest_kernel": Prior(2.0, 1.2, 4.0, "us; profiler traces of a V100: least 1.2; tuned convolutions: 3.5"),
        "saturating_cycles": Prior(
            6.0, 4.0, 6.5, "CUDA guides: 4 cycles from a multiply-add to the next that needs it, from 7.0 on; by a "
            "cycle-level simulator 5.7 [5.3, 6.5]; fitted 5 to 7"
        ),
        "saturating_cycles_3.7": Prior(16.5, 7.3, 16.5, "CUDA guide: 11 cycles, 1.5 times that as above; 44 warps"),
        "dram_warps": Prior(
            2.5, 1.5, 3.0, "900 GB/s at 450 ns (prior), 4 bytes a thread: 40 warps an SM of a V100; fitted 2 to 3"
        ),
        "pcie3": Prior(12.0, 6.2, 13.0, "GB/s; low: pinned host memory to a V100 in a published profiler trace"),
        "pcie4": Prior(24.0, 7.1, 26.0, "GB/s; low: pinned host memory to an A100 in a published profiler trace"),
    }
)  # fmt: skip
"""Ratios unless a unit is named; `docs/model.md` says where each is used."""
