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
from simsched.simulator import simulate


def quiet(**options):
    """A surrogate whose repeats differ by the jitter of blocks and hosts only, and by what is asked for."""
    return SyntheticBackend(**({"noise": 0.0, "drift": 0.0, "outliers": 0.0} | options))


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
    backend = SyntheticBackend(gpu=gpu, gpus=2, seed=seed)
    assert backend.cluster == prior
    assert SyntheticBackend(gpu=gpu, gpus=2, copy_engines=1).cluster == prior.replace_devices(copy_engines=1)


def test_without_contention_a_model_is_far_off_and_the_simulator_is_not():
    """Schedules of a random DAG on 2 to 4 streams. Both models are given the true costs of issuing, SMs and DRAM, and
    the times of operators as they were measured one after the other. (The data sheet alone is off by more.)"""
    errors = {"datasheet": [], "no contention": [], "simulator": []}
    backend = quiet()
    graph = backend.realise(workloads.from_spec("random:layered,n_ops=30,n_layers=6,n_edges=60,seed=0"))
    alone = Schedule.from_columns(graph, [graph.index[name] for name in graph.order], ("gpu0",))
    times = backend.replay(alone, repeats=3, warmup=0).trace.operator_times()
    operators = [replace(op, time=times[op.name][1] - times[op.name][0]) for op in graph.operators]
    measured = OpGraph(operators, graph.edges, graph.name)
    device = truth(backend.cluster, 0).cluster.devices[0]
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


def test_noise_drift_and_outliers_are_what_was_asked_for():
    """Of an operator of 1 ms: without any only blocks vary, of which the longest counts, by less than 2 %; noise of
    3 % is as much of a run and of its kernel; an outlier takes up to twice as long; drift is slow."""
    op = Operator("op", time=1000.0, utilization=0.9, intensity="compute")
    plan = Schedule(OpGraph([op]), [Placement("op")])

    def latencies(repeats=60, **options):
        return np.array(quiet(gpu="k80", **options).replay(plan, repeats=repeats).latency)

    usual, noisy = latencies(), latencies(noise=0.03)
    assert usual.std() / usual.mean() < 0.02
    assert 0.025 < noisy.std() / noisy.mean() < 0.065
    outliers = latencies(outliers=1.0) / np.median(usual)
    assert 1.15 <= outliers.min() <= outliers.max() <= 2.1
    drifting = latencies(600, drift=0.05)
    assert 0.01 < drifting.std() / drifting.mean() < 0.12
    assert np.median(np.abs(np.diff(drifting))) / drifting.mean() < 0.02


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"seed": -1}, BackendError, "seed must be a whole number of at least 0, not -1"),
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
