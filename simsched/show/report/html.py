"""Blocks as HTML: every text escaped, every number once for people and once for sorting."""

import json
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from itertools import count
from string import Template
from typing import Any, Final

from simsched.base.errors import ReportError
from simsched.base.numeric import is_number
from simsched.show.report.gantt import gantt_data
from simsched.show.report.sections import Block, Cell, Figure, Gantt, Pairs, Section, Table, Tabs, Text
from simsched.show.svg_gantt import svg_gantt

MOST_ROWS: Final = 5000
"""Rows of a table that are shown."""
MOST_FIRST: Final = 20_000
"""Bars of a Gantt chart that is seen before the library is there."""
_DEEPEST: Final = 6  # heading
_HOSTS: Final = (
    '<button type="button" data-do="host" title="Host threads" aria-label="Host threads" aria-pressed="false">'
    "Host threads</button>"
)
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


def read_resource(name: str) -> str:
    """Return the text of a file of this package."""
    return (files(str(__package__)) / name).read_text(encoding="utf-8")


class Writer:
    """Turns blocks into HTML; elements are numbered in the order in which they are written."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.contents: list[tuple[str, str]] = []
        self.draws = False
        self._open = True  # no shut tab

    def section(self, section: Section, level: int = 2) -> str:
        """Return a section under a heading of a level, 2 for those of the page."""
        name = f"s{next(self._numbers)}"
        if level == 2:
            self.contents.append((name, section.title))
        inner = "\n".join(self.block(block, level + 1) for block in section.blocks)
        h = min(level, _DEEPEST)
        return (
            f'<section class="level{level}" aria-labelledby="{name}"><h{h} id="{name}" tabindex="-1">'
            f"{escape(section.title)}</h{h}>\n{inner}</section>"
        )

    def block(self, block: Block, level: int) -> str:
        """Return a block whose headings, if it has any, are of a level."""
        writers: dict[type, Callable[[Any], str]] = {
            Text: lambda text: f'<p class="{text.tone}">{escape(text.text)}</p>', Pairs: self._pairs,
            Table: self._table, Figure: self._figure, Gantt: self._gantt, Tabs: lambda tabs: self._tabs(tabs, level),
            Section: lambda section: self.section(section, level),
        }  # fmt: skip
        if type(block) in writers:
            return writers[type(block)](block)
        raise ReportError(f"a section consists of texts, tables, figures and the like, not of {type(block).__name__}")

    def _pairs(self, pairs: Pairs) -> str:
        rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in pairs.rows)
        name = f"p{next(self._numbers)}"
        return (
            f'<div class="pairs"><p class="caption" id="{name}">{escape(pairs.caption)}</p>'
            f'<dl aria-labelledby="{name}">{rows}</dl></div>'
        )

    def _table(self, table: Table) -> str:
        name = f"t{next(self._numbers)}"
        shown = table.rows[:MOST_ROWS]
        numeric = [any(is_number(_value(row[c])) for row in shown) for c in range(len(table.columns))]
        looks = [' class="num"' if each else "" for each in numeric]
        head = "".join(
            f'<th scope="col"{look} aria-sort="none"><button type="button" class="sort">{escape(column.heading)}'
            '<span aria-hidden="true"></span></button></th>'
            for column, look in zip(table.columns, looks, strict=True)
        )
        body = "\n".join(_row(table, row, looks, i == table.best) for i, row in enumerate(shown))
        notes = [table.note] * bool(table.note)
        if len(table.rows) > MOST_ROWS:
            notes.append(f"the first {MOST_ROWS:,} of {len(table.rows):,} rows")
        return (
            f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}"><table>'
            f'<caption id="{name}">{escape(table.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody></table></div>{_note(notes)}"
        )

    def _figure(self, figure: Figure) -> str:
        self.draws = True
        name = f"f{next(self._numbers)}"
        note = _note([figure.note] * bool(figure.note))
        data = json_text({"data": figure.data, "layout": figure.layout})
        return (
            f'<figure class="chart"><figcaption id="{name}-c">{escape(figure.title)}</figcaption>'
            f'<div class="plot" id="{name}" data-kind="figure" role="img" aria-label="{escape(figure.summary)}" '
            f'style="height:{figure.height}px"><p class="unseen">{escape(figure.summary)}</p></div>{note}'
            f'<script type="application/json" id="{name}-d">{data}</script></figure>'
        )

    def _gantt(self, chart: Gantt) -> str:
        self.draws = True
        name = f"g{next(self._numbers)}"
        found = gantt_data(chart)
        n, used = len(found["bars"]["row"]), set(found["bars"]["kind"])
        legend = [(kind["name"], kind["colour"]) for k, kind in enumerate(found["kinds"]) if k in used]
        legend += [("SM load", "var(--accent)"), ("DRAM load", "var(--warn)")] if found["loads"] else []
        swatch = '<li><i style="background:{1}"></i>{0}</li>'
        swatches = "".join(swatch.format(escape(text), colour) for text, colour in legend)
        traces = [chart.trace, *([] if chart.measured is None else [chart.measured])]
        seen = self._open and n <= MOST_FIRST
        first = f'<div class="first">{svg_gantt(traces, details=False)}</div>' if seen else ""
        hosts = any(row["what"] == "host" for row in found["rows"])
        return Template(read_resource("gantt.html")).substitute(
            name=name, title=escape(chart.title), n=n, rows=len(found["rows"]), first=first, swatches=swatches,
            hosts=_HOSTS * hosts, note=_note(found.pop("notes")), data=json_text(found),
        )  # fmt: skip

    def _tabs(self, tabs: Tabs, level: int) -> str:
        name = f"b{next(self._numbers)}"
        h = min(level, _DEEPEST)
        buttons, panels = [], []
        for i, (label, blocks) in enumerate(tabs.panels):
            here = not i
            buttons.append(
                f'<button type="button" role="tab" id="{name}-t{i}" aria-controls="{name}-p{i}" '
                f'aria-selected="{str(here).lower()}" tabindex="{0 if here else -1}">{escape(label)}</button>'
            )
            self._open = here
            inner = "\n".join(self.block(block, level + 1) for block in blocks)
            panels.append(
                f'<div role="tabpanel" id="{name}-p{i}" aria-labelledby="{name}-t{i}"{"" if here else " hidden"}>'
                f'<h{h} class="printed">{escape(label)}</h{h}>{inner}</div>'
            )
        self._open = True
        return (
            f'<div class="tabs"><div role="tablist" aria-label="{escape(tabs.label)}">{"".join(buttons)}</div>\n'
            + "\n".join(panels)
            + "</div>"
        )


def _note(notes: Sequence[str]) -> str:
    return f'<p class="note">{escape("; ".join(notes))}</p>' if notes else ""


def _value(cell: Any) -> Any:
    return cell.value if isinstance(cell, Cell) else cell


def _row(table: Table, row: Sequence[Any], looks: Sequence[str], best: bool) -> str:
    """Return a row, whose cells have the numbers that they sort by: as JavaScript reads them, nothing if missing."""
    cells = []
    for c, (column, cell, look) in enumerate(zip(table.columns, row, looks, strict=True)):
        value, start, end = _value(cell), "td" if c else 'th scope="row"', "td" if c else "th"
        missing = value is None or value != value
        key = "" if missing else repr(float(value)).replace("inf", "Infinity") if is_number(value) else None
        mark = f' <span class="mark">\u2605 {escape(table.mark)}</span>' if best and not c else ""
        sorts = "" if key is None else f' data-v="{key}"'
        cells.append(f"<{start}{look}{sorts}>{escape(column.show(cell))}{mark}</{end}>")
    return f"<tr{' class=best' if best else ''}>{''.join(cells)}</tr>"
