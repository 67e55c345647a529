"""Gantt charts: what is drawn, how it looks, and what is written."""

import subprocess
import sys
from dataclasses import replace

import hand_spans
import numpy as np
import pytest
import small
from hand_spans import IDLE, dealt, kernel, simulated
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from simsched import schedule, simulate
from simsched.model import Cluster, Operator, OpGraph
from simsched.model.trace.timeline import KERNEL, WAIT
from simsched.show.chart import PALETTE
from simsched.show.gantt import gantt
from workloads import random_layered

COLOURS = [colour.lower() for colour in PALETTE]


def made(operators, rows):
    return hand_spans.made(OpGraph(operators), rows, loads=[IDLE])


def plain(n):
    return [Operator(f"o{i}", time=1.0) for i in range(n)]


def wait(stream, start, end):
    return (WAIT, -1, -1, 0, stream, start, end, start, end - start, -1)


def two_devices():
    """conv a on gpu0, its tensor to pool b on gpu1, conv c beside it on stream 1 of gpu0."""
    operators = [Operator("a", "conv", time=30.0), Operator("b", "pool", time=50.0), Operator("c", "conv", time=40.0)]
    return simulated(small.made(operators, "ab=1e6 ac=1e6"), "a b@1 c/1", Cluster.preset("a40", 2))


def bars(ax):
    """Boxes (left, right, middle, height) by colour; hatched ones under their hatch."""
    found = {}
    for collection in ax.collections:
        assert isinstance(collection, PolyCollection)
        key = collection.get_hatch() or to_hex(collection.get_facecolor()[0])
        corners = [path.vertices for path in collection.get_paths()]
        found[key] = [
            (v[:, 0].min(), v[:, 0].max(), (v[:, 1].min() + v[:, 1].max()) / 2, round(float(np.ptp(v[:, 1])), 6))
            for v in corners
        ]
    return found


def legend(ax):
    return [text.get_text() for text in ax.figure.legends[0].get_texts()]


