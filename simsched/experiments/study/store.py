"""The folder of a study: its resolved configuration, and rows in lines that are there whole or not at all."""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from simsched.base.codec import Checked, Document
from simsched.base.errors import FileError, FormatError, StudyError
from simsched.base.io import clear_unfinished, file_errors, make_folder, read_bytes
from simsched.base.numeric import is_count, is_number
from simsched.experiments.study.study import Study

STUDY: Final = "study.json"
ROWS_CSV, ROWS_PARQUET = "rows.csv", "rows.parquet"
_DIGEST: Final = "digest"
WALL: Final = "wall."
"""What names of columns that are no results begin with: wall times."""
STATUSES: Final = ("ok", "refused", "failed", "timeout")
_NUMBERS: Final = ("makespan_us", "speedup", "wall.search_s", "wall.row_s")  # that tables take means and sums of

_LARGEST: Final = 1e300  # of those; sums of a million of them are floats still
_line: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StudyFile(Checked, Document):
    """What the rows of a folder are of.

    Parameters
    ----------
    simsched
        Version of the library that runs it.
    folder
        What files that the study names are relative to.
    study
        The study, its defaults written out; see `Study`.
    """

    SUBJECT, ERROR, FORMAT = "study", StudyError, "simsched.study"
    simsched: str
    folder: str
    study: Mapping[str, Any]


def rows_file(shard: tuple[int, int] | None = None) -> str:
    """Return the name of the file that rows go to, which is a shard's own."""
    return "rows.jsonl" if shard is None else f"rows.shard-{shard[0]}-of-{shard[1]}.jsonl"


def prepare(study: Study, folder: str | os.PathLike[str], version: str) -> Path:
    """Make the folder of a study, and write down what is going to be run.

    Raises
    ------
    StudyError
        If the folder holds another study, or rows of another version; the message says what differs.
    FileError
        If it cannot be made or written to.
    """
    path = make_folder(folder)
    for name in (STUDY, ROWS_CSV, ROWS_PARQUET):  # a run that was killed may have left some
        clear_unfinished(path / name)
    new = StudyFile(simsched=version, folder=os.path.realpath(study.folder), study=study.to_dict())
    rows = rows_paths(path)  # looked for first: another shard may be beginning, too
    if (path / STUDY).exists():
        old = require_same(path, study, version)
        if old == study and os.path.realpath(old.folder) == new.folder:
            return path
    elif rows:
        raise StudyError(f"{path}: there are rows but no {STUDY} that says of what; use another folder")
    new.save(path / STUDY)
    return path


def read_study(folder: str | os.PathLike[str]) -> tuple[Study, str]:
    """Return the study of a folder, and the version of the library that its rows are of."""
    if not os.fspath(folder):
        raise StudyError("a folder without a name is that of no study; give . for the current one")
    path = Path(folder, STUDY)
    try:
        found = StudyFile.load(path)
    except FileError as error:
        raise StudyError(f"{folder}: not the folder of a study; run one into it: {error}") from None
    return Study.from_dict(found.study, str(path), found.folder), found.simsched


def require_same(folder: str | os.PathLike[str], study: Study, version: str) -> Study:
    """Return the study of a folder; refuse one whose rows are of something else."""
    old, written_by = read_study(folder)
    key = old.difference(study)
    if key is not None:
        raise StudyError(f"{folder}: holds another study: {key!r} is not as in {study.source}; use another folder")
    if written_by != version:
        raise StudyError(f"{folder}: its rows are of simsched {written_by}, not {version}; use another folder")
    return old


