"""`Program`: what the hosts issue, instruction by instruction, to run a schedule."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.errors import ProgramError
from simsched.graph import OpGraph, Rows
from simsched.graph.columns import Floats, Ints
from simsched.io import dump_json, read_json, write_file

LAUNCH, RECORD, WAIT, COPY, BARRIER, SYNC = range(6)
ACTIONS: Final = ("launch", "record", "wait", "copy", "barrier", "sync")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One thing a host thread does.

    Parameters
    ----------
    action
        ``launch`` a kernel, ``record`` an event behind the work of a stream, make a stream
        ``wait`` for an event, ``copy`` to another device, ``barrier``: wait until the compute
        streams of the device have drained, or ``sync``: block the host until an event has run.
    device, stream
        Where. A barrier and a sync name no stream (-1).
    argument
        Row of the launches, of the copies, or number of the event; -1 for a barrier.
    """

    action: str
    device: str
    stream: int
    argument: int


@dataclass(frozen=True, slots=True)
class Copies:
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

    op: Ints
    device: Ints
    nbytes: Floats
    transfer: Floats


def launch_ptr(graph: OpGraph) -> Ints:
    """Return where the launches of each operator begin, shape (n_ops + 1,): one per kernel, at least one."""
    return np.concatenate([[0], np.cumsum(np.maximum(1, np.diff(graph.kernel_ptr)))])


