"""Links and copy engines of the compiled engine; what `network` is to the reference."""

from typing import Any

import numpy as np

from simsched.machine_columns import floats, ints
from simsched.simulator.compiled.contention import finish_time, is_over, max_min_rates
from simsched.simulator.compiled.events import go_on, set_timer
from simsched.simulator.compiled.gpu import dispatch_later
from simsched.simulator.compiled.layout import RELEASE, SHARE
from simsched.simulator.compiled.tables import (
    channel_at,
    compiled,
    copy_device_at,
    copy_nbytes_at,
    copy_route_at,
    device_at,
    flow_at,
    item_at,
    lane_at,
    loaded_at,
    moving_at,
    route_at,
)


@compiled
def start_flow(s: Any, lane: int) -> None:
    """Begin to move the bytes of the copy at the head of a lane."""
    flow = moving_at(s, lane)
    flow.moved = flow.anchor = flow.rate = 0.0
    flow_at(s, s.n_flows).v = lane
    s.n_flows += 1
    _share_links_later(s)


@compiled
def _share_links_later(s: Any) -> None:
    if not s.sharing:
        s.sharing = 1
        go_on(s, SHARE, s.n_lanes + s.n_hosts + 2 * s.n_devices + 1)


@compiled
def _copy_of(s: Any, lane: int) -> int:
    return int(item_at(s, lane_at(s, lane).head).argument)


@compiled
def _flow_rates(s: Any) -> None:
    """Compute the rates of all flows; a copy has one engine: a channel of its own bounds it by that engine's rate."""
    own = s.n_capacity
    ptr, channel, capacity = ints(s.flow_ptr), ints(s.flow_channel), floats(s.capacity)
    at = 0
    for f in range(s.n_flows):
        lane = flow_at(s, f).v
        route, d = route_at(s, copy_route_at(s, _copy_of(s, lane)).v), lane_at(s, lane).device
        ptr[f] = at
        for k in range(route.first, route.end):
            channel[at] = channel_at(s, k).v
            at += 1
        channel[at], channel[at + 1] = s.n_engines + d, own + f
        at += 2
        capacity[own + f] = device_at(s, d).copy_rate
    ptr[s.n_flows] = at
    left, users, live = floats(s.channel_left), ints(s.channel_users), ints(s.channel_live)
    max_min_rates(s.n_flows, ptr, channel, capacity, left, users, live, floats(s.flow_rate))


@compiled
def share_links(s: Any) -> None:
    """Compute the rates of all copies, what they load at both ends, and set the timer."""
    s.sharing = 0
    now, rates = s.now, floats(s.flow_rate)
    earliest = np.inf
    _flow_rates(s)
    for k in range(s.n_loaded):
        device_at(s, loaded_at(s, k).v).new_load = 0.0
    for f in range(s.n_flows):
        lane = flow_at(s, f).v
        flow, copy = moving_at(s, lane), _copy_of(s, lane)
        if rates[f] != flow.rate:
            flow.moved += (now - flow.anchor) * flow.rate
            flow.anchor, flow.rate = now, rates[f]
        earliest = min(earliest, finish_time(flow.anchor, flow.moved, flow.rate, copy_nbytes_at(s, copy).v))
        _load(s, lane_at(s, lane).device, flow.rate)
        _load(s, copy_device_at(s, copy).v, flow.rate)
    set_timer(s, s.n_devices, max(earliest, now))
    kept = 0
    for k in range(s.n_loaded):
        d = loaded_at(s, k).v
        device = device_at(s, d)
        if device.new_load != device.copy_load and device.contention:
            device.copy_load = device.new_load
            dispatch_later(s, d)
        if device.new_load > 0.0:
            loaded_at(s, kept).v = d
            kept += 1
        else:
            device.loaded = 0
    s.n_loaded = kept


@compiled
def _load(s: Any, d: int, rate: float) -> None:
    """Let a copy load the DRAM of a device."""
    device = device_at(s, d)
    if not device.loaded:
        device.loaded = 1
        device.new_load = 0.0
        loaded_at(s, s.n_loaded).v = d
        s.n_loaded += 1
    device.new_load += rate / device.bandwidth


@compiled
def end_flows(s: Any) -> None:
    """End the copies whose last byte has arrived."""
    left = 0
    for f in range(s.n_flows):
        lane = flow_at(s, f).v
        flow = moving_at(s, lane)
        if is_over(finish_time(flow.anchor, flow.moved, flow.rate, copy_nbytes_at(s, _copy_of(s, lane)).v), s.now):
            go_on(s, RELEASE, lane)
        else:
            flow_at(s, left).v = lane
            left += 1
    s.n_flows = left
    _share_links_later(s)
