"""Devices of the compiled engine: block scheduler and rate sharing; what `gpu` is to the reference."""

from sys import float_info
from typing import Any

import numpy as np

from simsched.simulator.compiled_contention import finish_time, is_over, slowdown, waves_over, whole_cycles
from simsched.simulator.compiled_events import clear_timer, push, set_timer
from simsched.simulator.compiled_layout import COHORTS, COMPLETE, DISPATCH, RELEASE, TO_DISPATCH, TO_LANE, TO_OVER
from simsched.simulator.compiled_tables import (
    cohort_at,
    compiled,
    device_at,
    free_at,
    interference_at,
    lane_at,
    launch_at,
    need_at,
    queue_at,
    running_at,
)
from simsched.simulator.contention import MAX_COHORTS, SATURATED, TIE
from simsched.simulator.gpu import _SAME_PLACE

LEAST_UNIT = float_info.min


@compiled
def submit(s: Any, row: int, lane: int, d: int) -> None:
    """Take a launch that has reached the head of its stream."""
    now, kernel, device = s.now, launch_at(s, row), device_at(s, d)
    if kernel.unit < LEAST_UNIT:  # no time at all, or so little that its rate overflows
        lane_at(s, lane).start = now
        push(s, now, RELEASE, TO_LANE, lane)
        return
    if not device.contention or (kernel.blocks == 0 and kernel.sm_share == 0.0):
        lane_at(s, lane).start = now
        push(s, now + kernel.solo, COMPLETE, TO_OVER, lane)
        return
    kernel.lane, kernel.arrival, kernel.start = lane, now, -1.0
    kernel.unissued = kernel.blocks
    if kernel.blocks:
        base = d * s.width
        i = device.n_queue
        while i > 0 and _before(s, row, queue_at(s, base + i - 1).v):
            queue_at(s, base + i).v = queue_at(s, base + i - 1).v
            i -= 1
        queue_at(s, base + i).v = row
        device.n_queue += 1
    else:  # no grid: one piece of work that needs no place
        kernel.start, kernel.resident = now, 1
        kernel.n_cohorts = 1
        cohort_at(s, COHORTS * row + 0).due, cohort_at(s, COHORTS * row + 0).count = 1.0, 1
        _run(s, d, row)
    dispatch_later(s, d)


@compiled
def _before(s: Any, row_a: int, row_b: int) -> bool:
    """Return whether kernel a is dispatched before b: by priority, arrival, row."""
    a, b = launch_at(s, row_a), launch_at(s, row_b)
    if a.priority != b.priority:
        return bool(a.priority < b.priority)
    if a.arrival != b.arrival:
        return bool(a.arrival < b.arrival)
    return row_a < row_b


@compiled
def _run(s: Any, d: int, row: int) -> None:
    """Put a launch among those that run, by row."""
    device, base = device_at(s, d), d * s.width
    i = device.n_running
    while i > 0 and running_at(s, base + i - 1).v > row:
        running_at(s, base + i).v = running_at(s, base + i - 1).v
        i -= 1
    running_at(s, base + i).v = row
    device.n_running += 1
    if launch_at(s, row).blocks:
        device.n_resident += 1


@compiled
def dispatch_later(s: Any, d: int) -> None:
    """Dispatch at the end of this instant."""
    if not device_at(s, d).dispatching:
        device_at(s, d).dispatching = 1
        push(s, s.now, DISPATCH, TO_DISPATCH, d)


@compiled
def dispatch(s: Any, d: int) -> None:
    """Issue blocks, share the device among them and set its timer."""
    device_at(s, d).dispatching = 0
    _undo_skip(s, d)
    _issue_blocks(s, d)
    _skip_cycles(s, d)
    _share(s, d)


# Block scheduler -------------------------------------------------------------------------------


@compiled
def _issue_blocks(s: Any, d: int) -> None:
    device, base = device_at(s, d), d * s.width
    while True:
        full = device.n_resident >= device.resident_kernels
        head, following = -1, -1
        for i in range(device.n_queue):
            if not full or launch_at(s, queue_at(s, base + i).v).start >= 0:
                if head < 0:
                    head = queue_at(s, base + i).v
                else:
                    following = queue_at(s, base + i).v
                    break
        if head < 0:
            break
        if device.freed and launch_at(s, head).start >= 0 and following >= 0:
            device.freed = 0
            _interleave(s, d, head, following)
        _issue(s, d, head, launch_at(s, head).unissued)
        if launch_at(s, head).unissued:
            break
        _leave_queue(s, d, head)
    device.freed = 0