class Program:
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

    Notes
    -----
    Row l of the launches is kernel ``launch_kernel[l]`` of operator ``launch_op[l]``; an operator
    without kernels has one launch. `check` is called by whoever makes a program.
    """

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
    ) -> None:
        self.graph = graph
        self.devices = tuple(devices)
        self.execution = execution
        self.thread_ptr: Ints = np.asarray(thread_ptr, np.int64)
        self.action: npt.NDArray[np.int8] = np.asarray(action, np.int8)
        self.device: Ints = np.asarray(device, np.int64)
        self.stream: Ints = np.asarray(stream, np.int64)
        self.argument: Ints = np.asarray(argument, np.int64)
        self.copies = copies
        self.n_events = n_events
        self.priority: Ints = np.broadcast_to(np.asarray(priority, np.int64), (len(graph),))
        self.launch_ptr: Ints = launch_ptr(graph)
        self.launch_op: Ints = np.repeat(np.arange(len(graph)), np.diff(self.launch_ptr))
        self.launch_kernel: Ints = np.arange(len(self.launch_op)) - self.launch_ptr[self.launch_op]

    def __len__(self) -> int:
        return len(self.action)

    def __repr__(self) -> str:
        threads = len(self.thread_ptr) - 1
        return f"Program({self.graph.name!r}, {len(self)} instructions, {threads} threads, {self.execution!r})"

    @property
    def threads(self) -> tuple[Rows[Instruction], ...]:
        """The instructions of each host thread."""

        def view(start: int, end: int) -> Rows[Instruction]:
            return Rows(end - start, lambda i: self._instruction(start + i))

        bounds = self.thread_ptr.tolist()
        return tuple(view(a, b) for a, b in pairwise(bounds))

    def _instruction(self, i: int) -> Instruction:
        return Instruction(
            ACTIONS[self.action[i]], self.devices[self.device[i]], int(self.stream[i]), int(self.argument[i])
        )

    @property
    def n_syncs(self) -> int:
        """Waits, barriers and host syncs in the program."""
        return int(np.isin(self.action, (WAIT, BARRIER, SYNC)).sum())

    def check(self) -> "Program":
        """Prove that each kernel is launched once, in order, and that events are used as CUDA allows.

        Raises
        ------
        ProgramError
            If a launch or copy stands twice or nowhere, kernels of an operator are out of order,
            an event is recorded twice, or a thread waits for an event that it records later.

        Notes
        -----
        An event that is never recorded is allowed here: the simulator finds the deadlock.
        """
        self._check_columns()
        names = self.graph.names
        for code, count in ((LAUNCH, len(self.launch_op)), (COPY, len(self.copies.op))):
            rows = self.argument[self.action == code]
            self._require_range(rows, count, ACTIONS[code])
            times = np.bincount(rows, minlength=count)
            if (times != 1).any():
                row = int(np.argmax(times != 1))
                op = self.launch_op[row] if code == LAUNCH else self.copies.op[row]
                raise ProgramError(
                    f"{ACTIONS[code]} of {names[op]!r} stands {'twice' if times[row] > 1 else 'nowhere'}"
                )
        place = np.empty(len(self.launch_op), np.int64)
        launches = np.flatnonzero(self.action == LAUNCH)
        place[self.argument[launches]] = launches
        swapped = (self.launch_op[1:] == self.launch_op[:-1]) & (place[1:] < place[:-1])
        if swapped.any():
            raise ProgramError(
                f"kernels of {names[self.launch_op[int(np.argmax(swapped))]]!r} are launched out of order"
            )
        if self.n_events > len(self):
            raise ProgramError(f"{self.n_events} events are more than the {len(self)} instructions could use")
        for code in (RECORD, WAIT, SYNC):
            self._require_range(self.argument[self.action == code], self.n_events, "event")
        self._check_records()
        return self

    def _check_columns(self) -> None:
        n, ptr = len(self.action), self.thread_ptr
        if any(len(column) != n for column in (self.device, self.stream, self.argument)):
            raise ProgramError("the columns of a program must have one row per instruction")
        if len(ptr) < 1 or ptr[0] != 0 or ptr[-1] != n or (np.diff(ptr) < 0).any():
            raise ProgramError(f"thread_ptr must rise from 0 to {n}, the number of instructions")
        self._require_range(self.action.astype(np.int64), len(ACTIONS), "instruction")
        self._require_range(self.device, len(self.devices), "device")
        on_stream = ~np.isin(self.action, (BARRIER, SYNC))
        if (self.stream[on_stream] < 0).any():
            raise ProgramError("an instruction other than barrier and sync needs a stream")
        if self.execution == "graph" and not on_stream.all():
            raise ProgramError("a captured graph cannot hold barriers or host syncs")

    def _require_range(self, rows: Ints, end: int, what: str) -> None:
        if rows.size and not 0 <= rows.min() <= rows.max() < end:
            bad = rows[(rows < 0) | (rows >= end)][0]
            raise ProgramError(f"there is no {what} {bad}: the program has {end}")

    def _check_records(self) -> None:
        records = np.flatnonzero(self.action == RECORD)
        times = np.bincount(self.argument[records], minlength=self.n_events)
        if (times > 1).any():
            raise ProgramError(f"event {int(np.argmax(times > 1))} is recorded twice")
        recorded = np.full(self.n_events, -1)
        recorded[self.argument[records]] = records
        waits = np.flatnonzero((self.action == WAIT) | (self.action == SYNC))
        at = recorded[self.argument[waits]]
        thread_of = np.searchsorted(self.thread_ptr, np.arange(len(self)), side="right")
        early = (at > waits) & (thread_of[np.maximum(at, 0)] == thread_of[waits])
        if early.any():
            event = self.argument[waits[int(np.argmax(early))]]
            raise ProgramError(f"event {event} is waited for before the same thread records it")

    def to_dict(self) -> dict[str, Any]:
        """Return the program and its graph as a JSON document, format ``simsched.program`` version 1."""
        from simsched.program_json import to_dict

        return to_dict(self)

    @classmethod
    def from_dict(cls, data: Any, source: str = "program") -> "Program":
        """Make a program from a decoded ``simsched.program`` document and check it; `source` names it in errors."""
        from simsched.program_json import from_dict

        return from_dict(data, source)

    def save(self, path: str) -> None:
        """Write the program and its graph to a JSON file, whole or not at all."""
        write_file(path, dump_json(self.to_dict()))

    @classmethod
    def load(cls, path: str) -> "Program":
        """Read a program from a JSON file."""
        return cls.from_dict(read_json(path), str(path))
