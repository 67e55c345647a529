"""The page: one HTML file with its styles, scripts and numbers in it, which may load nothing else."""

import json
import os
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from importlib.metadata import version
from itertools import count
from platform import python_version
from typing import Any, Final

from simsched.base.errors import MissingDependencyError, ReportError
from simsched.base.io import write_file
from simsched.base.numeric import is_number
from simsched.show.gantt import gantt_data
from simsched.show.markup import pieces, read_resource
from simsched.show.report.makers import sections_of
from simsched.show.report.sections import Block, Figure, Gantt, Pairs, Section, Table, Tabs, Text, sort_key

_SCRIPTS = ("page.js", "figures.js", "gantt.js")
MOST_ROWS: Final = 5000
"""Rows of a table that are shown."""
_DEEPEST: Final = 6  # heading
_piece: Final = pieces("report/page.html")
_ESCAPES: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def write_report(
    results: Any, path: str | os.PathLike[str] | None = None, *, title: str | None = None, command: str = ""
) -> str:
    """Return results as an HTML page that needs no other file and no network, and write it if a path is given.

    Parameters
    ----------
    results
        One of these, or a sequence of them: `Comparison`, `Results` of a study, `WhatIf` or its `Answer`, `Sweep`,
        `Sensitivity`, `BreakEven`, `Explanation`, `Robustness`, `Throughput`, `Trace`, `Replay`, `Section`, or
        anything with a method ``report_sections()`` that returns sections.
    path
        Where to write it, whole or not at all.
    title
        Of the page; by default that of the first section.
    command
        What it was made with, for the section on its origin.

    Returns
    -------
    str
        The page: some 5 MB, nearly all of it the library that draws the figures, and about 70 bytes per span.

    Raises
    ------
    ReportError
        If there is nothing to report, or something of a kind that is not known.
    MissingDependencyError
        If plotly is not installed.
    FileError
        If the file cannot be written.

    Notes
    -----
    A page is the same for the same results but for its date. O(n log n) for n spans.
    """
    given = list(results) if isinstance(results, Sequence) and not isinstance(results, str | bytes) else [results]
    sections = [section for result in given for section in sections_of(result)]
    if not sections:
        raise ReportError("there is nothing to report: give a comparison, a study, a what-if, a trace, ...")
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = page(title or sections[0].title, f"Made by simsched on {made}", [*sections, _origin(made, command)])
    text = text.encode(errors="replace").decode()  # half of a surrogate pair has no place in a file
    if path is not None:
        write_file(path, text)
    return text


