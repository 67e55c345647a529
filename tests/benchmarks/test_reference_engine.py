"""Speed of the reference engine: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks``."""

import subprocess
import sys

import numpy as np
import pytest

import simsched as ss
import workloads
from simsched.model.trace import KERNEL

pytestmark = pytest.mark.benchmark

MAKESPAN = {100: 75074.88286812903, 1_000: 667679.3657161098, 10_000: 6763716.944687824}  # us, as first recorded


def program(n_ops: int) -> tuple[ss.Program, ss.Cluster]:
    """A HIOS-like layered DAG dealt out to four GPUs."""
    graph = workloads.random_layered(n_ops=n_ops, n_layers=max(3, n_ops // 14), rng=0)
    cluster = ss.Cluster.preset("a40", n_gpus=4)
    return ss.schedule(graph, cluster, "round-robin").lower(cluster), cluster


@pytest.mark.parametrize("n_ops", [100, 1_000, 10_000])
def test_simulate(benchmark, n_ops):
    """Each device is busy one operator at a time, so its busy time is the sum of its operators' times."""
    lowered, cluster = program(n_ops)
    trace = benchmark.pedantic(ss.simulate, (lowered, cluster), {"engine": "reference"}, rounds=5, warmup_rounds=1)
    times = lowered.graph.time
    per_device = [times[d::4].sum() for d in range(4)]
    kernels = trace.kind == KERNEL
    busy = np.bincount(trace.device[kernels], (trace.end - trace.start)[kernels])
    assert busy.tolist() == pytest.approx(per_device)
    assert trace.makespan >= max(per_device)
    assert trace.makespan == pytest.approx(MAKESPAN[n_ops], rel=1e-9)


def test_memory_of_ten_thousand_operators():
    """A process of its own: peak resident memory of building, lowering and simulating 10,000 operators."""
    code = """
import workloads, simsched as ss
graph = workloads.random_layered(n_ops=10_000, n_layers=714, rng=0)
cluster = ss.Cluster.preset("a40", n_gpus=4)
ss.simulate(ss.schedule(graph, cluster, "round-robin"), cluster, engine="reference")
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""
    peak = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    print(f"peak memory of 10,000 operators: {peak / 1024:.0f} MiB")
    assert peak / 1024 < 150


def test_cost_grows_linearly(benchmark):
    """The figure, in `extra_info`: us per operator at 10,000 operators over those at 1,000; 1 is linear."""
    from time import perf_counter

    def per_operator(n_ops):
        lowered, cluster = program(n_ops)
        best = np.inf
        for _ in range(3):
            start = perf_counter()
            ss.simulate(lowered, cluster, engine="reference")
            best = min(best, perf_counter() - start)
        return best / n_ops

    ratio = benchmark.pedantic(lambda: per_operator(10_000) / per_operator(1_000), rounds=1)
    benchmark.extra_info["cost per operator, 10,000 over 1,000"] = round(ratio, 3)
    print(f"cost per operator, 10,000 over 1,000 operators: {ratio:.2f}")
