"""Speed of the compiled engine: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks``.

Figures that are ratios are measured side by side in one run and stand in `extra_info`.
"""

import json
import os
import subprocess
import sys
from statistics import median

import numpy as np
import pytest

import simsched as ss
import workloads
from simsched.simulator.compiled.prepared import launches_of, plan_of

MILLION = 384120041.8065861  # us, as first recorded


def program(n_ops, n_gpus, scheduler="round-robin"):
    """The HIOS paper's layered DAG, 14 layers to 200 operators and 2 edges to an operator, on some GPUs."""
    graph = workloads.random_layered(n_ops=n_ops, n_layers=n_ops // 14, rng=0)
    cluster = ss.Cluster.preset("a40", n_gpus=n_gpus)
    return ss.schedule(graph, cluster, scheduler).lower(cluster), cluster


@pytest.mark.parametrize("scheduler", ["round-robin", "inter-lp"])
@pytest.mark.parametrize(("n_ops", "n_gpus"), [(200, 4), (1_000, 4), (10_000, 8)])
def test_simulate(benchmark, n_ops, n_gpus, scheduler, note, best):
    """A program that is ready; the ratio to the reference engine, and to the compiled one with all spans made."""
    lowered, cluster = program(n_ops, n_gpus, scheduler)
    trace = benchmark.pedantic(ss.simulate, (lowered, cluster), rounds=50, warmup_rounds=5)
    expected = ss.simulate(lowered, cluster, engine="reference")
    assert trace.makespan == pytest.approx(expected.makespan, rel=1e-9)
    assert len(trace) == len(expected)
    compiled = best(lambda: ss.simulate(lowered, cluster), 30)
    reference = best(lambda: ss.simulate(lowered, cluster, engine="reference"), 3)
    spans = best(lambda: ss.simulate(lowered, cluster).start, 5)
    note(
        ms=round(compiled * 1e3, 4),
        times_the_reference=round(reference / compiled, 1),
        ms_with_spans=round(spans * 1e3, 3),
        times_the_reference_with_spans=round(reference / spans, 1),
    )


def test_events_per_second(benchmark, note, best):
    """Steps of the loop: a stream, host or device that goes on. Hosts that run ahead take one for many instructions."""
    lowered, cluster = program(10_000, 8)
    plan = plan_of(lowered, cluster)
    launches, run = launches_of(plan, None), plan.take()
    run.makespans(launches)
    before = run.state.n_steps
    (makespan,) = benchmark.pedantic(run.makespans, (launches,), rounds=20)
    steps = (run.state.n_steps - before) / 20
    assert makespan == ss.simulate(lowered, cluster).makespan
    seconds = best(lambda: run.makespans(launches), 20)
    note(
        million_events_per_second=round(steps / seconds / 1e6, 1),
        million_instructions_per_second=round(len(lowered) / seconds / 1e6, 1),
    )


def test_a_million_operators(benchmark, note):
    """A process of its own: 64 GPUs, round-robin; seconds of the simulation and peak memory of the whole process."""
    code = f"""
from time import perf_counter
import simsched as ss
import workloads
graph = workloads.random_layered(n_ops=1_000_000, n_layers=71_428, rng=0)
cluster = ss.Cluster.preset("a40", n_gpus=64)
lowered = ss.schedule(graph, cluster, "round-robin").lower(cluster)
start = perf_counter()
makespan = ss.simulate(lowered, cluster).makespan
first = perf_counter() - start
start = perf_counter()
ss.simulate(lowered, cluster)
assert abs(makespan - {MILLION!r}) < 1e-9 * makespan, makespan
again = perf_counter() - start
peak, = (line for line in open("/proc/self/status") if line.startswith("VmHWM:"))  # getrusage counts the parent in
print(first, again, int(peak.split()[1]) / 1024)
"""

    def run():
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    first, again, peak = map(float, benchmark.pedantic(run, rounds=1).split())
    note(s_with_layout=round(first, 2), s_again=round(again, 2), peak_mib=round(peak))


def test_stage_of_eight_operators(benchmark, note, best):
    """As the dynamic program of IOS asks for it; the ratio to `simulate` of that stage as a schedule."""
    graph, cluster = workloads.load("inception_v3"), ss.Cluster.preset("v100")
    names = graph.names[40:48]
    groups = tuple((name,) for name in names)
    latency = ss.StageLatency(graph, cluster)
    found = benchmark(latency, groups)
    free = cluster.replace_devices(
        **dict.fromkeys(("launch", "record", "wait", "copy", "barrier", "launch_latency"), 0.0)
    )
    alone = ss.OpGraph([graph[name] for name in names])
    stage = ss.Schedule(alone, [ss.Placement(name, stream=i, group=i) for i, name in enumerate(names)], "stages")
    assert found == pytest.approx(ss.simulate(stage, free).makespan, rel=1e-12)
    seconds = best(lambda: latency(groups), 2000)
    reference = best(lambda: ss.simulate(stage, free, engine="reference"), 5)
    note(us=round(seconds * 1e6, 2), times_the_reference=round(reference / seconds))


@pytest.mark.parametrize("scheduler", ["lios", "inter-lp"])
def test_a_step_of_a_search(benchmark, scheduler, note, best):
    """Move an operator and take it back: the step, and the same by lowering and simulating a new schedule."""
    graph = workloads.random_layered(n_ops=200, n_layers=14, rng=0)
    cluster = ss.Cluster.preset("a40", n_gpus=4)
    search = ss.Evaluator(ss.schedule(graph, cluster, scheduler), cluster)

    def step():
        found = search.move("op7", stream=1)
        search.undo()
        return found

    found = benchmark(step)
    search.move("op7", stream=1)
    assert found == ss.simulate(search.schedule(), cluster).makespan
    search.undo()
    quick = best(step, 200)
    anew = best(lambda: ss.simulate(search.schedule(), cluster), 50)
    note(us=round(quick * 1e6), times_a_new_schedule=round(anew / quick, 1))


@pytest.mark.parametrize("workers", [1, 2])
def test_monte_carlo(benchmark, workers, note, best):
    """1,000 samples of a program of 1,000 operators; the ratio to as many single simulations."""
    lowered, cluster = program(1_000, 4)
    options = {"jitter": 0.02, "rng": 0}
    found = benchmark.pedantic(
        ss.simulate_many, (lowered, cluster, 1_000), options | {"workers": workers}, rounds=3, warmup_rounds=1
    )
    rng = np.random.default_rng(0)
    singly = [ss.simulate(lowered, cluster, jitter=0.02, rng=rng).makespan for _ in range(20)]
    assert found.values[:20].tolist() == pytest.approx(singly, rel=1e-12)
    together = best(lambda: ss.simulate_many(lowered, cluster, 1_000, **options, workers=workers), 3)
    one = best(lambda: ss.simulate(lowered, cluster, **options), 100)
    note(ms=round(together * 1e3, 1), times_single_simulations=round(1_000 * one / together, 2))


def test_cold_start(benchmark, tmp_path, note):
    """The first simulation of a process: when nothing is compiled yet, and when it is."""
    code = """
from time import perf_counter
import simsched as ss
graph = ss.OpGraph([ss.Operator(name, time=1.0) for name in "ab"], [ss.Edge("a", "b")])
cluster = ss.Cluster.preset("a100")
plan = ss.schedule(graph, cluster, "sequential")
start = perf_counter()
assert ss.simulate(plan, cluster).makespan > 2.0
print(perf_counter() - start)
"""

    def run():
        environment = os.environ | {"SIMSCHED_CACHE_DIR": str(tmp_path)}
        return float(
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment).stdout
        )

    first = benchmark.pedantic(run, rounds=1)
    later = median(run() for _ in range(5))
    assert later < first
    note(s_first_ever=round(first, 1), s_later=round(later, 3))


