"""The events of a torch.profiler trace by columns, times in whole nanoseconds."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import count
from math import prod
from typing import Any, Final, NamedTuple, NoReturn, Self

import numpy as np
import numpy.typing as npt

from simsched.base.errors import FormatError, GraphError, brief_text
from simsched.base.numeric import is_count
from simsched.model import Floats, Ints, Kernel
from workloads.formats.kineto.apis import CALLS, SYNCS, launches_graph
from workloads.formats.kineto.collectives import CATEGORIES, GROUP, SEQUENCE, is_collective
from workloads.formats.kineto.exchange_data import NAME, NOTHING, RANKS, Arguments, arguments_of
from workloads.formats.kineto.text import Reader, Readers, place, walk

_LATEST: Final = float(2**53)  # us, in the year 2255: as nanoseconds still 64 bits
_LONGEST: Final = float(2**43)  # us, 101 days
# A float of us below this is exact to the nanosecond: its steps are 2^-10 us.
_EXACT_FLOAT: Final = float(2**43)
_PEEKED: Final = 200
_N_ACTIVITY: Final = 13
_PLACES: Final = (3, 4)  # device and stream among the values of an activity
_MOST_PLACES: Final = 2**31

_last_number: Final = re.compile(r".*?(0x[0-9a-fA-F]+|(?<![0-9])[1-9][0-9]*|0)\s*$").match
_first_times = re.compile(r'"ts"\s*:\s*([0-9]+\.[0-9]+)').finditer

# Releases before 1.11 called the categories otherwise.
_HOSTS: Final = (
    ("cpu_op", "Operator"),
    ("user_annotation",),
    CALLS,
)  # operators, annotations, calls
_SYNC_FIELDS: Final = (
    "stream",
    "wait_on_cuda_event_record_corr_id",
    "wait_on_stream",
    "device",
    "wait_on_cuda_event_id",
)
_N_SYNC: Final = 1 + len(_SYNC_FIELDS)
_KERNEL: Final = ("kernel", "Kernel", *CATEGORIES)
_COPY: Final = {"gpu_memcpy": "memcpy", "Memcpy": "memcpy", "gpu_memset": "memset", "Memset": "memset"}


class MeasuredKind(NamedTuple):
    """The name, kind (`what`: "kernel", "memcpy" or "memset"), launch and size of an activity, without its times."""

    what: str
    name: str
    launch: Kernel | None = None
    nbytes: float | None = None
    is_collective: bool = False


class Columns:
    """Events as arrays of one length, and tuples that they index."""

    def take(self, rows: Ints) -> Self:
        """Return some of the events."""
        names = [column.name for column in fields(self) if isinstance(getattr(self, column.name), np.ndarray)]  # type: ignore[arg-type]
        return replace(self, **{name: getattr(self, name)[rows] for name in names})  # type: ignore[type-var]


@dataclass(frozen=True)
class HostEvents(Columns):
    """Operators, annotations, or calls of the runtime and driver; times in ns, `name` indexes `names`.

    `correlation` 0 and `external` 0 mean that there is none. `statement` indexes the trace's statements on collectives
    (0: none).
    """

    start: Ints
    end: Ints
    thread: Ints
    external: Ints
    name: Ints
    correlation: Ints
    statement: Ints
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)

    def are(self, holds: Callable[[str], Any]) -> npt.NDArray[np.bool_]:
        """Return whether the name of each event passes a test."""
        return np.array([bool(holds(name)) for name in self.names], bool)[self.name]

    @property
    def of_graph(self) -> npt.NDArray[np.bool_]:
        """Whether each launches a captured graph."""
        return self.are(launches_graph)


@dataclass(frozen=True)
class Activities(Columns):
    """Kernels, copies and memsets on the GPU: `what` indexes `kinds`, `node` is a graph node id or 0.

    `group` indexes the communicators of the trace (0: none), `sequence` is the number of a collective there, or -1;
    `statement` indexes the statements on collectives (0: none).
    `process` numbers the process of each event in the trace; the process of an activity is its GPU's.
    """

    start: Ints
    duration: Ints
    device: Ints
    stream: Ints
    correlation: Ints
    external: Ints
    node: Ints
    what: Ints
    group: Ints
    sequence: Ints
    statement: Ints
    process: Ints
    kinds: tuple[MeasuredKind, ...]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Events:
    """A trace: events of the host, activities of the GPU, and the fields beside the events.

    `threads` names the process and thread of each number. `syncs` describes calls that synchronise,
    by correlation id: the stream that waits or is waited for (-1: none, or all), the correlation id of the call that
    recorded the event, the stream that it was recorded on (-1 where they are not known), the device, and the event.
    `groups` are the communicators, `statements` the arguments by which events describe collectives. `n_unusable` events
    were left out for want of a time.
    """

    operators: HostEvents
    annotations: HostEvents
    calls: HostEvents
    syncs: dict[int, tuple[int, ...]]
    activities: Activities
    threads: tuple[tuple[Any, Any], ...]
    header: dict[str, Any]
    groups: tuple[tuple[str, ...], ...] = ((),)
    statements: tuple[Arguments, ...] = (NOTHING,)
    n_unusable: int = 0


def read_events(text: str, source: str, *, strict: bool = True) -> Events:
    """Return the events of a trace.

    Parameters
    ----------
    text, source
        The trace, and how errors name it.
    strict
        Whether a time that is none refuses the trace; else it costs the event, which is counted.

    Times come in three formats: whole us, us since 1970 with a decimal point, and us since the field
    `baseTimeNanoseconds`. The second exceeds the precision of a float (its steps are 0.25 us), so such a trace is
    read with decimal numbers.

    Raises
    ------
    FormatError
        If it is not such a trace; the message names the line, or the event by number and the field.
    """
    peeked = [float(m.group(1)) for m, _ in zip(_first_times(text), range(_PEEKED), strict=False)]
    exact = max(peeked, default=0.0) >= _EXACT_FLOAT
    try:
        return _collect(text, source, exact, strict)
    except _InexactError:  # only if the first events have other times than the rest
        return _collect(text, source, True, strict)


def _collect(text: str, source: str, exact: bool, strict: bool) -> Events:
    collector = _Collector(source, strict)
    return collector.events(walk(text, source, collector.readers, exact=exact, strict=strict))


class _InexactError(Exception):
    """A time was read as a float that is too large for it."""


class Codes(dict[Any, int]):
    """Numbers in the order in which they are first asked for."""

    def __missing__(self, key: Any) -> int:
        self[key] = code = len(self)
        return code


class _Collector:
    """Collects the needed fields of each event; types are checked later, a column at a time.

    The fields go into one flat list per category: a tuple per event would be one more object for
    the garbage collector to visit again and again, which takes as long as all the rest.
    """

    def __init__(self, source: str, strict: bool) -> None:
        self._source = source
        self._strict = strict
        self._groups = Codes({(): 0})
        self._statements = Codes({NOTHING: 0})
        self._statement_at: dict[int, int] = {}  # number of an event of the host -> its statement on a collective
        self._processes = Codes()
        self._n_unusable = 0
        self._names = Codes()
        self._threads = Codes()
        self._kinds = Codes()
        self._first_of_kind: list[int] = []
        self._hosts: tuple[list[Any], ...] = ([], [], [])
        self._syncs: list[Any] = []
        self._activities: list[Any] = []
        readers: Readers = (
            {cat: partial(self._on_host, rows) for cats, rows in zip(_HOSTS, self._hosts, strict=True) for cat in cats}
            | dict.fromkeys(SYNCS, self._on_sync)
            | dict.fromkeys(_KERNEL, self._on_kernel)
            | dict.fromkeys(_COPY, self._on_copy)
        )
        if not strict:
            readers = {cat: partial(self._tolerate, read) for cat, read in readers.items()}
        self.readers = readers

    def _tolerate(self, read: Reader, at: int, event: dict[str, Any], args: Any) -> None:
        """Read an event; one that lacks a needed field is counted."""
        try:
            read(at, event, args)
        except (KeyError, TypeError, AttributeError):
            self._n_unusable += 1

    def _on_host(self, rows: list[Any], at: int, event: dict[str, Any], args: dict[str, Any]) -> None:
        name = self._names[event["name"]]
        thread = self._threads[event["pid"], event["tid"]]
        correlation = args.get("correlation", 0)
        if NAME in args:
            self._statement_at[at] = self._statements[arguments_of(args)]
        rows.extend((at, event["ts"], event["dur"], thread, _external(args), name, correlation))

    def _on_sync(self, _at: int, _event: dict[str, Any], args: dict[str, Any]) -> None:
        self._syncs.extend((args.get("correlation", 0), *[args.get(key, -1) for key in _SYNC_FIELDS]))

    def _on_kernel(self, at: int, event: dict[str, Any], args: dict[str, Any]) -> None:
        grid = tuple(args.get("grid", ()))
        block = tuple(args.get("block", ()))
        what: tuple[Any, ...] = (
            event["name"],
            grid,
            block,
            args.get("registers per thread", 0),
            args.get("shared memory", 0),
        )
        if event["cat"] in CATEGORIES or is_collective("", args):
            what = (*what, True)
        self._on_activity(at, event, args, what)

    def _on_copy(self, at: int, event: dict[str, Any], args: dict[str, Any]) -> None:
        self._on_activity(at, event, args, (event["name"], _COPY[event["cat"]], args.get("bytes")))

    def _on_activity(self, at: int, event: dict[str, Any], args: dict[str, Any], what: tuple[Any, ...]) -> None:
        kind = self._kinds[what]
        if kind == len(self._first_of_kind):
            self._first_of_kind.append(at)
        get = args.get
        if self._strict:
            ids = get("device", 0), get("stream", 0), args["correlation"]
        else:  # the process and the thread of an activity are its device and its stream
            pid = event.get("pid", 0)
            tid = event.get("tid", 0)
            ids = get("device", pid), get("stream", tid), get("correlation", 0)
        if GROUP in args:
            group = self._groups[str(get(GROUP)), str(get(RANKS, ""))]
        else:
            group = 0
        if NAME in args:
            statement = self._statements[arguments_of(args)]
        else:
            statement = 0
        self._activities.extend(
            (
                at,
                event["ts"],
                event["dur"],
                *ids,
                _external(args),
                get("graph node id", 0),
                kind,
                group,
                get(SEQUENCE, -1),
                statement,
                self._processes[event.get("pid")],
            )
        )

    def events(self, header: dict[str, Any]) -> Events:
        """Return the checked events."""
        for name in self._names:
            _require_name(name, self._source)
        operators, annotations, calls = map(self._host_events, self._hosts)
        columns = [_ids(self._syncs[k::_N_SYNC], -1 if k else 0).tolist() for k in range(_N_SYNC)]
        syncs = {row[0]: row[1:] for row in zip(*columns, strict=True)}
        rows = self._usable(self._activities, _N_ACTIVITY)
        at, start, duration, device, stream, correlation, external, node, what, group, sequence, statement, process = (
            rows[k::_N_ACTIVITY] for k in range(_N_ACTIVITY)
        )
        activities = Activities(
            self._times(start, at, "ts", _LATEST),
            self._times(duration, at, "dur", _LONGEST),
            self._counts(device, at, "args.device"),
            self._counts(stream, at, "args.stream"),
            _ids(correlation),
            _ids(external),
            _ids(node),
            np.array(what, np.int64),
            np.array(group, np.int64),
            _ids(sequence, -1),
            np.array(statement, np.int64),
            np.array(process, np.int64),
            self._checked_kinds(),
        )
        return Events(
            operators,
            annotations,
            calls,
            syncs,
            activities,
            tuple(self._threads),
            header,
            tuple(self._groups),
            tuple(self._statements),
            self._n_unusable,
        )

    def _usable(self, rows: list[Any], width: int) -> list[Any]:
        """Return rows of `width` values without the rows whose second or third value, a time, is unusable.

        Texts that are numbers count as such. Of activities, those without a usable device or stream go, too.
        """
        if self._strict:
            return rows
        for field in (1, 2):
            if str in set(map(type, rows[field::width])):
                rows[field::width] = map(_number, rows[field::width])
        if width == _N_ACTIVITY:
            for field in _PLACES:
                rows[field::width] = _place_numbers(rows[field::width])
            are_places = min(min(rows[field::width], default=0) for field in _PLACES) >= 0
        else:
            are_places = True
        if are_places and _are_times(rows[1::width], _LATEST) and _are_times(rows[2::width], _LONGEST):
            return rows
        bad = [
            k
            for k in range(0, len(rows), width)
            if not (_is_time(rows[k + 1], _LATEST) and _is_time(rows[k + 2], _LONGEST))
            or (width == _N_ACTIVITY and (rows[k + _PLACES[0]] < 0 or rows[k + _PLACES[1]] < 0))
        ]
        self._n_unusable += len(bad)
        for k in reversed(bad):
            del rows[k : k + width]
        return rows

    def _host_events(self, rows: list[Any]) -> HostEvents:
        rows = self._usable(rows, 7)
        at, start, duration, thread, external, name, correlation = (rows[k::7] for k in range(7))
        begin = self._times(start, at, "ts", _LATEST)
        return HostEvents(
            begin,
            begin + self._times(duration, at, "dur", _LONGEST),
            np.array(thread, np.int64),
            _ids(external),
            np.array(name, np.int64),
            _ids(correlation),
            np.array([self._statement_at.get(k, 0) for k in at] if self._statement_at else [0] * len(at), np.int64),
            tuple(self._names),
        )

    def _checked_kinds(self) -> tuple[MeasuredKind, ...]:
        kinds = []
        for kind, at in zip(self._kinds, self._first_of_kind, strict=True):
            _require_name(kind[0], place(self._source, at))
            try:
                kinds.append(_copy_of(kind) if len(kind) == 3 else _kernel_of(*kind))
            except (FormatError, GraphError) as error:
                if not self._strict:  # its shape is not needed
                    kinds.append(MeasuredKind("kernel" if len(kind) > 3 else kind[1], kind[0]))
                    continue
                raise FormatError(f"{place(self._source, at)}: {error}") from error
        return tuple(kinds)

    def _times(self, values: Sequence[Any], at: Sequence[int], field: str, most: float) -> Ints:
        """Return times in us as whole nanoseconds."""
        kinds = set(map(type, values))
        if not kinds <= {int, float, Decimal}:
            self._refuse(values, at, field, lambda x: type(x) in (int, float, Decimal), "must be a number")
        try:
            us: Floats = np.array(values, np.float64)
            valid = bool(((us >= 0) & (us < most)).all())
        except OverflowError:  # a whole number beyond the largest float
            valid = False
        if not valid:
            self._refuse(values, at, field, lambda x: 0 <= x < most, f"must be a time in us from 0 to {most:.0f}")
        if Decimal in kinds:
            return np.array([round(1000 * value) for value in values], np.int64)
        if float in kinds and us.max() >= _EXACT_FLOAT:
            raise _InexactError
        whole = np.floor(us)
        # each part is exact on its own, and the digits after the point decide the nanosecond
        return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)

    def _counts(self, values: Sequence[Any], at: Sequence[int], field: str) -> Ints:
        if not set(map(type, values)) <= {int} or not all(0 <= value < _MOST_PLACES for value in set(values)):
            self._refuse(
                values, at, field, lambda x: type(x) is int and 0 <= x < _MOST_PLACES, "must be a number below 2^31"
            )
        return np.array(values, np.int64)

    def _refuse(
        self, values: Sequence[Any], places: Sequence[int], field: str, holds: Callable[[Any], bool], phrase: str
    ) -> NoReturn:
        at, value = next((i, x) for i, x in zip(places, values, strict=True) if not holds(x))
        raise FormatError(f"{place(self._source, at)}: field {field!r} {phrase}, not {brief_text(value)}")


def _are_times(values: list[Any], most: float) -> bool:
    """Return whether all values are times, without a look at each where they are plain numbers."""
    if not set(map(type, values)) <= {int, float}:
        return False
    try:
        us = np.array(values, np.float64)
    except OverflowError:
        return False
    return bool(((us >= 0) & (us < most)).all())


def _is_time(value: Any, most: float) -> bool:
    return type(value) in (int, float, Decimal) and 0 <= value < most


def _number(value: Any) -> Any:
    """Return a text as a number if it is one; anything else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        number = Decimal(value.strip())
    except InvalidOperation:
        return value
    if number.is_finite():
        return number
    return value


