"""A browser for tests of pages, found where it is installed; one for all tests of a process."""

import os
import shutil

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def launched():
    """Yield a browser; without one the test is skipped, or fails where one is required."""
    path = os.environ.get("SIMSCHED_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path, missing = None, "playwright is not installed"
    else:
        missing = f"none of {', '.join(_NAMES)} is installed, and SIMSCHED_CHROMIUM names none"
    if path is None:
        if os.environ.get("SIMSCHED_REQUIRE_BROWSER") == "1":
            pytest.fail(f"a browser is required: {missing}")
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS), timeout=120_000)
        yield browser
        browser.close()


class Opened:
    """A page of a report, with what it said on the console and what it asked the network for."""

    def __init__(self, browser, path, size=(1300, 900), **context):
        self.context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.url = path.as_uri()
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready=yes]", state="attached")

    def ask(self, script, *given):
        return self.page.evaluate(script, *given)
