"""Reports in a browser: nothing is said or loaded, bars are counted, all that can be done is done, all is seen."""

import numpy as np
import pytest
from browser import Opened, launched
from small import made, placements

import simsched as ss
import workloads
from simsched.experiments.result import table_of
from simsched.model.trace import measured_trace
from simsched.show.chart import Axis, Chart, by_name, luminance
from simsched.show.report import write_report
from simsched.show.report.blocks import Section, figure, gantt, table
from simsched.show.report.sections import sections_of
from simsched.show.results import boxes_of, chart_of

EVIL = "<script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def browser():
    yield from launched()


def evil_graph():
    """Four operators whose names, and whose graph's name, would be scripts."""
    ops = [ss.Operator(f"{EVIL}{i}", time=10.0 * i, kind="</script>", utilization=0.6) for i in (1, 2, 3, 4)]
    return ss.OpGraph(ops, [ss.Edge(ops[0].name, ops[3].name)], name=f"net {EVIL}")


def evil_scheduler(graph, cluster, cost):
    return ss.Schedule(graph, [ss.Placement(name, stream=i % 2) for i, name in enumerate(graph.order)])


evil_scheduler.__name__ = EVIL


@pytest.fixture(scope="module")
def comparison(browser, tmp_path_factory):
    """A comparison of three schedulers, opened; its page is shared by tests that leave it as it was."""
    found = ss.compare(evil_graph(), ss.Cluster.preset("a100"), ["sequential", "lios", evil_scheduler])
    path = tmp_path_factory.mktemp("page") / "comparison.html"
    write_report(found, path)
    opened = Opened(browser, path, color_scheme="light")
    yield found, opened
    opened.context.close()


def to_gantt(opened, nth=0):
    """Scroll to a Gantt chart and wait until it is drawn."""
    plot = opened.page.locator(".gantt .plot").nth(nth)
    plot.scroll_into_view_if_needed()
    opened.page.wait_for_function("n => document.querySelectorAll('.gantt .plot')[n].dataset.drawn", arg=nth)
    return plot


def drawn(opened, kinds=("bars",), nth=0):
    """How many rectangles the filled paths of a chart hold."""
    script = """([nth, kinds]) => [...document.querySelectorAll('.gantt .plot')[nth].querySelectorAll('.trace.scatter')]
      .filter((group) => kinds.includes(group.__data__[0].trace.meta))
      .flatMap((group) => [...group.querySelectorAll('.js-fill')])
      .reduce((n, path) => n + path.getAttribute('d').split('M').length - 1, 0)"""
    return opened.ask(script, [nth, list(kinds)])


def counted(trace, host=False):
    """Spans that have a bar: all on streams, less the waits of copy streams; those of hosts if they are shown."""
    rows = {(span.device, span.stream) for span in trace.spans if span.kind == "kernel"}
    seen = [span for span in trace.spans if span.kind == "copy" or (span.device, span.stream) in rows]
    return len(seen) + host * sum(span.stream is None for span in trace.spans)


def test_names_that_are_scripts_do_nothing(comparison):
    """Graph, operators, kind and scheduler are called like scripts: these are texts, and the title is kept."""
    found, opened = comparison
    assert opened.page.title() == f"{found.graph.name} on a100"
    assert opened.ask("document.querySelectorAll('script:not([type])').length") == 2
    assert EVIL in opened.page.locator("table tbody").first.inner_text()
    to_gantt(opened)
    assert opened.page.title() == f"{found.graph.name} on a100"
    assert opened.said == []
    assert opened.asked == [opened.url]


def test_bars_are_those_of_the_spans(comparison):
    """Every kernel and wait of a stream has its rectangle, and with host threads every span has."""
    found, opened = comparison
    name = opened.page.locator("[role=tab]").first.inner_text()
    trace = found.traces[name]
    to_gantt(opened)
    assert drawn(opened) == counted(trace) >= 4
    assert drawn(opened, ["path"]) == len(trace.critical_path().operators) > 0
    toggle = opened.page.locator("[data-do=host]").first
    toggle.click()
    assert toggle.get_attribute("aria-pressed") == "true"
    assert drawn(opened) == counted(trace, host=True) > counted(trace)
    toggle.click()
    path = opened.page.locator("[data-do=path]").first
    path.click()
    assert drawn(opened, ["path"]) == 0
    path.click()


def first_cells(opened):
    """Those of the rows of the first table, without the mark of the best."""
    cells = opened.page.locator("table tbody").first.locator("tr th").all_inner_texts()
    return [text.split(" \u2605")[0] for text in cells]


