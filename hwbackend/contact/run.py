"""`run_contact`: sections in the order of their worth, each in a process of its own, until the time is over."""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from hwbackend.contact.device import FAKE
from hwbackend.contact.lines import NAME, ContactRecord, Json, appending, read_record
from hwbackend.contact.sections import SECTIONS, SIZES
from hwbackend.contact.worker import CUT, DONE, LOST, MOST_FAILURES, UNUSABLE
from hwbackend.measuring.environment import environment
from simsched.base.errors import BackendError, FormatError, UnknownNameError
from simsched.base.io import file_errors, make_folder

USUAL_BACKEND: Final = "cupy"
USUAL_SECONDS: Final = 480.0
PATIENCE: Final = 60.0
"""s without a new line after which a process hangs."""
_LEAST: Final = 1.0  # s below which no section is begun
_LOOK: Final = 0.05  # s between two looks at a process
_MOST_STARTS: Final = 8  # processes for one section
_KEPT: Final = 500  # characters of what a process that ended suddenly wrote
_SUDDEN: Final = "its process ended while it was measured"

Tell = Callable[[str], None]


def run_contact(
    folder: str | Path,
    backend: str,
    options: Mapping[str, Any] | None = None,
    *,
    seconds: float = USUAL_SECONDS,
    size: str = "full",
    patience: float = PATIENCE,
    tell: Tell = lambda _line: None,
) -> ContactRecord:
    """Measure a device, and go on where an earlier run in the same folder stopped.

    Parameters
    ----------
    folder
        Where `contact.jsonl` is; it is made.
    backend, options
        The device: ``"fake"`` or a backend; see `open_device`.
    seconds
        Time in all. Items are measured in the order of their worth; the first that would take longer than what is left
        ends the run.
    size
        ``"full"``, or ``"small"`` for a trial of everything.
    patience
        Seconds without an answer, beyond those that an item takes, after which a process is ended and its item given
        up.
    tell
        Called with a line for each section.

    Returns
    -------
    ContactRecord
        What the folder holds in the end.

    Raises
    ------
    BackendError
        If the device cannot be used, or another process writes to the folder.
    FormatError
        If the folder holds measurements of another device or size.
    UnknownNameError
        If there is no such size.
    """
    if size not in SIZES:
        raise UnknownNameError("size", size, list(SIZES))
    with _alone(folder):
        budget = _Budget(seconds, is_virtual=backend == FAKE)
        begun = _prepare(folder, backend, dict(options or {}), size)
        for section in SECTIONS:
            status = DONE
            for _ in range(_MOST_STARTS):
                if budget.left() < _LEAST:
                    status = CUT
                    break
                status = _run_section(folder, section, backend, options or {}, size, budget, begun, patience)
                if status in (DONE, CUT):
                    break
            record = read_record(folder)
            end = " (cut)" if status == CUT else ""
            tell(f"{section}: {_counts(record, section)}, {budget.seconds_used():.0f} s used{end}")
            if status == CUT:
                break
    return read_record(folder)


def _counts(record: ContactRecord, section: str) -> str:
    """Return how many items of a section were measured, failed, and are not possible on the device."""
    done = [key for key in record.items if key.startswith(f"{section}/")]
    missing = [key for key in record.failures if key.startswith(f"{section}/") and key not in record.items]
    unsupported = sum(map(record.is_unsupported, missing))
    text = f"{len(done)} items, {len(missing) - unsupported} failed"
    if unsupported:
        text += f", {unsupported} not possible here"
    return text


class _Budget:
    """The time of a run: wall time, or the time that virtual devices report."""

    def __init__(self, seconds: float, *, is_virtual: bool) -> None:
        self._seconds = seconds
        self._is_virtual = is_virtual
        self._started = time.monotonic()
        self._virtual = 0.0

    def seconds_used(self) -> float:
        return self._virtual if self._is_virtual else time.monotonic() - self._started

    def left(self) -> float:
        return self._seconds - self.seconds_used()

    def spend(self, virtual: float) -> None:
        self._virtual += virtual


@contextmanager
def _alone(folder: str | Path) -> Iterator[None]:
    """Let no other run use a folder within a ``with`` block."""
    path = make_folder(folder)
    with file_errors("open", path):
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackendError(f"another contact uses {path}: wait for its end, or choose another folder") from None
        yield
    finally:
        os.close(number)


