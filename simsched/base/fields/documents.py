"""Documents: objects with their own files, which have a format and a version."""

import os
from typing import Any, ClassVar, TypeVar

from simsched.base.errors import FormatError
from simsched.base.fields.checked import json_object, read, refuse_retired, write
from simsched.base.io import dump_json, read_json, write_file

D = TypeVar("D", bound="Document")


def body(data: Any, kind: str, version: int, where: str) -> dict[str, Any]:
    """Return a document without its format and version, both checked."""
    checks = {"format": (kind, f"expected {kind!r}"), "version": (version, f"this release reads {kind} {version}")}
    for name, (expected, phrase) in checks.items():
        if name not in json_object(data, where):
            raise FormatError(f"{where}: field {name!r} is missing")
        if data[name] != expected or type(data[name]) is not type(expected):
            raise FormatError(f"{where}: field {name!r} is {data[name]!r:.60}; {phrase}")
    return {name: value for name, value in data.items() if name not in checks}


class Document:
    """An object with its own file: a JSON object with a format and a version before its fields.

    A class may name in `FILE` another class that has the fields of its file, and convert itself to it and back by
    ``to_file()`` and ``from_file(**fields)``.
    """

    __slots__ = ()
    FORMAT: ClassVar[str]
    VERSION: ClassVar[int] = 1
    INDENT: ClassVar[int | None] = 1

    def __init_subclass__(cls) -> None:
        refuse_retired(cls)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON document of its format."""
        return {"format": self.FORMAT, "version": self.VERSION, **write(self)}

    @classmethod
    def from_dict(cls: type[D], data: Any, source: str | None = None) -> D:
        """Make one of a decoded document of its format; `source` names it in errors."""
        if source is None:
            where = cls.FORMAT.rpartition(".")[2]
        else:
            where = source
        return read(cls, body(data, cls.FORMAT, cls.VERSION, where), where)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a JSON file, whole or not at all."""
        write_file(path, dump_json(self.to_dict(), indent=self.INDENT))

    @classmethod
    def load(cls: type[D], path: str | os.PathLike[str]) -> D:
        """Read it from a JSON file."""
        return cls.from_dict(read_json(path), str(path))