def test_tables_sort_by_click_and_key(comparison):
    """Makespans upwards by a click, downwards by Enter; what has no estimate stays last both times."""
    found, opened = comparison
    rows = sorted((*found.baselines, *found.rows), key=lambda row: row.makespan_us)
    us = {row.scheduler + " (slow)" * bool(row.slower_than_one_stream): row.makespan_us for row in rows}
    head = opened.page.locator("table").first.locator("thead th")
    head.nth(2).locator("button").click()
    assert head.nth(2).get_attribute("aria-sort") == "ascending"
    assert [us[name] for name in first_cells(opened)] == sorted(us.values())
    head.nth(2).locator("button").press("Enter")
    assert head.nth(2).get_attribute("aria-sort") == "descending"
    assert [us[name] for name in first_cells(opened)] == sorted(us.values(), reverse=True)
    head.nth(3).locator("button").press(" ")
    assert head.nth(2).get_attribute("aria-sort") == "none"
    missing = next(row.scheduler for row in found.rows if row.estimate_us is None)
    assert first_cells(opened)[-1].startswith(missing)
    head.nth(3).locator("button").press(" ")
    assert first_cells(opened)[-1].startswith(missing)


def test_hover_and_keys_tell_operator_and_blame(comparison):
    """The pointer on the operator that ends last, and the key n, say what it is and where its time went."""
    found, opened = comparison
    trace = found.traces[opened.page.locator("[role=tab]").first.inner_text()]
    last = max(trace.spans, key=lambda span: (span.kind == "kernel") * span.end)
    plot = to_gantt(opened)
    box = plot.locator(".nsewdrag").first.bounding_box()
    rows = 1 + max(span.stream or 0 for span in trace.spans)
    x = (last.start + last.end) / 2 / (1.01 * trace.makespan)
    y = (last.stream + 0.5 + 0.1) / (rows + 0.2)
    opened.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    text = opened.page.locator(".hint").inner_text()
    assert last.op in text
    assert f"stream {last.stream}" in text
    assert all(part in text.partition("blame")[2] for part in ("compute", "on the critical path"))
    plot.focus()
    opened.page.keyboard.press("n")
    spoken = opened.page.locator(".spoken").first.text_content()
    assert all(part in spoken for part in (EVIL, "duration"))
    opened.page.keyboard.press("Escape")
    assert opened.page.locator(".hint").count() == 0


def ranges(opened):
    return opened.ask("document.querySelector('.gantt .plot')._fullLayout.xaxis.range.map(Number)")


