"""Hosts, streams, events, copies and captured graphs of the surrogate: without contention and noise they keep the rules
of the simulator's model, which tests/simulator works by hand; what differs by design is worked by hand here."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shortened import without

from hwbackend.surrogate.plan import Plan
from hwbackend.surrogate.run import Luck, Run
from hwbackend.surrogate.sms import Sms
from hwbackend.surrogate.truth import Truth
from simsched import Cluster, Edge, Kernel, Link, Operator, OpGraph, Placement, Schedule
from simsched.base.errors import BackendError
from simsched.calibration.training import random_schedule
from simsched.model.program import EXECUTIONS, RECORD
from simsched.model.trace import COPY, KERNEL
from simsched.simulator import simulate


def exact(program, cluster):
    """Run a program on a surrogate that is what its preset says, with nothing that varies."""
    plan = Plan(program, Truth(cluster, startup=0.0, reach=1.0 / cluster.devices[0].saturating_warps, seed=0))
    sms = Sms(plan.devices, plan.columns, plan.blocks, interference=0.0)
    sizes = len(program), len(plan.blocks), len(plan.copy_at), max(1, int(plan.blocks.sum()))
    luck = Luck(*(np.ones(size) for size in sizes))
    return Run(plan, sms, luck, [(None, False)] * len(cluster)).times()


@st.composite
def small_graphs(draw):
    """DAGs of operators of one small block each, which get in nobody's way."""
    times = draw(st.lists(st.integers(1, 60), min_size=1, max_size=9))
    operators = [Operator(f"v{i}", time=float(t), kernels=(Kernel(1, 32),)) for i, t in enumerate(times)]
    pairs = [(a, b) for b in range(len(times)) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    return OpGraph(operators, [Edge(f"v{a}", f"v{b}", transfer=float(7 + a)) for a, b in chosen])


@settings(deadline=None, max_examples=60)
@given(
    graph=small_graphs(), gpus=st.integers(1, 3), streams=st.integers(1, 5), execution=st.sampled_from(EXECUTIONS),
    threads=st.sampled_from(["device", "one"]), transfers=st.sampled_from(["async", "blocking"]),
    events=st.sampled_from(["minimal", "literal"]), connections=st.sampled_from([2, 32]), seed=st.integers(0, 2**16),
)  # fmt: skip
def test_without_contention_it_runs_as_the_model_says(
    graph, gpus, streams, execution, threads, transfers, events, connections, seed
):
    cluster = Cluster.preset("a100", gpus).replace_devices(connections=connections, launch_latency=0.0)
    plan = random_schedule(graph, cluster, rng=seed, streams=streams, execution=execution)
    transfers = "async" if execution == "graph" else transfers
    program = plan.lower(cluster, threads=threads, transfers=transfers, events=events)
    trace = simulate(program, cluster)
    for kind, times in zip((KERNEL, COPY), exact(program, cluster), strict=True):
        rows = np.flatnonzero(trace.kind == kind)
        modelled = np.column_stack([trace.start[rows], trace.end[rows]])
        np.testing.assert_allclose(times[trace.item[rows]], modelled, rtol=1e-9, atol=1e-6)
        assert len(times) == len(rows)


BLOCK = (Kernel(1, 32),)


def around_a_switch(**device):
    """Devices of 4 SMs with no costs of the host: 100 bytes per us and 5 us from gpu0, 300 to each of the others."""
    cluster = Cluster.preset("a100", 3).without_overheads().replace_devices(sms=4, **device)
    wires = [("gpu0", "switch", Link(100.0, 5.0)), ("gpu1", "switch", Link(300.0)), ("gpu2", "switch", Link(300.0))]
    return replace(cluster, links=tuple(wires))


@pytest.mark.parametrize(
    ("nbytes", "device", "spans"),
    [
        ([1000.0], {}, [[10, 25]]),  # 5 us, then 1000 / 100
        ([1000.0], {"copy_rate": 25.0}, [[10, 55]]),  # an engine moves no more than its rate: 5 us and 1000 / 25
        # both move at 50 bytes per us from 15 on: one until 35; of the other 1000 are left, 10 us
        ([1000.0, 2000.0], {"copy_engines": 2}, [[10, 35], [10, 45]]),
        # one engine: the first until 25, then 5 us and 2000 / 100
        ([1000.0, 2000.0], {"copy_engines": 1}, [[10, 25], [25, 50]]),
    ],
)
def test_copies_by_hand(nbytes, device, spans):
    """Copies to gpu1 and gpu2 of what an operator of gpu0 has made at 10 us."""
    readers = [f"gpu{i + 1}" for i in range(len(nbytes))]
    operators = [Operator(name, time=10.0, kernels=BLOCK) for name in ("make", *readers)]
    edges = [Edge("make", name, nbytes=size) for name, size in zip(readers, nbytes, strict=True)]
    plan = Schedule(OpGraph(operators, edges), [Placement("make", "gpu0"), *(Placement(gpu, gpu) for gpu in readers)])
    cluster = around_a_switch(**device)
    np.testing.assert_allclose(exact(plan.lower(cluster), cluster)[1], spans)


def test_a_copy_takes_part_of_the_bandwidth_of_both_its_ends():
    """gpu0 has 125 bytes per us. A kernel there that takes all of it for 40 us starts at 10 with a copy of 1000 bytes.
    Alone until 15; then 100 of the link go to the copy, and DRAM is asked for 1.8 of what it has: the kernel gets
    1/1.8 until the copy ends at 25 (links are not slowed by DRAM). It has done 5 + 10 / 1.8 = 10.556 us, and ends
    29.444 us later.
    """
    cluster = around_a_switch(bandwidth=125.0, saturating_warps=8.0)
    stream = Operator("stream", nbytes=40 * 125.0, kind="synth", kernels=(Kernel(4, 256),))
    ends = [Operator(name, time=10.0, kernels=BLOCK) for name in ("make", "read")]
    graph = OpGraph([ends[0], stream, ends[1]], [Edge("make", "read", nbytes=1000.0)])
    plan = Schedule(graph, [Placement("make", "gpu0"), Placement("stream", "gpu0"), Placement("read", "gpu1")])
    launches, copies = exact(plan.lower(cluster), cluster)
    np.testing.assert_allclose(copies, [[10.0, 25.0]])
    np.testing.assert_allclose(launches[1], [10.0, 54.4444], rtol=0.02)


def test_what_ran_just_before_is_warm():
    """Two equal operators bound by DRAM: the second finds part of its data in the cache, and takes 1/1.3 to 1/2."""
    cluster = Cluster.preset("a100").without_overheads()
    same = [Operator(name, nbytes=1e8, kind="synth", kernels=(Kernel(432, 256),)) for name in ("first", "second")]
    other = Operator("other", nbytes=1.5e8, kind="synth", kernels=(Kernel(432, 256),))
    plan = Schedule.from_columns(OpGraph([same[0], other, same[1]]), [0, 1, 2], ("gpu0",))
    cold = np.diff(exact(plan.lower(cluster), cluster)[0])[:, 0]
    assert cold[2] == pytest.approx(cold[0])
    plan = Schedule.from_columns(OpGraph([*same, other]), [0, 1, 2], ("gpu0",))
    warm = np.diff(exact(plan.lower(cluster), cluster)[0])[:, 0]
    assert warm[0] == pytest.approx(cold[0])
    assert 1.3 <= warm[0] / warm[1] <= 2.0


@pytest.mark.parametrize(
    ("execution", "kernel", "dropped", "linked", "says"),
    [
        ("events", BLOCK, RECORD, True, r"waiting are 'second' on gpu0 for event 0, which nobody records"),
        ("graph", BLOCK, RECORD, True, "waits for event 0 before it is recorded"),
        ("events", (Kernel(1, 1024, 255),), None, True, r"'first': a block of 1024 threads, 255 registers"),
        ("events", (Kernel(2**31),), None, True, r"'first' has more blocks than the surrogate"),
        ("events", BLOCK, None, False, r"'first': no links lead from gpu0 to gpu1"),
    ],
)
def test_what_cannot_run_is_refused(execution, kernel, dropped, linked, says):
    """Two operators on two streams, or on two devices that are not linked."""
    operators = [Operator("first", time=50.0, kernels=kernel), Operator("second", time=50.0, kernels=BLOCK)]
    graph = OpGraph(operators, [Edge("first", "second", nbytes=1000.0)])
    places = [Placement("first", "gpu0"), Placement("second", "gpu0" if linked else "gpu1", 1)]
    cluster = Cluster.preset("a100", 1 if linked else 2)
    program = Schedule(graph, places, execution=execution).lower(cluster)
    if dropped is not None:
        program = without(program, int(np.flatnonzero(program.action == dropped)[0]))
    with pytest.raises(BackendError, match=says):
        exact(program, cluster if linked else replace(cluster, links=()))
