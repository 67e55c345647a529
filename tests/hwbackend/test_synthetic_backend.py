"""The surrogate as a backend: what is hidden, what varies, what is checked."""

from dataclasses import replace

import numpy as np
import pytest
from shortened import without

import hwbackend
import workloads
from hwbackend.surrogate.truth import truth
from hwbackend.synthetic_backend import SyntheticBackend
from simsched import Cluster, Edge, Operator, OpGraph, Placement, Schedule
from simsched.base.errors import BackendError, UnknownNameError
from simsched.calibration.training import random_schedule
from simsched.model.cluster.device import OVERHEADS
from simsched.model.program import WAIT
from simsched.model.trace import COPY
from simsched.simulator import simulate

DAG = "random:layered,n_ops=30,n_layers=6,n_edges=60"


def in_sequence(*operators):
    return Schedule.from_columns(OpGraph(operators), range(len(operators)), ("gpu0",))


def quiet(**options):
    """A surrogate whose repeats differ by the jitter of blocks and hosts only."""
    return SyntheticBackend(noise=0.0, drift=0.0, outliers=0.0, **options)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gpu", ["a40", "h200"])
def test_true_parameters_are_10_to_40_percent_away_from_the_priors(gpu, seed):
    prior = Cluster.preset(gpu, 2).replace_devices(launch=4.0, launch_latency=0.0)  # as it always was
    true = truth(prior, seed)
    before, device = prior.devices[0], true.cluster.devices[0]
    assert device.launch_latency == 0.0
    for name in (each for each in OVERHEADS if each != "launch_latency"):
        ratio = getattr(device, name) / getattr(before, name)
        assert 1.1 - 1e-9 <= max(ratio, 1 / ratio) <= 1.4 + 1e-9, name
    rates = [device.peak["fp32"] / before.peak["fp32"], device.bandwidth / before.bandwidth,
             true.cluster.links[0][2].bandwidth / prior.links[0][2].bandwidth]  # fmt: skip
    assert all(1 / 1.25 <= rate <= 1 / 1.1 for rate in rates)
    assert 1 / 1.4 <= device.saturating_warps / before.saturating_warps <= 1 / 1.1
    assert SyntheticBackend(gpu=gpu, gpus=2, seed=seed).cluster == prior


def test_the_same_seed_and_calls_give_the_same():
    graph = workloads.load("squeezenet")
    found = []
    for seed in (3, 3, 4):
        backend = SyntheticBackend(gpu="k80", seed=seed)
        plan = random_schedule(graph, backend.cluster, rng=1, streams=3, execution="events")
        found.append([backend.replay(plan, repeats=3, warmup=1) for _ in range(2)])
    (first, second), again, other = found
    assert [r.latency for r in again] == [first.latency, second.latency]
    assert np.array_equal(again[1].trace.end, second.trace.end)
    assert first.latency != second.latency  # noise goes on, it is not repeated
    assert other[0].latency != first.latency


def test_an_operator_alone_takes_roughly_its_time():
    """Blocks vary by 8 %, and the SMs or DRAM are 9 to 20 % slower than the datasheet says."""
    for seed in range(3):
        backend = quiet(seed=seed)
        for load in (0.6, 0.8, 1.0):
            for intensity in ("compute", "memory"):
                op = Operator("op", time=1000.0, utilization=load, intensity=intensity)
                other = Operator("other", time=50.0, utilization=0.5)
                start, end = backend.replay(in_sequence(op, other), repeats=3).trace.operator_times()["op"]
                assert 0.8 <= (end - start) / 1000.0 <= 1.6


def test_without_contention_a_model_is_far_off_and_the_simulator_is_not():
    """Schedules of random DAGs on 2 to 6 streams. Both models are given the true costs of issuing, SMs and DRAM, and
    the times of operators as they were measured one after the other. (The data sheet alone is off by more.)"""
    errors = {"datasheet": [], "no contention": [], "simulator": []}
    for seed in range(2):
        backend = quiet(seed=seed)
        graph = backend.realise(workloads.from_spec(f"{DAG},seed={seed}"))
        order = [graph.index[name] for name in graph.order]
        alone = Schedule.from_columns(graph, order, ("gpu0",))
        times = backend.replay(alone, repeats=3, warmup=0).trace.operator_times()
        operators = [replace(op, time=times[op.name][1] - times[op.name][0]) for op in graph.operators]
        measured = OpGraph(operators, graph.edges, graph.name)
        device = truth(backend.cluster, seed).cluster.devices[0]
        known = (*OVERHEADS, "saturating_warps", "bandwidth")
        model = backend.cluster.replace_devices(**{name: getattr(device, name) for name in known})
        for streams in (2, 3, 4):
            plan = random_schedule(graph, backend.cluster, rng=streams, streams=streams, execution="events")
            latency = backend.replay(plan, repeats=3, warmup=0).median
            for name, schedule, cluster in (
                ("datasheet", plan, backend.cluster),
                ("no contention", plan.over(measured), model.replace_devices(contention=False)),
                ("simulator", plan.over(measured), model),
            ):
                errors[name].append(abs(simulate(schedule, cluster).makespan / latency - 1.0))
    mean = {name: np.mean(values) for name, values in errors.items()}
    assert mean["no contention"] > 0.12
    assert mean["datasheet"] > 0.12
    assert mean["simulator"] < 0.03


