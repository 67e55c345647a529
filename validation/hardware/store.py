"""`Store`: a folder of measurements, in few and small files that are always whole.

``campaign.json`` says what was asked for, where it ran, what was tried and why something is missing.
``measurements-1.json`` and so on hold the items. An item is any JSON object; one that has a profile holds a
``simsched.profile`` document under that key. What many documents repeat (graphs, clusters, the operators of a
profile, instructions of programs, words about the environment) stands in a file once, under ``shared``, and the
documents have its number.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any, Final

from simsched.base.errors import FileError, FormatError
from simsched.base.io import document, read_json, write_file

HEADER: Final = "campaign.json"
HEADER_FORMAT, ITEMS_FORMAT, VERSION = "simsched.campaign", "simsched.measurements", 1
MOST_FILES: Final = 5  # of items: with the header and what is written besides, no more than eight
MOST_NBYTES: Final = 1_900_000  # of a file

_NANOSECONDS: Final = 3  # digits after the point of a time in us; no clock that is used here resolves more
_TIMES: Final = (
    "operators.*.samples", "operators.*.kernels.*.samples", "runs.*.latency", "runs.*.launches", "runs.*.copies",
)  # fmt: skip
_REPEATED: Final = ("graph", "cluster", "operators", "graphs.*", "clusters.*")
_REPEATED_IN_RUNS: Final = ("environment.*", "program.threads.*.*")
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
        if not (self._files and self._files[-1].add(key, item, self._most)):
            if len(self._files) == MOST_FILES:
                raise FileError(f"no room for more in {self.folder}: its {MOST_FILES} files are full")
            file = _File(self._paths()[len(self._files)])
            file.add(key, item, inf)
            self._files.append(file)
        self._home[key] = self._files[-1]

    def save_header(self) -> None:
        """Write `header`."""
        text = json.dumps({"format": HEADER_FORMAT, "version": VERSION, "header": self.header}, indent=1)
        write_file(self.folder / HEADER, text + "\n")

    def _paths(self) -> list[Path]:
        return [self.folder / f"measurements-{i}.json" for i in range(1, MOST_FILES + 1)]


class _File:
    """One file: values that are shared, and the number of each by its text, and texts of the items, by key."""

    def __init__(self, path: Path, shared: Iterable[Any] = (), items: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.items = {key: _text(item) for key, item in (items or {}).items()}
        self._values: list[Any] = []
        self._numbers: dict[str, int] = {}
        for value in shared:
            self._number(value)

    @classmethod
    def read(cls, path: Path) -> "_File":
        top = document(read_json(path), ITEMS_FORMAT, VERSION, str(path))
        shared, items = top.take("shared", list), top.take("items", dict)
        top.done()
        file = cls(path, shared, items)
        if len(file._values) != len(shared):
            raise FormatError(f"{path}: field 'shared' holds a value twice")
        return file

    def get(self, key: str) -> Json:
        """Return an item as it was put."""
        item: Json = json.loads(self.items[key])
        if "profile" in item:
            try:
                profile = _swapped(item["profile"], self._values.__getitem__)
                item["profile"] = _at(profile, "runs.*.environment", dict)
            except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise FormatError(f"{self.path}: item {key!r} is damaged: {error!r}") from error
        return item

    def add(self, key: str, item: Json, most_nbytes: float) -> bool:
        """Add an item and write the file, unless that makes it larger than it may be."""
        before = len(self._values)
        if "profile" in item:
            profile = _at(item["profile"], "runs.*.environment", lambda words: list(words.items()))
            for path in _TIMES:
                profile = _at(profile, path, _rounded)
            item = item | {"profile": _swapped(profile, self._number)}
        self.items[key] = _text(item)
        shared = ",".join(f"\n{text}" for text in self._numbers)
        items = ",".join(f"\n{_text(name)}:{text}" for name, text in self.items.items())
        content = f'{_PRELUDE}{shared}\n],"items":{{{items}\n}}}}\n'.encode()
        if len(content) > most_nbytes:
            del self.items[key], self._values[before:]
            self._numbers = {text: number for text, number in self._numbers.items() if number < before}
            return False
        write_file(self.path, content)
        return True

    def _number(self, value: Any) -> int:
        """Return which of the shared values one is, added if it is new."""
        text = _text(value)
        if text not in self._numbers:
            self._numbers[text] = len(self._values)
            self._values.append(value)
        return self._numbers[text]


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _swapped(profile: Json, swap: Callable[[Any], Any]) -> Json:
    """Return a profile document with what documents repeat swapped: for its number, or the number for it."""

    def run(row: Json) -> Json:
        for path in _REPEATED_IN_RUNS:
            row = _at(row, path, swap)
        return row

    for path in _REPEATED:
        profile = _at(profile, path, swap)
    swapped: Json = _at(profile, "runs.*", run)
    return swapped


def _at(value: Any, path: str, swap: Callable[[Any], Any]) -> Any:
    """Return JSON with what lies at a path swapped: a key, ``*`` for every element, and so on, if it is there."""
    if not path:
        return swap(value)
    key, _, rest = path.partition(".")
    if key == "*":
        return [_at(part, rest, swap) for part in value]
    return value | {key: _at(value[key], rest, swap)} if key in value else value


def _rounded(times: Any) -> Any:
    """Return times in us to a nanosecond, however deep they stand in lists."""
    return [_rounded(part) for part in times] if isinstance(times, list) else round(times, _NANOSECONDS)
