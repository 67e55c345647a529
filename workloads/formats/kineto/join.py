"""Joins of a torch.profiler trace: nested operators of the host, and the call of each activity."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from simsched.model.graph.columns import Ints
from workloads.formats.kineto.events import Activities, Events, HostEvents

Flags = npt.NDArray[np.bool_]


class Nesting:
    """Host events by thread and start, an outer one before those inside it.

    Parameters
    ----------
    events
        In any order; `self.events` has them in the order of the nesting, to which all indices here refer.
    """

    def __init__(self, events: HostEvents) -> None:
        # of events that start and end together the first written is the outer one: lexsort is stable
        self.events = events.take(np.lexsort((-events.end, events.start, events.thread)))
        threads, first = np.unique(self.events.thread, return_index=True)
        bounds = pairwise([*first.tolist(), len(events)])
        self._segments = dict(zip(threads.tolist(), bounds, strict=True))

    @cached_property
    def outermost(self) -> Ints:
        """The outermost event around each, itself where there is none."""
        start, end = self.events.start, self.events.end
        is_outermost = np.ones(len(start), bool)
        for a, b in self._segments.values():
            is_outermost[a + 1 : b] = start[a + 1 : b] >= np.maximum.accumulate(end[a:b])[:-1]
        return np.maximum.accumulate(np.where(is_outermost, np.arange(len(start)), 0))

    @cached_property
    def parent(self) -> Ints:
        """The innermost event around each, or -1."""
        found = np.full(len(self.events), -1)
        starts, ends = self.events.start.tolist(), self.events.end.tolist()
        for a, b in self._segments.values():
            around: list[int] = []
            for i in range(a, b):
                while around and ends[around[-1]] <= starts[i]:
                    around.pop()
                if around:
                    found[i] = around[-1]
                around.append(i)
        return found

    @property
    def innermost(self) -> Flags:
        """Whether no event is inside each."""
        found = np.ones(len(self.events), bool)
        found[self.parent[self.parent >= 0]] = False
        return found

    def around(self, thread: Ints, time: Ints) -> Ints:
        """Return the innermost event that is open on a thread (or -1) at a time, shape of both; -1 if none is."""
        found = np.full(len(time), -1)
        if not len(time):
            return found
        order = np.argsort(thread, kind="stable")
        threads, first = np.unique(thread[order], return_index=True)
        for code, rows in zip(threads.tolist(), np.split(order, first[1:]), strict=True):
            a, b = self._segments.get(code, (0, 0))
            place = np.searchsorted(self.events.start[a:b], time[rows], side="right") - 1
            found[rows] = np.where(place >= 0, a + place, -1)
        while True:
            over = np.flatnonzero(found >= 0)
            over = over[self.events.end[found[over]] <= time[over]]
            if not len(over):
                return found
            found[over] = self.parent[found[over]]


@dataclass(frozen=True, slots=True)
class Iterations:
    """When each iteration began and ended on the host, in ns; without marks all is one iteration."""

    start: Ints
    end: Ints
    marked: bool
    names: tuple[str, ...] = ()

    @property
    def numbers(self) -> list[int | None]:
        """The number in the name of each mark, None where there is none."""
        found = [name.rpartition("#")[2] for name in self.names]
        return [int(number) if number.isdecimal() else None for number in found]

    def __len__(self) -> int:
        return len(self.start) if self.marked else 1

    def of(self, time: Ints) -> Ints:
        """Return the iteration of each time, or -1; a time of -1 is unknown."""
        if not self.marked:
            return np.zeros(len(time), np.int64)
        found = np.searchsorted(self.start, time, side="right") - 1
        return np.where((found >= 0) & (time < self.end[found]), found, -1)


def split_iterations(events: Events, mark: str) -> tuple[Iterations, HostEvents, HostEvents]:
    """Return the iterations, and the operators and annotations without their marks.

    A mark is an annotation (in old traces an operator) called `mark`, or that and a number: ``mark#7``.
    """
    starts, ends, found, rest = [], [], [], []
    for part in (events.operators, events.annotations):
        marks = part.are(lambda name: name == mark or name.startswith(f"{mark}#"))
        starts.append(part.start[marks])
        ends.append(part.end[marks])
        found += [part.names[code] for code in part.name[marks].tolist()]
        rest.append(part.take(np.flatnonzero(~marks)))
    start, end = np.concatenate(starts), np.concatenate(ends)
    order = np.argsort(start, kind="stable")
    called = tuple(found[k] for k in order.tolist())
    return Iterations(start[order], end[order], len(start) > 0, called), rest[0], rest[1]


@dataclass(frozen=True, slots=True)
class Origin:
    """The host event that each activity of the GPU came from; -1 means unknown.

    `launch` is a row of the launches; `thread` and `time` belong to the call (or else to the operator),
    `operator` an index into the nesting, `of_graph` whether a CUDA graph was launched.
    """

    launch: Ints
    thread: Ints
    time: Ints
    operator: Ints
    of_graph: Flags


def trace_back(activities: Activities, calls: HostEvents, operators: Nesting) -> Origin:
    """Find the call and the operator of each activity.

    The call is the first with the activity's correlation id (a call of the runtime may be followed by
    one of the driver with the same id). The operator has the call's External id, else the activity's, else it is the
    innermost open one on the thread of the call. The name of the call does not matter, except that the launch of a CUDA
    graph covers all its nodes; so does a missing call if several activities share its id.
    """
    launch = first_with(calls.correlation, calls.start, activities.correlation)
    known = launch >= 0
    ops = operators.events
    by_call = np.where(known, calls.external[launch] if len(calls.external) else 0, 0)
    operator = first_with(ops.external, ops.start, by_call)
    operator = np.where(operator >= 0, operator, first_with(ops.external, ops.start, activities.external))
    thread, time = np.full(len(launch), -1), np.full(len(launch), -1)
    thread[known], time[known] = calls.thread[launch[known]], calls.start[launch[known]]
    lost = (operator < 0) & known
    operator[lost] = operators.around(thread[lost], time[lost])
    from_op = ~known & (operator >= 0)
    thread[from_op], time[from_op] = ops.thread[operator[from_op]], ops.start[operator[from_op]]
    _, inverse, n_shared = np.unique(activities.correlation, return_inverse=True, return_counts=True)
    of_graph = ~known & (n_shared[inverse] > 1) & (activities.correlation > 0)
    of_graph[known] = calls.of_graph[launch[known]]
    return Origin(launch, thread, time, operator, of_graph)


def first_with(ids: Ints, start: Ints, wanted: Ints) -> Ints:
    """Return the row of the earliest event with each wanted id, or -1; ids below 1 match none."""
    order = np.lexsort((start, ids))
    place = np.searchsorted(ids[order], wanted)
    found = np.full(len(wanted), -1)
    inside = np.flatnonzero((place < len(ids)) & (wanted > 0))
    row = order[place[inside]]
    same = ids[row] == wanted[inside]
    found[inside[same]] = row[same]
    return found
