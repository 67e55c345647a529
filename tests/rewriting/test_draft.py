"""Drafts: replacing operators, what is refused, and the costs of operators that come from others."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from rewritten import block, check
from small import made
from strategies import graphs

from simsched.base.errors import GraphError
from simsched.model.graph import Edge, Kernel, Operator, OpGraph
from simsched.rewriting import DraftRow, GraphDraft, Read, Source
from simsched.rewriting.works import copy_of, made_from, slice_of


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_a_graph_comes_back(graph):
    draft = GraphDraft.from_graph(graph)
    place = {name: i for i, name in enumerate(draft.order())}
    assert all(place[read.producer] < place[name] for name, row in draft.rows.items() for read in row.reads)
    again = draft.to_graph()
    assert again.operators == graph.operators
    assert sorted(map(repr, again.edges)) == sorted(map(repr, graph.edges))
    assert list(again.edges) == sorted(graph.edges, key=lambda edge: graph.index[edge.dst])
    assert again.name == graph.name


def chain(names):
    return made(" ".join(f"{name}=1" for name in names), " ".join(map("".join, pairwise(names))), 2.0, 8.0)


def test_replacing_makes_another_draft():
    """b becomes two operators in its place; c reads the second, with the bytes and transfer it had."""
    draft = GraphDraft.from_graph(chain("abc"))
    first = DraftRow(Operator("p"), [Read("a", None, 8.0)])
    second = DraftRow(Operator("q"), [Read("p", None, 4.0)])
    after = draft.replace(["b"], [first, second], {"b": Source("q", (0, 1, 2))})
    check(after)
    assert list(after.rows) == ["a", "p", "q", "c"]
    assert after.rows["c"].reads == (Read("q", (0, 1, 2), 8.0, 2.0),)
    assert list(draft.rows) == ["a", "b", "c"]
    assert draft.signature() == GraphDraft.from_graph(chain("abc")).signature() != after.signature()
    again = after.replace(["q"], redirect={"q": Source("p", (0, 3, 9))})
    assert again.rows["c"].reads[0].slice == (0, 4, 5)
    assert after.to_graph()["c"].attributes == {"slices": {"0": [0, 1, 2]}}
    assert GraphDraft.from_graph(after.to_graph()).signature() == after.signature()


def test_an_operator_may_take_the_place_of_its_name():
    draft = GraphDraft.from_graph(chain("abc"))
    after = draft.replace(["b"], [DraftRow(Operator("b", kind="new"), [Read("a")])])
    check(after)
    assert list(after.rows) == ["a", "b", "c"]
    assert after.readers == draft.readers
    assert after.signature() != draft.signature()


def test_what_is_kept_is_kept_through_changes():
    """b is read outside: it stays, also where others have gone before."""
    rows = GraphDraft.from_graph(chain("abc")).rows.values()
    after = GraphDraft(rows, kept=["b"]).replace(["c"], [DraftRow(Operator("c", kind="new"), [Read("b")])])
    with pytest.raises(GraphError, match="'b' cannot go, its tensor is still needed"):
        after.replace(["b"], redirect={"b": Source("a")})


def test_circles_are_refused():
    """a and c become one, which b reads and which reads b."""
    draft = GraphDraft.from_graph(chain("abcd"))
    both = DraftRow(Operator("both"), [Read("b")])
    assert draft.replace(["a", "c"], [both], {"a": Source("both"), "c": Source("both")}) is None
    assert draft.replace(["b"], [DraftRow(Operator("b"), [Read("c")])]) is None
    both = DraftRow(Operator("both"), [Read("a")])
    after = GraphDraft.from_graph(made("a=1 b=1 c=1 d=1", "ab ac bd cd")).replace(
        "bc", [both], {"b": Source("both"), "c": Source("both")}
    )
    check(after)
    assert after.order() == ("a", "both", "d")


def test_what_is_needed_stays():
    draft = GraphDraft.from_graph(chain("abc"))
    with pytest.raises(GraphError, match="c reads 'b', which is no operator"):
        draft.replace(["b"])
    with pytest.raises(GraphError, match="'c' cannot go"):
        draft.replace(["c"])  # an output
    with pytest.raises(GraphError, match="has two operators called 'a'"):
        draft.replace(["b"], [DraftRow(Operator("a"))])
    with pytest.raises(GraphError, match="b reads 'z', which is no operator"):
        draft.replace(["b"], [DraftRow(Operator("b"), [Read("z")])])
    with pytest.raises(GraphError, match="two operators called 'a'"):
        GraphDraft([DraftRow(Operator("a")), DraftRow(Operator("a"))])
    with pytest.raises(GraphError, match="b reads 'a', which is no operator"):
        GraphDraft([DraftRow(Operator("b"), [Read("a")])])
    sliced = draft.replace(["b"], [DraftRow(Operator("b"), [Read("a", (1, 0, 2))])])
    with pytest.raises(GraphError, match="along axis 1 of one along axis 0"):
        sliced.replace(["a"], [DraftRow(Operator("x"))], {"a": Source("x", (0, 0, 2))})


@pytest.mark.parametrize(
    "given", [3, {"a": [0, 0, 1]}, {"1": [0, 0, 1]}, {"0": [0, 1]}, {"0": [0, 2, 1]}, {"0": [-1, 0, 1]}, {"0": "012"}]
)
def test_slices_that_are_none(given):
    operators = [Operator("a"), Operator("b", attributes={"slices": given})]
    with pytest.raises(GraphError, match=r"operator 'b': attribute 'slices' gives \[axis, begin, end\]"):
        GraphDraft.from_graph(OpGraph(operators, [Edge("a", "b")]))


def test_what_is_outside_can_be_read():
    """A draft of b and c, which reads a and whose b somebody else reads: c is not its only reader."""
    graph = chain("abc")
    rows = [DraftRow(graph["b"], [Read("a")]), DraftRow(graph["c"], [Read("b")])]
    draft = GraphDraft(rows, outside={"a": graph["a"]}, kept=["b"])
    assert draft.operator("a") == graph["a"]
    assert (draft.only_reader("b"), GraphDraft(rows, outside={"a": graph["a"]}).only_reader("b")) == (None, "c")
    assert draft.order() == ("b", "c")
    with pytest.raises(GraphError, match="edge"):
        draft.to_graph()
    with pytest.raises(GraphError, match="'b' cannot go"):
        draft.replace(["b"], redirect={"b": Source("a")})
    check(draft.replace(["c"], [DraftRow(Operator("c"), [Read("a")])]))


def test_signatures_tell_drafts_apart():
    graph = block()
    draft = GraphDraft.from_graph(graph)
    op = graph["c0"]
    for other in (
        replace(op, flops=1.0),
        replace(op, works=()),
        replace(op, attributes={**op.attributes, "x": 1}),
        replace(op, time=1.0),
        replace(op, dtype="fp16"),
        replace(op, kind="other"),
    ):
        after = draft.replace(["c0"], [DraftRow(other, draft.rows["c0"].reads)])
        assert after.signature() != draft.signature()
        assert after.replace(["c0"], [DraftRow(op, draft.rows["c0"].reads)]).signature() == draft.signature()


# Costs


def derived(ops, *, shape=(1, 8), like=None, **changed):
    given = {"flops": 30.0, "nbytes": 20.0, "weight_nbytes": 0.0} | changed
    return made_from(
        ops, "made", kind="op", attributes={}, input_shapes=[(1, 4)], output_shape=shape, like=like, **given
    )


def test_the_grid_grows_with_the_outputs():
    """The larger has 40 blocks for 4,000 outputs, 100 each: 6,050 outputs need 61; shares stay."""
    small = Operator("a", kernels=(Kernel(30),), output_shape=(1, 2050), nbytes=1.0)
    large = Operator("b", kernels=(Kernel(30, 128, 64, 512, 0.75), Kernel(10, share=0.25)), output_shape=(1, 4000))
    grown = derived((small, large), shape=(1, 6050))
    assert grown.kernels == (Kernel(46, 128, 64, 512, 0.75), Kernel(16, share=0.25))
    assert derived((small, large), shape=(1, 6050), like=small).kernels == (Kernel(89),)  # 30 x 6050 / 2050
    assert derived((replace(small, kernels=()),)).kernels == ()


def test_loads_classes_and_unknown_bytes():
    a = Operator("a", utilization=0.75, intensity="memory", nbytes=1.0)
    b = Operator("b", utilization=0.5, intensity="compute")
    assert (derived((a, b)).utilization, derived((a, b), like=a).utilization) == (1.0, 0.75)
    assert derived((replace(a, utilization=0.25), b)).utilization == 0.75
    assert (derived((a, b)).intensity, derived((a, a)).intensity) == ("compute", "memory")
    assert derived((Operator("c"), b)).nbytes == 0.0  # unknown before, unknown after
    assert derived((Operator("c"),)).intensity is None


def test_times_without_flop_and_bytes_add_up():
    a, b = Operator("a", time=3.0), Operator("b", time=4.0)
    assert derived((a, b)).time == 7.0
    assert derived((a, Operator("b"))).time is None
    assert copy_of((a, b), "c", kind="concat", attributes={}, input_shapes=[], output_shape=(4,)).time is None


def test_slices_cost_a_copy_or_nothing():
    """10 channels of 2 x 16 values of 2 bytes: 640 bytes read and written, 160 threads of 4 bytes."""
    op = Operator(
        "a", dtype="fp16", kernels=(Kernel(5),), output_shape=(2, 30, 16), intensity="compute", time=8.0, nbytes=1e6
    )
    copy = slice_of(op, "s", 1, 5, 15, False)
    assert (copy.nbytes, copy.kernels, copy.intensity, copy.dtype) == (1280.0, (Kernel(1, 256, 32),), "memory", "fp16")
    assert 0.0 < copy.time < 8.0
    view = slice_of(op, "s", 1, 5, 15, True)
    assert (view.nbytes, view.kernels, view.time, view.output_shape) == (0.0, (), 0.0, (2, 10, 16))
