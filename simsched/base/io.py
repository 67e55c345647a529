"""Reading and writing whole files: nothing half-written, nothing half-understood."""

import fcntl
import json
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from glob import escape
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from simsched.base.errors import BackendError, DeadlockError, FileError, FormatError

MOST_BYTES: Final = 16 << 30
"""Of a file or pipe, and of a compressed file after it was inflated."""
_CHUNK: Final = 1 << 24
_MOST_OF_DEVICES: Final = 64 << 20  # bytes; some, such as /dev/zero, have no end
NAMED: Final = (ValueError, BackendError, DeadlockError)  # errors that are made of a text alone
_given: ContextVar[dict[str, bytes] | None] = ContextVar("given", default=None)  # by pipes, while `reading_once`


@contextmanager
def file_errors(doing: str, path: object) -> Iterator[None]:
    """Turn errors of files within a ``with`` block into a `FileError`, such as ``cannot read x: ...``."""
    try:
        yield
    except FileError:
        raise
    except (OSError, ValueError) as error:
        raise FileError(f"cannot {doing} {path}: {getattr(error, 'strerror', None) or error}") from error


def write_file(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Write a file whole or not at all: temporary file beside it, fsync, rename.

    Temporary files that processes left which were killed as they wrote it are removed.

    Raises
    ------
    FileError
        If the folder does not exist or cannot be written to. The old file, if any, is kept.
    """
    with file_errors("write", path):
        if isinstance(data, str):
            content = data.encode()
        else:
            content = data
        if is_stream(path):  # it is written to, not replaced
            Path(path).write_bytes(content)
            return
        path = Path(os.path.realpath(path))  # through a symbolic link the file it names is written
        if path.is_dir():
            raise FileError(f"cannot write {path}: it is a folder")
        clear_unfinished(path)
        while not _try_replace(path, content):
            pass


def _try_replace(path: Path, content: bytes) -> bool:
    """Replace a file; return False if another process removed our temporary file before it was locked."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with temporary.open("xb") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_nlink:
                return False
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)  # while it is locked
    except BaseException:  # also Ctrl-C: the temporary file must not stay behind
        temporary.unlink(missing_ok=True)
        raise
    return True


def clear_unfinished(path: Path) -> None:
    """Remove the temporary files that killed writers left of a file (see `write_file`); live writers hold a lock."""
    for left in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 8}"):
        with suppress(OSError):  # it is locked, gone meanwhile, or not ours to remove
            number = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()
            finally:
                os.close(number)


def make_folder(path: str | os.PathLike[str], *, parents: bool = True) -> Path:
    """Make a folder, unless it exists, and its parents if `parents` is true; return its path.

    Raises
    ------
    FileError
        If it is nameless or cannot be made.
    """
    if not os.fspath(path):
        raise FileError("cannot make a folder without a name; give . for the current one")
    folder = Path(path)
    with file_errors("make folder", folder):
        folder.mkdir(parents=parents, exist_ok=True)
    return folder


def require_writable(path: str) -> None:
    """Refuse, as `write_file` would, a file that cannot be written; no file is left.

    Raises
    ------
    FileError
        If it is nameless or a folder, or if its folder does not exist or cannot be written to.
    """
    with file_errors("write", path):
        target = Path(os.path.realpath(path))
        if not path or target.is_dir():
            raise FileError(f"cannot write {path}: it is a folder" if path else "cannot write a file without a name")
        if not is_stream(path):
            tempfile.TemporaryFile(dir=target.parent).close()


