"""Data classes to JSON and back, checked, and described as JSON Schema: all three from their type hints.

Type hints describe the values of fields, and a `Checked` class checks every value by its hint, whatever its source: a
document is read into plain values, and the class refuses wrong ones.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from functools import cache
from inspect import cleandoc
from itertools import repeat
from math import inf, nextafter
from numbers import Integral
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from simsched.base.errors import FormatError, shown
from simsched.base.io import NAMED, dump_json, json_copy, read_json, write_file
from simsched.base.numeric import LARGEST_COUNT, is_number

LONGEST_TEXT: Final = 1 << 16
"""Characters of a name, or of any other text that is a field of a JSON document."""
T = TypeVar("T")
D = TypeVar("D", bound="Document")


class Range:
    """Range of a number; `above` leaves the least out, `infinite` lets the most be infinite."""

    def __init__(self, least: float = -inf, most: float = inf, *, above: bool = False, infinite: bool = False) -> None:
        self.least = least
        self.most = most
        self.above = above
        self.infinite = infinite

    def holds(self, values: Any) -> Any:
        """Return whether a number, or which of an array, lie in it."""
        low = values > self.least if self.above else values >= self.least
        return low & (values <= self.most) & ((abs(values) < inf) | self.infinite)

    def phrase(self, whole: bool = False) -> str:
        """Return the range in words, for errors."""
        if whole and self.most < inf:
            return f"must be a whole number from {self.least:,} to {self.most:,}"
        if whole:
            return "must be a whole number" + (f" of at least {self.least:g}" if self.least > 0 else "")
        if self.most < inf:
            return f"must be in {'(' if self.above else '['}{self.least:g}, {self.most:g}]"
        if self.least:
            return "must be a finite number"
        sign = "positive" if self.above else "not negative"
        return f"must be {sign}" if self.infinite else f"must be finite and {sign}"


class Filled:
    """A text or list that is not empty."""


class Gaps:
    """Marks an array: NaN is written as null."""


class Fraction:
    """Marks a whole number that a what-if may make a fraction."""


Amount = Annotated[float, Range(0)]
"""A finite number that is not negative."""
Rate = Annotated[float, Range(0, above=True)]
"""A finite number above 0."""
Part = Annotated[float, Range(0, 1)]
Share = Annotated[float, Range(0, 1, above=True)]
Count = Annotated[int, Range(0)]
Size = Annotated[int, Range(1)]
"""A whole number of at least 1."""
Bytes = Annotated[int, Range(0), Fraction()]
Seed = Annotated[int, Range(0, 2**64 - 1)]
Name = Annotated[str, Filled()]


class Refused(Exception):  # noqa: N818 - it is no error until its owner says so
    """Raised for a wrong value: the allowed values, itself, and its place in the field, such as ``[3]``."""

    def __init__(self, phrase: str, value: Any, place: str = "") -> None:
        super().__init__(phrase)
        self.phrase = phrase
        self.value = value
        self.place = place

    def inside(self, key: object) -> "Refused":
        """Return the same error for a value under a key."""
        return Refused(self.phrase, self.value, f"[{key!r}]{self.place}")

    def says(self, name: str) -> str:
        """Return it in words of a field."""
        return f"{name}{self.place} {self.phrase}, not {shown(self.value)}"


# Kinds that hints describe ---------------------------------------------------------------------------


class Kind:
    """Kind of a field's values. The base: any JSON value, copied."""

    def take(self, value: Any) -> Any:
        """Return a value in its stored form; raise `Refused` if it is wrong."""
        try:
            return json_copy(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise Refused(f"must be a JSON value ({error})", value) from None

    def read(self, value: Any, where: str) -> Any:
        """Return the stored form of a JSON value; `where` names it in errors."""
        return value

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON Schema; schemas of classes are added to `parts`."""
        return {}


class Number(Kind):
    """A number, whole or not, within a range."""

    def __init__(self, whole: bool, span: Range) -> None:
        self._whole = whole
        self._span = span
        self._least = span.least if not whole else max(span.least, -LARGEST_COUNT)
        self._phrase = span.phrase(whole)
        # the type of nearly all values, and their range
        self._usual = int if whole else float
        self._below = span.least if span.above else nextafter(self._least, -inf)
        self._beyond = min(nextafter(span.most, inf), LARGEST_COUNT if whole else inf)

    def take(self, value: Any) -> Any:
        if type(value) is self._usual and self._below < value < self._beyond:
            return value
        if not is_number(value):
            raise Refused(self._phrase if self._whole else "must be a number", value)
        if not self._span.holds(value) or (self._whole and not isinstance(value, Integral)):
            raise Refused(self._phrase, value)
        if self._whole and self._span.most == inf and abs(value) > LARGEST_COUNT:
            raise Refused(f"{self._phrase} up to 2^53", value)
        return value.item() if isinstance(value, np.generic) else value

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        span = self._span
        document: dict[str, Any] = {"type": "integer" if self._whole else "number"}
        if span.least > -inf or self._whole:
            document["exclusiveMinimum" if span.above else "minimum"] = self._least
        if span.most < inf or self._whole:
            document["maximum"] = LARGEST_COUNT if span.most == inf else span.most
        return document


class Text(Kind):
    """A text of limited length."""

    def __init__(self, filled: bool) -> None:
        self._filled = filled

    def take(self, value: Any) -> Any:
        if not isinstance(value, str) or (self._filled and not value):
            raise Refused("must be a text that is not empty" if self._filled else "must be a text", value)
        if len(value) > LONGEST_TEXT:
            raise Refused(f"must have at most {LONGEST_TEXT:,} characters", value)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused("must not hold half of a character", value) from None
        return value

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        return {"type": "string", "minLength": 1} if self._filled else {"type": "string"}


class Truth(Kind):
    """True or false."""

    def take(self, value: Any) -> Any:
        if not isinstance(value, bool | np.bool_):
            raise Refused("must be true or false", value)
        return bool(value)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        return {"type": "boolean"}


class Among(Kind):
    """One of some texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)

    def take(self, value: Any) -> Any:
        if not isinstance(value, str) or value not in self._texts:
            raise Refused(f"must be one of {', '.join(self._texts)}", value)
        return value

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        return {"enum": list(self._texts)}


