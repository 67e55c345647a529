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
from simsched.model.program import EXECUTIONS, RECORD, WAIT
from simsched.model.trace import COPY, KERNEL
from simsched.simulator import simulate


def exact(program, cluster):
    """Run a program on a surrogate that is what its preset says, with nothing that varies."""
    plan = Plan(program, Truth(cluster, startup=0.0, reach=1.0 / cluster.devices[0].saturating_warps, seed=0))
    sms = Sms(plan.devices, plan.columns, plan.blocks, interference=0.0)
    sizes = len(program), len(plan.blocks), len(plan.copy_at), max(1, int(plan.blocks.sum()))
    luck = Luck(*(np.ones(size) for size in sizes))
    return Run(plan, sms, luck, [(None, False)] * len(cluster)).times()


def times_of(trace, kind, count):
    rows = np.flatnonzero(trace.kind == kind)
    found = np.zeros((count, 2))
    found[trace.item[rows]] = np.column_stack([trace.start[rows], trace.end[rows]])
    return found


@st.composite
def small_graphs(draw):
    """DAGs of operators of one small block each, which get in nobody's way."""
    n = draw(st.integers(1, 9))
    times = draw(st.lists(st.integers(1, 60), min_size=n, max_size=n))
    operators = [Operator(f"v{i}", time=float(t), kernels=(Kernel(1, 32),)) for i, t in enumerate(times)]
    pairs = [(a, b) for b in range(n) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    return OpGraph(operators, [Edge(f"v{a}", f"v{b}", transfer=float(7 + a)) for a, b in chosen])


@settings(deadline=None, max_examples=60)
@given(
    graph=small_graphs(),
    gpus=st.integers(1, 3),
    streams=st.integers(1, 5),
    execution=st.sampled_from(EXECUTIONS),
    threads=st.sampled_from(["device", "one"]),
    transfers=st.sampled_from(["async", "blocking"]),
    events=st.sampled_from(["minimal", "literal"]),
    connections=st.sampled_from([2, 32]),
    seed=st.integers(0, 2**16),
)
def test_without_contention_it_runs_as_the_model_says(
    graph, gpus, streams, execution, threads, transfers, events, connections, seed
):
    cluster = Cluster.preset("a100", gpus).replace_devices(connections=connections, launch_latency=0.0)
    plan = random_schedule(graph, cluster, rng=seed, streams=streams, execution=execution)
    transfers = "async" if execution == "graph" else transfers
    program = plan.lower(cluster, threads=threads, transfers=transfers, events=events)
    trace = simulate(program, cluster)
    launches, copies = exact(program, cluster)
    np.testing.assert_allclose(launches, times_of(trace, KERNEL, len(launches)), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(copies, times_of(trace, COPY, len(copies)), rtol=1e-9, atol=1e-6)


def two_devices(**device):
    """Two devices of 4 SMs, with no costs of the host, joined by a link of 100 bytes per us and a latency of 5 us."""
    cluster = Cluster.preset("a100", 2).without_overheads().replace_devices(sms=4, copy_engines=4, **device)
    names = [d.name for d in cluster.devices]
    return replace(cluster, links=((names[0], names[1], Link(bandwidth=100.0, latency=5.0)),))


def copied(nbytes, **device):
    """Return start and end of a copy from gpu0 to gpu1 of what an operator has made at 10 us."""
    operators = [Operator(name, time=10.0, kernels=(Kernel(1, 32),)) for name in ("make", "read")]
    graph = OpGraph(operators, [Edge("make", "read", nbytes=nbytes)])
    cluster = two_devices(**device)
    return exact(Schedule(graph, [Placement("make", "gpu0"), Placement("read", "gpu1")]).lower(cluster), cluster)[1]


def test_a_copy_takes_the_latency_and_then_its_bytes():
    """1000 bytes: ready at 10, 5 us, then 1000 / 100 = 10 us."""
    np.testing.assert_allclose(copied(1000.0), [[10.0, 25.0]])


def three_devices(**device):
    """Three devices around a switch: 100 bytes per us to and from gpu0, 300 to and from each of the others."""
    cluster = Cluster.preset("a100", 3).without_overheads().replace_devices(sms=4, **device)
    wires = [("gpu0", "switch", Link(100.0, 5.0)), ("gpu1", "switch", Link(300.0)), ("gpu2", "switch", Link(300.0))]
    return replace(cluster, links=tuple(wires))


def sent_to_both(nbytes, **device):
    """Return start and end of the copies from gpu0 to gpu1 and gpu2, made at 10 us."""
    operators = [Operator(name, time=10.0, kernels=(Kernel(1, 32),)) for name in ("make", "left", "right")]
    edges = [Edge("make", name, nbytes=size) for name, size in zip(("left", "right"), nbytes, strict=True)]
    plan = Schedule(
        OpGraph(operators, edges), [Placement("make", "gpu0"), Placement("left", "gpu1"), Placement("right", "gpu2")]
    )
    cluster = three_devices(**device)
    return exact(plan.lower(cluster), cluster)[1]


def test_copies_share_a_link_equally():
    """Both move at 50 bytes per us from 15 on: the one of 1000 bytes until 35; of the other 1000 are left, 10 us."""
    np.testing.assert_allclose(sent_to_both([1000.0, 2000.0], copy_engines=2), [[10.0, 35.0], [10.0, 45.0]])


def test_a_copy_waits_for_an_engine_of_its_source():
    """One engine: the first from 10 to 25, then the second: 5 us and 2000 / 100 us."""
    np.testing.assert_allclose(sent_to_both([1000.0, 2000.0], copy_engines=1), [[10.0, 25.0], [25.0, 50.0]])


def test_an_engine_moves_no_more_than_its_rate():
    """25 bytes per us: 5 us and 1000 / 25 us."""
    np.testing.assert_allclose(copied(1000.0, copy_rate=25.0), [[10.0, 55.0]])


def test_a_copy_takes_part_of_the_bandwidth_of_both_its_ends():
    """gpu0 has 125 bytes per us. A kernel there that takes all of it for 40 us starts at 10 with a copy of 1000 bytes.
    Alone until 15; then 100 of the link go to the copy, and DRAM is asked for 1.8 of what it has: the kernel gets
    1/1.8 until the copy ends at 25 (links are not slowed by DRAM). It has done 5 + 10 / 1.8 = 10.556 us, and ends
    29.444 us later.
    """
    cluster = two_devices(bandwidth=125.0, saturating_warps=8.0)
    graph = OpGraph(
        [
            Operator("make", time=10.0, kernels=(Kernel(1, 32),)),
            Operator("stream", nbytes=40 * 125.0, kind="synth", kernels=(Kernel(4, 256),)),
            Operator("read", time=1.0, kernels=(Kernel(1, 32),)),
        ],
        [Edge("make", "read", nbytes=1000.0)],
    )
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


def chain(devices):
    """Return a program of two operators that depend on each other, on two streams or devices."""
    graph = OpGraph(
        [Operator(name, time=50.0, kernels=(Kernel(1, 32),)) for name in ("first", "second")],
        [Edge("first", "second", nbytes=1000.0)],
    )
    plan = Schedule(graph, [Placement("first", "gpu0", 0), Placement("second", f"gpu{devices - 1}", 1)])
    return plan, plan.lower(Cluster.preset("a100", devices))


def test_an_event_that_nobody_records_is_said_to_hang():
    program = chain(1)[1]
    record = int(np.flatnonzero(program.action == RECORD)[0])
    with pytest.raises(BackendError, match=r"waiting are 'second' on gpu0 for event 0, which nobody records"):
        exact(without(program, record).check(), Cluster.preset("a100"))


def test_a_captured_graph_waits_for_nothing_that_comes_later():
    plan, _ = chain(1)
    program = replace_execution(plan, "graph").lower(Cluster.preset("a100"))
    record = int(np.flatnonzero(program.action == RECORD)[0])
    with pytest.raises(BackendError, match="waits for event 0 before it is recorded"):
        exact(without(program, record), Cluster.preset("a100"))


def replace_execution(plan, execution):
    return Schedule.from_columns(plan.graph, plan.op, plan.devices, stream=plan.stream, execution=execution)


@pytest.mark.parametrize("devices", [1, 2])
def test_no_wait_of_a_small_program_is_idle(devices):
    """Without it "second" starts before "first", which takes 50 us, has ended; see also `test_synthetic_backend`."""
    program = chain(devices)[1]
    cluster = Cluster.preset("a100", devices)
    assert (program.action == WAIT).any()
    for row in np.flatnonzero(program.action == WAIT).tolist():
        launches, copies = exact(without(program, row), cluster)
        ready = copies[0] if program.device[row] == 1 else launches[0]
        early = launches[1] if program.device[row] == devices - 1 else copies[0]
        assert early[0] < ready[1]


def test_a_block_that_fits_on_no_sm_is_refused():
    graph = OpGraph([Operator("huge", time=1.0, kernels=(Kernel(1, 1024, 255),))])
    cluster = Cluster.preset("a100")
    with pytest.raises(BackendError, match=r"'huge': a block of 1024 threads, 255 registers"):
        exact(Schedule.from_columns(graph, [0], ("gpu0",)).lower(cluster), cluster)


def test_more_blocks_than_can_be_simulated_are_refused():
    graph = OpGraph([Operator("endless", time=1.0, kernels=(Kernel(2**31),))])
    cluster = Cluster.preset("a100")
    with pytest.raises(BackendError, match=r"'endless' has more blocks than the surrogate"):
        exact(Schedule.from_columns(graph, [0], ("gpu0",)).lower(cluster), cluster)


def test_devices_without_links_are_named():
    program = chain(2)[1]
    with pytest.raises(BackendError, match=r"'first': no links lead from gpu0 to gpu1"):
        exact(program, replace(Cluster.preset("a100", 2), links=()))
