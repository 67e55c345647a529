"""Many simulations at once: the same makespans as one by one, whoever works on them."""

import threading
from random import Random

import numpy as np
import pytest
from drawn import program
from hand_made import hand_made, waiting
from small import made, placements

import simsched as ss
import workloads
from simsched.base.errors import CostError, DeadlockError, ScheduleError, SimschedError, SimulationError

ONE = ss.Schedule(made("a=10"), placements("a"))
TWO_GPUS = ss.Cluster.preset("a40", 2)
PLAN = ss.schedule(workloads.random_layered(20, 4, rng=0), TWO_GPUS, "round-robin")


def any_cost(op, device):
    return 7.0 + len(op.name)


@pytest.mark.parametrize("seed", range(1, 6))  # with seed 0 the host alone counts
@pytest.mark.parametrize("jitter", [0.3, 0.0, "by name"])
@pytest.mark.parametrize("cost", [None, any_cost])
def test_samples_are_successive_simulations(seed, jitter, cost):
    cluster, plan, _ = program(Random(seed), 20, 40)
    if jitter == "by name":
        jitter = dict.fromkeys(plan.graph.names[::2], 0.5)
    drawn = ss.simulate_many(plan, cluster, 6, cost=cost, jitter=jitter, rng=5)
    for engine in ("compiled", "reference"):
        options = {"jitter": jitter, "rng": np.random.default_rng(5), "engine": engine}
        expected = [ss.simulate(plan, cluster, cost, **options).makespan for _ in range(6)]
        assert drawn.values.tolist() == (expected if engine == "compiled" else pytest.approx(expected, rel=1e-9))
    assert len(drawn) == 6
    assert len(set(drawn.values)) == (6 if jitter else 1)


def test_the_number_of_workers_changes_nothing(monkeypatch):
    cluster, plan, _ = program(Random(0), 40, 60)
    expected = ss.simulate_many(plan, cluster, 23, jitter=0.2, rng=1).values
    monkeypatch.setitem(
        ss.simulate_many.__globals__, "_LEAST_WORK", 1
    )  # as with large programs: several chunks for each worker
    for workers in (1, 2, 3, 7, 40):
        assert (ss.simulate_many(plan, cluster, 23, jitter=0.2, rng=1, workers=workers).values == expected).all()
    monkeypatch.setitem(ss.simulate_many.__globals__, "_MOST_BYTES", 8)  # one sample at a time
    assert (ss.simulate_many(plan, cluster, 23, jitter=0.2, rng=1, workers=2).values == expected).all()


def test_a_generator_goes_on_where_it_was_left():
    """Five samples and another five are ten; what is drawn next is what ten simulations would leave."""
    whole, parts = np.random.default_rng(3), np.random.default_rng(3)
    ten = ss.simulate_many(PLAN, TWO_GPUS, 10, jitter=0.1, rng=whole).values
    found = [ss.simulate_many(PLAN, TWO_GPUS, 5, jitter=0.1, rng=parts, workers=w).values for w in (1, 2)]
    assert (np.concatenate(found) == ten).all()
    assert whole.random() == parts.random()


def test_percentiles_of_one_operator():
    """10 us times a log-normal factor of mean 1 and deviation 0.2: ln(factor) is N(-s^2 / 2, s), s^2 = ln(1.04).

    Of 40,000 samples the percentiles q have standard errors sqrt(q (1 - q) / n) / density: for the logs 0.0012,
    0.0021 and 0.0037 at 50, 95 and 99 per cent. The tolerance is 4 of these.
    """
    cluster = ss.Cluster.preset("a100").without_overheads()
    drawn = ss.simulate_many(ONE, cluster, 40_000, jitter=0.2, rng=2)
    sigma = np.sqrt(np.log(1.04))
    for found, z, error in ((drawn.p50, 0.0, 0.0012), (drawn.p95, 1.6449, 0.0021), (drawn.p99, 2.3263, 0.0037)):
        assert np.log(found / 10.0) == pytest.approx(-(sigma**2) / 2 + z * sigma, abs=4 * error)
    assert drawn.mean == pytest.approx(10.0, abs=4 * 2.0 / 200)  # deviation over sqrt(n)
    assert drawn.std == pytest.approx(2.0, rel=0.05)
    assert drawn.percentile(0) == drawn.values.min()


