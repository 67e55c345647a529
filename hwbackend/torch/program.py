"""How a `Program` is walked by one thread of Python, and the proof that its events order all that it moves."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np

from simsched.base.errors import BackendError
from simsched.model import BARRIER, COPY, DTYPE_NBYTES, LAUNCH, RECORD, SYNC, WAIT, OpGraph, Program
from simsched.rewriting.draft import Slice, slices_of

Row = tuple[int, int, int, int]
"""Action, device, stream and argument of an instruction."""


class Feed(NamedTuple):
    """What an operator reads by one edge.

    `producer` is the operator that wrote it, `copy` the row of the copy that brings it here or -1; `part` is read
    of it if it is not None, else its first `n` elements.
    """

    producer: int
    copy: int
    part: Slice | None
    n: int


def threads_of(program: Program) -> list[list[Row]]:
    """Return the instructions of each host thread."""
    columns = (program.action, program.device, program.stream, program.argument)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return [rows[a:b] for a, b in pairwise(program.thread_ptr.tolist())]


class Host(Protocol):
    """What carries out instructions, one after the other.

    Attributes
    ----------
    thread
        The host thread that the next instruction is of; `issue` sets it.
    """

    thread: int

    def launch(self, row: int, device: int, stream: int, /) -> None:
        """Launch row number `row` of the program's launches."""

    def record(self, event: int, device: int, stream: int, /) -> None:
        """Record an event behind the work of a stream."""

    def wait(self, event: int, device: int, stream: int, /) -> None:
        """Have a stream wait for an event, which was recorded."""

    def copy(self, row: int, device: int, stream: int, /) -> None:
        """Start row number `row` of the program's copies."""

    def drained(self, device: int, /) -> bool:
        """Say whether the compute streams of a device have done all their work."""

    def passed(self, event: int, /) -> bool:
        """Say whether an event, which was recorded, has run."""


def issue(program: Program, threads: Sequence[Sequence[Row]], host: Host) -> None:
    """Carry out a program: each host thread goes on until it has to wait, then it is the next one's turn.

    `threads` are those of `threads_of`. A thread is held up by an event that no other has recorded yet, by a barrier
    until the device has drained, and by a host sync until the event has run; meanwhile the others are served.

    Raises
    ------
    BackendError
        If every thread waits for an event that nobody is going to record.
    """
    issued = [False] * program.n_events
    at = [0] * len(threads)
    left = sum(map(len, threads))
    while left:
        before, polls = left, False
        for t, rows in enumerate(threads):
            host.thread = t
            while at[t] < len(rows):
                action, device, stream, argument = rows[at[t]]
                if action in (WAIT, SYNC) and not issued[argument]:
                    break
                if (action == BARRIER and not host.drained(device)) or (action == SYNC and not host.passed(argument)):
                    polls = True
                    break
                if action == LAUNCH:
                    host.launch(argument, device, stream)
                elif action == RECORD:
                    host.record(argument, device, stream)
                    issued[argument] = True
                elif action == WAIT:
                    host.wait(argument, device, stream)
                elif action == COPY:
                    host.copy(argument, device, stream)
                at[t] += 1
                left -= 1
        if left == before and not polls:
            t = next(t for t, rows in enumerate(threads) if at[t] < len(rows))
            event = threads[t][at[t]][3]
            raise BackendError(
                f"{program.graph.name}: host thread {t} waits for event {event}, which is never recorded"
            )


