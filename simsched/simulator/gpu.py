"""A GPU in the reference engine: block scheduler and rate sharing."""

from bisect import insort
from collections.abc import Callable, Sequence
from sys import float_info

import numpy as np

from simsched.base.jit import Rows
from simsched.base.units import TIE
from simsched.model.cluster import WARP, Device
from simsched.model.trace import Load
from simsched.simulator.contention import (
    MAX_COHORTS,
    SATURATED,
    Cohort,
    Crowd,
    Share,
    Work,
    add_cohort,
    anchor_anew,
    begin_kernel,
    clear,
    crowded_load,
    end_blocks,
    first_end,
    issue,
    lay,
    pressure,
    skip_waves,
    slowdown,
    undo_skip,
)
from simsched.simulator.environment import COMPLETE, DISPATCH, At, Instants
from simsched.simulator.workload import Ask


class Running:
    """A launch on a device: what it asks for, how far it is (`work`), and which of its blocks end together."""

    __slots__ = ("ask", "cohorts", "done", "order", "row", "start", "work")

    def __init__(self, row: int, order: tuple[int, float, int], ask: Ask, done: Callable[[float], object]) -> None:
        self.row = row
        self.order = order  # of dispatch: priority, arrival, place in the program
        self.ask = ask
        self.start = -1.0
        self.done = done
        self.work: Work = Work.over(np.zeros(1, Work.dtype))[0]
        self.cohorts: Rows[Cohort] = Cohort.over(np.zeros(MAX_COHORTS + 1, Cohort.dtype))
        begin_kernel(self.work, ask.blocks)
        self.work.unit = ask.unit

    def __lt__(self, other: "Running") -> bool:
        return self.row < other.row


