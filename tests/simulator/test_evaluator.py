"""Schedules that change step by step: what `Evaluator` says is what `simulate` says."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hand_made import hand_made, operators
from small import made, placements

import simsched as ss
import workloads
from simsched.base.errors import ScheduleError, SimschedError, UnknownNameError
from simsched.model.costmodel import default_cost
from simsched.simulator import Evaluator


def simulated(search, cluster, cost=None):
    """The makespan of the schedule as it is, made from nothing; inf where it is refused."""
    try:
        return ss.simulate(search.schedule(), cluster, cost).makespan
    except SimschedError:
        return inf


def slow_on_gpu1(op, device):
    return 3.0 * op.time if device.name == "gpu1" else op.time


@pytest.mark.parametrize(
    ("scheduler", "cost"),
    [
        ("lios", None),
        ("greedy", slow_on_gpu1),
        ("inter-lp", default_cost),
        ("nimble", None),
    ],
)
def test_every_step_gives_what_simulate_gives(scheduler, cost):
    """With any cost model, the trace included."""
    graph, cluster = workloads.random_layered(n_ops=60, n_layers=8, rng=1), ss.Cluster.preset("a40", n_gpus=3)
    plan = ss.schedule(graph, cluster, scheduler)
    search, rng, finite = Evaluator(plan, cluster, cost), np.random.default_rng(0), 0
    assert search.makespan == ss.simulate(plan, cluster, cost).makespan
    for _ in range(60):
        where = {"device": f"gpu{rng.integers(3)}", "stream": int(rng.integers(3))}
        place = int(rng.integers(60)) if rng.random() < 0.4 else None
        found = search.move(graph.names[rng.integers(60)], **where, place=place)
        assert found == simulated(search, cluster, cost)
        assert found == search.makespan
        finite += found < inf
        if found == inf or rng.random() < 0.3:
            search.undo()
            assert search.makespan == simulated(search, cluster, cost)
    assert finite > 5
    expected = ss.simulate(search.schedule(), cluster, cost)
    assert search.trace().critical_path() == expected.critical_path()
    search.replace(graph.order_index[::-1].copy(), 0, 0)
    with pytest.raises(ScheduleError, match="cannot run: there is no trace"):
        search.trace()


def test_devices_that_differ_and_kernels():
    """Times, residency and interference of the device an operator moves to; a kernel that does not fit there is inf."""
    first, second = hand_made(2).devices
    second = replace(second, shared_memory_per_sm=1000, shared_memory_per_block=1000)
    cluster = ss.Cluster((replace(first, sms=4), second), (("gpu0", "gpu1", ss.Link(100.0)),))
    ops = operators("a=1#20x256 b=2#21x256 d=4#23x256") + operators("c=3#22x256", shared_memory=2000)
    search = Evaluator(ss.Schedule(made(ops, "ad=50"), placements("a b c d")), cluster)
    for name in "bda":
        assert search.move(name, device="gpu1", stream=1) == simulated(search, cluster) < inf
    assert search.move("c", device="gpu1") == inf
    assert search.undo() < inf


def test_priorities_are_kept():
    plan = ss.Schedule(made(operators("a=10#100x256 b=10#100x256 c=10#100x256")), placements("a b/1!-1 c/2!-2"))
    search = Evaluator(plan, hand_made())
    search.move("c", place=0)
    assert search.schedule().placements[0] == ss.Placement("c", stream=2, priority=-2)
    assert search.makespan == simulated(search, hand_made())


def test_replace_and_undo():
    graph = made(operators("a=10%0.5 b=10%0.5 c=10%0.5"), "ac")
    cluster = ss.Cluster.preset("a100").without_overheads()
    search = Evaluator(ss.schedule(graph, cluster, "sequential"), cluster)
    assert search.makespan == 30.0
    assert search.replace([0, 1, 2], 0, [0, 1, 0]) == 20.0
    assert search.replace([2, 1, 0], 0, 0) == inf  # c would be launched before a
    assert search.undo() == search.makespan == 20.0
    with pytest.raises(ScheduleError, match="no step"):
        search.undo()


def test_a_copy_without_a_way_is_inf():
    cluster = ss.Cluster(hand_made(2).devices)
    search = Evaluator(ss.Schedule(made("a=1 b=1", "ab=10"), placements("a b")), cluster)
    assert search.move("b", device="gpu1") == inf
    assert search.undo() == 2.0


def test_a_deadlock_between_devices_is_inf():
    """a waits for d's device and c for b's: each behind the other on its stream."""
    cluster = hand_made(2)
    plan = ss.Schedule(made("a=1 b=1 c=1 d=1", "ad cb"), placements("a b c@1 d@1"))
    search = Evaluator(plan, cluster)
    assert search.makespan < inf
    search.move("b", place=0)
    assert search.move("d", place=2) == inf
    assert simulated(search, cluster) == inf


@pytest.mark.parametrize(
    ("step", "error", "text"),
    [
        ({"op": "x"}, UnknownNameError, "unknown operator 'x'"),
        ({"op": "a", "device": "gpu7"}, UnknownNameError, "unknown device 'gpu7'"),
        ({"op": "a", "stream": -1}, ScheduleError, "operator 'a': stream must be from 0"),
        ({"op": "a", "place": 2}, ScheduleError, "operator 'a': place must be from 0 to 1, not 2"),
    ],
)
def test_refusals(step, error, text):
    search = Evaluator(ss.Schedule(made("a=1 b=1"), placements("a b")), hand_made())
    with pytest.raises(error, match=text):
        search.move(**step)
    assert search.makespan == 2.0
    with pytest.raises(ScheduleError):
        search.replace([0, 0], 0, 0)
    assert [placement.op for placement in search.schedule().placements] == ["a", "b"]
