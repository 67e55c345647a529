"""Names are data: whatever they hold, no writer lets a character out that commands a terminal, a page or a picture."""

import csv
import io
import json
import logging
import re
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simsched as ss
from simsched.base.errors import SimschedError
from simsched.base.io import write_file
from simsched.base.text import join_lines, printable, printable_lines
from simsched.base.views import as_html
from simsched.cli import printing
from simsched.cli.run import run
from simsched.experiments.comparison import compare
from simsched.experiments.result import plain_text, table_of
from simsched.model.cluster import Cluster
from simsched.show.paper import draw
from simsched.show.results import boxes_of, draw_result
from workloads.formats import read_graph
from workloads.formats import write as write_graph

ESCAPES = [
    "\x1b[2Jx\x1b]0;t\x07",
    "a\x07b",
    "\u202egpj",
    "\u2066a\u2069",
    "\u200e\u200f\u061c",
    "a\u2028b\u2029c",
    "\x7f\x9b31m",
    "a\r\nerror: b",
    "\ud800",
    "\udfff\ud800",
    "\u200b\u2060\ufeff",
    "\ue000\U000e0041",
    "<script>&\"']]>--",
    "$x$ $\\frac$",
    "_hidden",
    "[bold]b[/bold]",
    "=1+1",
    "网络\u3000",
    "%{y} {0} {x}",
    "\\x1b",
    "a\x00b",
    "\ufffe\uffff",
]
WHOLE = [text for text in ESCAPES if not re.search("[\ud800-\udfff]", text)]
names = st.text(st.characters(), min_size=1, max_size=12) | st.sampled_from(ESCAPES)
whole_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(WHOLE)
FREE = Cluster.preset("a100", 2).without_overheads()
slowly = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
pytestmark = pytest.mark.filterwarnings("ignore:Glyph .* missing from")  # of the fonts of this machine


