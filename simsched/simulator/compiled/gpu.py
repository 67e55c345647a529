"""Devices of the compiled engine: block scheduler and rate sharing; what `gpu` is to the reference."""

from sys import float_info
from typing import Any

import numpy as np

from simsched.simulator.compiled.contention import (
    finish_time,
    is_closer,
    is_over,
    same_due,
    slowdown,
    solo_units,
    waves_over,
    whole_cycles,
)
from simsched.simulator.compiled.events import go_on, push, set_timer
from simsched.simulator.compiled.layout import COHORTS, COMPLETE, DISPATCH, RELEASE
from simsched.simulator.compiled.tables import (
    cohort_at,
    compiled,
    device_at,
    factor_at,
    free_at,
    interference_at,
    kernel_at,
    lane_at,
    launch_at,
    launch_op_at,
    point_at,
    queued_at,
    running_at,
)
from simsched.simulator.contention import MAX_COHORTS, SATURATED
from simsched.simulator.gpu import SAME_PLACE
from simsched.units import TIE

LEAST_UNIT = float_info.min


@compiled
def submit(s: Any, row: int, lane: int, d: int) -> None:
    """Take a launch that has reached the head of its stream."""
    now, launch, kernel, device = s.now, launch_at(s, row), kernel_at(s, lane), device_at(s, d)
    kernel.row, kernel.solo, kernel.unit, kernel.dram_share = row, launch.solo, launch.unit, launch.dram_share
    if s.jittered:
        _jitter(s, launch, kernel)
    lane_at(s, lane).start = now
    if kernel.unit < LEAST_UNIT:  # no time at all, or so little that its rate overflows
        go_on(s, RELEASE, lane)
        return
    if not device.contention or (launch.blocks == 0 and launch.sm_share == 0.0):
        push(s, now + kernel.solo, COMPLETE, lane)
        return
    kernel.arrival, kernel.start = now, -1.0
    kernel.progress = kernel.anchor = kernel.rate = 0.0
    kernel.unissued = launch.blocks
    kernel.resident = kernel.skipped = kernel.n_cohorts = 0
    if launch.blocks:
        base = d * s.width
        i = device.n_queue
        while i > 0 and _before(s, lane, queued_at(s, base + i - 1).v):
            queued_at(s, base + i).v = queued_at(s, base + i - 1).v
            i -= 1
        queued_at(s, base + i).v = lane
        device.n_queue += 1
    else:  # no grid: one piece of work that needs no place
        kernel.start, kernel.resident = now, 1
        kernel.n_cohorts = 1
        cohort_at(s, COHORTS * lane).due, cohort_at(s, COHORTS * lane).count = 1.0, 1
        _run(s, d, lane)
    dispatch_later(s, d)


@compiled
def _jitter(s: Any, launch: Any, kernel: Any) -> None:
    """Draw out or shorten a kernel as the sample says; its blocks load DRAM less the longer they take."""
    kernel.solo *= factor_at(s, s.sample * s.n_ops + launch_op_at(s, kernel.row).v).v
    kernel.unit = kernel.solo
    if launch.blocks and launch.residency:
        kernel.dram_share = 0.0
        if kernel.solo > 0:
            kernel.dram_share = min(1.0, launch.traffic / kernel.solo) / min(launch.blocks, launch.residency)
        kernel.unit /= solo_units(
            launch.blocks, launch.residency, launch.sm_share, kernel.dram_share, launch.alpha, launch.beta
        )


@compiled
def _before(s: Any, a: int, b: int) -> bool:
    """Return whether the kernel of lane a is dispatched before that of lane b: by priority, arrival, row."""
    mine, theirs = kernel_at(s, a), kernel_at(s, b)
    priority = launch_at(s, mine.row).priority - launch_at(s, theirs.row).priority
    if priority != 0:
        return bool(priority < 0)
    if mine.arrival != theirs.arrival:
        return bool(mine.arrival < theirs.arrival)
    return bool(mine.row < theirs.row)


