"""Our own JSON: the field "format" of a file says which of graph, schedule, program and profile it holds."""

import os

from simsched.base.errors import FormatError
from simsched.base.io import read_json
from simsched.experiments.documents import DOCUMENTS
from simsched.model import OpGraph, Program, Schedule
from simsched.model.profile import Profile

Document = OpGraph | Schedule | Program | Profile


def read_native(path: str | os.PathLike[str]) -> Document:
    """Read a graph, schedule, program or profile.

    Raises
    ------
    FileError, FormatError
        If the file cannot be read, or holds none of them.
    """
    data = read_json(path)
    kinds = [f"simsched.{kind}" for kind in ("graph", "schedule", "program", "profile")]
    if not isinstance(data, dict) or "format" not in data:
        raise FormatError(f"{path}: not an object with a field 'format', which is one of: {', '.join(kinds)}")
    if data["format"] not in kinds:
        raise FormatError(f"{path}: field 'format' is {data['format']!r}; expected one of: {', '.join(kinds)}")
    found: Document = DOCUMENTS[data["format"]].from_dict(data, str(path))  # type: ignore[assignment]
    return found


def read_native_graph(path: str | os.PathLike[str]) -> OpGraph:
    """Read a graph; see `OpGraph.load`."""
    return OpGraph.load(str(path))


def write_native(subject: Document, path: str | os.PathLike[str]) -> None:
    """Write a graph, schedule, program or profile."""
    subject.save(str(path))
