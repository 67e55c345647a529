"""Speed of reports.

A trace of 10,000 spans: the page is to be written in 3 s, to have 10 MB at most, and to open in Chromium in 2 s, on an
idle machine. That is measured where there is a browser: when something is seen first, when texts, tables and the Gantt
chart in view are, and when Plotly has taken over, so that charts zoom and answer the pointer. Playwright listens to the
page as a debugger does, for which the engine keeps the stack of each exception that Plotly's modules throw and catch as
they start: a person waits less.
"""

import pytest
from report.browser import Opened, launched

import simsched as ss
import workloads


@pytest.fixture(scope="module")
def trace():
    graph, cluster = workloads.random_layered(n_ops=1000, n_layers=42, rng=1), ss.Cluster.preset("a40", 4)
    return ss.simulate(ss.schedule(graph, cluster, "round-robin"), cluster)


@pytest.fixture
def browser():
    yield from launched()


def test_report_of_10000_spans(best, note, trace, tmp_path):
    assert 10_000 <= len(trace) <= 15_000
    seconds, page = best(lambda: ss.write_report(trace, tmp_path / "report.html"), 3)
    assert len(page) <= 10e6
    note(spans=len(trace), s=round(seconds, 2), megabytes=round(len(page) / 1e6, 1))


def test_it_opens(best, note, browser, trace, tmp_path):
    """Seconds to the first paint, to painted charts and to charts that answer."""
    ss.write_report(trace, tmp_path / "report.html")
    answering, opened = best(lambda: Opened(browser, tmp_path / "report.html"), 3)
    entries = "(name) => performance.getEntriesByName(name)[0].startTime / 1000"
    first, painted = (round(opened.ask(entries, name), 2) for name in ("first-contentful-paint", "painted"))
    note(s_first_paint=first, s_painted=painted, s_answering=round(answering, 2))
