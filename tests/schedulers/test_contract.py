"""What every scheduler promises, whatever the graph and the cluster."""

from inspect import signature

import numpy as np
import pytest
from hypothesis import given, settings
from listing_oracle import listed
from quick import quick
from strategies import UNIFORM, by_operator, clusters, graphs

from simsched.base.errors import SchedulerError, SimschedError
from simsched.base.io import dump_json
from simsched.bounds import lower_bound
from simsched.model import Cluster, Edge, Operator, OpGraph, default_cost
from simsched.schedulers import FAST_UP_TO, SCHEDULERS
from simsched.schedulers import schedule as schedule_with
from simsched.schedulers.stage_costs import StageFormula
from simsched.simulator import StageLatency, simulate

each_scheduler = pytest.mark.parametrize("name", SCHEDULERS)


def schedule(graph, cluster, name, cost=None):
    return schedule_with(graph, cluster, name, cost, **quick(name, graph))


@each_scheduler
@settings(deadline=None, max_examples=40)
@given(graph=graphs(), cluster=clusters())
def test_schedules_are_valid_and_made_twice_the_same(name, graph, cluster):
    """Each operator once, on a device there is, in an order that can run; the input stays as it was."""
    before = dump_json(graph.to_dict())
    options = quick(name, graph)
    plan = SCHEDULERS[name](graph, cluster, default_cost, **options)
    plan.check(cluster)
    assert sorted(row.op for row in plan.placements) == sorted(plan.graph.names)
    assert plan.scheduler == name
    assert dump_json(graph.to_dict()) == before
    assert SCHEDULERS[name](graph, cluster, default_cost, **options) == plan
    assert schedule(graph, cluster, name) == plan


def staged(plan, cluster):
    """Makespan in us if every stage starts when its device is free and all that its operators read is there, and
    takes its simulated latency, no time lost in between."""
    graph, at = plan.graph, by_operator(plan)
    latency = {device.name: StageLatency(graph, cluster, device=device.name) for device in cluster.devices}
    stages = {}
    for row in plan.placements:
        stages.setdefault((row.device, row.stage), {}).setdefault(row.group, []).append(row.op)
    members = {key: [op for group in groups.values() for op in group] for key, groups in stages.items()}
    reads = {key: [edge for edge in graph.edges if edge.dst in ops and edge.src not in ops]
             for key, ops in members.items()}  # fmt: skip
    left, free, finish = list(stages), {}, {}
    while left:
        key = next(  # the first of its device, if all that it reads is there
            key for i, key in enumerate(left)
            if all(key[0] != device for device, _ in left[:i]) and all(edge.src in finish for edge in reads[key])
        )  # fmt: skip
        ready, device = free.get(key[0], 0.0), key[0]
        for edge in reads[key]:
            moved = cluster.transfer_time(at[edge.src].device, device, edge.nbytes, edge.transfer)
            ready = max(ready, finish[edge.src] + moved)
        free[device] = ready + latency[device](list(stages[key].values()))
        finish |= dict.fromkeys(members[key], free[device])
        left.remove(key)
    return max(free.values())


@each_scheduler
@settings(deadline=None, max_examples=40)
@given(graph=graphs(), cluster=clusters(presets=UNIFORM))
def test_an_estimate_is_what_the_schedule_comes_to_in_the_schedulers_model(name, graph, cluster):
    """List evaluation by operators or by stages; of a search by simulation, its simulated makespan."""
    plan = schedule(graph, cluster, name)
    if plan.estimate is None:
        return
    if name == "search":
        found = simulate(plan, cluster).makespan
    elif plan.execution == "stages":
        found = staged(plan, cluster)
    else:
        found = max(row[3] for row in listed(plan, cluster).values())
    assert plan.estimate == pytest.approx(found, rel=1e-9, abs=1e-9)


@each_scheduler
@settings(deadline=None, max_examples=30)
@given(graph=graphs(), cluster=clusters(max_gpus=3))
def test_no_simulated_makespan_is_below_the_bound(name, graph, cluster):
    plan = schedule(graph, cluster, name)
    assert simulate(plan, cluster).makespan >= lower_bound(plan.graph, cluster) * (1 - 1e-9)


