"""Graphs in the format of the Standard Task Graph Set."""

import json
import os
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import numpy as np

from simsched.base.errors import FormatError, GraphError, shown
from simsched.base.io import read_text, write_file
from simsched.model.graph import Numbered, OpGraph
from workloads.checks import real as checked_real
from workloads.formats.reading import build, real, whole

_WIDTH: Final = 10  # a field of the published files takes 11 characters; ours start with a space
_EXACT: Final = 2**53


def read_stg(path: str | os.PathLike[str], *, time_unit: float = 1.0, keep_dummies: bool = True) -> OpGraph:
    """Read a graph from a ``.stg`` file, named after the file; see `parse_stg`."""
    return parse_stg(read_text(path), str(path), name=Path(path).stem, time_unit=time_unit, keep_dummies=keep_dummies)


def write_stg(graph: OpGraph, path: str | os.PathLike[str], *, time_unit: float = 1.0) -> None:
    """Write a graph to a ``.stg`` file, whole or not at all; see `to_stg`."""
    write_file(path, to_stg(graph, time_unit=time_unit))


def parse_stg(
    text: str, source: str = "STG", *, name: str = "stg", time_unit: float = 1.0, keep_dummies: bool = True
) -> OpGraph:
    r"""Return the graph that a text in the format of the Standard Task Graph Set describes.

    Parameters
    ----------
    text
        What such a file holds.
    source
        How errors name it.
    name
        Name of the graph; the format has none.
    time_unit
        Microseconds in a unit of processing time and of communication cost.
    keep_dummies
        Whether the entry and the exit that the format adds stay as operators of no time. Without
        them an operator that reads from the entry alone is an input of the graph.

    Raises
    ------
    FormatError
        If a line is not what it should be, or there are fewer or more rows than the first line
        says; the message names the line.
    GraphError
        If a time is negative or not finite, or the graph has a cycle.

    Notes
    -----
    The first line holds the number n of tasks, and each row a task: its number, its processing
    time, the number of its predecessors, and these. Operator ``T5`` is task 5. What follows a ``#``
    is left out. Three layouts exist [1]_:

    - the set: n alone in the first line; n + 2 rows from task 0, the first and the last of them
      dummies;
    - its prototype: n and the number of processors; n + 1 rows from task 1, the last a dummy;
    - test benches with communication: n and the number of processors; n rows from task 0.

    Predecessors stand behind their number, or each with a communication cost: in pairs behind it,
    or on lines of their own that follow. A cost is the exact `transfer` of the edge; without costs
    communication is free in this set, so the transfers are 0. The number of processors is left
    out. O(V + E).

    References
    ----------
    .. [1] Tobita and Kasahara, "A standard task graph set for fair evaluation of multiprocessor
       scheduling algorithms", Journal of Scheduling 5(5), 2002, doi:10.1002/jos.116;
       https://www.kasahara.cs.waseda.ac.jp/schedule/format_e.html

    >>> graph = parse_stg("2\n0 0 0\n1 5 1 0\n2 7 1 1\n3 0 1 2\n# two tasks in a row", keep_dummies=False)
    >>> graph.names, graph.time.tolist(), graph.edges[0].transfer
    (('T1', 'T2'), [5.0, 7.0], 0.0)
    """
    time_unit = checked_real("read_stg", "time_unit", time_unit)
    lines = _Lines(text, source)
    head = lines.take("the number of tasks")
    counts = [whole(field) for field in head]
    if len(head) > 2 or None in counts or 0 in counts:
        lines.fail(f"expected the number of tasks, alone or before that of processors, not {shown(' '.join(head))}")
    table = _rows(lines, int(head[0]), with_processors=len(head) == 2)

    with np.errstate(over="ignore", invalid="ignore"):  # the graph refuses what is not finite, and names it
        times, costs = np.array(table.times, np.float64) * time_unit, np.array(table.costs, np.float64) * time_unit
    src, dst = np.array(table.src, np.int64), np.array(table.dst, np.int64)
    names = Numbered("T", len(times)) if table.first == 0 else tuple(f"T{i + table.first}" for i in range(len(times)))
    if table.dummies and not keep_dummies:
        busy = [i for i in table.dummies if times[i] != 0.0]
        if busy:
            raise FormatError(f"{source}: {names[busy[0]]} takes time, so it is no dummy to be left out; keep_dummies")
        begin, end = len(table.dummies) - 1, len(times) - 1
        inside = (src >= begin) & (src < end) & (dst >= begin) & (dst < end)
        names, times = names[begin:end], times[begin:end]
        src, dst, costs = src[inside] - begin, dst[inside] - begin, costs[inside]
    return build(source, OpGraph.from_columns, names, src, dst, name=name, time=times, edge_transfer=costs)


