"""The roofline worked by hand, and the priors that it and the presets stand on."""

from dataclasses import replace

import pytest

from simsched.model import Kernel, Operator, roofline
from simsched.model.cluster import DEVICES, PRIORS, Cluster

# 10 SMs that 12 warps fill: 120 warps for all FLOP, 300 for all bytes
DEVICE = replace(
    Cluster.preset("a100").devices[0], sms=10, saturating_warps=12.0, peak={"fp32": 1e3, "fp16": 4e3}, bandwidth=100.0
)


def operator(*blocks, **work):
    """Kernels of so many blocks of 256 threads, which share the work evenly."""
    return Operator("a", kernels=tuple(Kernel(n, 256, share=1 / len(blocks)) for n in blocks), **work)


@pytest.mark.parametrize(
    ("op", "us"),
    [
        (operator(flops=900.0), 2 + 1.0),  # 0.9 of the peak
        (operator(nbytes=160.0, flops=900.0), 2 + 2.0),  # 0.8 of the bandwidth, the slower of the two
        (operator(15, flops=900.0), 2 + 1.0),  # 15 * 8 = 120 warps
        (operator(1000, flops=900.0), 2 + 1.0),  # never more than all of the rate
        (operator(3, flops=900.0), 2 + 5.0),  # 24 warps of 120
        (operator(15, nbytes=80.0), 2 + 2.5),  # 120 warps of 300
        (operator(15, flops=900.0, nbytes=80.0), 2 + 2.5),  # so that DRAM is the slower here
        (operator(15, 3, flops=900.0), 2 + 0.5 + 2 + 2.5),  # each kernel has half, and a start of its own
        (Operator("a", flops=900.0, kernels=(Kernel(15, 256, efficiency=0.25),)), 2 + 4.0),
        (operator(flops=2400.0, dtype="fp16"), 2 + 1.0),  # tensor cores: 0.6 of 4000
        (operator(flops=900.0, dtype="bf16"), 2 + 1.0),  # without any: as fp32
    ],
)
def test_roofline_by_hand(op, us):
    assert roofline(op, DEVICE) == pytest.approx(us)


def test_warps_that_fill_an_sm():
    """6 cycles of 64 lanes are 12 warps, of 128 lanes 24; a K80 has 192 and waits 16.5: 99, but 64 is all it holds."""
    found = {name: fields["saturating_warps"] for name, fields in DEVICES.items()}
    small = dict.fromkeys(("v100", "v100s-pcie", "rtx2080super", "rtx2080ti", "a100"), 12.0)
    assert found == small | dict.fromkeys(("a40", "rtx3080", "h100", "h200"), 24.0) | {"k80": 64.0}


@pytest.mark.parametrize("name", PRIORS)
def test_priors_lie_in_their_intervals(name):
    prior = PRIORS[name]
    assert 0 <= prior.low <= prior.value <= prior.high
    assert prior.source