@pytest.mark.parametrize("value", [0, 2.5, True])
def test_counts_are_whole_numbers(value):
    for call in (
        lambda: ss.simulate_many(PLAN, TWO_GPUS, value, jitter=0.1, rng=0),
        lambda: ss.simulate_many(PLAN, TWO_GPUS, 2, jitter=0.1, rng=0, workers=value),
        lambda: ss.simulate_batch([PLAN], TWO_GPUS, workers=value),
    ):
        with pytest.raises(SimschedError, match=r"(n|workers) (must be a whole number of at least 1|takes int), not "):
            call()


def test_other_devices_are_refused_as_simulate_does():
    program, other = PLAN.lower(TWO_GPUS), hand_made(3)
    for call, prefix in (
        (lambda: ss.simulate(program, other), ""),
        (lambda: ss.simulate_many(program, other, 3, jitter=0.1, rng=0), ""),
        (lambda: ss.simulate_batch([program], other), "schedule 0: "),
    ):
        message = f"^{prefix}the program was made for devices gpu0, gpu1, not gpu0, gpu1, gpu2$"
        with pytest.raises(SimulationError, match=message):
            call()


@pytest.mark.parametrize("workers", [1, 3])
def test_samples_of_a_deadlock(workers):
    before = threading.active_count()
    with pytest.raises(DeadlockError, match="event 0, which nobody records"):
        ss.simulate_many(waiting(1), hand_made(), 100, jitter=0.1, rng=0, workers=workers)
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_batch_is_one_simulation_after_the_other(workers):
    """Schedules and programs of two graphs, with and without grids, one of them twice."""
    graphs = [workloads.random_layered(40, 6, rng=1), workloads.load("inception_v3")]
    plans = [ss.schedule(graph, TWO_GPUS, name) for graph in graphs for name in ("sequential", "round-robin", "greedy")]
    plans += [plans[1], plans[2].lower(TWO_GPUS, threads="one")]
    found = ss.simulate_batch(plans, TWO_GPUS, workers=workers)
    assert (found.shape, found.dtype) == ((len(plans),), np.float64)
    assert found.tolist() == [ss.simulate(plan, TWO_GPUS).makespan for plan in plans]


def test_a_batch_with_a_cost_model():
    expected = ss.simulate(PLAN, TWO_GPUS, any_cost).makespan
    assert ss.simulate_batch([PLAN, PLAN], TWO_GPUS, any_cost, workers=2).tolist() == [expected, expected]
    with pytest.raises(CostError, match=r"^schedule 0: "):
        ss.simulate_batch([PLAN], TWO_GPUS, lambda op, device: -1.0)


def test_an_empty_batch():
    found = ss.simulate_batch([], TWO_GPUS, workers=2)
    assert (found.shape, found.dtype) == ((0,), np.float64)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_cannot_run_in_a_batch_is_named(workers):
    """A schedule on a device that is not there, behind a good one; a deadlock, of two the first."""
    before = threading.active_count()
    with pytest.raises(ScheduleError, match=r"^schedule 1: .*'gpu7'"):
        ss.simulate_batch([ONE, ss.Schedule(ONE.graph, placements("a@7")), ONE], hand_made(), workers=workers)
    with pytest.raises(DeadlockError, match=r"^schedule 1: deadlock in 'graph'.*event 0, which nobody records"):
        ss.simulate_batch([ONE, waiting(1), waiting(2), *[ONE] * 20], hand_made(), workers=workers)
    assert threading.active_count() == before
