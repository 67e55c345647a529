"""What backends measure: graphs as they run them, schedules at random to train on, and microbenchmarks."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

import simsched as ss
import workloads
from hwbackend.measuring.microbenchmarks import schedules
from hwbackend.measuring.synth import SYNTH, realised
from hwbackend.synthetic.backend import SyntheticBackend
from simsched.calibration import ALONE, MICROBENCHMARKS, Calibration
from simsched.calibration.training import random_schedule, training_schedule
from simsched.model import EXECUTIONS, Edge, Kernel, Operator, OpGraph
from simsched.model.cluster import occupancy

A100 = ss.Cluster.preset("a100")
A40 = ss.Cluster.preset("a40")
MEASURED = Calibration(A40.replace_devices(saturating_warps=12.0, bandwidth=1.0), A40, None, {}, {}, (), ())


@pytest.mark.parametrize(
    ("device", "time", "utilization", "blocks"),
    [
        # 84 SMs, 24 warps keep one busy, a block has 4: 6 blocks fill an SM, 3 half of it; 1000 us are 4 kernels
        (A40, 1000.0, 0.5, [3 * 84] * 4),
        (A40, 100.0, 0.05, [25]),  # 5 % of 6 blocks of 84 SMs
        (A40, 40_000.0, 1.0, [6 * 84] * 16),  # at most 16 kernels
        (A40, 100.0, 2 / 3, [4 * 84]),
        (MEASURED, 100.0, 2 / 3, [2 * 84]),  # 12 warps are measured to keep an SM busy: 3 blocks of 4 fill it
    ],
)
def test_an_operator_without_kernels_gets_blocks_for_its_utilization(device, time, utilization, blocks):
    """Of whole blocks, so FLOP differ by a hundredth at most; what was realised is left so by backends."""
    found = realised(OpGraph([Operator("op", time=time, utilization=utilization)]), device)
    (op,) = found.operators
    assert (op.kind, op.kernels) == (SYNTH, tuple(Kernel(n, 128, share=1 / len(blocks)) for n in blocks))
    assert op.flops == pytest.approx(time * utilization * A40.devices[0].peak_rate("fp32"), rel=0.01)
    assert SyntheticBackend().realise(found) is found


@pytest.mark.parametrize(("given", "found"), [(None, ["compute", "compute", "memory"]), ("memory", ["memory"] * 3)])
def test_every_third_operator_that_says_nothing_is_bound_by_memory(given, found):
    graph = OpGraph([Operator(f"o{i}", time=100.0, utilization=0.8, intensity=given) for i in range(6)])
    assert [op.intensity for op in realised(graph, A40).operators] == 2 * found


def test_an_exact_transfer_becomes_bytes():
    """100 us at 52 GB/s, which is 52,000 bytes per us."""
    graph = OpGraph([Operator("a", time=1.0), Operator("b", time=1.0)], [Edge("a", "b", transfer=100.0)])
    edge = realised(graph, ss.Cluster.preset("a40", 2)).edges[0]
    assert (edge.transfer, edge.nbytes) == (None, 100.0 * 52_000.0)


@settings(max_examples=25)
@given(graph=graphs())
def test_realising_twice_changes_nothing(graph):
    once = realised(graph, A40)
    assert realised(once, A40) is once
    assert once.names == graph.names
    assert [(e.src, e.dst) for e in once.edges] == [(e.src, e.dst) for e in graph.edges]
    assert all(op.kernels for op in once.operators)


def test_operators_with_kernels_are_the_backends():
    graph = OpGraph([Operator("conv", kernels=(Kernel(7),)), Operator("none", time=1.0)])
    ours = Operator("conv", kind="conv", kernels=(Kernel(99),))
    assert realised(graph, A40)["conv"] == graph["conv"]
    assert realised(graph, A40, lambda _: ours)["conv"].kernels[0].blocks == 99


@settings(max_examples=40)
@given(
    graph=graphs(),
    rng=st.integers(0, 2**32),
    execution=st.sampled_from(EXECUTIONS),
    gpus=st.integers(1, 3),
    streams=st.integers(1, 5),
    eager=st.booleans(),
)
def test_random_schedules_run(graph, gpus, execution, streams, **options):
    cluster = ss.Cluster.preset("a100", gpus)
    plan, again = (random_schedule(graph, cluster, execution=execution, streams=streams, **options) for _ in range(2))
    assert plan.check(cluster) == plan == again
    assert plan.execution == execution
    assert plan.stream.max() < streams
    assert ss.simulate(plan, cluster).makespan >= 0.0


def test_eager_schedules_launch_long_paths_first():
    """A chain of three operators of 100 us beside twenty single ones of 1 us: no error of a third makes them urgent."""
    graph = OpGraph(
        [Operator(f"s{i}", time=1.0) for i in range(20)] + [Operator(f"c{i}", time=100.0) for i in range(3)],
        [Edge("c0", "c1"), Edge("c1", "c2")],
    )
    plan = random_schedule(graph, A40, rng=0, eager=True)
    assert [graph.names[op] for op in plan.op[:3]] == ["c0", "c1", "c2"]
    assert plan.check(A40) is plan


def test_training_schedules_are_of_all_kinds():
    graph = workloads.load("tiny_inception")
    plans = [training_schedule(graph, A40, i, rng=i) for i in range(8)]
    assert [plan.execution == "stages" for plan in plans] == [False, False, True, False] * 2
    assert all(plan.check(A40) for plan in plans)


# Microbenchmarks


SMALL = replace(
    A100.devices[0],
    model="small",
    sms=2,
    blocks_per_sm=1,
    threads_per_sm=32,
    saturating_warps=1.0,
    peak={"fp32": 5e4},
    bandwidth=2e4,
)
CLUSTERS = [A100, ss.Cluster.preset("k80"), ss.Cluster.preset("a40", 2), ss.Cluster((SMALL,))]
each_cluster = pytest.mark.parametrize("cluster", CLUSTERS, ids=["a100", "k80", "two a40", "small"])


@each_cluster
def test_they_can_run_and_are_of_every_kind(cluster):
    """Each is a schedule of synthetic operators that runs there as it is, under a name of its own.

    All of them once take less than a quarter of a second, as the uncalibrated simulator says.
    """
    plans = schedules(cluster)
    names = {plan.scheduler for plan in plans}
    assert len(names) == len(plans) <= 84
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
    for plan in schedules(CLUSTERS[-1]):
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
