"""Graphs as backends run them, random training schedules, and which backends there are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

import hwbackend
import simsched as ss
import workloads
from hwbackend.synth import SYNTH, realised
from simsched.base.errors import BackendError, UnknownNameError
from simsched.calibration import Calibration
from simsched.calibration.training import random_schedule, training_schedule
from simsched.model import EXECUTIONS, Edge, Kernel, Operator, OpGraph

A40 = ss.Cluster.preset("a40")


def broken_driver():
    """Fail as a library does of which a part is missing."""
    raise OSError("libcuda.so: no such file")


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
    assert hwbackend.get("synthetic").realise(found) is found


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
    seed=st.integers(0, 2**32),
    execution=st.sampled_from(EXECUTIONS),
    gpus=st.integers(1, 3),
    streams=st.integers(1, 5),
    eager=st.booleans(),
)
def test_random_schedules_run(graph, seed, execution, gpus, streams, eager):
    cluster = ss.Cluster.preset("a100", gpus)
    plan = random_schedule(graph, cluster, rng=seed, streams=streams, execution=execution, eager=eager)
    assert plan.check(cluster) is plan
    assert plan.execution == execution
    assert plan.stream.max() < streams
    assert ss.simulate(plan, cluster).makespan >= 0.0
    assert random_schedule(graph, cluster, rng=seed, streams=streams, execution=execution, eager=eager) == plan


def test_an_unknown_execution_is_refused():
    with pytest.raises(BackendError, match="unknown execution 'all'"):
        random_schedule(workloads.load("tiny_inception"), A40, rng=0, execution="all")


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


def test_each_backend_says_whether_it_can_be_used():
    found = {entry.name: entry for entry in hwbackend.available()}
    assert list(found) == list(hwbackend.BACKENDS)
    assert found["synthetic"].usable
    assert all(entry.reason for entry in found.values())


def test_unknown_names_are_refused():
    with pytest.raises(UnknownNameError, match=r"unknown backend 'gpu'; known are: cupy, .*package.module:factory"):
        hwbackend.get("gpu")


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("synthetic", {"colour": "red"}, "'synthetic': unknown option 'colour'; known are: gpu, gpus, "),
        ("json:loads", {}, "'json:loads' cannot be made: .*argument"),
        (f"{__name__}:broken_driver", {}, "cannot be made: OSError: libcuda.so: no such file"),
        ("no_such_module:make", {}, "cannot be imported"),
        ("math:nothing", {}, "cannot be imported"),
        ("builtins:dict", {}, "is not one: it has no realise, microbenchmarks, profile, replay, name, cluster"),
    ],
)
def test_what_is_no_backend_is_refused(name, options, text):
    with pytest.raises(BackendError, match=text):
        hwbackend.get(name, **options)
