"""Spoiled documents: valid ones with bytes, tokens, or parts of their structure changed.

A document is spoiled by up to a few steps of four whole numbers each (level, change, where, with what), so that
Hypothesis draws little and shrinks well. `spoil` is a pure function of them.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from validation.fuzz_protos import spoil_proto

Step = tuple[int, int, int, int]

_NUMBERS: Final = (
    "0", "-1", "1", "-0", "2", "0.5", "-0.5", "1e999", "-1e999", "1e308", "1e30", "1e-320", "NaN", "Infinity",
    "-Infinity", "nan", "inf", "1000000000000", "2147483647", "2147483648", "4294967296", "9223372036854775807",
    "9223372036854775808", "18446744073709551616", "-9223372036854775809", "9007199254740993", "0x10", "1_000", "007",
    "+1", "1.", ".5", "1e", "true", "null", "٣", "9" * 5000, "-" + "9" * 4301, "0." + "1" * 5000, "1e" + "9" * 30,
)  # fmt: skip
_TEXTS: Final = (
    '""', '"x"', "[]", "{}", "[[]]", '[""]', '"0"', '"-1"', '"1e999"', r'"\u0000"', r'"\ud800"', r'"a\nb"',
    '"a\u2028b"', '"é😀"', '"%s{}"', '"../../x"', '"' + "long" * 2500 + '"', "[" * 3000, '{"a":' * 3000,
    "[" * 60 + "]" * 60, '"', "'", "\\", ",", ":", ";", "=", "{", "}", "[", "]", "<", ">", "->", "--", "#", "//", "/*",
    "*/", "\n", "\r", "\t", "\0", "\v", "\f", "\x1c", "\x85", "\u2028", "\ufeff", "null", "true", "strict", "digraph",
    "graph", "subgraph", "node", "edge",
)  # fmt: skip
_BYTES: Final = (
    b"\0", b"\xff", b"\xef\xbb\xbf", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\x1f\x8b", b"\xff\xfe",
    b"\r\n", b"\n", b'"', b"{", b"[", b"9" * 5000, b"[" * 3000, b"\x80" * 9 + b"\x01", b"\x7f" * 40, b"A" * 70_000,
)  # fmt: skip
_GZIP: Final = b"\x1f\x8b"
_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[A-Za-z_]\w*|\s+|->|.', re.DOTALL)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MOST_REPEATED: Final = 200
_MOST_BYTES: Final = 1 << 17  # of a spoiled document: what grows from step to step is cut


def spoil(documents: Sequence[bytes], structure: str, chosen: int, steps: Sequence[Step]) -> bytes:
    """Return a document with some steps taken: those in its structure first, then in its tokens, then in its bytes.

    Parameters
    ----------
    documents
        Valid ones.
    structure
        What they are made of: "json", "onnx" or "text".
    chosen
        Which document, modulo their number.
    steps
        What to change. What a number means depends on the document; any will do.
    """
    found = documents[chosen % len(documents)]
    levels: list[list[Step]] = [[], [], []]
    for step in steps:
        levels[2 if found.startswith(_GZIP) else _level(structure, step[0])].append(step)
    documents = [one for one in documents if not one.startswith(_GZIP)]
    if levels[0]:
        change = spoil_proto if structure == "onnx" else _spoil_json
        found = change(found, documents, levels[0])
    if levels[1]:
        texts = [one.decode("utf-8", "surrogateescape") for one in (found, *documents)]
        for step in levels[1]:
            texts[0] = _spoil_tokens(texts[0], texts[1:], step)[:_MOST_BYTES]
        found = texts[0].encode("utf-8", "surrogateescape")
    for step in levels[2]:
        found = _spoil_bytes(found, documents, step)[:_MOST_BYTES]
    return found


def _level(structure: str, number: int) -> int:
    """Return 0 for the structure, 1 for tokens, 2 for bytes."""
    return {"json": (0, 0, 1, 2), "onnx": (0, 0, 0, 2), "text": (1, 1, 1, 2)}[structure][number % 4]


def _spoil_bytes(data: bytes, documents: Sequence[bytes], step: Step) -> bytes:
    _, change, where, what = step
    at = where % (len(data) + 1)
    put, end = _BYTES[what % len(_BYTES)], at + 1 + what % 64
    other = documents[what % len(documents)]
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: data[:at],
        lambda: data[at:],
        lambda: data[:at] + bytes([data[at] ^ 1 << what % 8]) + data[at + 1 :] if at < len(data) else data,
        lambda: data[:at] + bytes([what % 256]) + data[at + 1 :],
        lambda: data[:at] + data[end:],
        lambda: data[:at] + put + data[at:],
        lambda: data[:at] + put + data[at + len(put) :],
        lambda: data[:end] + data[at:],
        lambda: data[:at] + other[what % (len(other) + 1) :],
        lambda: data + other,
        lambda: bytes(len(data)),
    )
    return changes[change % len(changes)]()


def _spoil_tokens(text: str, others: Sequence[str], step: Step) -> str:
    _, change, where, what = step
    tokens, lines = _TOKEN.findall(text), text.split("\n")
    if not tokens:
        return _TEXTS[what % len(_TEXTS)]
    i, k = where % len(tokens), what % len(tokens)
    at, line = where % len(lines), what % len(lines)
    numbers = [j for j, token in enumerate(tokens) if _NUMBER.fullmatch(token)] or [i]
    n = numbers[where % len(numbers)]
    elsewhere = _TOKEN.findall(others[what % len(others)]) or [""]

    def put(j: int, token: str) -> str:
        return "".join([*tokens[:j], token, *tokens[j + 1 :]])

    changes: tuple[Callable[[], str], ...] = (
        lambda: put(n, _NUMBERS[what % len(_NUMBERS)]),
        lambda: put(n, str(what % 10)),
        lambda: put(n, tokens[numbers[what % len(numbers)]]),
        lambda: put(i, _NUMBERS[what % len(_NUMBERS)]),
        lambda: put(i, _TEXTS[what % len(_TEXTS)]),
        lambda: put(i, f"{tokens[i]} {_TEXTS[what % len(_TEXTS)]}"),
        lambda: put(i, ""),
        lambda: put(i, 2 * tokens[i]),
        lambda: put(i, tokens[k]),
        lambda: put(i, elsewhere[where % len(elsewhere)]),
        lambda: put(i, tokens[i][1:]),
        lambda: put(i, tokens[i].swapcase()),
        lambda: "".join(tokens[:i]),
        lambda: "\n".join([*lines[:at], *[lines[at]] * (1 + what % _MOST_REPEATED), *lines[at + 1 :]]),
        lambda: "\n".join([*lines[:at], *lines[at + 1 :]]),
        lambda: "\n".join([*lines[:at], lines[line], *lines[at + 1 :]]),
        lambda: text.replace("\n", ("\r\n", "\r", " ", "\n\n", "\t\n")[what % 5]),
        lambda: text.replace(tokens[i], tokens[k]),
    )
    return changes[change % len(changes)]()


class _Twin(str):
    """A key that stands beside an equal one."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


