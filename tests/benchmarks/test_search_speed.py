"""Speed and gain of the search: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks``."""

from time import perf_counter

import pytest

import simsched as ss
import workloads
from simsched.schedulers import schedule
from simsched.schedulers.search import search

CASES = {
    "hios": ("random:layered,seed=0", "a40", 4),
    "inception_v3": ("inception_v3", "a100", 1),
    "randwire": ("randwire", "a100", 2),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("evaluations", [2_000, 10_000])
def test_search(benchmark, case, evaluations):
    """Seconds, ms per evaluation, and by how much the makespan is shorter than that of the best start."""
    spec, gpu, n = CASES[case]
    graph, cluster = workloads.from_spec(spec), ss.Cluster.preset(gpu, n)
    begun = perf_counter()
    plan = benchmark.pedantic(schedule, (graph, cluster, search), {"evaluations": evaluations}, rounds=1)
    seconds = perf_counter() - begun
    best = plan.search["start_makespan"]
    assert plan.estimate == ss.simulate(plan, cluster).makespan <= best
    benchmark.extra_info.update(
        ms_per_evaluation=round(seconds * 1e3 / plan.search["evaluations"], 3),
        shorter_by_percent=round(100 * (1 - plan.estimate / best), 2),
        start=plan.search["start"],
    )
    print(benchmark.extra_info)
