"""Data classes that check every field by its type hint, and their JSON objects and schemas.

Type hints describe the values of fields, and a `Checked` class checks every value by its hint, whatever its source: a
document is read into plain values, and the class refuses wrong ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from functools import cache
from math import inf
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from simsched.base.errors import FormatError, brief_text
from simsched.base.fields.kinds import (
    Among,
    Array,
    ColumnTable,
    Either,
    Filled,
    Fraction,
    Gaps,
    Kind,
    Many,
    Maybe,
    Number,
    Range,
    Refused,
    Several,
    Text,
    Truth,
)
from simsched.base.fields.schema import descriptions_of, object_schema, or_null
from simsched.base.io import NAMED

T = TypeVar("T")


def aside(default: Any = None) -> Any:
    """Return a field of a data class that documents do not have, and that is not checked."""
    return field(default=default, compare=False, repr=False, metadata={"aside": True})


def brief(default: Any, **options: Any) -> Any:
    """Return a field of a data class that is left out of documents where it is at its default, or its ``default()``."""
    default_of = {"default_factory": default} if isinstance(default, type) else {"default": default}
    return field(**default_of, metadata={"brief": True}, **options)


def kind_of(hint: Any) -> Kind:
    """Return the kind that a type hint describes."""
    notes: dict[type, Any] = {}
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        notes = {type(note): note for note in marks}
    origin = get_origin(hint)
    arguments = get_args(hint)
    if hasattr(origin, "__value__"):  # a type alias with parameters, as `NDArray` is from numpy 2.5 on
        hint = origin.__value__[arguments]
        origin = get_origin(hint)
        arguments = get_args(hint)
    filled = Filled in notes
    if hint in (int, float):
        return Number(hint is int and Fraction not in notes, notes.get(Range, Range()))
    if hint is str:
        return notes.get(Among) or Text(filled)
    if hint is bool:
        return Truth()
    if origin in (Union, UnionType):
        others = [kind_of(argument) for argument in arguments if argument is not NoneType]
        if len(others) == 1:
            kind = others[0]
        else:
            kind = Either(others)
        if NoneType in arguments:
            return Maybe(kind)
        return kind
    if origin is tuple and arguments[-1] is not Ellipsis:
        return Several([kind_of(argument) for argument in arguments])
    if origin in (tuple, list, Sequence):
        return Many(kind_of(arguments[0]), filled)
    if origin in (dict, Mapping):
        return ColumnTable(kind_of(arguments[1]))
    if origin is np.ndarray:
        return Array(bool({np.int64, np.int32} & set(get_args(arguments[1]))), Gaps in notes)
    if hint is Any:
        return Kind()
    return _Object(origin or hint)


class _Object(Kind):
    """An instance of a class whose fields have hints."""

    def __init__(self, cls: type[Any]) -> None:
        self._cls = cls

    def take(self, value: Any) -> Any:
        if not isinstance(value, self._cls):
            name = self._cls.__name__
            raise Refused(f"must be a{'n' if name[0] in 'AEIOU' else ''} {name}", value)
        return value

    def read(self, value: Any, where: str) -> Any:
        if hasattr(self._cls, "FORMAT"):
            return self._cls.from_dict(value, where)
        return read(self._cls, value, where)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        name = self._cls.__name__
        if name not in parts:
            parts[name] = {}
            parts[name] = _class_schema(self._cls, parts)
        return {"$ref": f"#/$defs/{name}"}


class _Field(NamedTuple):
    """A field of a class: its name, its kind, and its default.

    `settled` is the default in its stored form, if it needs no check.
    """

    name: str
    kind: Kind
    default: Any
    settled: Any
    brief: bool


@cache
def fields_of(cls: Any) -> tuple[_Field, ...]:
    """Return the fields of a data class or a named tuple, by their hints."""
    hints = get_type_hints(cls, include_extras=True)
    if is_dataclass(cls):
        parameters = {entry.name: entry for entry in fields(cls) if entry.init and "aside" not in entry.metadata}
        defaults = {
            name: f.default if f.default_factory is MISSING else f.default_factory() for name, f in parameters.items()
        }
        briefs = [name for name in parameters if "brief" in parameters[name].metadata]
    else:
        defaults = {name: cls._field_defaults.get(name, MISSING) for name in cls._fields}
        briefs = []
    fixed = {name: value for name, value in defaults.items() if isinstance(value, str | float | tuple | int | None)}
    return tuple(
        _Field(n, kind_of(hints[n]), value, fixed.get(n, MISSING), n in briefs) for n, value in defaults.items()
    )


class Checked:
    """A frozen data class whose every field fits its hint, however it was made.

    A class sets in `SUBJECT` its name in errors, such as ``"operator {0.name!r}"``, and in `ERROR` their type. Values
    of another form are converted to the hint's: a tuple, a read-only mapping or array.
    """

    __slots__ = ()
    SUBJECT: ClassVar[str]
    ERROR: ClassVar[Callable[[str], Exception]]

    def __init_subclass__(cls) -> None:
        refuse_retired(cls)

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for entry in fields_of(cls):
            value = getattr(self, entry.name)
            if value is entry.settled:
                continue
            try:
                stored = entry.kind.take(value)
            except Refused as refused:
                raise self.refusal(refused.says(entry.name)) from None
            if stored is not value:
                object.__setattr__(self, entry.name, stored)

    def refusal(self, text: str) -> Exception:
        """Return the error that this cannot be, for a reason."""
        return type(self).ERROR(f"{self.SUBJECT.format(self):.200}: {text}")

    def __reduce__(self) -> tuple[Any, ...]:  # makes it read-only again; mapping proxies have no pickle
        values = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.init}  # type: ignore[arg-type]
        return _again, (type(self), {k: dict(v) if isinstance(v, MappingProxyType) else v for k, v in values.items()})


def _again(cls: Callable[..., T], values: dict[str, Any]) -> T:
    return cls(**values)


def write(owner: Any) -> dict[str, Any]:
    """Return an instance as a JSON object: its fields in their order, then the ones in its class's `DERIVED`."""
    if hasattr(owner, "to_file"):
        source = owner.to_file()
    else:
        source = owner
    document = {}
    for entry in fields_of(_file_of(type(owner))):
        value = getattr(source, entry.name)
        if not entry.brief or isinstance(value, np.ndarray) or value != entry.default:
            document[entry.name] = _json_value(value)
    return document | {name: getattr(owner, name) for name in getattr(type(owner), "DERIVED", ())}


