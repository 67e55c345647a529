"""Speed of the compiled engine; ratios are of what was measured side by side in one run."""

import subprocess
import sys
from functools import partial
from itertools import product

import numpy as np
import pytest

import simsched as ss
import workloads

MILLION = 384120041.8065861  # us, as first recorded


def program(spec, n_gpus=1, scheduler="round-robin"):
    """A network, or so many operators of the HIOS paper's layered DAG: 14 layers to 200 operators, 2 edges to each."""
    layered = f"random:layered,n_ops={spec},n_layers={spec // 14},seed=0" if isinstance(spec, int) else None
    cluster = ss.Cluster.preset("a40" if layered else "a100", n_gpus=n_gpus)
    return ss.schedule(workloads.from_spec(layered or spec), cluster, scheduler).lower(cluster), cluster


@pytest.mark.parametrize(
    ("spec", "n_gpus", "scheduler"),
    [
        *((*size, how) for size, how in product(((200, 4), (1_000, 4), (10_000, 8)), ("round-robin", "inter-lp"))),
        ("inception_v3", 1, "sequential"),  # kernels by themselves, in stages and on streams
        ("nasnet_a_large", 1, "greedy"),
        ("nasnet_a_large", 1, "opara"),
    ],
)
def test_simulate(spec, n_gpus, scheduler, note, best):
    """A program that is ready; the ratio to the reference engine, and to the compiled one with all spans made."""
    run = partial(ss.simulate, *program(spec, n_gpus, scheduler))
    compiled, trace = best(run, 30)
    reference, expected = best(partial(run, engine="reference"), 3)
    assert trace.makespan == pytest.approx(expected.makespan, rel=1e-9)
    spans, _ = best(lambda: run().start, 5)
    note(
        ms=round(compiled * 1e3, 4),
        times_the_reference=round(reference / compiled, 1),
        ms_with_spans=round(spans * 1e3, 3),
        times_the_reference_with_spans=round(reference / spans, 1),
    )


def test_a_million_operators(note):
    """A process of its own: 64 GPUs, round-robin; seconds of the simulation and peak memory of the whole process."""
    code = """
from time import perf_counter
import simsched as ss
import workloads
graph = workloads.random_layered(n_ops=1_000_000, n_layers=71_428, rng=0)
cluster = ss.Cluster.preset("a40", n_gpus=64)
lowered = ss.schedule(graph, cluster, "round-robin").lower(cluster)
for _ in range(2):
    start = perf_counter()
    makespan = ss.simulate(lowered, cluster).makespan
    print(perf_counter() - start)
peak, = (line for line in open("/proc/self/status") if line.startswith("VmHWM:"))  # getrusage counts the parent in
print(int(peak.split()[1]) / 1024, makespan)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    first, again, peak, makespan = map(float, done.stdout.split())
    assert makespan == pytest.approx(MILLION, rel=1e-9)
    note(s_with_layout=round(first, 2), s_again=round(again, 2), peak_mib=round(peak))


def test_stage_of_eight_operators(note, best):
    """As the dynamic program of IOS asks for it; the ratio to `simulate` of that stage as a schedule."""
    graph, cluster = workloads.load("inception_v3"), ss.Cluster.preset("v100")
    names = graph.names[40:48]
    latency = partial(ss.StageLatency(graph, cluster), tuple((name,) for name in names))
    free = dict.fromkeys(("launch", "record", "wait", "copy", "barrier", "launch_latency"), 0.0)
    rows = [ss.Placement(name, stream=i, group=i) for i, name in enumerate(names)]
    stage = ss.Schedule(ss.OpGraph([graph[name] for name in names]), rows, "stages")
    simulated = partial(ss.simulate, stage, cluster.replace_devices(**free), engine="reference")
    (seconds, found), (reference, trace) = best(latency, 2000), best(simulated, 5)
    assert found == pytest.approx(trace.makespan, rel=1e-12)
    note(us=round(seconds * 1e6, 2), times_the_reference=round(reference / seconds))


@pytest.mark.parametrize("scheduler", ["lios", "inter-lp"])
def test_a_step_of_a_search(scheduler, note, best):
    """Move an operator and take it back: the step, and the same by lowering and simulating a new schedule."""
    graph = workloads.random_layered(n_ops=200, n_layers=14, rng=0)
    cluster = ss.Cluster.preset("a40", n_gpus=4)
    search = ss.Evaluator(ss.schedule(graph, cluster, scheduler), cluster)

    def step():
        found = search.move("op7", stream=1)
        search.undo()
        return found

    quick, found = best(step, 200)
    search.move("op7", stream=1)
    anew, trace = best(lambda: ss.simulate(search.schedule(), cluster), 50)
    assert found == trace.makespan
    note(us=round(quick * 1e6), times_a_new_schedule=round(anew / quick, 1))


@pytest.mark.parametrize("workers", [1, 2])
def test_monte_carlo(workers, note, best):
    """1,000 samples of a program of 1,000 operators; the ratio to as many single simulations."""
    lowered, cluster = program(1_000, 4)
    options = {"jitter": 0.02, "rng": 0}
    together, found = best(lambda: ss.simulate_many(lowered, cluster, 1_000, **options, workers=workers), 3)
    rng = np.random.default_rng(0)
    singly = [ss.simulate(lowered, cluster, jitter=0.02, rng=rng).makespan for _ in range(20)]
    assert found.values[:20].tolist() == pytest.approx(singly, rel=1e-12)
    one, _ = best(lambda: ss.simulate(lowered, cluster, **options), 100)
    note(ms=round(together * 1e3, 1), times_single_simulations=round(1_000 * one / together, 2))
