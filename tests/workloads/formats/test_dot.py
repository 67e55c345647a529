"""DOT as data: worked examples of the grammar, round trips, and what is refused."""

import re
from dataclasses import fields, replace

import pytest
from documents import GRAPH
from hypothesis import given, settings
from hypothesis import strategies as st
from small import edges
from strategies import graphs

from simsched.base.errors import FormatError, GraphError
from simsched.model.graph import Collective, Edge, Operator, OpGraph
from workloads.formats.dot import parse_dot, read_dot, to_dot, write_dot


def test_attributes_become_fields():
    graph = parse_dot(
        """digraph "two convs" {
             a [kind=conv, host="", time=80.5, flops="1.2e9", nbytes=500, label="picture"];
             b [time=.5 utilization=0.25; block=head]
             a -> b [nbytes=1024, transfer="15", color=red]; }"""
    )
    assert graph.name == "two convs"
    assert graph["a"] == Operator("a", kind="conv", time=80.5, flops=1.2e9, nbytes=500.0)
    assert graph["b"] == Operator("b", time=0.5, utilization=0.25, block="head")
    assert list(graph.edges) == edges("ab=1024:15")


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("{a b} -> subgraph cluster_1 { c; d } -> e", "ac ad bc bd ce de"),  # pairs in order of the left
        ("a -> { b -> c }", "bc ab ac"),  # an edge inside makes its ends members
        ("subgraph s { a }  subgraph s { b } -> c", "ac bc"),  # opened again it keeps its members
        ("{ a { b } subgraph s { c } } -> d", "ad bd cd"),  # members of those inside are its own
    ],
)
def test_subgraphs_as_ends(text, pairs):
    assert list(parse_dot(f"digraph {{ {text} }}").edges) == edges(pairs)


def test_defaults_hold_for_what_follows_within_their_braces():
    """a comes before the default, b under it, c under the inner one, d after the braces, e overrides it."""
    graph = parse_dot("""digraph { a; node [time=1]; b; subgraph { node [time=2]; edge [nbytes=7]; c } d; e [time=5];
                         a -> b; edge [nbytes=3] b -> c; c -> d [nbytes=4] }""")
    assert [op.time for op in graph.operators] == [None, 1.0, 2.0, 1.0, 5.0]
    assert [edge.nbytes for edge in graph.edges] == [0.0, 3.0, 4.0]


def test_a_node_named_again_gets_more_attributes():
    assert parse_dot("digraph { a [time=1 kind=conv]; a [time=2] a; }")["a"] == Operator("a", time=2.0, kind="conv")


def test_strict_graphs_hold_an_edge_once():
    text = "digraph { a -> b [nbytes=1]; a -> b [transfer=2]; a -> b }"
    assert len(parse_dot(text).edges) == 3
    assert list(parse_dot(f"strict {text}").edges) == edges("ab=1:2")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('digraph { "a b" -> "c;->" }', ("a b", "c;->")),
        ('digraph { "say \\"hi\\"" }', ('say "hi"',)),
        ('digraph { "back\\\\slash" }', ("back\\slash",)),
        ('digraph { "line\\n" }', ("line\\n",)),  # the two characters, which pictures show as a new line
        ('digraph { "jo\\\nined" }', ("joined",)),
        ('digraph { "jo" + "in" + "ed" }', ("joined",)),
        ("digraph { <b <i>html</i> > }", ("<b <i>html</i> >",)),
        ("digraph { -1.5 -> .5 }", ("-1.5", ".5")),
        ('digraph { "node"; Größe }', ("node", "Größe")),
        ("digraph { c -> a; b; a -> b; }", ("c", "a", "b")),  # in order of first appearance
        ("DiGraph{a->b}", ("a", "b")),
        ("digraph { a:port:ne -> b:sw }", ("a", "b")),
        ('// c\n/* c { */ digraph\n# line 1 "x.c"\n{ a /* -> b */ // c\n}\n# end', ("a",)),
        ("digraph { rankdir=LR; graph [size=3]; a; label = <x> }", ("a",)),
        ('digraph { a [bold] [time=1][label="x" /* c */ + "y"] }', ("a",)),
    ],
)
def test_grammar(text, names):
    assert parse_dot(text).names == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph { a -- b }", "undirected graph"),
        ("digraph { a -- b }", "write '->'"),
        ("digraph {\n a -> \n}", "line 3: expected a node or a subgraph after '->'"),
        ("digraph { a } digraph { b }", "a file holds one graph"),
        ("digraph { a [time=1 ", "expected an attribute or ']', not the end"),
        ("digraph { a [time=1e5] }", "stands in quotes"),
        ('digraph { "a', "cannot be read"),
        ("digraph { <a", "no '>' closes"),
        ('digraph { "a" + b }', "string in quotes after '+'"),
        ("digraph { subgraph s; a }", "expected '{'"),
        ("digraph " + "{" * 200, "nested more than 100 deep"),
        ("digraph { a [time=fast] }", "'a', attribute 'time' must be a number, not 'fast'"),
        ("digraph { a -> b [nbytes=x] }", "'a -> b', attribute 'nbytes'"),
        ('digraph { a [kernels="[{}]"] }', "'a'.kernels[0]: field 'blocks' is missing"),
        ('digraph { a [kernels="[{\\"blocks\\": 1, \\"x\\": 1}]"] }', "unknown field 'x'; known are: blocks, threads"),
        ('digraph { a [attributes="{"] }', "'a', attribute 'attributes': not valid JSON"),
        ("digraph { a -> b -> a }", "cycle: "),
        ('digraph { "" }', "name must be a text"),
    ],
)
def test_what_is_no_dot_is_refused(text, message):
    with pytest.raises((FormatError, GraphError), match=re.escape(message)) as caught:
        parse_dot(text, "t.dot")
    assert str(caught.value).startswith("t.dot: ")


