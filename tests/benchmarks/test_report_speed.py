"""Speed of reports: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks/test_report_speed.py -s``.

A trace of 10,000 spans: the page is to be written in 3 s, to have 10 MB at most, and to open in Chromium in 2 s,
texts, tables and the Gantt chart in view painted, on an idle machine. That is measured where there is a browser, and
stands in the extra information, beside when Plotly has taken over, so that charts zoom and answer the pointer.
"""

import shutil
from time import perf_counter

import pytest

import simsched as ss
import workloads

pytestmark = pytest.mark.benchmark


def trace_of(least):
    """A trace of somewhat more than so many spans."""
    graph = workloads.random_layered(n_ops=1000, n_layers=42, rng=1)
    cluster = ss.Cluster.preset("a40", 4)
    trace = ss.simulate(ss.schedule(graph, cluster, "round-robin"), cluster)
    assert least <= len(trace) <= 1.5 * least
    return trace


def opening(path):
    """Seconds to the first paint, to painted charts and to charts that answer, the least of three; and what is said."""
    from playwright.sync_api import sync_playwright

    first, painted, times, said = [], [], [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        for _ in range(3):
            page = browser.new_page(viewport={"width": 1300, "height": 900})
            page.on("console", lambda message: said.append(message.text))
            start = perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=120_000)
            times.append(perf_counter() - start)
            first.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000)
            painted.append(page.evaluate("performance.getEntriesByName('painted')[0].startTime") / 1000)
            page.close()
        browser.close()
    return min(first), min(painted), min(times), said


def test_report_of_10000_spans(benchmark, tmp_path):
    trace, path = trace_of(10_000), tmp_path / "report.html"
    benchmark.pedantic(lambda: ss.write_report(trace, path), rounds=3)
    size = path.stat().st_size
    benchmark.extra_info |= {"spans": len(trace), "MB": size / 1e6}
    assert size <= 10e6
    if shutil.which("chromium"):
        first, painted, answering, said = opening(path)
        assert said == []
        benchmark.extra_info |= {"first_paint_s": first, "painted_s": painted, "answering_s": answering}
    print(benchmark.extra_info)
