"""Kinds of the operators of a graph made from columns."""

import pickle

import numpy as np

from simsched.model.graph import Edge, Numbered, Operator, OpGraph


def test_a_code_for_each_operator():
    """Codes 1, 0, 1 of the texts conv, pool: operators b and c are of the kinds conv and pool."""
    graph = OpGraph.from_columns(["a", "b", "c"], [0], [1], kind=([1, 0, 1], ["conv", "pool"]))
    assert [op.kind for op in graph.operators] == ["pool", "conv", "pool"]
    expected = OpGraph(
        [Operator("a", kind="pool"), Operator("b", kind="conv"), Operator("c", kind="pool")], [Edge("a", "b")]
    )
    assert graph == expected
    assert OpGraph.from_dict(graph.to_dict()) == graph == pickle.loads(pickle.dumps(graph))


def test_one_text_or_one_code_stands_for_all():
    for kind in ("conv", (0, ("conv",)), (np.zeros(3, int), ("conv", "pool"))):
        graph = OpGraph.from_columns(Numbered("op", 3), [], [], kind=kind)
        assert [op.kind for op in graph.operators] == ["conv"] * 3
        assert graph.labels("kind")[0].strides == (0,), "equal rows are stored once"


def test_codes_are_read_only():
    for graph in (OpGraph([Operator("a", "conv"), Operator("b")]), OpGraph.from_columns(["a"], [], [])):
        for made in (graph, pickle.loads(pickle.dumps(graph))):
            assert not made.labels("kind")[0].flags.writeable
