"""Every relative link of the documentation leads to something that exists."""

import pytest
from site_pages import ROOT, anchors, built, links, prose, site

OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "validation/README.md", "validation/hardware/README.md",
           "examples/README.md")  # fmt: skip
PAGES = sorted({*site().values(), *(ROOT / name for name in OUTSIDE if (ROOT / name).exists())})


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    """As written for a reader of the repository, and as built for one of the site."""
    written = path.read_text(encoding="utf-8")
    assert prose(written)
    for text in {written, built(path)}:
        for target in links(text):
            if "://" in target or target.startswith("mailto:"):
                continue
            file, _, anchor = target.partition("#")
            leads_to = (path.parent / file).resolve() if file else path
            assert leads_to.exists(), f"{path.relative_to(ROOT)}: {target} does not exist"
            if anchor:
                assert anchor in anchors(built(leads_to)), f"{path.relative_to(ROOT)}: no heading of {target}"


def test_links_and_anchors_are_found():
    """A link in code is none; a heading that comes twice gets a number; punctuation is left out."""
    code = "```\n[no](no.md)\n```\n\n    [no](no.md)\n\n"
    text = f"# A `b.c` 1\n[x](y.md#z) `[no](no.md)`\n{code}![p](p.png)\n## Two\n## Two\n"
    assert links(text) == ["y.md#z", "p.png"]
    assert anchors(text) == ["a-bc-1", "two", "two-1"]
