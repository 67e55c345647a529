"""Colours and texts of pictures."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from simsched.show.figure import PALETTE

OTHER: Final = "#BDBDBD"
_TINTS: Final = (0.25, 0.6, 0.0, 0.8)  # shares of white, for streams of one device
_UNPRINTABLE = re.compile(
    "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_LONGEST = 400  # characters of a name in a tooltip
# Widths in em of Helvetica and Arial, rounded up; DejaVu and Verdana, which may stand in, are a tenth wider.
_NARROW, _WIDE, _USUAL, _CAPITAL = 0.33, 1.0, 0.61, 0.78


def mixed(colour: str, other: str, share: float) -> str:
    """Return a colour mixed with a share of another.

    >>> mixed("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def ink(background: str) -> str:
    """Return black or white, whichever has more contrast (WCAG 2) on a background.

    >>> ink("#F0E442"), ink("#0072B2")
    ('#000000', '#ffffff')
    """
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in
              (channel / 255 for channel in _channels(background))]  # fmt: skip
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def paint(hue: int, tint: int = 0) -> str:
    """Return a colour of the palette, which begins again after its end, in one of a few tints."""
    return mixed(PALETTE[hue % len(PALETTE)], "#ffffff", _TINTS[tint % len(_TINTS)])


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
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF" or character in "mwMW@%\u2026\ufffd":
        return _WIDE
    if character in "ijltfrI.,:;'|!()[]/ ":
        return _NARROW + 0.04
    if character.isupper():
        return _CAPITAL
    return _USUAL if character.isascii() else _CAPITAL


def shortened(text: str, size: float, width: float) -> str:
    """Return a text that is no wider than given; what is too long loses its middle.

    >>> shortened("inception_5b_branch_pool", 12, 90)
    'incept…_pool'
    """
    if text_width(text, size) <= width:
        return text
    room = width - text_width("\u2026", size)
    head, tail, taken = 0, len(text), 0.0  # what stands before and behind the ellipsis, and how wide it is in em
    while head < tail:
        from_head = head <= len(text) - tail  # in turn
        taken += _em(text[head if from_head else tail - 1])
        if size * taken > room:
            break
        head, tail = (head + 1, tail) if from_head else (head, tail - 1)
    return f"{text[:head]}\u2026{text[tail:]}"
