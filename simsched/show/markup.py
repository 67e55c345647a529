"""Markup of pages and pictures: pieces of it in files, which are filled in; texts that can be printed."""

import re
from collections.abc import Callable
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

from simsched.base import text as base


def read_resource(path: str) -> str:
    """Return the text of a file of this package."""
    return files(str(__package__)).joinpath(path).read_text(encoding="utf-8")


def pieces(path: str) -> Callable[..., str]:
    """Return the pieces of a file by name; a comment with the name precedes each piece.

    Texts that are filled in for ``{name}`` are made printable and escaped, unless it ends with an underscore: they are
    markup already.

    >>> pieces("report/page.html")("pair", name="a<b", text="c")
    '<div><dt>a&lt;b</dt><dd>c</dd></div>'
    """

    @cache
    def templates() -> dict[str, str]:
        _, *parts = re.split(r"<!-- (\w+) -->\n", read_resource(path))
        return {name: text.rstrip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}

    def piece(name: str, /, **given: object) -> str:
        texts = {k: _escape(v) if isinstance(v, str) and not k.endswith("_") else v for k, v in given.items()}
        return templates()[name].format_map(texts)

    return piece


def _escape(text: str) -> str:
    return escape(base.printable_lines(text))


_LONGEST: Final = 400  # characters of a name in a tooltip


def printable(text: str) -> str:
    r"""Return a text as a label of a picture: one line of printable characters, not too long, and never empty.

    >>> printable("a\x00b\n c")
    'a\\x00b\\n c'
    """
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    return base.printable(text).strip() or "\ufffd"