class _Proof:
    """A host that moves nothing and keeps what is known to have happened, as bits: operators, then copies.

    Known to a stream is what its next work comes after; known to a host thread, what all that it issues comes after.
    """

    def __init__(self, program: Program) -> None:
        self.thread = 0
        self._program = program
        self._reads = sequential_feeds(program.graph)
        self.found: list[list[Feed]] = [[] for _ in self._reads]
        self._streams: dict[tuple[int, int], int] = {}
        self._compute: dict[int, dict[int, None]] = {}  # streams with launches, by device
        self._events = [0] * program.n_events
        self._hosts = [0] * (len(program.thread_ptr) - 1)
        self._device: dict[int, int] = {}
        self._first = first_rows(program)
        self._brought: dict[tuple[int, int], list[int]] = {}
        copies = zip(program.copies.op.tolist(), program.copies.device.tolist(), strict=True)
        for row, (op, device) in enumerate(copies):
            self._brought.setdefault((op, device), []).append(row)

    def launch(self, row: int, device: int, stream: int) -> None:
        self._compute.setdefault(device, {})[stream] = None
        op = self._first.get(row)
        known = self._known(device, stream)
        if op is not None:
            self.found[op] = [self._fed(op, feed, device, known) for feed in self._reads[op]]
            self._device[op] = device
            known |= 1 << op
        self._streams[device, stream] = known

    def record(self, event: int, device: int, stream: int) -> None:
        self._events[event] = self._known(device, stream)

    def wait(self, event: int, device: int, stream: int) -> None:
        self._streams[device, stream] = self._known(device, stream) | self._events[event]

    def copy(self, row: int, device: int, stream: int) -> None:
        op, known = int(self._program.copies.op[row]), self._known(device, stream)
        if not known >> op & 1 or self._device[op] != device:
            raise self._refused(f"a copy of {self._name(op)} may start before it is there")
        self._streams[device, stream] = known | 1 << (len(self.found) + row)

    def drained(self, device: int) -> bool:
        for stream in self._compute.get(device, ()):
            self._hosts[self.thread] |= self._streams[device, stream]
        return True

    def passed(self, event: int) -> bool:
        self._hosts[self.thread] |= self._events[event]
        return True

    def _known(self, device: int, stream: int) -> int:
        return self._streams.get((device, stream), 0) | self._hosts[self.thread]

    def _fed(self, op: int, feed: Feed, device: int, known: int) -> Feed:
        """Return what an operator reads by an edge, of several copies that of the size which is read."""
        producer = feed.producer
        if self._device.get(producer) == device:
            row, there = -1, bool(known >> producer & 1)
        else:
            rows = self._brought.get((producer, device), [])
            rows = [row for row in rows if known >> (len(self.found) + row) & 1]
            row, there = min(rows, key=lambda r: (abs(n_copied(self._program, r) - feed.n), r), default=-1), bool(rows)
        if not there:
            raise self._refused(f"{self._name(op)} may run before what it reads of {self._name(producer)} is there")
        return feed._replace(copy=row)

    def _name(self, op: int) -> str:
        return repr(self._program.graph.names[op])

    def _refused(self, what: str) -> BackendError:
        return BackendError(f"{self._program.graph.name}: {what}: the program lacks a wait")


def first_rows(program: Program) -> dict[int, int]:
    """Return the operators by the rows of their first launches: there they run, the rows behind do nothing more."""
    ptr = program.launches.ptr.tolist()
    return dict(zip(ptr[:-1], range(len(ptr) - 1), strict=True))


def feeds_of(program: Program) -> list[list[Feed]]:
    """Return what each operator reads, in the order of its edges, and by which copy.

    Raises
    ------
    BackendError
        If events, streams and barriers do not see to it that an operator or a copy comes after what it reads.

    Notes
    -----
    O(V (V + E) / 64).
    """
    proof = _Proof(program)
    issue(program, threads_of(program), proof)
    return proof.found


def sequential_feeds(graph: OpGraph) -> list[list[Feed]]:
    """Return what each operator reads, in the order of its edges, where all run on one device."""
    ptr, order = graph.incoming
    found = []
    for i, (a, b) in enumerate(pairwise(ptr.tolist())):
        edges = order[a:b].tolist()
        parts = slices_of(graph.operator(i), len(edges))
        rows = []
        for edge, part in zip(edges, parts, strict=True):
            producer = int(graph.src[edge])
            width = DTYPE_NBYTES[graph.operator(producer).dtype]
            rows.append(Feed(producer, -1, part, max(1, ceil(float(graph.edge_nbytes[edge]) / width))))
        found.append(rows)
    return found


def n_copied(program: Program, row: int) -> int:
    """Return how many elements a copy moves."""
    dtype = program.graph.operator(int(program.copies.op[row])).dtype
    return max(1, ceil(float(program.copies.nbytes[row]) / DTYPE_NBYTES[dtype]))


def devices_of(program: Program) -> list[int]:
    """Return the device that each operator runs on, -1 where it is never launched."""
    found = np.full(len(program.graph), -1)
    launched = np.flatnonzero(program.action == LAUNCH)
    found[program.launches.op[program.argument[launched]]] = program.device[launched]
    devices: list[int] = found.tolist()
    return devices
