"""The text of a torch.profiler trace, and its events one at a time.

A trace of half a million events is over 100 MB of text and several times that as Python objects. Events are
therefore handed on as they are decoded, and unwanted ones are dropped at once: that also leaves the
garbage collector nothing to search, so it pauses meanwhile. Unlike in our own documents, a key that stands
twice in an object counts once, as any JSON reader has it (the last one wins): the file is not ours.
"""

import gzip
import json
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from io import BytesIO
from typing import Any, Final, NoReturn

from simsched.base.errors import FormatError
from simsched.base.io import MOST_BYTES, decode_text, json_errors, read_bytes
from simsched.base.signals import without_collector

EVENTS: Final = "traceEvents"
_NSIGHT: Final = '"CudaEvent":'
_PEEKED: Final = 1 << 20  # characters in which an export of Nsight Systems has its first event
_GZIP: Final = b"\x1f\x8b"
_ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_ZIP: Final = b"PK\x03\x04"
_TAR = b"ustar"
_TAR_AT = 257
_TRACES: Final = (".json", ".json.gz", ".json.zst")  # files of an archive that are traces
# Traces deflate to a twentieth; a file that inflates to so much more is not a trace, and may fill the memory.
_MOST_INFLATED: Final = 400
_SMALL: Final = 1 << 26  # bytes that any file may inflate to

Reader = Callable[[int, dict[str, Any], dict[str, Any]], None]
Readers = Mapping[Any, Reader]
_NO_ARGUMENTS: Final[dict[str, Any]] = {}
_EVENT: Final = object()  # placeholder of each event in the list, whose dictionary may be gone by then


def read_trace(path: str | os.PathLike[str]) -> str:
    """Return the text of a trace, see `read_traces`, of which the file must have one.

    Raises
    ------
    FileError, FormatError
        As there, and if the file is an archive of several.
    """
    traces = read_traces(path)
    if len(traces) > 1:
        raise FormatError(f"{path}: holds {len(traces)} traces: {traces[0][0]}, ...; give the file of one")
    return traces[0][1]


