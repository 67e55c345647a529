"""Flows that share links and copy engines max-min fairly; both engines run this code."""

from math import inf
from typing import Final

from simsched.base.jit import native
from simsched.simulator.contention import FlowPath, finish_time, is_later, set_rate
from simsched.simulator.state import CollectiveTable, DeviceTable, LinkTable

_BEHIND_COPIES: Final = 2**30
"""Number of the first flow of a collective; flows of copies have lower numbers."""


@native
def begin_flow(links: LinkTable, devices: DeviceTable, number: int, row: int, now: float) -> None:
    """Begin a flow, whose number is its lane for a copy; flows that begin in one instant are in the order of rows."""
    flow = devices.work[number]
    i = links.n_flows
    flow.row = row
    flow.arrival = now
    flow.progress = flow.anchor = flow.rate = 0.0
    while i > 0 and devices.work[links.flows[i - 1]].arrival == now and devices.work[links.flows[i - 1]].row > row:
        links.flows[i] = links.flows[i - 1]
        i -= 1
    links.flows[i] = number
    links.n_flows += 1


@native
def begin_exchange(links: LinkTable, devices: DeviceTable, meeting: int, now: float) -> None:
    """Begin the flow of a collective, after the copies of its instant, in the order of collectives."""
    begin_flow(links, devices, links.first_collective + meeting, _BEHIND_COPIES + meeting, now)


@native
def _nbytes(links: LinkTable, devices: DeviceTable, collectives: CollectiveTable, number: int) -> float:
    """Return the bytes of a flow; a collective counts the bytes that each rank sends."""
    if number < links.first_collective:
        return links.copy_nbytes[devices.work[number].row]
    return collectives.rows[number - links.first_collective].nbytes


@native
def _flow_rates(links: LinkTable, devices: DeviceTable, collectives: CollectiveTable) -> None:
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
    for d in range(devices.n):
        devices.rows[d].n_moving = 0
    for f in range(links.n_flows):
        number = links.flows[f]
        flow = links.crossings[f]
        if number >= links.first_collective:
            at = _cross_exchange(links, collectives, f, at)
            weighted = 1
            continue
        source = devices.rows[devices.work[number].device]
        source.n_moving += 1
        if source.n_moving > source.copy_engines:  # each copy occupies an engine; the others wait in order
            flow.rate = 0.0
            flow.first = at
            flow.end = at
            continue
        route = links.routes[links.copy_route[devices.work[number].row]]
        d = devices.work[number].device
        links.channels[links.n_channels + f].capacity = devices.rows[d].copy_rate
        flow.rate = inf  # it stays so if all that the flow crosses is unlimited
        flow.first = at
        for k in range(route.first, route.end):
            links.crossed[at] = links.route_channels[k]
            at += 1
        links.crossed[at] = links.n_channels - devices.n + d
        links.crossed[at + 1] = links.n_channels + f
        at += 2
        flow.end = at
        for k in range(flow.first, flow.end):
            channel = links.channels[links.crossed[k]]
            if channel.capacity < inf:
                if channel.users == 0:
                    links.live[n_live] = links.crossed[k]
                    channel.left = channel.capacity
                    n_live += 1
                channel.users += 1
    if weighted:
        _share_weighted(links, n_live)
        return
    while True:
        tightest = -1
        share = inf
        for i in range(n_live):
            channel = links.channels[links.live[i]]
            if channel.users > 0 and channel.left / channel.users < share:
                tightest = links.live[i]
                share = channel.left / channel.users
        if tightest < 0:
            return
        for f in range(links.n_flows):
            flow = links.crossings[f]
            if flow.rate == inf and _crosses(links, flow, tightest):
                flow.rate = share
                for k in range(flow.first, flow.end):
                    channel = links.channels[links.crossed[k]]
                    if channel.capacity < inf:
                        channel.left = max(0.0, channel.left - share)
                        channel.users -= 1


@native
def _cross_exchange(links: LinkTable, collectives: CollectiveTable, f: int, start: int) -> int:
    """Write the channels of a collective from a place on; return the place after them."""
    flow = links.crossings[f]
    at = start
    exchange = collectives.rows[links.flows[f] - links.first_collective]
    links.channels[links.n_channels + f].capacity = exchange.rate / exchange.stretch
    flow.rate = inf
    flow.first = start
    for k in range(exchange.first, exchange.end):
        links.crossed[at] = collectives.channels[k]
        links.weights[at] = collectives.weights[k] * min(1.0, exchange.stretch)
        at += 1
    links.crossed[at] = links.n_channels + f
    links.weights[at] = 1.0
    flow.end = at + 1
    return at + 1


