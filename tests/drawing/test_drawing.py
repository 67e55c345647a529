"""Pictures of graphs and schedules: what they say, and where everything lies, whatever the graph and its names."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import edges, made, placements
from strategies import graphs

import simsched as ss
from simsched.base.errors import GraphError
from simsched.show.chart import PALETTE
from simsched.show.drawing import LARGEST, shorten, text_width, to_dot, to_svg
from simsched.show.markup import printable
from workloads import random_layered

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = ["<&\"'>", "a\x00b\x1b[31m", "]]>", "\\", 'x\\"', "&lt;&#0;", "\u202eabc", "日本" * 30, "w" * 5000]


def op(name, kind="conv", **more):
    return ss.Operator(name, kind, **more)


def graph_of(names, pairs=""):
    """Convolutions, of which nothing else is known, in the order of their names."""
    return made([op(name) for name in names], pairs, nbytes=1024)


DIAMOND = graph_of("abcd", "ab ac bd cd")
TWO_DEVICES = ss.Schedule(DIAMOND, placements("a b/1 c@1 d"), scheduler="by hand", estimate=12.0)


def titles(text, tag="title"):
    return [each.text for each in ET.fromstring(text).iter(f"{SVG}{tag}")]


def texts(text):
    return titles(text, "text")


def groups(text, *tags):
    """Groups of so many and such elements."""
    found = ET.fromstring(text).iter(f"{SVG}g")
    return [group for group in found if [child.tag for child in group] == [f"{SVG}{tag}" for tag in tags]]


def boxes(text):
    """Of each operator, in order: its rectangle (x, y, width, height), fill, and the texts in it."""
    return [
        ([float(rect.get(key)) for key in ("x", "y", "width", "height")], rect.get("fill"), list(labels))
        for _, rect, labels in groups(text, "title", "rect", "g")
    ]


def fills(text):
    return {labels[0].text: fill for _, fill, labels in boxes(text)}


def routes(text):
    """Of each edge the points that its path goes through (x, y), in order."""
    found = []
    for path in re.findall('d="(M[^hz"]*)"', text):
        points = []
        for mark, rest in re.findall("([MCV])([^MCV]*)", path):
            numbers = [float(number) for number in rest.split()]
            points.append((points[-1][0], numbers[0]) if mark == "V" else tuple(numbers[-2:]))
        found.append(points)
    return found


def check_geometry(graph, text):
    """Boxes are apart; edges lead down from box to box, and lie beside the boxes of the rows that they pass."""
    sides = np.array([each for each, _, _ in boxes(text)])
    left, top, right, bottom = sides[:, 0], sides[:, 1], sides[:, 0] + sides[:, 2], sides[:, 1] + sides[:, 3]
    for i in range(len(graph)):
        beside = (left < right[i] + 9) & (right > left[i] - 9) & (top < bottom[i] + 9) & (bottom > top[i] - 9)
        assert np.flatnonzero(beside).tolist() == [i]
    pairs = list(dict.fromkeys(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)))
    for (u, v), points in zip(pairs, routes(text), strict=True):
        assert points[0] == ((left[u] + right[u]) / 2, bottom[u])
        assert points[-1] == ((left[v] + right[v]) / 2, top[v])
        assert all(below >= above for (_, above), (_, below) in pairwise(points))
        for x, y in points[1:-2]:
            assert not ((left < x) & (x < right) & (top <= y) & (y <= bottom)).any()


def test_a_picture_of_a_graph(tmp_path):
    """Two kinds, the more frequent one in the first colour; shapes, or times where there are none."""
    rows = [op("a", output_shape=(1, 8, 4, 4)), op("b", "pool", time=3.5), op("c")]
    graph = ss.OpGraph(rows, edges("ab ac", nbytes=512.0), "net")
    text, dot = to_svg(graph, tmp_path / "a.svg"), to_dot(graph, tmp_path / "a.dot")
    assert [(tmp_path / f"a.{kind}").read_text(encoding="utf-8") for kind in ("svg", "dot")] == [text, dot]
    assert texts(text) == [
        "net",
        "3 operators, 2 edges",
        "conv (2)",
        "pool (1)",
        "a",
        "conv · 1×8×4×4",
        "b",
        "pool · 3.5 us",
        "c",
        "conv",
    ]
    assert fills(text) == {"a": PALETTE[0], "b": PALETTE[1], "c": PALETTE[0]}
    assert titles(text)[1:] == ["a\nconv · 1×8×4×4", "b\npool · 3.5 us", "c\nconv"]
    root = ET.fromstring(text)
    assert root.get("role") == "img"
    assert root.get("aria-label") == titles(text)[0] == "net: 3 operators, 2 edges"
    assert root[1].get("fill") == "#ffffff"  # paper, whatever is around


def test_a_picture_of_a_schedule():
    """Devices differ in hue, streams of one in tint."""
    text = to_svg(TWO_DEVICES)
    assert texts(text)[:2] == ["graph by by hand", "4 operators, 4 edges, 3 streams on 2 devices, estimate 12 us"]
    assert texts(text)[2:5] == ["gpu0 stream 0 (2)", "gpu0 stream 1 (1)", "gpu1 stream 0 (1)"]
    found = fills(text)
    assert found["a"] == found["d"]
    assert len({found["a"], found["b"], found["c"]}) == 3
    assert "conv · gpu1 stream 0" in texts(text)


def test_one_device_is_coloured_by_streams():
    """Twelve of twenty streams are in the legend."""
    names = "abcdefghijklmnopqrst"
    text = to_svg(ss.Schedule(graph_of(names), [ss.Placement(name, stream=i) for i, name in enumerate(names)]))
    assert texts(text)[2:4] == ["stream 0 (1)", "stream 1 (1)"]
    assert texts(text)[14] == "and 8 more"
    assert len(set(fills(text).values())) == 20


def test_stages_are_bands():
    """a | b c | d, stages numbered 0, 3 and 7, from top to bottom, and no box outside its band."""
    plan = ss.Schedule(DIAMOND, placements("a.0 b.3 c/1.3 d.7"), execution="stages")
    text = to_svg(plan)
    assert [each for each in texts(text) if each.startswith("stage")] == ["stage 0", "stage 3", "stage 7"]
    assert "3 stages" in texts(text)[1]
    rects = [each for each in ET.fromstring(text).iter(f"{SVG}rect") if each.get("fill") in ("#eef2f7", "#dfe6ef")]
    bands = [(float(rect.get("y")), float(rect.get("y")) + float(rect.get("height"))) for rect in rects]
    assert all(end < start for (_, end), (start, _) in pairwise(bands))
    for ((_, y, _, height), _, _), band in zip(boxes(text), (0, 1, 1, 2), strict=True):
        assert bands[band][0] < y < y + height < bands[band][1]
    assert re.findall(r'label="(stage \d)"', to_dot(plan)) == ["stage 0", "stage 3", "stage 7"]


def test_stages_of_devices_that_do_not_follow_each_other_are_numbers():
    """a in stage 1 of gpu0 feeds b in stage 0 of gpu1."""
    plan = ss.Schedule(graph_of("abz", "ab"), placements("z a.1 b@1"), execution="stages").check()
    for text in (to_svg(plan), to_dot(plan)):
        assert "conv · gpu0 stream 0 · stage 1" in text
    assert "stage 0" not in texts(to_svg(plan))
    assert "cluster" not in to_dot(plan)


def test_dot_of_a_graph():
    graph = ss.OpGraph([op("a", time=3.0), op('b"\\')], [ss.Edge("a", 'b"\\', nbytes=8)], name="net")
    lines = to_dot(graph).splitlines()
    assert lines[0] == 'digraph "net" {'
    assert any(line.startswith('  n0 [label="a\\nconv · 3 us", fillcolor="#') for line in lines)
    assert any(line.startswith('  n1 [label="b\\"\\\\\\nconv"') for line in lines)
    assert "  n0 -> n1;" in lines


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names(hostile):
    """Well-formed, with the names as text, and labels no wider than their boxes."""
    operators = [op(hostile, hostile, block=hostile), op(hostile + "2", block=hostile), op("z" + hostile)]
    graph = ss.OpGraph(operators, [ss.Edge(hostile, hostile + "2")], name=hostile)
    rows = [ss.Placement(name, hostile, stage=i) for i, name in enumerate(graph.names)]
    plan = ss.Schedule(graph, rows, "stages", scheduler=hostile)
    for shown in (graph, plan):
        text = to_svg(shown)
        assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", text)
        text.encode()
        assert any(each.startswith(f"{printable(hostile)}\n{printable(hostile)}") for each in titles(text))
        assert len(boxes(text)) == 3
        for (_, _, width, _), _, labels in boxes(text):
            assert all(text_width(each.text, float(each.get("font-size"))) <= width - 8 for each in labels)
        dot = to_dot(shown)
        assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", dot)
        assert all(line.endswith(("{", "}", ";")) for line in dot.splitlines())


@settings(max_examples=12)
@given(graph=graphs(max_ops=8))
def test_any_graph_is_drawn(graph):
    """Every operator has a box and every pair an edge, in graphs and in schedules."""
    pairs = len({(edge.src, edge.dst) for edge in graph.edges})
    for shown in (graph, ss.schedule(graph, ss.Cluster.preset("a100", 2), "inter-lp")):
        text = to_svg(shown)
        assert (len(titles(text)), len(routes(text))) == (1 + len(graph), pairs)
        check_geometry(graph, text)
        dot = to_dot(shown)
        assert dot.count(" -> ") == pairs
        assert len(re.findall(r"^ +n\d+ \[label=", dot, re.MULTILINE)) == len(graph)


@settings(max_examples=25)
@given(n=st.integers(1, 40), n_edges=st.integers(0, 80), seed=st.integers(0, 1000), staged=st.booleans())
def test_boxes_and_edges_of_larger_graphs(n, n_edges, seed, staged):
    ends = np.sort(np.random.default_rng(seed).integers(0, n, (n_edges, 2)), axis=1)
    ends = ends[ends[:, 0] != ends[:, 1]]
    graph = ss.OpGraph.from_columns([f"v{i}" for i in range(n)], ends[:, 0], ends[:, 1])
    rows = [ss.Placement(name, stage=i // 5) for i, name in enumerate(graph.names)]  # edges lead to higher numbers
    check_geometry(graph, to_svg(ss.Schedule(graph, rows, execution="stages") if staged else graph))


def test_parallel_edges_are_drawn_once():
    text = to_svg(made([op("a", time=1e300), op("b")], [ss.Edge("a", "b", nbytes) for nbytes in (1.0, 2.0)]))
    assert len(routes(text)) == 1


def test_a_chain_is_straight():
    text = to_svg(graph_of("abcd", "ab bc cd"))
    assert len({x for points in routes(text) for x, _ in points}) == 1


def test_a_fork_is_symmetric():
    """The middle of three branches below the source, the others as far to either side."""
    s, a, b, c, t = (x for (x, _, _, _), _, _ in boxes(to_svg(graph_of("sabct", "sa sb sc at bt ct"))))
    assert sorted([a, b, c])[1] == s == t
    assert a + b + c == 3 * s


def test_operators_without_edges_make_a_rectangle():
    """Twelve abreast: 30 take three rows."""
    text = to_svg(graph_of(["y", "z", *(f"x{i}" for i in range(30))], "yz"))
    assert len({y for (_, y, _, _), _, _ in boxes(text)}) == 3


def test_what_is_not_drawn():
    """From each of the first 100 of a chain of 2,000 an edge to the last: some 195,000 rows."""
    n = 2000
    src = np.concatenate([np.arange(n - 1), np.arange(100)])
    dst = np.concatenate([np.arange(1, n), np.full(100, n - 1)])
    with pytest.raises(GraphError, match=r"^graph: too many long edges to be drawn"):
        to_svg(ss.OpGraph.from_columns([f"v{i}" for i in range(n)], src, dst))
    assert len(routes(to_svg(random_layered(n, 50, n_edges=2 * n, rng=0)))) == 2 * n
    graph = random_layered(LARGEST + 1, 50, rng=0)
    for draw in (to_svg, to_dot):
        with pytest.raises(GraphError, match=r"^graph 'layered-10001' has 10001 operators: pictures are drawn of up"):
            draw(graph)


@given(text=st.text(), width=st.floats(20, 300))
def test_shortened_texts_fit(text, width):
    found = shorten(text, 12, width)
    assert text_width(found, 12) <= width
    assert found == text or "…" in found


@given(st.text())
def test_printable_texts_are_lines_of_xml(text):
    found = printable(text)
    assert found
    assert "\n" not in found
    ET.fromstring(f"<a>{found.replace('&', '&amp;').replace('<', '&lt;').replace(']]>', '')}</a>")
