"""What ranges cost: a comparison with them beside one without, and advice."""

import pytest

import simsched as ss
import workloads


@pytest.mark.parametrize(
    ("name", "gpus"), [("inception_v3", 1), ("inception_v3", 2), ("nasnet_mobile", 1), ("squeezenet", 2)]
)
def test_ranges(benchmark, best, note, name, gpus):
    graph, cluster = workloads.load(name), ss.Cluster.preset("h100", gpus)
    found = ss.compare(graph, cluster)
    assert all(row.speedup_low is not None for row in found.rows if row.makespan_us is not None)
    without = best(lambda: ss.compare(graph, cluster, ranges=False), 5)
    with_them = best(lambda: ss.compare(graph, cluster), 5)
    advice = best(lambda: ss.advise(graph, cluster), 2)
    ratio = with_them / without
    note(graph=name, gpus=gpus, ms=f"{1e3 * without:.0f}", ratio_with_ranges=f"{ratio:.2f}", advice_s=f"{advice:.2f}")
    benchmark.pedantic(lambda: ss.compare(graph, cluster), rounds=1)
