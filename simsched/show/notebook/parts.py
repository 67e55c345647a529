"""Parts of a page: names and texts side by side, and tables."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from simsched.show.svg import printable

_SPACE = "padding:2px 10px 2px 0"
_CAPTION = "caption-side:top;text-align:left;color:inherit"


def written(text: str) -> str:
    r"""Return a text as HTML, its lines kept.

    >>> written("a<b\nc")
    'a&lt;b<br>c'
    """
    return "<br>".join(escape(printable(line)) if line.strip() else "" for line in text.split("\n"))


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Return a table of two columns: names and texts."""
    rows = "".join(f"<tr>{_cell('th', name, 'left')}{_cell('td', text, 'left')}</tr>" for name, text in pairs)
    return f'<table><caption style="{_CAPTION}"><b>{written(title)}</b></caption><tbody>{rows}</tbody></table>'


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table with headings; `numbers` are the columns that are aligned on the right."""
    sides = ["right" if i in numbers else "left" for i in range(len(headings))]
    head = "".join(_cell("th", text, side) for text, side in zip(headings, sides, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, ['td'] * len(sides), row, sides))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def of_table(table: Any) -> str:
    """Return a `rich.table.Table`; rows that are bold or dim there are so here."""
    from rich.text import Text

    def plain(text: Any) -> str:
        return Text.from_markup(text).plain if isinstance(text, str) else str(text)

    caption = [f"<b>{written(plain(table.title))}</b>"] if table.title else []
    caption += [f"<small>{written(plain(table.caption))}</small>"] if table.caption else []
    sides = [column.justify if column.justify in ("left", "right", "center") else "left" for column in table.columns]
    head = "".join(_cell("th", plain(column.header), side) for column, side in zip(table.columns, sides, strict=True))
    body = []
    for row, cells in zip(table.rows, zip(*(column.cells for column in table.columns), strict=True), strict=True):
        style = str(row.style or "")
        look = ' style="font-weight:bold"' if "bold" in style else ' style="opacity:0.6"' if "dim" in style else ""
        body.append(f"<tr{look}>{''.join(map(_cell, ['td'] * len(sides), map(plain, cells), sides))}</tr>")
    titled = f'<caption style="{_CAPTION}">{"<br>".join(caption)}</caption>' if caption else ""
    return f"<table>{titled}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _cell(tag: str, text: str, side: str) -> str:
    return f'<{tag} style="text-align:{side};{_SPACE}">{written(text)}</{tag}>'