def _prepare(folder: str | Path, backend: str, options: dict[str, Any], size: str) -> float:
    """Write where and how it is measured; return the s that earlier runs took.

    Raises
    ------
    FormatError
        If earlier runs were of another device or size.
    """
    with appending(folder, patience=PATIENCE) as lines:
        header: Json = {"backend": backend, "options": options, "size": size}
        for earlier in lines.record.headers:
            for name, value in header.items():
                if earlier["contact"].get(name) != value:
                    raise FormatError(
                        f"{folder} holds a contact with {name} {earlier['contact'].get(name)!r}, not {value!r}: choose "
                        f"another folder"
                    )
        date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lines.append(contact=header, date=date, environment=environment(backend, "the device of the contact"))
        return _latest(lines.record)


def _latest(record: ContactRecord) -> float:
    """Return the s after the beginning of the contact at which its last line was written."""
    rows = [*record.items.values(), *record.anchors, *record.sections]
    rows += [line for lines in record.failures.values() for line in lines]
    return max((float(line.get("at", 0.0)) + float(line.get("took", 0.0)) for line in rows), default=0.0)


def _run_section(
    folder: str | Path,
    section: str,
    backend: str,
    options: Mapping[str, Any],
    size: str,
    budget: _Budget,
    begun: float,
    patience: float,
) -> int:
    """Measure a section in a process of its own; return its exit status, `LOST` if it had to be ended."""
    before = read_record(folder)
    at = begun + budget.seconds_used()
    task = {
        "folder": str(folder),
        "section": section,
        "backend": backend,
        "options": dict(options),
        "size": size,
        "seconds": budget.left(),
        "begun": at,
        "parent": os.getpid(),
    }
    command = [sys.executable, "-m", "hwbackend.contact", "section", json.dumps(task)]
    with TemporaryFile() as said, subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=said) as process:
        try:
            hung = _watch(process, Path(folder) / NAME, patience)
        finally:
            if process.poll() is None:
                process.kill()
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    if process.returncode == UNUSABLE:
        raise BackendError(text.rpartition("error: ")[2] or f"backend {backend} cannot be used here")
    after = read_record(folder)
    budget.spend(max(0.0, _latest(after) - at))
    status = process.returncode
    if status in (DONE, CUT, LOST) and not hung:
        return status
    guilty = _last_unfinished(before, after)
    if guilty is not None:
        reason = f"it hung: no answer for {patience:.0f} s" if hung else f"{_SUDDEN} (status {status})"
        with appending(folder, patience=PATIENCE) as lines:
            lines.append(failed=guilty, reason=reason, at=_latest(after), stderr=text[-_KEPT:])
    return CUT if budget.left() < _LEAST else LOST


def _watch(process: "subprocess.Popen[bytes]", path: Path, patience: float) -> bool:
    """Wait for the end of a process; end it and return True if it writes no line for so many s.

    The time that an item takes, as its line of the beginning says, comes on top.
    """
    size = -1
    since = time.monotonic()
    expected = 0.0
    while process.poll() is None:
        time.sleep(_LOOK)
        grown = path.stat().st_size
        if grown != size:
            expected = _expected_seconds(path, max(0, size), grown)
            size = grown
            since = time.monotonic()
        if time.monotonic() - since > patience + expected:
            process.kill()
            process.wait()
            return True
    return False


def _expected_seconds(path: Path, start: int, end: int) -> float:
    """Return the s that the item takes which the last line of a part of a file begins, 0 if it begins none."""
    with path.open("rb") as file:
        file.seek(start)
        line = file.read(end - start).rstrip(b"\n").rpartition(b"\n")[2]
    try:
        row = json.loads(line)
        return float(row.get("seconds", 0.0)) if "begin" in row else 0.0
    except ValueError:  # a line without its end
        return 0.0


def _last_unfinished(before: ContactRecord, after: ContactRecord) -> str | None:
    """Return the item that a process began last and did not finish."""
    begun = [key for key, count in after.begun.items() if count > before.begun.get(key, 0)]
    for key in reversed(begun):
        tried = len(after.failures.get(key, ())) > len(before.failures.get(key, ()))
        if key not in after.items and not tried:
            return key
    return None


def is_given_up(record: ContactRecord, key: str) -> bool:
    """Return whether an item failed so often that it is not tried again."""
    return key not in record.items and len(record.failures.get(key, ())) >= MOST_FAILURES