SHARED = """
from time import perf_counter
import simsched as ss
graph, cluster = ss.OpGraph.load({0!r}), ss.Cluster.preset("a100")
plan = ss.schedule(graph, cluster, {1!r})
times = []
for _ in range(80):
    start = perf_counter()
    makespan = ss.simulate(plan, cluster).makespan
    times.append(perf_counter() - start)
print(min(times), makespan, ss.simulate(plan, cluster, engine="reference").makespan)
"""


@pytest.mark.parametrize(
    "case", [("inception_v3", "sequential"), ("nasnet_a_large", "greedy"), ("nasnet_a_large", "opara")]
)
def test_kernels_that_share(benchmark, tmp_path, case, note):
    """Kernels by themselves, in stages and on streams; the ratio to another checkout (SIMSCHED_OTHER), in turns.

    Both are given the same kernels and times: what a network launches may have changed between them.
    """
    network, scheduler = case
    data = workloads.load(network).to_dict()
    for op, row in zip(workloads.load(network).operators, data["operators"], strict=True):
        row["time"] = ss.default_cost(op, ss.Cluster.preset("a100").devices[0])
        for kernel in row.get("kernels", ()):
            kernel.pop("efficiency", None)
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(data))

    def run(folder=None):
        code, environment = SHARED.format(str(path), scheduler), os.environ | {"SIMSCHED_JIT": "O3"}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env=environment, cwd=folder
        )
        return [float(text) for text in done.stdout.split()]

    seconds, makespan, expected = benchmark.pedantic(run, rounds=1)
    assert makespan == pytest.approx(expected, rel=1e-9)
    other = os.environ.get("SIMSCHED_OTHER")
    pairs = [(run()[0], run(other)[0]) for _ in range(5 if other else 0)]
    note(us=round(seconds * 1e6), times_the_other=[round(ours / theirs, 2) for ours, theirs in pairs])
