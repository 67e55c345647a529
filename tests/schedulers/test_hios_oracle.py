"""The four schedulers of HIOS against the slow one of `hios_by_hand`: equal stages, equal estimates."""

from dataclasses import replace

from hios_by_hand import Plain
from hypothesis import given, settings
from hypothesis import strategies as st
from small import stages
from strategies import edge_pairs

from simsched.model import Cluster, Edge, Link, Operator, OpGraph, default_cost
from simsched.schedulers import schedule
from simsched.schedulers.hios import hios_lp, hios_mr, inter_lp, inter_mr

# All numbers are sums of few powers of two, so that floats are exact and ties are ties.
times = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 4.0, 10.0])
A40 = {n: Cluster.preset("a40", n) for n in (1, 2, 4)}
GPU0, GPU1 = A40[2].devices
UNEQUAL = Cluster((replace(GPU0, copy_rate=64.0), replace(GPU1, copy_rate=2.0)), (("gpu0", "gpu1", Link(4.0, 1.0)),))
"""From gpu0 to gpu1 a quarter of a us per byte, back half of one, 1 us more for each."""


@st.composite
def dags(draw, exact=True, max_ops=7):
    n = draw(st.integers(1, max_ops))
    names = draw(st.permutations([f"op{i}" for i in range(n)]))
    ops = [Operator(o, time=draw(times), utilization=draw(st.sampled_from([None, 0.25, 0.5]))) for o in sorted(names)]
    rows = [
        Edge(names[i], names[j], nbytes=draw(st.sampled_from([0.0, 4.0, 16.0])),
             transfer=draw(st.sampled_from([0.0, 0.5, 1.0, 4.0])) if exact else draw(st.sampled_from([None, 2.0])))
        for i, j in draw(edge_pairs(n))
    ]  # fmt: skip
    return OpGraph(ops, rows)


cases = st.tuples(dags(), st.sampled_from(list(A40.values()))) | st.tuples(dags(exact=False), st.just(UNEQUAL))


def hios_sim(graph, cluster, cost):
    def latency(groups, device):
        stage = sum(groups, ())
        shares = [1.0 if graph[name].utilization is None else graph[name].utilization for name in stage]
        alone = [cost(graph[name], cluster[device]) for name in stage]
        busy = sum(us * share for us, share in zip(alone, shares, strict=True))
        return 0.5 * sum(alone) + 0.5 * max(busy, *alone)

    return latency


def expected(graph, cluster, cost, algorithm, w, latency=None):
    plain = Plain(graph, cluster, cost)
    device = plain.by_paths() if algorithm == "lp" else plain.by_records()
    return plain.parallelized(plain.stages_of(device), latency or hios_sim(graph, cluster, cost), w)


def twice_on_odd(op, device):
    """gpu1, and gpu3, take twice as long."""
    return op.time * (2 if device.name in ("gpu1", "gpu3") else 1)


@settings(deadline=None, max_examples=100)
@given(case=cases, w=st.integers(1, 4), cost=st.sampled_from([default_cost, twice_on_odd]))
def test_stages_and_estimates(case, w, cost):
    """Without stages of several operators, w = 1, the schedulers between devices alone."""
    graph, cluster = case
    for algorithm, between, scheduler in (("lp", inter_lp, hios_lp), ("mr", inter_mr, hios_mr)):
        plans = [schedule(graph, cluster, scheduler, cost, w=w, stage_latency="hios-sim")]
        plans += [schedule(graph, cluster, between, cost)] if w == 1 else []
        for plan in plans:
            assert (stages(plan), plan.estimate) == expected(graph, cluster, cost, algorithm, w)


@settings(deadline=None, max_examples=50)
@given(graph=dags(max_ops=9), n=st.sampled_from([2, 4]), factor=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_any_stage_latency(graph, n, factor):
    """A function that makes more stages worth while than any device does: some merges close a cycle."""

    def latency(groups):
        return (1.0 if len(groups) == 1 else factor) * sum(graph[name].time for (name,) in groups)

    for algorithm, scheduler in (("lp", hios_lp), ("mr", hios_mr)):
        plan = schedule(graph, A40[n], scheduler, w=3, stage_latency=latency)
        slow = expected(graph, A40[n], default_cost, algorithm, 3, lambda groups, _: latency(groups))
        assert (stages(plan), plan.estimate) == slow
