"""How long AutoGraph searches: targets are 60 s for Inception-v3 and 10 min for NASNet-A."""

import pytest

from simsched.model.cluster import Cluster
from simsched.schedulers import schedule
from workloads import load

NETWORKS = {
    ("inception_v3", "unit"): 119,
    ("inception_v3", "operator"): 314,
    ("squeezenet", "operator"): 82,
    ("nasnet_a_large", "operator"): 1236,
}


@pytest.mark.parametrize(("name", "granularity"), NETWORKS)
def test_search(benchmark, name, granularity):
    """The whole search, streams and simulation included; what comes out is never slower than it was."""
    graph = load(name, granularity=granularity)
    assert len(graph) == NETWORKS[name, granularity]
    cluster = Cluster.preset("a100")
    plan = benchmark.pedantic(schedule, args=(graph, cluster, "autograph"), rounds=1, iterations=1)
    assert plan.search["stopped"] is None
    assert plan.search["best_us"] <= plan.search["start_us"]
    benchmark.extra_info.update({key: plan.search[key] for key in ("candidates", "best_us", "start_us")})
