"""Speed of reports.

A trace of 10,000 spans: the page is to be written in 3 s, to have 10 MB at most, and to open in Chromium in 2 s, on an
idle machine. That is measured where there is a browser: when something is seen
first, when texts, tables and the Gantt chart in view are, and when Plotly has taken over, so that charts zoom and
answer the pointer.

Playwright listens to every page as a debugger does, for which the engine keeps the stack of each exception that
Plotly's modules throw and catch as they start. So a page is opened as a person opens it, by a session that only asks
for it and for what it says of itself.
"""

import json
import shutil
from contextlib import contextmanager
from time import perf_counter, sleep

import simsched as ss
import workloads


@contextmanager
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        yield browser
        browser.close()


def asked(session, target, script):
    """What a page says to a script, without that anything of it is listened to."""
    got = []
    session.once("Target.receivedMessageFromTarget", lambda event: got.append(json.loads(event["message"])))
    message = {"id": 1, "method": "Runtime.evaluate", "params": {"expression": script, "returnByValue": True}}
    session.send("Target.sendMessageToTarget", {"sessionId": target, "message": json.dumps(message)})
    while not got:
        sleep(0.02)
        session.send("Target.getTargets")  # lets events come in
    return got[0]["result"]["result"].get("value")


def opening(path):
    """Seconds to the first paint, to painted charts and to charts that answer, the least of three."""
    found = []
    entries = "performance.getEntriesByName('{}')[0].startTime / 1000"
    with chromium() as browser:
        session = browser.new_browser_cdp_session()
        for _ in range(3):
            own = session.send("Target.createBrowserContext")
            start = perf_counter()
            size = {"newWindow": True, "width": 1300, "height": 987}  # 900 of them for the page
            page = session.send("Target.createTarget", {"url": path.as_uri(), **own, **size})
            target = session.send("Target.attachToTarget", {**page, "flatten": False})["sessionId"]
            while asked(session, target, "document.documentElement.dataset.ready") != "yes":
                assert perf_counter() - start < 120
            answering = perf_counter() - start
            assert asked(session, target, "innerHeight") == 900
            seen = [asked(session, target, entries.format(name)) for name in ("first-contentful-paint", "painted")]
            found.append((*seen, answering))
            session.send("Target.disposeBrowserContext", own)
    return map(min, zip(*found, strict=True))


def test_report_of_10000_spans(best, note, tmp_path):
    graph, cluster = workloads.random_layered(n_ops=1000, n_layers=42, rng=1), ss.Cluster.preset("a40", 4)
    trace, path = ss.simulate(ss.schedule(graph, cluster, "round-robin"), cluster), tmp_path / "report.html"
    assert 10_000 <= len(trace) <= 15_000
    seconds, _ = best(lambda: ss.write_report(trace, path), 3)
    size = path.stat().st_size
    assert size <= 10e6
    note(spans=len(trace), s=round(seconds, 2), megabytes=round(size / 1e6, 1))
    if shutil.which("chromium"):
        first, painted, answering = opening(path)
        note(s_first_paint=round(first, 2), s_painted=round(painted, 2), s_answering=round(answering, 2))
