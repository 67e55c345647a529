"""The text of a torch.profiler trace, and its events one at a time.

A trace of half a million events is over 100 MB of text and several times that as Python objects. The
events are therefore decoded one by one and handed on, and what is not wanted is dropped at once: that
also leaves the garbage collector nothing to search, so it pauses meanwhile. Unlike in our own documents, a
key that stands twice in an event counts once, as any JSON reader has it (the last one wins): the file is not
ours.
"""

import gc
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from simsched.base.errors import FormatError
from simsched.base.io import decode_text, read_bytes
from simsched.base.limits import limits

EVENTS: Final = "traceEvents"
_GZIP: Final = b"\x1f\x8b"
# Traces deflate to a twentieth; what inflates to so much more is no trace, and may fill the memory.
_MOST_INFLATED: Final = 400
_SMALL: Final = 1 << 26  # bytes that any file may inflate to
_CHUNK: Final = 1 << 24

_FAR: Final = 1 << 16  # characters within which a line of arguments ends, or else is decoded
_NO_ARGUMENTS: Final[dict[str, Any]] = {}
Readers = Mapping[Any, Callable[[int, dict[str, Any], dict[str, Any]], None]]

# How an operator is laid out: the fields in this order, then the arguments on one line, the id first.
_END: Final = "\n    }\n  }"
_WHOLE: Final = "(0|[1-9][0-9]{0,15}+)"
_TIME: Final = r"((?:0|[1-9][0-9]{0,15}+)(?:\.[0-9]{1,9}+)?+)"
_operator_head = re.compile(
    (
        r'\{~"ph"~:~"X"~,~"cat"~:~"cpu_op"~,~"name"~:~"([^"\\\x00-\x1f]++)"~,'
        rf'~"pid"~:~{_WHOLE}~,~"tid"~:~{_WHOLE}~,~"ts"~:~{_TIME}~,~"dur"~:~{_TIME}~,'
        rf'~"args"~:~\{{~"External id"~:~{_WHOLE}(?=[,\n])'
    ).replace("~", r"[ \t\n\r]*+")
).match
_blank = re.compile(r"[ \t\n\r]*").match
# From one event to the next. Flows (the arrows between launches and kernels, two for each) say nothing that the
# correlation does not: those without objects or escapes inside are passed over without being decoded.
_FLOW: Final = r'\{ "ph" : "[stf]" (?:[^"{}\[\]\\]++|"[^"\\]*+")*+ \}'
_next_object = re.compile(rf" , (?:{_FLOW} , )*+ (?=\{{)".replace(" ", r"[ \t\n\r]*+")).match


def read_trace(path: str | os.PathLike[str]) -> str:
    """Return the text of a trace, inflated if it is a gzip file, whatever its name.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is damaged, or not text.
    """
    data = read_bytes(path)
    return decode_text(_inflate(data, str(path)) if data.startswith(_GZIP) else data, str(path))


def _inflate(data: bytes, source: str) -> bytearray:
    most = min(max(_SMALL, _MOST_INFLATED * len(data)), limits().file_nbytes)
    found = bytearray()
    rest = data
    try:
        while rest.startswith(_GZIP):  # a gzip file may be several, one behind the other
            member = zlib.decompressobj(wbits=31)
            while not member.eof:
                piece = member.decompress(rest, _CHUNK)
                found += piece
                rest = member.unconsumed_tail or member.unused_data
                if len(found) > most:
                    raise FormatError(f"{source}: inflates to over {most} bytes, so it is not a trace")
                if not piece and not member.eof and not rest:
                    raise FormatError(f"{source}: the gzip file is truncated")
    except zlib.error as error:
        raise FormatError(f"{source}: the gzip file is damaged: {error}") from error
    return found


def walk(text: str, source: str, readers: Readers, *, exact: bool) -> dict[str, Any]:
    """Hand events to the readers of their category, and return the other fields of the trace.

    Parameters
    ----------
    text, source
        The trace, and how errors name it.
    readers
        By category: called with the place of an event in the text, the event and its arguments, for those that have
        a duration. A KeyError or TypeError that one raises becomes a FormatError.
    exact
        Whether numbers with a decimal point are read as `Decimal` instead of as floats.

    Raises
    ------
    FormatError
        If it is not JSON (the message names the line) or has no events.
    """
    try:
        with _collector_paused():
            return _Walk(text, source, exact).trace(readers)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{source}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except RecursionError as error:
        raise FormatError(f"{source}: nested too deeply") from error
    except InvalidOperation as error:
        raise FormatError(f"{source}: a number is beyond all bounds") from error
    except ValueError as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{source}: {error}") from error  # e.g. an integer of over 4,300 digits


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from searching what is read again and again: events form no cycles."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


