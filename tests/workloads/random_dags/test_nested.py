"""Random fork-join and series-parallel graphs: their structure, and the distribution of widths."""

from collections import Counter

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st
from small import in_degree, out_degree, pairs

from workloads import random_dags as dags


@given(n_ops=st.integers(3, 80), max_width=st.integers(1, 30), seed=st.integers(0, 999))
def test_fork_join(n_ops, max_width, seed):
    """Hubs and operators with one hub on either side; the width of a section is 1 to `max_width`, or 0 in the last."""
    graph = dags.random_fork_join(n_ops, max_width, rng=seed)
    at, widths = 0, []
    while at < n_ops - 1:
        reached = graph.dst[graph.src == at].tolist()
        hub = reached[-1] + 1 if reached[-1] < n_ops - 1 else n_ops - 1
        inner = [i for i in reached if i < hub]
        assert all(graph.src[graph.dst == i].tolist() == [at] for i in inner)
        assert all(graph.dst[graph.src == i].tolist() == [hub] for i in inner)
        widths.append(len(inner))
        at = hub
    assert len(widths) + 1 + sum(widths) == n_ops
    assert all(1 <= width <= max_width for width in widths[:-1])
    assert widths[-1] <= max_width


def test_fork_join_widths_are_uniform():
    """A hundred thousand operators in sections of 1 to 4: 28,571 sections, a quarter of each width."""
    graph = dags.random_fork_join(100_000, 4, rng=0)
    counts = Counter(out_degree(graph)[(out_degree(graph) != 1) | (in_degree(graph) != 1)].tolist())
    assert all(abs(counts[width] - 28571 / 4) < 5 * 80 for width in (2, 3, 4))


def reduced(graph):
    """Reduce a two-terminal graph: operators with one edge in and one out, then parallel edges, again and again."""
    multi = nx.MultiDiGraph(pairs(graph))
    changed = True
    while changed:
        changed = False
        for i in list(multi):
            if multi.in_degree(i) == multi.out_degree(i) == 1:
                multi.add_edge(*multi.predecessors(i), *multi.successors(i))
                multi.remove_node(i)
                changed = True
        simple = nx.MultiDiGraph(nx.DiGraph(multi))
        changed |= simple.number_of_edges() < multi.number_of_edges()
        multi = simple
    return list(multi.edges())


@given(n_ops=st.integers(2, 60), parallel=st.floats(0, 1), seed=st.integers(0, 999))
def test_series_parallel_reduces_to_one_edge(n_ops, parallel, seed):
    graph = dags.random_series_parallel(n_ops, parallel, rng=seed)
    assert reduced(graph) == [(0, n_ops - 1)]
    assert nx.transitive_reduction(nx.DiGraph(pairs(graph))).number_of_edges() == len(graph.src)