def _json_value(value: Any) -> Any:
    """Return a field's value in JSON: an infinite number, and NaN in an array, are null."""
    if value is None or isinstance(value, str | int | float):
        return None if value == inf else value
    if hasattr(value, "FORMAT"):
        return value.to_dict()
    if is_dataclass(value) or hasattr(value, "_fields"):
        return write(value)
    if isinstance(value, Mapping):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        cells = value.astype(object)
        cells[np.isnan(value)] = None
        return cells.tolist()
    return [_json_value(item) for item in value]


def read(cls: type[T], data: Any, where: str) -> T:
    """Make an instance of a JSON object.

    Raises
    ------
    FormatError
        If it is no object, a field is missing or unknown, or a value is of another kind. A value that the class refuses
        is an error of the class, after the place in the document.
    """
    values = {}
    known_fields = fields_of(_file_of(cls))
    data = json_object(data, where)
    checks = issubclass(cls, Checked) and not hasattr(cls, "FILE")  # every field, when it is made
    for entry in known_fields:
        value = data.get(entry.name)
        if value is None and entry.default is not MISSING:
            continue
        if entry.name not in data:
            raise FormatError(f"{where}: field {entry.name!r} is missing")
        try:
            stored = entry.kind.read(value, _inside(where, entry.name))
            if checks:
                values[entry.name] = stored
            else:
                values[entry.name] = entry.kind.take(stored)
        except Refused as refused:
            raise FormatError(f"{where}: {refused.says(entry.name)}") from None
    names = [entry.name for entry in known_fields]
    left = [name for name in data if name not in names and name not in _left_out(cls)]
    if left:
        raise FormatError(f"{where}: unknown field {left[0]!r}; known are: {', '.join(names)}")
    try:
        make: Callable[..., T] = getattr(cls, "from_file", cls)
        return make(**values)
    except NAMED as error:
        raise error if str(error).startswith(where) else type(error)(f"{where}: {error}") from error


