"""Graphs of some operators of another one, made of its columns."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import edges, graphs, operators

from simsched.model.graph import OpGraph
from simsched.model.graph.columns import column
from simsched.model.graph.rearranged import rearrange


@given(graphs(), st.data())
@settings(max_examples=60)
def test_it_is_the_graph_made_of_its_rows(graph, data):
    """Some operators in any order, perhaps with one more, under edges drawn anew; as from `OpGraph` itself."""
    further = data.draw(st.none() | operators("new"))
    rows = data.draw(st.lists(st.sampled_from(range(len(graph) + (further is not None))), min_size=1, unique=True))
    chosen = [further if row == len(graph) else graph.operator(row) for row in rows]
    pairs = [(i, j) for j in range(len(rows)) for i in range(j)]
    ends = data.draw(st.lists(st.sampled_from(pairs), max_size=5)) if pairs else []
    between = [data.draw(edges(chosen[i].name, chosen[j].name)) for i, j in ends]
    src, dst = (np.array([pair[end] for pair in ends], np.int64) for end in (0, 1))
    nbytes, transfer = column(edge.nbytes for edge in between), column(edge.transfer for edge in between)
    made = rearrange(graph, rows, src, dst, nbytes, transfer, further)
    plain = OpGraph(chosen, between, graph.name)
    assert made == plain
    assert made.index == plain.index
    assert made.order == plain.order
    for key in ("kind", "dtype", "block"):
        assert made.labels(key)[1] == plain.labels(key)[1]
    assert np.array_equal(made.output_nbytes, plain.output_nbytes)
    assert np.array_equal(made.kernel_ptr, plain.kernel_ptr)
