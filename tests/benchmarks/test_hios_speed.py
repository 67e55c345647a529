"""Speed of HIOS: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks/test_hios_speed.py``.

The released code takes 5.2 s of CPU for its paths and 0.7 s for its windows at 200 operators, 400 edges and 4 GPUs.
Targets: 10 ms there, 10 s at 10,000 operators and 8 GPUs.
"""

from time import perf_counter

import pytest

import workloads
from simsched.model.cluster import Cluster
from simsched.schedulers import schedule
from simsched.schedulers.hios import hios_lp, hios_mr, inter_lp, inter_mr

SIZES = {"small": (200, 14, 4, 20), "large": (10_000, 100, 8, 2)}
"""Operators, layers, GPUs, rounds."""
ALGORITHMS = {
    "inter-lp": (inter_lp, {}),
    "inter-mr": (inter_mr, {}),
    "hios-lp": (hios_lp, {}),
    "hios-lp, hios-sim": (hios_lp, {"stage_latency": "hios-sim"}),
    "hios-mr": (hios_mr, {}),
    "hios-mr, hios-sim": (hios_mr, {"stage_latency": "hios-sim"}),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_hios(benchmark, algorithm, size):
    """All of `schedule`, with its proof that the schedule can run."""
    scheduler, options = ALGORITHMS[algorithm]
    n_ops, n_layers, n_gpus, rounds = SIZES[size]
    graph = workloads.random_layered(n_ops, n_layers, 2 * n_ops, rng=0)
    cluster = Cluster.preset("a40", n_gpus)
    took = []

    def run():
        begin = perf_counter()
        plan = schedule(graph, cluster, scheduler, **options)
        took.append(perf_counter() - begin)
        return plan

    plan = benchmark.pedantic(run, rounds=rounds, warmup_rounds=1)
    assert float(graph.time.sum()) / plan.estimate > (3.0 if size == "small" else 3.5)
    if scheduler in (hios_lp, hios_mr):
        assert plan.search["stages_merged"] > 0
    benchmark.extra_info.update(ms=round(1e3 * min(took), 2), **plan.search)
    print(f"{algorithm}, {n_ops} operators on {n_gpus} GPUs: {1e3 * min(took):.2f} ms, {dict(plan.search)}")
