"""Devices of the compiled engine: what they take and how they share it; what `gpu` is to the reference."""

from math import inf
from sys import float_info
from typing import Final

from simsched.jit import kernel
from simsched.simulator.compiled.blocks import (
    anchor_anew,
    enqueue,
    free_blocks,
    issue_blocks,
    keep_cohort,
    skip_cycles,
    start_running,
    undo_skip,
)
from simsched.simulator.compiled.events import go_on, push, set_timer
from simsched.simulator.compiled.tables import COHORTS, COMPLETE, DISPATCH, RELEASE, Device, Launch, State, Work
from simsched.simulator.contention import SATURATED, finish_time, is_over, slowdown, solo_units

LEAST_UNIT: Final = float_info.min


@kernel
def submit(s: State, row: int, lane: int, d: int, place: int) -> None:
    """Take a launch, the instruction at `place`, that has reached the head of its stream."""
    launch, work, device = s.launches[row], s.work[lane], s.devices[d]
    work.row, work.solo, work.unit, work.dram_share = row, launch.solo, launch.unit, launch.dram_share
    if s.jittered:
        _jitter(s, launch, work)
    s.lanes[lane].start = s.now
    if work.unit < LEAST_UNIT:  # no time at all, or so little that its rate overflows
        go_on(s, RELEASE, lane)
        return
    if not device.contention or (launch.blocks == 0 and launch.sm_share == 0.0):
        push(s, s.now + work.solo, COMPLETE, lane)
        return
    work.arrival, work.place, work.start = s.now, place, -1.0
    work.progress = work.anchor = work.rate = 0.0
    work.unissued = launch.blocks
    work.resident = work.n_cohorts = 0
    if launch.blocks:
        enqueue(s, d, lane)
    else:  # no grid: one piece of work that needs no place
        work.start, work.resident = s.now, 1
        keep_cohort(s, lane, 1.0, 1)
        start_running(s, d, lane)
    dispatch_later(s, d)


@kernel
def _jitter(s: State, launch: Launch, work: Work) -> None:
    """Draw out or shorten a kernel as the sample says; its blocks load DRAM less the longer they take."""
    work.solo *= s.factors[s.sample * s.n_ops + s.launch_op[work.row]]
    work.unit = work.solo
    if launch.blocks and launch.residency:
        work.dram_share = 0.0
        if work.solo > 0:
            work.dram_share = min(1.0, launch.traffic / work.solo) / min(launch.blocks, launch.residency)
        work.unit /= solo_units(
            launch.blocks, launch.residency, launch.sm_share, work.dram_share, launch.alpha, launch.beta
        )


@kernel
def dispatch_later(s: State, d: int) -> None:
    """Dispatch at the end of this instant."""
    if not s.devices[d].dispatching:
        s.devices[d].dispatching = 1
        go_on(s, DISPATCH, s.n_lanes + s.n_hosts + s.n_devices + 1 + d)


@kernel
def dispatch(s: State, d: int) -> None:
    """Issue blocks, share the device among them and set its timer."""
    device = s.devices[d]
    device.dispatching = 0
    if device.n_queue:
        if device.skipping >= 0:
            undo_skip(s, d)
        issue_blocks(s, d)
        if device.n_queue:
            skip_cycles(s, d)
    device.freed = 0
    _share(s, d, device)


@kernel
def _share(s: State, d: int, device: Device) -> None:
    """Compute loads and rates, anchor anew what changed its rate, and set the timer."""
    running = s.running[d * s.width :]
    sm_load = warps = blocks = without_grid = 0.0
    dram_load = device.copy_load
    compute = memory = 0
    for i in range(device.n_running):
        work = s.work[running[i]]
        launch, resident = s.launches[work.row], work.resident
        sm_load += resident * launch.sm_share
        dram_load += resident * work.dram_share
        if launch.blocks:
            warps += resident * launch.warps
            blocks += resident
        else:
            without_grid += launch.sm_share
        if resident:
            compute += launch.kind == 0
            memory += launch.kind == 1
    earliest = inf
    for i in range(device.n_running):
        work = s.work[running[i]]
        launch = s.launches[work.row]
        rate = 0.0  # every block ended and none fitted again: it stands still
        if work.resident:
            stretch = slowdown(launch.alpha, launch.beta, sm_load, dram_load)
            if launch.kind >= 0 and max(sm_load, dram_load) > SATURATED:
                stretch *= 1.0 + _penalty(s, d, launch.kind, compute, memory)
            rate = 1.0 / (work.unit * stretch)
        anchor_anew(work, s.now, rate)
        for j in range(work.n_cohorts):
            due = s.cohorts[COHORTS * running[i] + j].due
            earliest = min(earliest, finish_time(work.anchor, work.progress, rate, due))
    if s.recording:
        active = min(float(device.sms), blocks + without_grid * device.sms)
        if sm_load != device.sm or dram_load != device.dram or warps != device.warps or active != device.active:
            device.sm, device.dram, device.warps, device.active = sm_load, dram_load, warps, active
            _add_point(s, d, device)
    set_timer(s, d, max(earliest, s.now))


@kernel
def _penalty(s: State, d: int, kind: int, compute: int, memory: int) -> float:
    """Return the worst interference from a class that runs beside a kernel of class `kind`, 0 compute, 1 memory."""
    worst = 0.0
    if compute > (kind == 0):
        worst = max(worst, s.interference[4 * d + 2 * kind])
    if memory > (kind == 1):
        worst = max(worst, s.interference[4 * d + 2 * kind + 1])
    return worst


@kernel
def _add_point(s: State, d: int, device: Device) -> None:
    """Continue the load curve of a device, or change its last point if that is of this instant."""
    if device.point < 0 or s.points[device.point].time != s.now:
        device.point = s.n_points
        s.n_points += 1
    point = s.points[device.point]
    point.device, point.time = d, s.now
    point.sm, point.dram, point.warps, point.active = device.sm, device.dram, device.warps, device.active


@kernel
def end_cohorts(s: State, d: int) -> None:
    """End the cohorts that are due, and the kernels of which that was the last."""
    device, running = s.devices[d], s.running[d * s.width :]
    n, device.n_running = device.n_running, 0
    for i in range(n):
        lane = running[i]
        work = s.work[lane]
        if work.rate > 0.0:
            _end_cohorts_of(s, d, lane)
        if work.rate > 0.0 and work.n_cohorts == 0 and work.unissued == 0:
            if s.launches[work.row].blocks:
                device.n_resident -= 1
            s.lanes[lane].start = work.start
            go_on(s, RELEASE, lane)
        else:
            running[device.n_running] = lane
            device.n_running += 1
    dispatch_later(s, d)


@kernel
def _end_cohorts_of(s: State, d: int, lane: int) -> None:
    work, cohorts = s.work[lane], s.cohorts[COHORTS * lane :]
    n, work.n_cohorts = work.n_cohorts, 0
    for j in range(n):
        due, count = cohorts[j].due, cohorts[j].count
        if is_over(finish_time(work.anchor, work.progress, work.rate, due), s.now):
            free_blocks(s, d, work, count)
        else:
            keep_cohort(s, lane, due, count)
