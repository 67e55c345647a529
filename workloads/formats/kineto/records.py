"""Records of a torch.profiler trace that cannot be true: counted, and repaired where that is safe."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from simsched.model import Ints
from workloads.formats.kineto.apis import (
    begins_capture,
    copies,
    ends_capture,
    launches_early,
    launches_graph,
    launches_kernel,
)
from workloads.formats.kineto.events import Activities, Events, HostEvents
from workloads.formats.kineto.join import first_with

Flags = npt.NDArray[np.bool_]
Rows = TypeVar("Rows", HostEvents, Activities)

UNUSABLE: Final = "without a usable time or place"
TWICE: Final = "written twice"
ZERO: Final = "kernels of no duration"
EARLY: Final = "kernels before their launch"
LONG: Final = "kernels that end after the next start on their stream"
OVERLAPPING: Final = "overlapping calls of a thread"
NO_KERNEL: Final = "launches without a kernel"
NO_COPY: Final = "copies without a record"
FEWER_NODES: Final = "graph launches with fewer nodes than others of the graph"
NO_LAUNCH: Final = "kernels without a launch"

TOLERANCE: Final = 2_000
"""Ns by which times of the host and of the device may disagree."""
_ROUNDED: Final = 1_000
"""Ns by which neighbours may overlap because times are rounded."""
_FAR: Final = 10**9
"""Ns from a time of 0 to the median of all times above which 0 is not a time."""
_MOST_EARLY: Final = 0.1
"""Part of the kernels before their launch from which on the clocks disagree, not the records."""


@dataclass(frozen=True, slots=True)
class Records:
    """The repaired events of a trace, and the number of faults by kind.

    `call` is the row of the call of each activity, or -1; `early` and `long` say which activities were repaired.
    """

    events: Events
    call: Ints
    dropped: Counter[str]
    early: Flags
    long: Flags


def repair(events: Events) -> Records:
    """Return the events of a trace, repaired.

    Notes
    -----
    Dropped are records with a time of 0 where none can be, and the later ones of those that were written twice: the
    same event again, or a second kernel of a call that launches one. A kernel before its launch begins with it, unless
    a tenth of all are so early, as the clocks disagree then. A kernel that ends after the next start on its stream ends
    there, unless the next one was launched by a call that lets it start early (programmatic dependent launch) or by
    the launch of a captured graph, whose nodes run beside each other.
    """
    dropped: Counter[str] = Counter()
    calls, n_calls = _with_times(events.calls, events.calls.end - events.calls.start)
    acts, n_acts = _with_times(events.activities, events.activities.duration)
    dropped[UNUSABLE] = events.n_unusable + n_calls + n_acts
    calls, n_calls = _once(calls, calls.correlation, calls.start, calls.end, calls.thread, calls.name)
    acts, n_acts = _once(acts, acts.correlation, acts.start, acts.duration, acts.stream, acts.device, acts.what)
    call = first_with(calls.correlation, calls.start, acts.correlation)
    again = _second_of_a_launch(acts, calls, call)
    dropped[TWICE] = n_calls + n_acts + int(again.sum())
    acts = acts.take(np.flatnonzero(~again))
    call = call[~again]
    acts, early = _after_their_launch(acts, calls, call)
    acts, long = _one_after_the_other(acts, calls, call)
    return Records(replace(events, calls=calls, activities=acts), call, dropped, early, long)


def _with_times(rows: Rows, duration: Ints) -> tuple[Rows, int]:
    """Return the rows without rows of an impossible time of 0, and how many were removed."""
    if not len(rows):
        return rows, 0
    bad = (rows.start == 0) & ((duration == 0) | (float(np.median(rows.start)) > _FAR))
    if not bad.any() or bad.all():
        return rows, 0
    return rows.take(np.flatnonzero(~bad)), int(bad.sum())


def _once(rows: Rows, *keys: Ints) -> tuple[Rows, int]:
    """Return the rows without those that are the same as one before in all keys, and how many these are."""
    order = np.lexsort(keys)
    same = np.concatenate([[False], np.logical_and.reduce([np.diff(key[order]) == 0 for key in keys])])[: len(rows)]
    if not same.any():
        return rows, 0
    return rows.take(np.sort(order[~same])), int(same.sum())


def _second_of_a_launch(acts: Activities, calls: HostEvents, call: Ints) -> Flags:
    """Return which activities of a call that launches one kernel are not its first one of that name on a device."""
    is_second = np.zeros(len(acts), bool)
    of_launch = np.flatnonzero((call >= 0) & calls.are(launches_kernel)[call] if len(calls) else call >= 0)
    keys = call[of_launch], acts.what[of_launch], acts.device[of_launch]
    order = of_launch[np.lexsort((acts.start[of_launch], *keys))]
    is_second[order[1:]] = np.logical_and.reduce([np.diff(key[order]) == 0 for key in (call, acts.what, acts.device)])
    return is_second


def _after_their_launch(acts: Activities, calls: HostEvents, call: Ints) -> tuple[Activities, Flags]:
    early = np.zeros(len(acts), bool)
    rows = np.flatnonzero(call >= 0)
    early[rows] = acts.start[rows] < calls.start[call[rows]] - TOLERANCE
    if not early.any() or early.sum() > _MOST_EARLY * len(acts):
        return acts, early
    return replace(acts, start=np.where(early, calls.start[call] if len(calls) else 0, acts.start)), early


def _one_after_the_other(acts: Activities, calls: HostEvents, call: Ints) -> tuple[Activities, Flags]:
    long = np.zeros(len(acts), bool)
    order = np.lexsort((acts.start, acts.stream, acts.device))
    start = acts.start[order]
    end = (acts.start + acts.duration)[order]
    same = (np.diff(acts.stream[order]) == 0) & (np.diff(acts.device[order]) == 0)
    if not (same & (end[:-1] > start[1:] + _ROUNDED)).any():
        return acts, long
    may = np.zeros(len(acts), bool)
    may[call >= 0] = calls.are(launches_early)[call[call >= 0]]
    in_graph = np.zeros(len(acts), bool)
    in_graph[call >= 0] = calls.are(launches_graph)[call[call >= 0]]
    over = end.tolist()
    follows = same.tolist()
    for k, begin in enumerate(start.tolist()[1:], 1):
        if follows[k - 1] and over[k - 1] > begin + _ROUNDED:
            row = order[k]
            if not (may[row] and (in_graph[row] or over[k] >= over[k - 1])):
                over[k - 1] = begin
                long[order[k - 1]] = True
    duration = np.array(acts.duration)
    duration[order] = np.array(over) - start
    return replace(acts, duration=np.maximum(0, duration)), long


def faults_of_calls(acts: Activities, calls: HostEvents, rows: Ints) -> Counter[str]:
    """Return the number of faults of some calls of a trace, by kind.

    Parameters
    ----------
    acts
        All activities of the trace.
    """
    faults: Counter[str] = Counter()
    order = rows[np.lexsort((-calls.end[rows], calls.start[rows], calls.thread[rows]))]
    start = calls.start[order]
    end = calls.end[order]
    thread = calls.thread[order]
    same = np.diff(thread) == 0
    faults[OVERLAPPING] = int((same & (start[1:] + _ROUNDED < end[:-1]) & (end[1:] > end[:-1] + _ROUNDED)).sum())
    has_record = np.isin(calls.correlation[order], acts.correlation) & (calls.correlation[order] > 0)
    is_launch = calls.are(launches_kernel)[order]
    is_copy = calls.are(copies)[order]
    lacks = (is_launch | is_copy) & ~has_record & ~_is_captured(calls, order)
    for k in np.flatnonzero(lacks).tolist():  # a call of the runtime around one of the driver
        inside = k > 0 and same[k - 1] and end[k] <= end[k - 1] and has_record[k - 1]
        around = k + 1 < len(order) and same[k] and end[k + 1] <= end[k] and has_record[k + 1]
        if not (inside or around):
            faults[NO_KERNEL if is_launch[k] else NO_COPY] += 1
    faults[FEWER_NODES] = _incomplete_graphs(acts, calls, order[calls.of_graph[order]])
    return faults


def _is_captured(calls: HostEvents, order: Ints) -> Flags:
    """Return which calls, by thread and start, are captured into a graph instead of launched."""
    begins = calls.are(begins_capture)[order].tolist()
    ends = calls.are(ends_capture)[order].tolist()
    is_captured = np.zeros(len(order), bool)
    if not any(begins):
        return is_captured
    capturing: set[int] = set()
    for k, thread in enumerate(calls.thread[order].tolist()):
        if begins[k]:
            capturing.add(thread)
        elif ends[k]:
            capturing.discard(thread)
        is_captured[k] = thread in capturing
    return is_captured


def _incomplete_graphs(acts: Activities, calls: HostEvents, rows: Ints) -> int:
    """Return how many of some launches of captured graphs ran fewer nodes than another launch of the same graph."""
    if not len(rows):
        return 0
    launches = np.flatnonzero(calls.of_graph)
    nodes: dict[int, list[int]] = {int(calls.correlation[row]): [] for row in launches.tolist()}
    for row in np.flatnonzero(np.isin(acts.correlation, calls.correlation[launches])).tolist():
        nodes[int(acts.correlation[row])].append(row)
    graph_of: dict[int, int] = {}
    most: Counter[int] = Counter()
    for correlation, its in nodes.items():
        if its:  # a node id begins with its graph's id; without node ids the first kernel identifies the graph
            first = min(its, key=acts.start.__getitem__)
            node = int(acts.node[first])
            if node >> 32:
                graph_of[correlation] = node >> 32
            else:
                graph_of[correlation] = -1 - int(acts.what[first])
            most[graph_of[correlation]] = max(most[graph_of[correlation]], len(its))
    node_rows = [nodes[c] for c in calls.correlation[rows].tolist()]
    return sum(len(its) < (most[graph_of[int(acts.correlation[its[0]])]] if its else 1) for its in node_rows)
