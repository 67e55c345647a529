"""One run of a program on the surrogate: host threads, streams, events, captured graphs; `sms` runs the blocks."""

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from hwbackend.synthetic.clock import HOST, NODE, PUMP, Clock
from hwbackend.synthetic.copies import Copying
from hwbackend.synthetic.plan import Plan
from hwbackend.synthetic.sms import Sms
from simsched.base.errors import BackendError
from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Floats
from simsched.simulator.deadlock import deadlock

_COSTS: Final = {LAUNCH: "launch", RECORD: "record", WAIT: "wait", COPY: "copy", BARRIER: "barrier", SYNC: "barrier"}


@dataclass(frozen=True, slots=True)
class Luck:
    """Variation from run to run: factors of times.

    Parameters
    ----------
    host
        Of each instruction, shape (n_instructions,).
    kernels, copies
        Of each launch and copy, shapes (n_launches,) and (n_copies,).
    blocks
        Of blocks, in the order in which they start, again from the first where there are more.
    """

    host: Floats
    kernels: Floats
    copies: Floats
    blocks: Floats


class SyntheticRun:
    """One run of a program, from the first thing a host issues to the end of the last kernel.

    Parameters
    ----------
    plan, sms
        The program, and the SMs that run its blocks.
    luck
        The variation of this run.
    before
        Last kernel of each device (see `Plan.alike`), and whether its data were warm; is updated.
    """

    def __init__(self, plan: Plan, sms: Sms, luck: Luck, before: list[tuple[object, bool]]) -> None:
        self._plan = plan
        self._sms = sms
        self._before = before
        self._host: list[float] = luck.host.tolist()
        self._factor: list[float] = luck.kernels.tolist()
        self._clock = Clock()
        self._copying = Copying(plan, sms, luck.copies.tolist(), self._clock)
        sms.clear(luck.blocks)
        program = plan.program
        self._ptr: list[int] = program.thread_ptr.tolist()
        self._pc = self._ptr[:-1].copy()
        n_events = program.n_events
        self._issued = [False] * n_events
        self._done = [inf] * n_events  # when the event ran
        self._awaiting: list[list[int]] = [[] for _ in range(n_events)]  # threads that want it issued, or done
        self._held_up: list[list[int]] = [[] for _ in range(n_events)]  # queues at whose head a wait stands
        self._queues: list[deque[int]] = [deque() for _ in range(plan.n_queues)]
        self._busy = [False] * len(plan.queue)
        self._free = [-inf] * len(plan.queue)  # earliest start of a kernel, by stream
        self._behind: list[list[int]] = [[] for _ in plan.queue]  # records behind the work of a stream
        self._pending = [0] * len(plan.devices)
        self._draining: list[list[int]] = [[] for _ in plan.devices]

    def times(self) -> tuple[Floats, Floats]:
        """Run; return start and end in us of each launch and of each copy, shapes (n, 2).

        Raises
        ------
        BackendError
            If everything left waits for something that is never going to happen.
        """
        program = self._plan.program
        if program.execution == "graph":
            self._launch_graph()
        else:
            for thread in range(len(self._pc)):
                self._next(thread, 0.0)
        handle = self._on_host, self._pump, self._on_node, self._copying.on_ready, self._on_moved
        clock = self._clock
        sms = self._sms
        while True:
            if sms.next.min() <= clock.upcoming:
                now, ended = sms.advance(clock.upcoming)
                for row in ended:
                    self._on_kernel(row, now)
                if ended:
                    continue
            if clock.upcoming == inf:
                break
            time, what, who = clock.pop()
            handle[what](who, time)
        launches = sms.spans
        copies = np.array(self._copying.spans, np.float64).reshape(-1, 2)
        if (launches[:, 1] < 0).any() or (copies[:, 1] < 0).any() or self._pc != self._ptr[1:]:
            raise self._hung()
        return launches, copies

    # --- hosts

    def _next(self, thread: int, now: float) -> None:
        """Let a host thread begin its next instruction, or wait until it can."""
        i = self._pc[thread]
        plan = self._plan
        if i == self._ptr[thread + 1]:
            return
        action = plan.action[i]
        device = plan.device[i]
        event = plan.argument[i]
        if (action == WAIT and not self._issued[event]) or (action == SYNC and self._done[event] > now):
            self._awaiting[event].append(thread)
        elif action == BARRIER and self._pending[device]:
            self._draining[device].append(thread)
        else:
            cost: float = getattr(plan.devices[device], _COSTS[action])
            self._clock.at(now + cost * self._host[i], HOST, thread)

    def _on_host(self, thread: int, now: float) -> None:
        """Apply the instruction that a host thread has issued."""
        i = self._pc[thread]
        plan = self._plan
        self._pc[thread] += 1
        action = plan.action[i]
        if action < BARRIER:
            lane = plan.lane[i]
            if not plan.is_copy_lane[lane]:
                self._pending[plan.device[i]] += 1
            queue = plan.queue[lane]
            self._queues[queue].append(i)
            if action == RECORD:
                self._issued[plan.argument[i]] = True
                waiting = self._awaiting[plan.argument[i]]
                self._awaiting[plan.argument[i]] = []
                for other in waiting:
                    self._next(other, now)
            self._pump(queue, now)
        self._next(thread, now)

    # --- streams

    def _pump(self, queue: int, now: float) -> None:
        """Pass on the instructions at the head of a hardware queue, as far as possible now."""
        items = self._queues[queue]
        plan = self._plan
        while items:
            i = items[0]
            lane = plan.lane[i]
            action = plan.action[i]
            argument = plan.argument[i]
            if self._busy[lane]:
                if action != RECORD:
                    return
                self._behind[lane].append(items.popleft())  # it holds up nobody else
                continue
            if action == WAIT:
                if self._done[argument] == inf:
                    self._held_up[argument].append(queue)
                    return
                release = self._done[argument] + plan.devices[plan.device[i]].hop
                if release > now:
                    self._clock.at(release, PUMP, queue)
                    return
            elif action == LAUNCH and self._free[lane] > now:
                self._clock.at(self._free[lane], PUMP, queue)
                return
            items.popleft()
            if action == RECORD:
                self._on_event(argument, now)
            elif action == LAUNCH:
                self._busy[lane] = True
                self._arrive(argument, now)
                continue
            elif action == COPY:
                self._busy[lane] = True
                self._copying.start(argument, now)
                continue
            self._end_instruction(i, now)

    def _end_instruction(self, i: int, now: float) -> None:
        """Note that nothing is left to do for an instruction."""
        plan = self._plan
        device = plan.device[i]
        if plan.is_copy_lane[plan.lane[i]]:
            return
        self._pending[device] -= 1
        if not self._pending[device]:
            waiting = self._draining[device]
            self._draining[device] = []
            for thread in waiting:
                self._next(thread, now)

    def _on_event(self, event: int, now: float) -> None:
        self._done[event] = now
        for queue in self._held_up[event]:
            self._clock.at(now, PUMP, queue)
        waiting = self._awaiting[event]
        self._awaiting[event] = []
        for thread in waiting:
            self._next(thread, now)

    # --- kernels and copies

    def _arrive(self, row: int, now: float) -> None:
        """Queue a kernel on its device; the data of its operator are warm if the device ran the same just before."""
        plan = self._plan
        device = plan.device_of[row]
        cost = plan.costs[row]
        factor = self._factor[row]
        before, was_warm = self._before[device]
        warm = before == plan.alike[row] and (was_warm or plan.is_first[row])
        self._before[device] = plan.alike[row], warm
        self._sms.arrive(row, now, cost.compute * factor, cost.memory * factor * (cost.warm if warm else 1.0))

    def _on_kernel(self, row: int, now: float) -> None:
        self._over(self._plan.launch_at[row], now, self._plan.devices[self._plan.device_of[row]].gap)

    def _on_moved(self, version: int, now: float) -> None:
        for copy in self._copying.on_moved(version, now):
            self._over(self._plan.copy_at[copy], now, 0.0)

    def _over(self, i: int, now: float, gap: float) -> None:
        """Note that the kernel or copy of an instruction has ended."""
        plan = self._plan
        if plan.program.execution == "graph":
            for following in plan.successors[i]:
                self._missing[following] -= 1
                if not self._missing[following]:
                    self._clock.at(now + plan.devices[plan.device[following]].graph_node, NODE, following)
            return
        lane = plan.lane[i]
        self._busy[lane] = False
        self._free[lane] = now + gap
        self._end_instruction(i, now)
        records = self._behind[lane]
        self._behind[lane] = []
        for record in records:
            self._on_event(plan.argument[record], now)
            self._end_instruction(record, now)
        self._pump(plan.queue[lane], now)

    # --- captured graphs

    def _launch_graph(self) -> None:
        """Launch the whole program at once; nodes that wait for no other start then."""
        plan = self._plan
        self._missing = plan.missing.copy()
        self._pc = self._ptr[1:].copy()
        if not plan.nodes:
            return
        first = plan.devices[plan.device[plan.nodes[0]]]
        now = first.graph_launch * self._host[0]
        for i in plan.nodes:
            if not self._missing[i]:
                self._clock.at(now, NODE, i)

    def _on_node(self, i: int, now: float) -> None:
        start = self._arrive if self._plan.action[i] == LAUNCH else self._copying.start
        start(self._plan.argument[i], now)

    def _hung(self) -> BackendError:
        lanes = [(self._plan.stream[items[0]], items[0]) for items in self._queues if items]
        return BackendError(str(deadlock(self._plan.program, self._pc, lanes, self._issued)))
