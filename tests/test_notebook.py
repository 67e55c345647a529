"""What notebooks show: valid HTML of nothing but our own marks, small, and in the colours of the page."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import by_stream, edges, one_stream, operators
from strategies import graphs

import simsched as ss
import workloads
from simsched.base.errors import SchedulerError
from simsched.base.views import as_html
from simsched.experiments.comparison import compare
from simsched.experiments.result import table_of
from simsched.model import Cluster, Edge, Operator, OpGraph

FREE = Cluster.preset("a100", 2).without_overheads()
FORK = OpGraph(
    [Operator("a", "conv", time=10.0), *operators("b=20 c=20 d=20", utilization=0.25)], edges("ab:5 ac:5 ad:5"), "fork"
)
NASTY = "<script>alert(1)</script>&\"'\x00\u202e"


def page(shown):
    """The root of what is shown: every tag is closed in order, and none runs, loads or is named.

    A picture, which holds its bytes itself, is but its tag.
    """
    text = shown._repr_html_()
    assert all(character.isprintable() or character == "\n" for character in text)
    plain = re.sub(' src="data:image/png;base64,iVBOR[\\w+/=]*">', "/>", text)
    root = ET.fromstring(re.sub(' xmlns="[^"]*"', "", plain).replace("<br>", "<br/>"))
    assert not {"script", "style", "link", "iframe"} & set(tags(root))
    assert not [name for each in root.iter() for name in each.attrib if re.match("on|(id|href|src)$", name)]
    return root


def tags(root):
    return [each.tag for each in root.iter()]


def cells(root):
    """Texts of tables, joined where a cell has several."""
    return [text for text in root.itertext() if text.strip()]


def test_a_graph():
    """The work is 10 + 3 x 20 = 70 us; four boxes, paper and two colours of the legend are seven rectangles."""
    found = page(FORK)
    title, *said = cells(found)
    assert title == "OpGraph fork"
    pairs = dict(zip(said[:22:2], said[1:22:2], strict=True))
    assert (pairs["operators"], pairs["kinds"]) == ("4", "3 op, 1 conv")
    assert (pairs["edges"], pairs["depth"], pairs["width"], pairs["work"]) == ("3", "2", "3", "70 us")
    assert (tags(found).count("svg"), tags(found).count("rect")) == (1, 7)


def test_a_schedule():
    """lios has a and one of the others on one stream, the other two on streams of their own."""
    plan = ss.schedule(FORK, FREE, "lios")
    found = page(plan)
    said = cells(found)
    assert {"lios", "events", "30 us"} <= set(said)
    at = said.index("in launch order") + 1
    rows = [("gpu0", str(s), str(len(ops.split())), ops.replace(" ", ", ")) for s, ops in enumerate(by_stream(plan))]
    assert said[at : at + 12] == [text for row in rows for text in row]
    assert tags(found).count("svg") == 1


def test_a_cluster_and_makespans():
    said = " ".join(cells(page(Cluster.preset("a100", 2))))
    assert all(text in said for text in ("gpu0, gpu1", "108 SMs", "1,555 GB/s", "launch_latency"))
    drawn = page(ss.simulate_many(ss.schedule(FORK, FREE, "lios"), FREE, 5, jitter=0.0, rng=0))
    assert " ".join(cells(drawn)) == "5 makespans p50 30 us p95 30 us p99 30 us mean 30 us std 0 us"


def test_a_trace():
    """Of 30 us all are compute."""
    found = page(ss.simulate(ss.schedule(FORK, FREE, "lios"), FREE))
    assert "2 operators: compute 100.0 %" in cells(found)
    assert tags(found).count("img") == 1


def test_a_comparison_has_its_best_row_marked():
    def refuses(graph, cluster, cost):
        raise SchedulerError("refuses: <b>too</b> many")

    found = page(compare(FORK, FREE, ["sequential", "lios", refuses], jitter=0.1, rng=0, samples=3))
    (best,) = [row for row in found.iter("tr") if row.get("style") == "font-weight:bold"]
    assert {"lios", "30.0"} <= set(cells(best))
    assert {"refuses: no schedule: refuses: <b>too</b> many", "fork on 2 x a100"} <= set(cells(found))
    assert tags(found).count("tr") == 4 + 3  # deployments on one stream


@pytest.mark.filterwarnings("ignore:Glyph")  # no font has all that names may hold
def test_nothing_is_taken_for_markup():
    """Names of all kinds come back as texts, less what no page may hold."""
    rows = [Operator(NASTY, NASTY, time=3.0), Operator("[bold]b[/bold] &amp;", time=2.0, utilization=1.0)]
    graph = OpGraph(rows, [Edge(NASTY, "[bold]b[/bold] &amp;")], NASTY)
    cluster = Cluster(FREE.devices[:1], (), NASTY)
    plan = one_stream(graph, scheduler=NASTY)
    trace = ss.simulate(plan, cluster)
    for shown in (graph, plan, trace, compare(graph, cluster, ["lios"])):
        assert "alert(1)" in "".join(cells(page(shown)))
    assert "[bold]b[/bold] &amp;" in "".join(cells(page(graph)))


@settings(max_examples=6)
@given(graph=graphs(max_ops=6), n=st.integers(1, 3), overheads=st.booleans())
def test_any_graph_and_what_runs_it(graph, n, overheads):
    cluster = Cluster.preset("a40", n)
    cluster = cluster if overheads else cluster.without_overheads()
    plan = ss.schedule(graph, cluster, "round-robin")
    trace = ss.simulate(plan, cluster)
    for shown in (graph, plan):
        assert tags(page(shown)).count("svg") == 1
    assert tags(page(trace)).count("img") == 1


def test_pictures_of_much_are_left_out():
    """Of 300 operators there is no drawing, of 120,000 no spans are made: facts alone, in some kB."""
    graph = workloads.load("random:layered", n_ops=300, n_layers=20)
    plan = ss.schedule(graph, FREE, "round-robin")
    assert "svg" not in tags(page(graph)) + tags(page(plan))
    many = OpGraph.from_columns([f"o{i}" for i in range(120_000)], [], [], time=1.0)
    plan = ss.schedule(many, FREE, "round-robin", streams=50)
    trace = ss.simulate(plan, FREE)
    for shown in (many, plan, trace):
        assert len(shown._repr_html_()) < 20_000
        assert not {"svg", "img"} & set(tags(page(shown)))
    assert "_spans" in vars(trace)
    assert {"...", "76 more"} <= set(cells(page(plan)))


def test_other_results_show_their_table():
    class Found:
        def table(self):
            return table_of("<t>", ("name", "us"), [("[x]", "1 < 2")])

        def _repr_html_(self):
            return as_html(self)

    assert cells(page(Found())) == ["<t>", "name", "us", "[x]", "1 < 2"]
    assert Found()._repr_html_().count("text-align:right") == 2


def test_colours_are_those_of_the_page():
    """Outside of drawings, which have paper of their own, no colour of text or background is set."""
    trace = ss.simulate(ss.schedule(FORK, FREE, "lios"), FREE)
    for shown in (trace, compare(FORK, FREE, ["lios"])):
        text = shown._repr_html_()
        assert "background" not in text
        assert re.findall(r"[^-]color:(\w+)", text) in ([], ["inherit"])


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    plan = ss.schedule(FORK, FREE, "sequential")
    trace = ss.simulate(plan, FREE)
    ops, rows, spans = (shown.to_pandas() for shown in (FORK, plan, trace))
    assert all(isinstance(frame, pandas.DataFrame) for frame in (ops, rows, spans))
    assert (list(ops["name"]), ops["time"].sum()) == (["a", "b", "c", "d"], 70.0)
    assert list(rows["op"]) == ["a", "b", "c", "d"]
    assert (spans["end"] - spans["start"]).tolist() == [10.0, 20.0, 20.0, 20.0]


def test_pages_need_neither_matplotlib_nor_pandas():
    code = """
import sys
import simsched as ss
cluster = ss.Cluster.preset("a100")
plan = ss.schedule(ss.OpGraph([ss.Operator("a", time=3.0)]), cluster, "sequential")
for shown in (plan.graph, plan):
    assert "svg" in shown._repr_html_()
print(*sorted(name for name in ("matplotlib", "pandas", "plotly", "rich") if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_study_shows_what_it_varies():
    study = ss.Study(NASTY[:8], ["lios", "heft"], {"kind": "layered", "n_ops": [10, 20]}, {"gpu": "a40"}, seeds=3)
    texts = [text for text in page(study).itertext() if text.strip()]
    assert "lios, heft" in texts
    assert "3 of each workload" in texts
    assert "12" in texts
