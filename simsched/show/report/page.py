"""The page of a report: one HTML file with its styles, its scripts and its numbers."""

import logging
import os
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from platform import python_version
from typing import Any

from simsched.base.errors import MissingDependencyError, ReportError
from simsched.base.io import write_file
from simsched.show.markup import read_resource
from simsched.show.report.blocks import Section, pairs, piece
from simsched.show.report.sections import sections_of

_logger = logging.getLogger(__name__)


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
        Title of the page; by default the first section's.
    command
        The command that made it, for the section on its origin.

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
    A page is the same for the same results but for its date. Its content security policy forbids to load anything, and
    to run any script but those whose digests it names. O(n log n) for n spans.
    """
    if isinstance(results, Sequence) and not isinstance(results, str | bytes):
        subjects = list(results)
    else:
        subjects = [results]
    sections = [section for result in subjects for section in sections_of(result)]
    if not sections:
        raise ReportError("there is nothing to report: give a comparison, a study, a what-if, a trace, ...")
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = {"made on": date, "simsched": version("simsched"), "Python": python_version(), "numpy": version("numpy")}
    if command:
        about |= {"command": command}
    sections.append(Section("Origin", pairs("How this page was made", about.items())))
    parts = (
        piece("section", id=f"s{i}", title=section.title, inner_=section.html) for i, section in enumerate(sections)
    )
    body = "\n".join(parts)
    own = "\n".join(read_resource(f"report/{name}.js") for name in ("page", "figures", "gantt"))
    if 'class="plot"' in body:
        drawing = library()
    else:
        drawing = ""
    # a text that became a script by mistake would not run
    allowed = " ".join(f"'sha256-{b64encode(sha256(s.encode()).digest()).decode()}'" for s in (own, drawing))
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    page = (
        piece(
            "page",
            title=title or sections[0].title,
            subtitle=f"Made by simsched on {date}",
            policy_=policy,
            style_=read_resource("report/page.css"),
            body_=body,
            own_=own,
            links_="".join(piece("link", name=f"s{i}", text=section.title) for i, section in enumerate(sections)),
            # not run while the page is parsed: texts and tables appear before it is
            later_=piece("plotly", script_=drawing) if drawing else "",
        )
        + "\n"
    )
    if path is not None:
        write_file(path, page)
    return page


def library() -> str:
    """Return Plotly's script, in which no text ends the element that contains it.

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
