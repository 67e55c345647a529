"""A GPU in the reference engine: block scheduler and rate sharing."""

from bisect import insort
from collections.abc import Callable
from itertools import pairwise
from sys import float_info

import numpy as np

from simsched.cluster import Device
from simsched.simulator.contention import (
    MAX_COHORTS,
    SATURATED,
    finish_time,
    is_closer,
    is_later,
    same_due,
    slowdown,
    waves_over,
    whole_cycles,
)
from simsched.simulator.environment import COMPLETE, DISPATCH, At, Instants
from simsched.simulator.workload import Ask
from simsched.trace import Load
from simsched.units import TIE


class Running:
    """A launch on a device: blocks not issued yet, blocks resident, and how far they are.

    Work is counted in blocks' lengths: a block issued at progress p is over at p + 1. Blocks
    issued together form a cohort ``[due, count]``. Progress is anchored: it was `progress` at
    time `anchor` and grows by `rate` per us; it is anchored anew only when the rate changes.
    """

    __slots__ = (
        "anchor", "ask", "cohorts", "done", "order", "progress",
        "rate", "resident", "row", "skipped", "start", "unissued",
    )  # fmt: skip

    def __init__(self, row: int, order: tuple[int, float, int], ask: Ask, done: Callable[[float], object]) -> None:
        self.row = row
        self.order = order  # of dispatch: priority, arrival, place in the program
        self.ask = ask
        self.unissued = ask.blocks
        self.resident = 0
        self.cohorts: list[list[float]] = []
        self.skipped = 0  # refills of all resident blocks that were passed over
        self.progress = 0.0
        self.anchor = 0.0
        self.rate = 0.0
        self.start = -1.0
        self.done = done

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
            device.sms * (device.threads_per_sm // 32), device.sms * device.blocks_per_sm,
            device.sms * device.registers_per_sm, device.sms * device.shared_memory_per_sm,
        ]  # fmt: skip
        self._queue: list[Running] = []  # kernels with blocks to issue, by order
        self._running: list[Running] = []  # by row
        self._timer: At | None = None
        self._dispatching = False
        self._freed = False  # slots of kernels have come free at this instant
        self._copy_load = 0.0
        self._curve: list[tuple[float, float, float, float, float]] = [(0.0, 0.0, 0.0, 0.0, 0.0)]

    def submit(self, row: int, place: int, ask: Ask, priority: int, done: Callable[[float], object]) -> None:
        """Take a launch, the instruction at `place`; `done(start)` is called when it ends."""
        now = self._env.now
        if ask.unit < float_info.min:  # no time at all, or so little that its rate overflows
            done(now)
            return
        if not self._device.contention or (ask.blocks == 0 and ask.sm_share == 0.0):
            self._env.at(now + ask.solo, COMPLETE, lambda: done(now))
            return
        kernel = Running(row, (priority, now, place), ask, done)
        if ask.blocks:
            insort(self._queue, kernel, key=lambda k: k.order)
        else:  # no grid: one piece of work that needs no place
            kernel.start, kernel.resident = now, 1
            kernel.cohorts.append([1.0, 1])
            insort(self._running, kernel)
        self._dispatch_later()

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
        self._undo_skips()
        self._issue_blocks()
        self._skip_cycles()
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
            self._issue(head, head.unissued)
            if head.unissued:
                break
            self._queue.remove(head)
        self._freed = False

    def _interleave(self, head: Running, following: Running) -> None:
        """Let the next kernel of the same priority have its share of slots that have just come free."""
        slots = self._fits(head)
        given = int(self._device.interleave * slots + TIE)
        if given and following.order[0] == head.order[0]:
            self._issue(head, slots - given)
            self._issue(following, following.unissued)
            if not following.unissued:
                self._queue.remove(following)

    def _fits(self, kernel: Running) -> int:
        """Return how many more blocks of a kernel fit on the device."""
        count = kernel.ask.residency - kernel.resident
        for left, need in zip(self._free, kernel.ask.block, strict=True):
            if need:
                count = min(count, left // need)
        return count

    def _issue(self, kernel: Running, most: int) -> None:
        count = min(most, kernel.unissued, self._fits(kernel))
        if count <= 0:
            return
        if kernel.start < 0:
            kernel.start = self._env.now
            insort(self._running, kernel)
        self._take(kernel, count)
        kernel.unissued -= count
        kernel.resident += count
        self._add_cohort(kernel, self._progress(kernel) + 1.0, count)

    def _n_resident(self) -> int:
        return sum(1 for kernel in self._running if kernel.ask.blocks)

    def _add_cohort(self, kernel: Running, due: float, count: int) -> None:
        cohorts = kernel.cohorts
        for cohort in cohorts:
            if same_due(cohort[0], due):
                cohort[1] += count
                return
        cohorts.append([due, count])
        cohorts.sort()
        if len(cohorts) > MAX_COHORTS:
            gaps = [after[0] - before[0] for before, after in pairwise(cohorts)]
            i = 0
            for j, gap in enumerate(gaps):
                if is_closer(gap, gaps[i]):
                    i = j
            (due_a, count_a), (due_b, count_b) = cohorts[i], cohorts[i + 1]
            total = count_a + count_b
            cohorts[i : i + 2] = [[(due_a * count_a + due_b * count_b) / total, total]]

    def _skip_cycles(self) -> None:
        """Pass over whole refills of the head of the queue: until the last nothing else can change."""
        if not self._queue or (len(self._queue) > 1 and self._device.interleave > 0):
            return
        head = self._queue[0]
        if not head.resident:
            return
        cycles = whole_cycles(head.unissued, head.resident)
        if cycles:
            head.skipped = cycles
            head.unissued -= cycles * head.resident
            for cohort in head.cohorts:
                cohort[0] += cycles

    def _undo_skips(self) -> None:
        """Go back to wave by wave; a wave that ends at this very instant has ended."""
        for kernel in self._queue:
            cycles = kernel.skipped
            if not cycles:
                continue
            kernel.skipped = 0
            progress = self._progress(kernel)
            cohorts = []
            for due, count in kernel.cohorts:
                waves, ends = waves_over(due, cycles, progress, self._env.now, kernel.rate)
                pending = cycles - waves + ends
                kernel.unissued += pending * int(count)
                if ends:
                    self._free_blocks(kernel, int(count))
                else:
                    cohorts.append([due - pending, count])
            kernel.cohorts = sorted(cohorts)

    def _free_blocks(self, kernel: Running, count: int) -> None:
        kernel.resident -= count
        if kernel.ask.blocks:
            self._take(kernel, -count)
            self._freed = True

    def _take(self, kernel: Running, count: int) -> None:
        self._free = [left - count * need for left, need in zip(self._free, kernel.ask.block, strict=True)]

    # Rates -------------------------------------------------------------------------------------

    def _progress(self, kernel: Running) -> float:
        return kernel.progress + (self._env.now - kernel.anchor) * kernel.rate

    def _share(self) -> None:
        """Compute loads and rates, anchor anew what changed its rate, and set the timer."""
        now = self._env.now
        sm_load = warps = blocks = without_grid = 0.0
        dram_load = self._copy_load
        present = [0, 0]
        for kernel in self._running:
            ask = kernel.ask
            sm_load += kernel.resident * ask.sm_share
            dram_load += kernel.resident * ask.dram_share
            warps += kernel.resident * ask.block[0]
            if ask.blocks:
                blocks += kernel.resident
            else:
                without_grid += ask.sm_share
            if ask.kind >= 0 and kernel.resident:
                present[ask.kind] += 1
        saturated = max(sm_load, dram_load) > SATURATED
        earliest = float("inf")
        for kernel in self._running:
            ask = kernel.ask
            if kernel.resident:
                stretch = slowdown(ask.alpha, ask.beta, sm_load, dram_load)
                if saturated and ask.kind >= 0:
                    stretch *= 1.0 + self._penalty(ask.kind, present)
                rate = 1.0 / (ask.unit * stretch)
            else:
                rate = 0.0  # every block ended and none fitted again: it stands still
            if rate != kernel.rate:
                kernel.progress = self._progress(kernel)
                kernel.anchor = now
                kernel.rate = rate
            for cohort in kernel.cohorts:
                earliest = min(earliest, finish_time(kernel.anchor, kernel.progress, rate, cohort[0]))
        self._record(now, sm_load, dram_load, warps, blocks, without_grid)
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

    def _record(
        self, now: float, sm_load: float, dram_load: float, warps: float, blocks: float, without_grid: float
    ) -> None:
        sms = self._device.sms
        point = (now, sm_load, dram_load, warps, min(float(sms), blocks + without_grid * sms))
        if point[1:] == self._curve[-1][1:]:
            return
        if self._curve[-1][0] == now:
            self._curve[-1] = point
        else:
            self._curve.append(point)

    def _end_cohorts(self) -> None:
        self._timer = None
        now = self._env.now
        over = []
        for kernel in self._running:
            if not kernel.rate:
                continue
            remaining = []
            for cohort in kernel.cohorts:
                if is_later(finish_time(kernel.anchor, kernel.progress, kernel.rate, cohort[0]), now):
                    remaining.append(cohort)
                else:
                    self._free_blocks(kernel, int(cohort[1]))
            kernel.cohorts = remaining
            if not remaining and not kernel.unissued:
                over.append(kernel)
        for kernel in over:
            self._running.remove(kernel)
            kernel.done(kernel.start)
        self._dispatch_later()
