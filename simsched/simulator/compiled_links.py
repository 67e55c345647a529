"""Links and copy engines of the compiled engine; what `network` is to the reference."""

from typing import Any

import numpy as np

from simsched.simulator.compiled_contention import finish_time, is_over, max_min_rates
from simsched.simulator.compiled_events import clear_timer, push, set_timer
from simsched.simulator.compiled_gpu import dispatch_later
from simsched.simulator.compiled_layout import RELEASE, SHARE, TO_LANE, TO_SHARE
from simsched.simulator.compiled_tables import (
    capacity_at,
    channel_at,
    compiled,
    copy_at,
    device_at,
    flow_at,
    instruction_at,
    item_at,
    lane_at,
    route_at,
)


@compiled
def start_flow(s: Any, lane: int) -> None:
    """Begin to move the bytes of the copy at the head of a lane."""
    flow = lane_at(s, lane)
    flow.moved = flow.anchor = flow.rate = 0.0
    flow_at(s, s.n_flows).v = lane
    s.n_flows += 1
    _share_links_later(s)


@compiled
def _share_links_later(s: Any) -> None:
    if not s.sharing:
        s.sharing = 1
        push(s, s.now, SHARE, TO_SHARE, 0)


@compiled
def _copy_of(s: Any, lane: int) -> int:
    return int(instruction_at(s, item_at(s, lane_at(s, lane).head).instruction).argument)


@compiled
def _flow_rates(s: Any) -> Any:
    """Return the rates of all flows; a copy has one engine: a channel of its own bounds it by that engine's rate."""
    n, own = s.n_flows, s.n_capacity
    ptr = np.zeros(n + 1, np.int64)
    capacity = np.empty(own + n)
    for c in range(own):
        capacity[c] = capacity_at(s, c).v
    for f in range(n):
        route = route_at(s, copy_at(s, _copy_of(s, flow_at(s, f).v)).route)
        ptr[f + 1] = ptr[f] + route.end - route.first + 2
        capacity[own + f] = device_at(s, lane_at(s, flow_at(s, f).v).device).copy_rate
    channel = np.empty(ptr[n], np.int64)
    for f in range(n):
        route = route_at(s, copy_at(s, _copy_of(s, flow_at(s, f).v)).route)
        at = ptr[f]
        for k in range(route.first, route.end):
            channel[at] = channel_at(s, k).v
            at += 1
        channel[at] = s.n_engines + lane_at(s, flow_at(s, f).v).device
        channel[at + 1] = own + f
    return max_min_rates(ptr, channel, capacity)


@compiled
def share_links(s: Any) -> None:
    """Compute the rates of all copies, what they load at both ends, and set the timer."""
    s.sharing = 0
    now, links = s.now, s.n_devices
    earliest = np.inf
    rates = _flow_rates(s)
    load = np.zeros(s.n_devices)
    for f in range(s.n_flows):
        flow = lane_at(s, flow_at(s, f).v)
        copy = copy_at(s, _copy_of(s, flow_at(s, f).v))
        if rates[f] != flow.rate:
            flow.moved += (now - flow.anchor) * flow.rate
            flow.anchor, flow.rate = now, rates[f]
        earliest = min(earliest, finish_time(flow.anchor, flow.moved, flow.rate, copy.nbytes))
        load[flow.device] += flow.rate / device_at(s, flow.device).bandwidth
        load[copy.device] += flow.rate / device_at(s, copy.device).bandwidth
    clear_timer(s, links)
    if s.n_flows:
        set_timer(s, links, max(earliest, now))
    for d in range(s.n_devices):
        device = device_at(s, d)
        if load[d] != device.copy_load and device.contention:
            device.copy_load = load[d]
            dispatch_later(s, d)


@compiled
def end_flows(s: Any) -> None:
    """End the copies whose last byte has arrived."""
    clear_timer(s, s.n_devices)
    left = 0
    for f in range(s.n_flows):
        lane = flow_at(s, f).v
        flow = lane_at(s, lane)
        if is_over(finish_time(flow.anchor, flow.moved, flow.rate, copy_at(s, _copy_of(s, lane)).nbytes), s.now):
            push(s, s.now, RELEASE, TO_LANE, lane)
        else:
            flow_at(s, left).v = lane
            left += 1
    s.n_flows = left
    _share_links_later(s)
