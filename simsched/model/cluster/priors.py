"""Priors: numbers of devices that no data sheet has, with their ranges and their sources."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Prior(NamedTuple):
    """A number that is used until it is measured: its true value is assumed to lie from `low` to `high`."""

    value: float
    low: float
    high: float
    source: str


PRIORS: Final[Mapping[str, Prior]] = {
    "saturating_cycles": Prior(
        6.0,
        4.0,
        6.5,
        "CUDA guides: 4 cycles from a multiply-add to the next that needs it, from 7.0 on; by a "
        "cycle-level simulator 5.7 [5.3, 6.5]; fitted 5 to 7",
    ),
    "saturating_cycles_3.7": Prior(16.5, 7.3, 16.5, "CUDA guide: 11 cycles, 1.5 times that as above; 44 warps"),
    "start_factor": Prior(
        1.0, 0.85, 1.4, "start and end of a kernel, over an H100's; means of families that it bounds there: 0.91-1.38"
    ),
    "chain_factor": Prior(
        1.0, 0.8, 1.4, "sequence of a block, over an H100's; means of families that it bounds there: 0.98-1.19"
    ),
    "compute_factor": Prior(
        1.0, 0.7, 1.3, "computing without tensor cores; means of families that it bounds on an H100: 0.70-1.11"
    ),
    "tensor_factor": Prior(
        1.0,
        0.85,
        1.3,
        "computing by tensor cores; means of families that it bounds on an H100: 0.98-1.19; linears of "
        "language models on an A100 and another H100: 1.05, 1.08",
    ),
    "memory_factor": Prior(1.0, 0.85, 1.2, "DRAM and L2; means of families that they bound on an H100: 0.89-1.17"),
    "operator": Prior(
        1.0,
        0.7,
        1.4,
        "what a library's kernel takes over its roofline at those efficiencies; alike for operators "
        "that do the same: prior",
    ),
    "launch": Prior(4.0, 3.0, 10.0, "us; medians of launch calls in published traces of seven devices"),
    "eager_launch": Prior(
        19.0,
        10.0,
        40.0,
        "us for each kernel that PyTorch launches operator by operator: 38 networks with an H100, tenths 11 and 33",
    ),
    "launch_latency": Prior(6.0, 5.4, 21.0, "us; the same, on an idle device: 5.4 on an H100 to 21"),
    "record": Prior(1.0, 0.5, 2.0, "us; a published trace, twice either way: prior"),
    "wait": Prior(1.3, 0.65, 2.6, "us; a published trace, twice either way: prior"),
    "copy": Prior(4.5, 3.0, 10.0, "us; as a launch: prior"),
    "barrier": Prior(10.0, 5.0, 20.0, "us; twice either way: prior"),
    "barrier_many": Prior(
        14.0,
        7.0,
        40.0,
        "us; an H100: 5.8 more than a barrier of one stream, up to 15; 57 to 84 in a script of 2 to 8 streams",
    ),
    "gap": Prior(0.9, 0.5, 2.3, "us; back to back on a stream in published traces: 0.06 to 2.25"),
    "hop": Prior(2.0, 1.0, 4.0, "us; twice either way: prior"),
    "graph_launch": Prior(6.0, 3.0, 12.0, "us; twice either way: prior"),
    "graph_node": Prior(
        0.3,
        0.1,
        0.9,
        "us over kernels' own times, start and end among them: an H100, median of 35 networks 0.25, "
        "tenths 0.09 and 0.28; 0.9 over times without start and end",
    ),
    "graph_issue": Prior(
        0.4,
        0.16,
        0.5,
        "us; an H100: empty nodes every 0.16, small kernels every 0.33; networks and fans fit with 0.33 to 0.5",
    ),
    "graph_join": Prior(
        1.0, 0.0, 3.0, "us; an H100: 1.0 fits networks; one of them: 1.1 on two streams, 2 to 3 on four and eight"
    ),
    "crowd_latency": Prior(
        0.35, 0.2, 0.5, "us; 2,298 kernels in graphs on 8 streams of an H100: 0.35, and 29 % longer; 0.2 to 0.5 fit"
    ),
    "interference": Prior(
        0.1, 0.0, 0.2, "beside anyone on an H100: 0.05 to 0.2 fit; long kernels on SMs of their own: 0.01 to 0.06"
    ),
    "least_sm_share": Prior(0.1, 0.05, 0.2, "twice either way: prior"),
    "block_spread": Prior(
        0.15,
        0.08,
        0.3,
        "equal blocks on an H100: 0.15 to 0.3; pairs of kernels fit with 0.08 to 0.2, on a GTX 950 with 0.16",
    ),
    "link.latency": Prior(2.0, 1.0, 4.0, "us; twice either way: prior"),
    "link.bandwidth": Prior(1.0, 0.7, 1.1, "of a preset's link: prior, but see pcie3 and pcie4"),
    "link.start": Prior(
        1.0,
        0.4,
        1.3,
        "of collectives, of a preset's link; low: least of the repetitions in Vidur's tables, whose ranks come late",
    ),
    "link.step": Prior(1.0, 0.5, 2.0, "of collectives, of a preset's link: prior"),
    "link.efficiency": Prior(1.0, 0.85, 1.1, "of collectives, of a preset's link; of A100 and H100 within 0.9 to 1.1"),
    "pcie3": Prior(12.0, 6.2, 13.0, "GB/s; low: pinned host memory to a V100 in a published profiler trace"),
    "pcie4": Prior(24.0, 7.1, 26.0, "GB/s; low: pinned host memory to an A100 in a published profiler trace"),
}
"""Ratios unless a unit is named; `docs/model.md` says where each is used."""
