"""What notebooks show: valid HTML of nothing but our own marks, small, and in the colours of the page."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

import simsched as ss
import workloads
from simsched.base.errors import SchedulerError
from simsched.base.shown import as_html
from simsched.experiments.comparison import compare
from simsched.model import Cluster, Edge, Operator, OpGraph

FREE = Cluster.preset("a100", 2).without_overheads()
FORK = OpGraph(
    [Operator("a", "conv", time=10.0)] + [Operator(n, time=20.0, utilization=0.25) for n in "bcd"],
    [Edge("a", n, transfer=5.0) for n in "bcd"],
    "fork",
)
VOID = ("br", "input")
NASTY = "<script>alert(1)</script>&\"'\x00\u202e"


class Page(HTMLParser):
    """Checks that every tag is closed in order and collects what there is."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "style", "link", "img", "iframe")
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("id", "href", "src")]
        self.tags.append(tag)
        self.attributes += [(tag, dict(attrs))]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(self.texts)

    def cells(self):
        """Texts of tables, joined where a cell has several."""
        return [text for text in self.texts if text.strip()]


def page(shown):
    text = shown._repr_html_()
    assert all(character.isprintable() or character == "\n" for character in text)
    return Page(text)


def bars(found):
    """The rectangles of kernels and copies, in order; those of the legend are 12 high."""
    return [a for tag, a in found.attributes if tag == "rect" and "fill" in a and a["height"] != "12"]


def test_a_graph():
    """The work is 10 + 3 x 20 = 70 us; four boxes, paper and two colours of the legend are seven rectangles."""
    found = page(FORK)
    cells = found.cells()
    assert cells[0] == "OpGraph fork"
    pairs = dict(zip(cells[1:23:2], cells[2:23:2], strict=True))
    assert (pairs["operators"], pairs["kinds"]) == ("4", "3 op, 1 conv")
    assert (pairs["edges"], pairs["depth"], pairs["width"], pairs["work"]) == ("3", "2", "3", "70 us")
    assert found.tags.count("svg") == 1
    assert found.tags.count("rect") == 7


def test_a_schedule():
    """lios has a and one of the others on one stream, the other two on streams of their own."""
    plan = ss.schedule(FORK, FREE, "lios")
    found = page(plan)
    assert {"lios", "events", "30 us"} <= set(found.cells())
    rows = {stream: [] for stream in range(3)}
    for row in plan.placements:
        rows[row.stream].append(row.op)
    cells = found.cells()
    at = cells.index("in launch order") + 1
    assert cells[at : at + 12] == [
        text for stream, names in rows.items() for text in ("gpu0", str(stream), str(len(names)), ", ".join(names))
    ]
    assert found.tags.count("svg") == 1


def test_a_cluster_and_makespans():
    found = page(Cluster.preset("a100", 2))
    assert all(text in found.text for text in ("gpu0, gpu1", "108 SMs", "1,555 GB/s", "launch_latency"))
    drawn = page(ss.simulate_many(ss.schedule(FORK, FREE, "lios"), FREE, 5, jitter=0.0, rng=0))
    assert drawn.cells() == ["5 makespans", "p50", "30 us", "p95", "30 us", "p99", "30 us", "mean", "30 us",
                             "std", "0 us"]  # fmt: skip


def test_a_trace():
    """Of 30 us all are compute; a takes the first third of the chart, whose bars are four."""
    trace = ss.simulate(ss.schedule(FORK, FREE, "lios"), FREE)
    found = page(trace)
    assert "2 operators: compute 100.0 %" in found.cells()
    drawn = bars(found)
    assert len(drawn) == 4
    widths = sorted(float(bar["width"]) + 0.5 for bar in drawn)
    assert widths == pytest.approx([widths[0], 2 * widths[0], 2 * widths[0], 2 * widths[0]], abs=0.2)
    assert "a: kernel, 0.0 to 10.0 us" in found.texts


def test_copies_and_waits_are_drawn_and_streams_of_two_devices_told_apart():
    """b on the other device waits for a copy of 5 us: from 10 to 15 on a thin row of its own."""
    plan = ss.Schedule(FORK, [ss.Placement("a"), *(ss.Placement(n, "gpu1", i) for i, n in enumerate("bcd"))])
    found = page(ss.simulate(plan, FREE))
    assert "a -> gpu1: copy, 10.0 to 15.0 us" in found.texts
    assert {"gpu0 stream 0", "gpu1 stream 2", "gpu0 copy to gpu1", "copy"} <= set(found.texts)
    assert any(text.endswith(": wait, 0.0 to 15.0 us") for text in found.texts)