def retirement_of(cls: type[Any], name: str) -> str | None:
    """Return why a class no longer has a parameter of a name, and the remedy; None if it never had one, or has it."""
    remedy = getattr(cls, "RETIRED", {}).get(name)
    if remedy is None:
        return None
    return f"{cls.__name__} has no {name!r} any more: {remedy}"


def refuse_retired(cls: type[Any]) -> None:
    """Make a class with `RETIRED` parameters, each with a remedy, name the remedy when a caller gives one."""
    if "RETIRED" not in vars(cls):
        return

    def new(cls: type[Any], *_: Any, **values: Any) -> Any:
        for name in values:
            if reason := retirement_of(cls, name):
                raise getattr(cls, "ERROR", FormatError)(reason)
        return object.__new__(cls)

    cls.__new__ = staticmethod(new)  # type: ignore[assignment]


def _file_of(cls: Any) -> Any:
    """Return the class that has the fields of a class's file."""
    return getattr(cls, "FILE", cls)


def _left_out(cls: type[Any]) -> tuple[str, ...]:
    """Return fields that are written for others, or that releases before wrote: they are not read."""
    return (*getattr(cls, "DERIVED", ()), *getattr(cls, "RETIRED", ()))


def _inside(where: str, name: str) -> str:
    if ":" in where:
        return f"{where}.{name}"
    return f"{where}: {name}"


def json_object(data: Any, where: str) -> dict[str, Any]:
    """Return a decoded JSON object; refuse any other value."""
    if not isinstance(data, dict):
        raise FormatError(f"{where}: expected an object, not {brief_text(data)}")
    return data


class Record:
    """A JSON object of another tool, read field by field.

    Parameters
    ----------
    data
        The decoded object.
    where
        How errors name it, such as ``"plan.json: placements[3]"``.
    """

    def __init__(self, data: Any, where: str) -> None:
        self._data = json_object(data, where)
        self.where = where

    def take(self, key: str, hint: Any, default: Any = MISSING) -> Any:
        """Return a field of a type hint's kind; a missing one is an error unless `default` is given."""
        value = self._data.get(key)
        if value is None and default is not MISSING:
            return default
        if key not in self._data:
            raise FormatError(f"{self.where}: field {key!r} is missing")
        try:
            return kind_of(hint).take(value)
        except Refused as refused:
            raise FormatError(f"{self.where}: field {refused.says(repr(key))}") from None

    def records(self, key: str, default: Any = MISSING) -> "list[Record]":
        """Return a field that is a list of objects."""
        place = _inside(self.where, key)
        return [Record(row, f"{place}[{i}]") for i, row in enumerate(self.take(key, list, default))]


def schema_of(cls: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a class, draft 2020-12, with descriptions from its docstring."""
    parts: dict[str, Any] = {}
    schema = _class_schema(cls, parts)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, **({"$defs": parts} if parts else {})}


def _class_schema(cls: type[Any], parts: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if hasattr(cls, "FORMAT"):
        properties = {"format": {"const": cls.FORMAT}, "version": {"const": cls.VERSION}}
    required = list(properties)
    descriptions = descriptions_of(_file_of(cls)) or descriptions_of(cls)
    for entry in fields_of(_file_of(cls)):
        part = entry.kind.schema(parts)
        if entry.default is MISSING:
            required.append(entry.name)
        else:
            part = or_null(part)
        properties[entry.name] = {"description": descriptions.get(entry.name, entry.name), **part}
    properties |= {name: {"description": "Not read."} for name in _left_out(cls)}
    return object_schema(cls, required, properties)
