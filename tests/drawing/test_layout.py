"""Layouts: boxes apart, edges that pass by them, Graphviz."""

import os

import numpy as np
import pytest
from drawn import graph_of, op, random_graph, texts, titles
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

import simsched as ss
from simsched.base.errors import GraphError, MissingDependencyError
from simsched.show.drawing import layout, to_dot, to_svg
from simsched.show.drawing.layout import LARGEST
from workloads import random_layered


def bent(route):
    """Points along the curves of an edge."""
    t = np.linspace(0, 1, 9)[:, None]
    parts = []
    for k in range(1, len(route), 3):
        a, b, c, d = route[k - 1 : k + 3]
        parts.append((1 - t) ** 3 * a + 3 * t * (1 - t) ** 2 * b + 3 * t**2 * (1 - t) * c + t**3 * d)
    return np.concatenate(parts)


def check_geometry(graph, found):
    """Boxes are apart and inside; edges lead down from box to box and pass by all others."""
    n = len(graph)
    left, right = found.x - found.width / 2, found.x + found.width / 2
    top, bottom = found.y - found.height / 2, found.y + found.height / 2
    assert left.min() >= -1e-6
    assert top.min() >= -1e-6
    assert right.max() <= found.size[0] + 1e-6
    assert bottom.max() <= found.size[1] + 1e-6
    for i in range(n):
        beside = (left < right[i] + 1) & (right > left[i] - 1) & (top < bottom[i] + 1) & (bottom > top[i] - 1)
        assert np.flatnonzero(beside).tolist() == [i]
    pairs = list(dict.fromkeys(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)))
    assert [tuple(pair) for pair in found.pairs.tolist()] == pairs
    for (u, v), route in zip(found.pairs.tolist(), found.routes, strict=True):
        assert found.row[u] < found.row[v]
        assert bottom[u] == pytest.approx(route[0, 1])
        assert top[v] == pytest.approx(route[-1, 1])
        assert left[u] <= route[0, 0] <= right[u]
        assert left[v] <= route[-1, 0] <= right[v]
        points = bent(route)
        assert (np.diff(points[:, 1]) >= -1e-6).all()
        x, y = points[:, :1], points[:, 1:]
        within = (x > left) & (x < right) & (y > top + 1e-6) & (y < bottom - 1e-6)
        assert not within.any()


@settings(max_examples=25)
@given(graph=graphs(max_ops=14), widths=st.lists(st.floats(20, 300), min_size=14, max_size=14))
def test_boxes_and_edges(graph, widths):
    check_geometry(graph, layout(graph, width=widths[: len(graph)]))


@settings(max_examples=25)
@given(n=st.integers(1, 40), n_edges=st.integers(0, 80), seed=st.integers(0, 1000), stages=st.booleans())
def test_boxes_and_edges_of_larger_graphs(n, n_edges, seed, stages):
    graph = random_graph(n, n_edges, seed)
    stage = np.arange(n) // 5 if stages else None  # edges lead to higher numbers
    found = layout(graph, stage=stage)
    check_geometry(graph, found)
    if stages:
        bottoms = [found.y[stage == k].max() for k in range(stage.max() + 1)]
        tops = [found.y[stage == k].min() for k in range(stage.max() + 1)]
        assert all(low < high for low, high in zip(bottoms, tops[1:], strict=False))


def test_a_chain_is_straight():
    found = layout(graph_of("ab", "bc", "cd"))
    assert np.unique(found.x).size == 1
    for route in found.routes:
        assert np.unique(route[:, 0]).size == 1


def test_a_fork_is_symmetric():
    """The middle of three branches below the source, the others as far to either side."""
    found = layout(graph_of("sa", "sb", "sc", "at", "bt", "ct"))
    s, a, b, c, t = found.x.tolist()
    assert sorted([a, b, c])[1] == s == t
    assert a + b + c == pytest.approx(3 * s)


def test_long_edges_are_straight_between_their_ends():
    """a -> b -> c -> d -> e with a -> e: the edge passes through three rows at one x."""
    found = layout(graph_of("ab", "bc", "cd", "de", "ae"))
    route = found.routes[-1]
    assert np.unique(route[3:-3, 0]).size == 1


def test_pieces_are_set_side_by_side():
    """30 operators without edges make a rectangle, not a row."""
    graph = graph_of("yz", alone=[f"x{i}" for i in range(30)])
    found = layout(graph)
    check_geometry(graph, found)
    assert found.size[0] < 10 * found.width[0] * 1.5
    assert found.row.tolist() == [0, 1] + [0] * 30


def test_parallel_edges_are_drawn_once():
    graph = ss.OpGraph([op("a"), op("b")], [ss.Edge("a", "b", nbytes=1024), ss.Edge("a", "b", nbytes=2048)])
    assert len(layout(graph).routes) == 1
    assert "a → b\n3.0 KiB in 2 tensors" in titles(to_svg(graph))


