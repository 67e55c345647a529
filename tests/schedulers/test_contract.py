"""What every scheduler promises, whatever the graph and the cluster."""

from inspect import signature

import numpy as np
import pytest
from hios_by_hand import Plain
from hypothesis import given, note, settings
from hypothesis import strategies as st
from listing_oracle import last
from quick import quick
from small import made, stages
from strategies import clusters, graphs

from simsched.base.errors import SchedulerError, SimschedError
from simsched.base.io import dump_json
from simsched.bounds import lower_bound
from simsched.model import Cluster, OpGraph, default_cost
from simsched.schedulers import FAST_UP_TO, SCHEDULERS
from simsched.schedulers import schedule as schedule_with
from simsched.schedulers.stage_costs import ExecutedStage, StageFormula
from simsched.simulator import StageLatency, simulate

each_scheduler = pytest.mark.parametrize("name", SCHEDULERS)


def staged(plan, cluster):
    """Makespan in us if every stage starts when its device is free and all that its operators read is there, and
    takes its latency, no time lost in between: with launches and barrier, of schedulers that ask for latencies."""
    latency = {device.name: StageLatency(plan.graph, cluster, device=device.name) for device in cluster.devices}
    if "stage_latency" in signature(SCHEDULERS[plan.scheduler]).parameters:
        latency = {
            name: ExecutedStage(plan.graph, cluster[name], None, simulated) for name, simulated in latency.items()
        }
    slow = Plain(plan.graph, cluster, default_cost)
    return slow.makespan(stages(plan), lambda groups, device: latency[device](tuple(map(tuple, groups))))


def schedule(graph, cluster, name, cost=None):
    return schedule_with(graph, cluster, name, cost, **quick(name, graph))


@settings(deadline=None, max_examples=60)
@given(graph=graphs(), cluster=clusters(max_gpus=3))
def test_what_every_schedule_keeps(graph, cluster):
    """Each operator once, on a device there is, in an order that can run; the same schedule twice, the input as it was.

    The estimate is what the schedule comes to by list evaluation, of operators or of stages, or of a search by
    simulation, when simulated. Nothing that is simulated starts before what it reads is there, or beats the bound.
    """
    for name in SCHEDULERS:  # drawing a graph takes longer than scheduling it
        note(name)
        before = dump_json(graph.to_dict())
        plan = SCHEDULERS[name](graph, cluster, default_cost, **quick(name, graph))
        assert dump_json(graph.to_dict()) == before
        assert schedule(graph, cluster, name) == plan.check(cluster)
        assert sorted(row.op for row in plan.placements) == sorted(plan.graph.names)
        assert plan.scheduler == name

        trace = simulate(plan, cluster)
        assert trace.makespan >= lower_bound(plan.graph, cluster) * (1 - 1e-9)
        times = trace.operator_times()
        for edge in plan.graph.edges:
            assert times[edge.src][1] <= times[edge.dst][0] + 1e-9

        if name == "search":
            assert plan.estimate == trace.makespan
        elif plan.estimate is not None:
            listed_or_staged = staged if plan.execution == "stages" else last
            assert plan.estimate == pytest.approx(listed_or_staged(plan, cluster), rel=1e-9, abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(graph=graphs(timed=True), n=st.sampled_from([1, 1, 2, 3]))
def test_without_contention_nothing_takes_longer_than_one_by_one(graph, n):
    """At most the sum of all times and copies; with three times the cost, on one device, three times the estimate.

    The latter by a formula where stages are simulated: what shares a device takes three times as long only if all gaps
    do, too.
    """
    cluster = Cluster.preset("a100", n).without_overheads().replace_devices(contention=False)
    for name in SCHEDULERS:
        note(name)
        options = quick(name, graph)
        if "stage_latency" in signature(SCHEDULERS[name]).parameters:
            options |= {"stage_latency": StageFormula(constant=0.0)}
        plan = schedule_with(graph, cluster, name, **options)
        moved = 0.0 if n == 1 else sum(cluster.transfer_time("gpu0", "gpu1", e.nbytes, e.transfer) for e in graph.edges)
        assert simulate(plan, cluster).makespan <= (plan.graph.time.sum() + moved) * (1 + 1e-9)
        if n == 1 and plan.estimate is not None:
            slow = schedule_with(graph, cluster, name, lambda op, _: 3.0 * op.time, **options)
            assert slow.estimate == pytest.approx(3 * plan.estimate)


@each_scheduler
@pytest.mark.parametrize("n", [1, 3])
def test_times_of_all_sizes(name, n):
    cluster, graph = Cluster.preset("a100", n).without_overheads(), made("a=1e12 b=1e-9 c=1", "ab bc ac", nbytes=1e6)
    makespan = simulate(schedule(graph, cluster, name), cluster).makespan
    assert 1e12 + 1 <= makespan * (1 + 1e-9) <= (1e12 + 1e3) * (1 + 2e-9)


LONG = {"a chain": [(i, i + 1) for i in range(999)], "a fork": [(0, i) for i in range(1, 1000)], "apart": []}


@each_scheduler
@pytest.mark.parametrize("pairs", LONG.values(), ids=LONG)
@pytest.mark.parametrize("n", [1, 4])
def test_long_and_wide_graphs(name, pairs, n):
    cluster, src, dst = Cluster.preset("a100", n), [i for i, _ in pairs], [j for _, j in pairs]
    graph = OpGraph.from_columns([f"o{i}" for i in range(1000)], src, dst, time=2.0, edge_nbytes=1e5)
    plan = schedule(graph, cluster, name)
    assert len(plan) == 1000
    assert simulate(plan, cluster).makespan >= lower_bound(graph, cluster) * (1 - 1e-9)
    if plan.estimate is not None and name != "search":  # 2 us an operator, on each stream one after the other
        places = len(set(zip(plan.device.tolist(), plan.stream.tolist(), strict=True)))
        longest = 2000 if len(graph.src) and graph.depth == 1000 else 2 * -(-998 // places)
        assert plan.estimate >= longest * (1 - 1e-9)
        device = cluster.devices[0]  # stages cost their launches where these take longer than the kernels
        slowest = max(2.0 + device.gap, device.launch) if plan.execution == "stages" else 2.0
        assert plan.estimate <= 1000 * slowest * (1 + 1e-9)


@pytest.mark.parametrize(
    "name", [name for name in SCHEDULERS if name not in ("sequential", "round-robin", "greedy", "autograph", "search")]
)
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
    graph = made("a=10 b=10", "ab", nbytes=1e6)
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
    assert len(plan.lower(cluster).launches) == n
