"""The folder of a study: its resolved configuration, and its rows in lines that are complete or absent."""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from simsched.base.codec import Checked, Document, brief
from simsched.base.errors import FileError, FormatError, StudyError
from simsched.base.io import clear_unfinished, file_errors, make_folder, read_bytes
from simsched.base.numeric import is_count, is_number
from simsched.experiments.study.growth import Places
from simsched.experiments.study.study import Study

STUDY: Final = "study.json"
ROWS_CSV = "rows.csv"
ROWS_PARQUET = "rows.parquet"
_DIGEST: Final = "digest"
WALL: Final = "wall."
"""What names of columns that are no results begin with: wall times."""
STATUSES: Final = ("ok", "refused", "failed", "timeout")
_NUMBERS: Final = ("makespan_us", "speedup", "wall.search_s", "wall.row_s")  # that tables take means and sums of

_LARGEST: Final = 1e300  # largest value of a column; sums of a million of them are floats still
_line: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StudyFile(Checked, Document):
    """The study that the rows of a folder belong to.

    Parameters
    ----------
    simsched
        Version of the library that runs it.
    folder
        Folder that the study's file names are relative to.
    study
        The study, its defaults written out; see `Study`.
    code
        Digest of the code of each scheduler that is not part of the library, by its name in the study.
    """

    SUBJECT = "study"
    ERROR = StudyError
    FORMAT = "simsched.study"
    simsched: str
    folder: str
    study: Mapping[str, Any]
    code: Mapping[str, str] = brief(dict)


class Described(NamedTuple):
    """A folder's description of its rows.

    Parameters
    ----------
    study
        Study that the rows belong to.
    version
        Version of the library that made them.
    code
        Digest of the code of each scheduler that is not part of the library.
    """

    study: Study
    version: str
    code: Mapping[str, str]


class StoredRows(NamedTuple):
    """The rows of a folder.

    Parameters
    ----------
    placed
        Rows that its study names, by index.
    stale
        Rows that its study names, by schedulers whose code has changed since.
    others
        Rows that its study does not name: an earlier form of the study did.
    """

    placed: list[dict[str, Any]]
    stale: list[dict[str, Any]]
    others: list[dict[str, Any]]


def rows_file(shard: tuple[int, int] | None = None) -> str:
    """Return the name of the file that rows go to, which is a shard's own."""
    if shard is None:
        return "rows.jsonl"
    return f"rows.shard-{shard[0]}-of-{shard[1]}.jsonl"


def prepare(study: Study, folder: str | os.PathLike[str], version: str, code: Mapping[str, str] | None = None) -> Path:
    """Make the folder of a study, and write the description of the coming run.

    Parameters
    ----------
    code
        As in `Described`.

    Raises
    ------
    StudyError
        If the folder holds a study of another name, or rows of another version.
    FileError
        If it cannot be made or written to.
    """
    path = make_folder(folder)
    for name in (STUDY, ROWS_CSV, ROWS_PARQUET):  # a run that was killed may have left some
        clear_unfinished(path / name)
    new = StudyFile(simsched=version, folder=os.path.realpath(study.folder), study=study.to_dict(), code=code or {})
    rows = rows_paths(path)  # looked for first: another shard may be beginning, too
    if (path / STUDY).exists():
        old = require_kin(path, study, version)
        if old.study == study and os.path.realpath(old.study.folder) == new.folder and old.code == new.code:
            return path
    elif rows:
        raise StudyError(f"{path}: there are rows but no {STUDY} that says of what; use another folder")
    new.save(path / STUDY)
    return path


def read_study(folder: str | os.PathLike[str]) -> Described:
    """Return a folder's description of its rows."""
    if not os.fspath(folder):
        raise StudyError("a folder without a name is that of no study; give . for the current one")
    path = Path(folder, STUDY)
    try:
        study_file = StudyFile.load(path)
    except FileError as error:
        raise StudyError(f"{folder}: not the folder of a study; run one into it: {error}") from None
    return Described(
        Study.from_dict(study_file.study, str(path), study_file.folder), study_file.simsched, study_file.code
    )


