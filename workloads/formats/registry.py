"""The table of formats, and the functions that choose a format and call its reader or writer."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from simsched.base.errors import FormatError, UnknownNameError
from simsched.base.io import is_stream, read_bytes, reading_once
from simsched.model.graph import OpGraph
from workloads.retired import refuse_retired

if TYPE_CHECKING:
    from simsched.model.profile import Profile
    from simsched.model.program import Program
    from simsched.model.schedule import Schedule

    Document = OpGraph | Schedule | Program | Profile

_HEAD: Final = 1 << 16  # bytes that are looked at to tell JSON formats apart
_GZIP: Final = b"\x1f\x8b"
_EVENT: Final = {b"ph", b"cat", b"ts"}
_BEGINNINGS: Final = {"onnx": rb"\x08[\x01-\x20]", "dot": rb"(?i)\s*(?:strict\s+)?(?:di)?graph\b"}  # formats but JSON


class Format(NamedTuple):
    """A format: its contents, the functions that read and write it (``module:function``), and its marks in a file."""

    holds: str
    read: str
    write: str | None = None
    suffixes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    graph: str | None = None
    """Reads the graph alone, where `read` gives a schedule or profile."""


class Left(NamedTuple):
    """A format that is not read any more: its name, the remedy, and its marks in a file."""

    name: str
    instead: str
    keys: tuple[str, ...]

    def refusal(self, source: str) -> FormatError:
        """Return the error that a source is of it."""
        return FormatError(f"{source}: {self.name} is not read any more: {self.instead}")


FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "simsched": Format(
            "graph, schedule, program or profile",
            "native:read_native",
            "native:write_native",
            (".json",),
            graph="native:read_native_graph",
        ),
        "onnx": Format("graph", "onnx.models:read_onnx", None, (".onnx",)),
        "pt2": Format("graph", "torch.files:read_exported_file", None, (".pt2",)),
        "python": Format("graph", "torch.files:read_python"),
        "dot": Format("graph", "dot:read_dot", "dot:write_dot", (".dot", ".gv")),
        "stg": Format("graph", "stg:read_stg", None, (".stg",)),
        "kineto": Format(
            "profile",
            "kineto.profile:read_kineto",
            None,
            (".json.gz", ".json.zst", ".zip", ".tar", ".tar.gz", ".tgz"),
            ("traceEvents", "deviceProperties"),
            graph="kineto.program:read_kineto_graph",
        ),
        "rows": Format("profile", "rows:read_rows", None, (".csv",), graph="rows:read_rows_graph"),
        "hios": Format("schedule", "ios_hios.hios:read_hios", None, (), ("rank",)),
        "ios": Format(
            "schedule",
            "ios_hios.ios:read_ios",
            None,
            (),
            ("inner_nodes", "enter_node"),
            graph="ios_hios.ios:read_ios_graph",
        ),
        "hios-graph": Format("graph", "ios_hios.hios_graph:read_hios_graph", None, (".txt",)),
    }
)
"""The formats; JSON formats are distinguished by the keys near their beginning, in this order."""

LEFT: Final[Mapping[str, Left]] = MappingProxyType(
    {
        "wfcommons": Left(
            "WfCommons",
            "make an OpGraph of its tasks (runtimeInSeconds is time, in us), or use OpGraph.from_networkx",
            ("workflow",),
        ),
        "chakra": Left(
            "Chakra",
            "read a trace of torch.profiler, or make an OpGraph of its nodes (duration_micros is time)",
            ("ctrl_deps", "ctrlDeps", "data_deps", "dataDeps", "duration_micros", "durationMicros"),
        ),
    }
)
"""JSON formats that development versions read."""

PYTHON: Final = re.compile(r".*\.py:[A-Za-z_]\w*", re.IGNORECASE)
"""A name in a Python file, such as ``my_model.py:make``."""
SUFFIXES: Final = tuple(suffix for entry in FORMATS.values() for suffix in entry.suffixes)


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the format a file is in, by its suffix and, among JSON files, by its first 64 KiB.

    Of a pipe or a device without a suffix that is known, the first bytes tell JSON, gzip, ONNX and DOT.

    Raises
    ------
    FileError
        If the file has to be looked into and cannot be read.
    FormatError
        If neither the suffix nor the first bytes belong to a format, or they belong to one in `LEFT`.
    """
    unnamed = is_stream(path) and not os.fspath(path).lower().endswith(SUFFIXES)
    if unnamed:
        name = "simsched"
    else:
        name = _by_suffix(path)
    if name != "simsched":
        return name
    head = read_bytes(path, _HEAD)
    if head.startswith(_GZIP):
        return "kineto"
    if unnamed and not re.match(rb"(?:\xef\xbb\xbf)?\s*[{[]", head):
        begun = next((key for key, begins in _BEGINNINGS.items() if re.match(begins, head)), None)
        if begun is None:
            raise FormatError(f"{path}: its first bytes tell no format; name the pipe as files of the format are named")
        return begun
    if re.search(rb'"format"\s*:\s*"simsched\.', head):
        return "simsched"
    keys = set(re.findall(rb'"([A-Za-z_]+)"\s*:', head))
    if keys >= _EVENT and re.match(rb"(?:\xef\xbb\xbf)?\s*\[", head):  # the events of a trace alone
        return "kineto"
    for name, entry in FORMATS.items():
        if any(key.encode() in keys for key in entry.keys):
            return name
    for left in LEFT.values():
        if any(key.encode() in keys for key in left.keys):
            raise left.refusal(os.fspath(path))
    return "simsched"


