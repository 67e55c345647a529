"""The page: one HTML file with its styles, scripts and numbers in it, which may load nothing else."""

import os
import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from platform import python_version
from typing import Any, Final

from simsched.base.errors import MissingDependencyError, ReportError
from simsched.base.io import write_file
from simsched.show.markup import read_resource
from simsched.show.report.html import Writer, piece
from simsched.show.report.makers import sections_of
from simsched.show.report.sections import Pairs, Section

_SCRIPTS = ("page.js", "figures.js", "gantt.js")
_FOREIGN: Final = re.compile(r"[\u0080-\uffff](?<!\\.)")
"""What JavaScript can name by four digits; what is escaped is looked at last, which is many times as fast."""
_OPENS, _ENDS, _NEAR = "this, () => {\n", "\n}));", 1000
"""How Plotly's script begins, within so many characters, and ends: a call that is given all of it as a function."""


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
    return piece(
        "page", title=title, subtitle=subtitle, policy_=policy, style_=read_resource("report/page.css"),
        links_="".join(piece("link", name=name, text=text) for name, text in writer.contents), body_=body, own_=own,
        # not run as the page is read: texts and tables are there before it is
        later_=piece("plotly", script_=drawing) if drawing else "",
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
    return quick(str(get_plotlyjs()).replace("</script", "<\\/script"))


@cache
def quick(script: str) -> str:
    r"""Return a script that does the same and starts sooner.

    A browser keeps and reads ASCII faster than other text. And it compiles a function in parentheses as it reads it,
    while it skips any other and reads that again when it is called: here the function that is the whole library.

    >>> quick('(function(f) { f(); } (this, () => {\n"\u00b5";\n}));')
    '(function(f) { f(); } (this, (() => {\n"\\u00b5";\n})));'
    """
    plain = _FOREIGN.sub(lambda found: f"\\u{ord(found[0]):04x}", script).rstrip()
    if plain.find(_OPENS) not in range(_NEAR) or not plain.endswith(_ENDS):
        return plain  # not built as is expected
    return plain.replace(_OPENS, "this, (() => {\n", 1).removesuffix(_ENDS) + "\n})));"