def require_kin(folder: str | os.PathLike[str], study: Study, version: str) -> Described:
    """Return a folder's description; refuse a study of another name, or of another version of the library."""
    old = read_study(folder)
    if old.study.name != study.name:
        names = f"{old.study.name!r}, not {study.name!r}"
        raise StudyError(f"{folder}: holds the study {names}; give it that name to extend it, or use another folder")
    if old.version != version:
        raise StudyError(f"{folder}: its rows are of simsched {old.version}, not {version}; use another folder")
    return old


def rows_paths(folder: Path) -> list[Path]:
    """Return the files with rows of a folder: the whole study's, then the shards'."""
    return [*folder.glob(rows_file()), *sorted(folder.glob("rows.shard-*-of-*.jsonl"))]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file in their order; a last line that was not written whole is left out.

    Raises
    ------
    FormatError
        If a line is no row; the message names it.
    """
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], 1):  # a line without end: its writer died
        try:
            row = json.loads(line)
            written = _is_row(row) and row.pop(_DIGEST, None) in (None, _digest(row))  # earlier releases wrote none
        except (ValueError, RecursionError):  # no JSON, or a number that is none
            written = False
        if not written:
            raise FormatError(f"{path}: line {number} is not as it was written; delete the line, then resume")
        rows.append(row)
    return rows


def _digest(row: Row) -> str:
    """Return a text that changes if the row is altered after it was written."""
    return blake2b(_line(row).encode(), digest_size=8).hexdigest()


def _is_row(row: Any) -> bool:
    """Return whether a decoded line has the fields that every row needs."""
    return (
        isinstance(row, dict)
        and is_count(row.get("index"))
        and all(isinstance(row.get(name), str) for name in ("key", "unit", "scheduler"))
        and row.get("status") in STATUSES
        and isinstance(row.get("reason", 0), str | None)
        and all(row.get(name) is None or (is_number(row[name]) and abs(row[name]) <= _LARGEST) for name in _NUMBERS)
    )


def _agree(old: dict[str, Any], new: dict[str, Any], where: str) -> dict[str, Any]:
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


def placed_rows(paths: Iterable[Path], study: Study, code: Mapping[str, str]) -> StoredRows:
    """Return the rows of some files, held against a study.

    Parameters
    ----------
    code
        As in `Described`.

    Returns
    -------
    Rows
        Numbered as the study numbers them now. Of rows of one file and place the last counts, since a file that the
        study names may have changed; but one with a result before one without.

    Raises
    ------
    StudyError
        If two rows of one place and one content disagree, or two with a result in different files do.
    FormatError
        If a line is no row.
    """
    places = Places(study)
    by_index: dict[int, dict[str, Any]] = {}
    stale: dict[str, dict[str, Any]] = {}
    others: dict[str, dict[str, Any]] = {}
    for path in paths:
        of_file: dict[int, dict[str, Any]] = {}
        for row in read_rows(path):
            indices, scheduler = places.of(row)
            if not indices:
                others[row["key"]] = row
            elif row.get("code") not in (None, code.get(scheduler)):
                stale[row["key"]] = row
            for index in indices if row["key"] not in stale else ():
                old = of_file.get(index)
                placed = {**row, "index": index}
                if old is None or old["key"] != row["key"]:
                    of_file[index] = placed
                else:
                    of_file[index] = _agree(old, placed, str(path))
        for index, row in of_file.items():
            if index in by_index:
                by_index[index] = _agree(by_index[index], row, str(path))
            else:
                by_index[index] = row
    keys = {row["key"] for row in by_index.values()}  # rows under a new name are not left over
    rest = [[row for key, row in rows.items() if key not in keys] for rows in (stale, others)]
    return StoredRows([by_index[index] for index in sorted(by_index)], *rest)


@contextmanager
def appending(path: Path) -> Iterator[Callable[[Sequence[Row]], None]]:
    """Yield a function that appends rows to a file of this process alone; a half-written line is cut off.

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
