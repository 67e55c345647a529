"""IOS against all schedules of small graphs, told from names and edges alone: the least cost, and every count."""

from dataclasses import replace
from itertools import combinations, pairwise
from math import inf
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import made, stages
from strategies import clusters, graphs, shapes

import simsched as ss
from simsched.model import Edge, Operator, OpGraph, default_cost
from simsched.schedulers import schedule
from simsched.schedulers.ios import ios
from simsched.schedulers.stage_costs import ExecutedStage, StageFormula
from simsched.simulator import StageLatency


def groups_of(stage, pairs):
    """Connected pieces of a set of names."""
    left, groups = set(stage), []
    while left:
        group = {min(left)}
        while True:
            near = {b for a, b in pairs if a in group} | {a for a, b in pairs if b in group}
            grown = group | (near & left)
            if grown == group:
                break
            group = grown
        groups.append(frozenset(group))
        left -= group
    return frozenset(groups)


def stages_of(left, pairs, *, last, r=None, s=None, single_root=False):
    """The groups of every stage that can run first, or last, of all that is left."""
    for size in range(1, len(left) + 1):
        for chosen in map(set, combinations(sorted(left), size)):
            out = [(b, a) if last else (a, b) for a, b in pairs if a in left and b in left]
            if any(b in chosen and a not in chosen for a, b in out):
                continue
            groups = groups_of(chosen, pairs)
            if s is not None and len(groups) > s:
                continue
            if r is not None and any(len(group) > r for group in groups):
                continue
            if single_root and any(sum(all((a, b) not in pairs for a in group) for b in group) > 1 for group in groups):
                continue
            yield groups


def try_all(graph, cost, **limits):
    """The least sum of stage costs over all schedules, and how many there are."""
    pairs = frozenset((edge.src, edge.dst) for edge in graph.edges)

    def run(left):
        if not left:
            return 0.0, 1
        best, schedules = inf, 0
        for groups in stages_of(left, pairs, last=False, **limits):
            rest, ways = run(left - frozenset().union(*groups))
            best, schedules = min(best, cost(groups) + rest), schedules + ways
        return best, schedules

    return run(frozenset(graph.names))


def endings(graph, **limits):
    """Every set of operators that can be left when stages are taken off the end, with the stages that can end it."""
    pairs = frozenset((edge.src, edge.dst) for edge in graph.edges)
    found = {}

    def peel(left):
        if left and left not in found:
            found[left] = list(stages_of(left, pairs, last=True, **limits))
            for groups in found[left]:
                peel(left - frozenset().union(*groups))

    peel(frozenset(graph.names))
    return found


ONE = ss.Cluster.preset("a100")
limits = st.fixed_dictionaries(
    {"r": st.sampled_from([None, 1, 2, 3]), "s": st.sampled_from([None, 1, 2, 3]), "single_root": st.booleans()}
)

PLAIN = {
    "name": "op",
    "kind": "op",
    "time": 0.0,
    "attributes": {},
    "input_shapes": (),
    "output_shape": None,
    "block": None,
}
"""What the latency of a stage does not depend on, but for the time."""


def hashed(groups):
    """Some cost of a stage that follows no rule, whatever the order."""
    return 1.0 + crc32(repr(sorted(map(sorted, groups))).encode()) % 1000


def options(limits, **more):
    endings = "single_root" if limits["single_root"] else "exact"
    return {"r": limits["r"], "s": limits["s"], "endings": endings, "blocks": "none", "strategy": "parallel"} | more


def stages_in(plan):
    return stages(plan)["gpu0"]


@settings(max_examples=80)
@given(
    graph=shapes(max_ops=6) | graphs(max_ops=5, timed=True),
    limits=limits,
    slowdown=st.sampled_from([None, 0.0, 0.1, 0.7]),
)
def test_least_cost_and_all_counts(graph, limits, slowdown):
    """With costs that follow no rule the stages are asked one by one; a formula is evaluated as stages are built up."""

    def of_formula(groups):
        longest = max(sum(graph[name].time for name in group) for group in groups)
        return longest * (1 + slowdown * (len(groups) - 1)) + 3.0

    cost, option = (hashed, hashed) if slowdown is None else (of_formula, StageFormula(slowdown, 3.0))
    plan = schedule(graph, ONE, ios, stage_latency=option, **options(limits))
    best, schedules = try_all(graph, cost, **limits)
    found = endings(graph, **limits)
    assert plan.estimate == pytest.approx(best, rel=1e-12)
    assert plan.estimate == pytest.approx(sum(map(cost, stages_in(plan))), rel=1e-12)
    assert plan.search["feasible_schedules"] == schedules
    assert plan.search["feasible_schedules_exact"]
    assert plan.search["states"] == len(found)
    assert plan.search["transitions"] == sum(map(len, found.values()))
    distinct = {groups for stages in found.values() for groups in stages} if slowdown is None else ()
    assert plan.search["distinct_stages"] == plan.search["asked_stages"] == len(distinct)