def test_zoom_and_pan_by_key_button_and_drag(comparison):
    """`+` halves what is seen, the arrow moves it by a fifth, 0 and the button show all again; a drag zooms, too."""
    _, opened = comparison
    plot = to_gantt(opened)
    a, b = ranges(opened)
    plot.focus()
    opened.page.keyboard.press("+")
    c, d = ranges(opened)
    assert (d - c) == pytest.approx((b - a) / 2)
    opened.page.keyboard.press("ArrowRight")
    assert ranges(opened) == pytest.approx([c + (d - c) / 5, d + (d - c) / 5])
    opened.page.keyboard.press("0")
    assert ranges(opened) == pytest.approx([a, b])
    box = plot.locator(".nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    opened.page.mouse.move(box["x"] + 0.25 * box["width"], y)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 0.75 * box["width"], y, steps=4)
    opened.page.mouse.up()
    opened.page.wait_for_function(
        "w => { const r = document.querySelector('.gantt .plot')._fullLayout.xaxis.range;"
        " return r[1] - r[0] < 0.6 * w }",
        arg=b - a,
    )
    opened.page.locator("[data-do=all]").first.click()
    assert ranges(opened) == pytest.approx([a, b])


def test_tabs_by_arrow_and_theme_by_button(comparison):
    """An arrow opens the next tab and draws its chart; the button turns page and figures dark and back."""
    _, opened = comparison
    tabs = opened.page.locator("[role=tab]")
    tabs.nth(0).focus()
    opened.page.keyboard.press("ArrowRight")
    assert tabs.nth(1).get_attribute("aria-selected") == "true"
    to_gantt(opened, 1)
    tabs.nth(1).press("Home")
    assert tabs.nth(0).get_attribute("aria-selected") == "true"
    colours = """[document.querySelector('.gantt .plot')._fullLayout.font.color,
                  getComputedStyle(document.body).backgroundColor]"""
    light = opened.ask(colours)
    opened.page.locator("button.theme").click()
    assert all(one != other for one, other in zip(light, opened.ask(colours), strict=True))
    opened.page.locator("button.theme").click()
    assert opened.ask(colours) == light


@pytest.fixture(scope="module")
def parts(browser, tmp_path_factory):
    """A page of a measured chart, a line with a crossing and a table of cells of all sorts, opened."""
    cluster = ss.Cluster.preset("a100").without_overheads()
    trace = ss.simulate(ss.Schedule(made("a=10 b=20"), placements("a b/1")), cluster)
    measured = measured_trace(trace.program, cluster, [[1.0, 11.5], [1.0, 21.0]])
    line = figure(Chart("line", {"a": {1: [1.0], 10: [2.0], 100: [3.0]}}, Axis("x", True), upright=(10,)))
    cells = ("b", "2.0", "-", "1 ms", "-3.5", "a10", "", "a9", "-1,000 us", "2.0")
    cells = table(table_of("t", ("n", "v"), [(str(i), cell) for i, cell in enumerate(cells)]))
    path = tmp_path_factory.mktemp("page") / "parts.html"
    write_report([Section("pair", gantt("pair", trace, measured)), Section("more", line, cells)], path)
    opened = Opened(browser, path)
    yield opened
    opened.context.close()


def test_measured_rows_stand_below_simulated_ones(parts):
    """Two operators simulated, two measured."""
    to_gantt(parts)
    assert (drawn(parts), drawn(parts, ["measured"])) == (2, 2)
    assert parts.said == []


def test_columns_of_all_sorts_sort(parts):
    """Numbers, in units too, come before texts; what is missing is last either way; equal rows stay."""
    button = parts.page.locator("thead button").nth(1)
    button.click()
    assert "".join(first_cells(parts)) == "8419375026"
    button.click()
    assert "".join(first_cells(parts)) == "0573194826"


def test_lines_stand_where_the_crossing_is(parts):
    """On a logarithmic axis a line at 10 stands where the axis has 10, not where it has 1."""
    plot = "[...document.querySelectorAll('.plot')].find((each) => !each.closest('.gantt'))"
    parts.ask(f"{plot}.scrollIntoView()")
    parts.page.wait_for_function(f"{plot}.querySelector('.shapelayer path')")
    at, wanted = parts.ask(f"""() => {{ const plot = {plot}, {{ xaxis, _size }} = plot._fullLayout;
      return [Number(plot.querySelector('.shapelayer path').getAttribute('d').match(/M([0-9.]+)/)[1]),
              xaxis.d2p(10) + _size.l]; }}""")
    assert at == pytest.approx(wanted, abs=0.1)


# what is wrong, as texts; none where all is well
FAULTS = """() => {
  const found = [], box = (each) => each.getBoundingClientRect();
  const beside = (a, b) => a.right <= b.left + 1 || a.bottom <= b.top + 1;
  const apart = (a, b) => beside(a, b) || beside(b, a);
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the window");
  for (const plot of document.querySelectorAll(".plot")) {
    if (!plot._fullLayout) { if (!plot.closest("[hidden]")) found.push(`${plot.dataset.kind} is not drawn`); continue; }
    const title = plot.closest("figure").querySelector("figcaption").textContent;
    const [legend, tools, area] = [".legend .bg", ".modebar", ".nsewdrag"].map((each) => plot.querySelector(each));
    if (legend && tools && !apart(box(legend), box(tools))) found.push(`${title}: legend under the tools`);
    if (legend && !apart(box(legend), box(area))) found.push(`${title}: legend over the data`);
    for (const text of plot.querySelectorAll(".ytick text, .xtick text, .xtitle, .ytitle, .legendtext")) {
      const outer = box(plot), inner = box(text);
      if (inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1) {
        found.push(`${title}: "${text.textContent}" is cut off`);
      }
    }
    if (box(area).width < 0.3 * box(plot).width) found.push(`${title}: no room for the data`);
  }
  return found;
}"""


NAMES = ("sequential", "lios", "heft", "ios", "hios-lp", "nimble", "my_package.my_module:round_robin_by_depth")
CAUSES = ("compute", "contention", "launch", "sync", "transfer", "dependency")


def charts():
    """Every kind of chart, with many names, long ones, and values over decades."""
    draw = np.random.default_rng(0).uniform
    numbered = {name: 1 + i for i, name in enumerate(NAMES)}
    speedups = {name: {n: i * draw(0.8, 1.2, 5) for n in (50, 200, 1000)} for name, i in numbered.items()}
    times = {
        name: {10**k: 10 ** (k * i / 3 - 5) * draw(0.9, 1.1, 3) for k in (2, 3, 4)} for name, i in numbered.items()
    }
    bars = {name: {each: draw(1, 4, 4) for each in ("inception_v3", "squeezenet", "randwire")} for name in NAMES[:4]}
    cells = {gpus: {n: 2 ** draw(-1, 2) for n in (50, 200, 1000)} for gpus in (1, 2, 4, 8)}
    points = {name: {name: i * np.array([1.0, draw(0.9, 1.1), 0.95, 1.05])} for name, i in numbered.items()}
    operators, networks, gpus = Axis("operators"), Axis("network"), Axis("GPUs")
    measured, predicted = Axis("measured makespan (ms)"), Axis("predicted makespan (ms)")
    ratio, note = Axis("speedup over sequential"), "mean and standard deviation of 5 instances a point"
    a100 = ss.Cluster.preset("a100")
    asked = ss.what_if(ss.schedule(workloads.load("squeezenet"), a100, "lios"), a100)
    return (
        Chart("line", speedups, Axis("operators", None), ratio, "Lines over sizes", reference=1.0, note=note),
        Chart("line", times, Axis("operators", True), Axis("search time (s)", True), "Growth", geometric=True),
        Chart("bar", by_name({name: draw(1, 4) for name in NAMES}), y=ratio, reference=1.0),
        Chart("bar", bars, networks, ratio, "Bars in groups", reference=1.0),
        boxes_of({name: 1e3 * i * draw(0.95, 1.05, 300) for name, i in numbered.items()}, "Boxes"),
        Chart("box", bars, networks, ratio, "Boxes in groups"),
        Chart("map", cells, operators, gpus, "A map of ratios", reference=1.0, label="speedup"),
        Chart("map", cells, operators, gpus, "A map of values", label="makespan (ms)"),
        Chart("stack", {cause: {name: draw(0, 2) for name in NAMES} for cause in CAUSES}, y=measured, title="Causes"),
        Chart("scatter", points, measured, predicted, "Predicted against measured", hollow=frozenset({"heft"})),
        chart_of(asked.sensitivity()),
        chart_of(asked.sweep("operators.speed", [0.25, 0.5, 1.0, 2.0, 4.0])),
        chart_of(ss.breakeven("overhead.launch", "lios", "sequential", a100, graph=workloads.load("squeezenet"))),
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of a comparison, every kind of chart and a run on two GPUs."""
    graph, two = workloads.load("inception_v3"), ss.Cluster.preset("a40", 2)
    found = ss.compare(graph, ss.Cluster.preset("a100"), "fast", jitter=0.02, rng=0, samples=50)
    both = gantt("Two GPUs", ss.simulate(ss.schedule(graph, two, "hios-lp"), two))
    sections = *sections_of(found), Section("Charts", *map(figure, charts())), Section("Two GPUs", both)
    path = tmp_path_factory.mktemp("gallery") / "gallery.html"
    write_report(sections, path, title="Gallery")
    return path


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "dark"), (1920, "light")])
def test_nothing_is_cut_off_or_hidden(browser, page, width, scheme):
    """On a phone and on a desk, where the main table and its five fastest rows are seen without a scroll; and on paper.

    That is light, with all tabs, all charts drawn to its width, and nothing of the controls.
    """
    opened = Opened(browser, page, size=(width, 900), color_scheme=scheme)
    if width == 1280:
        table = "document.querySelector('.scroll')"
        assert opened.ask(f"{table}.scrollWidth <= {table}.clientWidth")
        assert opened.ask(f"{table}.querySelectorAll('tbody tr')[4].getBoundingClientRect().bottom < 900")
        times = opened.page.locator("table").first.locator("tbody tr td:nth-child(3)").all_inner_texts()[3:]
        assert times == sorted(times, key=float)  # below the deployments on one stream
        assert opened.page.locator("table").first.locator("tr.best").count() == 1
    for _ in range(0, opened.ask("document.documentElement.scrollHeight"), 600):
        opened.page.mouse.wheel(0, 600)
        opened.page.wait_for_timeout(30)
    opened.page.wait_for_function(
        "[...document.querySelectorAll('.plot')].every((each) => each.closest('[hidden]') || each._fullLayout)"
    )
    assert "\n".join(opened.ask(FAULTS)) == ""
    colours = opened.ask("""[document.querySelector('.plot')._fullLayout.font.color,
        getComputedStyle(document.querySelector('section')).backgroundColor].map((each) => each.match(/[0-9]+/g))""")
    low, high = sorted(luminance("#" + bytes(map(int, each[:3])).hex()) for each in colours)
    assert (high + 0.05) / (low + 0.05) >= 4.5
    assert opened.said == []
    if width == 1280:
        opened.page.emulate_media(media="print")
        opened.ask("dispatchEvent(new Event('beforeprint'))")
        assert opened.ask("[...document.querySelectorAll('.plot')].every((each) => each._fullLayout.width <= 660)")
        controls = "[...document.querySelectorAll('nav, .tools, .theme, [role=tablist]')]"
        assert opened.ask(f"{controls}.every((each) => !each.offsetParent)")
        assert opened.ask("getComputedStyle(document.querySelector('section')).color") == "rgb(26, 31, 39)"
        assert opened.ask("getComputedStyle(document.querySelector('.legend i')).printColorAdjust") == "exact"
    opened.context.close()