class _Lines:
    """The lines that hold something, comments left out."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._number = 0
        self._lines = self._fields(text)

    def _fields(self, text: str) -> Iterator[list[str]]:
        for number, line in enumerate(text.split("\n"), 1):
            self._number = number
            fields = line.partition("#")[0].split()
            if fields:
                yield fields

    def take(self, what: str) -> list[str]:
        """Return the fields of the next line."""
        fields = next(self._lines, None)
        return self.fail(f"the file ends where {what} should stand") if fields is None else fields

    def last(self) -> None:
        """Refuse a line more."""
        fields = next(self._lines, None)
        if fields is not None:
            self.fail(f"a line more than the first line says: {shown(' '.join(fields))}")

    def fail(self, what: str) -> NoReturn:
        """Raise an error that names the line."""
        raise FormatError(f"{self._source}: not STG at line {self._number}: {what}")


class _Table(NamedTuple):
    """What the rows hold: indices of operators, times and costs in units."""

    first: int
    dummies: tuple[int, ...]
    times: list[float]
    src: list[int]
    dst: list[int]
    costs: list[float]


def _rows(lines: _Lines, count: int, with_processors: bool) -> _Table:
    row = lines.take("a task")
    first = 1 if with_processors and row[0] == "1" else 0
    n_rows = count + (first if with_processors else 2)
    table = _Table(first, (n_rows - 1,) if first else () if with_processors else (0, n_rows - 1), [], [], [], [])
    for i in range(n_rows):
        if i:
            row = lines.take(f"task {i + first} of {n_rows} rows{'' if with_processors else ', two of them dummies,'}")
        task, time, n_before = (whole(row[0]), real(row[1]), whole(row[2])) if len(row) >= 3 else (None, None, None)
        if task != i + first or time is None or n_before is None:
            lines.fail(
                f"expected task {i + first}, its processing time and its number of predecessors, "
                f"not {shown(' '.join(row))}"
            )
        table.times.append(time)
        if len(row) == 3:
            pairs = [lines.take(f"predecessor {k + 1} of task {task}") for k in range(n_before)]
        elif len(row) == 3 + n_before:
            pairs = [[field, "0"] for field in row[3:]]
        elif len(row) == 3 + 2 * n_before:
            pairs = [row[k : k + 2] for k in range(3, len(row), 2)]
        else:
            lines.fail(f"task {task} has {n_before} predecessors, but {len(row) - 3} numbers follow")
        for pair in pairs:
            before = whole(pair[0])
            cost = real(pair[1]) if len(pair) == 2 else None
            if before is None or cost is None:
                lines.fail(f"expected a predecessor of task {task} and its cost, not {shown(' '.join(pair))}")
            if not first <= before < first + n_rows:
                lines.fail(f"task {task} names predecessor {before}; there are tasks {first} to {first + n_rows - 1}")
            table.src.append(before - first)
            table.dst.append(i)
            table.costs.append(cost)
    lines.last()
    return table


def to_stg(graph: OpGraph, *, time_unit: float = 1.0) -> str:
    """Return a graph as text in the format of the Standard Task Graph Set.

    Parameters
    ----------
    graph
        Every operator needs a `time`.
    time_unit
        Microseconds in a unit of processing time and of communication cost.

    Raises
    ------
    GraphError
        If an operator has no time.

    Notes
    -----
    Operators are numbered from 1 in topological order, between two dummies. A graph that starts and
    ends in one operator of no time each, as one that was read with its dummies does, gets no others.
    If an edge has a `transfer`, all edges are written with their costs, 0 where there is none.
    Nothing else fits into this format: names, kinds, work, sizes of edges, kernels and the like are
    left out. The set has whole numbers; a time that is none is written with its fraction. O(V + E).

    >>> from simsched.model.graph import Edge, Operator
    >>> print(to_stg(OpGraph([Operator("a", time=5), Operator("b", time=7.5)], [Edge("a", "b")])), end="")
              2
              0          0          0
              1          5          1          0
              2        7.5          1          1
              3          0          1          2
    # "graph"
    """
    time_unit = checked_real("write_stg", "time_unit", time_unit)
    if time_unit == 0.0:
        raise GraphError("write_stg: time_unit must be more than 0")
    if np.isnan(graph.time).any():
        unknown = graph.names[int(np.argmax(np.isnan(graph.time)))]
        raise GraphError(f"operator {unknown!r} has no time, which STG cannot express; give it one")

    ptr, edges = graph.incoming
    order = graph.order_index.tolist()
    shift = 0 if _has_dummies(graph) else 1
    number = np.empty(len(graph), np.int64)
    number[graph.order_index] = np.arange(shift, len(graph) + shift)
    with_costs = bool((graph.edge_transfer > 0).any())
    costs = np.nan_to_num(graph.edge_transfer, nan=0.0)

    def row(task: int, time: float, before: list[int], cost: list[float]) -> Iterator[str]:
        if not with_costs:
            yield _line([task, _number(time / time_unit), len(before), *before])
            return
        yield _line([task, _number(time / time_unit), len(before)])
        for i, us in zip(before, cost, strict=True):
            yield _line(["", "", i, _number(us / time_unit)])

    lines = [_line([len(graph) - 2 * (1 - shift)])]
    if shift:
        lines += row(0, 0.0, [], [])
    for i in order:
        read = edges[ptr[i] : ptr[i + 1]]
        before = number[graph.src[read]].tolist()
        if shift and not before:
            lines += row(int(number[i]), float(graph.time[i]), [0], [0.0])
        else:
            lines += row(int(number[i]), float(graph.time[i]), before, costs[read].tolist())
    if shift:
        last = [int(number[graph.index[name]]) for name in graph.outputs]
        lines += row(len(graph) + 1, 0.0, last, [0.0] * len(last))
    return "\n".join([*lines, f"# {json.dumps(graph.name)}", ""])


def _has_dummies(graph: OpGraph) -> bool:
    """Return whether one operator of no time precedes and another follows all others."""
    first, last = int(graph.order_index[0]), int(graph.order_index[-1])
    return (
        len(graph) > 2
        and graph.inputs == (graph.names[first],)
        and graph.outputs == (graph.names[last],)
        and graph.time[first] == graph.time[last] == 0.0
    )


def _number(value: float) -> str:
    if value == inf:
        raise GraphError("write_stg: time_unit is so small that a time has no number")
    return str(int(value)) if value.is_integer() and value < _EXACT else repr(value)


def _line(fields: list[int | str]) -> str:
    return "".join(f" {field!s:>{_WIDTH}}" for field in fields)
