"""`Store`: a folder of measurements, in few and small files that are always whole.

``campaign.json`` says what was asked for, where it ran, what was tried and why something is missing.
``measurements-1.json`` and so on hold the items. An item is any JSON object; one that has a profile holds a
``simsched.profile`` document under that key. What many documents repeat (graphs, clusters, the operators of a
profile, instructions of programs, words about the environment) stands in a file once, under ``shared``, and the
documents have its number.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from simsched.base.errors import FileError, FormatError
from simsched.base.io import document, read_json, write_file

HEADER: Final = "campaign.json"
HEADER_FORMAT, ITEMS_FORMAT, VERSION = "simsched.campaign", "simsched.measurements", 1
MOST_FILES: Final = 5  # of items: with the header and what is written besides, no more than eight
MOST_NBYTES: Final = 1_900_000  # of a file

_NANOSECONDS: Final = 3  # digits after the point of a time in us; no clock that is used here resolves more
_ONCE: Final = ("graph", "cluster", "operators")
_EACH: Final = ("graphs", "clusters")
_PRELUDE: Final = '{"format":"%s","version":%d,"shared":[' % (ITEMS_FORMAT, VERSION)  # noqa: UP031  # full of braces
Json = dict[str, Any]


class Store:
    """A folder of measurements, read when made; `put` writes.

    Parameters
    ----------
    folder
        Made if it is not there. What a killed run left half-written beside its files is removed.
    most_nbytes
        Largest size of a file.

    Raises
    ------
    FileError, FormatError
        If the folder cannot be made or read, or a file in it is not what it should be.
    """

    def __init__(self, folder: str | Path, *, most_nbytes: int = MOST_NBYTES) -> None:
        self.folder = Path(folder)
        self._most = most_nbytes
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot make folder {folder}: {error.strerror}") from error
        for path in sorted(self.folder.glob(".*.json.*")):
            path.unlink(missing_ok=True)
        self.header: Json = {}
        if (self.folder / HEADER).exists():
            top = document(read_json(self.folder / HEADER), HEADER_FORMAT, VERSION, str(self.folder / HEADER))
            self.header = top.take("header", dict)
            top.done()
        self._files = [_File.read(path) for path in self._paths() if path.exists()]
        self._home = {key: file for file in self._files for key in file.items}

    def __contains__(self, key: str) -> bool:
        return key in self._home

    def __iter__(self) -> Iterator[str]:
        return iter(self._home)

    def __len__(self) -> int:
        return len(self._home)

    def __getitem__(self, key: str) -> Json:
        """Return an item as it was put, its times to a nanosecond."""
        return self._home[key].get(key)

    def put(self, key: str, item: Json) -> None:
        """Add an item and write its file.

        Raises
        ------
        FileError
            If the file cannot be written, or all files are full.
        """
        item = json.loads(json.dumps(item, allow_nan=False))  # a copy, lists for tuples
        for file in (*self._files[-1:], None):
            last = file is None
            into = file or _File(self._next())
            if into.add(key, item, self._most, forced=last):
                if last:
                    self._files.append(into)
                self._home[key] = into
                return

    def save_header(self) -> None:
        """Write `header`."""
        text = json.dumps({"format": HEADER_FORMAT, "version": VERSION, "header": self.header}, indent=1)
        write_file(self.folder / HEADER, text + "\n")

    def _paths(self) -> list[Path]:
        return [self.folder / f"measurements-{i}.json" for i in range(1, MOST_FILES + 1)]

    def _next(self) -> Path:
        if len(self._files) == MOST_FILES:
            raise FileError(f"no room for more in {self.folder}: its {MOST_FILES} files are full")
        return self._paths()[len(self._files)]


class _File:
    """One file: texts of what is shared, by number, and of the items, by key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shared: dict[str, int] = {}
        self.items: dict[str, str] = {}
        self._values: list[Any] = []
        self._nbytes = len(_PRELUDE) + len('\n],"items":{\n}}\n')

    @classmethod
    def read(cls, path: Path) -> "_File":
        file = cls(path)
        top = document(read_json(path), ITEMS_FORMAT, VERSION, str(path))
        shared, items = top.take("shared", list), top.take("items", dict)
        top.done()
        for value in shared:
            file._number(value)
        if len(file.shared) != len(shared):
            raise FormatError(f"{path}: field 'shared' holds a value twice")
        for key, item in items.items():
            file._insert(key, _text(item))
        return file

    def get(self, key: str) -> Json:
        """Return an item as it was put."""
        item: Json = json.loads(self.items[key])
        if "profile" in item:
            try:
                item["profile"] = _unfolded(item["profile"], self._values.__getitem__)
            except (IndexError, KeyError, TypeError, AttributeError) as error:
                raise FormatError(f"{self.path}: item {key!r} is damaged: {error!r}") from error
        return item

    def add(self, key: str, item: Json, most: int, *, forced: bool) -> bool:
        """Add an item and write the file, unless that makes it larger than `most` and is not `forced`."""
        before = len(self._values)
        if "profile" in item:
            item = item | {"profile": _folded(item["profile"], self._number)}
        self._insert(key, _text(item))
        if self._nbytes > most and not forced:
            self._forget(key, before)
            return False
        write_file(self.path, self._content())
        return True

    def _number(self, value: Any) -> int:
        text = _text(value)
        if text not in self.shared:
            self.shared[text] = len(self._values)
            self._values.append(value)
            self._nbytes += len(text.encode()) + 2
        return self.shared[text]

    def _insert(self, key: str, text: str) -> None:
        self.items[key] = text
        self._nbytes += len(text.encode()) + len(_text(key).encode()) + 3

    def _forget(self, key: str, n_shared: int) -> None:
        text = self.items.pop(key)
        self._nbytes -= len(text.encode()) + len(_text(key).encode()) + 3
        for text in [text for text, number in self.shared.items() if number >= n_shared]:
            del self.shared[text]
            self._nbytes -= len(text.encode()) + 2
        del self._values[n_shared:]

    def _content(self) -> str:
        shared = ",".join(f"\n{text}" for text in self.shared)
        items = ",".join(f"\n{_text(key)}:{text}" for key, text in self.items.items())
        return f'{_PRELUDE}{shared}\n],"items":{{{items}\n}}}}\n'


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _folded(profile: Json, number: Callable[[Any], int]) -> Json:
    """Return a profile document with numbers in place of what is shared."""

    def run(row: Json) -> Json:
        program = row["program"]
        return row | {
            **{key: _rounded(row[key]) for key in ("latency", "launches", "copies")},
            "environment": [number([key, value]) for key, value in row["environment"].items()],
            "program": program | {"threads": [[number(step) for step in thread] for thread in program["threads"]]},
        }

    operators = [_rounded_operator(op) for op in profile["operators"]]
    return _with_runs(profile | {"operators": operators}, number, run)


