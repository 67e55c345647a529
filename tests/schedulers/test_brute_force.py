"""The oracle counts what can be counted by hand."""

from math import factorial

import pytest
from schedulers.brute_force import (
    assignments,
    best_makespan,
    chain_partitions,
    groups,
    least_syncs,
    minimal_edges,
    stage_sequences,
    topological_orders,
)

from simsched.model.cluster import Cluster
from simsched.model.graph import Edge, Operator, OpGraph


def made(names, edges=""):
    return OpGraph([Operator(n, time=1.0) for n in names], [Edge(a, b, transfer=0.0) for a, b in edges.split()])


DIAMOND = made("abcd", "ab ac bd cd")


@pytest.mark.parametrize("n", [1, 3, 4])
def test_operators_that_do_not_depend(n):
    """n! orders, 3^n assignments, and as many stages in a row as ordered set partitions: 1, 13, 75. Chains of one."""
    graph = made("abcd"[:n])
    assert len(list(topological_orders(graph))) == factorial(n)
    assert len(list(assignments(graph, 3))) == 3**n
    assert len(set(stage_sequences(graph))) == len(list(stage_sequences(graph))) == {1: 1, 3: 13, 4: 75}[n]
    assert list(chain_partitions(graph)) == [tuple((i,) for i in range(n))]
    assert best_makespan(graph, Cluster.preset("a100")) == n
    assert best_makespan(graph, Cluster.preset("a100"), streams=n) == 1.0


def test_a_chain():
    """One order; a stage may end behind each of the first two operators or not: 4; any partition is of chains: 5."""
    graph = made("abc", "ab bc ac")
    assert list(topological_orders(graph)) == [(0, 1, 2)]
    assert len(list(stage_sequences(graph))) == 4
    assert len(list(chain_partitions(graph))) == 5
    assert minimal_edges(graph) == [(0, 1), (1, 2)]
    assert least_syncs(graph) == 0


def test_a_diamond():
    """Two orders. Both chains through it leave one operator, which two edges join: two syncs, two streams at least."""
    assert list(topological_orders(DIAMOND)) == [(0, 1, 2, 3), (0, 2, 1, 3)]
    assert least_syncs(DIAMOND) == 2
    assert min(map(len, chain_partitions(DIAMOND))) == 2
    assert groups(DIAMOND, (1, 2)) == ((1,), (2,))
    assert groups(DIAMOND, (1, 2, 3)) == ((1, 2, 3),)
    assert ((0,), (1, 2), (3,)) in stage_sequences(DIAMOND)
    assert ((1,), (0, 2), (3,)) not in stage_sequences(DIAMOND)
    assert best_makespan(DIAMOND, Cluster.preset("a100", 2)) == 3.0
