"""Graphs of HIOS's simulation, text with times in it.

The form is that of the released code (`simulation/main.py`; see `workloads.formats.hios`): the number of operators, a
line "id weight utilization" for each, the number of edges, a line "producer consumer weight" for each. Weights are
times in ms, those of edges the time of the transfer between any two devices. No such file is released, and schedules
for such graphs are never written to one.
"""

import os
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Final

from simsched.base.errors import FormatError, shown
from simsched.base.io import read_text
from simsched.base.units import MS
from simsched.model.graph import OpGraph
from workloads import checks
from workloads.formats.reading import build, real, whole

_OPERATOR: Final = ("id", "weight", "utilization")
_EDGE: Final = ("producer", "consumer", "weight")


def read_hios_graph(path: str | os.PathLike[str], *, floor: float = 0.0) -> OpGraph:
    """Read a graph of HIOS's simulation.

    Parameters
    ----------
    path
        The file.
    floor
        Least time of a transfer in us. HIOS raises those below 0.1 ms when it reads a file:
        100.0 gives its graphs, 0.0 what the file says.

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
    HIOS multiplies transfers by p / 0.8 besides, p being its ratio of communication to computation; files
    made for p = 0.8 stay as they are. O(size of the file).
    """
    lines = _Lines(str(path), read_text(path))
    floor = checks.real(lines.source, "floor", floor)
    index: dict[str, int] = {}
    times, utilizations = [], []
    for name, weight, share in lines.table(_OPERATOR):
        number = str(lines.whole(name))
        if number in index:
            raise lines.refused(f"operator {number} stands twice")
        index[number] = len(index)
        times.append(lines.real(weight) * MS)
        utilizations.append(lines.real(share))
    src: list[int] = []
    dst: list[int] = []
    transfers = []
    for producer, consumer, weight in lines.table(_EDGE):
        for end, column in ((producer, src), (consumer, dst)):
            number = str(lines.whole(end))
            if number not in index:
                raise lines.refused(f"there is no operator {number}")
            column.append(index[number])
        transfers.append(max(floor, lines.real(weight) * MS))
    lines.end()
    return build(
        lines.source, OpGraph.from_columns, list(index), src, dst, name=Path(path).stem or "graph", time=times,
        utilization=utilizations, edge_transfer=transfers,
    )  # fmt: skip


class _Lines:
    """The lines of a file, read from the first to the last."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self._lines = text.split("\n")
        self._at = 0  # lines read so far, which is the number of the one read last

    def table(self, columns: Sequence[str]) -> Iterator[list[str]]:
        """Read how many rows there are, then yield the row of each line."""
        length = self.whole(self._row("the number of rows", 1)[0])
        for _ in range(length):
            yield self._row(f'"{" ".join(columns)}"', len(columns))

    def end(self) -> None:
        """Refuse anything that follows."""
        rest = [i for i, line in enumerate(self._lines[self._at :], self._at + 1) if line.strip()]
        if rest:
            raise FormatError(f"{self.source}: line {rest[0]}: there is more than the edges announced")

    def whole(self, text: str) -> int:
        """Return a whole number of the line read last."""
        value = whole(text)
        if value is None:
            raise self.refused(f"{shown(text)} is not a whole number")
        return value

    def real(self, text: str) -> float:
        """Return a number of the line read last, finite and not negative."""
        value = real(text)
        if value is None or not 0 <= value < inf:
            raise self.refused(f"{shown(text)} is not a finite number of at least 0")
        return value

    def refused(self, reason: str) -> FormatError:
        """Return an error about the line read last."""
        return FormatError(f"{self.source}: line {self._at}: {reason}")

    def _row(self, what: str, length: int) -> list[str]:
        if self._at == len(self._lines):
            raise FormatError(f"{self.source}: it ends in line {self._at}, where {what} should follow")
        row = self._lines[self._at].split()
        self._at += 1
        if len(row) != length:
            raise self.refused(f"it should hold {what}, not {shown(self._lines[self._at - 1])}")
        return row
