"""What a field may hold: numbers between limits, texts, lists, tables, arrays; how each is checked and written."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from math import inf, nextafter
from numbers import Integral
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np

from simsched.base.errors import shown
from simsched.base.io import json_copy
from simsched.base.limits import limits
from simsched.base.numeric import LARGEST_COUNT, is_number


class Range:
    """Between which numbers a field lies; `above` leaves the least out, `infinite` lets the most be infinite."""

    def __init__(self, least: float = -inf, most: float = inf, *, above: bool = False, infinite: bool = False) -> None:
        self.least, self.most, self.above, self.infinite = least, most, above, infinite

    def holds(self, values: Any) -> Any:
        """Return whether a number, or which of an array, lie in it."""
        low = values > self.least if self.above else values >= self.least
        return low & (values <= self.most) & ((abs(values) < inf) | self.infinite)

    def phrase(self, whole: bool = False) -> str:
        """Return what a number must be, in words."""
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
    """Of an array: NaN is written as null."""


class Fraction:
    """Of a whole number: a what-if may make a fraction of it."""


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
    """Why a value cannot be taken: what it must be, itself, and where in the field it stands, such as ``[3]``."""

    def __init__(self, phrase: str, value: Any, place: str = "") -> None:
        super().__init__(phrase)
        self.phrase, self.value, self.place = phrase, value, place

    def inside(self, key: object) -> "Refused":
        """Return the same of a value that stands under a key."""
        return Refused(self.phrase, self.value, f"[{key!r}]{self.place}")

    def says(self, name: str) -> str:
        """Return it in words of a field."""
        return f"{name}{self.place} {self.phrase}, not {shown(self.value)}"


# What a hint stands for ---------------------------------------------------------------------------


class Kind:
    """What a field may hold. Here: any JSON value, copied."""

    def take(self, value: Any) -> Any:
        """Return a value as it is kept; raise `Refused` if it cannot be."""
        try:
            return json_copy(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise Refused(f"must be a JSON value ({error})", value) from None

    def read(self, value: Any, where: str) -> Any:
        """Return what `take` takes from a JSON value; `where` names it in errors."""
        return value

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON Schema; those of classes go into `parts`."""
        return {}


class Number(Kind):
    """A number, whole or not, within a range."""

    def __init__(self, whole: bool, span: Range) -> None:
        self._whole, self._span = whole, span
        self._least = span.least if not whole else max(span.least, -LARGEST_COUNT)
        self._phrase = span.phrase(whole)
        # what nearly every value is, and between which two numbers it then lies
        self._usual = int if whole else float
        self._below = span.least if span.above else nextafter(self._least, -inf)
        self._beyond = min(nextafter(span.most, inf), LARGEST_COUNT if whole else inf)

    def take(self, value: Any) -> Any:
        if type(value) is self._usual and self._below < value < self._beyond:
            return value
        if not is_number(value):
            raise Refused(self._phrase if self._whole else "must be a number", value)
        if not self._span.holds(value):
            raise Refused(self._phrase, value)
        if self._whole and not isinstance(value, Integral):
            raise Refused(self._phrase, value)
        if self._whole and self._span.most == inf and abs(value) > LARGEST_COUNT:
            raise Refused(f"{self._phrase} up to 2^53", value)
        return value.item() if isinstance(value, np.generic) else value

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        span = self._span
        found: dict[str, Any] = {"type": "integer" if self._whole else "number"}
        if span.least > -inf or self._whole:
            found["exclusiveMinimum" if span.above else "minimum"] = self._least
        if span.most < inf or self._whole:
            found["maximum"] = LARGEST_COUNT if span.most == inf else span.most
        return found


class Text(Kind):
    """A text of a length that is read."""

    def __init__(self, filled: bool) -> None:
        self._filled = filled

    def take(self, value: Any) -> Any:
        if not isinstance(value, str) or (self._filled and not value):
            raise Refused("must be a text that is not empty" if self._filled else "must be a text", value)
        if len(value) > limits().text_length:
            raise Refused(f"must have at most {limits().text_length:,} characters", value)
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
    """What another kind holds, or None."""

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
    """A tuple of as many as there are."""

    def __init__(self, item: Kind, filled: bool = False) -> None:
        self._item, self._filled = item, filled

    def _items(self) -> Iterable[Kind]:
        return repeat(self._item)

    def _check(self, value: Any) -> None:
        listed = type(value) in (tuple, list)  # nearly always, and told much faster
        if not listed and (isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable)):
            raise Refused("must be a list", value)
        if self._filled and not value:
            raise Refused("must not be empty", value)

    def take(self, value: Any) -> Any:
        self._check(value)
        found: list[Any] = []
        try:
            for kind, each in zip(self._items(), value, strict=False):
                found.append(kind.take(each))
        except Refused as refused:
            raise refused.inside(len(found)) from None
        return tuple(found)

    def read(self, value: Any, where: str) -> Any:
        self._check(value)
        kinds = zip(self._items(), value, strict=False)
        return [kind.read(each, f"{where}[{i}]") for i, (kind, each) in enumerate(kinds)]

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        found = {"type": "array", "items": self._item.schema(parts)}
        return found | {"minItems": 1} if self._filled else found


class Several(Many):
    """A tuple of so many, each of its own kind."""

    def __init__(self, items: Sequence[Kind]) -> None:
        self._kinds = items

    def _items(self) -> Iterable[Kind]:
        return self._kinds

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
        found = {}
        for key, each in value.items():
            try:
                found[key] = self._item.take(each)
            except Refused as refused:
                raise refused.inside(key) from None
        return MappingProxyType(found)

    def read(self, value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise Refused("must be an object", value)
        return {key: self._item.read(each, f"{where}[{key!r}]") for key, each in value.items()}

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self._item.schema(parts) or True}


class Array(Kind):
    """A read-only numpy array of floats or whole numbers, of as many dimensions as are given."""

    def __init__(self, whole: bool, gaps: bool) -> None:
        self._whole, self._gaps = whole, gaps

    def take(self, value: Any) -> Any:
        try:
            found = np.array(value, np.int64 if self._whole else np.float64)
        except (TypeError, ValueError, OverflowError):
            words = f"{'whole ' if self._whole else ''}numbers"
            raise Refused(f"must be a list of {words}, or lists of one length", value) from None
        if not self._gaps and np.isnan(found).any():
            raise Refused("must hold no NaN", value)
        found.flags.writeable = False
        return found

    def read(self, value: Any, where: str) -> Any:
        if not isinstance(value, list) or not all(map(self._is_row, value)):
            raise Refused(f"must be a list of {'whole ' if self._whole else ''}numbers, or lists of them", value)
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
    """Return the schema of what may be null besides."""
    if isinstance(found.get("type"), str):
        return {**found, "type": [found["type"], "null"]}
    if "enum" in found:
        return {**found, "enum": [*found["enum"], None]}
    return found if not found or "null" in found.get("type", ()) else {"anyOf": [found, {"type": "null"}]}
