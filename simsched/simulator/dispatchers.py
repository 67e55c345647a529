"""Processes of devices and collectives in the compiled engine: the dispatcher, the end of blocks, and arrivals."""

from simsched.base.jit import native
from simsched.simulator.alone import join_others, run_alone
from simsched.simulator.clock import COMPLETE, DISPATCH, RELEASE, SHARE, go_on, push, set_timer
from simsched.simulator.contention import LaneWork, is_later
from simsched.simulator.device import end_due, refill
from simsched.simulator.exchanges import LEAST_STRETCH, arrive, end_exchange
from simsched.simulator.state import ClockTable, DeviceTable, LinkTable, State


@native
def end_kernel(clock: ClockTable, work: LaneWork, lane: int) -> None:
    """End a kernel whose last block has ended."""
    if work.latency > 0.0:
        push(clock, clock.now + work.latency, COMPLETE, lane)
    else:
        go_on(clock, RELEASE, lane)


@native
def dispatch_later(clock: ClockTable, devices: DeviceTable, d: int) -> None:
    """Schedule the dispatcher of a device for the end of this instant."""
    device = devices.rows[d]
    if not device.dispatching:
        device.dispatching = 1
        go_on(clock, DISPATCH, clock.first_dispatcher + d)


@native
def dispatch(run: State, d: int) -> None:
    """Issue blocks on a device, compute rates, and set the timer of the device."""
    clock = run.clock
    devices = run.devices
    device = devices.rows[d]
    device.dispatching = 0
    if device.alone >= 0:
        if device.n_queue + device.n_running == 0 and device.copy_load == 0.0:
            work = devices.work[device.alone]
            if work.start >= 0.0:
                return
            if not is_later(device.next_start, clock.now):
                work.start = clock.now
                device.next_start = clock.now + device.graph_issue
                set_timer(clock, d, clock.now + (work.solo - work.latency))
                return
        join_others(devices, run.record, d, clock.now)
    set_timer(clock, d, max(refill(devices, run.record, d, clock.now), clock.now))
    for i in range(devices.n_results):
        arrive_at_collective(run, devices.results[i])


@native
def arrive_at_collective(run: State, lane: int) -> None:
    """Mark a rank of a collective as ready; if it is the last one, the collective begins."""
    clock = run.clock
    meeting = arrive(run.collectives, run.devices, run.lanes, lane, clock.now)
    if meeting >= 0:
        exchange = run.collectives.rows[meeting]
        process = clock.first_collective + meeting
        if exchange.stretch < LEAST_STRETCH:
            push(clock, clock.now + run.devices.work[lane].solo, COMPLETE, process)
        else:
            push(clock, clock.now + exchange.latency * exchange.stretch, RELEASE, process)


@native
def end_collective(run: State, meeting: int) -> None:
    """End all ranks of a collective."""
    end_exchange(run.collectives, run.devices, meeting)
    exchange = run.collectives.rows[meeting]
    for k in range(exchange.first_member, exchange.end_member):
        lane = run.collectives.member_lane[k]
        dispatch_later(run.clock, run.devices, run.devices.work[lane].device)
        go_on(run.clock, RELEASE, lane)


@native
def end_cohorts(run: State, d: int) -> None:
    """End the cohorts of a device that are due, and the kernels without further blocks."""
    clock = run.clock
    devices = run.devices
    device = devices.rows[d]
    if device.alone >= 0:
        if run.record.active:
            run_alone(devices, run.record, d, device.alone, clock.now)
        end_kernel(clock, devices.work[device.alone], device.alone)
        device.alone = -1
    for i in range(end_due(devices, d, clock.now)):
        lane = devices.results[i]
        end_kernel(clock, devices.work[lane], lane)
    dispatch_later(clock, devices, d)


@native
def share_links_later(clock: ClockTable, links: LinkTable) -> None:
    """Schedule the sharing of links for the end of this instant."""
    if not links.sharing:
        links.sharing = 1
        go_on(clock, SHARE, clock.link_sharing)
