"""The file of a contact: JSON lines that are appended, of which a killed process damages at most the last.

A line is an object with one of these keys:

- ``contact``: the device, the plan and the versions, once for each run;
- ``begin``: the key of an item that a process begins;
- ``key``: an item that was measured, with ``at`` (s since the run began), ``took`` (s) and what was measured;
- ``failed``: the key of an item that was not, with ``reason``;
- ``anchor``: us of the anchor graph, with ``at``;
- ``section``: what was seen before and after a section: clocks, and s that it took.
"""

import fcntl
import gzip
import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from simsched.base.errors import BackendError, FormatError
from simsched.base.io import file_errors, make_folder, read_bytes

Json = dict[str, Any]

NAME: Final = "contact.jsonl"
"""The file of a contact in its folder; kept ones are compressed, with ``.gz`` after the name."""
_PAUSE: Final = 0.02  # s between two looks at a lock


@dataclass
class ContactRecord:
    """The lines of a contact as records.

    Parameters
    ----------
    headers
        ContactLines ``contact``, in the order of the runs.
    items
        ContactLines ``key`` by key, in the order of the file.
    failures
        ContactLines ``failed``, by key; the last of them is the latest.
    begun
        How often each item was begun.
    anchors, sections
        The other lines.
    """

    headers: list[Json] = field(default_factory=list)
    items: dict[str, Json] = field(default_factory=dict)
    failures: dict[str, list[Json]] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    anchors: list[Json] = field(default_factory=list)
    sections: list[Json] = field(default_factory=list)

    def add(self, line: Json) -> None:
        """Add a line; of an item that is there already it is ignored."""
        if "key" in line:
            self.items.setdefault(line["key"], line)
        elif "failed" in line:
            self.failures.setdefault(line["failed"], []).append(line)
        elif "begin" in line:
            self.begun[line["begin"]] = self.begun.get(line["begin"], 0) + 1
        elif "anchor" in line:
            self.anchors.append(line)
        elif "section" in line:
            self.sections.append(line)
        elif "contact" in line:
            self.headers.append(line)

    def is_unsupported(self, key: str) -> bool:
        """Return whether an item is missing because the device cannot measure it at all."""
        return key not in self.items and any(line.get("unsupported") for line in self.failures.get(key, ()))

    def reason(self, key: str) -> str | None:
        """Return why an item is missing; None if it is there or was not tried."""
        if key in self.items or key not in self.failures:
            return None
        return str(self.failures[key][-1]["reason"])


def lines_of(content: bytes, source: str) -> tuple[list[Json], int]:
    """Return the whole lines of a file, and the number of bytes that they take.

    A last line without its end is left out: its writer was killed.

    Raises
    ------
    FormatError
        If another line is no JSON object.
    """
    whole = content.rfind(b"\n") + 1
    rows = []
    for number, line in enumerate(content[:whole].splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise FormatError(f"{source}: line {number} is no JSON: {error}; remove it to go on") from error
        if not isinstance(row, dict):
            raise FormatError(f"{source}: line {number} is no JSON object; remove it to go on")
        rows.append(row)
    return rows, whole


def read_record(folder: str | Path) -> ContactRecord:
    """Return the record of a folder.

    Raises
    ------
    FileError, FormatError
        If there is no file of a contact, or it is damaged.
    """
    path = Path(folder) / NAME
    packed = path.with_name(f"{NAME}.gz")
    if packed.exists() and not path.exists():
        try:
            content = gzip.decompress(read_bytes(packed))
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"{packed} is damaged: {error}") from error
    else:
        content = read_bytes(path)
    record = ContactRecord()
    for line in lines_of(content, str(path))[0]:
        record.add(line)
    return record


class ContactLines:
    """The file of a contact, held by one process that appends to it; see `appending`."""

    def __init__(self, number: int, path: Path) -> None:
        self._number = number
        self._path = path
        content = path.read_bytes()
        rows, whole = lines_of(content, str(path))
        if whole < len(content):
            os.ftruncate(number, whole)  # the rest of a line whose writer was killed
        self.record = ContactRecord()
        for row in rows:
            self.record.add(row)

    def append(self, **line: Any) -> None:
        """Write a line to the disk.

        Raises
        ------
        FileError
            If it cannot be written.
        """
        content = json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with file_errors("write", self._path):
            while content:
                content = content[os.write(self._number, content) :]
            os.fsync(self._number)
        self.record.add(line)


@contextmanager
def appending(folder: str | Path, *, patience: float = 0.0) -> Iterator[ContactLines]:
    """Hold the file of a contact within a ``with`` block, so that no other process writes to it.

    Parameters
    ----------
    folder
        Made if it does not exist.
    patience
        Seconds to wait for another process that holds the file.

    Raises
    ------
    BackendError
        If another process holds it all that time.
    FileError, FormatError
        If it cannot be written, or is damaged.
    """
    path = make_folder(folder) / NAME
    with file_errors("write", path):
        number = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        until = time.monotonic() + patience
        while not _lock_file(number):
            if time.monotonic() > until:
                raise BackendError(f"another contact writes to {path}: wait for its end, or choose another folder")
            time.sleep(_PAUSE)
        yield ContactLines(number, path)
    finally:
        os.close(number)


def _lock_file(number: int) -> bool:
    """Lock an open file; return False if another process has locked it."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_contact(folder: str | Path) -> bool:
    """Return whether a folder holds a contact."""
    return any((Path(folder) / name).exists() for name in (NAME, f"{NAME}.gz"))


def missing(record: ContactRecord, keys: Sequence[str]) -> dict[str, str]:
    """Return why items are missing, by key, in the order given."""
    return {key: record.reason(key) or "no time left" for key in keys if key not in record.items}