@reading_once()
def read(
    path: str | os.PathLike[str],
    format: str | None = None,  # the word that users know it by
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    **options: Any,
) -> "Document":
    """Read a file in any of the `FORMATS`.

    Parameters
    ----------
    path
        The file.
    format
        Name of its format; None for `format_of`.
    shapes
        Sizes of inputs that the file leaves open, where the format knows such (ONNX).
    **options
        Of the format's reader, such as ``granularity=`` or ``batch=``.

    Returns
    -------
    OpGraph, Schedule, Program or Profile
        Depends on the contents of the format.

    Raises
    ------
    UnknownNameError
        If there is no such format.
    FormatError
        If the reader has no such option, or the file is not in the format.
    FileError
        If the file cannot be read.
    """
    return _read(path, format, shapes, options, graph=False)


@reading_once()
def read_graph(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    **options: Any,
) -> "OpGraph":
    """Read the graph of a file, as `read` does; options are the options of the graph's reader."""
    graph = as_graph(_read(path, format, shapes, options, graph=True))
    assert isinstance(graph, OpGraph)
    return graph


def _read(
    path: str | os.PathLike[str], format: str | None, shapes: Any, options: Mapping[str, Any], *, graph: bool
) -> "Document":
    if format is not None:
        name = _checked_name(format)
    else:
        name = format_of(path)
    function = _reader(FORMATS[name], graph)
    settings = dict(options) | ({"shapes": shapes} if shapes else {})
    names = [key for key in signature(function).parameters if key != "path"]
    strange = next((key for key in settings if key not in names), None)
    if strange is not None:
        refuse_retired(f"format {name}", [strange])
        raise FormatError(f"format {name}: there is no option {strange!r}; known are: {', '.join(names) or 'none'}")
    document: Document = function(path, **settings)
    return document


def as_graph(document: "Document") -> "Document":
    """Return the graph of a schedule or program; a graph, and a profile, is returned unchanged."""
    if type(document).__name__ == "Profile":  # it may have the graph that it was measured on
        return document
    graph: Document = getattr(document, "graph", document)
    return graph


def write(subject: "Document", path: str | os.PathLike[str], format: str | None = None) -> str:
    """Write a graph, schedule, program or profile; return the name of the format.

    Parameters
    ----------
    subject
        The object to write. A format that holds graphs alone gets the graph of a schedule.
    path
        The file, written whole or not at all.
    format
        Name of the format; None takes it from the suffix, ".json" being ours.

    Raises
    ------
    UnknownNameError, FormatError
        If there is no such format, no function writes it, or it cannot hold the object.
    GraphError, FileError
        If the subject cannot be expressed in it, or the file not be written.
    """
    if format is None:
        name = _by_suffix(path)
    else:
        name = _checked_name(format)
    entry = FORMATS[name]
    if entry.write is None:
        writable = ", ".join(key for key, other in FORMATS.items() if other.write is not None)
        raise FormatError(f"{path}: nothing writes {name} files; formats that are written: {writable}")
    if entry.holds == "graph":
        subject = as_graph(subject)
    kind = type(subject).__name__.lower()
    if kind in ("profile", "program") and kind not in entry.holds:
        raise FormatError(f"{path}: a {kind} cannot be written as {name}, which holds a {entry.holds}")
    _function(entry.write)(subject, path)
    return name


def reader_of(path: str | os.PathLike[str], *, graph: bool = True) -> "Callable[..., Document]":
    """Return the function that reads a file, or the graph in it; its keywords are the options."""
    return _reader(FORMATS[format_of(path)], graph)


def _reader(entry: Format, graph: bool) -> "Callable[..., Document]":
    return _function((entry.graph if graph else None) or entry.read)


def _by_suffix(path: str | os.PathLike[str]) -> str:
    """Return the format of a suffix; all of JSON is "simsched" here."""
    ending = os.fspath(path).lower()
    if PYTHON.fullmatch(os.fspath(path)):
        return "python"
    for name, entry in FORMATS.items():
        if entry.suffixes and ending.endswith(entry.suffixes):
            return name
    raise FormatError(f"{path}: the format is not known by its suffix; known are: {', '.join(SUFFIXES)}")


def _checked_name(name: str) -> str:
    if name in LEFT:
        raise LEFT[name].refusal(f"format {name}")
    if name not in FORMATS:
        raise UnknownNameError("format", name, list(FORMATS))
    return name


def _function(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    target: Callable[..., Any] = getattr(import_module(f"workloads.formats.{module}"), function)
    return target
