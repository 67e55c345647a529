"""Graphs in the format of the Standard Task Graph Set."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simsched.base.errors import FormatError, brief_text
from simsched.base.io import read_text
from simsched.model.graph import Numbered, OpGraph
from workloads.checks import real as checked_real
from workloads.formats.reading import Lines, build, real, whole


def read_stg(path: str | os.PathLike[str], *, time_unit: float = 1.0, keep_dummies: bool = True) -> OpGraph:
    """Read a graph from a ``.stg`` file, named after the file; see `parse_stg`."""
    return parse_stg(read_text(path), str(path), name=Path(path).stem, time_unit=time_unit, keep_dummies=keep_dummies)


def parse_stg(
    text: str, source: str = "STG", *, name: str = "stg", time_unit: float = 1.0, keep_dummies: bool = True
) -> OpGraph:
    r"""Return the graph that a text in the format of the Standard Task Graph Set describes.

    Parameters
    ----------
    text
        The contents of the file.
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
        If a line does not fit, or there are fewer or more rows than the first line states; the message names the line.
    GraphError
        If a time is negative or not finite, or the graph has a cycle.

    Notes
    -----
    The first line holds the number n of tasks, and each row a task: its number, its processing
    time, the number of its predecessors, and these. Operator ``T5`` is task 5. The text after a ``#``
    is left out. Three layouts exist [1]_:

    - the set: n alone in the first line; n + 2 rows from task 0, the first and the last of them
      dummies;
    - its prototype: n and the number of processors; n + 1 rows from task 1, the last a dummy;
    - test benches with communication: n and the number of processors; n rows from task 0.

    Predecessors follow their number, alone or each with a communication cost: in pairs after it,
    or on further lines. A cost is the exact `transfer` of the edge; without costs
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
    lines = Lines(text, source, "STG")
    head = lines.take("the number of tasks")
    counts = [whole(field) for field in head]
    if len(head) > 2 or None in counts or 0 in counts:
        lines.fail(
            f"expected the number of tasks, alone or before that of processors, not {brief_text(' '.join(head))}"
        )
    table = _rows(lines, int(head[0]), with_processors=len(head) == 2)

    with np.errstate(over="ignore", invalid="ignore"):  # the graph refuses values that are not finite, and names them
        times = np.array(table.times, np.float64) * time_unit
        costs = np.array(table.costs, np.float64) * time_unit
    src = np.array(table.src, np.int64)
    dst = np.array(table.dst, np.int64)
    names: Sequence[str] = Numbered("T", len(times))
    if table.first != 0:
        names = tuple(f"T{i + table.first}" for i in range(len(times)))
    if table.dummies and not keep_dummies:
        busy = [i for i in table.dummies if times[i] != 0.0]
        if busy:
            raise FormatError(f"{source}: {names[busy[0]]} takes time, so it is no dummy to be left out; keep_dummies")
        begin = len(table.dummies) - 1
        end = len(times) - 1
        inside = (src >= begin) & (src < end) & (dst >= begin) & (dst < end)
        names = names[begin:end]
        times = times[begin:end]
        src = src[inside] - begin
        dst = dst[inside] - begin
        costs = costs[inside]
    return build(source, OpGraph.from_columns, names, src, dst, name=name, time=times, edge_transfer=costs)


class _TaskTable(NamedTuple):
    """The contents of the rows: indices of operators, times and costs in units."""

    first: int
    dummies: tuple[int, ...]
    times: list[float]
    src: list[int]
    dst: list[int]
    costs: list[float]


def _rows(lines: Lines, count: int, with_processors: bool) -> _TaskTable:
    row = lines.take("a task")
    if with_processors and row[0] == "1":
        first = 1
    else:
        first = 0
    n_rows = count + (first if with_processors else 2)
    table = _TaskTable(first, (n_rows - 1,) if first else () if with_processors else (0, n_rows - 1), [], [], [], [])
    for i in range(n_rows):
        if i:
            row = lines.take(f"task {i + first} of {n_rows} rows{'' if with_processors else ', two of them dummies,'}")
        if len(row) >= 3:
            task = whole(row[0])
            time = real(row[1])
            n_before = whole(row[2])
        else:
            task = time = n_before = None
        if task != i + first or time is None or n_before is None:
            lines.fail(
                f"expected task {i + first}, its processing time and its number of predecessors, "
                f"not {brief_text(' '.join(row))}"
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
            if len(pair) == 2:
                cost = real(pair[1])
            else:
                cost = None
            if before is None or cost is None:
                lines.fail(f"expected a predecessor of task {task} and its cost, not {brief_text(' '.join(pair))}")
            if not first <= before < first + n_rows:
                lines.fail(f"task {task} names predecessor {before}; there are tasks {first} to {first + n_rows - 1}")
            table.src.append(before - first)
            table.dst.append(i)
            table.costs.append(cost)
    lines.last()
    return table