@each_scheduler
@settings(deadline=None, max_examples=30)
@given(graph=graphs(timed=True))
def test_without_contention_nothing_takes_longer_than_one_by_one(name, graph):
    """On one device without contention and overheads: at most the sum of the times."""
    cluster = Cluster.preset("a100").without_overheads().replace_devices(contention=False)
    plan = schedule(graph, cluster, name)
    assert simulate(plan, cluster).makespan <= plan.graph.time.sum() * (1 + 1e-9)


@each_scheduler
@settings(deadline=None, max_examples=30)
@given(graph=graphs(timed=True), cluster=clusters(max_gpus=3))
def test_simulated_operators_keep_every_dependency(name, graph, cluster):
    plan = schedule(graph, cluster, name)
    times = simulate(plan, cluster).operator_times()
    for edge in plan.graph.edges:
        assert times[edge.src][1] <= times[edge.dst][0] + 1e-9


@each_scheduler
@settings(deadline=None, max_examples=30)
@given(graph=graphs(timed=True))
def test_a_cost_model_is_asked(name, graph):
    """With three times the cost the estimate is three times as long (one device: nothing is moved).

    By a formula where stages are simulated, and without contention where schedules are: what shares a device
    takes three times as long only if all gaps do, too.
    """
    cluster = Cluster.preset("a100").without_overheads().replace_devices(contention=False)
    options = quick(name, graph)
    if "stage_latency" in signature(SCHEDULERS[name]).parameters:
        options |= {"stage_latency": StageFormula(constant=0.0)}
    plan, slow = (schedule_with(graph, cluster, name, lambda op, _, k=k: k * op.time, **options) for k in (1.0, 3.0))
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
    "many inputs and outputs": made("ae be ce af bf cf ag bg cg dg", "abcdefg"),
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


def numbered(pairs, n):
    return OpGraph([Operator(f"o{i}", time=2.0) for i in range(n)], [Edge(f"o{i}", f"o{j}", 1e5) for i, j in pairs])


LONG = {
    "a chain of 1000": numbered([(i, i + 1) for i in range(999)], 1000),
    "a fork of 1000": numbered([(0, i) for i in range(1, 1000)], 1000),
    "1000 apart": numbered([], 1000),
}


@each_scheduler
@pytest.mark.parametrize("graph", LONG.values(), ids=LONG)
@pytest.mark.parametrize("n", [1, 4])
def test_long_and_wide_graphs(name, graph, n):
    cluster = Cluster.preset("a100", n)
    plan = schedule(graph, cluster, name)
    assert len(plan) == 1000
    assert simulate(plan, cluster).makespan >= lower_bound(graph, cluster) * (1 - 1e-9)
    if plan.estimate is not None and name != "search":  # 2 us an operator, on each stream one after the other
        places = len(set(zip(plan.device.tolist(), plan.stream.tolist(), strict=True)))
        longest = 2000 if len(graph.src) and graph.depth == 1000 else 2 * -(-998 // places)
        assert plan.estimate >= longest * (1 - 1e-9)
        assert plan.estimate <= 2000 * (1 + 1e-9)


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name not in ("sequential", "round-robin", "greedy",
                                                                              "autograph", "search")])  # fmt: skip
@pytest.mark.parametrize("n", [1, 2])
def test_times_that_add_up_to_infinity(name, n):
    """One after the other, on whatever devices; an error that names the scheduler, and no warning of numpy."""
    graph = OpGraph.from_columns(["a", "b"], [0], [1], time=1e308, utilization=0.5)
    with pytest.raises(SchedulerError, match=rf"{name}: the times .* add up to more than a float holds"):
        schedule_with(graph, Cluster.preset("a100", n), name)


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
    n = max(60, min(3000, FAST_UP_TO.get(name, 3000)))
    rng = np.random.default_rng(0)
    dst = np.repeat(np.arange(20, n), 2)
    src = dst - rng.integers(1, 20, len(dst))
    graph = OpGraph.from_columns([f"o{i}" for i in range(n)], src, dst, time=rng.uniform(1, 20, n), edge_nbytes=1e5)
    cluster = Cluster.preset("a100", 4)
    plan = schedule(graph, cluster, name)
    assert len(plan) == n
    assert len(plan.lower(cluster).launch_op) == n
