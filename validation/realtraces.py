"""Traces and tables of kernels that real GPUs ran, beside what the simulator makes of them.

    python -m validation.realtraces FOLDER [--log validation/realtraces.json] [--page docs/background/real-gpus.md]

A folder may hold traces of torch.profiler (``.json``, ``.json.gz``), tables of pairs of kernels (``.csv``) and tables
of kernels alone and beside another (``.json``, a list), told by what is in them, not by their names. What is asked of
them is in `validation.realtraces_steps` and `validation.realtraces_pairs`; docs/measuring.md says where such
files are found and how to record one.
"""

import argparse
import hashlib
import platform
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from simsched.base.errors import FileError, SimschedError
from simsched.base.io import decode_text, dump_json, read_bytes, read_text, write_file
from validation.markdown import table
from validation.papers.claims import put_between
from validation.realtraces_pairs import dispatch_rows, fair_rows, read_groups, read_pairs, slowdown_rows
from validation.realtraces_rows import Row
from validation.realtraces_steps import RealTrace, read_real_trace, replay_row, solo_rows, timing_rows


def read_folder(folder: Path) -> tuple[list[Row], list[dict[str, Any]]]:
    """Return the rows of all that a folder holds, and the files that they are from.

    Raises
    ------
    FileError
        If there is no such folder, or nothing of the kind in it.
    FormatError
        If a file is not what its suffix says.
    """
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder")
    paths = [path for path in sorted(folder.iterdir()) if path.name.endswith((".json", ".json.gz", ".csv"))]
    if not paths:
        raise FileError(f"{folder}: nothing to read: no .json, .json.gz or .csv")
    traces: list[RealTrace] = []
    tables: list[Row] = []
    sources = []
    for path in paths:
        content = read_bytes(path)
        if path.suffix == ".csv":
            pairs = read_pairs(decode_text(content, str(path)), str(path))
            tables += dispatch_rows(pairs)
            tables += fair_rows(pairs)
            count = len(pairs)
        elif content.lstrip()[:1] == b"[":
            groups = read_groups(decode_text(content, str(path)), str(path))
            tables += slowdown_rows(groups)
            count = len(groups)
        else:
            traces.append(read_real_trace(path))
            count = len(traces[-1].activities)
        digest = hashlib.sha256(content).hexdigest()
        sources.append({"file": path.name, "nbytes": len(content), "cases": count, "sha256": digest})
    rows = [replay_row(trace) for trace in traces]
    return [*rows, *tables, *timing_rows(traces), *solo_rows(traces)], sources


def tables(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows of the log as Markdown: a table for each question, our figures before what they are held against."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(f"{row['asked'].partition(',')[0].capitalize()} ({row['unit']})", []).append(row)
    parts = []
    for title, group in groups.items():
        columns = ["of", "cases", *group[0]["ours"], *group[0]["beside"]]
        parts.append("\n".join((f"## {title}", "", *table(columns, map(_cells, group)), "")))
    return "\n".join(parts)


def _cells(row: Mapping[str, Any]) -> list[str]:
    targets = {name: f" (target {value:g})" for name, value in row["targets"].items()}
    figures = (row["ours"] | row["beside"]).items()
    return [row["of"], str(row["cases"]), *(f"{value:.2f}{targets.get(name, '')}" for name, value in figures)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Hold the simulator against traces of real GPUs.")
    parser.add_argument("folder", type=Path, help="where the traces and tables are")
    parser.add_argument("--log", help="JSON file that is written")
    parser.add_argument("--page", help="page whose tables are written")
    options = parser.parse_args()
    try:
        rows, sources = read_folder(options.folder)
        document: dict[str, Any] = {
            "date": date.today().isoformat(),
            "versions": {name: version(name) for name in ("simsched", "numpy")} | {"python": platform.python_version()},
            "sources": sources,
            "rows": [row.to_dict() for row in rows],
        }
        if options.log:
            write_file(options.log, dump_json(document))
        if options.page:
            write_file(options.page, put_between(read_text(options.page), "realtraces", tables(document["rows"])))
    except SimschedError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None

    print(f"{options.folder}: {len(sources)} files\n")
    print(tables(document["rows"]))


if __name__ == "__main__":
    main()
