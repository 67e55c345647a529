"""A SimPy environment in which equal times are equal, and what happens at one instant has an order."""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

import simpy
from simpy.core import EmptySchedule

from simsched.simulator.contention import end_of_instant
from simsched.simulator.state import State

# At one instant: all that ends, then what that releases, then what hosts issue, then what the
# links and at last the block schedulers make of it. 0 and 1 are SimPy's own priorities, with
# which processes start and waiting ones resume: they are the releases.
COMPLETE, RELEASE, HOST, SHARE, DISPATCH = -1, 1, 2, 3, 4


class At(simpy.Event):
    """An event that happens at a given time, in a given phase of that instant, unless `cancelled`."""

    __slots__ = ("cancelled",)

    def __init__(
        self, env: "Instants", time: float, phase: int = RELEASE, *actions: Callable[[simpy.Event], Any]
    ) -> None:
        self.env = env
        self.callbacks = list(actions)
        self._ok = True
        self._value = None
        self.cancelled = False
        env.put(self, time, phase)


class Instants(simpy.Environment):
    """An environment that steps from instant to instant.

    An instant is the earliest time at which anything happens, together with all that is due
    within a relative 1e-9 of it. Its events run by phase, then in the order they were scheduled.
    The run whose arithmetic is shared with the compiled engine is told what time it is.
    """

    def __init__(self, run: State) -> None:
        super().__init__()
        self._run = run
        self._limit = 0.0  # what is due by then belongs to the present instant
        self._later: list[tuple[float, int, int, simpy.Event]] = []
        self._instant: list[tuple[int, int, simpy.Event]] = []
        self._count = 0

    def schedule(self, event: simpy.Event, priority: int = RELEASE, delay: float = 0) -> None:
        """Schedule an event after a delay in us; SimPy calls this for its own events."""
        self.put(event, self._now + delay, priority)

    def put(self, event: simpy.Event, time: float, phase: int) -> None:
        """Schedule an event at a time in us and a phase."""
        self._count += 1
        if time <= self._limit:
            heappush(self._instant, (phase, self._count, event))
        else:
            heappush(self._later, (time, phase, self._count, event))

    def step(self) -> None:
        """Process the next event."""
        if not self._instant:
            self._open_instant()
        event = heappop(self._instant)[2]
        if type(event) is At and event.cancelled:
            return
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)
        if isinstance(event._value, BaseException):  # a process failed
            raise event._value

    def _open_instant(self) -> None:
        later = self._later
        while later and type(later[0][3]) is At and later[0][3].cancelled:  # what was called off opens no instant
            heappop(later)
        if not later:
            raise EmptySchedule
        time, phase, count, event = heappop(later)
        self._now = self._run.now = time
        self._limit = limit = end_of_instant(time)
        self._instant.append((phase, count, event))
        while later and later[0][0] <= limit:
            _, phase, count, event = heappop(later)
            heappush(self._instant, (phase, count, event))


class Alarm:
    """The one time at which something is to happen, in a phase of that instant: set anew, it happens then only."""

    def __init__(self, env: Instants, phase: int, action: Callable[[], object]) -> None:
        self._env, self._phase, self._action = env, phase, action
        self._event: At | None = None

    def set(self, time: float) -> None:
        """Set it to a time in us; infinity calls it off."""
        if self._event is not None:
            self._event.cancelled = True
        self._event = At(self._env, time, self._phase, self._ring) if time < inf else None

    def set_now(self) -> None:
        """Set it to the present instant unless it is set."""
        if self._event is None:
            self.set(self._env.now)

    def _ring(self, _: simpy.Event) -> None:
        self._event = None
        self._action()