class Maybe(Kind):
    """A value of another kind, or None."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def take(self, value: Any) -> Any:
        return None if value is None else self._kind.take(value)

    def read(self, value: Any, where: str) -> Any:
        return None if value is None else self._kind.read(value, where)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        return or_null(self._kind.schema(parts))


class Either(Kind):
    """One of several kinds, none of objects: the first that takes a value."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds

    def take(self, value: Any) -> Any:
        reasons = []
        for kind in self._kinds:
            try:
                return kind.take(value)
            except Refused as refused:
                reasons.append(refused.phrase)
        raise Refused(" or ".join(reasons), value)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        return {"anyOf": [kind.schema(parts) for kind in self._kinds]}


class Many(Kind):
    """A tuple of any length."""

    def __init__(self, item: Kind, filled: bool = False) -> None:
        self._item = item
        self._filled = filled
        self._items: Iterable[Kind] = repeat(item)

    def _check(self, value: Any) -> None:
        listed = type(value) in (tuple, list)  # nearly always, and a quicker test
        if not listed and (isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable)):
            raise Refused("must be a list", value)
        if self._filled and not value:
            raise Refused("must not be empty", value)

    def take(self, value: Any) -> Any:
        self._check(value)
        items: list[Any] = []
        try:
            for kind, item in zip(self._items, value, strict=False):
                items.append(kind.take(item))
        except Refused as refused:
            raise refused.inside(len(items)) from None
        return tuple(items)

    def read(self, value: Any, where: str) -> Any:
        self._check(value)
        return [k.read(item, f"{where}[{i}]") for i, (k, item) in enumerate(zip(self._items, value, strict=False))]

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        document = {"type": "array", "items": self._item.schema(parts)}
        return document | {"minItems": 1} if self._filled else document


class Several(Many):
    """A tuple of fixed length, each item of its own kind."""

    def __init__(self, items: Sequence[Kind]) -> None:
        self._kinds = self._items = items

    def _check(self, value: Any) -> None:
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != len(self._kinds):
            raise Refused(f"must be a list of {len(self._kinds)}", value)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        n = len(self._kinds)
        return {"type": "array", "minItems": n, "maxItems": n, "prefixItems": [k.schema(parts) for k in self._kinds]}


class Table(Kind):
    """A read-only mapping of texts."""

    def __init__(self, item: Kind) -> None:
        self._item = item

    def take(self, value: Any) -> Any:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise Refused("must be a table by names", value)
        table = {}
        try:
            for key, item in value.items():
                table[key] = self._item.take(item)
        except Refused as refused:
            raise refused.inside(key) from None
        return MappingProxyType(table)

    def read(self, value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise Refused("must be an object", value)
        return {key: self._item.read(item, f"{where}[{key!r}]") for key, item in value.items()}

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self._item.schema(parts) or True}


class Array(Kind):
    """A read-only numpy array of floats or whole numbers, of a given number of dimensions."""

    def __init__(self, whole: bool, gaps: bool) -> None:
        self._whole = whole
        self._gaps = gaps
        self._phrase = f"must be a list of {'whole ' if whole else ''}numbers, or lists of"

    def take(self, value: Any) -> Any:
        try:
            array = np.array(value, np.int64 if self._whole else np.float64)
        except (TypeError, ValueError, OverflowError):
            raise Refused(f"{self._phrase} one length", value) from None
        if not self._gaps and np.isnan(array).any():
            raise Refused("must hold no NaN", value)
        array.flags.writeable = False
        return array

    def read(self, value: Any, where: str) -> Any:
        if not isinstance(value, list) or not all(map(self._is_row, value)):
            raise Refused(f"{self._phrase} them", value)
        return value

    def _is_row(self, value: Any) -> bool:
        if isinstance(value, list):
            return all(map(self._is_row, value))
        if value is None:
            return self._gaps
        return type(value) is int if self._whole else is_number(value)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        number: dict[str, Any] = {"type": "integer" if self._whole else "number"}
        number = or_null(number) if self._gaps else number
        return {"type": "array", "items": {"anyOf": [number, {"type": "array", "items": number}]}}