@native
def _share_weighted(links: LinkTable, in_use: int) -> None:
    """Fill channels with copies and collectives, by weights; the first channels are used by copies, too."""
    n = in_use
    for i in range(in_use):
        channel = links.channels[links.live[i]]
        channel.load = float(channel.users)
    for f in range(links.n_flows):
        flow = links.crossings[f]
        for k in range(flow.first, flow.end):
            if links.flows[f] < links.first_collective:
                links.weights[k] = 1.0
                continue
            channel = links.channels[links.crossed[k]]
            if channel.users == 0:
                links.live[n] = links.crossed[k]
                channel.left = channel.capacity
                channel.load = 0.0
                n += 1
            channel.users += 1
            channel.load += links.weights[k]
    while True:
        tightest = -1
        share = inf
        for i in range(n):
            channel = links.channels[links.live[i]]
            if channel.users > 0 and channel.left / channel.load < share:
                tightest = links.live[i]
                share = channel.left / channel.load
        if tightest < 0:
            return
        for f in range(links.n_flows):
            flow = links.crossings[f]
            if flow.rate == inf and _crosses(links, flow, tightest):
                flow.rate = share
                for k in range(flow.first, flow.end):
                    channel = links.channels[links.crossed[k]]
                    if channel.capacity < inf:
                        channel.left = max(0.0, channel.left - share * links.weights[k])
                        channel.users -= 1
                        channel.load -= links.weights[k]


@native
def _crosses(links: LinkTable, flow: FlowPath, channel: int) -> bool:
    for k in range(flow.first, flow.end):
        if links.crossed[k] == channel:
            return True
    return False


@native
def share_flows(links: LinkTable, devices: DeviceTable, collectives: CollectiveTable, now: float) -> float:
    """Compute the rates of all flows and the DRAM loads of their ends; return when the next flow ends, inf if none."""
    _flow_rates(links, devices, collectives)
    for k in range(links.n_loaded):
        devices.rows[links.loaded[k]].new_load = 0.0
    earliest = inf
    for f in range(links.n_flows):
        number = links.flows[f]
        rate = links.crossings[f].rate
        flow = devices.work[number]
        set_rate(flow, now, rate)
        if rate == 0.0:
            continue
        earliest = min(earliest, finish_time(flow, _nbytes(links, devices, collectives, number)))
        if number < links.first_collective:
            _load(links, devices, flow.device, rate)
            _load(links, devices, links.copy_device[flow.row], rate)
        else:  # a rank sends as many bytes as it receives
            exchange = collectives.rows[number - links.first_collective]
            for k in range(exchange.first_member, exchange.end_member):
                member = devices.work[collectives.member_lane[k]]
                _load(links, devices, member.device, 2.0 * rate * min(1.0, exchange.stretch))
    return earliest


@native
def _load(links: LinkTable, devices: DeviceTable, d: int, rate: float) -> None:
    """Add the load of a copy to the DRAM of a device."""
    device = devices.rows[d]
    if not device.loaded:
        device.loaded = 1
        device.new_load = 0.0
        links.loaded[links.n_loaded] = d
        links.n_loaded += 1
    device.new_load += rate / device.bandwidth


@native
def take_loads(links: LinkTable, devices: DeviceTable) -> int:
    """Give devices their new loads; return the number of devices whose kernels that affects, numbers in `results`."""
    n = links.n_loaded
    links.n_loaded = 0
    changed = 0
    for k in range(n):
        d = links.loaded[k]
        device = devices.rows[d]
        if device.new_load != device.copy_load and device.contention:
            device.copy_load = device.new_load
            links.results[changed] = d
            changed += 1
        device.loaded = device.new_load > 0.0
        if device.loaded:
            links.loaded[links.n_loaded] = d
            links.n_loaded += 1
    return changed


@native
def end_due_flows(links: LinkTable, devices: DeviceTable, collectives: CollectiveTable, now: float) -> int:
    """Remove the flows that are complete; return how many; their numbers are in `results`."""
    n = links.n_flows
    links.n_flows = 0
    ended = 0
    for f in range(n):
        number = links.flows[f]
        flow = devices.work[number]
        if flow.rate == 0.0 or is_later(finish_time(flow, _nbytes(links, devices, collectives, number)), now):
            links.flows[links.n_flows] = number
            links.n_flows += 1
        else:
            links.results[ended] = number
            ended += 1
    return ended
