"""Bounds and proofs: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks/test_optimum_speed.py -s``.

Figures stand in `extra_info`: seconds of bounds, and what the exact search proves in half a minute.
"""

import logging
from time import perf_counter

import pytest

import simsched as ss
import workloads
from simsched.bounds import bounds
from simsched.optimum import optimal
from simsched.schedulers import schedule
from simsched.schedulers.heft import heft

SECONDS = 30.0


def layered(n_ops, shape):
    """The HIOS paper's layered DAG ("wide"), or one of 4 operators to a layer, as networks have them ("narrow")."""
    n_layers = max(3, round(n_ops / (14.3 if shape == "wide" else 4)))
    return workloads.random_layered(n_ops=n_ops, n_layers=n_layers, rng=0)


@pytest.mark.parametrize("n_ops", [1_000, 10_000, 100_000])
def test_bounds_of_large_graphs(benchmark, n_ops, note):
    graph, cluster = layered(n_ops, "wide"), ss.Cluster.preset("a40", 4)
    found = benchmark.pedantic(bounds, (graph, cluster), rounds=3)
    assert found.best >= found.sm_work > 0
    best = []
    for _ in range(3):
        start = perf_counter()
        bounds(graph, cluster)
        best.append(perf_counter() - start)
    note(operators=n_ops, ms=round(1e3 * min(best), 1))


@pytest.mark.parametrize("n_devices", [2, 4])
@pytest.mark.parametrize("shape", ["wide", "narrow"])
@pytest.mark.parametrize("n_ops", [20, 50, 100, 200])
def test_what_is_proved_in_half_a_minute(benchmark, n_ops, shape, n_devices, note):
    """And by how much HEFT on one stream per device, from which the search starts, is above the best found."""
    graph, cluster = layered(n_ops, shape), ss.Cluster.preset("a40", n_devices)
    logging.getLogger("simsched").setLevel(logging.ERROR)
    start = schedule(graph, cluster, heft, streams=1)
    found = benchmark.pedantic(
        optimal, (graph, cluster, SECONDS), kwargs={"starts": [start]}, rounds=1, warmup_rounds=0
    )
    assert found.bound <= found.makespan <= start.estimate * (1 + 1e-9)
    note(
        operators=n_ops,
        shape=shape,
        devices=n_devices,
        proved=found.proved,
        gap_percent=round(100 * found.gap, 2),
        heft_above_percent=round(100 * (start.estimate / found.makespan - 1), 2),
        seconds=round(found.search["search_s"], 1),
    )