def or_null(found: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also allows null."""
    if isinstance(found.get("type"), str):
        return {**found, "type": [found["type"], "null"]}
    if "enum" in found:
        return {**found, "enum": [*found["enum"], None]}
    return found if not found or "null" in found.get("type", ()) else {"anyOf": [found, {"type": "null"}]}


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
        kind = others[0] if len(others) == 1 else Either(others)
        return Maybe(kind) if NoneType in arguments else kind
    if origin is tuple and arguments[-1] is not Ellipsis:
        return Several([kind_of(argument) for argument in arguments])
    if origin in (tuple, list, Sequence):
        return Many(kind_of(arguments[0]), filled)
    if origin in (dict, Mapping):
        return Table(kind_of(arguments[1]))
    if origin is np.ndarray:
        return Array(bool({np.int64, np.int32} & set(get_args(arguments[1]))), Gaps in notes)
    return Kind() if hint is Any else _Object(origin or hint)


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
        return self._cls.from_dict(value, where) if issubclass(self._cls, Document) else read(self._cls, value, where)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        name = self._cls.__name__
        if name not in parts:
            parts[name] = {}
            parts[name] = _class_schema(self._cls, parts)
        return {"$ref": f"#/$defs/{name}"}


# Classes whose fields have hints ------------------------------------------------------------------


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
        _refuse_retired(cls)

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
    source = owner.to_file() if hasattr(owner, "to_file") else owner
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
    if isinstance(value, Document):
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
    data = _object(data, where)
    checks = issubclass(cls, Checked) and not hasattr(cls, "FILE")  # every field, when it is made
    for entry in known_fields:
        value = data.get(entry.name)
        if value is None and entry.default is not MISSING:
            continue
        if entry.name not in data:
            raise FormatError(f"{where}: field {entry.name!r} is missing")
        try:
            stored = entry.kind.read(value, _inside(where, entry.name))
            values[entry.name] = stored if checks else entry.kind.take(stored)
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
    return None if remedy is None else f"{cls.__name__} has no {name!r} any more: {remedy}"


def _refuse_retired(cls: type[Any]) -> None:
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
    return f"{where}.{name}" if ":" in where else f"{where}: {name}"


def _object(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise FormatError(f"{where}: expected an object, not {shown(data)}")
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
        self._data = _object(data, where)
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


# Documents ----------------------------------------------------------------------------------------


def body(data: Any, kind: str, version: int, where: str) -> dict[str, Any]:
    """Return a document without its format and version, both checked."""
    checks = {"format": (kind, f"expected {kind!r}"), "version": (version, f"this release reads {kind} {version}")}
    for name, (expected, phrase) in checks.items():
        if name not in _object(data, where):
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
        _refuse_retired(cls)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON document of its format."""
        return {"format": self.FORMAT, "version": self.VERSION, **write(self)}

    @classmethod
    def from_dict(cls: type[D], data: Any, source: str | None = None) -> D:
        """Make one of a decoded document of its format; `source` names it in errors."""
        where = cls.FORMAT.rpartition(".")[2] if source is None else source
        return read(cls, body(data, cls.FORMAT, cls.VERSION, where), where)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a JSON file, whole or not at all."""
        write_file(path, dump_json(self.to_dict(), indent=self.INDENT))

    @classmethod
    def load(cls: type[D], path: str | os.PathLike[str]) -> D:
        """Read it from a JSON file."""
        return cls.from_dict(read_json(path), str(path))


def schema_of(cls: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a class, draft 2020-12, with descriptions from its docstring."""
    parts: dict[str, Any] = {}
    schema = _class_schema(cls, parts)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, **({"$defs": parts} if parts else {})}


def _class_schema(cls: type[Any], parts: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if issubclass(cls, Document):
        properties = {"format": {"const": cls.FORMAT}, "version": {"const": cls.VERSION}}
    required = list(properties)
    descriptions = _parameters(_file_of(cls)) or _parameters(cls)
    for entry in fields_of(_file_of(cls)):
        part = entry.kind.schema(parts)
        if entry.default is MISSING:
            required.append(entry.name)
        else:
            part = or_null(part)
        properties[entry.name] = {"description": descriptions.get(entry.name, entry.name), **part}
    properties |= {name: {"description": "Not read."} for name in _left_out(cls)}
    return {
        "title": cls.__name__,
        "description": cleandoc(cls.__doc__ or "").split("\n")[0],
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


def _parameters(cls: type[Any]) -> dict[str, str]:
    """Return the descriptions of a class's parameters, by name, from its docstring and from its bases'."""
    descriptions: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = cleandoc(base.__doc__ or "")
        section = re.search(r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[^\n]*\n-+$|\Z)", text, re.M | re.S)
        for names, text_of in re.findall(r"^(\w[\w, ]*)\n((?:[ ]+[^\n]*\n?|\n)*)", section[1] if section else "", re.M):
            descriptions |= dict.fromkeys(names.split(", "), " ".join(text_of.split()))
    return descriptions