def test_a_comparison_has_its_best_row_marked():
    def refuses(graph, cluster, cost):
        raise SchedulerError("refuses: <b>too</b> many")

    text = compare(FORK, FREE, ["sequential", "lios", refuses], jitter=0.1, rng=0, samples=3)._repr_html_()
    found = Page(text)
    (best,) = re.findall(r'<tr style="font-weight:bold">(.*?)</tr>', text)
    assert "lios" in best
    assert "30.0" in best
    assert "refuses: no schedule: refuses: <b>too</b> many" in found.cells()
    assert "fork on 2 x a100" in found.cells()
    assert found.tags.count("tr") == 4


def test_nothing_is_taken_for_markup():
    """Names of all kinds come back as texts, less what no page may hold."""
    operators = [Operator(NASTY, NASTY, time=3.0), Operator("[bold]b[/bold] &amp;", time=2.0, utilization=1.0)]
    graph = OpGraph(operators, [Edge(NASTY, "[bold]b[/bold] &amp;")], NASTY)
    cluster = Cluster(FREE.devices[:1], (), NASTY)
    plan = ss.Schedule(graph, [ss.Placement(op.name) for op in operators], scheduler=NASTY)
    for shown in (graph, plan, ss.simulate(plan, cluster), compare(graph, cluster, ["lios"])):
        found = page(shown)
        assert "alert(1)" in found.text
        assert "script" not in found.tags
    assert "[bold]b[/bold] &amp;" in page(ss.simulate(plan, cluster)).text


@settings(max_examples=6)
@given(graph=graphs(max_ops=6), n=st.integers(1, 3), overheads=st.booleans())
def test_any_graph_and_what_runs_it(graph, n, overheads):
    cluster = Cluster.preset("a40", n)
    cluster = cluster if overheads else cluster.without_overheads()
    plan = ss.schedule(graph, cluster, "round-robin")
    trace = ss.simulate(plan, cluster)
    for shown in (graph, plan):
        assert page(shown).tags.count("svg") == 1
    assert page(trace).tags.count("svg") == (trace.makespan > 0)


def test_pictures_of_much_are_left_out():
    """Of 300 operators there is no drawing, of 120,000 no spans are made: facts alone, in some kB."""
    graph = workloads.load("random:layered", n_ops=300, n_layers=20)
    plan = ss.schedule(graph, FREE, "round-robin")
    assert "svg" not in page(graph).tags + page(plan).tags
    assert page(ss.simulate(plan, FREE)).tags.count("svg") == 1
    many = OpGraph.from_columns([f"o{i}" for i in range(120_000)], [], [], time=1.0)
    plan = ss.schedule(many, FREE, "round-robin", streams=50)
    trace = ss.simulate(plan, FREE)
    for shown in (many, plan, trace):
        text = shown._repr_html_()
        assert len(text) < 20_000
        assert "svg" not in Page(text).tags
    assert "_spans" in vars(trace)
    assert {"...", "76 more"} <= set(page(plan).cells())


def test_other_results_show_their_table():
    class Found:
        def table(self):
            from rich.table import Table
            from rich.text import Text

            table = Table("name", "us", title="[bold]<t>[/bold]")
            table.columns[1].justify = "right"
            table.add_row(r"\[x]", Text("1 < 2"))
            return table

    text = as_html(Found())
    assert Page(text).cells() == ["<t>", "name", "us", "[x]", "1 < 2"]
    assert text.count("text-align:right") == 2


def test_colours_are_those_of_the_page():
    """Outside of drawings, which have paper of their own, no colour of text or background is set."""
    trace = ss.simulate(ss.schedule(FORK, FREE, "lios"), FREE)
    for shown in (trace, compare(FORK, FREE, ["lios"])):
        text = shown._repr_html_()
        assert "background" not in text
        assert re.findall(r"[^-]color:(\w+)", text) in ([], ["inherit"])
        assert not re.search(r'<text[^>]*fill="#(?!0{6}|f{6})', text)  # black or white on a bar, else of the page


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    plan = ss.schedule(FORK, FREE, "sequential")
    trace = ss.simulate(plan, FREE)
    operators, placements, spans = FORK.to_pandas(), plan.to_pandas(), trace.to_pandas()
    assert all(isinstance(frame, pandas.DataFrame) for frame in (operators, placements, spans))
    assert (list(operators["name"]), operators["time"].sum()) == (["a", "b", "c", "d"], 70.0)
    assert list(placements["op"]) == ["a", "b", "c", "d"]
    assert (spans["end"] - spans["start"]).tolist() == [10.0, 20.0, 20.0, 20.0]


def test_pages_need_neither_matplotlib_nor_pandas():
    code = """
import sys
import simsched as ss
graph = ss.OpGraph([ss.Operator("a", time=3.0)])
plan = ss.Schedule(graph, [ss.Placement("a")])
import simsched.show.notebook
for shown in (graph, plan, ss.simulate(plan, ss.Cluster.preset("a100"))):
    assert "svg" in shown._repr_html_()
print(*sorted(name for name in ("matplotlib", "pandas", "plotly", "rich") if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
