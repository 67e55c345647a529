"""Blocks of a report as HTML: text, pairs, tables, charts, timelines and tabs."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from simsched.base.errors import ReportError
from simsched.base.units import GIB, KIB, MIB, MS, SECOND
from simsched.experiments.result import TextTable
from simsched.model.trace import Trace
from simsched.show.chart import Chart
from simsched.show.gantt import gantt_data
from simsched.show.markup import pieces
from simsched.show.report.figures import figure_of

MOST_SPANS: Final = 40_000
"""Spans of all Gantt charts of a comparison; the best schedule has one however many spans it has."""
_NUMBER: Final = re.compile(r"([+-]?(?:\d[\d,]*)?\.?\d+(?:e[+-]?\d+)?) ?([A-Za-z]*)")
_UNITS: Final = {"ms": MS, "s": SECOND, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_ESCAPES: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\x7f\u2028\u2029"})
piece: Final = pieces("report/page.html")


class Section:
    """A part of a report: its heading, and blocks of HTML below it."""

    def __init__(self, title: str, *blocks: str) -> None:
        self.title = title
        self.html = "\n".join(filter(None, blocks))


def text(said: str, tone: str = "plain") -> str:
    """Return a paragraph, or nothing for an empty text.

    Its tone is ``"plain"``, ``"lead"`` (the section's main result), ``"note"`` or ``"warning"``.
    """
    if said:
        return piece("text", tone=tone, text=said)
    return ""


def pairs(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return names and their values, one line each."""
    body = "".join(piece("pair", name=name, text=value) for name, value in rows)
    return piece("pairs", caption=caption, body_=body)


def table(shown: TextTable, mark: str = "best") -> str:
    """Return a table that readers can sort; `mark` explains the emphasised row."""
    looks = ["" if c in shown.left else ' class="num"' for c in range(len(shown.headings))]
    headings = [heading.replace("-\n", "").replace("\n", " ") for heading in shown.headings]
    head = "".join(piece("head", look_=look, heading=heading) for heading, look in zip(headings, looks, strict=True))
    body = ""
    for i, row in enumerate(shown.rows):
        best = i == shown.best
        body += f"<tr{' class=best' * best}>"
        for c, (cell, look) in enumerate(zip(row, looks, strict=True)):
            key = sort_key(cell)
            if c or not best:
                marked = ""
            else:
                marked = piece("mark", text=mark)
            if key is None:
                sorts = ""
            else:
                sorts = f' data-v="{key}"'
            if c:
                body += piece("cell", heading=headings[c], look_=look, sorts_=sorts, text=cell, mark_=marked)
            else:
                body += piece("name", look_=look, sorts_=sorts, text=cell, mark_=marked)
        body += "</tr>\n"
    return piece("table", caption=shown.title, head_=head, body_=body, note_=text(shown.note, "note"))


def sort_key(cell: str) -> str | None:
    """Return the number that a cell sorts by: the one it begins with, in library units; none for missing values.

    >>> sort_key("1.5 ms"), sort_key("-"), sort_key("lios")
    ('1500.0', '', None)
    """
    match = _NUMBER.match(cell)
    if match:
        return repr(float(match[1].replace(",", "")) * _UNITS.get(match[2], 1.0))
    return "" if cell in ("-", "") else None


def figure(chart: Chart) -> str:
    """Return a chart as Plotly draws it."""
    title, summary, height, data = figure_of(chart)
    note = text(chart.note, "note")
    return piece("figure", title=title, summary=summary, height=height, note_=note, data_=json_text(data))


def gantt(title: str, trace: Trace, measured: Trace | None = None) -> str:
    """Return a Gantt chart, with load curves below on the same axis of time.

    Each row of a measured trace of the same program is below the simulated one.
    """
    data = gantt_data([trace] if measured is None else [trace, measured])
    n = len(data["bars"]["row"])
    used = set(data["bars"]["kind"])
    legend = [(kind["name"], kind["colour"]) for k, kind in enumerate(data["kinds"]) if k in used]
    if data["loads"]:
        legend += [("SM load", "var(--accent)"), ("DRAM load", "var(--warn)")]
    return piece(
        "gantt",
        title=title,
        n=n,
        rows=len(data["rows"]),
        swatches_="".join(piece("swatch", text=label, colour=colour) for label, colour in legend),
        hosts_=piece("hosts") if any(row["what"] == "host" for row in data["rows"]) else "",
        note_=text("; ".join(data.pop("notes")), "note"),
        data_=json_text(data),
    )


def tabs(label: str, panels: Mapping[str, str]) -> str:
    """Return alternatives by name, of which the screen shows one at a time, and print shows all; the first is open."""
    buttons = "".join(
        piece("button", label=name, here=str(not i).lower(), focus=-1 if i else 0) for i, name in enumerate(panels)
    )
    parts = (
        piece("panel", label=name, hidden_=" hidden" if i else "", inner_=inner)
        for i, (name, inner) in enumerate(panels.items())
    )
    return piece("tabs", label=label, buttons_=buttons, panels_="\n".join(parts))


def json_text(value: Any) -> str:
    r"""Return JSON for a script element: no text in it can end the element.

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
