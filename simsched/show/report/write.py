"""`write_report`: results of any kind as one HTML file."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from platform import python_version
from typing import Any

from simsched.base.errors import ReportError
from simsched.base.io import write_file
from simsched.show.report.makers import sections_of
from simsched.show.report.page import page
from simsched.show.report.sections import Pairs, Section


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
    return Section("Origin", (Pairs("How this page was made", tuple(rows.items())),))