@pytest.mark.parametrize("execution", ["events", "graph"])
@pytest.mark.parametrize("gpus", [1, 2])
def test_a_missing_wait_is_caught(gpus, execution):
    """A reader of what takes 500 us on another stream or device; less any wait it is read or copied too early."""
    backend = quiet(gpus=gpus)
    operators = [Operator(name, time=500.0, utilization=0.2) for name in ("writer", "reader")]
    graph = OpGraph(operators, [Edge("writer", "reader", nbytes=4096.0)])
    placements = [Placement("writer", "gpu0", 0), Placement("reader", f"gpu{gpus - 1}", 1)]
    plan = Schedule(backend.realise(graph), placements, execution=execution)
    program = plan.lower(backend.cluster)
    assert backend.replay(program, repeats=1, warmup=0).max_relative_error == 0.0
    waits = np.flatnonzero(program.action == WAIT).tolist()
    assert len(waits) == gpus
    for row in waits:
        with pytest.raises(BackendError, match=r"the output of 'writer' was not there when"):
            backend.replay(without(program, row), repeats=1, warmup=0)


def test_outliers_take_up_to_twice_as_long_and_the_trace_does_not_mind():
    """The median of ten repeats, all outliers, is longer; that of ten with few is not."""
    op = Operator("op", time=1000.0, utilization=0.5, intensity="compute")
    usual = quiet().replay(in_sequence(op), repeats=10).median
    every = SyntheticBackend(noise=0.0, drift=0.0, outliers=1.0).replay(in_sequence(op), repeats=10)
    assert all(1.15 * usual <= latency <= 2.1 * usual for latency in every.latency)
    some = SyntheticBackend(noise=0.0, drift=0.0, outliers=0.2).replay(in_sequence(op), repeats=20)
    assert max(some.latency) > 1.15 * usual
    assert some.trace.makespan == pytest.approx(usual, rel=0.03)


def test_noise_and_drift_are_what_was_asked_for():
    """60 repeats of an operator with noise of 3 %: latencies vary by 3 to 5 % (each kernel varies, too, by as much);
    without any only blocks vary, of which the longest counts: by less than 2 %."""
    op = Operator("op", time=1000.0, utilization=0.9, intensity="compute")

    def spread(backend):
        latency = np.array(backend.replay(in_sequence(op), repeats=60).latency)
        return latency.std() / latency.mean()

    assert spread(quiet(gpu="k80")) < 0.02
    assert 0.025 < spread(SyntheticBackend(gpu="k80", noise=0.03, drift=0.0, outliers=0.0)) < 0.065
    drifting = SyntheticBackend(gpu="k80", noise=0.0, drift=0.05, outliers=0.0)
    found = np.array([drifting.replay(in_sequence(op), repeats=50).median for _ in range(12)])
    assert 0.01 < found.std() / found.mean() < 0.12
    steps = np.abs(np.diff(drifting.replay(in_sequence(op), repeats=50).latency)) / found.mean()
    assert np.median(steps) < 0.02  # slowly


@pytest.mark.parametrize(("engines", "at_once"), [(1, 1), (2, 2), (None, 2)])
def test_a_device_makes_as_many_copies_at_once_as_it_has_engines(engines, at_once):
    """Four of 16 MB to the other GPU: one by one, or two, then two; an a40 has two engines."""
    backend = quiet(gpus=2, copy_engines=engines)
    writers = [Operator(f"from{i}", time=1.0) for i in range(4)]
    readers = [Operator(f"to{i}", time=1.0) for i in range(4)]
    graph = OpGraph([*writers, *readers], [Edge(f"from{i}", f"to{i}", 16e6) for i in range(4)])
    places = [Placement(op.name, f"gpu{side}", i) for side, ops in enumerate((writers, readers))
              for i, op in enumerate(ops)]  # fmt: skip
    trace = backend.replay(Schedule(backend.realise(graph), places), repeats=1, warmup=0).trace
    start, end = trace.start[trace.kind == COPY], trace.end[trace.kind == COPY]
    assert max(((start <= us) & (us < end)).sum() for us in start) == at_once
    assert backend.cluster.devices[0].copy_engines == at_once


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"seed": -1}, BackendError, "seed must be a whole number, not -1"),
        ({"noise": 2.0}, BackendError, "noise must be from 0 to 0.5, not 2.0"),
        ({"drift": "much"}, BackendError, "drift must be from 0 to 0.5, not 'much'"),
        ({"outliers": float("nan")}, BackendError, "outliers must be from 0 to 1, not nan"),
        ({"gpus": 0}, ValueError, "n_gpus must be at least 1 and whole, not 0"),
        ({"gpu": "z80"}, UnknownNameError, "unknown gpu 'z80'"),
        ({"copy_engines": 1.5}, BackendError, "copy_engines must be a whole number of at least 1"),
    ],
)
def test_options_that_cannot_be_are_refused(options, kind, message):
    with pytest.raises(kind, match=message):
        hwbackend.get("synthetic", **options)
