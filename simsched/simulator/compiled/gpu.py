"""Devices of the compiled engine: what they take and how they share it; what `gpu` is to the reference."""

from sys import float_info
from typing import Any

import numpy as np

from simsched.simulator.compiled.blocks import (
    enqueue,
    free_blocks,
    issue_blocks,
    progress_of,
    skip_cycles,
    start_running,
    undo_skip,
)
from simsched.simulator.compiled.contention import (
    finish_time,
    is_over,
    slowdown,
    solo_units,
)
from simsched.simulator.compiled.events import go_on, push, set_timer
from simsched.simulator.compiled.layout import COHORTS, COMPLETE, DISPATCH, RELEASE
from simsched.simulator.compiled.tables import (
    cohort_at,
    compiled,
    device_at,
    factor_at,
    interference_at,
    kernel_at,
    lane_at,
    launch_at,
    launch_op_at,
    point_at,
    queued_at,
    running_at,
)
from simsched.simulator.contention import SATURATED

LEAST_UNIT = float_info.min


@compiled
def submit(s: Any, row: int, lane: int, d: int, place: int) -> None:
    """Take a launch, the instruction at `place`, that has reached the head of its stream."""
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
    kernel.arrival, kernel.place, kernel.start = now, place, -1.0
    kernel.progress = kernel.anchor = kernel.rate = 0.0
    kernel.unissued = launch.blocks
    kernel.resident = kernel.skipped = kernel.n_cohorts = 0
    if launch.blocks:
        enqueue(s, d, lane)
    else:  # no grid: one piece of work that needs no place
        kernel.start, kernel.resident = now, 1
        kernel.n_cohorts = 1
        cohort_at(s, COHORTS * lane).due, cohort_at(s, COHORTS * lane).count = 1.0, 1
        start_running(s, d, lane)
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
            undo_skip(s, d, device.skipping)
            device.skipping = -1
        issue_blocks(s, d)
        if device.n_queue and not (device.n_queue > 1 and device.interleave > 0):
            skip_cycles(s, d, queued_at(s, d * s.width).v)
    device.freed = 0
    _share(s, d)


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
            kernel.progress = progress_of(kernel, now)
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
                    free_blocks(s, d, kernel, count)
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
