"""Schedules under operator times that vary."""

import numpy as np
import pytest
from small import made, placements

import simsched as ss
from simsched.experiments.comparison.row import Sampling
from simsched.experiments.whatif.robust import Robust, Robustness, robust

CLUSTER = ss.Cluster.preset("a100").without_overheads()
GRAPH = made("a=10 b=10 c=10")


def test_draws_are_paired():
    """max(a + b, c), max(a, b + c) and a + b + c of the same draws: the last never wins, the others half the time."""
    streams = {"ab c": "a b c/1", "a bc": "a b/1 c/1", "abc": "a b c"}
    plans = {name: ss.Schedule(GRAPH, placements(text)) for name, text in streams.items()}
    found = robust(plans, CLUSTER, jitter=0.2, samples=400, rng=3)
    first, second, third = found.rows
    assert third.wins == 0
    assert first.wins + second.wins == pytest.approx(1)
    assert 0.4 < first.wins < 0.6
    seed = int(np.random.default_rng(3).integers(2**63))
    for name, each in plans.items():
        alone = ss.simulate_many(each, CLUSTER, 400, jitter=0.2, rng=seed)
        row = next(row for row in found.rows if row.name == name)
        assert (row.p50_us, row.p95_us, row.mean_us) == (alone.p50, alone.p95, alone.mean)
    assert found.best(50).p50_us == min(row.p50_us for row in found.rows)


def test_the_best_is_by_the_95th_percentile():
    """Of 101 draws percentile p is draw p in order: x has the lesser one at 94 and at 96, y at 95 and of all draws."""
    samples = {"x": (2.0, *[3.0] * 94, 6.0, *[9.0] * 5), "y": (1.0, *[4.0] * 94, 5.0, *[10.0] * 5)}
    rows = tuple(Robust(name, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0) for name in samples)
    found = Robustness("graph", "a100", rows, Sampling(101, 0.1, 0), samples)
    assert [found.best(p).name for p in (0, 1, 94, 95, 96, 100)] == ["y", "x", "x", "y", "x", "x"]
    assert found.best().name == "y"
    assert [column.style for column in found.table().rows] == [None, "bold"]


def test_equal_plans_are_won_by_the_first_and_named_apart():
    plans = [ss.schedule(GRAPH, CLUSTER, "sequential") for _ in range(3)]
    found = robust(plans, CLUSTER, jitter={"a": 0.1}, samples=20, rng=0, workers=2)
    assert [row.name for row in found.rows] == ["sequential", "sequential (2)", "sequential (3)"]
    assert [row.wins for row in found.rows] == [1, 0, 0]
