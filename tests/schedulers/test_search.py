"""Search: what it finds where the best is known by hand; its quick model against the simulator, and its moves."""

import re
import signal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import convolutions, made, merging, operators, placements
from strategies import clusters, graphs

import simsched as ss
import workloads
from simsched.base.errors import CostError, SchedulerError
from simsched.model import Operator, OpGraph, Placement, Schedule, default_cost
from simsched.schedulers import schedule
from simsched.schedulers.search import Candidate, change_stages, launch_order, merge, search
from simsched.schedulers.search.walk import Walk
from simsched.simulator import Evaluator

approx = pytest.approx
BASICS = ("sequential", "greedy", "lios", "round-robin")


def halves(n):
    """Operators of 10 us that fill half a device each and do not depend on each other."""
    return OpGraph([Operator(f"o{i}", time=10.0, utilization=0.5) for i in range(n)])


def quick(n_gpus=1):
    return ss.Cluster.preset("a100", n_gpus).without_overheads()


MERGED = merging(convolutions(), quick(), default_cost)
BEHIND = made(operators("b=10 a=10 c=20", utilization=1.0), "ac:0")
BY_HAND = {  # a graph, devices and options; then the estimate and what is said
    # One after the other 20 us; side by side they load a device fully, and neither is slowed down: 10 us.
    **{
        f"two halves share a device, {execution}": (
            halves(2),
            1,
            {"execution": execution, "evaluations": 60},
            10.0,
            {"start_makespan": 20.0},
        )
        for execution in (None, "events", "graph", "stages")
    },
    # Four of them, each in a stage of its own: 40 us; in two stages of two groups, or in one stage of four, 20 us.
    "stages are merged": (halves(4), 1, {"execution": "stages", "evaluations": 300}, 20.0, {}),
    # 8 operators of 10 us and a utilization of 0.5 on n devices: 8 x 5 / n us of full load.
    "two devices are used": (halves(8), 2, {}, approx(20.0), {}),
    "four devices are used": (halves(8), 4, {}, approx(10.0), {}),
    # Each fills the device: a alone, then c beside b, take 10 + 10 + 20 us; on two devices without transfer time 30 us.
    "what is needed first is launched first": (BEHIND, 1, {"evaluations": 200}, 40.0, {}),
    "so it is on two devices": (BEHIND, 2, {"evaluations": 200}, 30.0, {}),
    # a, then b+c of 40 us and join: 10 + 40 us; with b and c each on its own it is the same, but for the names.
    "a start over a rewritten graph goes on over it": (
        convolutions(),
        1,
        {"starts": [MERGED], "evaluations": 60},
        50.0,
        {"start": "ios"},
    ),
    # A cost model that makes gpu1 four times as quick: both operators go there.
    "devices that differ": (
        made(operators("a=8 b=8", utilization=1.0)),
        2,
        {"evaluations": 100, "cost": lambda op, device: op.time / (4 if device.name == "gpu1" else 1)},
        4.0,
        {},
    ),
    "what cannot get better": (
        made("a=0 b=0", "ab"),
        1,
        {"evaluations": 50},
        0.0,
        {"stopped": "nothing to change", "evaluations": 4},
    ),
}


@pytest.mark.parametrize("case", BY_HAND.values(), ids=BY_HAND)
def test_what_is_found_where_the_best_is_known(case):
    graph, n_gpus, options, estimate, said = case
    plan = schedule(graph, quick(n_gpus), search, **{"starts": "sequential", "evaluations": 800} | options)
    assert plan.estimate == estimate
    assert plan.execution == (options.get("execution") or plan.execution)
    assert plan.search.items() >= said.items()


@settings(deadline=None, max_examples=15)
@given(
    graph=graphs(),
    cluster=clusters(max_gpus=3),
    execution=st.sampled_from([None, "stages", "events", "graph"]),
    seed=st.integers(0, 3),
)
def test_valid_and_no_slower_than_the_best_start(graph, cluster, execution, seed):
    starts = [schedule(graph, cluster, name) for name in BASICS]
    plan = schedule(graph, cluster, search, starts=starts, evaluations=60, rng=seed, execution=execution)
    assert plan.estimate == ss.simulate(plan, cluster).makespan
    asked = [ss.simulate(start, cluster).makespan for start in starts if execution in (None, start.execution)]
    if asked:
        assert plan.search["start_makespan"] == min(asked) >= plan.estimate
    assert plan.search["stopped"] in (None, "nothing to change")


def dag():
    graph = workloads.random_layered(n_ops=60, n_layers=8, comm_ratio=0.8, rng=1)
    return graph, ss.Cluster.preset("a40", 3)


