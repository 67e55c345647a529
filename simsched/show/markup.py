"""Markup of pages and pictures: pieces of it in files, which are filled in; texts that can be printed and that fit."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from html import escape
from importlib.resources import files
from typing import Final


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


_UNPRINTABLE: Final = re.compile(
    "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_LONGEST: Final = 400  # characters of a name in a tooltip


def printable(text: str) -> str:
    r"""Return a text on one line, of characters that XML allows and that do not turn their neighbours around.

    >>> printable("a\x00b\n c")
    'a�b c'
    """
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    return " ".join(_UNPRINTABLE.sub("\ufffd", text).split()) or "\ufffd"


def text_width(text: str, size: float) -> float:
    """Return the width of a text in a sans-serif font of a size, rather too wide than too narrow."""
    return size * sum(map(_em, text))


@lru_cache(maxsize=1024)
def _em(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF" or character in "mwMW@%\u2026\ufffd":
        return 1.0
    if character in "ijltfrI.,:;'|!()[]/ ":
        return 0.37
    return 0.61 if character.isascii() and not character.isupper() else 0.78


def shortened(text: str, size: float, width: float) -> str:
    """Return a text that is no wider than given; what is too long loses its middle.

    >>> shortened("inception_5b_branch_pool", 12, 90)
    'incept…_pool'
    """
    if text_width(text, size) <= width:
        return text

    def without_middle(kept: int) -> str:
        return f"{text[: (kept + 1) // 2]}\u2026{text[len(text) - kept // 2 :]}"

    too_many = bisect_right(range(len(text)), width, key=lambda kept: text_width(without_middle(kept), size))
    return without_middle(max(too_many - 1, 0))


def legend(entries: Iterable[tuple[str, str]], size: float, left: float, y: float, right: float) -> tuple[str, float]:
    """Return fills and what they mean, side by side between two x, and the y of the last line."""
    parts, x = [], left
    for fill, name in entries:
        text = shortened(printable(name), size, 200)
        taken = 30 + text_width(text, size)
        if x > left and x + taken > right:
            x, y = left, y + 18
        parts.append(f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="14" height="12" fill="{fill}"/>'
                     f'<text x="{x + 19:.1f}" y="{y:.1f}">{escape(text)}</text>')  # fmt: skip
        x += taken
    return "".join(parts), y