def _origin(made: str, command: str) -> Section:
    """Return where the page comes from."""
    import numpy

    rows = {"made on": made, "simsched": version("simsched"), "Python": python_version(), "numpy": numpy.__version__}
    rows |= {"command": command} if command else {}
    return Section("Origin", (Pairs.of("How this page was made", rows),))


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return sections as an HTML page.

    Raises
    ------
    MissingDependencyError
        If plotly, which draws the figures, is not installed.

    Notes
    -----
    The page forbids itself, by its content security policy, to load anything, and to run any script but those whose
    digests it names: a text that became a script by mistake would not run.
    """
    writer = Writer()
    body = "\n".join(writer.section(section) for section in sections)
    own, drawing = "\n".join(read_resource(f"report/{name}") for name in _SCRIPTS), library() if writer.draws else ""
    scripts = [own, drawing]
    allowed = " ".join(f"'sha256-{b64encode(sha256(s.encode()).digest()).decode()}'" for s in scripts)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    return _piece(
        "page", title=title, subtitle=subtitle, policy_=policy, style_=read_resource("report/page.css"),
        links_="".join(_piece("link", name=name, text=text) for name, text in writer.contents), body_=body, own_=own,
        # not run as the page is read: texts and tables are there before it is
        later_=_piece("plotly", script_=drawing) if drawing else "",
    ) + "\n"  # fmt: skip


def library() -> str:
    """Return Plotly's script, in which nothing ends the element it stands in.

    Raises
    ------
    MissingDependencyError
        If plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingDependencyError("a report needs plotly: pip install 'simsched[report]'") from None
    return str(get_plotlyjs()).replace("</script", "<\\/script")


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
        return _piece("section", id=name, level=level, h=min(level, _DEEPEST), title=section.title, inner_=inner)

    def block(self, block: Block, level: int) -> str:
        """Return a block whose headings, if it has any, are of a level."""
        writers: dict[type, Callable[[Any], str]] = {
            Text: lambda text: _piece("text", tone=text.tone, text=text.text), Pairs: self._pairs,
            Table: self._table, Figure: self._figure, Gantt: self._gantt, Tabs: lambda tabs: self._tabs(tabs, level),
            Section: lambda section: self.section(section, level),
        }  # fmt: skip
        if type(block) in writers:
            return writers[type(block)](block)
        raise ReportError(f"a section consists of texts, tables, figures and the like, not of {type(block).__name__}")

    def _pairs(self, pairs: Pairs) -> str:
        rows = "".join(_piece("pair", name=name, text=text) for name, text in pairs.rows)
        return _piece("pairs", id=self._id("p"), caption=pairs.caption, body_=rows)

    def _table(self, table: Table) -> str:
        name, shown = self._id("t"), table.rows[:MOST_ROWS]
        numeric = [any(is_number(sort_key(row[c])) for row in shown) for c in range(len(table.columns))]
        looks = [' class="num"' if each else "" for each in numeric]
        head = "".join(_piece("head", look_=look, heading=column.heading)
                       for column, look in zip(table.columns, looks, strict=True))  # fmt: skip
        body = "\n".join(_row(table, row, looks, i == table.best) for i, row in enumerate(shown))
        more = f"the first {MOST_ROWS:,} of {len(table.rows):,} rows" if len(table.rows) > MOST_ROWS else ""
        return _piece("table", id=name, caption=table.caption, head_=head, body_=body, note_=_note(table.note, more))

    def _figure(self, figure: Figure) -> str:
        self.draws = True
        data = json_text({"data": figure.data, "layout": figure.layout})
        return _piece("figure", id=self._id("f"), title=figure.title, summary=figure.summary, height=figure.height,
                     note_=_note(figure.note), data_=data)  # fmt: skip

    def _gantt(self, chart: Gantt) -> str:
        self.draws = True
        traces = [chart.trace, *([] if chart.measured is None else [chart.measured])]
        name, found = self._id("g"), gantt_data(traces)
        n, used = len(found["bars"]["row"]), set(found["bars"]["kind"])
        legend = [(kind["name"], kind["colour"]) for k, kind in enumerate(found["kinds"]) if k in used]
        legend += [("SM load", "var(--accent)"), ("DRAM load", "var(--warn)")] if found["loads"] else []
        return _piece(
            "gantt", id=name, title=chart.title, n=n, rows=len(found["rows"]),
            swatches_="".join(_piece("swatch", text=text, colour=colour) for text, colour in legend),
            hosts_=_piece("hosts") if any(row["what"] == "host" for row in found["rows"]) else "",
            note_=_note(*found.pop("notes")), data_=json_text(found),
        )  # fmt: skip

    def _tabs(self, tabs: Tabs, level: int) -> str:
        name, buttons, panels = self._id("b"), "", []
        for i, (label, blocks) in enumerate(tabs.panels):
            told = {"id": name, "i": i, "label": label}
            buttons += _piece("button", **told, here=str(not i).lower(), focus=-1 if i else 0)
            panels.append(_piece("panel", **told, hidden_=" hidden" if i else "", h=min(level, _DEEPEST),
                                inner_=self._blocks(blocks, level + 1)))  # fmt: skip
        return _piece("tabs", label=tabs.label, buttons_=buttons, panels_="\n".join(panels))


def _note(*notes: str) -> str:
    text = "; ".join(filter(None, notes))
    return _piece("text", tone="note", text=text) if text else ""


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