def rows_paths(folder: Path) -> list[Path]:
    """Return the files with rows of a folder: the whole study's, then those of shards."""
    return [*folder.glob(rows_file()), *sorted(folder.glob("rows.shard-*-of-*.jsonl"))]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; a last line that was not written whole is left out.

    Of rows of one index the last counts, since a file that the study names may have changed.

    Raises
    ------
    StudyError
        If a row stands twice and the two disagree.
    FormatError
        If a line is no row; the message names it.
    """
    found: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], 1):  # what has no end is of a writer that died
        try:
            row = json.loads(line)
            written = _is_row(row) and row.pop(_DIGEST, None) in (None, _digest(row))  # earlier releases wrote none
        except (ValueError, RecursionError):  # no JSON, or a number that is none
            written = False
        if not written:
            raise FormatError(f"{path}: line {number} is not as it was written; delete the line, then resume")
        old = found.pop(row["index"], None)
        found[row["index"]] = row if old is None or old["key"] != row["key"] else _agreed(old, row, str(path))
    return list(found.values())


def _digest(row: Row) -> str:
    """Return a text that tells whether a row is as it was written."""
    return blake2b(_line(row).encode(), digest_size=8).hexdigest()


def _is_row(row: Any) -> bool:
    """Return whether a decoded line has what is read from every row."""
    return (
        isinstance(row, dict)
        and is_count(row.get("index"))
        and all(isinstance(row.get(name), str) for name in ("key", "unit", "scheduler"))
        and row.get("status") in STATUSES
        and isinstance(row.get("reason", 0), str | None)
        and all(row.get(name) is None or (is_number(row[name]) and abs(row[name]) <= _LARGEST) for name in _NUMBERS)
    )


def _agreed(old: dict[str, Any], new: dict[str, Any], where: str) -> dict[str, Any]:
    """Return one of two rows of an index: the last, but rather one with a result."""
    if old["status"] != "ok" or new["status"] != "ok":
        return old if old["status"] == "ok" else new
    if _deterministic(old) != _deterministic(new):
        row = f"row {old['index']} ({old['scheduler']})"
        raise StudyError(f"{where}: {row} stands twice, with different results; remove one of the two lines")
    return old


def _deterministic(row: Row) -> dict[str, Any]:
    """Return the columns of a row that are the same whenever and wherever it is run."""
    return {name: value for name, value in row.items() if not name.startswith(WALL)}


def union(files: Iterable[tuple[str, Sequence[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Return the rows of several files by index; those that stand in several must agree.

    Raises
    ------
    StudyError
        If two with a result do not; the message names the row.
    """
    found: dict[int, dict[str, Any]] = {}
    for where, rows in files:
        for row in rows:
            old = found.get(row["index"])
            found[row["index"]] = row if old is None else _agreed(old, row, where)
    return [found[index] for index in sorted(found)]


def all_rows(folder: Path, study: Study) -> list[dict[str, Any]]:
    """Return the rows of all files of a folder by index.

    Raises
    ------
    StudyError
        If two disagree, or one is not of the study.
    FormatError
        If a line is no row.
    """
    rows = union((str(path), read_rows(path)) for path in rows_paths(folder))
    labels, n_rows = [choice.label for choice in study.choices], len(study)
    for row in rows:
        index = row["index"]
        if index >= n_rows or row["scheduler"] != labels[index % len(labels)]:  # it varies fastest
            raise StudyError(f"{folder}: row {index} ({row['scheduler']}) is not of its study; delete it, then resume")
    return rows


@contextmanager
def appending(path: Path) -> Iterator[Callable[[Sequence[Row]], None]]:
    """Give a function that appends rows to a file for this process alone; what is half-written is cut off.

    All rows are appended, or none; they are on disk when it returns.

    Raises
    ------
    StudyError
        If another run writes to it.
    FileError
        If it cannot be written to.
    """
    with file_errors("write", path):
        file = path.open("ab", buffering=0)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which the system gives up when the process ends
        except OSError:
            in_use = f"{path}: another run is writing to it; wait for its end, or use another folder"
            raise StudyError(in_use) from None
        with file_errors("write", path):
            file.truncate(read_bytes(path).rfind(b"\n") + 1)

        def append(rows: Sequence[Row]) -> None:
            data = "".join(f"{_line({**row, _DIGEST: _digest(row)})}\n" for row in rows).encode()
            with file_errors("write", path):
                end = file.seek(0, os.SEEK_END)
                try:
                    if file.write(data) < len(data):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(end)
                    raise

        yield append
