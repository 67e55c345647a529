"""How pages look: nothing is cut off, hidden or unreadable in light and dark, in print, and from 400 to 1920 pixels."""

import gallery
import pytest
from browser import Opened, launched

from simsched.show.looks import luminance

# what is wrong, as texts; none where all is well
FAULTS = """() => {
  const found = [], box = (each) => each.getBoundingClientRect();
  const beside = (a, b) => a.right <= b.left + 1 || a.bottom <= b.top + 1;
  const apart = (a, b) => beside(a, b) || beside(b, a);
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the window");
  for (const plot of document.querySelectorAll(".plot")) {
    if (!plot._fullLayout) { if (!plot.closest("[hidden]")) found.push(`${plot.id} is not drawn`); continue; }
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


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return gallery.write(tmp_path_factory.mktemp("gallery"))


@pytest.fixture(scope="module")
def browser():
    yield from launched()


def seen(browser, page, width, **context):
    """The page at a width, everything drawn."""
    opened = Opened(browser, page, size=(width, 900), **context)
    for y in range(0, opened.ask("document.documentElement.scrollHeight"), 600):
        opened.page.mouse.wheel(0, 600)
        opened.page.wait_for_timeout(30 + 0 * y)
    opened.page.wait_for_function(
        "[...document.querySelectorAll('.plot')].every((each) => each.closest('[hidden]') || each._fullLayout)"
    )
    return opened


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (768, "dark"), (1280, "light"), (1920, "dark")])
def test_nothing_is_cut_off_or_hidden(browser, page, width, scheme):
    opened = seen(browser, page, width, color_scheme=scheme)
    assert "\n".join(opened.ask(FAULTS)) == ""
    ink = opened.ask("document.querySelector('.plot')._fullLayout.font.color.match(/[0-9]+/g).map(Number)")
    ground = opened.ask(
        "getComputedStyle(document.querySelector('section')).backgroundColor.match(/[0-9]+/g).map(Number)"
    )
    low, high = sorted(luminance("#" + bytes(each[:3]).hex()) for each in (ink, ground))
    assert (high + 0.05) / (low + 0.05) >= 4.5
    assert opened.said == []
    opened.context.close()


def test_the_main_table_is_seen_without_a_scroll(browser, page):
    """At 1280 by 900 pixels, with percentiles of samples, too: every column, and the five fastest rows."""
    opened = Opened(browser, page, size=(1280, 900), color_scheme="light")
    table = "document.querySelector('.scroll')"
    assert opened.ask(f"{table}.scrollWidth <= {table}.clientWidth")
    assert opened.ask(f"{table}.querySelectorAll('tbody tr')[4].getBoundingClientRect().bottom < 900")
    times = opened.page.locator("table").first.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert times == sorted(times, key=float)
    assert opened.page.locator("table").first.locator("tr.best").count() == 1
    opened.context.close()


def test_the_page_is_printed_whole(browser, page, tmp_path):
    """Light, all tabs, all charts drawn to the width of the paper, and nothing of the controls."""
    opened = seen(browser, page, 1280, color_scheme="dark")
    opened.page.emulate_media(media="print")
    opened.ask("dispatchEvent(new Event('beforeprint'))")
    assert opened.ask("[...document.querySelectorAll('.plot')].every((each) => each._fullLayout)")
    widths = opened.ask("[...document.querySelectorAll('.plot')].map((each) => each._fullLayout.width)")
    assert max(widths) <= 660
    hidden = "[...document.querySelectorAll('nav, .tools, .theme, [role=tablist]')].every((each) => !each.offsetParent)"
    assert opened.ask(hidden)
    assert opened.ask("getComputedStyle(document.querySelector('section')).color") == "rgb(26, 31, 39)"
    assert len(opened.page.pdf(path=tmp_path / "gallery.pdf", format="A4")) > 100_000
    opened.context.close()


def test_pictures_are_no_larger_than_a_page(page):
    from matplotlib.image import imread

    for path in page.parent.glob("*.png"):
        height, width, _ = imread(path).shape
        assert width <= 7.2 * 200
        assert height <= 11 * 200, path.name
        assert width >= 3.5 * 200