def _place_numbers(values: list[Any]) -> list[int]:
    """Return numbers of devices or streams, texts by the number at their end, -1 for what is none.

    Numbers of 2^31 or more, as pointers are, get the free numbers in the order in which they come.
    """
    if set(map(type, values)) <= {int} and all(0 <= value < _MOST_PLACES for value in set(values)):
        return values
    numbers = [_place(value) for value in values]
    used = {number for number in numbers if 0 <= number < _MOST_PLACES}
    free = (number for number in count(max(used, default=-1) + 1) if number not in used)
    codes: dict[int, int] = {}
    for k, number in enumerate(numbers):
        if number >= _MOST_PLACES:
            if number not in codes:
                codes[number] = next(free)
            numbers[k] = codes[number]
    return numbers


def _place(value: Any) -> int:
    if isinstance(value, str):
        digits = _last_number(value)
        if digits is None:
            return -1
        return int(digits[1], 0)
    if type(value) in (int, float) and 0 <= value < _LATEST and value == int(value):
        return int(value)
    return -1


def _external(args: dict[str, Any]) -> Any:
    external = args.get("External id")
    if external is None:
        return args.get("external id", 0)
    return external


def _ids(values: Sequence[Any], none: int = 0) -> Ints:
    """Return ids; a missing id (Kineto writes 2^64 - 1 for it) becomes `none`."""
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    values = [int(x) if type(x) is str and x.isdecimal() else x for x in values]
    return np.array([x if type(x) is int and 0 <= x < 2**63 else none for x in values], np.int64)


