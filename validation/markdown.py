"""Tables as every tool here prints them."""

from collections.abc import Iterable, Iterator, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    r"""Yield the lines of a Markdown table.

    >>> list(table(["of", "us"], [("a|b", 1.5)]))
    ['| of | us |', '|---|---|', '| a\\|b | 1.5 |']
    """
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |"
