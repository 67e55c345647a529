"""Links and copy engines: flows that share them max-min fairly; one text for both engines."""

from math import inf

from simsched.simulator.contention import anchor_anew, finish_time, is_later, max_min_rates
from simsched.simulator.state import State


def begin_flow(s: State, lane: int, copy: int) -> None:
    """Begin to move the bytes of a copy at the head of a lane."""
    flow = s.work[lane]
    flow.row = copy
    flow.progress = flow.anchor = flow.rate = 0.0
    s.flows[s.n_flows] = lane
    s.n_flows += 1


def _finish_time(s: State, lane: int) -> float:
    flow = s.work[lane]
    return finish_time(flow.anchor, flow.progress, flow.rate, s.copy_nbytes[flow.row])


def _flow_rates(s: State) -> None:
    """Compute the rates of all flows; a copy has one engine: a channel of its own bounds it by that engine's rate."""
    at = 0
    for f in range(s.n_flows):
        lane, crossing = s.flows[f], s.crossings[f]
        route, d = s.routes[s.copy_route[s.work[lane].row]], s.lanes[lane].device
        crossing.first = at
        for k in range(route.first, route.end):
            s.crossed[at] = s.route_channels[k]
            at += 1
        s.crossed[at], s.crossed[at + 1] = s.n_channels - s.n_devices + d, s.n_channels + f
        at += 2
        crossing.end = at
        s.channels[s.n_channels + f].capacity = s.devices[d].copy_rate
    max_min_rates(s.n_flows, s.crossings, s.crossed, s.channels, s.live)


def share_flows(s: State) -> float:
    """Compute the rates of all copies and what they load at both ends; return when the next one ends, inf if none."""
    _flow_rates(s)
    for k in range(s.n_loaded):
        s.devices[s.loaded[k]].new_load = 0.0
    earliest = inf
    for f in range(s.n_flows):
        lane, rate = s.flows[f], s.crossings[f].rate
        anchor_anew(s.work[lane], s.now, rate)
        earliest = min(earliest, _finish_time(s, lane))
        _load(s, s.lanes[lane].device, rate)
        _load(s, s.copy_device[s.work[lane].row], rate)
    return earliest


def _load(s: State, d: int, rate: float) -> None:
    """Let a copy load the DRAM of a device."""
    device = s.devices[d]
    if not device.loaded:
        device.loaded, device.new_load = 1, 0.0
        s.loaded[s.n_loaded] = d
        s.n_loaded += 1
    device.new_load += rate / device.bandwidth


def take_loads(s: State) -> int:
    """Let devices have their new loads; return to how many of them that matters: numbers in `over`."""
    n, s.n_loaded, changed = s.n_loaded, 0, 0
    for k in range(n):
        d = s.loaded[k]
        device = s.devices[d]
        if device.new_load != device.copy_load and device.contention:
            device.copy_load = device.new_load
            s.over[changed] = d
            changed += 1
        device.loaded = device.new_load > 0.0
        if device.loaded:
            s.loaded[s.n_loaded] = d
            s.n_loaded += 1
    return changed


def end_due_flows(s: State) -> int:
    """Take off the copies whose last byte has arrived; return how many: lanes in `over`."""
    n, s.n_flows, ended = s.n_flows, 0, 0
    for f in range(n):
        lane = s.flows[f]
        if is_later(_finish_time(s, lane), s.now):
            s.flows[s.n_flows] = lane
            s.n_flows += 1
        else:
            s.over[ended] = lane
            ended += 1
    return ended
