"""Flows that share links and copy engines max-min fairly; both engines run this code."""

from math import inf
from typing import Final

from simsched.base.jit import native
from simsched.simulator.contention import FlowPath, finish_time, is_later, set_rate
from simsched.simulator.state import State

_BEHIND_COPIES: Final = 2**30
"""Number of the first flow of a collective; flows of copies have lower numbers."""


@native
def begin_flow(s: State, lane: int, copy: int) -> None:
    """Begin the flow of a copy at the head of a lane; flows that begin in one instant are in the order of copies."""
    flow = s.work[lane]
    i = s.n_flows
    flow.row = copy
    flow.arrival = s.now
    flow.progress = flow.anchor = flow.rate = 0.0
    while i > 0 and s.work[s.flows[i - 1]].arrival == s.now and s.work[s.flows[i - 1]].row > copy:
        s.flows[i] = s.flows[i - 1]
        i -= 1
    s.flows[i] = lane
    s.n_flows += 1


@native
def begin_exchange(s: State, meeting: int) -> None:
    """Begin the flow of a collective, after the copies of its instant, in the order of collectives."""
    begin_flow(s, s.n_lanes + meeting, _BEHIND_COPIES + meeting)


@native
def _nbytes(s: State, f: int) -> float:
    """Return the bytes of a flow; a collective counts the bytes that each rank sends."""
    who = s.flows[f]
    if who < s.n_lanes:
        return s.copy_nbytes[s.work[who].row]
    return s.exchanges[who - s.n_lanes].nbytes


@native
def _flow_rates(s: State) -> None:
    """Compute the max-min fair rate of each flow.

    Notes
    -----
    Progressive filling: the channel with the least capacity per flow fixes the rate of its flows (of equal ones the
    channel that was first used), then the rest is shared anew. A copy has one engine: a channel of its own bounds it by
    that engine's rate. Of the copies of a device as many move as it has engines, those that began first. A collective
    is one flow, which takes from each channel so many times its rate; a channel of its own bounds it by the rate that
    it has alone. Time is O(channels in use x crossings), whatever else there is.
    """
    at = n_live = weighted = 0
    for d in range(s.n_devices):
        s.devices[d].n_moving = 0
    for f in range(s.n_flows):
        lane = s.flows[f]
        flow = s.crossings[f]
        if lane >= s.n_lanes:
            at = _cross_exchange(s, f, at)
            weighted = 1
            continue
        source = s.devices[s.lanes[lane].device]
        source.n_moving += 1
        if source.n_moving > source.copy_engines:  # each copy occupies an engine; the others wait in order
            flow.rate = 0.0
            flow.first = at
            flow.end = at
            continue
        route = s.routes[s.copy_route[s.work[lane].row]]
        d = s.lanes[lane].device
        s.channels[s.n_channels + f].capacity = s.devices[d].copy_rate
        flow.rate = inf  # it stays so if all that the flow crosses is unlimited
        flow.first = at
        for k in range(route.first, route.end):
            s.crossed[at] = s.route_channels[k]
            at += 1
        s.crossed[at] = s.n_channels - s.n_devices + d
        s.crossed[at + 1] = s.n_channels + f
        at += 2
        flow.end = at
        for k in range(flow.first, flow.end):
            channel = s.channels[s.crossed[k]]
            if channel.capacity < inf:
                if channel.users == 0:
                    s.live[n_live] = s.crossed[k]
                    channel.left = channel.capacity
                    n_live += 1
                channel.users += 1
    if weighted:
        _share_weighted(s, n_live)
        return
    while True:
        tightest = -1
        share = inf
        for i in range(n_live):
            channel = s.channels[s.live[i]]
            if channel.users > 0 and channel.left / channel.users < share:
                tightest = s.live[i]
                share = channel.left / channel.users
        if tightest < 0:
            return
        for f in range(s.n_flows):
            flow = s.crossings[f]
            if flow.rate == inf and _crosses(s, flow, tightest):
                flow.rate = share
                for k in range(flow.first, flow.end):
                    channel = s.channels[s.crossed[k]]
                    if channel.capacity < inf:
                        channel.left = max(0.0, channel.left - share)
                        channel.users -= 1