def test_too_large():
    graph = random_layered(LARGEST + 1, 50, rng=0)
    for draw in (layout, to_svg, to_dot):
        with pytest.raises(
            GraphError, match=r"^graph 'layered-10001' has 10001 operators: pictures are drawn of up to"
        ):
            draw(graph)


def test_too_many_long_edges():
    """2,000 operators in a chain, and from each of the first 100 an edge to the last: some 195,000 rows."""
    n = 2000
    src = np.concatenate([np.arange(n - 1), np.arange(100)])
    dst = np.concatenate([np.arange(1, n), np.full(100, n - 1)])
    with pytest.raises(GraphError, match=r"^graph 'graph' has too many long edges to be drawn"):
        layout(ss.OpGraph.from_columns([f"v{i}" for i in range(n)], src, dst))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": [1.0, 2.0]}, "width must be a finite number of pixels"),
        ({"width": float("nan")}, "width must be a finite number of pixels"),
        ({"height": -1.0}, "height must be a finite number of pixels"),
        ({"stage": [0, 1]}, "stage must be a whole number from 0 for each operator"),
        ({"stage": [0, 0, -1]}, "stage must be a whole number from 0 for each operator"),
        ({"stage": [0.0, 1.0, 2.0]}, "stage must be a whole number from 0 for each operator"),
        ({"stage": [0, 2, 1]}, "edge b -> c leads to an earlier stage; lay it out without stages"),
    ],
)
def test_sizes_and_stages_that_cannot_be(options, message):
    with pytest.raises(GraphError, match=rf"^graph '\w+': {message}"):
        layout(graph_of("ab", "bc"), **options)


def test_unknown_engine():
    with pytest.raises(GraphError, match=r"^unknown engine of layouts 'neato'; known are: own, graphviz, auto$"):
        to_svg(graph_of("ab"), engine="neato")


@pytest.fixture
def fake_dot(tmp_path, monkeypatch):
    """A program `dot` that answers as told."""

    def make(answer, status=0):
        program = tmp_path / "bin" / "dot"
        program.parent.mkdir(exist_ok=True)
        (tmp_path / "answer").write_text(answer)
        program.write_text(
            f'#!/bin/sh\ncat > "{tmp_path}/asked"\ncat "{tmp_path}/answer"\necho broken >&2\nexit {status}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
        return tmp_path / "asked"

    return make


PLAIN = """graph 1 2 3
node n0 0.5 2.5 1 0.5 "" solid box black lightgrey
node n1 0.5 0.5 1 0.5 "" solid box black lightgrey
edge n0 n1 4 0.5 2.25 0.5 2 0.5 1 0.5 0.75 solid black
stop
"""


@pytest.mark.parametrize("engine", ["graphviz", "auto"])
def test_layout_by_graphviz(fake_dot, engine):
    """In inches, y upward, 2 x 3: of n0 the middle is 2.5 inches from below, 36 pixels from above."""
    asked = fake_dot(PLAIN)
    found = layout(graph_of("ab"), engine=engine)
    assert (found.x.tolist(), found.y.tolist(), found.size) == ([36.0, 36.0], [36.0, 180.0], (144.0, 216.0))
    assert found.routes[0].tolist() == [[36.0, 54.0], [36.0, 72.0], [36.0, 144.0], [36.0, 162.0]]
    assert found.row.tolist() == [0, 1]
    assert "n0 -> n1" in asked.read_text()
    assert "1.333333" in asked.read_text()  # 96 pixels


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        ("", 1, r"dot cannot lay it out \(broken\); use engine 'own'"),
        ("", 0, "what cannot be read"),
        (PLAIN.replace("0.5 2.5", "0.5 x"), 0, "what cannot be read"),
        (PLAIN.replace("edge n0 n1", "edge n0 n7"), 0, "what cannot be read"),
        (PLAIN.replace("node n1", "node n9"), 0, "what cannot be read"),
        ("graph\n", 0, "what cannot be read"),
    ],
)
def test_graphviz_that_fails(fake_dot, answer, status, message):
    fake_dot(answer, status)
    with pytest.raises(GraphError, match=f"^graph 'made': .*{message}"):
        layout(graph_of("ab"), engine="graphviz")


def test_no_graphviz(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="install Graphviz"):
        layout(graph_of("ab"), engine="graphviz")
    plan = ss.Schedule(graph_of("ab"), [ss.Placement("a"), ss.Placement("b", stage=1)], execution="stages")
    assert "stage 1" in texts(to_svg(plan))
    assert to_svg(plan, engine="auto") == to_svg(plan)


def test_a_picture_by_graphviz(fake_dot):
    """Stages are badges, as Graphviz knows no bands; arrows end at the boxes."""
    fake_dot(PLAIN)
    plan = ss.Schedule(graph_of("ab"), [ss.Placement("a"), ss.Placement("b", stage=1)], execution="stages")
    text = to_svg(plan, engine="auto")
    assert "stage 1" not in texts(text)
    assert {"0", "1"} < set(texts(text))
    assert "M36,54C36,72 36,144 36,156" in text or "M36,54V156" in text  # the arrow is 6 pixels long
