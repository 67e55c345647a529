"""Worked examples: the baselines, ties of LIOS, and devices that HIOS chooses."""

import pytest
from small import made

from simsched.model import Cluster, Placement
from simsched.schedulers import schedule
from simsched.simulator import simulate

ONE = Cluster.preset("a100").without_overheads()
TWO = Cluster.preset("a100", 2).without_overheads()


# LIOS --------------------------------------------------------------------------------------------


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
    assert schedule(made("a=1 b=2 c=3", "a-b"), TWO, name).devices_used == ("gpu0",)
