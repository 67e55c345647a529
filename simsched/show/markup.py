"""Markup of pages and pictures: it stands in files, as pieces that are filled in."""

import re
from collections.abc import Callable
from functools import cache
from html import escape
from importlib.resources import files
from string import Template


def read_resource(path: str) -> str:
    """Return the text of a file of this package."""
    return files(str(__package__)).joinpath(path).read_text(encoding="utf-8")


def pieces(path: str) -> Callable[..., str]:
    """Return what fills in a piece of a file, each of which stands below a comment with its name.

    What is filled in is escaped, unless its name ends with an underscore: it is markup already.

    >>> pieces("report/page.html")("pair", name="a<b", text="c")
    '<div><dt>a&lt;b</dt><dd>c</dd></div>'
    """

    @cache
    def templates() -> dict[str, Template]:
        _, *parts = re.split(r"<!-- (\w+) -->\n", read_resource(path))
        return {name: Template(text.rstrip("\n")) for name, text in zip(parts[::2], parts[1::2], strict=True)}

    def piece(name: str, /, **given: object) -> str:
        texts = {key: value if key.endswith("_") else escape(str(value)) for key, value in given.items()}
        return templates()[name].substitute(texts)

    return piece