def _unfolded(profile: Json, value: Callable[[int], Any]) -> Json:
    """Return a profile document with what is shared in place of its numbers."""

    def run(row: Json) -> Json:
        program = row["program"]
        return row | {
            "environment": dict(value(number) for number in row["environment"]),
            "program": program | {"threads": [[value(number) for number in thread] for thread in program["threads"]]},
        }

    return _with_runs(profile, value, run)


def _with_runs(profile: Json, swap: Callable[[Any], Any], run: Callable[[Json], Json]) -> Json:
    found = profile | {key: swap(profile[key]) for key in _ONCE if key in profile}
    found |= {key: [swap(part) for part in profile[key]] for key in _EACH if key in profile}
    return found | {key: [run(row) for row in profile[key]] for key in ("runs",) if key in profile}


def _rounded(times: Any) -> Any:
    """Return times in us to a nanosecond, however deep they stand in lists."""
    return [_rounded(part) for part in times] if isinstance(times, list) else round(times, _NANOSECONDS)


def _rounded_operator(op: Json) -> Json:
    rounded = op | {"samples": _rounded(op["samples"])}
    if "kernels" in op:
        rounded["kernels"] = [kernel | {"samples": _rounded(kernel["samples"])} for kernel in op["kernels"]]
    return rounded
