"""How far excess load shows: sensitivities of a device, and what a kernel bound by DRAM takes of the issue slots."""

import pytest

import simsched as ss
from simsched.cluster import Cluster
from simsched.errors import ClusterError
from simsched.graph import Kernel, Operator, OpGraph

pytestmark = pytest.mark.usefixtures("both_engines")


def device(**changes):
    return Cluster.preset("a100").without_overheads().replace_devices(interference=((0, 0), (0, 0)), **changes)


def side_by_side(cluster, *operators):
    graph = OpGraph(operators)
    plan = ss.Schedule.from_columns(graph, range(len(operators)), ("gpu0",), stream=range(len(operators)))
    return {name: end for name, (_, end) in ss.simulate(plan, cluster).operator_times().items()}


@pytest.mark.parametrize(("sensitivity", "end"), [(1.0, 20.0), (0.5, 15.0), (0.8, 18.0)])
def test_two_that_fill_the_device(sensitivity, end):
    """Twice the load slows them by 1 + s x (2 - 1): 10 us become 20, 15 or 18."""
    ends = side_by_side(
        device(sm_sensitivity=sensitivity), *(Operator(n, time=10.0, utilization=1.0) for n in ("a", "b"))
    )
    assert ends == pytest.approx({"a": end, "b": end})


@pytest.mark.parametrize(("sensitivity", "end"), [(1.0, 20.0), (0.5, 15.0)])
def test_two_that_fill_dram(sensitivity, end):
    """Each moves in 10 us what DRAM moves in 10 us; together the same."""
    cluster = device(dram_sensitivity=sensitivity, least_sm_share=0.0)
    nbytes = 10.0 * cluster.devices[0].bandwidth
    kernels = (Kernel(108, 256),)
    ends = side_by_side(cluster, *(Operator(n, time=10.0, nbytes=nbytes, kernels=kernels) for n in ("a", "b")))
    assert ends == pytest.approx({"a": end, "b": end})


@pytest.mark.parametrize(("share", "end"), [(0.0, 10.0), (0.5, 12.5)])
def test_a_kernel_bound_by_dram_takes_issue_slots_too(share, end):
    """It could fill half of them with its 12 warps of 24 on each SM, takes a share of that; the other fills all.

    With 0.5 of the half the load is 1.25: the 10 us of the other become 12.5, all the while in company.
    """
    cluster = device(least_sm_share=share, saturating_warps=24.0)
    memory = Operator("m", time=30.0, nbytes=10.0 * cluster.devices[0].bandwidth, kernels=(Kernel(108, 384),))
    compute = Operator("c", time=10.0, flops=1e9, kernels=(Kernel(108, 768),))
    assert side_by_side(cluster, memory, compute)["c"] == pytest.approx(end)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("sm_sensitivity", 0.0, r"must be in \(0, 1\], not 0.0"),
        ("dram_sensitivity", 1.5, r"must be in \(0, 1\], not 1.5"),
        ("least_sm_share", -0.1, r"must be in \[0, 1\], not -0.1"),
        ("sm_sensitivity", "high", "must be a number"),
    ],
)
def test_values_that_cannot_be(field, value, text):
    with pytest.raises(ClusterError, match=f"{field} {text}"):
        device(**{field: value})


@pytest.mark.parametrize("streams", [2, 4, 8])
def test_the_bound_holds_below_full_sensitivity(streams):
    """Kernels that do not slow each other in full do more work in a us than the device has room for by its load."""
    cluster = device(sm_sensitivity=0.4, dram_sensitivity=0.4)
    graph = OpGraph([Operator(f"o{i}", time=10.0, utilization=1.0) for i in range(8)])
    plan = ss.Schedule.from_columns(graph, range(8), ("gpu0",), stream=[i % streams for i in range(8)])
    assert ss.lower_bound(graph, cluster) <= ss.simulate(plan, cluster).makespan * (1 + 1e-9)