@compiled
def _leave_queue(s: Any, d: int, row: int) -> None:
    device, base = device_at(s, d), d * s.width
    i = 0
    while queue_at(s, base + i).v != row:
        i += 1
    device.n_queue -= 1
    while i < device.n_queue:
        queue_at(s, base + i).v = queue_at(s, base + i + 1).v
        i += 1


@compiled
def _interleave(s: Any, d: int, head: int, following: int) -> None:
    slots = _fits(s, d, head)
    given = int(device_at(s, d).interleave * slots + TIE)
    if given and launch_at(s, following).priority == launch_at(s, head).priority:
        _issue(s, d, head, slots - given)
        _issue(s, d, following, launch_at(s, following).unissued)
        if not launch_at(s, following).unissued:
            _leave_queue(s, d, following)


@compiled
def _fits(s: Any, d: int, row: int) -> int:
    count = launch_at(s, row).residency - launch_at(s, row).resident
    for j in range(4):
        need = need_at(s, 4 * row + j).v
        if need:
            count = min(count, free_at(s, 4 * d + j).v // need)
    return int(count)


@compiled
def _issue(s: Any, d: int, row: int, most: int) -> None:
    kernel = launch_at(s, row)
    count = min(most, kernel.unissued, _fits(s, d, row))
    if count <= 0:
        return
    if kernel.start < 0:
        kernel.start = s.now
        _run(s, d, row)
    for j in range(4):
        free_at(s, 4 * d + j).v -= count * need_at(s, 4 * row + j).v
    kernel.unissued -= count
    kernel.resident += count
    _add_cohort(s, row, _progress(kernel, s.now) + 1.0, count)


@compiled
def _progress(kernel: Any, now: float) -> float:
    return float(kernel.progress + (now - kernel.anchor) * kernel.rate)


@compiled
def _add_cohort(s: Any, row: int, due: float, count: int) -> None:
    kernel, base = launch_at(s, row), COHORTS * row
    n = kernel.n_cohorts
    for j in range(n):
        if cohort_at(s, base + j).due == due:
            cohort_at(s, base + j).count += count
            return
    cohort_at(s, base + n).due, cohort_at(s, base + n).count = due, count
    n += 1
    _sort_cohorts(s, base, n)
    if n > MAX_COHORTS:
        i = 0
        for j in range(1, n - 1):
            gap = cohort_at(s, base + j + 1).due - cohort_at(s, base + j).due
            if gap < cohort_at(s, base + i + 1).due - cohort_at(s, base + i).due:
                i = j
        a, b = cohort_at(s, base + i), cohort_at(s, base + i + 1)
        total = a.count + b.count
        a.due = (a.due * a.count + b.due * b.count) / total
        a.count = total
        n -= 1
        for j in range(i + 1, n):
            _set_cohort(cohort_at(s, base + j), cohort_at(s, base + j + 1).due, cohort_at(s, base + j + 1).count)
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
            _set_cohort(cohort_at(s, base + j), before.due, before.count)
            j -= 1
        _set_cohort(cohort_at(s, base + j), due, count)


@compiled
def _set_cohort(cohort: Any, due: float, count: int) -> None:
    cohort.due, cohort.count = due, count


@compiled
def _skip_cycles(s: Any, d: int) -> None:
    device = device_at(s, d)
    if device.n_queue == 0 or (device.n_queue > 1 and device.interleave > 0):
        return
    row = queue_at(s, d * s.width).v
    head = launch_at(s, row)
    if not head.resident:
        return
    cycles = whole_cycles(head.unissued, head.resident)
    if cycles:
        head.skipped = cycles
        device.skipping = row
        head.unissued -= cycles * head.resident
        for j in range(head.n_cohorts):
            cohort_at(s, COHORTS * row + j).due += cycles


@compiled
def _undo_skip(s: Any, d: int) -> None:
    """Go back to wave by wave; at most one kernel had waves passed over, and it is still in the queue."""
    row = device_at(s, d).skipping
    if row < 0:
        return
    device_at(s, d).skipping = -1
    kernel, base, now = launch_at(s, row), COHORTS * row, s.now
    cycles = kernel.skipped
    kernel.skipped = 0
    progress = _progress(kernel, now)
    tolerance = min(_SAME_PLACE, TIE * max(1.0, now * kernel.rate))
    left = 0
    for j in range(kernel.n_cohorts):
        due, count = cohort_at(s, base + j).due, cohort_at(s, base + j).count
        waves, ends = waves_over(due, cycles, progress, tolerance)
        pending = cycles - waves + (1 if ends else 0)
        kernel.unissued += pending * count
        if ends:
            _free_blocks(s, d, row, count)
        else:
            cohort_at(s, base + left).due, cohort_at(s, base + left).count = due - pending, count
            left += 1
    kernel.n_cohorts = left
    _sort_cohorts(s, base, left)


@compiled
def _free_blocks(s: Any, d: int, row: int, count: int) -> None:
    launch_at(s, row).resident -= count
    if launch_at(s, row).blocks:
        for j in range(4):
            free_at(s, 4 * d + j).v += count * need_at(s, 4 * row + j).v
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
        row = running_at(s, base + i).v
        kernel = launch_at(s, row)
        sm_load += kernel.resident * kernel.sm_share
        dram_load += kernel.resident * kernel.dram_share
        warps += kernel.resident * need_at(s, 4 * row + 0).v
        if kernel.blocks:
            blocks += kernel.resident
        else:
            without_grid += kernel.sm_share
        if kernel.resident:
            present_0 += kernel.kind == 0
            present_1 += kernel.kind == 1
    saturated = max(sm_load, dram_load) > SATURATED
    earliest = np.inf
    for i in range(device.n_running):
        row = running_at(s, base + i).v
        kernel = launch_at(s, row)
        if kernel.resident:
            stretch = slowdown(kernel.alpha, kernel.beta, sm_load, dram_load)
            if saturated and kernel.kind >= 0:
                worst = 0.0
                if present_0 > (kernel.kind == 0):
                    worst = max(worst, interference_at(s, 4 * d + 2 * kernel.kind + 0).v)
                if present_1 > (kernel.kind == 1):
                    worst = max(worst, interference_at(s, 4 * d + 2 * kernel.kind + 1).v)
                stretch *= 1.0 + worst
            rate = 1.0 / (kernel.unit * stretch)
        else:
            rate = 0.0  # every block ended and none fitted again: it stands still
        if rate != kernel.rate:
            kernel.progress = _progress(kernel, now)
            kernel.anchor = now
            kernel.rate = rate
        for j in range(kernel.n_cohorts):
            earliest = min(
                earliest, finish_time(kernel.anchor, kernel.progress, rate, cohort_at(s, COHORTS * row + j).due)
            )
    active = min(float(device.sms), blocks + without_grid * device.sms)
    if sm_load != device.sm or dram_load != device.dram or warps != device.warps or active != device.active:
        device.sm, device.dram, device.warps, device.active = sm_load, dram_load, warps, active
        device.fresh = 1
    clear_timer(s, d)
    if earliest < np.inf:
        set_timer(s, d, max(earliest, now))


@compiled
def end_cohorts(s: Any, d: int) -> None:
    """End the cohorts that are due, and the kernels of which that was the last."""
    clear_timer(s, d)
    now, device, base = s.now, device_at(s, d), d * s.width
    for i in range(device.n_running):
        row = running_at(s, base + i).v
        kernel = launch_at(s, row)
        if kernel.rate == 0.0:
            continue
        left = 0
        for j in range(kernel.n_cohorts):
            due, count = cohort_at(s, COHORTS * row + j).due, cohort_at(s, COHORTS * row + j).count
            if is_over(finish_time(kernel.anchor, kernel.progress, kernel.rate, due), now):
                _free_blocks(s, d, row, count)
            else:
                cohort_at(s, COHORTS * row + left).due, cohort_at(s, COHORTS * row + left).count = due, count
                left += 1
        kernel.n_cohorts = left
        kernel.over = left == 0 and kernel.unissued == 0
    left = 0
    for i in range(device.n_running):
        row = running_at(s, base + i).v
        kernel = launch_at(s, row)
        if kernel.over:
            device.n_resident -= kernel.blocks > 0
            lane_at(s, kernel.lane).start = kernel.start
            push(s, now, RELEASE, TO_LANE, kernel.lane)
        else:
            running_at(s, base + left).v = row
            left += 1
    device.n_running = left
    dispatch_later(s, d)
