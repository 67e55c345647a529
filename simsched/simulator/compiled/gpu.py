"""Devices of the compiled engine: how kernels share them; what `gpu` is to the reference."""

from math import inf

from simsched.simulator.compiled.blocks import issue_blocks, join_others, record_point, skip_cycles, undo_skips
from simsched.simulator.compiled.events import set_timer
from simsched.simulator.compiled.state import COHORTS, Device, State
from simsched.simulator.contention import (
    SATURATED,
    anchor_anew,
    clear,
    crowded_load,
    first_end,
    lay,
    pressure,
    slowdown,
)


def dispatch(s: State, d: int) -> None:
    """Issue blocks, share the device among them and set its timer."""
    device = s.devices[d]
    device.dispatching = 0
    if device.alone >= 0:
        if device.n_queue + device.n_running == 0 and device.copy_load == 0.0:
            work = s.work[device.alone]
            if work.start < 0.0:
                work.start = s.now
                set_timer(s, d, s.now + (work.solo - work.latency))
            return
        join_others(s, d)
    if device.n_queue:
        if device.skipping >= 0:
            undo_skips(s, d)
        issue_blocks(s, d)
        if device.n_queue:
            skip_cycles(s, d)
    device.freed = 0
    _share(s, d, device)


def _share(s: State, d: int, device: Device) -> None:
    """Compute loads and rates, anchor anew what changed its rate, and set the timer."""
    running, crowd, n = s.running[d * s.width :], s.crowds[d], device.n_running
    clear(crowd)
    without_grid = warps = 0.0
    compute = memory = blocks = 0
    for i in range(n):
        work, sm = s.work[running[i]], s.shares[i]
        launch, resident = s.launches[work.row], work.resident
        sm.load, sm.sensitivity = resident * launch.sm_share, launch.alpha
        if launch.blocks:
            lay(crowd, work, launch.sm_share, launch.warps)
            sm.load /= device.sms
            warps += resident * launch.warps
            blocks += resident
        else:
            without_grid += launch.sm_share
        if resident:
            compute += launch.kind == 0
            memory += launch.kind == 1
    crowd.below += without_grid
    sm_load = crowd.below + crowd.top_load / device.sms
    pressed = pressure(n, s.shares) / sm_load if sm_load > 1.0 else 1.0
    issued = 0.0
    for i in range(n):
        work = s.work[running[i]]
        launch, load = s.launches[work.row], sm_load
        if launch.blocks and work.resident:
            load = crowded_load(crowd, work, launch.sm_share, launch.warps)
        work.slowed = slowdown(launch.alpha, load * pressed, 1.0)
        work.saturated = load > SATURATED
        issued += s.shares[i].load / work.slowed
    excess = issued if issued > SATURATED else 1.0  # the fullest SMs are estimates: together no more than there is
    dram_load = device.copy_load
    for i in range(n):  # those that issue slots slow ask for DRAM so much the less often
        work, dram = s.work[running[i]], s.shares[i]
        launch = s.launches[work.row]
        work.slowed *= excess
        dram.load, dram.sensitivity = work.resident * work.dram_share / work.slowed, launch.beta / work.slowed
        dram_load += dram.load
    dram_pressure = dram_load
    if dram_load > 1.0:
        s.shares[n].load, s.shares[n].sensitivity = device.copy_load, 0.0
        dram_pressure = pressure(n + 1, s.shares)
    earliest = inf
    for i in range(n):
        work = s.work[running[i]]
        launch = s.launches[work.row]
        rate = 0.0  # every block ended and none fitted again: it stands still
        if work.resident:
            stretch = slowdown(launch.beta, dram_pressure, work.slowed)
            if launch.kind >= 0 and (work.saturated or dram_load > SATURATED):
                stretch *= 1.0 + _penalty(s, d, launch.kind, compute, memory)
            rate = 1.0 / (work.unit * stretch)
        anchor_anew(work, s.now, rate)
        earliest = min(earliest, first_end(work, s.cohorts[COHORTS * running[i] :]))
    if s.recording:
        record_point(s, d, s.now, sm_load, dram_load, warps, min(float(device.sms), blocks + without_grid * device.sms))
    set_timer(s, d, max(earliest, s.now))


def _penalty(s: State, d: int, kind: int, compute: int, memory: int) -> float:
    """Return the worst interference from a class that runs beside a kernel of class `kind`, 0 compute, 1 memory."""
    worst = 0.0
    if compute > (kind == 0):
        worst = max(worst, s.interference[4 * d + 2 * kind])
    if memory > (kind == 1):
        worst = max(worst, s.interference[4 * d + 2 * kind + 1])
    return worst
