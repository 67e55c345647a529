"""What graphs of a million operators need: columns stored once, little on the way, and longest paths."""

import pickle
import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import shapes

from simsched.model.graph import Numbered, Operator, OpGraph
from simsched.model.graph.opgraph import longest_from, longest_to

NAN = float("nan")
COLUMNS = (
    "src",
    "dst",
    "flops",
    "nbytes",
    "weight_nbytes",
    "time",
    "utilization",
    "intensity",
    "kernel_ptr",
    "edge_nbytes",
    "edge_transfer",
    "order_index",
)


def stored(graph):
    """Bytes of the columns of a graph."""
    columns = [getattr(graph, name) for name in COLUMNS] + [graph.labels(key)[0] for key in ("kind", "dtype", "block")]
    return sum(c.itemsize if c.strides == (0,) and len(c) > 1 else c.nbytes for c in columns)


def chain(n, **columns):
    return OpGraph.from_columns(Numbered("op", n), np.arange(n - 1), np.arange(1, n), **columns)


def test_one_number_for_all_is_stored_once():
    """Of 1,000 operators and 999 edges: 4 bytes for each end and for the order, 8 for a time, the rest constant."""
    n = 1000
    assert stored(chain(n, time=np.arange(n) * 1.0, utilization=0.5)) <= (3 * 4 + 8) * n + 200
    assert stored(chain(n, time=np.nan, flops=0.0)) <= 3 * 4 * n + 200


def test_one_text_or_one_code_stands_for_all():
    for kind in ("conv", (0, ("conv",)), (np.zeros(3, int), ("conv", "pool"))):
        graph = OpGraph.from_columns(Numbered("op", 3), [], [], kind=kind)
        assert [op.kind for op in graph.operators] == ["conv"] * 3


def test_codes_are_read_only():
    for graph in (OpGraph([Operator("a", "conv"), Operator("b")]), OpGraph.from_columns(["a"], [], [])):
        for made in (graph, pickle.loads(pickle.dumps(graph))):
            assert not made.labels("kind")[0].flags.writeable


def test_building_takes_little_more_than_the_graph():
    """No list of Python's numbers and no name per operator: at most 150 bytes of each while it is made."""
    n = 20_000
    src, dst, time = np.arange(n - 1), np.arange(1, n), np.arange(n) * 1.0
    for ends in ((src, dst), (n - 1 - src, n - 1 - dst)):
        tracemalloc.start()
        OpGraph.from_columns(Numbered("op", n), *ends, time=time)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 150 * n


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_longest_paths_with_edges_that_weigh(data):
    """Ending and starting with each operator, by recursion over the edges."""
    graph = data.draw(shapes())
    lengths = st.sampled_from([0.0, 1.0, 2.5, 7.0])
    weight = [data.draw(lengths) for _ in graph.names]
    extra = data.draw(st.none() | st.just([data.draw(lengths) for _ in graph.edges]))

    def longest(i, near, far):
        onward = [(extra[e] if extra else 0.0) + longest(far[e], near, far) for e in np.flatnonzero(near == i)]
        return weight[i] + max(onward, default=0.0)

    every = range(len(graph))
    assert longest_to(graph, weight, extra).tolist() == [longest(i, graph.dst, graph.src) for i in every]
    assert longest_from(graph, weight, extra).tolist() == [longest(i, graph.src, graph.dst) for i in every]
