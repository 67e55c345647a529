"""`Store`: a folder of measurements in two small files that are always whole.

``campaign.json`` says what was asked for, where it ran, what was tried and why something is missing.
``measurements.jsonl.gz`` has a line for each item: its key and a JSON object. An item that has a profile holds a
``simsched.profile`` document under that key.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from simsched.base.codec import Record, body
from simsched.base.errors import FormatError
from simsched.base.io import dump_json, file_errors, read_bytes, read_json, write_file

HEADER: Final = "campaign.json"
ITEMS: Final = "measurements.jsonl.gz"
_FORMAT = "simsched.campaign"
_VERSION = 1
Json = dict[str, Any]


class Store(Mapping[str, Json]):
    """A folder of measurements, read when made; `put` writes.

    Parameters
    ----------
    folder
        Made if it is not there. What a killed run left half-written beside its files is removed.

    Raises
    ------
    FileError, FormatError
        If the folder cannot be made or read, or a file in it is not what it should be.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.header: Json = {}
        self._content = b""
        self._lines: dict[str, bytes] = {}
        with file_errors("make folder", folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        for path in (half for name in (HEADER, ITEMS) for half in self.folder.glob(f".{name}.*")):
            path.unlink(missing_ok=True)
        if (path := self.folder / HEADER).exists():
            top = body(read_json(path), _FORMAT, _VERSION, str(path))
            self.header = Record(top, str(path)).take("header", dict)
        if (path := self.folder / ITEMS).exists():
            self._content = read_bytes(path)
            try:
                lines = gzip.decompress(self._content).splitlines()
                self._lines = {json.loads(line)[0]: line for line in lines}
            except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError) as error:
                raise FormatError(f"{path} is damaged: {error}") from error

    def __getitem__(self, key: str) -> Json:
        """Return an item as it was put."""
        item: Json = json.loads(self._lines[key])[1]
        return item

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def put(self, key: str, item: Json) -> None:
        """Add an item and write the file.

        Raises
        ------
        FileError
            If the file cannot be written.
        """
        line = json.dumps([key, item], allow_nan=False).encode()
        content = self._content + gzip.compress(line + b"\n", mtime=0)
        write_file(self.folder / ITEMS, content)
        self._content = content
        self._lines[key] = line

    def save_header(self) -> None:
        """Write `header`."""
        write_file(self.folder / HEADER, dump_json({"format": _FORMAT, "version": _VERSION, "header": self.header}))
