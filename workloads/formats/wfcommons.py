"""Workflows in WfFormat, the JSON format of WfCommons."""

import logging
import math
import os
import re
from collections.abc import Mapping
from decimal import Decimal
from sys import float_info
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.errors import FormatError
from simsched.base.io import Record, dump_json, read_json, write_file
from simsched.base.units import SECOND
from simsched.model.graph import Edge, Operator, OpGraph
from workloads.checks import shown
from workloads.formats.reading import build

_logger = logging.getLogger(__name__)

VERSIONS: Final = ("1.3", "1.4", "1.5", "1.6")
"""Versions of WfFormat that are read; 1.5 is written."""
_NESTED: Final = ("1.5", "1.6")  # with a specification and an execution
_NO_ID: Final = re.compile(r"[^0-9a-zA-Z\-_.]")


class _Row(NamedTuple):
    """A task of any version."""

    record: Record
    name: str
    id: str | None
    parents: list[str]
    children: list[str]
    reads: list[str]
    writes: list[str]


def read_wfcommons(path: str | os.PathLike[str]) -> OpGraph:
    """Read a graph from a WfCommons JSON file; see `parse_wfcommons`."""
    return parse_wfcommons(read_json(path), source=str(path))


def write_wfcommons(graph: OpGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph to a WfCommons JSON file, whole or not at all; see `to_wfcommons`."""
    write_file(path, dump_json(to_wfcommons(graph)))


def parse_wfcommons(data: Any, source: str = "WfCommons") -> OpGraph:
    """Return the graph of a workflow in WfFormat 1.3 to 1.6.

    Parameters
    ----------
    data
        The decoded JSON document.
    source
        How errors name it.

    Raises
    ------
    FormatError
        If it is not WfFormat, of another version, or a task or file is named that does not exist.
    GraphError
        If a value is out of range or the workflow has a cycle.

    Notes
    -----
    A task of the workflow is an operator [1]_. It is called by its name if no two tasks have the same,
    else by its id. Its kind is the program it runs, else its category, else ``"op"``. Its time is its
    run time, a decimal number of seconds shifted to us, if one was recorded. Work, memory, cores and
    machines have no counterpart on a GPU and are ignored, like everything that is not named here.

    Edges are those that `parents` or `children` state; where both fields are required (from 1.5 on)
    one that stands at one end only is taken and a warning logged. An edge carries the files that its
    producer writes and its consumer reads; a file alone makes no edge. Edges stand by consumer, in
    the order of its parents. References are ids from 1.5 on, before that names or ids. O(tasks + edges
    + files).

    References
    ----------
    .. [1] WfFormat, https://github.com/wfcommons/WfFormat

    >>> tasks = [
    ...     {"name": "a", "runtime": 0.5, "files": [{"name": "f", "size": 8, "link": "output"}]},
    ...     {"name": "b", "parents": ["a"], "files": [{"name": "f", "size": 8, "link": "input"}]},
    ... ]
    >>> graph = parse_wfcommons({"name": "two", "schemaVersion": "1.3", "workflow": {"tasks": tasks}})
    >>> graph["a"].time, graph.edges[0]
    (500000.0, Edge(src='a', dst='b', nbytes=8.0, transfer=None))
    """
    top = Record(data, source)
    version = top.take("schemaVersion", str)
    if version not in VERSIONS:
        raise FormatError(
            f"{source}: field 'schemaVersion' is {shown(version)}; this release reads WfFormat {', '.join(VERSIONS)}"
        )
    nested = version in _NESTED
    tasks = (_nested if nested else _flat)(_object(top, "workflow"))
    names = [row.name for row in tasks.rows]
    if len(set(names)) < len(names):
        names = [row.name if row.id is None else row.id for row in tasks.rows]
    operators = [
        build(row.record.where, Operator, name, kind=program or "op", time=time)
        for row, name, program, time in zip(tasks.rows, names, tasks.programs, tasks.times, strict=True)
    ]
    reads = [dict.fromkeys(row.reads) for row in tasks.rows]
    writes = [dict.fromkeys(row.writes) for row in tasks.rows]
    edges = [
        build(source, Edge, names[i], names[j], _shared(writes[i], reads[j], tasks.sizes, tasks.rows[j].record))
        for i, j in _pairs(source, tasks.rows, tasks.at, strict=nested)
    ]
    return build(source, OpGraph, operators, edges, top.take("name", str, "workflow"))


def _object(record: Record, key: str) -> Record:
    return Record(
        record.take(key, dict), f"{record.where}: {key}" if ":" not in record.where else f"{record.where}.{key}"
    )


def _texts(record: Record, key: str) -> list[str]:
    """Return a field that is a list of texts, empty if it is not there."""
    found: list[str] = record.take(key, list, [])
    for value in found:
        if not isinstance(value, str):
            raise FormatError(f"{record.where}: field {key!r} must hold texts, not {shown(value)}")
    return found


def _program(record: Record) -> str | None:
    """Return the program that a task runs."""
    command = record.take("command", dict, None)
    program: str | None = None if command is None else Record(command, record.where).take("program", str, None)
    return program


def _microseconds(record: Record, *keys: str) -> float | None:
    """Return the first of some fields that hold seconds, in us.

    Shifted as the decimal number that it is, so that 1.1 s are 1100000 us.
    """
    for key in keys:
        seconds = record.take(key, float, None)
        if seconds is not None:
            return float(Decimal(repr(seconds)) * int(SECOND))
    return None


def _size(record: Record, nbytes: float) -> float:
    if not 0 <= nbytes < math.inf:
        raise FormatError(f"{record.where}: the size of a file must be finite and not negative, not {nbytes!r}")
    return nbytes


class _Tasks(NamedTuple):
    """The tasks of a workflow, columns aligned with `rows`."""

    rows: list[_Row]
    times: list[float | None]
    programs: list[str | None]
    sizes: dict[str, float]
    at: Mapping[str, int]


def _nested(workflow: Record) -> _Tasks:
    """Read the tasks, file sizes, times and programs of versions from 1.5 on."""
    specification = _object(workflow, "specification")
    rows = [
        _Row(
            record,
            record.take("name", str),
            record.take("id", str),
            _texts(record, "parents"),
            _texts(record, "children"),
            _texts(record, "inputFiles"),
            _texts(record, "outputFiles"),
        )
        for record in specification.records("tasks")
    ]
    sizes: dict[str, float] = {}
    for record in specification.records("files", []):
        name = record.take("id", str)
        if name in sizes:
            raise FormatError(f"{record.where}: file {shown(name)} stands twice")
        sizes[name] = _size(record, record.take("sizeInBytes", float))
    at = _references(rows, by_name=False)
    times: list[float | None] = [None] * len(rows)
    programs: list[str | None] = [None] * len(rows)
    if workflow.take("execution", dict, None) is not None:
        for record in _object(workflow, "execution").records("tasks"):
            name = record.take("id", str)
            if name not in at:
                raise FormatError(f"{record.where}: there is no task of id {shown(name)}")
            times[at[name]] = _microseconds(record, "runtimeInSeconds")
            programs[at[name]] = _program(record)
    return _Tasks(rows, times, programs, sizes, at)


def _flat(workflow: Record) -> _Tasks:
    """Read the tasks, file sizes, times and programs of versions up to 1.4."""
    rows: list[_Row] = []
    sizes: dict[str, float] = {}
    times: list[float | None] = []
    programs: list[str | None] = []
    for record in workflow.records("tasks"):
        links: dict[str, list[str]] = {"input": [], "output": []}
        for file in record.records("files", []):
            name = file.take("path", str, "") + file.take("name", str)
            link = file.take("link", str)
            if link not in links:
                raise FormatError(f"{file.where}: field 'link' must be 'input' or 'output', not {shown(link)}")
            links[link].append(name)
            size = file.take("sizeInBytes", float, None)
            size = _size(file, file.take("size", float, 0.0) if size is None else size)
            sizes[name] = max(sizes.get(name, 0.0), size)  # should two tasks not agree, what may have to be moved
        rows.append(
            _Row(
                record,
                record.take("name", str),
                record.take("id", str, None),
                _texts(record, "parents"),
                _texts(record, "children"),
                links["input"],
                links["output"],
            )
        )
        times.append(_microseconds(record, "runtimeInSeconds", "runtime"))
        programs.append(_program(record) or record.take("category", str, None))
    return _Tasks(rows, times, programs, sizes, _references(rows, by_name=True))


def _references(rows: list[_Row], by_name: bool) -> Mapping[str, int]:
    """Return the task that each reference stands for; -1 for one that stands for several."""
    found: dict[str, int] = {}
    for i, row in enumerate(rows):
        if row.id is not None:
            if row.id in found:
                raise FormatError(f"{row.record.where}: id {shown(row.id)} stands twice; ids must be unique")
            found[row.id] = i
    if by_name:
        named: dict[str, int] = {}
        for i, row in enumerate(rows):
            named[row.name] = -1 if row.name in named else i
        found = named | {name: i for name, i in found.items() if name not in named}
    return found


def _pairs(source: str, rows: list[_Row], at: Mapping[str, int], strict: bool) -> list[tuple[int, int]]:
    """Return the edges as indices of tasks, by consumer."""

    def resolve(row: _Row, field: str, name: str) -> int:
        i = at.get(name)
        if i is None or i < 0:
            what = "is no task" if i is None else "is the name of several tasks"
            raise FormatError(f"{row.record.where}: field {field!r} names {shown(name)}, which {what}")
        return i

    up = [dict.fromkeys(resolve(row, "parents", name) for name in row.parents) for row in rows]
    stated = sum(map(len, up))
    agreed = 0
    for i, row in enumerate(rows):
        for j in dict.fromkeys(resolve(row, "children", name) for name in row.children):
            if i in up[j]:
                agreed += 1
            up[j][i] = None
    pairs = [(i, j) for j, parents in enumerate(up) for i in parents]
    if strict and not agreed == stated == len(pairs):
        lone = len(pairs) - agreed
        _logger.warning("%s: %d of %d dependencies stand at one end only; they were taken", source, lone, len(pairs))
    return pairs


def _shared(written: Mapping[str, None], read: Mapping[str, None], sizes: Mapping[str, float], record: Record) -> float:
    """Return the bytes of the files in both."""
    fewer, more = (written, read) if len(written) < len(read) else (read, written)
    total = 0.0
    for name in fewer:
        if name in more:
            if name not in sizes:
                raise FormatError(f"{record.where}: file {shown(name)} is not in the list of files")
            total += sizes[name]
    return total


def to_wfcommons(graph: OpGraph) -> dict[str, Any]:
    """Return a graph as a WfFormat 1.5 document.

    Notes
    -----
    An operator's name is the name of its task, and its id too where WfFormat allows it (letters,
    digits, ``-``, ``_`` and ``.``). If it has a time, that is its run time, in seconds, and its kind
    the program that ran. An edge that carries bytes has a file of its own, of a whole number of bytes (rounded up).
    What an execution must have and a graph has not: `makespanInSeconds` is the longest path of the
    recorded times, `executedAt` the beginning of 1970.

    WfFormat has no place for work, DRAM traffic, weights, utilization, kernels, intensity, dtype,
    attributes, shapes and blocks of operators, nor for exact transfers: all are left out, and parallel edges
    become one. Times of up to 15 digits are read back as they are. O(V + E).

    >>> document = to_wfcommons(OpGraph([Operator("a", time=250.0)]))
    >>> document["workflow"]["execution"]["tasks"][0]["runtimeInSeconds"]
    0.00025
    """
    ids = _ids(graph)
    tasks: list[dict[str, Any]] = [
        {"name": name, "id": ids[i], "parents": [], "children": [], "inputFiles": [], "outputFiles": []}
        for i, name in enumerate(graph.names)
    ]
    files = []
    linked: set[tuple[int, int]] = set()
    for e, (i, j, nbytes) in enumerate(
        zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_nbytes.tolist(), strict=True)
    ):
        if (i, j) not in linked:
            linked.add((i, j))
            tasks[i]["children"].append(ids[j])
            tasks[j]["parents"].append(ids[i])
        if nbytes:
            files.append({"id": f"edge{e}", "sizeInBytes": math.ceil(nbytes)})
            tasks[i]["outputFiles"].append(f"edge{e}")
            tasks[j]["inputFiles"].append(f"edge{e}")
    workflow: dict[str, Any] = {"specification": {"tasks": tasks, "files": files}}
    executed = [
        {"id": ids[i], "runtimeInSeconds": _seconds(time), "command": {"program": graph.label("kind", i)}}
        for i, time in enumerate(graph.time.tolist())
        if not math.isnan(time)
    ]
    if executed:
        known = {name: 0.0 if math.isnan(time) else time for name, time in zip(graph.names, graph.time, strict=True)}
        with np.errstate(over="ignore"):
            longest = graph.longest_path(known)[0]
        workflow["execution"] = {
            "makespanInSeconds": _seconds(min(longest, float_info.max)),
            "executedAt": "1970-01-01T00:00:00Z",
            "tasks": executed,
        }
    return {"name": graph.name or "workflow", "schemaVersion": "1.5", "workflow": workflow}


def _ids(graph: OpGraph) -> list[str]:
    """Return the id of each operator: its name, or a number where the name is not allowed."""
    taken = dict.fromkeys(graph.names)
    found = []
    for i, name in enumerate(graph.names):
        if _NO_ID.search(name):
            name = f"op.{i}"
            while name in taken:
                name += "."
            taken[name] = None
        found.append(name)
    return found


def _seconds(time: float) -> float:
    return float(Decimal(repr(time)) / int(SECOND))
