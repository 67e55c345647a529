"""Speed of list schedulers: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks/test_list_speed.py -s``.

On the layered graphs SAGA 2.1.0 was measured, in HEFT without building its graph, at 14 ms, 95 ms and 4.8 s for 200,
1,000 and 10,000 operators, and Estee's ETF with its simulation at 17 ms, 0.10 s and 0.85 s.
"""

import pytest

import simsched as ss
import workloads
from simsched.model.costmodel import default_cost
from simsched.schedulers import schedule
from simsched.schedulers.etf import etf
from simsched.schedulers.heft import heft
from simsched.schedulers.lios import lios
from simsched.schedulers.peft import peft
from workloads.random_dags import random_in_tree

FOUR = ss.Cluster.preset("a40", 4)
SIZES = (200, 1_000, 10_000)


def layered(n_ops):
    """The HIOS paper's layered DAG: 14 layers to 200 operators, 2 edges to an operator, transfers of 0.8 its time."""
    return workloads.random_layered(n_ops=n_ops, n_layers=round(n_ops / 14.3), comm_ratio=0.8, rng=0)


@pytest.mark.parametrize("scheduler", [heft, peft, etf, lios])
@pytest.mark.parametrize("n_ops", SIZES)
def test_list_schedulers(benchmark, scheduler, n_ops, note, best):
    """As they are by default: two streams on each of four GPUs, eight on one."""
    graph = layered(n_ops)
    plan = benchmark.pedantic(schedule, (graph, FOUR, scheduler), rounds=100 if n_ops < 10_000 else 20, warmup_rounds=5)
    assert graph.longest_path()[0] <= plan.estimate <= graph.time.sum()
    assert plan.n_streams == 8
    note(
        scheduler=scheduler.__name__,
        n_ops=n_ops,
        ms=round(1e3 * best(lambda: schedule(graph, FOUR, scheduler), 100 if n_ops < 10_000 else 20), 3),
    )


@pytest.mark.parametrize("overheads", [False, True])
def test_lios_on_nasnet(benchmark, overheads, note, best):
    """374 operators; the paper's own takes 1.79 s."""
    graph = workloads.load("nasnet_a_large")
    plan = benchmark.pedantic(schedule, (graph, FOUR, lios), {"overheads": overheads}, rounds=300, warmup_rounds=5)
    assert len(plan) == 374
    assert plan.estimate < schedule(graph, FOUR, "sequential").estimate
    ms = round(1e3 * best(lambda: schedule(graph, FOUR, lios, overheads=overheads), 100), 3)
    note(overheads=overheads, ms=ms, times_the_paper=round(1790 / ms))


@pytest.mark.parametrize("scheduler", [heft, peft, etf, lios])
@pytest.mark.parametrize("family", ["layered", "in-tree"])
def test_a_million_operators(benchmark, scheduler, family, note):
    """From a graph that is made; half of the operators of a tree have no inputs, and are ready at once."""
    graph = layered(1_000_000) if family == "layered" else random_in_tree(1_000_000, rng=0)
    plan = benchmark.pedantic(scheduler, (graph, FOUR, default_cost), rounds=1)
    assert len(plan) == 1_000_000
    assert plan.estimate < graph.time.sum()
    plan.check(FOUR)
    note(scheduler=scheduler.__name__, family=family, seconds=round(benchmark.stats.stats.min, 2))
