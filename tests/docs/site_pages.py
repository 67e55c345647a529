"""The pages of the documentation as the tests read them: text as it is built, headings, links."""

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^(`{3,}|~{3,})")
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]*)\)")


@cache
def extension(name):
    """A module of docs/_ext, which is no package and not on the path."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "_ext" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site():
    """The pages of the site by name, such as background/papers."""
    return {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in sorted(DOCS.rglob("*.md"))}


@cache
def built(path):
    """The text of a page with what its comments stand for; of a page outside of the site, its text."""
    text = path.read_text(encoding="utf-8")
    if path.is_relative_to(DOCS):
        return extension("pages").completed(text, path.relative_to(DOCS).with_suffix("").as_posix())
    return text


def prose(text):
    """The lines of a page that are no code: neither in a fence, nor indented as a block, nor in backticks."""
    lines, fence, blank = [], "", True
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and line.strip() == fence else fence
        elif mark:
            fence = mark[1]
        elif not (blank and line.startswith("    ")):
            lines.append(line)
            blank = not line.strip()
    return lines


def links(text):
    """Where the links and pictures of a page lead."""
    return _LINK.findall("\n".join(re.sub(r"`[^`]*`", "``", line) for line in prose(text)))


def anchors(text):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    found = []
    for line in prose(text):
        if match := re.match(r"#{1,6} (.+)", line):
            heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).replace("`", "").strip().lower()
            slug = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
            twice = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other) is not None for other in found)
            found.append(f"{slug}-{twice}" if twice else slug)
    return found