def require_plain(text):
    """Only characters that are seen, and line breaks between lines of ours."""
    odd = {c for c in text if c != "\n" and (unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"))}
    assert not odd
    text.encode()


def graph_of(name):
    """Two operators, of which the second reads from the first, all of whose texts are a name."""
    operators = [ss.Operator(name, name, time=3.0, block=name), ss.Operator(name + "2", "_" + name, time=2.0)]
    return ss.OpGraph(operators, [ss.Edge(name, name + "2", nbytes=8.0)], name)


def schedule_of(name, first="gpu0", second="gpu1"):
    """An operator on each of two devices."""
    return ss.Schedule(graph_of(name), [ss.Placement(name, first), ss.Placement(name + "2", second)], scheduler=name)


def cluster_of(name):
    """Two devices that are called by the name, too."""
    first, second = (replace(device, name=name + device.name) for device in FREE.devices)
    return Cluster((first, second), ((first.name, second.name, FREE.links[0][2]),), name)


@given(st.text(st.characters()))
def test_a_printable_text(text):
    """One line that a file may hold, the text itself where nothing in it is odd, and made once: not escaped again."""
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()
    assert (shown == text) == text.isprintable()
    assert printable(shown) == shown
    assert printable_lines(text) == join_lines(text.split("\n"))
    assert str(SimschedError(text[:100])) == printable(text[:100])


def test_escapes_are_those_of_python():
    assert printable("\x1b[2J\x07\u202e\ud800\U000e0041\n") == r"\x1b[2J\x07\u202e\ud800\U000e0041\n"


@given(name=names)
@settings(max_examples=60)
def test_tables_pairs_and_csv(name):
    """As many lines as there are rows, whatever line breaks a name holds."""
    table = table_of(name, ("a", "b"), [(name, "1"), (name,)], note=[name, "n"])
    text = plain_text(table)
    require_plain(text)
    require_plain(as_html(type("Shown", (), {"table": lambda self: table})()))
    out = io.StringIO()
    rows = [("graph", name), (name, "x")]
    usual, sys.stdout = sys.stdout, out
    try:
        printing.print_pairs(rows)
        printing.say(name, name)
    finally:
        sys.stdout = usual
    require_plain(out.getvalue())
    assert out.getvalue().count("\n") == 4


@given(name=whole_names)
@slowly
def test_pictures(name, tmp_path):
    """Graphs, schedules and traces as SVG, DOT, for Perfetto and in notebooks: well-formed, the name never raw."""
    cluster = cluster_of(name)
    plan = schedule_of(name, *(device.name for device in cluster.devices))
    for shown in (plan.graph, plan):
        for text in (ss.to_svg(shown), ss.to_dot(shown)):
            require_plain(text)
        ET.fromstring(ss.to_svg(shown))
    trace = ss.simulate(plan, cluster)
    trace.gantt(tmp_path / "g.svg")
    ET.parse(tmp_path / "g.svg")
    require_plain((tmp_path / "g.svg").read_text(encoding="utf-8"))
    document = trace.to_perfetto(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text(encoding="ascii")) == document
    require_plain(json.dumps(document, ensure_ascii=False))
    for shown in (plan.graph, plan, trace, cluster):
        require_plain(as_html(shown))


@given(name=whole_names)
@slowly
def test_results_and_pages(name, tmp_path):
    """A comparison, an explanation and samples: printed, drawn, as CSV, as a page."""
    graph = graph_of(name)

    def own(given, cluster, cost):
        return ss.schedule(given, cluster, "lios")

    own.__name__ = name
    found = compare(graph, FREE, [own, "sequential"], jitter=0.1, rng=0, samples=3)
    explained = ss.explain(found.plans["sequential"], FREE)
    for text in (repr(found), repr(explained), str(explained), found.to_csv(), as_html(found), as_html(explained)):
        require_plain(text)
    rows = list(csv.reader(io.StringIO(found.to_csv()), strict=True))
    assert [len(row) for row in rows] == [len(found.columns)] * (1 + len(found.records()))
    for result in (found, explained):
        draw_result(result, tmp_path / "p.svg")
        ET.parse(tmp_path / "p.svg")
        require_plain((tmp_path / "p.svg").read_text(encoding="utf-8"))
    shown = [found, explained, found.traces["sequential"]]
    page = ss.write_report(shown, tmp_path / "r.html", title=name, command=name)
    text = page[: page.index('<script type="text/plain" id="plotly">')]
    require_plain(text)
    reader = HTMLParser()
    reader.feed(text)
    reader.close()
    for data in re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL):
        require_plain(json.dumps(json.loads(data), ensure_ascii=False))


@given(name=whole_names)
@slowly
def test_files_that_are_read_back_keep_the_name(name, tmp_path):
    """JSON and DOT of ours."""
    graph = graph_of(name)
    for path in (tmp_path / "g.json", tmp_path / "g.dot"):
        write_graph(graph, path)
        again = read_graph(path)
        assert (again.names, again.name) == (graph.names, graph.name)
    assert "\x7f" not in (tmp_path / "g.json").read_text(encoding="ascii")


def test_halves_of_characters_end_nothing(tmp_path):
    """Operators cannot have them in their names; graphs can."""
    graph = ss.OpGraph.from_columns(["a", "b"], [0], [1], name="g\udfff", time=[1.0, 2.0])
    plan = ss.schedule(graph, FREE, "lios")
    trace = ss.simulate(plan, FREE)
    found = compare(graph, FREE, ["lios", "sequential"])
    for shown in (
        ss.to_svg(plan, tmp_path / "a.svg"),
        ss.to_dot(plan),
        repr(found),
        as_html(plan),
        as_html(trace),
        found.to_csv(),
        repr(trace),
    ):
        require_plain(shown)
    with pytest.raises(SimschedError, match=r"must not hold half of a character, not 'g\\udfff'$"):
        ss.explain(plan, FREE)
    trace.gantt(tmp_path / "a.pdf")
    trace.to_perfetto(tmp_path / "t.json")
    ss.write_report([found, trace], tmp_path / "r.html")
    ss.write_report(boxes_page(), tmp_path / "r.html")


def boxes_page():
    """A chart of samples whose names are halves of characters."""
    from simsched.show.report.page import Section, figure

    chart = boxes_of({"\ud800": [1.0, 2.0], "_\x1b": [1.0, 3.0]}, "\ud800\x1b")
    draw(chart)
    return Section("\ud800", figure(chart))


@pytest.mark.parametrize(
    "name",
    [
        "\x1b[2Jx\x1b]0;t\x07",
        "a\r\nerror: \x7f\x9b\u2028",
        "\u202e\u2066\u061c\u200b\ufeff",
        "[bold]$x$<b>&'\"",
        "a\x00b",
    ],
)
def test_the_command_line(name, tmp_path, monkeypatch, capsys, caplog):
    """What it prints, in its errors and for files of such names, too."""
    monkeypatch.chdir(tmp_path)
    plan = schedule_of(name)
    plan.graph.save("g.json")
    plan.save("p.json")
    lines = [
        ("compare", "g.json", "--schedulers", "lios,sequential"),
        ("show", "g.json", "--svg", "a.svg"),
        ("show", "g.json", "--json"),
        ("explain", "p.json", "--gpus", "2"),
        ("simulate", "p.json", "--gpus", "2"),
        ("schedule", "g.json"),
        ("compare", name),
        ("compare", "g.json", "--schedulers", name),
        (name,),
        ("simulate", "g.json", f"--{name}"),
        ("report", name, "-o", "r.html"),
        ("list", name),
        ("whatif", "g.json", "--set", name),
        ("study", "run", name, "-o", "f"),
        ("check", name),
        ("convert", "g.json", f"{name.replace('/', '').replace(chr(0), '')}.dot"),
    ]
    for line in lines:
        assert run(list(line)) in (0, 1, 2), line
        for text in capsys.readouterr():
            require_plain(text)


def test_logs_and_ascii_terminals():
    """What the library logs is printed as one line; a terminal that knows ASCII alone gets escapes of the rest."""
    code = (
        "import logging, sys; from simsched.cli.run import run; import simsched.cli.graph\n"
        "from simsched.base.errors import GraphError\n"
        "def warns(*args, **more): logging.getLogger('simsched.x').warning('a %s b', '\\x1b]0;\\nx\\u202e'); raise "
        "GraphError('\\u7f51\\x07')\n"
        "import workloads; workloads.from_spec = warns\n"
        "sys.exit(run(['show', 'squeezenet']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        timeout=100,
        env={"PATH": "", "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 2
    assert done.stderr.decode("ascii").splitlines() == [r"warning: a \x1b]0;\nx\u202e b", r"error: \u7f51\x07"]


def test_a_file_is_not_written_with_half_a_character(tmp_path):
    with pytest.raises(SimschedError, match=r"^cannot write .*a\.txt: "):
        write_file(tmp_path / "a.txt", "\ud800")
    assert not list(tmp_path.iterdir())
    assert logging.lastResort is not None
