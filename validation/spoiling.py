"""Documents to try readers with: drawn from a schema, or valid ones spoiled in their JSON nodes and their bytes."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError
from hypothesis import strategies as st
from onnx import ModelProto

Seeds = Sequence[tuple[str, bytes]]
"""Valid documents with the names of their files."""

_PIECES: Final = (
    "0",
    "-1",
    "1",
    "-0",
    "2",
    "0.5",
    "1e999",
    "-1e999",
    "1e308",
    "1e-320",
    "NaN",
    "-Infinity",
    "1000000000000",
    "2147483648",
    "9223372036854775808",
    "9007199254740993",
    "0x10",
    "1_000",
    "007",
    "+1",
    "1.",
    "٣",
    "9" * 5000,
    "",
    '""',
    "[]",
    "{}",
    '"\\ud800"',
    "null",
    "true",
    "é😀",
    "[" * 3000,
    '{"a":' * 3000,
    "long" * 2500,
    '"',
    "\\",
    ",",
    ":",
    ";",
    "=",
    "{",
    "}",
    "->",
    "--",
    "#",
    "/*",
    "\n",
    "\r",
    "\0",
    "\u2028",
    "\ufeff",
    "%s{}",
    "../x",
)
_BYTES: Final = (
    *(piece.encode() for piece in _PIECES),
    b"\xff",
    b"\xc3\x28",
    b"\x1f\x8b",
    b"\x80" * 9 + b"\x01",
    b"A" * 70_000,
)
_NODES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    2,
    0.5,
    10**12,
    2**31,
    2**53 + 1,
    2**63,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "x",
    "0",
    "nan",
    "-1",
    "9" * 400,
    "a\nb",
    "\ud800",
    "é😀",
    "%s{}",
    "../x",
    "x" * 5000,
    "--",
    "-h",
    "--nobody",
    "=",
    ",",
    "[red]",
    [],
    {},
    [[]],
    {"a": 1},
)
_TOKEN: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\w+|.+\n')
_MOST_BYTES: Final = 1 << 17  # of a spoiled document: one that grows from step to step is cut
_NO_NODES: Final[tuple[Any, ...]] = (ValueError, TypeError, AttributeError, RecursionError, DecodeError, ParseError)
_CODECS: Final[Mapping[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]]] = {
    ".json": (json.loads, lambda value: json.dumps(value).encode()),
    ".jsonl": (
        lambda data: [json.loads(line) for line in data.splitlines()],
        lambda value: "".join(json.dumps(line) + "\n" for line in value).encode(),
    ),
    ".onnx": (
        lambda data: MessageToDict(ModelProto.FromString(data)),
        lambda value: ParseDict(value, ModelProto(), ignore_unknown_fields=True).SerializeToString(),
    ),
}
_names = st.sampled_from(["a", "b", "gpu0", "gpu1", "sequential", "conv"]) | st.text(max_size=3)
_floats = partial(st.floats, allow_nan=False, allow_infinity=False)

_anything = st.recursive(st.none() | st.integers() | _floats() | _names, lambda inner: st.lists(inner, max_size=3))


def values(part: Mapping[str, Any], parts: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Return the values of a part of one of our schemas; `parts` are those that it refers to by name."""
    inside = partial(values, parts=parts)
    least, most = part.get("minimum", part.get("exclusiveMinimum")), part.get("maximum")
    match part:
        case {"$ref": name}:
            return st.deferred(lambda: inside(parts[name.rpartition("/")[2]]))
        case {"const": value}:
            return st.just(value)
        case {"enum": choices}:
            return st.sampled_from(choices)
        case {"anyOf": kinds}:
            return st.one_of([inside(kind) for kind in kinds])
        case {"type": [*kinds]}:
            return st.one_of([inside({**part, "type": kind}) for kind in kinds])
        case {"type": "array", "prefixItems": items}:
            return st.tuples(*map(inside, items)).map(list)
        case {"type": "array"}:
            return st.lists(inside(part.get("items", {})), min_size=part.get("minItems", 0), max_size=3)
        case {"type": "object", "properties": fields}:
            needed = {key: inside(fields[key]) for key in part.get("required", ())}
            others = {key: inside(field) for key, field in fields.items() if key not in needed}
            return st.fixed_dictionaries(needed, optional=others)
        case {"type": "object", "additionalProperties": dict(item)}:
            return st.dictionaries(_names, inside(item), max_size=3)
        case {"type": "object"}:
            return st.dictionaries(_names, _anything, max_size=3)
        case {"type": "integer"}:
            return st.integers(least, most)
        case {"type": "number"}:
            return _floats(least, most, exclude_min="exclusiveMinimum" in part)
        case {"type": "string"}:
            return _names.filter(len) if part.get("minLength") else _names
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "null"}:
            return st.none()
    return _anything


@st.composite
def spoilt_nodes(draw: st.DrawFn, value: Any, other: Any) -> Any:
    """Return a JSON value with a node left out, doubled, added, or replaced by an odd one or one from elsewhere."""
    root = [deepcopy(value)]
    places = list(_places(root))
    holder, key = draw(st.sampled_from(places))
    old = holder[key]
    known = [inside[at] for inside, at in (*places, *_places([other]))]
    alike = [node for node in known if type(node) is type(old)]
    others = st.sampled_from(alike) | st.sampled_from(_NODES) | st.sampled_from(known) | st.just([old])
    new = deepcopy(draw(st.sampled_from(alike) | others))
    change = draw(st.sampled_from(("put", "put", "put", "drop", "add", "repeat")))
    if change == "drop":
        del holder[key]
    elif change == "put":
        holder[key] = new
    elif isinstance(holder, list):
        holder[key:key] = [new] if change == "add" else [old] * draw(st.integers(1, 50))
    else:
        holder[str(draw(st.sampled_from([key for _, key in places])))] = new if change == "add" else old
    return root[0] if root else []


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


@st.composite
def spoilt_bytes(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Return bytes of which a token or any piece is left out, repeated, or replaced by odd or other bytes."""
    tokens = [found.span() for found in _TOKEN.finditer(data)] or [(0, 0)]
    at, elsewhere = draw(st.integers(0, len(data))), draw(st.integers(0, len(other)))
    spans = st.integers(at, min(len(data), at + 64)).map(lambda end: (at, end)) | st.just((at, len(data)))
    begin, end = draw(st.sampled_from(tokens) | spans)
    again = st.integers(2, 200).map(lambda times: data[begin:end] * times)
    new = draw(st.sampled_from(_BYTES) | st.binary(max_size=3) | st.just(other[elsewhere : elsewhere + 40]) | again)
    return (data[:begin] + new + data[end:])[:_MOST_BYTES]


@st.composite
def spoilt(draw: st.DrawFn, seeds: Seeds) -> bytes:
    """Return a valid document spoiled mostly once: a document spoiled several times fails the first check."""
    (name, data), (_, other) = draw(st.sampled_from(seeds)), draw(st.sampled_from(seeds))
    codec = _CODECS.get(Path(name).suffix)
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        if codec and draw(st.booleans()):
            decode, encode = codec
            with suppress(*_NO_NODES):  # then its bytes are spoiled
                data = encode(draw(spoilt_nodes(decode(data), decode(other))))
                continue
        data = draw(spoilt_bytes(data, other))
    return data
