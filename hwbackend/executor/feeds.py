"""The tensors that operators read under a program, and the proof that its events order all that it moves."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from hwbackend.executor.issue import issue
from hwbackend.executor.lanes import Lane, first_rows, threads_of
from simsched.base.errors import BackendError
from simsched.model import DTYPE_NBYTES, OpGraph, Program
from simsched.rewriting.draft import Slice, slices_of


class Feed(NamedTuple):
    """The input that an operator reads by one edge.

    `producer` is the operator that wrote it, `copy` the row of the copy that brings it here or -1; `part` is read
    of it if it is not None, else its first `n` elements.
    """

    producer: int
    copy: int
    part: Slice | None
    n: int


class _Proof:
    """A driver that moves nothing and keeps what is known to have happened, as bits: operators, then copies.

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
        known = self._known_bits(device, stream)
        if op is not None:
            self.found[op] = [self._feed_of(op, feed, device, known) for feed in self._reads[op]]
            self._device[op] = device
            known |= 1 << op
        self._streams[device, stream] = known

    def record(self, event: int, device: int, stream: int) -> None:
        self._events[event] = self._known_bits(device, stream)

    def wait(self, event: int, device: int, stream: int) -> None:
        self._streams[device, stream] = self._known_bits(device, stream) | self._events[event]

    def copy(self, row: int, device: int, stream: int) -> None:
        op = int(self._program.copies.op[row])
        known = self._known_bits(device, stream)
        if not known >> op & 1 or self._device[op] != device:
            raise self._refusal(f"a copy of {self._name(op)} may start before it is there")
        self._streams[device, stream] = known | 1 << (len(self.found) + row)

    def is_drained(self, device: int, _lanes: Sequence[Lane]) -> bool:
        for stream in self._compute.get(device, ()):
            self._hosts[self.thread] |= self._streams[device, stream]
        return True

    def has_passed(self, event: int) -> bool:
        self._hosts[self.thread] |= self._events[event]
        return True

    def _known_bits(self, device: int, stream: int) -> int:
        return self._streams.get((device, stream), 0) | self._hosts[self.thread]

    def _feed_of(self, op: int, feed: Feed, device: int, known: int) -> Feed:
        """Return the input of an operator by an edge; of several copies, the one of the size that is read."""
        producer = feed.producer
        if self._device.get(producer) == device:
            row = -1
            there = bool(known >> producer & 1)
        else:
            rows = self._brought.get((producer, device), [])
            rows = [row for row in rows if known >> (len(self.found) + row) & 1]
            row = min(rows, key=lambda r: (abs(n_copied(self._program, r) - feed.n), r), default=-1)
            there = bool(rows)
        if not there:
            raise self._refusal(f"{self._name(op)} may run before what it reads of {self._name(producer)} is there")
        return feed._replace(copy=row)

    def _name(self, op: int) -> str:
        return repr(self._program.graph.names[op])

    def _refusal(self, what: str) -> BackendError:
        return BackendError(f"{self._program.graph.name}: {what}: the program lacks a wait")


def feeds_of(program: Program) -> list[list[Feed]]:
    """Return the inputs of each operator, in the order of its edges, and by which copy.

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
    """Return the inputs of each operator, in the order of its edges, where all run on one device."""
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
