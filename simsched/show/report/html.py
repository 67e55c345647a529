"""Blocks as HTML: every text escaped, every number once for people and once for sorting."""

import json
from collections.abc import Callable, Sequence
from html import escape
from itertools import count
from typing import Any, Final

from simsched.base.errors import ReportError
from simsched.base.numeric import is_number
from simsched.show.markup import pieces
from simsched.show.report.gantt import gantt_data
from simsched.show.report.sections import Block, Figure, Gantt, Pairs, Section, Table, Tabs, Text, sort_key
from simsched.show.svg_gantt import svg_gantt

MOST_ROWS: Final = 5000
"""Rows of a table that are shown."""
MOST_FIRST: Final = 20_000
"""Bars of a Gantt chart that is seen before the library is there."""
_DEEPEST: Final = 6  # heading
piece: Final = pieces("report/page.html")
_ESCAPES: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def plain(text: str) -> str:
    """Return a text for Plotly, to which ``<``, ``&`` and ``%{`` mean something.

    >>> plain("a<b> %{y}")
    'a&lt;b&gt; &#37;{y}'
    """
    return escape(text, quote=False).replace("%{", "&#37;{")


def json_text(value: Any) -> str:
    r"""Return JSON that may stand in a script element: no text in it can end the element.

    >>> json_text({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'

    Raises
    ------
    ReportError
        If a number in it is not finite.
    """
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise ReportError("a figure holds a number that is not finite; give None in its place") from None
    return text.translate(_ESCAPES)


class Writer:
    """Turns blocks into HTML; elements are numbered in the order in which they are written."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.contents: list[tuple[str, str]] = []
        self.draws = False
        self._open = True  # no shut tab

    def _id(self, letter: str) -> str:
        return f"{letter}{next(self._numbers)}"

    def _blocks(self, blocks: Sequence[Block], level: int) -> str:
        return "\n".join(self.block(block, level) for block in blocks)

    def section(self, section: Section, level: int = 2) -> str:
        """Return a section under a heading of a level, 2 for those of the page."""
        name = self._id("s")
        if level == 2:
            self.contents.append((name, section.title))
        inner = self._blocks(section.blocks, level + 1)
        return piece("section", id=name, level=level, h=min(level, _DEEPEST), title=section.title, inner_=inner)

    def block(self, block: Block, level: int) -> str:
        """Return a block whose headings, if it has any, are of a level."""
        writers: dict[type, Callable[[Any], str]] = {
            Text: lambda text: piece("text", tone=text.tone, text=text.text), Pairs: self._pairs,
            Table: self._table, Figure: self._figure, Gantt: self._gantt, Tabs: lambda tabs: self._tabs(tabs, level),
            Section: lambda section: self.section(section, level),
        }  # fmt: skip
        if type(block) in writers:
            return writers[type(block)](block)
        raise ReportError(f"a section consists of texts, tables, figures and the like, not of {type(block).__name__}")

    def _pairs(self, pairs: Pairs) -> str:
        rows = "".join(piece("pair", name=name, text=text) for name, text in pairs.rows)
        return piece("pairs", id=self._id("p"), caption=pairs.caption, body_=rows)

    def _table(self, table: Table) -> str:
        name, shown = self._id("t"), table.rows[:MOST_ROWS]
        numeric = [any(is_number(sort_key(row[c])) for row in shown) for c in range(len(table.columns))]
        looks = [' class="num"' if each else "" for each in numeric]
        head = "".join(piece("head", look_=look, heading=column.heading)
                       for column, look in zip(table.columns, looks, strict=True))  # fmt: skip
        body = "\n".join(_row(table, row, looks, i == table.best) for i, row in enumerate(shown))
        more = f"the first {MOST_ROWS:,} of {len(table.rows):,} rows" if len(table.rows) > MOST_ROWS else ""
        return piece("table", id=name, caption=table.caption, head_=head, body_=body, note_=_note(table.note, more))

    def _figure(self, figure: Figure) -> str:
        self.draws = True
        data = json_text({"data": figure.data, "layout": figure.layout})
        return piece("figure", id=self._id("f"), title=figure.title, summary=figure.summary, height=figure.height,
                     note_=_note(figure.note), data_=data)  # fmt: skip

    def _gantt(self, chart: Gantt) -> str:
        self.draws = True
        name, found = self._id("g"), gantt_data(chart)
        n, used = len(found["bars"]["row"]), set(found["bars"]["kind"])
        legend = [(kind["name"], kind["colour"]) for k, kind in enumerate(found["kinds"]) if k in used]
        legend += [("SM load", "var(--accent)"), ("DRAM load", "var(--warn)")] if found["loads"] else []
        traces = [chart.trace, *([] if chart.measured is None else [chart.measured])]
        seen = self._open and n <= MOST_FIRST
        return piece(
            "gantt", id=name, title=chart.title, n=n, rows=len(found["rows"]),
            first_=f'<div class="first">{svg_gantt(traces, details=False)}</div>' if seen else "",
            swatches_="".join(piece("swatch", text=text, colour=colour) for text, colour in legend),
            hosts_=piece("hosts") if any(row["what"] == "host" for row in found["rows"]) else "",
            note_=_note(*found.pop("notes")), data_=json_text(found),
        )  # fmt: skip

    def _tabs(self, tabs: Tabs, level: int) -> str:
        name, buttons, panels = self._id("b"), "", []
        for i, (label, blocks) in enumerate(tabs.panels):
            self._open = not i
            told = {"id": name, "i": i, "label": label}
            buttons += piece("button", **told, here=str(self._open).lower(), focus=0 if self._open else -1)
            panels.append(piece("panel", **told, hidden_="" if self._open else " hidden", h=min(level, _DEEPEST),
                                inner_=self._blocks(blocks, level + 1)))  # fmt: skip
        self._open = True
        return piece("tabs", label=tabs.label, buttons_=buttons, panels_="\n".join(panels))


def _note(*notes: str) -> str:
    text = "; ".join(filter(None, notes))
    return piece("text", tone="note", text=text) if text else ""


def _row(table: Table, row: Sequence[Any], looks: Sequence[str], best: bool) -> str:
    """Return a row, whose cells have the numbers that they sort by: as JavaScript reads them, nothing if missing."""
    cells = []
    for c, (column, cell, look) in enumerate(zip(table.columns, row, looks, strict=True)):
        value, start, end = sort_key(cell), "td" if c else 'th scope="row"', "td" if c else "th"
        key = "" if value is None else repr(float(value)).replace("inf", "Infinity") if is_number(value) else None
        mark = f' <span class="mark">\u2605 {escape(table.mark)}</span>' if best and not c else ""
        sorts = "" if key is None else f' data-v="{key}"'
        cells.append(f"<{start}{look}{sorts}>{escape(column.show(cell))}{mark}</{end}>")
    return f"<tr{' class=best' if best else ''}>{''.join(cells)}</tr>"