def test_edges_do_not_multiply_without_end():
    """4,000 x 4,000 edges from 30 kB are 16 million, more than the 10 million that are allowed."""
    many = " ".join(f"n{i}" for i in range(4000))
    with pytest.raises(FormatError, match="multiply to more than 1000000"):
        parse_dot(f"digraph {{ {{{many}}} -> {{{many.replace('n', 'm')}}} }}")


def test_every_field_is_written():
    """Operators that have values of their own in every field, one of them a collective, come back with all of them."""
    op = replace(GRAPH["a"], utilization=0.5, attributes={"pad": [1, "x"], "quote": 'a"\\b'})
    exchange = Operator("exchange", collective=Collective("all_reduce", 1e6, 4, "g", "ring"))
    usual = Operator("b")
    assert all(
        getattr(op, f.name) != getattr(usual, f.name) or getattr(exchange, f.name) != getattr(usual, f.name)
        for f in fields(Operator)
    )
    assert list(parse_dot(to_dot(OpGraph([op, exchange]))).operators) == [op, exchange]


@settings(max_examples=20)
@given(graphs())
def test_a_written_graph_reads_back_equal(graph):
    assert parse_dot(to_dot(graph)) == graph


@settings(max_examples=20)
@given(
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, unique=True),
    st.text(st.characters(codec="utf-8")),
)
def test_any_name_reads_back(tmp_path_factory, names, name):
    graph = OpGraph(
        [Operator(text, kind=text, block=text) for text in names], [Edge(names[0], b) for b in names[1:]], name
    )
    path = tmp_path_factory.mktemp("dot") / "g.dot"
    write_dot(graph, path)
    assert read_dot(path) == graph


def test_costs_under_other_names_are_listed_and_a_file_without_any_is_refused(tmp_path, caplog):
    """`size` and `runtime` are no attributes of nodes, and `color` is one of Graphviz."""
    path = tmp_path / "n.dot"
    path.write_text("digraph n { a [size=3, color=red]; b [runtime=4]; a -> b [label=5] }")
    expected = (
        "no operator of 'n' has a cost (attributes that are ignored: 'size', 'runtime', 'label'); give nodes time"
    )
    with pytest.raises(FormatError, match=re.escape(expected)):
        read_dot(path)
    path.write_text("digraph n { a [time=3, runtime=4] }")
    caplog.clear()
    assert read_dot(path).names == ("a",)
    assert [r.getMessage() for r in caplog.records] == [
        f"{path}: attributes that are ignored: 'runtime'; costs are read from time (us), flops, nbytes"
    ]
    path.write_text("digraph n { graph [costs=none]; a -> b }")
    assert read_dot(path).names == ("a", "b")
