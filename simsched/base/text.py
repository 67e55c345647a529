"""Printable texts: a name is data, no character of which controls a terminal, a page or a picture."""

from collections.abc import Iterable


def printable(text: str) -> str:
    r"""Return a text on one line, with escapes for the characters that `str.isprintable` denies.

    These are control characters, line breaks, marks that turn the writing around or take no room, blanks other than the
    space, halves of a character, and unassigned code points. A text without any of them is returned unchanged.

    >>> print(printable("a\x1b[2J\nb\u202e"))
    a\x1b[2J\nb\u202e
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    r"""Return a text of several lines, each of them as `printable` has it.

    >>> printable_lines("a\tb\nc")
    'a\\tb\nc'
    """
    if text.isprintable():
        return text
    return join_lines(text.split("\n"))


def join_lines(lines: Iterable[str]) -> str:
    r"""Return lines as one text; a line break within one of them, as in a name, is escaped.

    >>> join_lines(["a\nb", "c"])
    'a\\nb\nc'
    """
    return "\n".join(map(printable, lines))