_RAW: Final = "@raw {} @"
_RAW_PLACE: Final = re.compile(r'"@raw (\d+) @"')
_VALUES: Final = (*_NUMBERS, *_TEXTS[:20])


def _spoil_json(data: bytes, documents: Sequence[bytes], steps: Sequence[Step]) -> bytes:
    values = _decoded(data)
    for step in steps:
        _spoil_value(values, documents, step)
    text = "\n".join(json.dumps(value, indent=(None, 1, 2)[steps[0][3] % 3]) for value in values)
    return _RAW_PLACE.sub(lambda found: _VALUES[int(found[1]) % len(_VALUES)], text).encode("utf-8", "surrogateescape")


def _decoded(data: bytes) -> list[Any]:
    """Return the JSON documents that stand one behind the other."""
    text, decoder, found, at = data.decode(), json.JSONDecoder(), [], 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


def _spoil_value(values: list[Any], documents: Sequence[bytes], step: Step) -> None:
    _, change, where, what = step
    places = list(_places(values))
    if not places:
        return
    holder, key = places[where % len(places)]
    other, at = places[what % len(places)]
    away = _places_of(documents[what % len(documents)])
    elsewhere, there = away[where % len(away)]
    keys = [k for _, k in places if isinstance(k, str)] or ["x"]
    alike = [(h, k) for h, k in places if type(h[k]) is type(holder[key])]
    like, place = alike[what % len(alike)]
    old, raw = holder[key], _RAW.format(what)
    is_number = isinstance(old, int | float) and not isinstance(old, bool)
    if is_number:
        raw = _RAW.format(what % len(_NUMBERS))

    def drop() -> None:
        del holder[key]

    def rename() -> None:
        if isinstance(holder, dict):
            holder[keys[what % len(keys)]] = holder.pop(key)

    def repeat() -> None:
        if isinstance(holder, dict):
            holder[_Twin(key)] = old
        else:
            holder[key:key] = [old] * (1 + what % _MOST_REPEATED if what % 7 == 0 else 1)

    def exchange() -> None:
        holder[key], other[at] = other[at], old
        if _is_inside(old, other) or _is_inside(holder[key], holder):  # a document cannot hold itself
            other[at], holder[key] = holder[key], old

    def turn() -> None:
        if isinstance(old, list):
            old.reverse()
        elif isinstance(old, dict):
            holder[key] = list(old.items())

    def add() -> None:
        if isinstance(old, dict):
            old[keys[what % len(keys)]] = raw
        elif isinstance(old, list):
            old.append(raw)

    def nudge() -> None:
        holder[key] = old + (1, -1, 0.5, -2 * old)[what % 4] if is_number else str(old)

    def put(value: Any) -> Callable[[], None]:
        return lambda: holder.__setitem__(key, value)

    changes = (
        drop, put(raw), put(raw), rename, repeat, exchange, turn, add, nudge, put([old]), put(_copy(like[place])),
        put(_copy(like[place])), put(_copy(elsewhere[there])), put(None), put({}), put([]), put(""),
    )  # fmt: skip
    changes[change % len(changes)]()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


@lru_cache
def _places_of(document: bytes) -> tuple[tuple[Any, Any], ...]:
    """Return the places of a document, whose values must be copied."""
    return tuple(_places(_decoded(document)))


def _is_inside(value: Any, holder: Any) -> bool:
    """Say whether a value is, or holds, what it was put into."""
    return value is holder or (isinstance(value, dict | list) and any(h is holder for h, _ in _places(value)))


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))
