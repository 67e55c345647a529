"""Markup of pages and pictures: it stands in files, as pieces that are filled in."""

import re
from collections.abc import Callable
from functools import cache
from html import escape
from importlib.resources import files


def read_resource(path: str) -> str:
    """Return the text of a file of this package."""
    return files(str(__package__)).joinpath(path).read_text(encoding="utf-8")


def pieces(path: str) -> Callable[..., str]:
    """Return what fills in a piece of a file, each of which stands below a comment with its name.

    Texts that are filled in for ``{name}`` are escaped, unless it ends with an underscore: they are markup already.

    >>> pieces("report/page.html")("pair", name="a<b", text="c")
    '<div><dt>a&lt;b</dt><dd>c</dd></div>'
    """

    @cache
    def templates() -> dict[str, str]:
        _, *parts = re.split(r"<!-- (\w+) -->\n", read_resource(path))
        return {name: text.rstrip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}

    def piece(name: str, /, **given: object) -> str:
        texts = {k: escape(v) if isinstance(v, str) and not k.endswith("_") else v for k, v in given.items()}
        return templates()[name].format_map(texts)

    return piece
