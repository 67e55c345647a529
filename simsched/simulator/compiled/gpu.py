"""Devices of the compiled engine: how kernels share them; what `gpu` is to the reference."""

from math import inf

from simsched.simulator.compiled.blocks import anchor_anew, issue_blocks, skip_cycles, undo_skip
from simsched.simulator.compiled.events import set_timer
from simsched.simulator.compiled.tables import COHORTS, Device, Point, State
from simsched.simulator.contention import SATURATED, finish_time, slowdown


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
        point = s.points[device.point]
        if sm_load != point.sm or dram_load != point.dram or warps != point.warps or active != point.active:
            point = point_now(s, d)
            point.sm, point.dram, point.warps, point.active = sm_load, dram_load, warps, active
    set_timer(s, d, max(earliest, s.now))


def _penalty(s: State, d: int, kind: int, compute: int, memory: int) -> float:
    """Return the worst interference from a class that runs beside a kernel of class `kind`, 0 compute, 1 memory."""
    worst = 0.0
    if compute > (kind == 0):
        worst = max(worst, s.interference[4 * d + 2 * kind])
    if memory > (kind == 1):
        worst = max(worst, s.interference[4 * d + 2 * kind + 1])
    return worst


def point_now(s: State, d: int) -> Point:
    """Return the last point of the load curve of a device if that is of this instant, else a new one."""
    device = s.devices[d]
    if device.point < 0 or s.points[device.point].time != s.now:
        device.point = s.n_points
        s.n_points += 1
    point = s.points[device.point]
    point.device, point.time = d, s.now
    return point
