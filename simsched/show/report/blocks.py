"""What a report consists of, as HTML: texts, pairs, tables, figures, Gantt charts and tabs, in sections."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from simsched.base.errors import ReportError
from simsched.base.units import GIB, KIB, MIB, MS, SECOND
from simsched.experiments.result import Table
from simsched.model.trace import Trace
from simsched.show.chart import Chart
from simsched.show.gantt import gantt_data
from simsched.show.markup import pieces
from simsched.show.report.figures import figure_of

_NUMBER: Final = re.compile(r"([+-]?(?:\d[\d,]*)?\.?\d+(?:e[+-]?\d+)?) ?([A-Za-z]*)")
_UNITS: Final = {"ms": MS, "s": SECOND, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_ESCAPES: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
_piece: Final = pieces("report/page.html")


@dataclass(frozen=True)
class Section:
    """A part of a report: its heading, and HTML below it."""

    title: str
    html: str


def section(title: str, *blocks: str) -> Section:
    """Return a section of blocks."""
    return Section(title, "\n".join(filter(None, blocks)))


def text(said: str, tone: str = "plain") -> str:
    """Return a paragraph, if there is anything to say.

    Its tone is ``"plain"``, ``"lead"`` (what the section comes to), ``"note"`` or ``"warning"``.
    """
    return _piece("text", tone=tone, text=said) if said else ""


def pairs(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return names and what they stand for, one line each."""
    body = "".join(_piece("pair", name=name, text=said) for name, said in rows)
    return _piece("pairs", caption=caption, body_=body)


def table(shown: Table, mark: str = "best") -> str:
    """Return a table that readers can sort; `mark` is what is said of the row that is set off."""
    looks = ["" if c in shown.left else ' class="num"' for c in range(len(shown.headings))]
    head = "".join(_piece("head", look_=look, heading=heading.replace("-\n", "").replace("\n", " "))
                   for heading, look in zip(shown.headings, looks, strict=True))  # fmt: skip
    body = "\n".join(_row(row, looks, mark if i == shown.best else "") for i, row in enumerate(shown.rows))
    return _piece("table", caption=shown.title, head_=head, body_=body, note_=text(shown.note, "note"))


def _row(row: Iterable[str], looks: Iterable[str], mark: str) -> str:
    cells = ""
    for c, (cell, look) in enumerate(zip(row, looks, strict=True)):
        key = sort_key(cell)
        sorts = "" if key is None else f' data-v="{key}"'
        marked = _piece("mark", text=mark) if mark and not c else ""
        cells += _piece("cell" if c else "name", look_=look, sorts_=sorts, text=cell, mark_=marked)
    return f"<tr{' class=best' if mark else ''}>{cells}</tr>"


def sort_key(cell: str) -> str | None:
    """Return the number that a cell sorts by: the one it begins with, in library units; none of what is missing.

    >>> sort_key("1.5 ms"), sort_key("-"), sort_key("lios")
    ('1500.0', '', None)
    """
    found = _NUMBER.match(cell)
    if found:
        return repr(float(found[1].replace(",", "")) * _UNITS.get(found[2], 1.0))
    return "" if cell in ("-", "") else None


def figure(chart: Chart) -> str:
    """Return a chart as Plotly draws it."""
    title, summary, height, data = figure_of(chart)
    note = text(chart.note, "note")
    return _piece("figure", title=title, summary=summary, height=height, note_=note, data_=json_text(data))


def gantt(title: str, trace: Trace, measured: Trace | None = None) -> str:
    """Return what ran when, with load curves below on the same axis of time.

    Each row of a measured trace of the same program stands below the simulated one.
    """
    found = gantt_data([trace] if measured is None else [trace, measured])
    n, used = len(found["bars"]["row"]), set(found["bars"]["kind"])
    legend = [(kind["name"], kind["colour"]) for k, kind in enumerate(found["kinds"]) if k in used]
    legend += [("SM load", "var(--accent)"), ("DRAM load", "var(--warn)")] if found["loads"] else []
    return _piece(
        "gantt", title=title, n=n, rows=len(found["rows"]),
        swatches_="".join(_piece("swatch", text=said, colour=colour) for said, colour in legend),
        hosts_=_piece("hosts") if any(row["what"] == "host" for row in found["rows"]) else "",
        note_=text("; ".join(found.pop("notes")), "note"), data_=json_text(found),
    )  # fmt: skip


def tabs(label: str, panels: Mapping[str, str]) -> str:
    """Return alternatives by name, of which one is seen at a time, and all are printed; the first is open."""
    buttons = "".join(_piece("button", label=name, here=str(not i).lower(), focus=-1 if i else 0)
                      for i, name in enumerate(panels))  # fmt: skip
    parts = (_piece("panel", label=name, hidden_=" hidden" if i else "", inner_=inner)
             for i, (name, inner) in enumerate(panels.items()))  # fmt: skip
    return _piece("tabs", label=label, buttons_=buttons, panels_="\n".join(parts))


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
        found = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise ReportError("a figure holds a number that is not finite; give None in its place") from None
    return found.translate(_ESCAPES)