class _Walk:
    """The top of a trace, value by value."""

    def __init__(self, text: str, source: str, exact: bool) -> None:
        self._text = text
        self._source = source
        decoder = json.JSONDecoder(parse_float=Decimal if exact else None, parse_constant=self._refuse)
        self._exact = exact
        self._scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]

    def _refuse(self, constant: str) -> NoReturn:
        raise FormatError(f"{self._source}: {constant} is not a number that can be used")

    def trace(self, readers: Readers) -> dict[str, Any]:
        """Read the whole text."""
        found: dict[str, Any] = {}
        i = self._skip(0)
        if self._at(i) not in ("{", ""):
            self._value(i)  # what is not JSON at all is refused as such
            raise FormatError(f"{self._source}: expected an object with {EVENTS!r}, as torch.profiler writes it")
        i = self._expect("{", i)
        while self._at(i) != "}":
            if found:
                i = self._expect(",", i)
            if self._at(i) != '"':
                raise json.JSONDecodeError("Expecting property name enclosed in double quotes", self._text, i)
            key, i = self._value(i)
            i = self._expect(":", self._skip(i))
            if key in found:
                raise FormatError(f"{self._source}: field {key!r} stands twice in one object")
            if key == EVENTS:
                found[key], i = None, self._events(i, readers)
            else:
                found[key], i = self._value(i)
            i = self._skip(i)
        i = self._skip(i + 1)
        if i != len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, i)
        if EVENTS not in found:
            raise FormatError(f"{self._source}: field {EVENTS!r} is missing; is it a trace of torch.profiler?")
        return found

    def _skip(self, i: int) -> int:
        match = _blank(self._text, i)
        assert match is not None, "the pattern matches the empty text"
        return match.end()

    def _at(self, i: int) -> str:
        return self._text[i : i + 1]

    def _expect(self, mark: str, i: int) -> int:
        if self._at(i) != mark:
            raise json.JSONDecodeError(f"Expecting {mark!r}", self._text, i)
        return self._skip(i + 1)

    def _value(self, i: int) -> tuple[Any, int]:
        try:
            return self._scan(self._text, i)
        except StopIteration:
            raise json.JSONDecodeError("Expecting value", self._text, i) from None

    def _operator(self, head: re.Match[str]) -> tuple[Any, int] | None:
        """Return an operator with its External id as its only argument, and where it ends, if it is laid out as usual.

        With `record_shapes` the arguments are most of the text, and decoding them most of the time. They stand on a
        line of their own, the id first; the rest of that line is not looked at.
        """
        line = self._text.find("\n", head.end(), head.end() + _FAR)
        if not self._text.startswith(_END, line):
            return None
        name, pid, tid, ts, dur, external = head.groups()
        real = Decimal if self._exact else float
        event = {
            "cat": "cpu_op", "ph": "X", "name": name, "pid": int(pid), "tid": int(tid),
            "ts": int(ts) if ts.isdigit() else real(ts), "dur": int(dur) if dur.isdigit() else real(dur),
            "args": {"External id": int(external)},
        }  # fmt: skip
        return event, line + len(_END)

    def _events(self, i: int, readers: Readers) -> int:
        """Hand on the events and return where their list ends."""
        if self._at(i) != "[":
            raise FormatError(f"{self._source}: field {EVENTS!r} must be a list")
        i = self._skip(i + 1)
        if self._at(i) == "]":
            return i + 1
        text, scan, reader_of = self._text, self._scan, readers.get
        start, has_operators = i, '"cpu_op"' in text
        try:
            while self._at(i) == "{":
                while True:  # the usual way from one event to the next, without a call of ours
                    start = i
                    head = _operator_head(text, i) if has_operators else None
                    usual = None if head is None else self._operator(head)
                    event, i = scan(text, i) if usual is None else usual
                    read = reader_of(event.get("cat"))
                    if read is not None and event["ph"] == "X":
                        read(start, event, event.get("args", _NO_ARGUMENTS))
                    behind = _next_object(text, i)
                    if behind is None:
                        break
                    i = behind.end()
                i = self._skip(i)
                if self._at(i) == "]":
                    return i + 1
                i = self._expect(",", i)
        except StopIteration:
            raise json.JSONDecodeError("Expecting value", text, i) from None
        except KeyError as error:
            raise FormatError(f"{place(text, self._source, start)}: field {error.args[0]!r} is missing") from None
        except (TypeError, AttributeError):
            raise FormatError(f"{place(text, self._source, start)}: a field has the wrong type") from None
        self._value(i)
        raise FormatError(f"{place(text, self._source, i)}: expected an object")


def place(text: str, source: str, i: int) -> str:
    """Return how errors name the event that starts at character `i`."""
    return f"{source}: event at line {text.count(chr(10), 0, i) + 1}"
