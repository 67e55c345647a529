"""Worked examples: the baselines, and those that LIOS and HIOS print."""

import pytest

from simsched.model.cluster import Cluster
from simsched.model.graph import Edge, Operator, OpGraph
from simsched.model.plan import Placement
from simsched.schedulers import schedule
from simsched.simulator import simulate

ONE = Cluster.preset("a100").without_overheads()
TWO = Cluster.preset("a100", 2).without_overheads()


def made(times, edges):
    """A graph from "a3 b5" (times in us) and "a-b:1" (exact transfer in us, none: zero bytes)."""
    rows = []
    for text in edges.split():
        pair, _, transfer = text.partition(":")
        src, dst = pair.split("-")
        rows.append(Edge(src, dst, transfer=float(transfer) if transfer else None))
    return OpGraph([Operator(name, time=float(us)) for name, us in (t.split("=") for t in times.split())], rows)


def steps(plan, cluster):
    """Each operator in launch order with its device, stream, and simulated start and finish."""
    times = simulate(plan, cluster).operator_times()
    return [(row.op, row.device, row.stream, *times[row.op]) for row in plan.placements]


# LIOS --------------------------------------------------------------------------------------------

LIOS = made(
    "v1=3 v2=5 v3=5 v4=5 v5=8 v6=15 v7=10 v8=7 v9=13 v10=2",
    "v1-v2 v1-v3 v1-v4 v1-v5 v3-v6 v4-v7 v5-v8 v2-v9 v6-v9 v7-v9 v8-v9 v9-v10",
)


def test_lios_worked_example():
    """The slowest ready operator goes where it ends first; streams p1, p2, p3 are 0, 1, 2.

    v1 (3): all streams free at 0, p1, 0-3. Releases v2 5, v3 5, v4 5, v5 8.
    v5 (8): p1 3-11 (all would end at 11). Releases v8 7.
    v8 (7) before the fives: its input is there at 11 and p1 free at 11: 11-18 on any; p1.
    v2 (5): p1 18-23, p2 3-8, p3 3-8: p2. v3 (5): p2 8-13, p3 3-8: p3. Releases v6 15.
    v6 (15): p1 18-33, p2 8-23, p3 8-23: p2. v4 (5): p3 8-13. Releases v7 10.
    v7 (10): p1 18-28, p2 23-33, p3 13-23: p3. Releases v9 13, whose inputs are there at 8, 23, 23, 18.
    v9: 23-36 on any; p1. v10 (2): 36-38; p1.
    """
    plan = schedule(LIOS, ONE, "lios", streams=3)
    assert steps(plan, ONE) == [
        ("v1", "gpu0", 0, 0.0, 3.0),
        ("v5", "gpu0", 0, 3.0, 11.0),
        ("v8", "gpu0", 0, 11.0, 18.0),
        ("v2", "gpu0", 1, 3.0, 8.0),
        ("v3", "gpu0", 2, 3.0, 8.0),
        ("v6", "gpu0", 1, 8.0, 23.0),
        ("v4", "gpu0", 2, 8.0, 13.0),
        ("v7", "gpu0", 2, 13.0, 23.0),
        ("v9", "gpu0", 0, 23.0, 36.0),
        ("v10", "gpu0", 0, 36.0, 38.0),
    ]
    assert plan.estimate == 38.0
    assert simulate(plan, ONE).makespan == 38.0


def test_lios_worked_example_one_by_one():
    """3 + 5 + 5 + 5 + 8 + 15 + 10 + 7 + 13 + 2 = 73."""
    plan = schedule(LIOS, ONE, "sequential")
    assert plan.estimate == simulate(plan, ONE).makespan == 73.0
    assert schedule(LIOS, ONE, "lios", streams=1).estimate == 73.0


