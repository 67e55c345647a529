"""Our own JSON: the field "format" of a file says which of graph, schedule, program and profile it holds."""

import os
from collections.abc import Mapping
from typing import Any, Final

from simsched.base.errors import FormatError
from simsched.base.io import read_json
from simsched.experiments.documents import DOCUMENTS
from simsched.model import OpGraph, Program, Schedule
from simsched.model.profile import Profile

_DUEL: Final = "simsched.duel"
Document = OpGraph | Schedule | Program | Profile


def read_native(path: str | os.PathLike[str]) -> Document:
    """Read a graph, schedule, program or profile; of a duel its graph.

    Raises
    ------
    FileError, FormatError
        If the file cannot be read, or holds none of them.
    """
    data = read_json(path)
    kinds = [f"simsched.{kind}" for kind in ("graph", "schedule", "program", "profile")]
    if not isinstance(data, dict) or "format" not in data:
        raise FormatError(f"{path}: not an object with a field 'format', which is one of: {', '.join(kinds)}")
    if data["format"] == _DUEL:
        return _graph_of_duel(data, path)
    if data["format"] not in kinds:
        raise FormatError(f"{path}: field 'format' is {data['format']!r}; expected one of: {', '.join(kinds)}")
    document: Document = DOCUMENTS[data["format"]].from_dict(data, str(path))  # type: ignore[assignment]
    return document


def read_native_graph(path: str | os.PathLike[str]) -> OpGraph:
    """Read a graph, see `OpGraph.load`, or the graph of a duel."""
    data = read_json(path)
    if isinstance(data, dict) and data.get("format") == _DUEL:
        return _graph_of_duel(data, path)
    return OpGraph.from_dict(data, str(path))


def _graph_of_duel(data: Mapping[str, Any], path: str | os.PathLike[str]) -> OpGraph:
    duel: Any = DOCUMENTS[_DUEL].from_dict(data, str(path))
    graph: OpGraph = duel.graph
    return graph


def write_native(subject: Document, path: str | os.PathLike[str]) -> None:
    """Write a graph, schedule, program or profile."""
    subject.save(str(path))
