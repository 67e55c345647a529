"""The edges that a program means between the nodes of a captured graph, in place of those that they were captured with.

A *part* is the nodes that one operator launches: kernels, copies and fills. A stream of a program comes behind the last
nodes of the operator before it, and of whatever the events that it waits for were recorded after, as in a capture.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hwbackend.executor.issue import issue
from hwbackend.executor.lanes import Lane, first_rows, priorities_of, threads_of
from simsched.base.errors import BackendError
from simsched.model import Program

NodeEdge = tuple[int, int]
"""Numbers of two nodes, of which the second comes after the first."""


class OperatorNodes(NamedTuple):
    """The nodes of an operator, each after those that it depends on.

    `edges` are between them; `first` depend on none of them, and on `last` none of them depends.
    """

    nodes: tuple[int, ...]
    edges: tuple[NodeEdge, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]


def part_of(nodes: Sequence[int], edges: Sequence[NodeEdge]) -> OperatorNodes:
    """Return some nodes of a graph as a part, which keeps the edges between them.

    Of nodes without an order the one that is given first comes first.

    >>> part_of([4, 2, 7], [(2, 4), (4, 9), (1, 2)])
    OperatorNodes(nodes=(2, 4, 7), edges=((2, 4),), first=(2, 7), last=(4, 7))
    """
    own = set(nodes)
    inner = tuple((a, b) for a, b in edges if a in own and b in own)
    before: dict[int, set[int]] = {node: set() for node in nodes}
    for a, b in inner:
        before[b].add(a)
    ordered: list[int] = []
    left = list(nodes)
    while left:
        free = next(node for node in left if before[node].isdisjoint(left))
        ordered.append(free)
        left.remove(free)
    starts = {a for a, _ in inner}
    ends = {b for _, b in inner}
    first = tuple(node for node in ordered if node not in ends)
    last = tuple(node for node in ordered if node not in starts)
    return OperatorNodes(tuple(ordered), inner, first, last)


def edges_of(program: Program, parts: Sequence[OperatorNodes]) -> list[NodeEdge]:
    """Return all edges of the graph that a program means, those inside of parts included.

    Parameters
    ----------
    parts
        Of each operator of the program's graph; one without nodes only looks at what it reads.

    Raises
    ------
    BackendError
        If the program copies between devices.
    """
    tails = _Tails(program, parts)
    issue(program, threads_of(program), tails)
    return list(tails.edges)


def node_priorities(program: Program, parts: Sequence[OperatorNodes]) -> dict[int, int]:
    """Return for each node the priority of its stream; see `hwbackend.executor.lanes.priorities_of`."""
    lanes = _Lanes(program)
    issue(program, threads_of(program), lanes)
    levels = priorities_of(program)
    return {node: levels[lanes.found[op]] for op, part in enumerate(parts) for node in part.nodes}


class _Lanes:
    """A driver that only notes streams."""

    def __init__(self, program: Program) -> None:
        self.thread = 0
        self.found: dict[int, Lane] = {}
        self._first = first_rows(program)

    def launch(self, row: int, device: int, stream: int) -> None:
        op = self._first.get(row)
        if op is not None:
            self.found[op] = device, stream

    def record(self, _event: int, _device: int, _stream: int, /) -> None:
        pass

    def wait(self, _event: int, _device: int, _stream: int, /) -> None:
        pass

    def copy(self, _row: int, _device: int, _stream: int, /) -> None:
        pass

    def is_drained(self, _device: int, _lanes: Sequence[Lane], /) -> bool:
        return True

    def has_passed(self, _event: int, /) -> bool:
        return True


class _Tails(_Lanes):
    """A driver that keeps the nodes that the next work of each stream comes after.

    The host waits for nothing in a capture. Where it waits, as at the barriers between stages, all later work of the
    thread comes after what was waited for.
    """

    def __init__(self, program: Program, parts: Sequence[OperatorNodes]) -> None:
        super().__init__(program)
        self.edges: dict[NodeEdge, None] = dict.fromkeys(edge for part in parts for edge in part.edges)
        self._parts = parts
        self._tails: dict[Lane, tuple[int, ...]] = {}
        self._events: dict[int, tuple[int, ...]] = {}
        self._hosts: dict[int, tuple[int, ...]] = {}

    def launch(self, row: int, device: int, stream: int) -> None:
        op = self._first.get(row)
        if op is None or not self._parts[op].nodes:
            return
        part = self._parts[op]
        lane = device, stream
        self.edges |= dict.fromkeys((a, b) for b in part.first for a in self._tail(lane))
        self._tails[lane] = part.last

    def record(self, event: int, device: int, stream: int) -> None:
        self._events[event] = self._tail((device, stream))

    def wait(self, event: int, device: int, stream: int) -> None:
        lane = device, stream
        self._tails[lane] = _merge(self._tail(lane), self._events[event])

    def copy(self, _row: int, _device: int, _stream: int, /) -> None:
        raise BackendError("a graph of several devices has copies, which were not captured; run it as 'events'")

    def is_drained(self, _device: int, lanes: Sequence[Lane]) -> bool:
        for lane in lanes:
            self._hosts[self.thread] = _merge(self._hosts.get(self.thread, ()), self._tail(lane))
        return True

    def has_passed(self, event: int) -> bool:
        self._hosts[self.thread] = _merge(self._hosts.get(self.thread, ()), self._events[event])
        return True

    def _tail(self, lane: Lane) -> tuple[int, ...]:
        return _merge(self._tails.get(lane, ()), self._hosts.get(self.thread, ()))


def _merge(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*one, *other)))