def test_a_random_dag_gets_better_with_the_evaluations():
    """From the best of the simple schedulers; the budget is kept."""
    graph, cluster = dag()
    found = [schedule(graph, cluster, search, starts=BASICS, evaluations=n) for n in (20, 100, 600)]
    assert all(a.estimate > b.estimate for a, b in pairwise(found))
    assert found[-1].estimate < 0.8 * found[-1].search["start_makespan"]
    assert [plan.search["evaluations"] for plan in found] == [20, 100, 600]
    assert found[-1].search["accepted"] > 50


def test_default_starts():
    """Those that are there; the best of them is named."""
    graph, cluster = dag()
    plan = schedule(graph, cluster, search, evaluations=60)
    assert plan.search["start"] in ("heft", "peft", "etf", "hios-lp", "hios-mr", "inter-lp")
    assert plan.estimate <= ss.simulate(schedule(graph, cluster, "lios"), cluster).makespan


def test_a_start_whose_launch_order_is_topological_on_each_device_alone():
    """gpu0 launches c before gpu1's a that gpu0's b reads: one order over all keeps c, b and a where they are."""
    graph = made("a=1 b=1 c=1", "ab:1")
    start = Schedule(graph, placements("c b a@1"))
    plan = schedule(graph, ss.Cluster.preset("a100", 2), search, starts=[start], evaluations=80)
    assert plan.estimate < plan.search["start_makespan"]  # b behind a needs no copy


def test_schedules_given_count_whatever_the_time():
    """The second is twice as quick; a name behind them is not asked any more."""
    graph = halves(2)
    starts = [Schedule(graph, [Placement("o0"), Placement("o1", stream=s)], scheduler=f"s{s}") for s in (0, 1)]
    plan = schedule(graph, quick(), search, starts=[*starts, "greedy"], time_limit=1e-6)
    assert (plan.estimate, plan.search["start"]) == (10.0, "s1")
    assert plan.search["stopped"] == "time limit"
    assert plan.search["evaluations"] == 5  # both by events and as a graph, and one candidate


@pytest.mark.parametrize("evaluations", [1, 4, 5, 6, 7])
def test_the_budget_is_kept_from_the_start_on(evaluations):
    """Two starts of two executions, and the best of these once more: five simulations there are in any case."""
    plan = schedule(halves(8), quick(), search, starts=("sequential", "round-robin"), evaluations=evaluations)
    assert plan.search["evaluations"] == max(5, evaluations)


def test_an_interruption_returns_the_best_so_far(caplog):
    """Pressed when progress is told for the third time, behind 200 evaluations."""
    graph, cluster = dag()
    told = []

    def press(text):
        told.append(text)
        if len(told) == 3:
            signal.raise_signal(signal.SIGINT)

    plan = schedule(graph, cluster, search, starts=("lios",), evaluations=5000, progress=press)
    assert plan.search["stopped"] == "interrupted"
    assert 200 <= plan.search["evaluations"] < 300
    assert plan.estimate <= ss.simulate(schedule(graph, cluster, "lios"), cluster).makespan
    assert "search: stopped (interrupted)" in caplog.text


def test_a_cost_model_that_cannot_answer():
    """It is to blame, not the schedulers that ask it."""

    def cost(op, device):
        return float("nan")

    plan = Schedule(halves(1), [Placement("o0")])
    for starts in ((), [plan]):
        with pytest.raises(CostError, match="the cost model says operator 'o0' takes nan us"):
            schedule(plan.graph, quick(), search, cost, starts=starts)


def test_no_start_that_runs():
    """There is no link for the copy from a to b."""
    graph = made("a=1 b=1", "ab=100")
    start = Schedule(graph, placements("a b@1"))
    with pytest.raises(SchedulerError, match="search: no start runs with execution=None"):
        schedule(graph, ss.Cluster(quick(2).devices), search, starts=[start])


def test_progress_is_told():
    """Every hundred evaluations: how many of how many, and the best so far."""
    told = []
    graph = workloads.random_layered(n_ops=30, n_layers=5, rng=0)
    plan = schedule(graph, ss.Cluster.preset("a40", 2), search, evaluations=400, progress=told.append)
    assert all(re.fullmatch(r"[0-9]+ of 400 evaluations, [0-9]+\.[0-9] us", text) for text in told)
    assert len(told) >= 3
    assert float(told[-1].split()[-2]) >= plan.estimate - 0.1


def walked(graph, cluster, plan, streams=3):
    candidate = Candidate(plan, cluster, streams)
    captured = plan.execution == "graph"
    return candidate, Walk(candidate.rows[:4], streams, graph, cluster, default_cost, captured=captured)


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
        columns = candidate.rows[2:].take(candidate.order, axis=1)
        assert evaluator.replace(candidate.order, *columns) == pytest.approx(found, rel=1e-6)


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