def read_traces(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Return how errors name a trace, and its text, for each that a file holds.

    Parameters
    ----------
    path
        Plain, gzip or Zstandard, or an archive (zip or tar) of such files; the first bytes decide, whatever the name.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is damaged, not text, an archive without a trace, or needs a package that is not installed.
    """
    return [(source, decode_text(data, source)) for source, data in _plain(read_bytes(path), str(path))]


def _plain(data: bytes, source: str, *, is_member: bool = False) -> Iterator[tuple[str, bytes]]:
    """Yield the files that a file consists of, inflated; archives within archives are not looked into."""
    if data.startswith(_GZIP):
        data = _inflate(data, source)
    elif data.startswith(_ZSTANDARD):
        data = _inflate_zstandard(data, source)
    is_archive = data.startswith(_ZIP) or data[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR
    if not is_archive or is_member:
        yield source, data
        return
    members = [row for row in _members(data, source) if row[0].lower().endswith(_TRACES)]
    if not members:
        raise FormatError(f"{source}: the archive holds no trace: no file in it ends in {', '.join(_TRACES)}")
    for name, content in members:
        yield from _plain(content, f"{source}/{name}", is_member=True)


def _members(data: bytes, source: str) -> list[tuple[str, bytes]]:
    """Return the name and content of each file in an archive, by name."""
    most = min(max(_SMALL, _MOST_INFLATED * len(data)), MOST_BYTES)
    try:
        if data.startswith(_ZIP):
            with zipfile.ZipFile(BytesIO(data)) as archive:
                files = [row for row in archive.infolist() if not row.is_dir()]
                if sum(row.file_size for row in files) > most:
                    raise FormatError(f"{source}: inflates to over {most} bytes, so it holds no traces")
                contents = [(row.filename, archive.read(row)) for row in files]
        else:
            with tarfile.open(fileobj=BytesIO(data), mode="r:") as tar:
                members = [row for row in tar.getmembers() if row.isfile()]
                contents = [(row.name, file.read()) for row in members if (file := tar.extractfile(row)) is not None]
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise FormatError(f"{source}: the archive is damaged: {error}") from error
    return sorted(contents)


def _inflate_zstandard(data: bytes, source: str) -> bytes:
    try:
        import zstandard
    except ImportError as error:
        raise FormatError(f"{source}: is compressed by Zstandard: pip install zstandard") from error
    most = min(max(_SMALL, _MOST_INFLATED * len(data)), MOST_BYTES)
    try:
        with zstandard.ZstdDecompressor().stream_reader(BytesIO(data)) as file:
            content: bytes = file.read(most + 1)
    except zstandard.ZstdError as error:
        raise FormatError(f"{source}: the Zstandard file is damaged: {error}") from error
    if len(content) > most:
        raise FormatError(f"{source}: inflates to over {most} bytes, so it is not a trace")
    return content


def _inflate(data: bytes, source: str) -> bytes:
    most = min(max(_SMALL, _MOST_INFLATED * len(data)), MOST_BYTES)
    try:
        with gzip.open(BytesIO(data)) as file:
            content = file.read(most + 1)
    except EOFError as error:
        raise FormatError(f"{source}: the gzip file is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FormatError(f"{source}: the gzip file is damaged: {error}") from error
    if len(content) > most:
        raise FormatError(f"{source}: inflates to over {most} bytes, so it is not a trace")
    return content


def walk(text: str, source: str, readers: Readers, *, exact: bool, strict: bool = True) -> dict[str, Any]:
    """Hand events to the readers of their category, and return the other fields of the trace, if it is not just a list.

    Parameters
    ----------
    text, source
        The trace, and how errors name it.
    readers
        By category: called with the number of an event, the event and its arguments, for those that have
        a duration. A KeyError or TypeError that one raises becomes a FormatError.
    exact
        Whether numbers with a decimal point are read as `Decimal` instead of as floats.
    strict
        Whether NaN and infinity, and entries that are no events, are refused; else these are read as floats and
        passed over.

    Raises
    ------
    FormatError
        If it is not JSON (the message names the line) or has no events.
    """
    n_events = 0
    if _NSIGHT in text[:_PEEKED]:
        raise FormatError(f"{source}: is an export of Nsight Systems, which is not read; record with torch.profiler")

    def read_object(fields: dict[str, Any]) -> Any:
        """Read an event, which alone has a field "ph"; return any other object unchanged."""
        nonlocal n_events
        if "ph" not in fields:
            return fields
        try:
            read = readers.get(fields.get("cat"))
            if read is not None and fields["ph"] == "X":
                read(n_events, fields, fields.get("args", _NO_ARGUMENTS))
        except KeyError as error:
            raise FormatError(f"{place(source, n_events)}: field {error.args[0]!r} is missing") from None
        except (TypeError, AttributeError):
            raise FormatError(f"{place(source, n_events)}: a field has the wrong type") from None
        n_events += 1
        return _EVENT

    def refuse(constant: str) -> NoReturn:
        raise FormatError(f"{source}: {constant} is not a number that can be used")

    number = Decimal if exact else None
    try:
        with json_errors(source), without_collector():
            constant = refuse if strict else None
            document = json.loads(text, object_hook=read_object, parse_float=number, parse_constant=constant)
    except InvalidOperation as error:
        raise FormatError(f"{source}: a number is beyond all bounds") from error
    if isinstance(document, list):
        document = {EVENTS: document}
    if not isinstance(document, dict) or EVENTS not in document:
        raise FormatError(f"{source}: expected an object with {EVENTS!r}, as torch.profiler writes it")
    events = document.pop(EVENTS)
    if not isinstance(events, list):
        raise FormatError(f"{source}: field {EVENTS!r} must be a list")
    if not strict:
        events = [event for event in events if event is _EVENT]
    strange = next((i for i, event in enumerate(events) if event is not _EVENT), None)
    if strange is not None:
        raise FormatError(f"{place(source, strange)}: expected an object with a field 'ph'")
    if n_events != len(events):
        raise FormatError(f"{source}: there are events outside of the field {EVENTS!r}")
    return document


def place(source: str, number: int) -> str:
    """Return how errors name an event."""
    return f"{source}: {EVENTS}[{number}]"