@contextmanager
def reading_once() -> Iterator[None]:
    """Keep the bytes of pipes and devices within a ``with`` block: a second reader gets the same bytes."""
    streams = _given.get()
    token = _given.set({} if streams is None else streams)
    try:
        yield
    finally:
        _given.reset(token)


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a pipe, a device or an open file, which may give its bytes only once."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return False
    return os.fspath(path).startswith(("/dev/std", "/dev/fd/")) or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def read_bytes(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Return a file's content, or its first `most` bytes.

    Raises
    ------
    FileError
        If the file cannot be read, or has more than `MOST_BYTES`.
    """
    streams = _given.get()
    name = os.fspath(path)
    if streams is None or name not in streams:
        with file_errors("read", path), Path(path).open("rb") as file:
            if streams is None or not is_stream(path):
                if most is None:
                    return _read_whole(file, path)
                return file.read(most)
            streams[name] = _read_whole(file, path)
    return streams[name][:most]


def _read_whole(file: BinaryIO, path: str | os.PathLike[str]) -> bytes:
    """Return a file's content, looking at its size first; a file without size is read piece by piece."""
    status = os.fstat(file.fileno())
    limit = MOST_BYTES
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        limit = min(limit, _MOST_OF_DEVICES)
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
        return file.read()
    pieces = []
    if status.st_size <= limit:
        left = limit + 1
    else:
        left = 0
    while left and (piece := file.read(min(left, _CHUNK))):
        pieces.append(piece)
        left -= len(piece)
    if not left:
        raise FileError(f"cannot read {path}: it has more than {limit:,} bytes")
    return b"".join(pieces)


def decode_text(data: bytes | bytearray, source: str) -> str:
    """Return UTF-8 text, less a byte-order mark; `source` names it in errors.

    Raises
    ------
    FormatError
        If it is not UTF-8; the message names the byte.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{source}: not a text file ({error.reason} at byte {error.start})") from error


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a UTF-8 file; errors are as in `read_bytes` and `decode_text`."""
    return decode_text(read_bytes(path), str(path))


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Make errors of a ``with`` block that uses a file's content name the file."""
    try:
        yield
    except NAMED as error:
        raise type(error)(f"{source}: {error}") from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the value in a JSON file; NaN, infinities, numbers beyond floats and repeated keys are refused.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is not JSON; the message names the line.
    """
    return parse_json(read_text(path), source=str(path))


def parse_json(text: str, source: str = "JSON") -> Any:
    """Return the value of a JSON text; `source` names it in errors."""

    def refuse(constant: str) -> NoReturn:
        raise FormatError(f"{source}: {constant} is not a number that can be used")

    def finite(number: str) -> float:
        value = float(number)
        if isfinite(value):
            return value
        return refuse(number)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            key = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise FormatError(f"{source}: field {key!r} stands twice in one object")
        return table

    with json_errors(source):
        data = json.loads(text, parse_constant=refuse, parse_float=finite, object_pairs_hook=unique)
        if "\\ud" in text.lower():  # an escaped half of a character: text that nothing can print
            json.dumps(data, ensure_ascii=False).encode()
        return data


@contextmanager
def json_errors(source: str) -> Iterator[None]:
    """Turn errors of a JSON text within a ``with`` block into a `FormatError` that names the line."""
    try:
        yield
    except json.JSONDecodeError as at:
        raise FormatError(f"{source}: not valid JSON at line {at.lineno}, column {at.colno}: {at.msg}") from at
    except RecursionError as error:
        raise FormatError(f"{source}: nested too deeply") from error
    except FormatError:
        raise
    except ValueError as error:  # e.g. an integer of over 4,300 digits
        raise FormatError(f"{source}: {error}") from error


def dump_json(data: Mapping[str, Any], indent: int | None = 1) -> str:
    """Return `data` as JSON text that ends in a newline, of printable ASCII alone: all other characters are escaped."""
    text = json.dumps(data, indent=indent, allow_nan=False)
    return text.replace("\x7f", "\\u007f") + "\n"  # json escapes all control characters but DEL


_LARGEST_WHOLE: Final = 2**64
"""Larger ones go through json, which refuses those of over 4,300 digits."""


def json_copy(value: Any) -> Any:
    """Return a value as it comes back from a file: lists for tuples, and all of it copied.

    Raises ValueError, TypeError or RecursionError if it is no JSON value.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None or (kind is int and abs(value) < _LARGEST_WHOLE):
        return value
    if kind is list or kind is tuple:
        return [json_copy(part) for part in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: json_copy(part) for key, part in value.items()}
    return json.loads(json.dumps(value, allow_nan=False))
