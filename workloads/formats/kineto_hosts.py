"""Host threads and streams of a torch.profiler trace: how far they have come, and who hands work to whom."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

from simsched.model.graph.columns import Ints

_SILENT: Final = 500_000
"""Ns for which one thread is silent before a call, and the other one behind it, if the work was handed over."""


@dataclass(slots=True)
class HostThread:
    """What a host thread issues, by columns; `cursor` is how far its time has come, `host` its time since a launch."""

    cursor: int
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # action, lane, argument, lead, own
    last: int = -1  # operator
    behind: dict[int, None] = field(default_factory=dict)  # operators that it waited for
    served: set[int] = field(default_factory=set)  # lanes launched on since
    host: int = 0


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
    found = [-1] * len(thread)
    threads, starts, ends = thread.tolist(), start.tolist(), end.tolist()
    following: dict[int, int] = {}
    after = [2**62] * len(threads)  # when the thread of each call calls again
    for k in range(len(threads) - 1, -1, -1):
        after[k] = following.get(threads[k], 2**62)
        following[threads[k]] = starts[k]
    last: dict[int, int] = {}  # thread -> its last call
    for k, mine in enumerate(threads):
        silent = mine not in last or starts[k] - ends[last[mine]] > _SILENT
        if silent and k:
            giver = max((i for t, i in last.items() if t != mine), default=-1)
            if giver >= 0 and (mine not in last or giver > last[mine]) and after[giver] - starts[k] > _SILENT:
                found[k] = threads[giver]
        last[mine] = k
    return found


def next_launches(rows: list[int], threads: list[int], mine: dict[int, list[int]]) -> list[int]:
    """Return, for each call by start, the operator that its thread launches next, or -1."""
    found: list[int] = []
    following: dict[int, int] = {}
    for row, thread in zip(reversed(rows), reversed(threads), strict=True):
        found.append(following.get(thread, -1))
        if row in mine:
            following[thread] = mine[row][0]
    return found[::-1]