def rows(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def written(ax):
    return [text.get_text() for text in ax.texts]


def test_bars_lie_where_the_spans_are():
    """a over [0, 30] us and b over [40, 60] in the row of stream 0, c over [5, 45] in that of stream 1, by kind."""
    operators = [Operator(name, kind, time=1.0) for name, kind in (("a", "conv"), ("b", "pool"), ("c", "conv"))]
    ax = gantt(made(operators, [kernel(0, 0, 30), kernel(1, 40, 60), kernel(2, 5, 45, stream=1), wait(0, 30, 40)]))
    first, second = ax.get_yticks()
    drawn = bars(ax)
    assert [box[:3] for box in drawn[COLOURS[0]]] == [(0, 30, first), (5, 45, second)]
    assert [box[:3] for box in drawn[COLOURS[1]]] == [(40, 60, first)]
    assert [box[:3] for box in drawn["//////"]] == [(30, 40, first)]
    assert legend(ax) == ["conv", "pool", "wait"]
    assert first < second
    assert ax.yaxis_inverted()  # stream 0 on top


def test_devices_and_copies_have_rows():
    """gpu0 has two streams and a thinner row for copies, gpu1 one stream; the copy's wait is not drawn."""
    ax = gantt(two_devices())
    assert rows(ax) == ["gpu0 stream 0", "gpu0 stream 1", "gpu0 copy to gpu1", "gpu1 stream 0"]
    drawn = bars(ax)
    (copy,) = drawn["#7a7a7a"]
    assert copy[3] < drawn[COLOURS[0]][0][3]
    assert copy[2] == ax.get_yticks()[2]
    assert {box[2] for box in drawn["//////"]} == {ax.get_yticks()[1], ax.get_yticks()[3]}
    (between,) = [line for line in ax.lines if line.get_linewidth() == 0.5]
    assert ax.get_yticks()[2] < between.get_ydata()[0] < ax.get_yticks()[3]


@pytest.mark.parametrize(
    ("end", "unit", "text"), [(500.0, "us", "500.0 us"), (1500.0, "ms", "1.500 ms"), (2.5e6, "s", "2.500 s")]
)
def test_axis_by_size(end, unit, text):
    """From 1 ms on in ms, from 1 s on in s; the line of the makespan stands at the end of the last bar."""
    ax = gantt(made(plain(1), [kernel(0, 0, end)]))
    assert ax.get_xlabel() == f"time ({unit})"
    assert ax.get_title(loc="right") == f"makespan {text}"
    assert ax.lines[0].get_xdata()[0] == bars(ax)[COLOURS[0]][0][1]


def test_labels_only_where_they_fit():
    """Of 100 us, `wide` has half. `stem.tail` has 5 us, enough for `tail` alone; `narrow` has 0.5."""
    operators = [Operator(name, time=1.0) for name in ("wide", "stem.tail", "narrow")]
    trace = made(operators, [kernel(0, 0, 50), kernel(1, 60, 65), kernel(2, 99.5, 100)])
    assert set(written(gantt(trace))) == {"wide", "tail"}


def test_rare_kinds_share_grey():
    """Nine kinds, the last with two operators: it has the first colour, six more follow, the other two share grey."""
    operators = [Operator(f"{i}", kind, time=1.0) for i, kind in enumerate("abcdefghii")]
    ax = gantt(made(operators, [kernel(i, i, i + 1) for i in range(10)]))
    assert legend(ax) == ["i", "a", "b", "c", "d", "e", "f", "other"]
    drawn = bars(ax)
    assert len(drawn[COLOURS[0]]) == 2
    assert len(drawn["#999999"]) == 2


def test_colours_depend_on_the_graph_only():
    """Two schedules of Inception v3 give each kind the same colour."""
    colours = []
    for n in (1, 3):
        handles = gantt(dealt(1, n_streams=n)).figure.legends[0].legend_handles
        colours.append({handle.get_label(): to_hex(handle.get_facecolor()) for handle in handles})
        colours[-1].pop("wait", None)
    assert colours[0] == colours[1]


def test_title_names_graph_scheduler_and_cluster():
    assert gantt(two_devices()).get_title(loc="left") == "graph by custom on 2 x a40"


def test_many_streams_share_rows():
    """Of 18 streams, pairs at a time: those of even number follow each other, as do those of odd number; two rows."""
    operators, spans = plain(18), [kernel(i, 10 * (i // 2), 10 * (i // 2) + 9, stream=i) for i in range(18)]
    waits = [wait(i, 0.0, 10.0 * (i // 2)) for i in range(2, 18)]
    ax = gantt(made(operators, spans + waits))
    assert rows(ax) == ["streams 0, 2, 4, ...", "streams 1, 3, 5, ..."]
    assert {key: len(boxes) for key, boxes in bars(ax).items()} == {COLOURS[0]: 18}
    few = gantt(made(operators[:16], spans[:16] + waits[:14]))
    assert rows(few) == [f"stream {i}" for i in range(16)]


def test_no_picture_is_taller_than_a_page():
    """64 devices of 4 streams that all overlap: rows get thinner, and names that could not be read are left out."""
    places = " ".join(f"o{i}/{i % 4}@{i // 4}" for i in range(256))
    ax = gantt(simulated(OpGraph(plain(256)), places, Cluster.preset("a40", 64).without_overheads()))
    assert ax.figure.get_size_inches()[1] < 11
    assert 64 < len(rows(ax)) < 256


def test_copies_to_many_devices_share_a_row():
    """gpu0 sends to five others: one row of all its copies; to four: a row each."""
    for n, names in ((5, ["gpu0 copies"]), (4, [f"gpu0 copy to gpu{i}" for i in range(1, 5)])):
        graph = small.made(plain(n + 1), " ".join(f"o0-o{i}=1e6" for i in range(1, n + 1)))
        ax = gantt(simulated(graph, " ".join(f"o{i}@{i}" for i in range(n + 1)), Cluster.preset("a40", n + 1)))
        assert [name for name in rows(ax) if "cop" in name] == names


def test_nothing_ran(tmp_path):
    trace = made(plain(1), [])
    assert rows(trace.gantt(tmp_path / "chart.png")) == []
    assert (tmp_path / "chart.png").exists()


def test_a_collection_per_kind_however_many_spans():
    """5,000 operators of one kind on 8 streams: one collection of bars, one of waits."""
    trace = dealt(1, n_streams=8, graph=random_layered(5000, 200, rng=0))
    ax = gantt(trace)
    assert len(ax.collections) == 2
    assert sum(map(len, bars(ax).values())) == (np.isin(trace.kind, (KERNEL, WAIT)) & (trace.stream >= 0)).sum()


def test_pyplot_is_left_alone():
    """Importing the module loads no matplotlib, drawing loads no pyplot."""
    code = (
        "import sys, simsched.show.gantt as g; assert 'matplotlib' not in sys.modules\n"
        "from simsched import *\n"
        "graph = OpGraph([Operator('a', time=3.0)])\n"
        "simulate(Schedule(graph, [Placement('a')]), Cluster.preset('a40')).gantt()\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["W" * 64, "\U00041500" * 20, "gpu of a very long name " * 12])
def test_names_of_any_length_leave_most_of_the_width_to_bars(name, tmp_path):
    two = Cluster.preset("a40", 2)
    cluster = Cluster(tuple(replace(device, name=f"{name}{i}") for i, device in enumerate(two.devices)))
    graph = OpGraph(plain(4), name=name)
    ax = simulate(schedule(graph, cluster, "round-robin"), cluster).gantt(tmp_path / "g.png")
    assert ax.get_position().width > 0.6
    assert all("\u2026" in label for label in rows(ax))
    assert len(set(rows(ax))) == 2
    titles = [title for title in (ax.title, ax._left_title, ax._right_title) if title.get_text()]
    assert len(titles) == 2
    ax.figure.draw_without_rendering()
    places = sorted((title.get_window_extent() for title in titles), key=lambda box: box.x0)
    assert places[0].x1 <= places[1].x0
    assert places[1].x1 <= ax.figure.bbox.x1
