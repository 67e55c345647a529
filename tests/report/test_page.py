"""Pages as text: what each kind of result says, what is how names are escaped, what can be read."""

import json
import re
from importlib.resources import files
from itertools import product

import pytest
from small import made, operators, placements

import simsched as ss
import workloads
from simsched.base.errors import FileError, MissingDependencyError, ReportError
from simsched.experiments.comparison import Comparison
from simsched.experiments.result import table_of
from simsched.experiments.rows import Row
from simsched.model.trace import measured_trace
from simsched.show.chart import Axis, Chart, luminance
from simsched.show.gantt import gantt_data
from simsched.show.report import write_report
from simsched.show.report.blocks import Section, figure, json_text, pairs, table, tabs, text
from simsched.show.report.figures import figure_of
from simsched.show.report.sections import replay_sections

CLUSTER = ss.Cluster.preset("a100")


FREE = CLUSTER.without_overheads()
# a before b and c, the latter on a stream of its own
FORK = ss.Schedule(made("a=10 b=30 c=20", "ab ac"), placements("a b c/1"))
TRACE = ss.simulate(FORK, FREE)
MEASURED = measured_trace(TRACE.program, CLUSTER, [[0.0, 11.0], [11.0, 45.0], [12.0, 31.0]])


def text_of(page):
    """What a page says, without its scripts, styles and tags."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def test_a_comparison_where_nothing_ran_says_so():
    refused = Comparison(FORK.graph, CLUSTER, (Row("ios", reason="too large"),), {}, {})
    page = text_of(write_report(refused))
    assert "No scheduler found a schedule" in page
    assert "ios: no schedule: too large" in page


def test_a_comparison_names_its_choice_and_says_why():
    found = ss.compare(FORK.graph, CLUSTER, ["sequential", "lios"], jitter=0.1, rng=0, samples=20)
    page = write_report(found, title="Mine", command="simsched report fork.json")
    said = text_of(page)
    assert "lios is simulated fastest:" in said
    assert said.count("\u2605 fastest") == 1
    for part in ("What bounds it", "20 samples, jitter 10 %, seed 0", "Workload", "simsched report fork.json", "Mine"):
        assert part in said


def test_bars_and_critical_path_by_hand():
    """Without overheads a runs 0 to 10, b 10 to 40 beside c 10 to 30: b and a are the path, each bar lasts its time."""
    found = gantt_data([TRACE])
    bars = {found["names"][n]: i for i, n in enumerate(found["bars"]["name"]) if found["names"][n] in "abc"}
    columns = {key: [found["bars"][key][bars[op]] for op in "abc"] for key in ("start", "dur", "alone", "wait", "path")}
    assert columns == {
        "start": [0.0, 10.0, 10.0],
        "dur": [10.0, 30.0, 20.0],
        "alone": [10.0, 30.0, 20.0],
        "wait": [0.0, 0.0, 0.0],
        "path": [1, 1, 0],
    }
    assert [row["label"] for row in found["rows"]] == ["stream 0", "stream 1"]
    assert (found["unit"], found["makespans"]) == ("us", [40.0])


def test_measured_rows_stand_below_simulated_ones():
    found = gantt_data([TRACE, MEASURED])
    labels = ["stream 0 simulated", "stream 0 measured", "stream 1 simulated", "stream 1 measured"]
    assert [row["label"] for row in found["rows"]] == labels
    assert [row["measured"] for row in found["rows"]] == [0, 1, 0, 1]


def test_loads_of_a_few_devices_are_drawn():
    """Five operators of full load, one on each of five devices, together: the load is 1 until they end."""
    graph = made(operators("a=10 b=10 c=10 d=10 e=10", utilization=1.0))
    cluster = ss.Cluster.preset("a100", 5).without_overheads()
    found = gantt_data([ss.simulate(ss.Schedule(graph, placements("a b@1 c@2 d@3 e@4")), cluster)])
    assert [load["device"] for load in found["loads"]] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert found["loads"][0] == {"device": "gpu0", "time": [0.0, 10.0], "sm": [1.0, 0.0], "dram": [0.0, 0.0]}
    assert found["notes"] == ["loads of the first 4 of 5 devices"]


def test_cells_sort_by_number_and_read_in_units():
    rows = (("<a>", "1.500", "-"), ("b", "2 ms", "25.0 %"))
    html = table(table_of("t", ("name", "us", "sha-\nre"), rows, best=1, note="n & m"))
    for part in (
        'data-v="1.5">1.500<',
        'data-v="">-<',
        '"2000.0">2 ms<',
        'data-v="25.0">25.0 %<',
        "&lt;a&gt;",
        "n &amp; m",
        ">share<",
    ):
        assert part in html
    assert html.count('aria-sort="none"') == 3
    assert "\u2605 best" in html.partition("b")[2]


def test_no_text_ends_the_script_it_stands_in():
    nasty = "</script><!-- \u2028 & <b>"
    assert not set(json_text([nasty])) & set("<>&\u2028")
    assert json.loads(json_text([nasty])) == [nasty]
    blocks = (
        text(nasty),
        pairs(nasty, [(nasty, nasty)]),
        tabs(nasty, {nasty: text(nasty, "note")}),
        figure(Chart("bar", {nasty: {nasty: 1.0}}, title=nasty)),
    )
    page = write_report(Section(nasty, *blocks), title=nasty)
    assert nasty not in page
    assert page.count("</script>") == 3  # the page's own, the library, and the figure's numbers


def test_pages_are_alike_but_for_their_date():
    said = Section("s", text("t"))
    first, second = (re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", write_report(said)) for _ in range(2))
    assert first == second
    assert len(first) < 100_000  # nothing is drawn, so nothing that draws is in it
    assert first.count("<h1>") == 1
    assert [int(h) for h in re.findall(r"<h(\d)[ >]", first)] == [1, 2, 2]
    assert '<html lang="en">' in first
    assert "http" not in first.replace("http-equiv", "")


def test_what_cannot_be_reported_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ReportError, match="no report is known of a int"):
        write_report(3)
    with pytest.raises(ReportError, match="nothing to report"):
        write_report([])
    with pytest.raises(FileError, match="cannot write"):
        write_report(Section("s"), tmp_path / "missing" / "page.html")
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'simsched\[report\]'"):
        write_report(ss.simulate(FORK, CLUSTER))


def test_analyses_have_sections():
    """Each kind of analysis says its main figure in words; of the fork, b and a alone bound the 40 us."""
    asked, other = ss.what_if(FORK, FREE), ss.schedule(FORK.graph, FREE, "sequential")
    results = {
        "graph takes 20 us instead of 40 us: 20 us less, 2 times as fast.": asked.operators(speed=2.0),
        "What the makespan depends on: graph on a100": ss.sensitivity(asked),
        "What bounds it": ss.explain(FORK, FREE),
        "When times vary": ss.robust([FORK, other], FREE, jitter=0.1, samples=30, rng=0),
        "requests per second": ss.throughput(FORK, FREE, 2),
        "40 us without changes": asked.sweep("operators.speed", [0.5, 1.0, 2.0]),
        "device.sms": asked.sweep("operators.speed", [1.0, 2.0], "device.sms", [1.0]),
        "no crossing between": ss.breakeven("operators.speed", FORK, other, FREE),
    }
    page = text_of(write_report(list(results.values())))
    assert [part for part in results if part not in page] == []


def test_replays_and_traces_have_sections():
    replay = ss.Replay((44.0, 50.0), MEASURED, {"device": "a <card>"}, name="lios")
    page = text_of(write_report([TRACE, replay]))
    assert "47 us, median" in page
    assert "a &lt;card&gt;" in page
    assert "Simulated 40 us, measured 47 us: -14.9 %." in text_of(write_report(list(replay_sections(replay, TRACE))))


def palette():
    """Colours of the style sheet as (light, dark) by name."""
    style = (files("simsched.show.report") / "page.css").read_text(encoding="utf-8")
    return {name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", style)}


INKS = [
    *product(("text", "soft", "accent"), ("ground", "panel", "raised")),
    ("text", "good-ground"),
    ("text", "warn-ground"),
    ("good", "good-ground"),
    ("warn", "panel"),
    ("on-accent", "accent"),
]


@pytest.mark.parametrize(("ink", "ground"), INKS)
def test_texts_stand_out_from_their_ground(ink, ground):
    """WCAG AA asks for a contrast of 4.5, the ratio of luminances, each with 0.05 added."""
    colours = palette()
    for scheme in (0, 1):
        low, high = sorted(luminance(colours[name][scheme]) for name in (ink, ground))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground, scheme)


def test_texts_are_categories_and_no_templates():
    """Devices called like numbers or dates keep their names; ``%{y}`` in a name is not replaced."""
    *_, drawn = figure_of(Chart("line", {"%{y}": {"1": [1.0], "2024-01-01": [2.0]}}, Axis("x", True)))
    assert drawn["layout"]["xaxis"]["type"] == "category"
    assert drawn["data"][0]["hovertemplate"].startswith("&#37;{y}: ")
    assert figure_of(Chart("bar", {"1": {None: 1.0}}))[-1]["layout"]["yaxis"]["type"] == "category"
    *_, drawn = figure_of(Chart("bar", {"a": {None: (1.0, 9.0)}}, y=Axis("", True)))
    assert drawn["layout"]["xaxis"]["type"] == "log"


def test_what_a_page_cannot_hold():
    with pytest.raises(ReportError, match="not finite"):
        json_text([float("nan")])
    assert r"a\ud800b" in write_report(Section("a\ud800b"))


def test_what_a_chart_leaves_out_is_said(monkeypatch):
    """Of a fork what starts before its first kernel ends."""
    trace = ss.simulate(FORK, CLUSTER)
    assert gantt_data([trace])["notes"] == []
    monkeypatch.setattr("simsched.show.gantt.MOST_BARS", 1)
    found = gantt_data([trace])
    assert found["until"] < trace.makespan
    assert all(start <= found["until"] for start in found["bars"]["start"])
    page = text_of(write_report(trace))
    assert "the first 1 of " in page


def test_of_many_devices_a_few_are_named():
    """Of 64 devices as many are named as a cell has room for, and one peak of memory is given."""
    cluster = ss.Cluster.preset("a100", 64)
    page = text_of(write_report(ss.simulate(ss.schedule(FORK.graph, cluster, "round-robin"), cluster)))
    assert re.search(r"64: gpu0, gpu1, [gpu0-9, ]{150,200} \.\.\.", page)
    assert "on gpu0, at most as much on the other 63 devices" in page


def test_a_search_that_took_no_time_has_no_place_on_a_logarithmic_axis(tmp_path):
    """The page says so in the place of the figure, and shows the rest."""
    study = ss.Study(
        "small",
        ["sequential", "lios"],
        {"kind": "layered", "n_ops": [12, 16], "n_layers": 4},
        {"gpu": "a40"},
        figure=[{"kind": "search-time"}, {"kind": "line", "x": "n_ops"}],
    )
    first, *others = ss.run_study(study, tmp_path, load=workloads.load_kind, executor="serial").rows
    page = write_report(ss.Results(study, ({**first, "wall.search_s": 0.0}, *others)))
    assert "is not drawn: figure 1: a logarithmic axis has no place for 0 of" in text_of(page)
    assert page.count('class="plot') == 1
