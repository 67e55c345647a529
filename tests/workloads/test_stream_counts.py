"""The counts that other tests compare against, on graphs counted by hand."""

from itertools import pairwise

from stream_counts import opara_streams, stream_counts

from simsched.model.graph import Edge, Operator, OpGraph


def graph_of(n, edges):
    return OpGraph([Operator(f"v{i}", time=1.0) for i in range(1, n + 1)], [Edge(f"v{a}", f"v{b}") for a, b in edges])


def test_opara_on_the_thirteen_vertices_of_its_paper():
    """Vertex 8 lists 6 before 4, so it goes on where 6 was."""
    edges = [(1, 2), (1, 3), (1, 4), (2, 5), (3, 6), (5, 7), (6, 8), (4, 8), (7, 9), (7, 10), (8, 11), (8, 12),
             (9, 13), (10, 13), (11, 13), (12, 13)]  # fmt: skip
    streams = opara_streams(graph_of(13, edges))
    groups = [[v + 1 for v in range(13) if streams[v] == s] for s in range(max(streams) + 1)]
    assert sorted(groups) == [[1, 2, 5, 7, 9, 13], [3, 6, 8, 11], [4], [10], [12]]


def test_a_chain_needs_nothing():
    assert stream_counts(graph_of(5, pairwise(range(1, 6)))) == (5, 1, 1, 1, 0, 0, 0)


def test_two_forks_in_a_row():
    """1 -> 2, 3 -> 4 -> 5, 6 -> 7, and 1 -> 4, which 2 implies.

    Chains 1 2 4 5 7, 3 and 6: the last two share a stream. Waits: 3 and 6 for what forks, 4 and 7 for the other
    branch, which is 8 edges less 4 matched. 4 reads 1 as well, from its own stream.
    """
    edges = [(1, 2), (1, 3), (1, 4), (2, 4), (3, 4), (4, 5), (4, 6), (5, 7), (6, 7)]
    assert stream_counts(graph_of(7, edges)) == (7, 3, 3, 2, 4, 4, 4)


def test_a_wait_that_another_implies_is_still_waited_for():
    """1 -> 2 -> 3 and 4 -> 3, 4 -> 2: chains 1 2 3 and 4, whose edges into 2 and 3 both cross; 2 alone would do."""
    counts = stream_counts(graph_of(4, [(1, 2), (2, 3), (4, 3), (4, 2)]))
    assert (counts.nimble_waits, counts.least_syncs) == (2, 1)
