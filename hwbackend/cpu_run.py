"""One run of a program on a device made of threads: what is queued, what is under way, what has been measured."""

import sys
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple, Protocol

from hwbackend.cpu_streams import Capture, Captured, Streams
from simsched.model.program import COPY, LAUNCH, Program

Block = Sequence[Callable[[], object]]
"""Calls that one worker makes one after the other."""


class Work(NamedTuple):
    """What a program does: the blocks of each launch, and the calls of each copy."""

    launches: Sequence[Sequence[Block]]
    copies: Sequence[Block]


class Values(Protocol):
    """What operators compute; called by the threads that run them."""

    def read(self, op: int, device: int) -> None:
        """Read what an operator needs, as it begins."""
        ...

    def write(self, op: int, device: int) -> None:
        """Write the output of an operator, as it ends."""
        ...

    def copied(self, copy: int, device: int) -> None:
        """Copy an output to another device."""
        ...


class Sample(NamedTuple):
    """One block: us that passed, us of them that its thread ran, and how often it was pushed aside or had to wait."""

    wall: float
    cpu: float
    pushed: int
    waits: int


class Piece:
    """A launch or copy that is under way."""

    __slots__ = ("blocks", "device", "end", "first", "i", "is_copy", "last", "left", "op", "row", "start", "taken")

    def __init__(self, program: Program, work: Work, i: int) -> None:
        self.i, self.row, self.device = i, int(program.argument[i]), int(program.device[i])
        self.is_copy = bool(program.action[i] == COPY)
        self.first = self.last = False
        if self.is_copy:
            self.op, self.blocks = int(program.copies.op[self.row]), [work.copies[self.row]]
        else:
            self.op, self.blocks = int(program.launch_op[self.row]), list(work.launches[self.row])
            ptr = program.launch_ptr
            self.first, self.last = self.row == ptr[self.op], self.row == ptr[self.op + 1] - 1
        self.taken, self.left = 0, len(self.blocks)
        self.start, self.end = sys.maxsize, 0


class Run:
    """One run of a program: what is queued, and what has been measured. Times are in ns of one clock."""

    def __init__(self, program: Program, work: Work, graph: Capture | None, values: Values) -> None:
        self.values = values
        order = Streams(program) if graph is None else Captured(graph)
        self.streams = order if isinstance(order, Streams) else None
        self.over = order.over
        n_hosts = len(program.thread_ptr) - 1
        self.pieces = [Piece(program, work, i) if a in (LAUNCH, COPY) else None
                       for i, a in enumerate(program.action.tolist())]  # fmt: skip
        self.began = [sys.maxsize] * n_hosts
        self.samples: list[Sample] = []
        self.ready: list[list[tuple[int, int, int, Piece]]] = [[] for _ in program.devices]
        self.waiting = [0] * len(program.devices)  # blocks that nobody has taken
        self.copies: list[list[tuple[int, int, Piece]]] = [[] for _ in program.devices]
        self.active = n_hosts  # host threads that are not held, kernels and copies that are not over
        self.arrivals = 0
        self.held: list[tuple[int, Lock]] = []
        self.is_over = False
        self.failure: BaseException | None = None

    @property
    def latency(self) -> float:
        """Time in us from when the first host began to the last end."""
        return (max((piece.end for piece in self.pieces if piece is not None), default=0) - min(self.began)) / 1e3

    def spans(self, action: int) -> list[tuple[float, float]]:
        """Return start and end in us of each launch or copy since the first host began."""
        zero = min(self.began)
        found = [(p.row, p) for p in self.pieces if p is not None and p.is_copy == (action == COPY)]
        return [((p.start - zero) / 1e3, (p.end - zero) / 1e3) for _, p in sorted(found, key=lambda pair: pair[0])]
