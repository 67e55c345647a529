"""The parts of the search: its quick model against the simulator, launch orders, and moves that keep what must hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import made, placements
from strategies import graphs

import simsched as ss
import workloads
from simsched.model import Schedule, default_cost
from simsched.schedulers.search.candidate import Candidate, change_stages, launch_order, merge
from simsched.schedulers.search.walk import Walk
from simsched.simulator import Evaluator


def walked(graph, cluster, plan, streams=3):
    candidate = Candidate(plan, cluster, streams)
    return candidate, Walk(candidate, graph, cluster, default_cost, captured=plan.execution == "graph")


@pytest.mark.parametrize("execution", ["events", "graph"])
@pytest.mark.parametrize("seed", range(2))
def test_without_overheads_the_model_is_the_simulator(execution, seed):
    """Operators with a utilization, exact transfers, nothing charged: the model's makespan is the simulated one."""
    graph = workloads.random_layered(n_ops=60, n_layers=8, comm_ratio=0.8, rng=seed)
    cluster = ss.Cluster.preset("a40", 3).without_overheads()
    plan = ss.schedule(graph, cluster, "round-robin", streams=2)
    plan = Schedule(graph, plan.placements, execution)
    candidate, walk = walked(graph, cluster, plan)
    evaluator, rng = Evaluator(plan, cluster), np.random.default_rng(seed)
    path = np.array([graph.index[name] for name in evaluator.trace().critical_path().operators])
    for _ in range(10):
        found = walk.change(path, 1000.0, rng)
        assert evaluator.replace(*candidate.columns()) == pytest.approx(found, rel=1e-6)


def test_the_model_charges_what_a_device_does():
    """a and b of 10 us on two streams, c behind a reads from b: launches of 6 us and records of 1 us are issued one
    after the other, so a starts at 7 and b at 14, and ends at 24; c starts a hop of 2 us later and ends at 36 us."""
    device = ss.Cluster.preset("a100").devices[0]
    assert (device.launch, device.record, device.hop, device.gap) == (6.0, 1.0, 2.0, 0.9)
    graph = made("a=10 b=10 c=10", "bc")
    plan = Schedule(graph, placements("a b/1 c"))
    _, walk = walked(graph, ss.Cluster.preset("a100"), plan)
    walk._steps = 0
    assert walk.change(np.zeros(0, np.int64), 1.0, np.random.default_rng(0)) == pytest.approx(36.0)


@settings(deadline=None, max_examples=20)
@given(graph=graphs(max_ops=10), seed=st.integers(0, 100), n_gpus=st.integers(1, 3))
def test_a_walk_keeps_the_launch_order_topological(graph, seed, n_gpus):
    """And every operator once, on a device and stream there is; at a temperature at which all is taken."""
    cluster = ss.Cluster.preset("a100", n_gpus)
    candidate, walk = walked(graph, cluster, ss.schedule(graph, cluster, "sequential"))
    rng = np.random.default_rng(seed)
    path = np.array(candidate.order[: 1 + len(graph) // 2])
    for _ in range(5):
        walk.change(path, 1e9, rng)
        walk.adapt(1.0)
    assert sorted(candidate.order.tolist()) == list(range(len(graph)))
    assert candidate.place[candidate.order].tolist() == list(range(len(graph)))
    assert (candidate.place[graph.src] < candidate.place[graph.dst]).all()
    assert 0 <= candidate.device.min() <= candidate.device.max() < n_gpus
    assert 0 <= candidate.stream.min() <= candidate.stream.max() < 3


@settings(deadline=None, max_examples=20)
@given(graph=graphs(max_ops=10), seed=st.integers(0, 100), n_gpus=st.integers(1, 3))
def test_stages_never_fall_along_the_launch_order(graph, seed, n_gpus):
    cluster = ss.Cluster.preset("a100", n_gpus)
    candidate = Candidate(ss.schedule(graph, cluster, "greedy"), cluster, 4)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        change_stages(candidate, candidate.order[:1].copy(), rng)
        assert (candidate.place[graph.src] < candidate.place[graph.dst]).all()
        for d in range(n_gpus):
            mine = candidate.order[candidate.device[candidate.order] == d]
            assert (np.diff(candidate.stage[mine]) >= 0).all()


def test_merged_stages_put_what_depends_on_each_other_on_one_stream():
    """Chain a, b in two stages of greedy: merged, they are one group."""
    graph = made("a=1 b=1", "ab")
    cluster = ss.Cluster.preset("a100")
    candidate = Candidate(ss.schedule(graph, cluster, "greedy"), cluster, 4)
    candidate.stream[:] = [3, 1]
    merge(candidate, 0, np.random.default_rng(0))
    assert candidate.stage.tolist() == [0, 0]
    assert candidate.stream.tolist() == [3, 3]


def test_one_launch_order_for_all_devices():
    """gpu0 launches c, then b; gpu1 a, which b reads: c first, as the plan has it, then a before b."""
    graph = made("a=1 b=1 c=1", "ab")
    for text, order in (("c b a@1", "cab"), ("a c b", "acb")):
        assert "".join(graph.names[i] for i in launch_order(Schedule(graph, placements(text)))) == order
