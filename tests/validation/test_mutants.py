"""Mutated schedules against the oracle: cases by hand, planted defects of `check`, and a slice of the campaign."""

from random import Random

import pytest

import simsched as ss
from simsched.base.errors import ScheduleError
from simsched.model import EXECUTIONS
from simsched.model import schedule as proof
from validation import mutants
from validation.mutants import MUTATIONS, Draft
from validation.schedule_oracle import fault

P, TWO = ss.Placement, ss.Cluster.preset("a100", 2)
CHAIN = (("a", "b"),)
CROSS = (("a", "x"), ("y", "b"))  # each device reads from the other
DIAMOND = (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))


def staged(*rows):
    """Placements of (operator, device, stage, group), streams like groups."""
    return [P(op, f"gpu{device}", group, stage, group) for op, device, stage, group in rows]


@pytest.mark.parametrize(
    ("edges", "rows", "execution", "expected"),
    [
        (CHAIN, [P("a"), P("b")], "events", None),
        (CHAIN, [P("b"), P("a")], "events", "issued before what it waits for"),
        (CHAIN, [P("b", stream=1), P("a")], "events", "issued before what it waits for"),
        (CHAIN, [P("b", "gpu1"), P("a")], "events", None),  # the host of gpu1 waits for that of gpu0
        (CHAIN, [P("b", "gpu1"), P("a")], "graph", "issued before what it waits for"),  # one host records all
        (CHAIN, [P("a"), P("a"), P("b")], "events", "placed once"),
        (CHAIN, [P("a")], "events", "placed once"),
        (CHAIN, [P("a"), P("b", stream=-1)], "events", "negative"),
        (CHAIN, [P("a"), P("b", "gpu7")], "events", "device that there is not"),
        # b is behind x on gpu0 and a behind y on gpu1: each host waits for the record of the other
        (CROSS, [P("b"), P("a"), P("x", "gpu1"), P("y", "gpu1")], "events", "never ends"),
        (CROSS, [P("a"), P("b"), P("x", "gpu1"), P("y", "gpu1")], "events", None),
        # y stands behind x on its stream, and a behind b on its: launched all the same, on streams of their own it runs
        (CROSS, [P("b"), P("a", stream=1), P("x", "gpu1"), P("y", "gpu1", 1)], "events", "never ends"),
        (DIAMOND, staged(("a", 0, 0, 0), ("b", 0, 1, 0), ("c", 0, 1, 1), ("d", 0, 2, 0)), "stages", None),
        (DIAMOND, staged(("a", 0, 0, 0), ("b", 0, 1, 0), ("c", 0, 1, 1), ("d", 0, 1, 0)), "stages", "between groups"),
        (DIAMOND, staged(("b", 0, 1, 0), ("a", 0, 0, 0), ("c", 0, 1, 1), ("d", 0, 2, 0)), "stages", "comes back"),
        (DIAMOND, [P("a"), P("b", stage=1), P("c", stage=1, group=1), P("d", stage=2)], "stages", "do not belong"),
        (DIAMOND, [P("a"), P("b", stage=1), P("c", stage=1, stream=1), P("d", stage=2)], "stages", "do not belong"),
        # one group and stream in every stage: no barrier, the stream keeps the order; backwards in it nothing does
        (CHAIN, staged(("a", 0, 0, 0), ("b", 0, 1, 0)), "stages", None),
        (CHAIN, staged(("b", 0, 0, 0), ("a", 0, 0, 0)), "stages", "nothing keeps"),
        # the host of gpu0 issues b when x is recorded, and a behind b; x waits for the record of a
        ((("a", "x"), ("x", "b")), staged(("x", 1, 0, 0), ("b", 0, 0, 0), ("a", 0, 1, 1)), "stages", "never ends"),
        # y of gpu1 is launched before what it reads from, on the host of gpu0, has been
        ((("a", "y"),), staged(("y", 1, 0, 0), ("x", 1, 1, 1), ("b", 0, 0, 0), ("a", 0, 1, 1)), "stages", None),
    ],
)
def test_by_hand(edges, rows, execution, expected):
    """The oracle's answer, and that of `check`, to which the same rows are offered."""
    names = list(dict.fromkeys(name for pair in edges for name in pair))
    names += [row.op for row in rows if row.op not in names]
    found = fault(names, edges, rows, execution, ("gpu0", "gpu1"))
    assert found is None if expected is None else expected in found
    graph = ss.OpGraph([ss.Operator(name, time=1.0) for name in names], [ss.Edge(*pair) for pair in edges])
    tally = mutants.Tally()
    plan = mutants.offer(Draft(graph, list(edges), rows, execution), "by hand", TWO, tally)
    assert (plan is None) == (expected is not None)
    assert not tally.failures


