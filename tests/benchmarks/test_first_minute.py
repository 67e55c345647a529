"""What a stranger waits for: first and second calls of the command line, the making of machine code, and reports.

Of a trace of 10,000 spans the page is to be written in 3 s, to have 10 MB at most, and to open in Chromium in 2 s, on
an idle machine. That is measured where there is a browser: when something is seen first, when texts, tables and the
Gantt chart in view are, and when Plotly has taken over, so that charts zoom and answer the pointer. Playwright listens
to the page as a debugger does, for which the engine keeps the stack of each exception that Plotly's modules throw and
catch as they start: a person waits less.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from report.browser import Opened, launched

import simsched as ss
import workloads
from simsched.base.jit.machine_code import to_object
from simsched.base.jit.pieces import all_pieces

ROOT = Path(ss.__file__).parent.parent


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_calls(best, note, tmp_path, command):
    """Three first ones, each with an empty folder of machine code; then what it made is there."""

    def call(folder):
        environment = os.environ | {"SIMSCHED_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
        asked = [sys.executable, "-m", "simsched", command, "inception_v3", "--gpu", "a100"]
        done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert "inception_v3" in done.stdout

    first = min(best(lambda n=n: call(tmp_path / str(n)), 1)[0] for n in range(3))
    note(command=command, s_first=round(first, 2), s_later=round(best(lambda: call(tmp_path / "0"), 5)[0], 2))


@pytest.mark.parametrize("how", ["O0", "O3"])
def test_all_pieces(best, note, how):
    """One after the other, in one thread."""
    pieces = list(all_pieces(ROOT))
    seconds, sizes = best(lambda: [len(to_object(each.assembly(), how)) for each in pieces], 1)
    assert len(sizes) > 15
    note(how=how, s=round(seconds, 1), nbytes=sum(sizes))


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
    """Seconds to the first paint and to charts that answer."""
    ss.write_report(trace, tmp_path / "report.html")
    answering, opened = best(lambda: Opened(browser, tmp_path / "report.html"), 3)
    first = opened.ask("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000")
    note(s_first_paint=round(first, 2), s_answering=round(answering, 2))
