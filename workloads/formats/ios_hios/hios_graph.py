"""Graphs of HIOS's simulation, text with times in it.

The form follows the released code (`simulation/main.py`; see `workloads.formats.ios_hios.hios`): the number of
operators, a line "id weight utilization" per operator, the number of edges, a line "producer consumer weight" per edge.
Weights are times in ms; the weight of an edge is the time of the transfer between any two devices. No such file is
released, and schedules for such graphs are never written to a file.
"""

import os
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

from simsched.base.errors import brief_text
from simsched.base.io import read_text
from simsched.base.units import MS
from simsched.model.graph import OpGraph
from workloads import checks
from workloads.formats.reading import Lines, build, real, whole


def read_hios_graph(path: str | os.PathLike[str], *, floor: float = 0.0) -> OpGraph:
    """Read a graph of HIOS's simulation.

    Parameters
    ----------
    path
        The file.
    floor
        Least time of a transfer in us. HIOS raises those below 0.1 ms when it reads a file:
        100.0 gives its graphs, 0.0 the stated times.

    Returns
    -------
    OpGraph
        Operators by the name of their number, with `time` and `utilization`; edges with an exact
        `transfer`. The graph is named after the file.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is not such a file; the message names the line.
    GraphError
        If the graph cannot be: a cycle, a utilization outside (0, 1], a time that is too large.

    Notes
    -----
    HIOS also multiplies transfers by p / 0.8, p being its ratio of communication to computation; files
    made for p = 0.8 stay as they are. O(size of the file).
    """
    lines = Lines(read_text(path), str(path), "a graph of HIOS")
    floor = checks.real(lines.source, "floor", floor)
    index: dict[str, int] = {}
    times = []
    utilizations = []
    for name, weight, share in _rows(lines, "id weight utilization"):
        if name in index:
            lines.fail(f"operator {name} stands twice")
        index[name] = len(index)
        times.append(weight * MS)
        utilizations.append(share)
    ends: tuple[list[int], list[int]] = ([], [])
    transfers = []
    for *pair, weight in _rows(lines, "producer consumer weight"):
        for name, column in zip(pair, ends, strict=True):
            if name not in index:
                lines.fail(f"there is no operator {name}")
            column.append(index[name])
        transfers.append(max(floor, weight * MS))
    lines.last()
    return build(
        lines.source,
        OpGraph.from_columns,
        list(index),
        *ends,
        name=Path(path).stem or "graph",
        time=times,
        utilization=utilizations,
        edge_transfer=transfers,
    )


def _rows(lines: Lines, columns: str) -> Iterator[list[Any]]:
    """Read how many rows there are, then yield each: a "weight" and a "utilization" is a number, all else a name."""
    for _ in range(int(_row(lines, "rows")[0])):
        yield _row(lines, columns)


def _row(lines: Lines, columns: str) -> list[Any]:
    fields = lines.take(f'"{columns}"')
    names = columns.split()
    if len(fields) != len(names):
        lines.fail(f'it should hold "{columns}", not {brief_text(" ".join(fields))}')
    values: list[Any] = []
    for name, text in zip(names, fields, strict=True):
        is_real = name in ("weight", "utilization")
        value = real(text) if is_real else whole(text)
        if value is None or not 0 <= value < inf:
            if is_real:
                kind = "a finite number of at least 0"
            else:
                kind = "a whole number"
            lines.fail(f"{brief_text(text)} is not {kind}")
        values.append(value if is_real else str(value))
    return values
