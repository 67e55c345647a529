"""Events of a surrogate, except for the ends of blocks, in the order of time."""

from heapq import heappop, heappush
from math import inf

HOST, PUMP, NODE, READY, MOVED = range(5)
"""A host thread's instruction takes effect, a hardware queue goes on, a node of a captured graph starts, a copy's first
byte moves, some copy ends."""


class Clock:
    """A queue of (time in us, kind of event, subject); on equal times the event that was added first is first."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, int, int]] = []
        self._count = 0

    def at(self, time: float, what: int, who: int) -> None:
        """Let something happen at a time."""
        self._count += 1
        heappush(self._later, (time, self._count, what, who))

    @property
    def upcoming(self) -> float:
        """When the next thing happens, infinity if nothing does."""
        if self._later:
            return self._later[0][0]
        return inf

    def pop(self) -> tuple[float, int, int]:
        """Return the next event: time, kind, subject."""
        time, _, what, who = heappop(self._later)
        return time, what, who
