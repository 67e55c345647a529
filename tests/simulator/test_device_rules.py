"""What a kernel bound by DRAM takes of the issue slots, and which values a device may not have."""

import pytest

import simsched as ss
from simsched.model import Cluster, Kernel, Operator, OpGraph

pytestmark = pytest.mark.usefixtures("both_engines")


def device(**changes):
    return Cluster.preset("a100").without_overheads().replace_devices(interference=((0, 0), (0, 0)), **changes)


def side_by_side(cluster, *operators):
    graph = OpGraph(operators)
    plan = ss.Schedule.from_columns(graph, range(len(operators)), ("gpu0",), stream=range(len(operators)))
    return {name: end for name, (_, end) in ss.simulate(plan, cluster).operator_times().items()}


@pytest.mark.parametrize(("share", "end"), [(0.0, 10.0), (0.5, 10 / 0.75)])
def test_a_kernel_bound_by_dram_takes_issue_slots_too(share, end):
    """It could fill half of them with its 12 warps of 24 on each SM, takes a share of that; the other fills all.

    It is not slowed by that. With 0.5 of the half it leaves the other 0.75: 10 us become 13.3.
    """
    cluster = device(least_sm_share=share, saturating_warps=24.0, block_spread=0.0)
    memory = Operator("m", time=30.0, nbytes=10.0 * cluster.devices[0].bandwidth, kernels=(Kernel(108, 384),))
    compute = Operator("c", time=10.0, flops=1e9, kernels=(Kernel(108, 768),))
    assert side_by_side(cluster, memory, compute)["c"] == pytest.approx(end)
