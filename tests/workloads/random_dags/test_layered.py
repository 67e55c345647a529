"""The random layered DAG: what it promises of every graph, and that a seed means one graph for ever."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import pairs

from simsched.base.errors import GraphError
from workloads import random_layered
from workloads.random_dags.layered import _add_tried, _add_weighted, _connecting

seeds = st.integers(0, 2**32)


def layers_of(graph):
    """Every operator but the source has a predecessor one layer up: its layer is its longest path from the source."""
    layer = np.zeros(len(graph), int)
    by_source = np.argsort(np.argsort(graph.order_index)[graph.src], kind="stable")
    for u, v in zip(graph.src[by_source].tolist(), graph.dst[by_source].tolist(), strict=True):
        layer[v] = max(layer[v], layer[u] + 1)
    return layer


sizes = st.integers(3, 120).flatmap(lambda n_ops: st.tuples(st.just(n_ops), st.integers(3, n_ops)))


@given(size=sizes, seed=seeds)
def test_structure(size, seed):
    """Every operator reads from and is read by a neighbouring layer, hence lies between source and sink."""
    n_ops, n_layers = size
    graph = random_layered(n_ops, n_layers, rng=seed)
    assert len(graph.edges) <= 2 * n_ops
    layer = layers_of(graph)
    assert (graph.depth, layer[0], layer[-1]) == (n_layers, 0, n_layers - 1)
    assert set(np.diff(layer)) <= {0, 1}
    near = layer[graph.dst] - layer[graph.src] == 1
    assert set(graph.dst[near]) == set(range(1, n_ops))
    assert set(graph.src[near]) == set(range(n_ops - 1))


@given(size=sizes, seed=seeds, share=st.floats(0, 1))
def test_any_possible_number_of_edges(size, seed, share):
    """From none but the connecting edges to all there can be, the number is exact."""
    n_ops, n_layers = size
    needed = refused_at(n_ops, n_layers, 0, seed)
    possible = refused_at(n_ops, n_layers, 10**9, seed)
    n_edges = needed + round(share * (possible - needed))
    assert needed <= min(possible, max(2 * (n_ops - 2), 2))
    assert len(random_layered(n_ops, n_layers, n_edges, rng=seed).edges) == n_edges


def refused_at(n_ops, n_layers, n_edges, seed):
    """Return the bound that the refusal of too few or too many edges names."""
    with pytest.raises(GraphError) as caught:
        random_layered(n_ops, n_layers, n_edges, rng=seed)
    return int(str(caught.value).split("must be at ")[1].split()[1].rstrip(","))


def test_layer_sizes():
    """186 operators fall into 12 layers that hold one each: mean 1 + 15.5, deviation sqrt(186 * 1/12 * 11/12) = 3.77.

    Over 300 graphs, 3,600 layers, the error of the deviation is about 3.77 / sqrt(7200) = 0.04.
    """
    rng = np.random.default_rng(1)
    inner = np.concatenate([np.bincount(layers_of(random_layered(rng=rng)))[1:-1] for _ in range(300)])
    assert inner.mean() == 16.5
    assert inner.std() == pytest.approx(3.77, abs=0.2)


def test_times_are_uniform():
    """10,000 values in (100, 4000): mean 2050 with error 3900 / sqrt(12) / 100 = 11.3, deviation 1125.8."""
    graph = random_layered(10_000, 14, rng=2)
    assert graph.time.mean() == pytest.approx(2050, abs=50)
    assert graph.time.std() == pytest.approx(1125.8, abs=30)
    assert graph.utilization.mean() == pytest.approx(0.8, abs=0.01)


def test_distant_edges_by_either_way_have_one_distribution():
    """Two more edges are added to the same graph 4,000 times in both ways; each edge's count agrees.

    Layers 1, 2, 2, 1: operators 1 and 2 lead to 3, 4 and 5, and 3 and 4 to 5. What is not there yet is at most
    1 -> 3, 1 -> 4, 2 -> 3, 2 -> 4, 1 -> 5, 2 -> 5; counts of at most 4,000 have errors of at most 32, a difference 45.
    """
    size, start, n_later = np.array([1, 2, 2, 1]), np.array([0, 1, 3, 5]), np.array([5, 3, 3, 1, 1, 0])
    layer = np.repeat(np.arange(4), size)
    edges = _connecting(size, start, layer, np.random.default_rng(3))
    rng = np.random.default_rng(4)
    tried, weighted = Counter(), Counter()
    for _ in range(4000):
        tried.update(set(_add_tried(edges, len(edges) + 2, size, start, rng).tolist()) - set(edges.tolist()))
        more = _add_weighted(edges, len(edges) + 2, size, layer, n_later, rng)
        weighted.update(set(more.tolist()) - set(edges.tolist()))
    assert sum(tried.values()) == sum(weighted.values()) == 8000
    assert set(tried) == set(weighted)
    assert len({round(count / 500) for count in tried.values()}) > 1, "edges to the sink are drawn more often"
    assert all(abs(tried[edge] - weighted[edge]) < 4 * 45 for edge in tried)


def test_mode_impl_is_all_four_options():
    every = {"layer_sizes": "rounds", "numbering": "joining", "transfer_of": "consumer", "draws": "whole"}
    paper = random_layered(n_edges=400, rng=5)
    assert random_layered(n_edges=400, rng=5, mode="impl") == random_layered(n_edges=400, rng=5, **every) != paper
    assert all(random_layered(n_edges=400, rng=5, **{option: value}) != paper for option, value in every.items())


def test_rounds():
    """Six layers, so rounds of at most 3 operators to a layer: operator 0, then 3 for each of the four layers between.

    Of 19 operators 5 are left for the second round, which adds 0 to 3 to layers 1, 2, 3, 4 in this order and ends where
    there are none left, or for later rounds; and the last.
    """
    second = set()
    for seed in range(50):
        graph = random_layered(19, 6, 34, rng=seed, layer_sizes="rounds", numbering="joining")
        layer = layers_of(graph)
        assert layer[:13].tolist() == [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
        assert layer[18] == 5
        assert 1 <= layer[13:18].min() <= layer[13:18].max() <= 4
        second.add(tuple(layer[13:18].tolist()))
        by_layers = random_layered(19, 6, 34, rng=seed, layer_sizes="rounds")
        assert np.bincount(layers_of(by_layers)).tolist() == np.bincount(layer).tolist()
    assert len(second) > 20


def test_rounds_fill_all_there_is_room_for():
    """Four layers of which two are between, 40 operators each at most: 82 operators fill them."""
    assert np.bincount(layers_of(random_layered(82, 4, rng=0, layer_sizes="rounds"))).tolist() == [1, 40, 40, 1]


def test_numbers_of_joining():
    """The same graph but for the numbers: sorted by layer, the i-th of these is number i of the others."""
    for seed in range(5):
        by_layers = random_layered(60, 6, 120, rng=seed)
        joining = random_layered(60, 6, 120, rng=seed, numbering="joining")
        assert (joining.src > joining.dst).any()
        assert joining.depth == by_layers.depth == 6
        assert (joining.inputs, joining.outputs) == (("op0",), ("op59",))
        number = np.argsort(layers_of(joining), kind="stable")
        assert sorted((number[u], number[v]) for u, v in pairs(by_layers)) == pairs(joining)


def test_edges_against_the_numbers():
    """The released code has about 131 of 400 edges from a higher to a lower number; 40 graphs average within 5 %."""
    graphs = [random_layered(n_edges=400, rng=seed, mode="impl") for seed in range(40)]
    assert np.mean([(graph.src > graph.dst).sum() for graph in graphs]) == pytest.approx(131, rel=0.05)
    assert all(pairs(graph) == sorted(set(pairs(graph))) for graph in graphs), "edges stand in rising order, each once"


def test_transfer_of_the_consumer():
    graph = random_layered(n_ops=50, n_layers=5, rng=1, transfer_of="consumer")
    assert (graph.edge_transfer == np.maximum(100.0, 0.8 * graph.time[graph.dst])).all()
    assert (graph.time == random_layered(n_ops=50, n_layers=5, rng=1).time).all()


def test_whole_draws():
    """The ends can be drawn: of 1.1 to 1.3 us in steps of 0.1 there are three times, each of about a third of 3,000."""
    graph = random_layered(3000, 20, rng=0, draws="whole", time=(1.1, 1.3), utilization=(0.6, 0.6001))
    counts = Counter(graph.time.tolist())
    assert sorted(counts) == [1.1, 1.2, 1.3]
    assert all(abs(count - 1000) < 4 * 26 for count in counts.values()), "standard deviation sqrt(3000 * 2 / 9) = 26"
    assert sorted(set(graph.utilization.tolist())) == [0.6, 0.6001]
    usual = random_layered(3000, 20, rng=0, draws="whole")
    assert (usual.time * 10 == np.round(usual.time * 10)).all()
    assert 100.0 <= usual.time.min() <= usual.time.max() <= 4000.0


def test_what_an_operator_takes():
    """Two edges of 4 + 4 + 8 bytes, a place in the order, a time, a utilization: 52 bytes; less than 200 meanwhile."""
    n = 50_000
    tracemalloc.start()
    graph = random_layered(n, n // 14, rng=0)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 52 * n + 100_000
    assert peak < 200 * n
    assert (graph.names[-1], graph.index["op7"]) == (f"op{n - 1}", 7)