class Gpu:
    """The execution engine of one device, driven by SimPy through `submit`.

    At the end of an instant (phase DISPATCH) the block scheduler issues what fits, loads and rates
    are computed, and one timer is set to the next end of a cohort.
    """

    def __init__(self, env: Instants, device: Device) -> None:
        self._env = env
        self._device = device
        self._free = [
            device.sms * (device.threads_per_sm // WARP), device.sms * device.blocks_per_sm,
            device.sms * device.registers_per_sm, device.sms * device.shared_memory_per_sm,
        ]  # fmt: skip
        self._queue: list[Running] = []  # kernels with blocks to issue, by order
        self._running: list[Running] = []  # by row
        self._timer: At | None = None
        self._dispatching = False
        self._freed = False  # slots of kernels have come free at this instant
        self._copy_load = 0.0
        self._crowd: Crowd = Crowd.over(np.zeros(1, Crowd.dtype))[0]
        self._crowd.sms, self._crowd.most_warps = device.sms, device.threads_per_sm // WARP
        self._curve: list[tuple[float, ...]] = [
            (0.0, 0.0, 0.0, 0.0, 0.0)
        ]  # time, SM load, DRAM load, warps, active SMs

    def submit(self, row: int, place: int, ask: Ask, priority: int, done: Callable[[float], object]) -> None:
        """Take a launch, the instruction at `place`; `done(start)` is called when it ends."""
        now = self._env.now
        if not self._device.contention or (ask.blocks == 0 and ask.sm_share == 0.0):
            self._end_later(now + ask.solo, now, done)
            return
        if ask.unit < float_info.min:  # blocks take no time, or so little that their rate overflows
            self._end_kernel(now, ask, done)
            return
        kernel = Running(row, (priority, now, place), ask, done)
        if ask.blocks:
            insort(self._queue, kernel, key=lambda k: k.order)
        else:  # no grid: one piece of work that needs no place
            kernel.start, kernel.work.resident = now, 1
            add_cohort(kernel.work, kernel.cohorts, 1.0, 1)
            insort(self._running, kernel)
        self._dispatch_later()

    def _end_kernel(self, start: float, ask: Ask, done: Callable[[float], object]) -> None:
        """Let a kernel end, all of whose blocks have."""
        if ask.latency > 0:
            self._end_later(self._env.now + ask.latency, start, done)
        else:
            done(start)

    def _end_later(self, time: float, start: float, done: Callable[[float], object]) -> None:
        self._env.at(time, COMPLETE, lambda: done(start))

    def set_copy_load(self, load: float) -> None:
        """Set the DRAM load of copies that begin or end here, as a share of the bandwidth."""
        if load != self._copy_load and self._device.contention:
            self._copy_load = load
            self._dispatch_later()

    def load(self) -> Load:
        """Return the load curve so far."""
        return Load(*np.array(self._curve).T)

    def _dispatch_later(self) -> None:
        if not self._dispatching:
            self._dispatching = True
            self._env.at(self._env.now, DISPATCH, self._dispatch)

    def _dispatch(self) -> None:
        self._dispatching = False
        for kernel in self._queue:
            if kernel.work.skipped:
                self._free_blocks(kernel, undo_skip(kernel.work, kernel.cohorts, self._env.now))
        self._issue_blocks()
        if self._queue and (len(self._queue) == 1 or self._device.interleave == 0):
            skip_waves(self._queue[0].work, self._queue[0].cohorts)
        self._share()

    # Block scheduler ---------------------------------------------------------------------------

    def _issue_blocks(self) -> None:
        """Let the head of the queue issue what fits; while it has blocks left, nothing behind it is looked at."""
        while True:
            # a kernel for which there is no place among the resident ones holds up no other
            full = self._n_resident() >= self._device.resident_kernels
            able = [kernel for kernel in self._queue if kernel.start >= 0 or not full]
            if not able:
                break
            head = able[0]
            if self._freed and head.start >= 0 and len(able) > 1:
                self._freed = False
                self._interleave(head, able[1])
            self._issue(head, head.work.unissued)
            if head.work.unissued:
                break
            self._queue.remove(head)
        self._freed = False

    def _interleave(self, head: Running, following: Running) -> None:
        """Let the next kernel of the same priority have its share of slots that have just come free."""
        slots = self._fits(head)
        given = int(self._device.interleave * slots + TIE)
        if given and following.order[0] == head.order[0]:
            self._issue(head, slots - given)
            self._issue(following, following.work.unissued)
            if not following.work.unissued:
                self._queue.remove(following)

    def _fits(self, kernel: Running) -> int:
        """Return how many more blocks of a kernel fit on the device."""
        count = kernel.ask.residency - kernel.work.resident
        for left, need in zip(self._free, kernel.ask.block, strict=True):
            if need:
                count = min(count, int(left // need))  # bytes of shared memory may be no whole number
        return count

    def _issue(self, kernel: Running, most: int) -> None:
        count = min(most, kernel.work.unissued, self._fits(kernel))
        if count <= 0:
            return
        if kernel.start < 0:
            kernel.start = self._env.now
            insort(self._running, kernel)
        self._take(kernel, count)
        issue(kernel.work, kernel.cohorts, count, self._device.sms, self._device.block_spread, self._env.now)

    def _n_resident(self) -> int:
        return sum(1 for kernel in self._running if kernel.ask.blocks)

    def _free_blocks(self, kernel: Running, count: int) -> None:
        if count and kernel.ask.blocks:
            self._take(kernel, -count)
            self._freed = True

    def _take(self, kernel: Running, count: int) -> None:
        self._free = [left - count * need for left, need in zip(self._free, kernel.ask.block, strict=True)]

    # Rates -------------------------------------------------------------------------------------

    def _share(self) -> None:
        """Compute loads and rates, anchor anew what changed its rate, and set the timer."""
        now, crowd = self._env.now, self._crowd
        clear(crowd)
        without_grid, warps, blocks, present = 0.0, 0.0, 0.0, [0, 0]
        shares = []
        for kernel in self._running:
            ask, resident = kernel.ask, kernel.work.resident
            load = resident * ask.sm_share
            if ask.blocks:
                lay(crowd, kernel.work, ask.sm_share, ask.block[0])
                load /= self._device.sms
                warps += resident * ask.block[0]
                blocks += resident
            else:
                without_grid += ask.sm_share
            shares.append((load, ask.alpha))
            if ask.kind >= 0 and resident:
                present[ask.kind] += 1
        crowd.below += without_grid
        sm_load = crowd.below + crowd.top_load / self._device.sms
        pressed = _pressure(shares) / sm_load if sm_load > 1 else 1.0
        issued = 0.0
        for kernel, (share, _) in zip(self._running, shares, strict=True):
            ask, work, load = kernel.ask, kernel.work, sm_load
            if ask.blocks and work.resident:
                load = crowded_load(crowd, work, ask.sm_share, ask.block[0])
            work.slowed, work.saturated = slowdown(ask.alpha, load * pressed, 1.0), load > SATURATED
            issued += share / work.slowed
        excess = issued if issued > SATURATED else 1.0  # the fullest SMs are estimates: together no more than there is
        shares, dram_load = [], self._copy_load
        for kernel in self._running:  # those that issue slots slow ask for DRAM so much the less often
            ask, work = kernel.ask, kernel.work
            work.slowed *= excess
            shares.append((work.resident * ask.dram_share / work.slowed, ask.beta / work.slowed))
            dram_load += shares[-1][0]
        dram_pressure = _pressure([*shares, (self._copy_load, 0.0)]) if dram_load > 1 else dram_load
        earliest = float("inf")
        for kernel in self._running:
            ask, rate = kernel.ask, 0.0  # every block ended and none fitted again: it stands still
            if kernel.work.resident:
                stretch = slowdown(ask.beta, dram_pressure, kernel.work.slowed)
                if (kernel.work.saturated or dram_load > SATURATED) and ask.kind >= 0:
                    stretch *= 1.0 + self._penalty(ask.kind, present)
                rate = 1.0 / (ask.unit * stretch)
            anchor_anew(kernel.work, now, rate)
            earliest = min(earliest, first_end(kernel.work, kernel.cohorts))
        self._record(
            now, sm_load, dram_load, warps, min(float(self._device.sms), blocks + without_grid * self._device.sms)
        )
        if self._timer is not None:
            self._timer.cancelled = True
            self._timer = None
        if earliest < float("inf"):
            self._timer = self._env.at(max(earliest, now), COMPLETE, self._end_cohorts)

    def _penalty(self, kind: int, present: list[int]) -> float:
        """Return the worst interference from a class that runs beside a kernel of class `kind`."""
        worst = 0.0
        for other in (0, 1):
            if present[other] > (other == kind):
                worst = max(worst, self._device.interference[kind][other])
        return worst

    def _record(self, now: float, *loads: float) -> None:
        point = (now, *loads)
        if point[1:] == self._curve[-1][1:]:
            return
        if self._curve[-1][0] == now:
            self._curve[-1] = point
        else:
            self._curve.append(point)

    def _end_cohorts(self) -> None:
        self._timer = None
        over = []
        for kernel in self._running:
            if not kernel.work.rate:
                continue
            self._free_blocks(kernel, end_blocks(kernel.work, kernel.cohorts, self._env.now))
            if not kernel.work.n_cohorts and not kernel.work.unissued:
                over.append(kernel)
        for kernel in over:
            self._running.remove(kernel)
            self._end_kernel(kernel.start, kernel.ask, kernel.done)
        self._dispatch_later()


def _pressure(shares: Sequence[tuple[float, float]]) -> float:
    """Return the `pressure` of shares that are (load, sensitivity)."""
    return pressure(len(shares), Share.over(np.array(shares, Share.dtype)))
