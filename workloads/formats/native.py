"""Our own JSON: the field "format" of a file says which of graph, schedule, program and profile it holds."""

import os
from collections.abc import Callable
from typing import Any

from simsched.base.errors import FormatError
from simsched.base.io import read_json
from simsched.model.graph import OpGraph
from simsched.model.profile import Profile
from simsched.model.program import Program
from simsched.model.schedule import Schedule

Document = OpGraph | Schedule | Program | Profile


def read_native(path: str | os.PathLike[str]) -> Document:
    """Read a graph, schedule, program or profile.

    Raises
    ------
    FileError, FormatError
        If the file cannot be read, or holds none of them.
    """
    data = read_json(path)
    readers: dict[str, Callable[[Any, str], Document]] = {
        "simsched.graph": OpGraph.from_dict,
        "simsched.schedule": Schedule.from_dict,
        "simsched.program": Program.from_dict,
        "simsched.profile": Profile.from_dict,
    }
    if not isinstance(data, dict) or "format" not in data:
        raise FormatError(f"{path}: not an object with a field 'format', which is one of: {', '.join(readers)}")
    found = data["format"]
    if not isinstance(found, str) or found not in readers:
        raise FormatError(f"{path}: field 'format' is {found!r}; expected one of: {', '.join(readers)}")
    return readers[found](data, str(path))


def read_native_graph(path: str | os.PathLike[str]) -> OpGraph:
    """Read a graph; see `OpGraph.load`."""
    return OpGraph.load(str(path))


def write_native(subject: Document, path: str | os.PathLike[str]) -> None:
    """Write a graph, schedule, program or profile."""
    subject.save(str(path))
