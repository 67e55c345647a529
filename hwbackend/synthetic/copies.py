"""Copies between surrogate devices: engines, links that flows share equally, and their load on DRAM."""

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Final

from hwbackend.synthetic.clock import MOVED, READY, Clock
from hwbackend.synthetic.plan import Plan
from hwbackend.synthetic.sms import Sms

_ROUNDING: Final = 1e-6  # bytes


class Copying:
    """The copies of a run.

    Parameters
    ----------
    plan, sms
        The devices whose DRAM the copies use.
    factor
        Of the time of each copy.
    clock
        Calls for `on_ready` and `on_moved`.

    Notes
    -----
    A copy holds one of the engines of its source from start to end; the others wait in order. Each link direction is
    shared equally by the copies on it, each moves at the least of its shares.
    """

    def __init__(self, plan: Plan, sms: Sms, factor: Sequence[float], clock: Clock) -> None:
        self._plan = plan
        self._sms = sms
        self._factor = factor
        self._clock = clock
        self.spans = [[-1.0, -1.0] for _ in factor]
        self._engines = [device.copy_engines for device in plan.devices]
        self._waiting: list[deque[int]] = [deque() for _ in plan.devices]
        self._left: dict[int, float] = {}  # bytes of each copy under way
        self._rate: dict[int, float] = {}
        self._since = 0.0
        self._version = 0

    def start(self, copy: int, now: float) -> None:
        """Let a copy begin, or wait for an engine of its source."""
        plan = self._plan
        if plan.exact[copy] >= 0:
            self.spans[copy][0] = now
            self._clock.at(now + plan.exact[copy] * self._factor[copy], READY, copy)
        elif self._engines[plan.source_of[copy]]:
            self._engines[plan.source_of[copy]] -= 1
            self.spans[copy][0] = now
            self._clock.at(now + plan.latency[copy] * self._factor[copy], READY, copy)
        else:
            self._waiting[plan.source_of[copy]].append(copy)

    def on_ready(self, copy: int, now: float) -> None:
        """Let the bytes of a copy move."""
        self._progress(now)
        exact = self._plan.exact[copy] >= 0
        if exact:
            self._left[copy] = 0.0
        else:
            self._left[copy] = self._plan.nbytes[copy] * self._factor[copy]
        self._share(now)

    def on_moved(self, version: int, now: float) -> list[int]:
        """Return the copies that have ended; none if rates have changed since this was foreseen."""
        if version != self._version:
            return []
        self._progress(now)
        ended = [copy for copy, left in self._left.items() if left <= _ROUNDING or now + left / self._rate[copy] <= now]
        for copy in ended:
            del self._left[copy]
            self.spans[copy][1] = now
            if self._plan.exact[copy] >= 0:
                continue
            source = self._plan.source_of[copy]
            self._engines[source] += 1
            if self._waiting[source]:
                self.start(self._waiting[source].popleft(), now)
        self._share(now)
        return ended

    def _progress(self, now: float) -> None:
        for copy in self._left:
            self._left[copy] -= self._rate[copy] * (now - self._since)
        self._since = now

    def _share(self, now: float) -> None:
        """Share the links anew, and foresee the next end."""
        plan = self._plan
        users: dict[int, int] = {}
        for copy in self._left:
            for channel in plan.route[copy]:
                users[channel] = users.get(channel, 0) + 1
        first = inf
        load = [0.0] * len(plan.devices)
        for copy, left in self._left.items():
            rate = min((plan.bandwidth[c] / users[c] for c in plan.route[copy]), default=1.0)
            self._rate[copy] = rate = min(rate, plan.devices[plan.source_of[copy]].copy_rate)
            first = min(first, now + max(0.0, left) / rate)
            if plan.exact[copy] < 0 or plan.exact[copy] != plan.exact[copy]:
                for device in (plan.source_of[copy], plan.target_of[copy]):
                    load[device] += rate / plan.devices[device].bandwidth
        self._version += 1
        if first < inf:
            self._clock.at(first, MOVED, self._version)
        for device, part in enumerate(load):
            self._sms.set_copy_load(device, now, part)
