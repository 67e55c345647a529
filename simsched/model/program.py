"""`Program`: the instructions that hosts issue to run a schedule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import signature
from itertools import pairwise
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Among, Amount, Checked, Count, Document, Range, brief
from simsched.base.errors import ProgramError
from simsched.base.io import naming
from simsched.base.numeric import freeze, frozen, same_columns, twice
from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph, RowsView
from simsched.model.graph.columns import Columnar, Floats, Indices, Ints, optional
from simsched.model.graph.columns import column as column_of
from simsched.model.graph.groups import together_on
from simsched.model.launches import Launches, choices_of, given_launches, has_choices, launches_on, relaunch
from simsched.model.partition import Partition

Small = npt.NDArray[np.int32]
EXECUTIONS: Final = ("stages", "events", "graph")
EVENT_PLANS: Final = ("minimal", "literal")
LAUNCH, RECORD, WAIT, COPY, BARRIER, SYNC = range(6)
ACTIONS: Final = ("launch", "record", "wait", "copy", "barrier", "sync")


class Copies(NamedTuple):
    """Copies between devices, by columns.

    Parameters
    ----------
    op
        Operator whose output is copied.
    device
        Where it goes, as an index into the program's devices.
    nbytes, transfer
        Size in bytes, and exact time in us or NaN (see `Edge`).
    """

    op: Small
    device: Small
    nbytes: Floats
    transfer: Floats


@dataclass(frozen=True, kw_only=True)
class Instruction(Checked):
    """One thing a host thread does.

    Parameters
    ----------
    do
        launch a kernel, record an event behind the work of a stream, make a stream wait for an event, copy to another
        device, barrier: wait until the streams of the device have drained, or sync: block the host until an event ran.
    device, stream
        Where; a barrier and a sync name no stream.
    op
        The operator that is launched, or whose output is copied.
    kernel
        Which kernel of the operator.
    priority
        Stream priority of the operator; the lower number is served first.
    to
        The device that a copy goes to.
    nbytes, transfer
        Size of a copy in bytes, and its exact time in us, if it has one.
    event
        Number of the event, from 0.
    lead
        Host time in us that passes before it begins.
    own
        Host time in us instead of the device's costs.
    """

    SUBJECT = "{0.do}"
    ERROR = ProgramError
    do: Annotated[str, Among(ACTIONS)]
    device: str
    stream: Annotated[int, Range(-1, 2**31 - 1)] = brief(-1)
    op: str | None = brief(None)
    kernel: Count | None = brief(None)
    priority: Annotated[int, Range(1 - 2**31, 2**31 - 1)] | None = brief(None)
    to: str | None = brief(None)
    nbytes: Amount | None = brief(None)
    transfer: Amount | None = brief(None)
    event: Annotated[int, Range(0, 2**31 - 1)] | None = brief(None)
    lead: Amount = brief(0.0)
    own: Amount | None = brief(None)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        needed, more = _TAKES[self.do]
        for name in ("stream", "op", "kernel", "priority", "to", "nbytes", "transfer", "event"):
            is_set = getattr(self, name) not in (None, -1)
            if name in needed and not is_set:
                raise self.refusal(f"{name} is missing")
            if is_set and name not in (*needed, *more):
                raise self.refusal(f"it takes no {name}")


_TAKES: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "launch": (("stream", "op"), ("kernel", "priority")),
    "record": (("stream", "event"), ()),
    "wait": (("stream", "event"), ()),
    "copy": (("stream", "op", "to", "nbytes"), ("transfer",)),
    "barrier": ((), ()),
    "sync": (("event",), ()),
}
"""What each instruction needs, and may have besides."""


@dataclass
class Issued(Document):
    """The instructions that hosts issue, to run a graph that is stored elsewhere.

    Parameters
    ----------
    execution
        stages, events, or graph: captured once and launched as a whole.
    devices
        Names of the cluster's devices.
    events
        How many events there are; they are numbered from 0.
    threads
        Instructions of each host thread.
    partitions
        Streams that are bound to some SMs.
    """

    FORMAT = "simsched.program"
    execution: Annotated[str, Among(EXECUTIONS)]
    devices: tuple[str, ...]
    events: Count
    threads: Sequence[Sequence[Instruction]]
    partitions: tuple[Partition, ...] = brief(())

    @classmethod
    def of(cls, program: "Program") -> "Issued":
        """Return a program without its graph."""
        return cls(program.execution, program.devices, program.n_events, program.threads, program.partitions)

    def to_program(self, graph: OpGraph) -> "Program":
        """Return the program of a graph, checked."""
        return Program.from_file(graph, **vars(self))


@dataclass(kw_only=True)
class _ProgramFile(Issued):
    """The instructions that hosts issue, and the graph that they run.

    Parameters
    ----------
    graph
        The graph whose kernels are launched.
    """

    graph: OpGraph


class Program(Columnar, Document):
    """Instructions for the host threads of a cluster, over the graph they run.

    Parameters
    ----------
    graph
        The graph whose kernels are launched.
    devices
        Names of the cluster's devices; instructions refer to them by position.
    execution
        As in `Schedule`. For ``"graph"`` there is one thread, whose instructions are captured
        and launched as a whole.
    thread_ptr
        Instructions of thread t are rows ``thread_ptr[t]`` to ``thread_ptr[t + 1]``.
    action, device, stream, argument
        Columns of `Instruction`, by code.
    copies
        The copies that ``copy`` instructions refer to.
    n_events
        Events are numbered from 0.
    priority
        Stream priority of each operator, shape (n_ops,); the lower number is served first.
    lead, own
        Host time in us that passes before each instruction begins, and the instruction's own host time instead of the
        device's (NaN: the device's); a blocking instruction takes it once nothing blocks it. None: no lead, no own
        times. A captured graph has neither.
    checked
        Whether it is known to pass `check`.
    launches
        The kernels that operators launch where they are placed; a launch instruction refers to them by row. None: the
        graph's own.
    open
        Whether the kernels that libraries choose are not chosen yet, as in a program that was read from a file:
        `launches` then has their number alone, and `on` chooses them.
    partitions
        Streams that are bound to some SMs of their device; the others run on all.

    Raises
    ------
    ProgramError
        If a number is too large for its column.

    Notes
    -----
    Columns are contiguous: `action` of 8 bits, `thread_ptr` of 64, the others of 32. `check` is called by whoever
    makes a program.
    """

    FORMAT = "simsched.program"
    FILE = _ProgramFile
    scheduler = ""
    """Who made the schedule that it was lowered from, where that is known; files do not say."""

    def __init__(
        self,
        graph: OpGraph,
        devices: Sequence[str],
        execution: str,
        thread_ptr: npt.ArrayLike,
        action: npt.ArrayLike,
        device: npt.ArrayLike,
        stream: npt.ArrayLike,
        argument: npt.ArrayLike,
        copies: Copies,
        n_events: int,
        priority: npt.ArrayLike = 0,
        lead: npt.ArrayLike | None = None,
        own: npt.ArrayLike | None = None,
        checked: bool = False,
        launches: Launches | None = None,
        open: bool | None = None,
        partitions: Sequence[Partition] = (),
    ) -> None:
        self.graph = graph
        self.devices = tuple(devices)
        self.execution = execution
        self.n_events = n_events
        self.thread_ptr = np.array(thread_ptr, np.int64)
        self.action = _compact(action, np.int8, "action")
        self.device = _compact(device, np.int32, "device")
        self.stream = _compact(stream, np.int32, "stream")
        self.argument = _compact(argument, np.int32, "argument")
        ends = (_compact(copies.op, np.int32, "op"), _compact(copies.device, np.int32, "device"))
        self.copies = Copies(*ends, np.array(copies.nbytes, np.float64), np.array(copies.transfer, np.float64))
        self.priority = np.broadcast_to(np.array(priority, np.int64), (len(graph),))
        self.lead = None if lead is None else np.array(lead, np.float64)
        self.own = None if own is None else np.array(own, np.float64)
        self.checked = checked
        self.partitions = tuple(partitions)
        if launches is None:
            self.launches = given_launches(graph)
        else:
            self.launches = launches
        if open is None:
            self.open = launches is None and has_choices(graph)
        else:
            self.open = open
        self._freeze()

    def over(self, graph: OpGraph) -> "Program":
        """Return the program over another graph that differs in its operators' costs, not in its launches.

        Raises
        ------
        ProgramError
            If operators have other names, or launch other numbers of kernels.
        """
        if graph is self.graph:
            return self
        if graph.names == self.graph.names:
            launches = relaunch(self.launches, graph)
        else:
            launches = None
        if launches is None:
            raise ProgramError(f"the program of graph {self.graph.name!r} is not one of graph {graph.name!r}")
        return Program(**self._parts | {"graph": graph, "launches": launches})

    def on(self, cluster: Cluster) -> "Program":
        """Return the program with the kernels that libraries choose for the devices of a cluster.

        It is the program itself if it has them.

        Raises
        ------
        ProgramError
            If an operator launches another number of kernels there.
        """
        if not has_choices(self.graph):
            return self
        launches = launches_on(self.graph, cluster, self.home)
        if launches is self.launches:
            return self
        differs = np.flatnonzero(np.diff(launches.ptr) != np.diff(self.launches.ptr))
        if len(differs):
            i = int(differs[0])
            here, there = (int(np.diff(table.ptr)[i]) for table in (self.launches, launches))
            raise ProgramError(
                f"kernels of operator {self.graph.names[i]!r}: {here} in the program, but {there} on "
                f"{cluster.devices[self.home[i]].model}: lower the schedule for that cluster"
            )
        if same_columns(launches, self.launches, [field.name for field in fields(Launches)]):
            return self
        return Program(**self._parts | {"launches": launches, "open": False})

    @property
    def home(self) -> Ints:
        """Position of the device of each operator, shape (n_ops,)."""
        homes = np.zeros(len(self.graph), np.int64)
        rows = np.flatnonzero(self.action == LAUNCH)
        homes[self.launches.op[self.argument[rows]]] = self.device[rows]
        return frozen(homes)

    def bound_to(self, partitions: Sequence[Partition]) -> "Program":
        """Return the program with streams that are bound to some SMs."""
        return Program(**self._parts | {"partitions": partitions})

    def timed(self, lead: npt.ArrayLike | None, own: npt.ArrayLike | None) -> "Program":
        """Return the program with other host times of its instructions, see the parameters of `Program`."""
        return Program(**self._parts | {"lead": lead, "own": own, "checked": False}).check()

    @property
    def _parts(self) -> dict[str, Any]:
        """The parameters of `Program`."""
        return {key: self.__dict__[key] for key in signature(Program).parameters}

    def _freeze(self) -> None:
        super()._freeze()
        freeze(self.copies._asdict())

    def __len__(self) -> int:
        return len(self.action)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        ours, theirs = ((x.execution, x.devices, x.n_events, x.partitions) for x in (self, other))
        columns = ("thread_ptr", "action", "device", "stream", "argument", "priority", "lead", "own")
        alike = ours == theirs and self.graph == other.graph and same_columns(self, other, columns)
        alike = alike and np.array_equal(self.launches.ptr, other.launches.ptr)
        return alike and same_columns(self.copies, other.copies, Copies._fields)

    def __repr__(self) -> str:
        threads = len(self.thread_ptr) - 1
        return f"Program({self.graph.name!r}, {len(self)} instructions, {threads} threads, {self.execution!r})"

    @property
    def threads(self) -> tuple[RowsView[Instruction], ...]:
        """The instructions of each host thread."""

        def view(start: int, end: int) -> RowsView[Instruction]:
            return RowsView(end - start, lambda i: self._instruction(start + i))

        bounds = self.thread_ptr.tolist()
        return tuple(view(a, b) for a, b in pairwise(bounds))

    def _instruction(self, i: int) -> Instruction:
        do = ACTIONS[self.action[i]]
        k = int(self.argument[i])
        names = self.graph.names
        fields_of: dict[str, Any] = {}
        if do == "launch":
            op = int(self.launches.op[k])
            kernel = int(self.launches.kernel[k])
            fields_of = {"op": names[op], "kernel": kernel, "priority": int(self.priority[op])}
        elif do == "copy":
            op, to, nbytes, transfer = (column[k] for column in self.copies)
            fields_of = {
                "op": names[op],
                "to": self.devices[to],
                "nbytes": float(nbytes),
                "transfer": optional(transfer),
            }
        elif do != "barrier":
            fields_of = {"event": k}
        lead = 0.0 if self.lead is None else float(self.lead[i])
        if self.own is None:
            own = None
        else:
            own = optional(self.own[i])
        device = self.devices[self.device[i]]
        stream = int(self.stream[i])
        return Instruction(do=do, device=device, stream=stream, lead=lead, own=own, **fields_of)

    @property
    def n_syncs(self) -> int:
        """Waits, barriers and host syncs in the program."""
        return sum(int(np.count_nonzero(self.action == code)) for code in (WAIT, BARRIER, SYNC))

    def check(self) -> "Program":
        """Prove that each kernel is launched once, in order, and that events are used as CUDA allows.

        Raises
        ------
        ProgramError
            If a launch or copy appears twice or not at all, kernels of an operator are out of order, an event is
            recorded twice, or a thread waits for an event that it records later.

        Notes
        -----
        An event that is never recorded is allowed here: the simulator finds the deadlock.
        """
        if self.checked:
            return self
        self._check_columns()
        op = self.launches.op
        place = self._places(LAUNCH, len(self.launches))
        self._places(COPY, len(self.copies.op))
        swapped = np.flatnonzero((place[1:] < place[:-1]) & (op[1:] == op[:-1]))
        if len(swapped):
            raise ProgramError(f"kernels of {self.graph.names[op[swapped[0]]]!r} are launched out of order")
        if self.n_events > len(self):
            raise ProgramError(f"{self.n_events} events are more than the {len(self)} instructions could use")
        waits = np.flatnonzero((self.action == WAIT) | (self.action == SYNC))
        self._require_range(self.argument[waits], self.n_events, "event")
        records = self._places(RECORD, self.n_events)[self.argument[waits]]
        threads = [np.searchsorted(self.thread_ptr, places, side="right") for places in (waits, records)]
        early = waits[(records > waits) & (threads[0] == threads[1])]
        if len(early):
            raise ProgramError(f"event {self.argument[early[0]]} is waited for before the same thread records it")
        for meeting in self.graph.meetings:
            rank = together_on(meeting, self.home)
            if rank is not None:
                raise ProgramError(f"{self.graph.names[rank]!r}: another rank of its collective is on its device")
        self.checked = True
        return self

    def _places(self, code: int, count: int) -> Small:
        """Return which instruction launches or copies each row, or records each event (-1: none), and no other does."""
        places = np.flatnonzero(self.action == code).astype(np.int32)
        rows = self.argument[places]
        self._require_range(rows, count, "event" if code == RECORD else ACTIONS[code])
        times = np.bincount(rows, minlength=count)
        wrong = times > 1 if code == RECORD else times != 1
        if wrong.any():
            row = int(np.argmax(wrong))
            if code == RECORD:
                raise ProgramError(f"event {row} is recorded twice")
            name = self.graph.names[(self.launches.op if code == LAUNCH else self.copies.op)[row]]
            raise ProgramError(f"{ACTIONS[code]} of {name!r} stands {'twice' if times[row] > 1 else 'nowhere'}")
        position = np.full(count, -1, np.int32)
        position[rows] = places
        return position

    def _check_columns(self) -> None:
        n = len(self.action)
        ptr = self.thread_ptr
        if any(len(column) != n for column in (self.device, self.stream, self.argument)):
            raise ProgramError("the columns of a program must have one row per instruction")
        if len(ptr) < 1 or ptr[0] != 0 or ptr[-1] != n or (np.diff(ptr) < 0).any():
            raise ProgramError(f"thread_ptr must rise from 0 to {n}, the number of instructions")
        self._require_range(self.action, len(ACTIONS), "instruction")
        self._require_range(self.device, len(self.devices), "device")
        on_stream = self.action < BARRIER  # neither a barrier nor a sync
        if (on_stream & (self.stream < 0)).any():
            raise ProgramError("an instruction other than barrier and sync needs a stream")
        if self.execution == "graph" and not on_stream.all():
            raise ProgramError("a captured graph cannot hold barriers or host syncs")
        if self.execution == "graph" and len(ptr) != 2:
            raise ProgramError(f"a captured graph has one thread, not {len(ptr) - 1}")
        for name, times in (("lead", self.lead), ("own", self.own)):
            if times is None:
                continue
            if self.execution == "graph":
                raise ProgramError(f"instructions of a captured graph have no host time, and so no {name!r}")
            if len(times) != n:
                raise ProgramError(f"column {name!r} must have one row per instruction")
            bad = ~((times >= 0) & (times < np.inf)) & ~(np.isnan(times) & (name == "own"))
            if bad.any():
                raise ProgramError(f"{name!r} of an instruction must be finite and not negative, not {times[bad][0]}")
        copies = self.copies
        if any(len(column) != len(copies.op) for column in (copies.device, copies.nbytes, copies.transfer)):
            raise ProgramError("the columns of the copies must have one row per copy")
        self._require_range(copies.op, len(self.graph), "operator")
        self._require_range(copies.device, len(self.devices), "device")

    def _require_range(self, rows: npt.NDArray[Any], end: int, what: str) -> None:
        if rows.size and not 0 <= rows.min() <= rows.max() < end:
            bad = rows[(rows < 0) | (rows >= end)][0]
            raise ProgramError(f"there is no {what} {bad}: the program has {end}")

    def to_file(self) -> _ProgramFile:
        """Return it as its file has it."""
        return _ProgramFile(**vars(Issued.of(self)), graph=self.graph)

    @classmethod
    def from_file(cls, graph: OpGraph, **own: Any) -> "Program":
        """Make a program from the data of its file, the fields of `Issued` and the graph, and check it."""
        issued = Issued(**own)
        devices = issued.devices
        threads = issued.threads
        if not devices or twice(devices) is not None:
            raise ProgramError(f"device {twice(devices)!r} stands twice" if devices else "there are no devices")
        number = {name: i for i, name in enumerate(devices)}
        every = [row for t in threads for row in t]
        arguments = list[int]()
        priority = np.zeros(len(graph), np.int64)
        copies: list[tuple[float, ...]] = []
        counts = np.zeros(len(graph), np.int64)
        for row in every:
            if row.do == "launch" and row.op is not None and row.op in graph.index:
                i = graph.index[row.op]
                counts[i] = max(counts[i], 1 + (row.kernel or 0))
        launches = given_launches(graph, np.where(choices_of(graph), counts, 1))
        for t, thread in enumerate(threads):
            for i, row in enumerate(thread):
                with naming(f"threads[{t}][{i}]"):
                    arguments.append(_argument(row, graph, launches, number, copies, priority))
        ends = np.array(copies, np.float64).reshape(-1, 4).T
        return cls(
            graph,
            devices,
            issued.execution,
            np.cumsum([0, *map(len, threads)]),
            [ACTIONS.index(row.do) for row in every],
            [number[row.device] for row in every],
            [row.stream for row in every],
            arguments,
            copies=Copies(ends[0].astype(np.int32), ends[1].astype(np.int32), ends[2], ends[3]),
            n_events=issued.events,
            priority=priority,
            lead=[row.lead for row in every] if any(row.lead for row in every) else None,
            own=column_of(row.own for row in every) if any(row.own is not None for row in every) else None,
            launches=launches,
            open=has_choices(graph),
            partitions=issued.partitions,
        ).check()


def _argument(
    row: Instruction,
    graph: OpGraph,
    launches: Launches,
    number: Mapping[str, int],
    copies: list[tuple[float, ...]],
    priority: Ints,
) -> int:
    """Return the argument of an instruction as a number; add its copy, and note the priority of its launch.

    Devices, operators and kernels that are not there are refused.
    """
    for device in (row.device, row.to):
        if device is not None and device not in number:
            raise ProgramError(f"unknown device {device!r}; known are: {', '.join(number)}")
    if row.to == row.device:
        raise ProgramError(f"a copy goes to another device, not to {row.to!r} again")
    if row.op is None:
        if row.event is None:
            return -1
        return row.event
    if row.op not in graph.index:
        raise ProgramError(f"{row.op!r} names no operator of graph {graph.name!r}")
    op = graph.index[row.op]
    kernel = row.kernel or 0
    if row.do == "copy":
        copies.append((op, number[str(row.to)], row.nbytes or 0.0, np.nan if row.transfer is None else row.transfer))
        return len(copies) - 1
    if kernel >= launches.ptr[op + 1] - launches.ptr[op]:
        raise ProgramError(f"operator {row.op!r} has no kernel {kernel}")
    priority[op] = row.priority or 0
    return int(launches.ptr[op]) + kernel


def _compact(values: npt.ArrayLike, dtype: Any, name: str) -> npt.NDArray[Any]:
    """Return a column of whole numbers with few bits each."""
    column = np.asarray(values)
    if column.dtype != dtype and column.size:
        limits = np.iinfo(dtype)
        if not limits.min <= column.min() <= column.max() <= limits.max:
            raise ProgramError(f"column {name!r} must hold whole numbers from {limits.min} to {limits.max}")
    return np.array(column, dtype, order="C")


def barrier_before(device: Indices, stage: Indices, stream: Indices) -> npt.NDArray[np.bool_]:
    """Return, by place in the launch order, whether the host issues a stage barrier first, shape (n_ops,).

    A barrier comes between two stages of a device, except where each of the two has one group and both use the same
    stream: the stream orders them.
    """
    rows = np.argsort(device, kind="stable")  # launch order within each device
    device = device[rows]
    stage = stage[rows]
    stream = stream[rows]
    starts = np.flatnonzero(np.concatenate([[True], (device[1:] != device[:-1]) | (stage[1:] != stage[:-1])]))
    lowest = np.minimum.reduceat(stream, starts)
    highest = np.maximum.reduceat(stream, starts)
    single = lowest == highest  # groups of a stage have streams of their own
    follows = device[starts][1:] == device[starts][:-1]
    ordered = single[1:] & single[:-1] & (lowest[1:] == lowest[:-1])
    barrier = np.zeros(len(rows), np.bool_)
    barrier[rows[starts[1:][follows & ~ordered]]] = True
    return barrier
