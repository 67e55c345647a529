"""Many simulations at once: the same makespans as one by one, whoever works on them."""

import threading

import numpy as np
import pytest
from hand_made import grid, hand_made

import simsched as ss
import workloads
from simsched.base.errors import CostError, DeadlockError, ScheduleError, SimschedError, SimulationError
from simsched.model.program import Copies, Program
from simsched.simulator import sampling

ONE = ss.OpGraph([ss.Operator("a", time=10.0)])


def plain(n_ops, *, seed=0, n_gpus=2, **options):
    """A graph of operators without grids on several devices, copies between them included."""
    graph = workloads.random_layered(n_ops, max(4, n_ops // 10), rng=seed)
    cluster = ss.Cluster.preset("a40", n_gpus)
    return ss.schedule(graph, cluster, "round-robin", **options), cluster


def with_kernels():
    """Grids of one to several waves side by side on one device, one operator with two kernels."""
    operators = [grid(f"k{i}", 5 + 7 * i, 10.0 + i, threads=512, nbytes=500.0 * i) for i in range(4)]
    operators.append(ss.Operator("two", time=30.0, kernels=(ss.Kernel(25, share=0.25), ss.Kernel(9, share=0.75))))
    placements = [ss.Placement(op.name, stream=s) for s, op in enumerate(operators)]
    return ss.Schedule(ss.OpGraph(operators), placements), hand_made()


def a_deadlock(cluster):
    """A program whose only stream waits for an event that nobody records."""
    names = [device.name for device in cluster.devices]
    nothing = Copies(*np.zeros((2, 0), np.int32), *np.zeros((2, 0)))
    rows = {"action": [2, 0], "device": [0, 0], "stream": [0, 0], "argument": [0, 0]}
    return Program(ONE, names, "events", [0, 2], **rows, copies=nothing, n_events=1)


def lowered():
    schedule, cluster = plain(20)
    return schedule.lower(cluster, threads="one"), cluster


@pytest.mark.parametrize("case", [lambda: plain(30), lambda: plain(30, streams=3, n_gpus=3), lowered, with_kernels])
@pytest.mark.parametrize("jitter", [0.3, 0.0, "by name"])
@pytest.mark.parametrize("cost", [None, lambda op, device: 7.0 + len(op.name)])
def test_samples_are_successive_simulations(case, jitter, cost):
    schedule, cluster = case()
    if jitter == "by name":
        jitter = dict.fromkeys(schedule.graph.names[::2], 0.5)
    drawn = ss.simulate_many(schedule, cluster, 6, cost=cost, jitter=jitter, rng=5)
    for engine in ("compiled", "reference"):
        rng = np.random.default_rng(5)
        options = {"jitter": jitter, "rng": rng, "engine": engine}
        expected = [ss.simulate(schedule, cluster, cost, **options).makespan for _ in range(6)]
        assert drawn.values.tolist() == (expected if engine == "compiled" else pytest.approx(expected, rel=1e-9))
    assert len(drawn) == 6
    assert len(set(drawn.values)) == (6 if jitter else 1)


@pytest.mark.parametrize("case", [lambda: plain(60, streams=2), with_kernels])
def test_the_number_of_workers_changes_nothing(case, monkeypatch):
    schedule, cluster = case()
    expected = ss.simulate_many(schedule, cluster, 23, jitter=0.2, rng=1).values
    monkeypatch.setattr(sampling, "_LEAST_WORK", 1)  # as with large programs: several chunks for each worker
    for workers in (1, 2, 3, 7, 40):
        assert (ss.simulate_many(schedule, cluster, 23, jitter=0.2, rng=1, workers=workers).values == expected).all()
    monkeypatch.setattr(sampling, "_MOST_BYTES", 8)  # one sample at a time
    assert (ss.simulate_many(schedule, cluster, 23, jitter=0.2, rng=1, workers=2).values == expected).all()


def test_a_generator_goes_on_where_it_was_left():
    """Five samples and another five are ten; what is drawn next is what ten simulations would leave."""
    schedule, cluster = plain(20)
    generators = np.random.default_rng(3), np.random.default_rng(3)
    ten = ss.simulate_many(schedule, cluster, 10, jitter=0.1, rng=generators[0]).values
    parts = [ss.simulate_many(schedule, cluster, 5, jitter=0.1, rng=generators[1], workers=w).values for w in (1, 2)]
    assert (np.concatenate(parts) == ten).all()
    assert generators[0].random() == generators[1].random()


def test_percentiles_of_one_operator():
    """10 us times a log-normal factor of mean 1 and deviation 0.2: ln(factor) is N(-s^2 / 2, s), s^2 = ln(1.04).

    Of 40,000 samples the percentiles q have standard errors sqrt(q (1 - q) / n) / density: for the logs 0.0012,
    0.0021 and 0.0037 at 50, 95 and 99 per cent. The tolerance is 4 of these.
    """
    cluster = ss.Cluster.preset("a100").without_overheads()
    drawn = ss.simulate_many(ss.schedule(ONE, cluster, "lios"), cluster, 40_000, jitter=0.2, rng=2)
    sigma = np.sqrt(np.log(1.04))
    for found, z, error in ((drawn.p50, 0.0, 0.0012), (drawn.p95, 1.6449, 0.0021), (drawn.p99, 2.3263, 0.0037)):
        assert np.log(found / 10.0) == pytest.approx(-(sigma**2) / 2 + z * sigma, abs=4 * error)
    assert drawn.mean == pytest.approx(10.0, abs=4 * 2.0 / 200)  # deviation over sqrt(n)
    assert drawn.std == pytest.approx(2.0, rel=0.05)
    assert drawn.percentile(0) == drawn.values.min()


@pytest.mark.parametrize("value", [0, 2.5, True])
def test_counts_are_whole_numbers(value):
    schedule, cluster = plain(20)
    for function, options in (
        (ss.simulate_many, {"n": value, "jitter": 0.1, "rng": 0}),
        (ss.simulate_many, {"n": 2, "jitter": 0.1, "rng": 0, "workers": value}),
        (ss.simulate_batch, {"workers": value}),
    ):
        plans = schedule if function is ss.simulate_many else [schedule]
        with pytest.raises(SimschedError, match=r"(n|workers) (must be a whole number of at least 1|takes int), not "):
            function(plans, cluster, **options)


def test_other_devices_are_refused_as_simulate_does():
    schedule, cluster = plain(20)
    program, other = schedule.lower(cluster), hand_made(3)
    message = "the program was made for devices gpu0, gpu1, not gpu0, gpu1, gpu2"
    with pytest.raises(SimulationError, match=f"^{message}$"):
        ss.simulate(program, other)
    with pytest.raises(SimulationError, match=f"^{message}$"):
        ss.simulate_many(program, other, 3, jitter=0.1, rng=0)
    with pytest.raises(SimulationError, match=f"^schedule 0: {message}$"):
        ss.simulate_batch([program], other)


@pytest.mark.parametrize("workers", [1, 3])
def test_samples_of_a_deadlock(workers):
    cluster = ss.Cluster.preset("a100")
    before = threading.active_count()
    with pytest.raises(DeadlockError, match="event 0, which nobody records"):
        ss.simulate_many(a_deadlock(cluster), cluster, 100, jitter=0.1, rng=0, workers=workers)
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_batch_is_one_simulation_after_the_other(workers):
    """Schedules and programs of two graphs, with and without grids, one of them twice."""
    cluster = ss.Cluster.preset("a40", 2)
    graphs = [workloads.random_layered(40, 6, rng=1), workloads.load("inception_v3")]
    plans = [
        ss.schedule(graph, cluster, name, **options)
        for graph in graphs
        for name, options in (("sequential", {}), ("round-robin", {"streams": 3}), ("lios", {}), ("greedy", {}))
    ]
    plans += [plans[1], plans[2].lower(cluster, threads="one")]
    found = ss.simulate_batch(plans, cluster, workers=workers)
    assert found.shape == (len(plans),)
    assert found.dtype == np.float64
    assert found.tolist() == [ss.simulate(plan, cluster).makespan for plan in plans]
    assert found == pytest.approx([ss.simulate(plan, cluster, engine="reference").makespan for plan in plans], rel=1e-9)


def test_a_batch_with_a_cost_model():
    schedule, cluster = plain(20)

    def cost(op, device):
        return 3.0 + len(op.name)

    expected = ss.simulate(schedule, cluster, cost).makespan
    assert ss.simulate_batch([schedule, schedule], cluster, cost, workers=2).tolist() == [expected, expected]
    with pytest.raises(CostError, match=r"^schedule 0: "):
        ss.simulate_batch([schedule], cluster, lambda op, device: -1.0)


def test_an_empty_batch():
    found = ss.simulate_batch([], ss.Cluster.preset("a100"), workers=2)
    assert found.shape == (0,)
    assert found.dtype == np.float64


@pytest.mark.parametrize("workers", [1, 2])
def test_what_cannot_run_in_a_batch_is_named(workers):
    """A schedule on a device that is not there, behind a good one; a deadlock, of two the first."""
    cluster = ss.Cluster.preset("a100")
    good, before = ss.schedule(ONE, cluster, "lios"), threading.active_count()
    elsewhere = ss.Schedule(ONE, [ss.Placement("a", "gpu7")])
    with pytest.raises(ScheduleError, match=r"^schedule 1: .*'gpu7'"):
        ss.simulate_batch([good, elsewhere, good], cluster, workers=workers)
    stuck = [a_deadlock(cluster) for _ in range(2)]
    with pytest.raises(DeadlockError, match=r"^schedule 1: deadlock in 'graph'.*event 0, which nobody records"):
        ss.simulate_batch([good, *stuck, *[good] * 20], cluster, workers=workers)
    assert threading.active_count() == before