def _kernel_of(
    name: str, grid: Any, block: Any, registers: Any, shared_memory: Any, is_known: bool = False
) -> MeasuredKind:
    """Return a kernel with its launch, or without it if the trace lacks it.

    `is_known`: the trace says that it is a collective.
    """
    links = is_known or is_collective(name)
    if not grid or not block:
        return MeasuredKind("kernel", name, is_collective=links)
    for field, sizes in (("grid", grid), ("block", block)):
        if not all(is_count(size, 1) for size in sizes):
            raise FormatError(f"field 'args.{field}' must be whole numbers of at least 1, not {list(sizes)!r}")
    for field, value in (("registers per thread", registers), ("shared memory", shared_memory)):
        if not is_count(value):
            raise FormatError(f"field 'args.{field}' must be a whole number, not {value!r}")
    # 0 registers mean "not reported": 1, the fewest, limits no occupancy
    launch = Kernel(prod(grid), prod(block), max(1, registers), shared_memory)
    return MeasuredKind("kernel", name, launch, is_collective=links)


def _copy_of(kind: tuple[Any, ...]) -> MeasuredKind:
    name, what, nbytes = kind
    if nbytes is not None and not is_count(nbytes):
        raise FormatError(f"field 'args.bytes' must be a whole number, not {nbytes!r}")
    return MeasuredKind(what, name, nbytes=None if nbytes is None else float(nbytes))


def _require_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not name:
        raise FormatError(f"{where}: field 'name' must be a text that is not empty, not {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise FormatError(f"{where}: field 'name' holds half of a character: {name!a}") from None