def nothing(*_arguments, **_options):
    """A check that looks at nothing."""


TRUE = proof._prove


def events_for_graphs(schedule, cluster):
    """Captured graphs are taken for schedules with events: a host for each device."""
    execution = "events" if schedule.execution == "graph" else schedule.execution
    TRUE(ss.Schedule(schedule.graph, [*schedule.placements], execution), cluster)


def refuses_priorities(schedule, cluster):
    if schedule.priority.min() < -2:
        raise ScheduleError("a priority that is low")


@pytest.mark.parametrize(
    ("part", "defect", "expected"),
    [
        ("_prove", nothing, "accepted, though"),
        ("_check_stages", nothing, "accepted, though"),
        ("_check_waits", nothing, "accepted, though"),
        ("_prove", events_for_graphs, "accepted, though"),
        ("_prove", refuses_priorities, "refused, though"),
        ("_prove", lambda schedule, cluster: {}[schedule.execution], "raised KeyError"),
    ],
    ids=["accepts-all", "no-stages", "no-waits", "graph-as-events", "refuses-more", "raises"],
)
def test_a_planted_defect_of_check_is_found(part, defect, expected, monkeypatch):
    monkeypatch.setattr(proof, part, defect)
    monkeypatch.setattr(mutants, "PER_SCHEDULE", 20)  # the campaign takes three schedules then
    tallies = (mutants.run(60, seed, every=10**9, makers=mutants.DRAWN) for seed in range(20))
    tally = next(tally for tally in tallies if any(what.startswith(expected) for what in tally.failures))
    assert {*tally.examples[0]["mutant"]} == {"operators", "edges", "placements", "execution"}


def test_a_slice_of_the_campaign(monkeypatch):
    """Every scheduler and execution once: mutants of both kinds, and nothing but agreement."""
    monkeypatch.setattr(mutants, "PER_SCHEDULE", 20)
    tally = mutants.run(20 * 22 - 20, 11, every=10)
    assert not tally.failures
    assert len(tally.schedules) == 22
    assert tally.mutants == tally.accepted + tally.refused
    assert min(tally.accepted, tally.refused) > 100
    assert min(tally.simulated, tally.edges_seen, tally.copies_seen) > 10
    assert {*tally.executions} == {*EXECUTIONS}
    assert {"never ends" in text or "nothing keeps" in text for text in tally.oracle} == {True, False}


def test_the_same_seed_makes_the_same_mutants():
    first, again, other = (mutants.run(50, seed, makers=mutants.DRAWN).to_dict() | {"seconds": 0} for seed in (5, 5, 6))
    assert first == again != other


def test_every_mutation_changes_something():
    """On one of twenty tries, from schedules with two devices and several streams and stages."""
    rng = Random(4)
    graph = ss.OpGraph([ss.Operator(n, time=1.0) for n in "abcd"], [ss.Edge(*pair) for pair in DIAMOND])
    plans = [mutants.draw(graph, TWO, execution, rng) for execution in EXECUTIONS for _ in range(8)]
    for name, change in MUTATIONS.items():
        drafts = [Draft.of(plan) for plan in plans]
        for draft in drafts:
            change(draft, rng)
        assert drafts != [Draft.of(plan) for plan in plans], name


def test_a_trace_that_breaks_an_edge_is_seen():
    """The trace of a schedule without the edge, looked at as one of the schedule with it: no copy, and no order."""
    operators = [ss.Operator("a", time=10.0), ss.Operator("b", time=5.0)]
    with_edge, without_edge = (ss.OpGraph(operators, edges) for edges in ([ss.Edge("a", "b", nbytes=8.0)], []))
    for rows, expected in (([P("a"), P("b", stream=1)], "starts at"), ([P("a"), P("b", "gpu1")], "no copy")):
        right = ss.Schedule(with_edge, rows)
        assert mutants.look(ss.simulate(right, TWO), right) == (rows[1].device == "gpu1")
        with pytest.raises(mutants.BrokenEdgeError, match=expected):
            mutants.look(ss.simulate(ss.Schedule(without_edge, rows), TWO), right)
