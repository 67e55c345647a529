"""The page: one HTML file with its styles, scripts and numbers in it, which may load nothing else."""

import os
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from platform import python_version
from typing import Any, Final

from simsched.base.errors import MissingDependencyError, ReportError
from simsched.base.io import write_file
from simsched.show.markup import pieces, read_resource
from simsched.show.report.blocks import pairs, section
from simsched.show.report.makers import sections_of

_SCRIPTS: Final = ("page.js", "figures.js", "gantt.js")
_piece: Final = pieces("report/page.html")


def write_report(
    results: Any, path: str | os.PathLike[str] | None = None, *, title: str | None = None, command: str = ""
) -> str:
    """Return results as an HTML page that needs no other file and no network, and write it if a path is given.

    Parameters
    ----------
    results
        One of these, or a sequence of them: `Comparison`, `Results` of a study, `WhatIf` or its `Answer`, `Sweep`,
        `Sensitivity`, `BreakEven`, `Explanation`, `Robustness`, `Throughput`, `Trace`, `Replay`.
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
    A page is the same for the same results but for its date. It forbids itself, by its content security policy, to
    load anything, and to run any script but those whose digests it names. O(n log n) for n spans.
    """
    given = list(results) if isinstance(results, Sequence) and not isinstance(results, str | bytes) else [results]
    sections = [each for result in given for each in sections_of(result)]
    if not sections:
        raise ReportError("there is nothing to report: give a comparison, a study, a what-if, a trace, ...")
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = {"made on": made, "simsched": version("simsched"), "Python": python_version(), "numpy": version("numpy")}
    about |= {"command": command} if command else {}
    sections.append(section("Origin", pairs("How this page was made", about.items())))
    parts = (_piece("section", id=f"s{i}", title=each.title, inner_=each.html) for i, each in enumerate(sections))
    body = "\n".join(parts)
    own = "\n".join(read_resource(f"report/{name}") for name in _SCRIPTS)
    drawing = library() if 'class="plot"' in body else ""
    # a text that became a script by mistake would not run
    allowed = " ".join(f"'sha256-{b64encode(sha256(s.encode()).digest()).decode()}'" for s in (own, drawing))
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    page = _piece(
        "page", title=title or sections[0].title, subtitle=f"Made by simsched on {made}", policy_=policy,
        style_=read_resource("report/page.css"), body_=body, own_=own,
        links_="".join(_piece("link", name=f"s{i}", text=each.title) for i, each in enumerate(sections)),
        # not run as the page is read: texts and tables are there before it is
        later_=_piece("plotly", script_=drawing) if drawing else "",
    ) + "\n"  # fmt: skip
    page = page.encode(errors="replace").decode()  # half of a surrogate pair has no place in a file
    if path is not None:
        write_file(path, page)
    return page


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
