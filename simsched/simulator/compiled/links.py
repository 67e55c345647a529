"""Links and copy engines of the compiled engine; what `network` is to the reference."""

from math import inf

from simsched.simulator.compiled.blocks import dispatch_later
from simsched.simulator.compiled.events import go_on, set_timer
from simsched.simulator.compiled.state import RELEASE, SHARE, State
from simsched.simulator.contention import anchor_anew, finish_time, is_later, max_min_rates


def start_flow(s: State, lane: int) -> None:
    """Begin to move the bytes of the copy at the head of a lane."""
    flow = s.work[lane]
    flow.progress = flow.anchor = flow.rate = 0.0
    s.flows[s.n_flows] = lane
    s.n_flows += 1
    _share_links_later(s)


def _share_links_later(s: State) -> None:
    if not s.sharing:
        s.sharing = 1
        go_on(s, SHARE, s.n_lanes + s.n_hosts + 2 * s.n_devices + 1)


def _copy_of(s: State, lane: int) -> int:
    return s.items[s.lanes[lane].head].argument


def _finish_time(s: State, lane: int) -> float:
    flow = s.work[lane]
    return finish_time(flow.anchor, flow.progress, flow.rate, s.copy_nbytes[_copy_of(s, lane)])


def _flow_rates(s: State) -> None:
    """Compute the rates of all flows; a copy has one engine: a channel of its own bounds it by that engine's rate."""
    at = 0
    for f in range(s.n_flows):
        lane, crossing = s.flows[f], s.crossings[f]
        route, d = s.routes[s.copy_route[_copy_of(s, lane)]], s.lanes[lane].device
        crossing.first = at
        for k in range(route.first, route.end):
            s.crossed[at] = s.route_channels[k]
            at += 1
        s.crossed[at], s.crossed[at + 1] = s.n_channels - s.n_devices + d, s.n_channels + f
        at += 2
        crossing.end = at
        s.channels[s.n_channels + f].capacity = s.devices[d].copy_rate
    max_min_rates(s.n_flows, s.crossings, s.crossed, s.channels, s.live)


def share_links(s: State) -> None:
    """Compute the rates of all copies, what they load at both ends, and set the timer."""
    s.sharing = 0
    _flow_rates(s)
    for k in range(s.n_loaded):
        s.devices[s.loaded[k]].new_load = 0.0
    earliest = inf
    for f in range(s.n_flows):
        lane, rate = s.flows[f], s.crossings[f].rate
        anchor_anew(s.work[lane], s.now, rate)
        earliest = min(earliest, _finish_time(s, lane))
        _load(s, s.lanes[lane].device, rate)
        _load(s, s.copy_device[_copy_of(s, lane)], rate)
    set_timer(s, s.n_devices, max(earliest, s.now))
    n, s.n_loaded = s.n_loaded, 0
    for k in range(n):
        d = s.loaded[k]
        device = s.devices[d]
        if device.new_load != device.copy_load and device.contention:
            device.copy_load = device.new_load
            dispatch_later(s, d)
        device.loaded = device.new_load > 0.0
        if device.loaded:
            s.loaded[s.n_loaded] = d
            s.n_loaded += 1


def _load(s: State, d: int, rate: float) -> None:
    """Let a copy load the DRAM of a device."""
    device = s.devices[d]
    if not device.loaded:
        device.loaded, device.new_load = 1, 0.0
        s.loaded[s.n_loaded] = d
        s.n_loaded += 1
    device.new_load += rate / device.bandwidth


def end_flows(s: State) -> None:
    """End the copies whose last byte has arrived."""
    n, s.n_flows = s.n_flows, 0
    for f in range(n):
        lane = s.flows[f]
        if is_later(_finish_time(s, lane), s.now):
            s.flows[s.n_flows] = lane
            s.n_flows += 1
        else:
            go_on(s, RELEASE, lane)
    _share_links_later(s)