@compiled
def _run(s: Any, d: int, lane: int) -> None:
    """Put a kernel among those that run, by row."""
    device, base, row = device_at(s, d), d * s.width, kernel_at(s, lane).row
    i = device.n_running
    while i > 0 and kernel_at(s, running_at(s, base + i - 1).v).row > row:
        running_at(s, base + i).v = running_at(s, base + i - 1).v
        i -= 1
    running_at(s, base + i).v = lane
    device.n_running += 1
    if launch_at(s, row).blocks:
        device.n_resident += 1


@compiled
def dispatch_later(s: Any, d: int) -> None:
    """Dispatch at the end of this instant."""
    if not device_at(s, d).dispatching:
        device_at(s, d).dispatching = 1
        go_on(s, DISPATCH, s.n_lanes + s.n_hosts + s.n_devices + 1 + d)


@compiled
def dispatch(s: Any, d: int) -> None:
    """Issue blocks, share the device among them and set its timer."""
    device = device_at(s, d)
    device.dispatching = 0
    if device.n_queue:
        if device.skipping >= 0:
            _undo_skip(s, d, device.skipping)
            device.skipping = -1
        _issue_blocks(s, d)
        if device.n_queue and not (device.n_queue > 1 and device.interleave > 0):
            _skip_cycles(s, d, queued_at(s, d * s.width).v)
    device.freed = 0
    _share(s, d)


# Block scheduler -------------------------------------------------------------------------------


@compiled
def _issue_blocks(s: Any, d: int) -> None:
    device, base = device_at(s, d), d * s.width
    while True:
        full = device.n_resident >= device.resident_kernels
        head, following = -1, -1
        for i in range(device.n_queue):
            lane = queued_at(s, base + i).v
            if not full or kernel_at(s, lane).start >= 0:
                if head < 0:
                    head = lane
                else:
                    following = lane
                    break
        if head < 0:
            return
        if device.freed and kernel_at(s, head).start >= 0 and following >= 0:
            device.freed = 0
            _interleave(s, d, head, following)
        _issue(s, d, head, kernel_at(s, head).unissued)
        if kernel_at(s, head).unissued:
            return
        _leave_queue(s, d, head)


@compiled
def _leave_queue(s: Any, d: int, lane: int) -> None:
    device, base = device_at(s, d), d * s.width
    i = 0
    while queued_at(s, base + i).v != lane:
        i += 1
    device.n_queue -= 1
    while i < device.n_queue:
        queued_at(s, base + i).v = queued_at(s, base + i + 1).v
        i += 1


@compiled
def _interleave(s: Any, d: int, head: int, following: int) -> None:
    slots = _fits(s, d, head)
    given = int(device_at(s, d).interleave * slots + TIE)
    rows = kernel_at(s, head).row, kernel_at(s, following).row
    if given and launch_at(s, rows[1]).priority == launch_at(s, rows[0]).priority:
        _issue(s, d, head, slots - given)
        _issue(s, d, following, kernel_at(s, following).unissued)
        if not kernel_at(s, following).unissued:
            _leave_queue(s, d, following)