@native
def _cross_exchange(s: State, f: int, start: int) -> int:
    """Write the channels of a collective from a place on; return the place after them."""
    flow = s.crossings[f]
    at = start
    exchange = s.exchanges[s.flows[f] - s.n_lanes]
    s.channels[s.n_channels + f].capacity = exchange.rate / exchange.stretch
    flow.rate = inf
    flow.first = start
    for k in range(exchange.first, exchange.end):
        s.crossed[at] = s.exchange_channels[k]
        s.weights[at] = s.exchange_weights[k] * min(1.0, exchange.stretch)
        at += 1
    s.crossed[at] = s.n_channels + f
    s.weights[at] = 1.0
    flow.end = at + 1
    return at + 1


@native
def _share_weighted(s: State, in_use: int) -> None:
    """Fill channels with copies and collectives, by weights; the first channels are used by copies, too."""
    n = in_use
    for i in range(in_use):
        channel = s.channels[s.live[i]]
        channel.load = float(channel.users)
    for f in range(s.n_flows):
        flow = s.crossings[f]
        for k in range(flow.first, flow.end):
            if s.flows[f] < s.n_lanes:
                s.weights[k] = 1.0
                continue
            channel = s.channels[s.crossed[k]]
            if channel.users == 0:
                s.live[n] = s.crossed[k]
                channel.left = channel.capacity
                channel.load = 0.0
                n += 1
            channel.users += 1
            channel.load += s.weights[k]
    while True:
        tightest = -1
        share = inf
        for i in range(n):
            channel = s.channels[s.live[i]]
            if channel.users > 0 and channel.left / channel.load < share:
                tightest = s.live[i]
                share = channel.left / channel.load
        if tightest < 0:
            return
        for f in range(s.n_flows):
            flow = s.crossings[f]
            if flow.rate == inf and _crosses(s, flow, tightest):
                flow.rate = share
                for k in range(flow.first, flow.end):
                    channel = s.channels[s.crossed[k]]
                    if channel.capacity < inf:
                        channel.left = max(0.0, channel.left - share * s.weights[k])
                        channel.users -= 1
                        channel.load -= s.weights[k]


@native
def _crosses(s: State, flow: FlowPath, channel: int) -> bool:
    for k in range(flow.first, flow.end):
        if s.crossed[k] == channel:
            return True
    return False


@native
def share_flows(s: State) -> float:
    """Compute the rates of all flows and the DRAM loads of their ends; return when the next flow ends, inf if none."""
    _flow_rates(s)
    for k in range(s.n_loaded):
        s.devices[s.loaded[k]].new_load = 0.0
    earliest = inf
    for f in range(s.n_flows):
        lane = s.flows[f]
        rate = s.crossings[f].rate
        flow = s.work[lane]
        set_rate(flow, s.now, rate)
        if rate == 0.0:
            continue
        earliest = min(earliest, finish_time(flow, _nbytes(s, f)))
        if lane < s.n_lanes:
            _load(s, s.lanes[lane].device, rate)
            _load(s, s.copy_device[flow.row], rate)
        else:  # a rank sends as many bytes as it receives
            exchange = s.exchanges[lane - s.n_lanes]
            for k in range(exchange.first_member, exchange.end_member):
                _load(s, s.lanes[s.member_lane[k]].device, 2.0 * rate * min(1.0, exchange.stretch))
    return earliest


@native
def _load(s: State, d: int, rate: float) -> None:
    """Add the load of a copy to the DRAM of a device."""
    device = s.devices[d]
    if not device.loaded:
        device.loaded = 1
        device.new_load = 0.0
        s.loaded[s.n_loaded] = d
        s.n_loaded += 1
    device.new_load += rate / device.bandwidth


@native
def take_loads(s: State) -> int:
    """Give devices their new loads; return the number of devices whose kernels that affects, numbers in `over`."""
    n = s.n_loaded
    s.n_loaded = 0
    changed = 0
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


@native
def end_due_flows(s: State) -> int:
    """Remove the flows that are complete; return their number: in `over` are lanes, or `n_lanes` + collectives."""
    n = s.n_flows
    s.n_flows = 0
    ended = 0
    for f in range(n):
        lane = s.flows[f]
        if s.work[lane].rate == 0.0 or is_later(finish_time(s.work[lane], _nbytes(s, f)), s.now):
            s.flows[s.n_flows] = lane
            s.n_flows += 1
        else:
            s.over[ended] = lane
            ended += 1
    return ended
