"""Rows of layouts, and the order within them: short edges, few crossings."""

import numpy as np
import pytest
from drawn import graph_of, random_graph
from hypothesis import given
from hypothesis import strategies as st

from simsched.show.drawing.layout import Arrangement
from simsched.show.drawing.ordering import crossings, members, pick_order
from simsched.show.drawing.rows import Groups, inversions, pick_rows, split_edges
from workloads import load


def ordered(graph):
    """The one piece of a graph that is in order, and how often its edges cross."""
    (piece,) = Arrangement(graph)._pieces
    return piece.graph, crossings(piece.graph, piece.place)


def test_rows_of_a_chain_with_a_shortcut():
    """a -> b -> c and a -> c: three rows, and the shortcut passes through one."""
    src, dst = np.array([0, 1, 0]), np.array([1, 2, 2])
    rows = pick_rows(3, src, dst)
    assert rows.tolist() == [0, 1, 2]
    split = split_edges(rows, src, dst)
    assert split.row.tolist() == [0, 1, 2, 1]
    assert list(zip(split.upper.tolist(), split.lower.tolist(), strict=True)) == [(0, 1), (1, 2), (0, 3), (3, 2)]
    assert split.first.tolist() == [0, 1, 2, 4]


def test_operators_lie_close_to_their_consumers():
    """Of a -> b -> c -> d, d also reads from e, an input: in the first row its edge would span 3 rows, above d one."""
    rows = pick_rows(5, np.array([0, 1, 2, 4]), np.array([1, 2, 3, 3]))
    assert rows.tolist() == [0, 1, 2, 3, 2]


def test_operators_with_one_producer_and_one_consumer_lie_close_to_the_consumer():
    """b could lie in either of two rows between a and d, at the same total length."""
    rows = pick_rows(5, np.array([0, 1, 0, 2, 3]), np.array([1, 4, 2, 3, 4]))
    assert rows.tolist() == [0, 2, 1, 2, 3]


def test_rows_have_the_least_total_length():
    """Against all assignments of 5 vertices to at most 5 rows."""
    rng = np.random.default_rng(0)
    every = np.stack(np.meshgrid(*[np.arange(5)] * 5, indexing="ij"), -1).reshape(-1, 5)
    for _ in range(25):
        ends = np.unique(np.sort(rng.integers(0, 5, (6, 2)), axis=1), axis=0)
        src, dst = ends[ends[:, 0] != ends[:, 1]].T
        rows = pick_rows(5, src, dst)
        spans = every[:, dst] - every[:, src]
        least = spans[(spans >= 1).all(axis=1)].sum(axis=1).min()
        assert (rows[dst] - rows[src] >= 1).all()
        assert (rows[dst] - rows[src]).sum() == least


def test_groups_have_rows_of_their_own():
    """a -> b -> c and d -> e; {a, b, d} above {c, e}: e may not lie beside b, where it would be without groups."""
    src, dst = np.array([0, 1, 3]), np.array([1, 2, 4])
    rows = pick_rows(5, src, dst, Groups(np.array([0, 0, 1, 0, 1]), np.array([[0, 1]])))
    assert max(rows[[0, 1, 3]]) < min(rows[[2, 4]])
    assert rows.max() == 2


def test_groups_that_cannot_be_kept_apart_are_given_up():
    """Of a -> b -> c, a and c are one group and b another."""
    src, dst = np.array([0, 1]), np.array([1, 2])
    groups = Groups(np.array([0, 1, 0]), np.array([[0, 1], [1, 0]]))
    assert pick_rows(3, src, dst, groups).tolist() == [0, 1, 2]


def test_groups_that_take_too_many_rows_are_given_up():
    """Two chains of three, one group each, the first before the second by an edge of its head: six rows or four."""
    src, dst = np.array([0, 1, 3, 4, 0]), np.array([1, 2, 4, 5, 3])
    groups = Groups(np.array([0, 0, 0, 1, 1, 1]), np.array([[0, 1]]))
    assert pick_rows(6, src, dst, groups, 2.0).max() == 5
    assert pick_rows(6, src, dst, groups, 1.2).max() == 3


# crossings


@given(st.lists(st.integers(0, 20), max_size=30))
def test_inversions(values):
    slow = sum(a > b for i, a in enumerate(values) for b in values[i + 1 :])
    assert inversions(np.array(values, np.int64)) == slow


def test_crossings_by_hand():
    """a and b both feed c and d: however they are ordered, a -> d and b -> c cross, once."""
    src, dst = np.array([0, 0, 1, 1]), np.array([2, 3, 2, 3])
    split = split_edges(pick_rows(4, src, dst), src, dst)
    assert crossings(split, np.array([0, 1, 0, 1])) == 1
    assert crossings(split, pick_order(split)) == 1


@pytest.mark.parametrize(
    ("edges", "least"),
    [
        (["ab", "bc", "cd"], 0),
        (["sa", "sb", "sc", "at", "bt", "ct"], 0),
        (["az", "by", "cx", "ra", "rb", "rc"], 0),  # three crossings as given, undone by turning a row around
        (["ad", "be", "cf", "dg", "eg", "fg", "ra", "rb", "rc"], 0),
        (["ac", "ad", "bc", "bd", "ra", "rb"], 1),  # K(2,2) between two rows
        (["ad", "ae", "af", "bd", "be", "bf", "cd", "ce", "cf"], 9),  # K(3,3): 3 pairs above times 3 below
    ],
)
def test_fewest_crossings_of_small_graphs(edges, least):
    assert ordered(graph_of(*edges))[1] == least


def test_inception_has_no_crossings():
    assert ordered(load("inception_v3"))[1] == 0


def test_order_is_no_worse_than_the_given_one():
    for seed in range(5):
        src, dst = random_graph(40, 70, seed).src.astype(int), random_graph(40, 70, seed).dst.astype(int)
        split = split_edges(pick_rows(40, src, dst), src, dst)
        given_order = np.empty(len(split.row), np.int64)
        for row in members(split, np.arange(len(split.row))):
            given_order[row] = np.arange(len(row))
        place = pick_order(split)
        assert crossings(split, place) <= crossings(split, given_order)
        for row in members(split, place):
            assert place[row].tolist() == list(range(len(row)))
