"""The microbenchmarks: small schedules that can run, of every kind that a calibration wants."""

from dataclasses import replace

import pytest

import simsched as ss
from hwbackend.microbenchmarks import schedules
from hwbackend.synth import SYNTH, realised
from simsched.calibration import ALONE, MICROBENCHMARKS
from simsched.model.cluster import occupancy

A100 = ss.Cluster.preset("a100")
SMALL = replace(
    A100.devices[0], model="small", sms=2, blocks_per_sm=1, threads_per_sm=32, saturating_warps=1.0,
    peak={"fp32": 5e4}, bandwidth=2e4,
)  # fmt: skip
CLUSTERS = {
    "a100": A100,
    "k80": ss.Cluster.preset("k80"),
    "two a40": ss.Cluster.preset("a40", 2),
    "small": ss.Cluster((SMALL,)),
}
each_cluster = pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)


@each_cluster
def test_they_can_run_and_are_of_every_kind(cluster):
    """Each is a schedule of synthetic operators that runs there as it is, under a name of its own.

    All of them once take less than a quarter of a second, as the uncalibrated simulator says.
    """
    plans = schedules(cluster)
    names = {plan.scheduler for plan in plans}
    assert len(names) == len(plans) <= 80
    for plan in plans:
        plan.check(cluster)
        assert {op.kind for op in plan.graph.operators} == {SYNTH}
        assert realised(plan.graph, cluster) is plan.graph
    assert 0 < sum(ss.simulate(plan, cluster).makespan for plan in plans) < 250_000
    kinds = {name[: name.index("/") + 1] for name in names}
    assert kinds == set(MICROBENCHMARKS) - ({"transfer/"} if len(cluster) == 1 else set())
    assert {plan.execution for plan in plans} == {"events", "graph", "stages"}


def test_kernels_alone_go_from_less_than_the_device_to_more_than_it_holds():
    """An A100 holds 8 blocks of 256 threads on each of 108 SMs: 864."""
    kernels = [plan.graph.operator(0).kernels[0] for plan in schedules(A100) if plan.scheduler.startswith("solo/comp")]
    counts = [kernel.blocks for kernel in kernels if not kernel.shared_memory]
    assert min(counts) < 108 < 864 < max(counts)
    held = {occupancy(A100.devices[0], kernel).blocks for kernel in kernels}
    assert held == {2, 4, 8}


def test_on_a_device_of_few_sms_blocks_are_long():
    """A SMALL that stands in for a GPU measures nothing of less than 200 us."""
    for plan in schedules(CLUSTERS["small"]):
        for op in plan.graph.operators:
            alone = max(op.flops / SMALL.peak["fp32"], op.nbytes / SMALL.bandwidth)
            assert alone * 2 / op.kernels[0].blocks > 200  # each block has one of two SMs, half of the DRAM


@each_cluster
def test_pairs_know_their_kernels_alone(cluster):
    """What runs side by side ran alone before, at least twice, in the same schedule."""
    for plan in schedules(cluster):
        if plan.scheduler.startswith("pair/"):
            kernels = [(op.flops, op.kernels) for op in plan.graph.operators if op.name.startswith(ALONE)]
            together = [(op.flops, op.kernels) for op in plan.graph.operators if not op.name.startswith(ALONE)]
            assert all(kernels.count(kernel) >= 2 for kernel in together)
            assert plan.n_streams >= 2