@compiled
def _fits(s: Any, d: int, lane: int) -> int:
    kernel = kernel_at(s, lane)
    launch = launch_at(s, kernel.row)
    count = min(launch.residency - kernel.resident, free_at(s, 4 * d + 1).v)
    if launch.warps:
        count = min(count, free_at(s, 4 * d).v // launch.warps)
    if launch.registers:
        count = min(count, free_at(s, 4 * d + 2).v // launch.registers)
    if launch.shared_memory:
        count = min(count, free_at(s, 4 * d + 3).v // launch.shared_memory)
    return int(count)


@compiled
def _take(s: Any, d: int, launch: Any, count: int) -> None:
    free_at(s, 4 * d).v -= count * launch.warps
    free_at(s, 4 * d + 1).v -= count
    free_at(s, 4 * d + 2).v -= count * launch.registers
    free_at(s, 4 * d + 3).v -= count * launch.shared_memory


@compiled
def _issue(s: Any, d: int, lane: int, most: int) -> None:
    kernel = kernel_at(s, lane)
    count = min(most, kernel.unissued, _fits(s, d, lane))
    if count <= 0:
        return
    if kernel.start < 0:
        kernel.start = s.now
        _run(s, d, lane)
    _take(s, d, launch_at(s, kernel.row), count)
    kernel.unissued -= count
    kernel.resident += count
    _add_cohort(s, lane, _progress(kernel, s.now) + 1.0, count)


@compiled
def _progress(kernel: Any, now: float) -> float:
    return float(kernel.progress + (now - kernel.anchor) * kernel.rate)


@compiled
def _add_cohort(s: Any, lane: int, due: float, count: int) -> None:
    kernel, base = kernel_at(s, lane), COHORTS * lane
    n = kernel.n_cohorts
    for j in range(n):
        if same_due(cohort_at(s, base + j).due, due):
            cohort_at(s, base + j).count += count
            return
    cohort_at(s, base + n).due, cohort_at(s, base + n).count = due, count
    n += 1
    _sort_cohorts(s, base, n)
    if n > MAX_COHORTS:
        i = 0
        for j in range(1, n - 1):
            gap = cohort_at(s, base + j + 1).due - cohort_at(s, base + j).due
            if is_closer(gap, cohort_at(s, base + i + 1).due - cohort_at(s, base + i).due):
                i = j
        a, b = cohort_at(s, base + i), cohort_at(s, base + i + 1)
        total = a.count + b.count
        a.due = (a.due * a.count + b.due * b.count) / total
        a.count = total
        n -= 1
        for j in range(i + 1, n):
            after = cohort_at(s, base + j + 1)
            cohort_at(s, base + j).due, cohort_at(s, base + j).count = after.due, after.count
    kernel.n_cohorts = n


@compiled
def _sort_cohorts(s: Any, base: int, n: int) -> None:
    for i in range(1, n):
        due, count = cohort_at(s, base + i).due, cohort_at(s, base + i).count
        j = i
        while j > 0:
            before = cohort_at(s, base + j - 1)
            if before.due < due or (before.due == due and before.count <= count):
                break
            cohort_at(s, base + j).due, cohort_at(s, base + j).count = before.due, before.count
            j -= 1
        cohort_at(s, base + j).due, cohort_at(s, base + j).count = due, count


@compiled
def _skip_cycles(s: Any, d: int, lane: int) -> None:
    """Pass over whole refills of the head of the queue: until the last nothing else can change."""
    head = kernel_at(s, lane)
    if not head.resident:
        return
    cycles = whole_cycles(head.unissued, head.resident)
    if cycles:
        head.skipped = cycles
        device_at(s, d).skipping = lane
        head.unissued -= cycles * head.resident
        for j in range(head.n_cohorts):
            cohort_at(s, COHORTS * lane + j).due += cycles


@compiled
def _undo_skip(s: Any, d: int, lane: int) -> None:
    """Go back to wave by wave; at most one kernel had waves passed over, and it is still in the queue."""
    kernel, base, now = kernel_at(s, lane), COHORTS * lane, s.now
    cycles = kernel.skipped
    kernel.skipped = 0
    progress = _progress(kernel, now)
    tolerance = min(SAME_PLACE, TIE * max(1.0, now * kernel.rate))
    left = 0
    for j in range(kernel.n_cohorts):
        due, count = cohort_at(s, base + j).due, cohort_at(s, base + j).count
        waves, ends = waves_over(due, cycles, progress, tolerance)
        pending = cycles - waves + (1 if ends else 0)
        kernel.unissued += pending * count
        if ends:
            _free_blocks(s, d, kernel, count)
        else:
            cohort_at(s, base + left).due, cohort_at(s, base + left).count = due - pending, count
            left += 1
    kernel.n_cohorts = left
    _sort_cohorts(s, base, left)


@compiled
def _free_blocks(s: Any, d: int, kernel: Any, count: int) -> None:
    kernel.resident -= count
    launch = launch_at(s, kernel.row)
    if launch.blocks:
        _take(s, d, launch, -count)
        device_at(s, d).freed = 1


# Rates -----------------------------------------------------------------------------------------


@compiled
def _share(s: Any, d: int) -> None:
    """Compute loads and rates, anchor anew what changed its rate, and set the timer."""
    now, device, base = s.now, device_at(s, d), d * s.width
    sm_load = warps = blocks = without_grid = 0.0
    dram_load = device.copy_load
    present_0 = present_1 = 0
    for i in range(device.n_running):
        kernel = kernel_at(s, running_at(s, base + i).v)
        launch = launch_at(s, kernel.row)
        sm_load += kernel.resident * launch.sm_share
        dram_load += kernel.resident * kernel.dram_share
        if launch.blocks:
            warps += kernel.resident * launch.warps
            blocks += kernel.resident
        else:
            without_grid += launch.sm_share
        if kernel.resident:
            present_0 += launch.kind == 0
            present_1 += launch.kind == 1
    saturated = max(sm_load, dram_load) > SATURATED
    earliest = np.inf
    for i in range(device.n_running):
        lane = running_at(s, base + i).v
        kernel = kernel_at(s, lane)
        launch = launch_at(s, kernel.row)
        if kernel.resident:
            stretch = slowdown(launch.alpha, launch.beta, sm_load, dram_load)
            if saturated and launch.kind >= 0:
                worst = 0.0
                if present_0 > (launch.kind == 0):
                    worst = max(worst, interference_at(s, 4 * d + 2 * launch.kind).v)
                if present_1 > (launch.kind == 1):
                    worst = max(worst, interference_at(s, 4 * d + 2 * launch.kind + 1).v)
                stretch *= 1.0 + worst
            rate = 1.0 / (kernel.unit * stretch)
        else:
            rate = 0.0  # every block ended and none fitted again: it stands still
        if rate != kernel.rate:
            kernel.progress = _progress(kernel, now)
            kernel.anchor = now
            kernel.rate = rate
        for j in range(kernel.n_cohorts):
            due = cohort_at(s, COHORTS * lane + j).due
            earliest = min(earliest, finish_time(kernel.anchor, kernel.progress, rate, due))
    if s.recording:
        active = min(float(device.sms), blocks + without_grid * device.sms)
        if sm_load != device.sm or dram_load != device.dram or warps != device.warps or active != device.active:
            device.sm, device.dram, device.warps, device.active = sm_load, dram_load, warps, active
            _add_point(s, d, device)
    set_timer(s, d, max(earliest, now))


@compiled
def _add_point(s: Any, d: int, device: Any) -> None:
    """Continue the load curve of a device, or change its last point if that is of this instant."""
    if device.point < 0 or point_at(s, device.point).time != s.now:
        device.point = s.n_points
        s.n_points += 1
    point = point_at(s, device.point)
    point.device, point.time = d, s.now
    point.sm, point.dram, point.warps, point.active = device.sm, device.dram, device.warps, device.active


@compiled
def end_cohorts(s: Any, d: int) -> None:
    """End the cohorts that are due, and the kernels of which that was the last."""
    now, device, base = s.now, device_at(s, d), d * s.width
    kept = 0
    for i in range(device.n_running):
        lane = running_at(s, base + i).v
        kernel = kernel_at(s, lane)
        if kernel.rate > 0.0:
            left = 0
            for j in range(kernel.n_cohorts):
                due, count = cohort_at(s, COHORTS * lane + j).due, cohort_at(s, COHORTS * lane + j).count
                if is_over(finish_time(kernel.anchor, kernel.progress, kernel.rate, due), now):
                    _free_blocks(s, d, kernel, count)
                else:
                    cohort_at(s, COHORTS * lane + left).due, cohort_at(s, COHORTS * lane + left).count = due, count
                    left += 1
            kernel.n_cohorts = left
            if left == 0 and kernel.unissued == 0:
                if launch_at(s, kernel.row).blocks:
                    device.n_resident -= 1
                lane_at(s, lane).start = kernel.start
                go_on(s, RELEASE, lane)
                continue
        running_at(s, base + kept).v = lane
        kept += 1
    device.n_running = kept
    dispatch_later(s, d)
