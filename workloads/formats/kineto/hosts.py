"""Host threads and streams of a torch.profiler trace: the time that each has reached, and handed-over work."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from simsched.model.graph.columns import Ints
from workloads.formats.kineto.apis import records_event
from workloads.formats.kineto.events import HostEvents

_LEAST_NEXT: Final = 0.5
"""Part of the events that must be waited for before the next is recorded, for their order to tell which is which."""
_SILENT: Final = 500_000
"""Ns for which one thread is silent before a call, and the other thread after it, if the work was handed over."""


@dataclass(slots=True)
class HostThread:
    """Instructions of a host thread, by columns; `cursor` is its present time, `host` its host time since a launch."""

    cursor: int
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # action, lane, argument, lead, own
    last: int = -1  # operator
    behind: dict[int, None] = field(default_factory=dict)  # operators that it waited for
    served: set[int] = field(default_factory=set)  # lanes launched on since
    host: int = 0
    blocked: list[str] = field(default_factory=list)  # calls that blocked it since its last launch
    place: tuple[int, int] | None = None  # device and stream that it used last


@dataclass(slots=True)
class Stream:
    """A stream: its operators by start, when each was called for, and when it ended."""

    ops: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def last_before(self, call: int, end: int) -> int:
        """Return the last operator called for before a time that ended by another time, or -1."""
        k = min(bisect_left(self.called, call), bisect_right(self.ends, end)) - 1
        return self.ops[k] if k >= 0 else -1

    def first_after(self, call: int) -> int:
        """Return the first operator called for at a time or later, or -1."""
        k = bisect_left(self.called, call)
        return self.ops[k] if k < len(self.ops) else -1


def handed_over(thread: Ints, start: Ints, end: Ints) -> list[int]:
    """Return, for each call by start, the thread that handed it its work, or -1."""
    givers = [-1] * len(thread)
    threads = thread.tolist()
    starts = start.tolist()
    ends = end.tolist()
    following: dict[int, int] = {}
    after = [2**62] * len(threads)  # when the thread of each call calls again
    for k in range(len(threads) - 1, -1, -1):
        after[k] = following.get(threads[k], 2**62)
        following[threads[k]] = starts[k]
    last: dict[int, int] = {}  # thread -> its last call
    for k, caller in enumerate(threads):
        silent = caller not in last or starts[k] - ends[last[caller]] > _SILENT
        if silent and k:
            giver = max((i for t, i in last.items() if t != caller), default=-1)
            if giver >= 0 and (caller not in last or giver > last[caller]) and after[giver] - starts[k] > _SILENT:
                givers[k] = threads[giver]
        last[caller] = k
    return givers


def next_launches(rows: list[int], threads: list[int], ops_of: dict[int, list[int]]) -> list[int]:
    """Return, for each call by start, the operator that its thread launches next, or -1."""
    launches: list[int] = []
    following: dict[int, int] = {}
    for row, thread in zip(reversed(rows), reversed(threads), strict=True):
        launches.append(following.get(thread, -1))
        if row in ops_of:
            following[thread] = ops_of[row][0]
    return launches[::-1]


def records_by_order(calls: HostEvents, syncs: Mapping[int, tuple[int, ...]]) -> dict[int, int]:
    """Return the row of the record of each wait, by the row of the wait, where the profiler names the event alone.

    Notes
    -----
    Events are numbered as they are made, and frameworks make one for each record: the n-th event after the one that is
    waited for first belongs to the n-th record after the last one before that wait. That is assumed if each
    record is before all waits for it, and at least half of the first waits come before a further record, with the
    records of one name (libraries record their own events by another call); otherwise nothing is returned.
    """
    waits = {c: row[4] for c, row in syncs.items() if len(row) > 4 and row[4] >= 0 and row[1] <= 0 and row[0] >= 0}
    if waits:
        rows = np.flatnonzero(np.isin(calls.correlation, list(waits)))
    else:
        rows = np.zeros(0, np.int64)
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    events = [waits[c] for c in calls.correlation[rows].tolist()]
    records = np.flatnonzero(calls.are(records_event))
    for name in np.unique(calls.name[records]).tolist() if len(rows) else ():
        named = records[calls.name[records] == name]
        record_of = _by_order(calls, rows, events, named[np.argsort(calls.start[named], kind="stable")])
        if record_of:
            return record_of
    return {}


def _by_order(calls: HostEvents, rows: Ints, events: list[int], records: Ints) -> dict[int, int]:
    """Return the row of the record of each wait, all by start, if these are the records that make the events."""
    before = (np.searchsorted(calls.start[records], calls.start[rows], side="right") - 1).tolist()
    least = min(events)
    first = before[events.index(least)]
    record_of: dict[int, int] = {}
    seen: set[int] = set()
    n_next = 0
    for row, event, last in zip(rows.tolist(), events, before, strict=True):
        k = first + event - least
        if not 0 <= k <= last:
            return {}
        n_next += event not in seen and k == last
        seen.add(event)
        record_of[row] = int(records[k])
    if n_next >= _LEAST_NEXT * len(seen):
        return record_of
    return {}
