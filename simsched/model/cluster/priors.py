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
            2.5, 0.6, 3.0, "900 GB/s at 450 ns (prior), 4 bytes a thread: 40 warps an SM of a V100; fitted 2 to 3; "
            "low: 16 bytes a thread, the widest load"
        ),
        "operator": Prior(
            1.0, 0.7, 1.4, "what a library's kernel takes over its roofline at those efficiencies; alike for operators "
            "that do the same: prior"
        ),
        "launch": Prior(4.0, 3.0, 10.0, "us; medians of launch calls in published traces of seven devices"),
        "launch_latency": Prior(6.0, 5.4, 21.0, "us; the same, on an idle device: 5.4 on an H100 to 21"),
        "record": Prior(1.0, 0.5, 2.0, "us; a published trace, twice either way: prior"),
        "wait": Prior(1.3, 0.65, 2.6, "us; a published trace, twice either way: prior"),
        "copy": Prior(4.5, 3.0, 10.0, "us; as a launch: prior"),
        "barrier": Prior(10.0, 5.0, 20.0, "us; twice either way: prior"),
        "gap": Prior(0.9, 0.5, 2.3, "us; back to back on a stream in published traces: 0.06 to 2.25"),
        "hop": Prior(2.0, 1.0, 4.0, "us; twice either way: prior"),
        "graph_launch": Prior(6.0, 3.0, 12.0, "us; twice either way: prior"),
        "graph_node": Prior(0.9, 0.45, 1.8, "us; twice either way: prior"),
        "interference": Prior(0.06, 0.0, 0.12, "none seen by a cycle-level simulator: prior"),
        "least_sm_share": Prior(0.1, 0.05, 0.2, "twice either way: prior"),
        "block_spread": Prior(0.08, 0.0, 0.16, "0.16 fits pairs of kernels on a GTX 950; none: prior"),
        "link.latency": Prior(2.0, 1.0, 4.0, "us; twice either way: prior"),
        "link.bandwidth": Prior(1.0, 0.7, 1.1, "of a preset's link: prior, but see pcie3 and pcie4"),
        "pcie3": Prior(12.0, 6.2, 13.0, "GB/s; low: pinned host memory to a V100 in a published profiler trace"),
        "pcie4": Prior(24.0, 7.1, 26.0, "GB/s; low: pinned host memory to an A100 in a published profiler trace"),
    }
)  # fmt: skip
"""Ratios unless a unit is named; `docs/model.md` says where each is used."""