def test_lios_ties():
    """Equal times: b and c were released before d, which a later operator released; equal ends: the lowest stream."""
    graph = made("a=1 b=2 c=2 d=2", "a-b a-c b-d")
    plan = schedule(graph, ONE, "lios", streams=2)
    assert [(row.op, row.stream) for row in plan.placements] == [("a", 0), ("b", 0), ("c", 1), ("d", 0)]
    assert plan.estimate == 5.0


def test_lios_uses_streams_only_as_needed():
    """A chain stays on stream 0, however many there are."""
    plan = schedule(made("a=1 b=1 c=1", "a-b b-c"), ONE, "lios", streams=100)
    assert plan.n_streams == 1


# HIOS --------------------------------------------------------------------------------------------


def test_inter_lp_keeps_what_is_not_worth_moving():
    """b and c of 1 us, transfers of 10 us: all on gpu0, 4 us; moving c would take 1 + 10 + 1 + 10 + 1."""
    plan = schedule(made("a=1 b=1 c=1 d=1", "a-b:10 a-c:10 b-d:10 c-d:10"), TWO, "inter-lp")
    assert plan.devices_used == ("gpu0",)
    assert plan.estimate == 4.0


def test_inter_lp_on_unequal_devices():
    """gpu0 needs 10 us for an operator, gpu1 1 us: a goes to gpu0 as the first path does, b to gpu1
    (10 < 20), c as well (10 < 20)."""
    plan = schedule(made("a=1 b=1 c=1", ""), TWO, "inter-lp", lambda op, device: 10.0 if device.name == "gpu0" else 1.0)
    assert [(row.op, row.device) for row in plan.placements] == [("a", "gpu0"), ("b", "gpu1"), ("c", "gpu1")]
    assert plan.estimate == 10.0


# Baselines ---------------------------------------------------------------------------------------


def test_sequential():
    """In topological order on one stream: b is given first but reads from a."""
    plan = schedule(made("b=2 a=1 c=4", "a-b"), TWO, "sequential")
    assert list(plan.placements) == [Placement("a"), Placement("b"), Placement("c")]
    assert plan.estimate == 7.0


def test_round_robin():
    """Six operators on two devices of two streams: device i mod 2, stream i div 2 mod 2."""
    plan = schedule(made("a=1 b=1 c=1 d=1 e=1 f=1", ""), TWO, "round-robin", streams=2)
    assert [(row.op, row.device, row.stream) for row in plan.placements] == [
        ("a", "gpu0", 0), ("b", "gpu1", 0), ("c", "gpu0", 1), ("d", "gpu1", 1), ("e", "gpu0", 0), ("f", "gpu1", 0),
    ]  # fmt: skip
    assert plan.estimate is None


def test_greedy():
    """a; then b, c, d, which it releases; then e, which reads from all. b, c, d last 5 us together."""
    graph = made("a=1 b=2 c=5 d=3 e=1", "a-b a-c a-d b-e c-e d-e")
    plan = schedule(graph, ONE, "greedy")
    assert [(row.op, row.stage, row.group, row.stream) for row in plan.placements] == [
        ("a", 0, 0, 0), ("b", 1, 0, 0), ("c", 1, 1, 1), ("d", 1, 2, 2), ("e", 2, 0, 0),
    ]  # fmt: skip
    assert simulate(plan, ONE).makespan == 7.0


def test_greedy_takes_the_first_ready_ones():
    """Two at a time: b, c, then d and what was released meanwhile behind it."""
    graph = made("a=1 b=1 c=1 d=1 e=1", "a-b a-c a-d b-e")
    plan = schedule(graph, ONE, "greedy", streams=2)
    assert [(row.op, row.stage) for row in plan.placements] == [("a", 0), ("b", 1), ("c", 1), ("d", 2), ("e", 2)]


@pytest.mark.parametrize("name", ["sequential", "greedy", "lios"])
def test_single_device_schedulers_use_the_first(name):
    assert schedule(LIOS, TWO, name).devices_used == ("gpu0",)
