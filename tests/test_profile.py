"""Measured times as data: statistics, a cost model, times of a graph; files are in `test_schemas`."""

from functools import partial

import pytest

import simsched as ss
from simsched.base.errors import CostError
from simsched.model import Edge, Kernel, Operator, OpGraph, operator_times
from simsched.model.cluster import DEVICES
from simsched.model.profile import (
    MeasuredCopy,
    MeasuredDevice,
    MeasuredKernel,
    MeasuredOperator,
    Profile,
    Provenance,
    Summary,
)

A100 = ss.Cluster.preset("a100").devices[0]


def a_profile():
    kernels = (
        MeasuredKernel("to_nhwc", (4.0, 6.0), Kernel(128)),
        MeasuredKernel("gemm", (15.0, 15.0), Kernel(2160, 256, 32, 67_584), stream=3),
    )
    clear = MeasuredCopy("memset", "Memset (Device)", (1.0, 1.0), nbytes=4096.0)
    return Profile(
        (
            MeasuredOperator("conv", (20.0, 22.0), kernels, (clear,)),
            MeasuredOperator("view", (0.0, 0.0)),
            MeasuredOperator("fc", (8.0, 9.0), (MeasuredKernel("sgemm", (8.0, 9.0)),)),
        ),
        MeasuredDevice("NVIDIA A100-SXM4-40GB", sms=108, compute_capability="8.0", memory=42e9),
        Provenance("trace.json"),
    )


GRAPH = OpGraph(
    [Operator("conv", "conv", flops=5.0, time=1.0), Operator("view", "view"), Operator("fc", kernels=(Kernel(7),))],
    [Edge("conv", "view", 8.0), Edge("view", "fc", 8.0)],
    "net",
)


# Statistics and costs ----------------------------------------------------------------------------


def test_summary_by_hand():
    """Of 10, 20, 30, 40, 50 the percentiles 10 and 90 lie 0.4 steps inside: 14 and 46."""
    op = MeasuredOperator("a", (50.0, 10.0, 40.0, 20.0, 30.0))
    assert op.summary == Summary(n=5, median=30.0, p10=14.0, p90=46.0)
    assert op.samples[0] == 50.0  # in the order of the iterations


def test_cost_model():
    """Medians 21, 0 and 8.5, whatever the device."""
    profile, h100 = a_profile(), ss.Cluster.preset("h100").devices[0]
    assert operator_times(GRAPH, h100, profile).tolist() == [21.0, 0.0, 8.5]
    schedule = ss.schedule(GRAPH, ss.Cluster.preset("a100").without_overheads(), "sequential", cost=profile)
    assert schedule.estimate == 29.5


def test_cost_of_an_operator_that_was_not_measured():
    profile = a_profile()
    unknown = Operator("gelu", time=3.0)
    with pytest.raises(CostError, match=r"'gelu' was not measured: the profile from trace\.json has 'conv', 'view'"):
        profile(unknown, A100)
    assert profile(unknown, A100, fallback=ss.default_cost) == 3.0
    assert operator_times(OpGraph([unknown]), A100, partial(profile, fallback=ss.default_cost)).tolist() == [3.0]
    with pytest.raises(CostError, match=r"the profile from trace\.json has no operator 'gelu'; it has 'conv'"):
        profile["gelu"]
    assert ("conv" in profile, "gelu" in profile) == (True, False)


def test_apply():
    """Shares are 5 / 20 and 15 / 20; the launch of fc's kernel is not known, so its kernels stay."""
    found = a_profile().apply(GRAPH)
    assert [op.time for op in found.operators] == [21.0, 0.0, 8.5]
    assert found["conv"].kernels == (Kernel(128, share=0.25), Kernel(2160, 256, 32, 67_584, share=0.75))
    assert found["fc"].kernels == (Kernel(7),)
    assert (found["conv"].flops, found["conv"].kind) == (5.0, "conv")
    assert (found.edges, found.name) == (GRAPH.edges, "net")
    graph = OpGraph([Operator("conv"), Operator("gelu", time=3.0)])
    with pytest.raises(CostError, match=r"operator 'gelu' of graph 'graph' was not measured: .*; partial=True leaves"):
        a_profile().apply(graph)
    assert [op.time for op in a_profile().apply(graph, partial=True).operators] == [21.0, 3.0]


@pytest.mark.parametrize("times", [(0.0, 0.0), (0.0, 5.0), (1e-300, 1e300), (1e308, 1e308, 1e308)])
def test_shares_add_up_even_if_a_kernel_takes_no_time(times):
    kernels = tuple(MeasuredKernel(f"k{i}", (time,), Kernel(1)) for i, time in enumerate(times))
    profile = Profile((MeasuredOperator("a", (1.0,), kernels),))
    (op,) = profile.apply(OpGraph([Operator("a")])).operators
    assert sum(kernel.share for kernel in op.kernels) == pytest.approx(1.0, abs=1e-12)
    assert all(kernel.share > 0 for kernel in op.kernels)


# Devices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sms", "preset"),
    [
        ("NVIDIA A100-SXM4-40GB", 108, "a100"),
        ("NVIDIA A100 80GB PCIe", None, "a100"),
        ("Tesla V100S-PCIE-32GB", 80, "v100s-pcie"),
        ("Tesla K80", 13, "k80"),
        ("NVIDIA H100 80GB HBM3", 132, "h100"),
        ("NVIDIA GeForce RTX 2080 Ti", 68, "rtx2080ti"),
        ("NVIDIA GeForce RTX 2080 SUPER", 48, "rtx2080super"),
        ("NVIDIA H100 PCIe", 114, None),  # another product under the same number
        ("NVIDIA H100 NVL", None, None),
        ("NVIDIA GeForce RTX 3080 Ti", None, None),
        ("NVIDIA A40-48Q", 84, None),
        ("NVIDIA", None, None),
    ],
)
def test_preset_of_a_device(name, sms, preset):
    device = MeasuredDevice(name, sms=sms)
    assert device.preset == preset
    found = device.to_device("gpu3")
    assert (found is None) == (preset is None)
    assert found is None or (found.name, found.model, found.sms) == ("gpu3", preset, DEVICES[preset]["sms"])


def test_measured_limits_replace_those_of_the_preset():
    device = MeasuredDevice("NVIDIA A100-SXM4-80GB", shared_memory_per_block=99_000, memory=8e10).to_device()
    assert (device.memory, device.shared_memory_per_block, device.threads_per_sm) == (8e10, 99_000, 2048)
    assert device.bandwidth == A100.bandwidth


# Bad values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Profile(()), "a profile needs at least one operator"),
        (lambda: Profile((MeasuredOperator("a", (1.0,)),) * 2), "operator 'a' stands twice in the profile"),
        (lambda: MeasuredOperator("a", ()), "operator 'a': samples must not be empty"),
        (lambda: MeasuredOperator("a", (1.0, -1.0)), "samples[1] must be finite and not negative, not -1.0"),
        (lambda: MeasuredOperator("a", (True,)), "samples[0] must be a number, not True"),
        (lambda: MeasuredOperator("a", (1.0, 2.0), (MeasuredKernel("k", (1.0,)),)),
         "operator 'a': 'k' has 1 samples where the operator has 2; there must be one per iteration"),
        (lambda: MeasuredDevice("A40", compute_capability="eight"), "compute_capability must be like '8.0'"),
    ],
)  # fmt: skip
def test_refused(make, message):
    with pytest.raises(CostError) as caught:
        make()
    assert message in str(caught.value)
