"""Pictures as SVG: what they say, and that they are well-formed whatever the names."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from drawn import SVG, fills, graph_of, labels_within_boxes, op, texts, titles, two_devices
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

import simsched as ss
from simsched.base.errors import FileError, GraphError
from simsched.show.drawing import layout, to_dot, to_svg
from simsched.show.drawing.frames import lay_out
from simsched.show.drawing.picture import describe
from simsched.show.drawing.style import printable
from simsched.show.figure import PALETTE
from workloads import load, random_layered

HOSTILE = ["<&\"'>", "a\x00b\x1b[31m", "]]>", "\\", 'x\\"', "&lt;&#0;", "\u202eabc", "日本" * 30, "w" * 5000, "\ud800"]


def test_a_picture_of_a_graph():
    """Two kinds, the more frequent one in the first colour; shapes, or times where there are none."""
    graph = ss.OpGraph(
        [op("a", output_shape=(1, 8, 4, 4)), op("b", "pool", time=3.5), op("c", flops=2e6, weight_nbytes=2048)],
        [ss.Edge("a", "b", nbytes=512), ss.Edge("a", "c", nbytes=512)],
        name="net",
    )
    text = to_svg(graph)
    assert texts(text)[:4] == ["net", "3 operators, 2 edges", "conv (2)", "pool (1)"]
    assert {"a", "conv · 1×8×4×4", "b", "pool · 3.5 us", "c", "conv"} < set(texts(text))
    found = fills(text)
    assert found["a"] == found["c"] != found["b"]
    assert "a → b\n512 B" in titles(text)
    assert "c\nkind: conv\nwork: 2 MFLOP\nweights: 2.0 KiB" in titles(text)
    root = ET.fromstring(text)
    assert root.get("role") == "img"
    assert root.get("aria-label") == titles(text)[0] == "net: 3 operators, 2 edges"
    assert root[1].get("fill") == "#ffffff"  # paper, whatever is around


def test_rare_kinds_share_grey():
    operators = [op(f"o{i}", f"k{i}") for i in range(9)]
    found = fills(to_svg(ss.OpGraph(operators)))
    assert len(set(found.values())) == len(PALETTE) + 1
    assert found["o7"] == found["o8"]


def test_blocks_are_framed():
    """Boxes in a frame leave out its label, and the frame is around its boxes alone."""
    graph = load("inception_v3")
    text = to_svg(graph)
    blocks = [graph.label("block", i) for i in range(len(graph))]
    assert {block for block in blocks if blocks.count(block) > 1} < set(texts(text))
    assert texts(text).count("branch1x1") > 3
    assert "mixed_5b.branch1x1" not in texts(text)
    assert any(title.startswith("mixed_5b.branch1x1\n") for title in titles(text))


def test_blocks_that_are_interleaved_are_not_framed():
    """Of a -> b -> c -> d, a and c are one block, b and d the other: names stay whole."""
    operators = [op(f"{block}.{name}", block=block) for name, block in zip("abcd", "xyxy", strict=True)]
    names = [each.name for each in operators]
    text = to_svg(ss.OpGraph(operators, [ss.Edge(u, v) for u, v in pairwise(names)]))
    assert set(names) < set(texts(text))
    assert "x" not in texts(text)


def test_a_picture_of_a_schedule():
    """Devices differ in hue, streams of one in tint; of four edges two are between devices."""
    text = to_svg(two_devices())
    assert texts(text)[:2] == [
        "made by by hand",
        "4 operators, 4 edges, 3 streams on 2 devices, estimate 12 us",
    ]
    legend = ["gpu0 stream 0 (2)", "gpu0 stream 1 (1)", "gpu1 stream 0 (1)", "between devices"]
    assert texts(text)[2:6] == legend
    found = fills(text)
    assert found["a"] == found["d"]
    assert len({found["a"], found["b"], found["c"]}) == 3
    assert "conv · gpu1 stream 0" in texts(text)
    assert text.count("stroke-dasharray") == 3  # and one in the legend
    assert "a → c\n1.0 KiB\nfrom gpu0 to gpu1" in titles(text)
    assert "a → b\n1.0 KiB" in titles(text)


def test_one_device_is_coloured_by_streams():
    graph = graph_of("ab", "ac", "bd", "cd")
    plan = ss.Schedule(graph, [ss.Placement(n, stream=s) for n, s in zip("abcd", (0, 0, 1, 9), strict=True)])
    text = to_svg(plan)
    assert texts(text)[2:5] == ["stream 0 (2)", "stream 1 (1)", "stream 9 (1)"]
    assert len(set(fills(text).values())) == 3
    assert "between devices" not in texts(text)


def test_many_streams_are_summed_up():
    graph = ss.OpGraph([op(f"o{i}") for i in range(20)])
    text = to_svg(ss.Schedule(graph, [ss.Placement(f"o{i}", stream=i) for i in range(20)]))
    assert "and 8 more" in texts(text)
    assert len(set(fills(text).values())) == 20


def test_stages_are_bands():
    """a | b c | d, stages numbered 0, 3 and 7, from top to bottom, and no box outside its band."""
    graph = graph_of("ab", "ac", "bd", "cd")
    stage = dict(zip("abcd", (0, 3, 3, 7), strict=True))
    rows = [ss.Placement(n, stage=stage[n], group=int(n == "c"), stream=int(n == "c")) for n in "abcd"]
    text = to_svg(ss.Schedule(graph, rows, execution="stages"))
    assert [each for each in texts(text) if each.startswith("stage")] == ["stage 0", "stage 3", "stage 7"]
    assert "3 stages" in texts(text)[1]
    assert "c\nkind: conv\nruns on: gpu0, stream 1\nstage: 3, group 1" in titles(text)
    bands, boxes = [], {}
    for rect in ET.fromstring(text).iter(f"{SVG}rect"):
        if rect.get("fill") in ("#eef2f7", "#dfe6ef"):
            bands.append((float(rect.get("y")), float(rect.get("y")) + float(rect.get("height"))))
    assert all(end <= start for (_, end), (start, _) in pairwise(bands))
    for group in ET.fromstring(text).iter(f"{SVG}g"):
        if len(group) > 2 and group[0].tag == f"{SVG}title" and group[1].tag == f"{SVG}rect":
            boxes[group[2].text] = float(group[1].get("y"))
    band = {0: 0, 3: 1, 7: 2}
    for name, y in boxes.items():
        top, bottom = bands[band[stage[name]]]
        assert top < y < y + 40 < bottom


def test_stages_of_devices_that_do_not_follow_each_other_are_badges():
    """a in stage 1 of gpu0 feeds b in stage 0 of gpu1."""
    graph = graph_of("ab", alone="z")
    rows = [ss.Placement("z"), ss.Placement("a", stage=1), ss.Placement("b", "gpu1")]
    plan = ss.Schedule(graph, rows, execution="stages").check()
    text = to_svg(plan)
    assert "stage 0" not in texts(text)
    assert "stage of the device" in texts(text)
    assert {"0", "1"} < set(texts(text))


def test_a_title_of_ones_own():
    text = to_svg(graph_of("ab"), title="<mine>")
    assert texts(text)[0] == "<mine>"


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names(hostile):
    """Well-formed, with the names as text, and labels no wider than their boxes."""
    operators = [op(hostile, hostile, block=hostile), op(hostile + "2", block=hostile), op("z" + hostile)]
    graph = ss.OpGraph(operators, [ss.Edge(hostile, hostile + "2")], name=hostile)
    plan = ss.Schedule(
        graph,
        [ss.Placement(n, hostile, stage=i) for i, n in enumerate(graph.names)],
        execution="stages",
        scheduler=hostile,
    )
    for shown in (graph, plan):
        text = to_svg(shown)
        assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", text)
        text.encode()
        assert f"{printable(hostile)}\nkind: {printable(hostile)}" in "\n".join(titles(text))
        widths = list(labels_within_boxes(text))
        assert len(widths) == 6
        assert all(wide <= box - 8 for wide, box in widths)
        dot = to_dot(shown)
        assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", dot)
        assert all(line.endswith(("{", "}", ";")) for line in dot.splitlines())


@settings(max_examples=12)
@given(graph=graphs(max_ops=8), title=st.text(max_size=20))
def test_any_graph_is_drawn(graph, title):
    """Every operator has a box and every pair an edge, in graphs and in schedules."""
    pairs = len({(edge.src, edge.dst) for edge in graph.edges})
    for shown in (graph, ss.schedule(graph, ss.Cluster.preset("a100", 2), "inter-lp")):
        text = to_svg(shown, title=title)
        assert len(titles(text)) == 1 + len(graph) + pairs
        dot = to_dot(shown)
        assert dot.count(" -> ") == pairs
        assert len(re.findall(r"^ +n\d+ \[label=", dot, re.MULTILINE)) == len(graph)


def test_extreme_numbers():
    graph = ss.OpGraph(
        [op("a", time=1e300, flops=1e300, weight_nbytes=1e300), op("b", time=0.0, output_shape=(2**50,) * 4)],
        [ss.Edge("a", "b", nbytes=1e300)],
    )
    assert len(titles(to_svg(graph))) == 4


def test_files(tmp_path):
    path = tmp_path / "a.svg"
    assert to_svg(graph_of("ab"), path) == path.read_text(encoding="utf-8")
    assert to_dot(graph_of("ab"), tmp_path / "a.dot") == (tmp_path / "a.dot").read_text(encoding="utf-8")
    for draw in (to_svg, to_dot):
        with pytest.raises(FileError, match="cannot write"):
            draw(graph_of("ab"), tmp_path / "nowhere" / "a")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.dot", "a.svg"]


def test_only_graphs_and_schedules():
    for draw in (to_svg, to_dot):
        with pytest.raises(GraphError, match=r"^pictures are drawn of graphs and schedules, not of str$"):
            draw("inception_v3")


def test_same_bytes_whatever_the_hash_seed():
    code = (
        "import hashlib, simsched as ss, workloads\n"
        "from simsched.show.drawing import to_dot, to_svg\n"
        "g = workloads.random_layered(30, 6, rng=1)\n"
        "plan = ss.schedule(g, ss.Cluster.preset('a100', 3), 'inter-lp')\n"
        "texts = [f(x) for f in (to_svg, to_dot) for x in (g, plan, workloads.load('inception_v3'))]\n"
        "print(hashlib.sha256(''.join(texts).encode()).hexdigest())"
    )
    root = Path(__file__).resolve().parents[2]
    found = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert len(found[0]) == 65
    assert found[0] == found[1]


def test_thousands_of_operators():
    """1,000 operators and 2,000 edges: what grows faster than their number would take minutes."""
    graph = random_layered(1000, 50, n_edges=2000, rng=0)
    found = layout(graph)
    assert len(found.routes) == 2000
    assert (found.row[graph.src] < found.row[graph.dst]).all()


@pytest.mark.parametrize("name", ["inception_v3", "randwire", "bert_base"])
def test_frames_do_not_overlap(name):
    """Nor does a frame hold a part of a box of another block: as many boxes touch it as its block has operators."""
    graph = load(name)
    plate = lay_out(graph, describe(graph), "own")
    x, y, half, below = plate.layout.x, plate.layout.y, plate.layout.width / 2, plate.layout.height / 2
    blocks = [graph.label("block", i) for i in range(len(graph))]
    assert plate.frames
    for frame in plate.frames:
        beside = (
            (x - half < frame.right) & (x + half > frame.left) & (y - below < frame.bottom) & (y + below > frame.top)
        )
        assert beside.sum() == blocks.count(frame.label)
    for a, b in combinations(plate.frames, 2):
        assert a.right <= b.left or b.right <= a.left or a.bottom <= b.top or b.bottom <= a.top
