"""Processes of devices and collectives in the compiled engine: the dispatcher, the end of blocks, and arrivals."""

from simsched.base.jit import native
from simsched.simulator.clock import COMPLETE, DISPATCH, RELEASE, SHARE, go_on, push, set_timer
from simsched.simulator.contention import is_later
from simsched.simulator.device import end_due, join_others, refill, run_alone
from simsched.simulator.exchanges import LEAST_STRETCH, arrive, end_exchange
from simsched.simulator.state import State


@native
def end_kernel(s: State, lane: int) -> None:
    """End a kernel whose last block has ended."""
    if s.work[lane].latency > 0.0:
        push(s, s.now + s.work[lane].latency, COMPLETE, lane)
    else:
        go_on(s, RELEASE, lane)


@native
def dispatch_later(s: State, d: int) -> None:
    """Schedule the dispatcher of a device for the end of this instant."""
    if not s.devices[d].dispatching:
        s.devices[d].dispatching = 1
        go_on(s, DISPATCH, s.n_lanes + s.n_hosts + s.n_devices + 1 + d)


@native
def dispatch(s: State, d: int) -> None:
    """Issue blocks on a device, compute rates, and set the timer of the device."""
    device = s.devices[d]
    device.dispatching = 0
    if device.alone >= 0:
        if device.n_queue + device.n_running == 0 and device.copy_load == 0.0:
            work = s.work[device.alone]
            if work.start >= 0.0:
                return
            if not is_later(device.next_start, s.now):
                work.start = s.now
                device.next_start = s.now + device.graph_issue
                set_timer(s, d, s.now + (work.solo - work.latency))
                return
        join_others(s, d)
    set_timer(s, d, max(refill(s, d), s.now))
    for i in range(s.n_ready):
        arrive_at_collective(s, s.over[i])


@native
def arrive_at_collective(s: State, lane: int) -> None:
    """Mark a rank of a collective as ready; if it is the last one, the collective begins."""
    meeting = arrive(s, lane)
    if meeting >= 0:
        exchange = s.exchanges[meeting]
        who = first_exchange(s) + meeting
        if exchange.stretch < LEAST_STRETCH:
            push(s, s.now + s.work[lane].solo, COMPLETE, who)
        else:
            push(s, s.now + exchange.latency * exchange.stretch, RELEASE, who)


@native
def first_exchange(s: State) -> int:
    """Return the process number of the first collective."""
    return s.n_lanes + s.n_hosts + 2 * s.n_devices + 2


@native
def end_collective(s: State, meeting: int) -> None:
    """End all ranks of a collective."""
    end_exchange(s, meeting)
    exchange = s.exchanges[meeting]
    for k in range(exchange.first_member, exchange.end_member):
        lane = s.member_lane[k]
        dispatch_later(s, s.lanes[lane].device)
        go_on(s, RELEASE, lane)


@native
def end_cohorts(s: State, d: int) -> None:
    """End the cohorts of a device that are due, and the kernels without further blocks."""
    device = s.devices[d]
    if device.alone >= 0:
        if s.recording:
            run_alone(s, d, device.alone)
        end_kernel(s, device.alone)
        device.alone = -1
    for i in range(end_due(s, d)):
        end_kernel(s, s.over[i])
    dispatch_later(s, d)


@native
def share_links_later(s: State) -> None:
    """Schedule the sharing of links for the end of this instant."""
    if not s.sharing:
        s.sharing = 1
        go_on(s, SHARE, s.n_lanes + s.n_hosts + 2 * s.n_devices + 1)