def test_seven_operators_without_edges():
    """As many schedules as ordered partitions of 7: 47,293; 2^7 - 1 states, 3^7 - 2^7 transitions."""
    graph = made("a=1 b=2 c=3 d=4 e=5 f=6 g=7")
    plan = schedule(graph, ONE, ios, r=None, s=None, blocks="none", stage_latency=hashed)
    assert plan.search["feasible_schedules"] == 47293
    assert (plan.search["states"], plan.search["transitions"]) == (127, 3**7 - 2**7)


@settings(max_examples=25)
@given(graph=graphs(), cluster=clusters(), strategy=st.sampled_from(["both", "parallel"]), limits=limits)
def test_stages_keep_their_limits(graph, cluster, strategy, limits):
    """Within r and s, groups as edges connect them, and no slower than one by one."""
    plan = schedule(graph, cluster, ios, **options(limits, strategy=strategy, blocks="labels"))
    pairs = {(edge.src, edge.dst) for edge in graph.edges}
    for groups in stages_in(plan):
        assert len(groups) <= (limits["s"] or len(graph))
        assert max(map(len, groups)) <= (limits["r"] or len(graph))
        assert groups_of([name for group in groups for name in group], pairs) == set(map(frozenset, groups))
    executed = ExecutedStage(graph, cluster.devices[0], None, StageLatency(graph, cluster))
    assert plan.estimate <= sum(executed(((name,),)) for name in graph.names) * (1 + 1e-9)


@settings(max_examples=25)
@given(graph=graphs(max_ops=6), limits=limits)
def test_equal_stages_are_simulated_once(graph, limits):
    """Operators that differ in names alone are the same to the simulator: as good as asking for every stage.

    The order of groups is that of operators like theirs in the graph: the simulator launches them so, and it matters.
    """
    latency = StageLatency(graph, ONE)
    looks = [repr((default_cost(op, ONE.devices[0]), replace(op, **PLAIN))) for op in graph.operators]
    first = {op.name: looks.index(look) for op, look in zip(graph.operators, looks, strict=True)}

    def ask(groups):
        return latency(sorted(groups, key=lambda group: [first[name] for name in group]))

    every = schedule(graph, ONE, ios, stage_latency=ask, **options(limits))
    plan = schedule(graph, ONE, ios, stage_latency="simulated", **options(limits))
    assert plan.estimate == pytest.approx(every.estimate, rel=1e-6)
    assert plan.search["distinct_stages"] == every.search["distinct_stages"]


@settings(max_examples=15)
@given(shape=shapes(max_ops=7), words=st.sampled_from([60, 64, 70, 130]))
def test_more_operators_than_a_word_has_bits(shape, words):
    """Behind a chain of many operators, all of which come first: a state more for each, and one ending of one."""
    chain = [f"c{k}" for k in range(words)]
    graph = OpGraph(
        [Operator(name, time=1.0) for name in chain] + list(shape.operators),
        [Edge(a, b) for a, b in pairwise(chain)] + [Edge(chain[-1], name) for name in shape.names] + list(shape.edges),
    )
    common = {"r": 1, "blocks": "none", "stage_latency": hashed, "max_part": 200}
    small, large = (schedule(g, ONE, ios, **common) for g in (shape, graph))
    assert large.search["states"] == small.search["states"] + words
    assert large.search["transitions"] == small.search["transitions"] + words
    assert large.search["feasible_schedules"] == small.search["feasible_schedules"]
    assert large.estimate == small.estimate + sum(hashed([[name]]) for name in chain)


def test_a_hundred_operators_with_forks():
    """20 times a fork that is joined: a (10 us), then b c d (4 us), then e (10 us); 24 us each time, 480 in all.

    States hold, of the last time they reach into, a; a and some of b c d, 7 ways; or all: 9. Stages that end
    those: 1; of 1, 2 or 3 operators side by side 1, 3 or 7, in 3 + 3 + 1 ways; 1: 21. Ways to run b c d: 13.
    """
    rows = " ".join(f"a{k}=10 b{k}=4 c{k}=4 d{k}=4 e{k}=10" for k in range(20))
    pairs = [f"a{k}-{x}{k} {x}{k}-e{k}" for k in range(20) for x in "bcd"] + [f"e{k}-a{k + 1}" for k in range(19)]
    plan = schedule(made(rows, " ".join(pairs)), ONE, ios, r=1, blocks="none", stage_latency=StageFormula(0.0, 0.0))
    assert plan.estimate == 480.0
    assert len(stages_in(plan)) == 60
    assert plan.search["cut_blocks"] == []
    assert plan.search["states"] == 20 * 9
    assert plan.search["transitions"] == 20 * (1 + 3 * 1 + 3 * 3 + 7 + 1)
    assert plan.search["feasible_schedules"] == 13**20
