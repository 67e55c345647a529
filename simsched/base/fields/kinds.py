"""Kinds of values that fields hold: numbers in a range, texts, tuples, tables and arrays, checked and described."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from math import inf, nextafter
from numbers import Integral
from types import MappingProxyType
from typing import Annotated, Any, Final

import numpy as np

from simsched.base.errors import brief_text
from simsched.base.fields.schema import or_null
from simsched.base.io import json_copy
from simsched.base.numeric import LARGEST_COUNT, is_number

LONGEST_TEXT: Final = 1 << 16
"""Characters of a name, or of any other text that is a field of a JSON document."""


class Range:
    """Range of a number; `above` leaves the least out, `infinite` lets the most be infinite."""

    def __init__(self, least: float = -inf, most: float = inf, *, above: bool = False, infinite: bool = False) -> None:
        self.least = least
        self.most = most
        self.above = above
        self.infinite = infinite

    def holds(self, values: Any) -> Any:
        """Return whether a number, or which of an array, lie in it."""
        if self.above:
            low = values > self.least
        else:
            low = values >= self.least
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
        if self.above:
            sign = "positive"
        else:
            sign = "not negative"
        if self.infinite:
            return f"must be {sign}"
        return f"must be finite and {sign}"


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
        return f"{name}{self.place} {self.phrase}, not {brief_text(self.value)}"


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
        if whole:
            self._least = max(span.least, -LARGEST_COUNT)
        else:
            self._least = span.least
        self._phrase = span.phrase(whole)
        # the type of nearly all values, and their range
        self._usual = int if whole else float
        if span.above:
            self._below = span.least
        else:
            self._below = nextafter(self._least, -inf)
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
        if isinstance(value, np.generic):
            return value.item()
        return value

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        span = self._span
        document: dict[str, Any] = {"type": "integer" if self._whole else "number"}
        if span.least > -inf or self._whole:
            document["exclusiveMinimum" if span.above else "minimum"] = self._least
        if span.most < inf or self._whole:
            if span.most == inf:
                document["maximum"] = LARGEST_COUNT
            else:
                document["maximum"] = span.most
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
        if self._filled:
            return {"type": "string", "minLength": 1}
        return {"type": "string"}


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
        if value is None:
            return None
        return self._kind.take(value)

    def read(self, value: Any, where: str) -> Any:
        if value is None:
            return None
        return self._kind.read(value, where)

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
        if self._filled:
            return document | {"minItems": 1}
        return document


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


class ColumnTable(Kind):
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
        if self._whole:
            return type(value) is int
        return is_number(value)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        number: dict[str, Any] = {"type": "integer" if self._whole else "number"}
        if self._gaps:
            number = or_null(number)
        return {"type": "array", "items": {"anyOf": [number, {"type": "array", "items": number}]}}
