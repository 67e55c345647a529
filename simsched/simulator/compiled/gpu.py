"""Devices of the compiled engine: kernels that come and end, those that have a device to themselves, and copies."""

from typing import Final

from simsched.simulator.compiled.events import go_on, push, set_timer
from simsched.simulator.contention import begin_kernel, end_blocks, fullest, go_on_alone, is_later, last_end
from simsched.simulator.device import (
    LEAST_UNIT,
    end_due,
    enqueue,
    enter,
    free_blocks,
    record_point,
    refill,
    set_up,
    start_running,
    take,
)
from simsched.simulator.links import end_due_flows, share_flows, take_loads
from simsched.simulator.state import COHORTS, COMPLETE, DISPATCH, RELEASE, SHARE, State

SHORT: Final = 100.0
"""Of blocks, in instants: shorter ones may end together though they are due apart, so none of them is passed over."""


def submit(s: State, row: int, lane: int, d: int, place: int) -> None:
    """Take a launch, the instruction at `place`, that has reached the head of its stream."""
    set_up(s, row, lane, d, place)
    launch, work, device = s.launches[row], s.work[lane], s.devices[d]
    if not device.contention or (launch.blocks == 0 and launch.sm_share == 0.0):
        work.start = s.now
        push(s, s.now + work.solo, COMPLETE, lane)
        return
    if work.unit < LEAST_UNIT:
        work.start = s.now
        _end_kernel(s, lane)
        return
    begin_kernel(work, launch.blocks)
    is_alone = launch.blocks > 0 and device.alone < 0 and device.n_queue + device.n_running == 0
    if is_alone and work.unit > SHORT * (s.limit - s.now):
        device.alone = lane
    else:
        enter(s, d, lane)
    dispatch_later(s, d)


def _end_kernel(s: State, lane: int) -> None:
    """Let a kernel end, all of whose blocks have."""
    if s.work[lane].latency > 0.0:
        push(s, s.now + s.work[lane].latency, COMPLETE, lane)
    else:
        go_on(s, RELEASE, lane)


def dispatch_later(s: State, d: int) -> None:
    """Dispatch at the end of this instant."""
    if not s.devices[d].dispatching:
        s.devices[d].dispatching = 1
        go_on(s, DISPATCH, s.n_lanes + s.n_hosts + s.n_devices + 1 + d)


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
        _join_others(s, d)
    set_timer(s, d, max(refill(s, d), s.now))


def end_cohorts(s: State, d: int) -> None:
    """End the cohorts that are due, and the kernels of which that was the last."""
    device = s.devices[d]
    if device.alone >= 0:
        if s.recording:
            _run_alone(s, d, device.alone)
        _end_kernel(s, device.alone)
        device.alone = -1
    for i in range(end_due(s, d)):
        _end_kernel(s, s.over[i])
    dispatch_later(s, d)


def _run_alone(s: State, d: int, lane: int) -> None:
    """Find how far a kernel is that has had the device to itself: what it did before this instant."""
    work, cohorts, device = s.work[lane], s.cohorts[COHORTS * lane :], s.devices[d]
    launch = s.launches[work.row]
    begin_kernel(work, launch.blocks)
    now = end = work.start
    while is_later(s.now, end):
        now = end
        end_blocks(work, cohorts, now)
        end = go_on_alone(work, cohorts, now, launch.residency, device.sms, launch.sm_share, device.spread)
        if s.recording and s.n_points < s.point_room:
            resident = work.resident
            slowed = max(1.0, launch.sm_share * fullest(work, device.sms))
            record_point(
                s, d, now, resident * launch.sm_share / device.sms, resident * work.dram_share / slowed,
                float(resident * launch.warps), float(min(resident, device.sms)),
            )  # fmt: skip


def _join_others(s: State, d: int) -> None:
    """Let a kernel that has had the device to itself go on as one among others."""
    device, lane = s.devices[d], s.devices[d].alone
    work, cohorts, launch = s.work[lane], s.cohorts[COHORTS * lane :], s.launches[s.work[lane].row]
    device.alone = -1
    if work.start < 0.0:  # it came just now
        enqueue(s, d, lane)
        return
    _run_alone(s, d, lane)
    start_running(s, d, lane)
    take(s, d, launch, work.resident)
    if work.skipped:
        device.skipping = lane
    if work.unissued:
        enqueue(s, d, lane)
    if not work.skipped and (work.unissued or is_later(last_end(work, cohorts), s.now)):  # else it is just over
        free_blocks(s, d, lane, end_blocks(work, cohorts, s.now))


# Copies that move bytes


def share_links_later(s: State) -> None:
    """Share links anew at the end of this instant."""
    if not s.sharing:
        s.sharing = 1
        go_on(s, SHARE, s.n_lanes + s.n_hosts + 2 * s.n_devices + 1)


def share_links(s: State) -> None:
    """Compute the rates of all copies, what they load at both ends, and set the timer."""
    s.sharing = 0
    set_timer(s, s.n_devices, max(share_flows(s), s.now))
    for k in range(take_loads(s)):
        dispatch_later(s, s.over[k])


def end_flows(s: State) -> None:
    """End the copies whose last byte has arrived."""
    for k in range(end_due_flows(s)):
        go_on(s, RELEASE, s.over[k])
    share_links_later(s)
