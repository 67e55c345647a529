"""Kinds of the operators of a graph made from columns."""

import pickle

import numpy as np
import pytest

from simsched.base.errors import GraphError
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


def test_labels_come_back():
    graph = OpGraph([Operator("a", kind="pool"), Operator("b", kind="conv")])
    again = OpGraph.from_columns(("a", "b"), [], [], name="graph", kind=graph.labels("kind"))
    assert again == graph


def test_one_text_or_one_code_stands_for_all():
    for kind in ("conv", (0, ("conv",)), (np.zeros(3, int), ("conv", "pool"))):
        graph = OpGraph.from_columns(Numbered("op", 3), [], [], kind=kind)
        assert [op.kind for op in graph.operators] == ["conv"] * 3
        assert graph.labels("kind")[0].strides == (0,), "equal rows are stored once"


def test_the_callers_codes_stay_his():
    codes = np.array([0, 1])
    graph = OpGraph.from_columns(["a", "b"], [], [], kind=(codes, ("conv", "pool")))
    codes[0] = 1
    assert graph.operator(0).kind == "conv"
    assert not graph.labels("kind")[0].flags.writeable


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("", "a kind must be a text that is not empty"),
        (5, "kind must be a text or a pair .codes, texts., not 5"),
        ((0, 5), "kind must be a text or a pair"),
        (([0, 1], ["conv", 5]), "a kind must be a text that is not empty"),
        (([0, 1], ["conv"]), "operator 'b': code 1 is none of the 1 kinds"),
        (([-1, 0], ["conv"]), "operator 'a': code -1 is none of the 1 kinds"),
        ((0, []), "operator 'a': code 0 is none of the 0 kinds"),
        (([0], ["conv"]), "the codes of kinds must be 2 whole numbers"),
        (([0.0, 0.0], ["conv"]), "the codes of kinds must be 2 whole numbers"),
        (([[0], [0]], ["conv"]), "the codes of kinds must be 2 whole numbers"),
    ],
)
def test_bad_kinds(kind, message):
    with pytest.raises(GraphError, match=message) as caught:
        OpGraph.from_columns(["a", "b"], [], [], kind=kind)
    assert "\n" not in str(caught.value)
