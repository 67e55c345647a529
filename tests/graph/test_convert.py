"""Graphs to and from networkx and JSON documents."""

import networkx as nx
import pytest
from hypothesis import given, settings
from strategies import graphs

from simsched.base.errors import GraphError
from simsched.base.io import dump_json, parse_json
from simsched.model.graph import Edge, Operator, OpGraph


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_json_round_trip(graph):
    """Through text: the same graph, and the same text again."""
    text = dump_json(graph.to_dict())
    again = OpGraph.from_dict(parse_json(text))
    assert again == graph
    assert dump_json(again.to_dict()) == text


def test_document_leaves_out_defaults():
    graph = OpGraph([Operator("a"), Operator("b", time=0.0)], [Edge("a", "b"), Edge("a", "b", 1.0, 2.0)])
    assert graph.to_dict() == {
        "format": "simsched.graph",
        "version": 1,
        "name": "graph",
        "operators": [{"name": "a", "kind": "op"}, {"name": "b", "kind": "op", "time": 0.0}],
        "edges": [{"src": "a", "dst": "b", "nbytes": 0.0}, {"src": "a", "dst": "b", "nbytes": 1.0, "transfer": 2.0}],
    }


def test_the_least_document():
    """Only the names are required; whole numbers stand for times, and null for what is not known."""
    rows = [{"name": "a", "time": 3, "utilization": None, "output_shape": None}]
    graph = OpGraph.from_dict({"format": "simsched.graph", "version": 1, "operators": rows})
    assert graph == OpGraph([Operator("a", time=3.0)])


def edge_rows(graph):
    return sorted((e.src, e.dst, e.nbytes, -1.0 if e.transfer is None else e.transfer) for e in graph.edges)


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_networkx_round_trip(graph):
    """networkx keeps edges by source: the edges are the same, their order may not be."""
    again = OpGraph.from_networkx(graph.to_networkx())
    assert again.operators == graph.operators
    assert edge_rows(again) == edge_rows(graph)
    assert again.name == graph.name


def test_from_a_plain_digraph():
    dag = nx.DiGraph([(0, 1), (0, 2)])
    dag.nodes[1]["time"] = 3.0
    graph = OpGraph.from_networkx(dag, name="plain")
    assert (graph.names, graph["1"].time, graph.name) == (("0", "1", "2"), 3.0, "plain")
    assert [(e.src, e.dst) for e in graph.edges] == [("0", "1"), ("0", "2")]


def attributed():
    dag = nx.DiGraph()
    dag.add_node("a", tiem=3)
    return dag


@pytest.mark.parametrize(
    ("dag", "message"),
    [
        (nx.Graph([(0, 1)]), "not directed"),
        (nx.DiGraph([(0, 1), (1, 0)]), "cycle: "),
        (nx.DiGraph(), "is empty"),
        (attributed(), "node 'a': unknown attribute 'tiem'; known are: kind"),
        (
            nx.DiGraph([("a", "b", {"weight": 3})]),
            "edge a -> b: unknown attribute 'weight'; known are: nbytes, transfer",
        ),
    ],
)
def test_networkx_errors(dag, message):
    with pytest.raises(GraphError, match=message):
        OpGraph.from_networkx(dag)
