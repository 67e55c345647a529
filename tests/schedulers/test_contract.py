"""What every scheduler promises, whatever the graph and the cluster."""

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import UNIFORM, by_operator, clusters, graphs

from simsched.bounds import lower_bound
from simsched.cluster import Cluster
from simsched.costmodel import default_cost
from simsched.errors import SimschedError
from simsched.graph import Edge, Operator, OpGraph
from simsched.io import dump_json
from simsched.schedulers import FAST_UP_TO, SCHEDULERS, schedule
from simsched.simulator import simulate

each_scheduler = pytest.mark.parametrize("name", SCHEDULERS)


def listed(plan, cluster, cost=default_cost):
    """Finish times in us if every operator starts as soon as the one before it on its stream and all it
    reads from (and moves between devices, the links to itself) are over, no time lost in between."""
    graph, at = plan.graph, by_operator(plan)
    free, finish = {}, {}
    for row in plan.placements:
        ready = free.get((row.device, row.stream), 0.0)
        for edge in graph.edges:
            if edge.dst == row.op:
                moved = cluster.transfer_time(at[edge.src].device, row.device, edge.nbytes, edge.transfer)
                ready = max(ready, finish[edge.src] + moved)
        finish[row.op] = free[row.device, row.stream] = ready + cost(graph[row.op], cluster[row.device])
    return finish


@each_scheduler
@settings(deadline=None, max_examples=40)
@given(graph=graphs(), cluster=clusters())
def test_schedules_are_valid_and_made_twice_the_same(name, graph, cluster):
    """Each operator once, on a device there is, in an order that can run; the input stays as it was."""
    before = dump_json(graph.to_dict())
    plan = SCHEDULERS[name](graph, cluster, default_cost)
    plan.check(cluster)
    assert sorted(row.op for row in plan.placements) == sorted(plan.graph.names)
    assert plan.scheduler == name
    assert plan.graph is graph
    assert dump_json(graph.to_dict()) == before
    assert SCHEDULERS[name](graph, cluster, default_cost) == plan
    assert schedule(graph, cluster, name) == plan


@each_scheduler
@settings(deadline=None, max_examples=40)
@given(graph=graphs(), cluster=clusters(presets=UNIFORM))
def test_an_estimate_is_the_list_evaluation(name, graph, cluster):
    plan = schedule(graph, cluster, name)
    if plan.estimate is not None:
        assert plan.estimate == pytest.approx(max(listed(plan, cluster).values()), rel=1e-9, abs=1e-9)


@each_scheduler
@settings(deadline=None, max_examples=30)
@given(graph=graphs(), cluster=clusters(max_gpus=3))
def test_no_simulated_makespan_is_below_the_bound(name, graph, cluster):
    trace = simulate(schedule(graph, cluster, name), cluster)
    assert trace.makespan >= lower_bound(graph, cluster) * (1 - 1e-9)


@each_scheduler
@settings(deadline=None, max_examples=30)
@given(graph=graphs(timed=True), cluster=clusters(max_gpus=3))
def test_simulated_operators_keep_every_dependency(name, graph, cluster):
    times = simulate(schedule(graph, cluster, name), cluster).operator_times()
    for edge in graph.edges:
        assert times[edge.src][1] <= times[edge.dst][0] + 1e-9


@each_scheduler
@settings(deadline=None, max_examples=30)
@given(graph=graphs(timed=True))
def test_a_cost_model_is_asked(name, graph):
    """With three times the cost the estimate is three times as long (one device: nothing is moved)."""
    cluster = Cluster.preset("a100")
    plan, slow = (schedule(graph, cluster, name, lambda op, _, k=k: k * op.time) for k in (1.0, 3.0))
    if plan.estimate is not None:
        assert slow.estimate == pytest.approx(3 * plan.estimate)


def made(edges, names, times=None):
    operators = [Operator(name, time=10.0 if times is None else times[i]) for i, name in enumerate(names)]
    return OpGraph(operators, [Edge(a, b, 1e6) for a, b in edges.split()])


SMALL = {
    "one": made("", "a"),
    "one of no time": made("", "a", [0.0]),
    "chain": made("ab bc cd", "abcd"),
    "chain given backwards": made("ab bc cd", "dcba"),
    "fork": made("ab ac ad ae", "abcde"),
    "join": made("ae be ce de", "abcde"),
    "disconnected": made("ab cd", "abcde"),
    "no edges": made("", "abcdefgh"),
    "zero times": made("ab ac bd cd", "abcd", [0.0] * 4),
    "some zero times": made("ab ac bd cd de", "abcde", [0.0, 5.0, 0.0, 0.0, 3.0]),
    "parallel edges": made("ab ab bc bc ac", "abc"),
    "huge and tiny": made("ab bc ac", "abc", [1e12, 1e-9, 1.0]),
}


@each_scheduler
@pytest.mark.parametrize("graph", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_small_graphs(name, graph, n):
    """Valid, simulated, no faster than the longest path and no slower than all one by one with every copy."""
    cluster = Cluster.preset("a100", n).without_overheads()
    plan = schedule(graph, cluster, name)
    makespan = simulate(plan, cluster).makespan
    moved = sum(cluster.transfer_time("gpu0", "gpu1", edge.nbytes) for edge in graph.edges) if n > 1 else 0.0
    assert graph.longest_path()[0] <= makespan * (1 + 1e-9)
    assert makespan <= (graph.time.sum() + moved) * (1 + 1e-9)


@each_scheduler
def test_devices_without_links(name):
    """No copy is possible: a scheduler stays on one device, or there is an error that says so."""
    cluster = Cluster(Cluster.preset("a100", 2).devices)
    graph = made("ab", "ab")
    failure = None
    try:
        simulate(schedule(graph, cluster, name), cluster)
    except SimschedError as error:
        failure = str(error)
    assert failure is None or "no links lead from gpu0 to gpu1" in failure


@each_scheduler
def test_a_layered_graph_of_thousands(name):
    """A few seconds at most where a scheduler claims to be fast at that size."""
    n = min(3000, FAST_UP_TO.get(name, 3000))
    rng = np.random.default_rng(0)
    dst = np.repeat(np.arange(20, n), 2)
    src = dst - rng.integers(1, 20, len(dst))
    graph = OpGraph.from_columns([f"o{i}" for i in range(n)], src, dst, time=rng.uniform(1, 20, n), edge_nbytes=1e5)
    cluster = Cluster.preset("a100", 4)
    plan = schedule(graph, cluster, name)
    assert len(plan) == n
    assert len(plan.lower(cluster).launch_op) == n
