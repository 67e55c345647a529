"""How long networks take to build; the largest of those that IOS measured has a target of 50 ms."""

import pytest

from workloads import load

NETWORKS = {
    "nasnet_a_large": (374, 576),
    "inception_v3": (119, 153),
    "randwire": (120, 260),
    "bert_large": (266, 361),
    "densenet121": (184, 718),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_build(benchmark, name):
    graph = benchmark(load, name)
    assert (len(graph), len(graph.src)) == NETWORKS[name]


def test_build_by_single_operators(benchmark):
    graph = benchmark(load, "nasnet_a_large", granularity="operator")
    assert len(graph) == 1236
