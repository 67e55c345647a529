"""Names that are numbered: to everyone a tuple of texts."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsched.model.graph import Numbered, OpGraph


@pytest.mark.parametrize("n", [1, 2, 10, 11, 100])
def test_what_a_tuple_does(n):
    names, texts = Numbered("op", n), tuple(f"op{i}" for i in range(n))
    for do in (
        len,
        list,
        repr,
        lambda x: list(reversed(x)),
        lambda x: [x[i] for i in range(-n, n)],
        lambda x: x[np.int64(n - 1)],
    ):
        assert do(names) == do(texts)
    assert names == texts == names == Numbered("op", n) == pickle.loads(pickle.dumps(names))
    assert all(name in names for name in texts)
    assert [(names.index(name), names.count(name)) for name in texts] == [(i, 1) for i in range(n)]
    for i in (-n - 1, n):
        with pytest.raises(IndexError):
            names[i]


def test_what_it_does_not_equal():
    names = Numbered("op", 2)
    for other in (("op0",), ("op0", "op2"), ["op0", "op1"], Numbered("op", 3), Numbered("o", 2), "op0", None):
        assert names != other
    assert Numbered("op1", 1) != Numbered("op", 11)
    assert Numbered("a", 0) == Numbered("b", 0) == ()


@given(part=st.slices(12))
def test_slices(part):
    assert Numbered("op", 12)[part] == tuple(f"op{i}" for i in range(12))[part]


def test_graph_of_numbered_names():
    """The same graph as one of the texts, in all that can be seen of it."""
    n = 30
    columns = {"src": np.arange(n - 1), "dst": np.arange(1, n), "time": np.arange(n) * 1.0}
    graph = OpGraph.from_columns(Numbered("op", n), **columns)
    texts = OpGraph.from_columns([f"op{i}" for i in range(n)], **columns)
    assert graph == texts
    for name in ("names", "order", "inputs", "outputs", "index"):
        assert getattr(graph, name) == getattr(texts, name)
    assert dict(graph.index) == texts.index
    assert list(graph.index) == list(texts.names)
    assert graph["op7"] == texts["op7"]
    assert graph.longest_path() == texts.longest_path()
    assert OpGraph.from_dict(graph.to_dict()) == graph
    assert graph.to_dict() == texts.to_dict()
    again = pickle.loads(pickle.dumps(graph))
    assert again == graph
    assert again.index["op29"] == 29
