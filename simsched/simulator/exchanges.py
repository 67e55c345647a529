"""Collectives: ranks wait for each other, then move bytes as one flow; both engines run this code."""

from typing import Final

from simsched.base.jit import native
from simsched.simulator.contention import is_later
from simsched.simulator.device import leave
from simsched.simulator.state import CollectiveTable, DeviceTable, Lane, LaneTable

LEAST_STRETCH: Final = 1e-12
"""Smallest stretch of a collective that loads links, as a part of the time that the links need."""


@native
def arrive(collectives: CollectiveTable, devices: DeviceTable, lanes: LaneTable, lane: int, now: float) -> int:
    """Mark a rank as ready, whose blocks are resident; return its collective's number if it is the last rank, else -1.

    It is -1 as long as others are to come. The collective takes as long as the rank that takes longest alone.
    """
    work = devices.work[lane]
    launch = devices.launches[work.row]
    exchange = collectives.rows[launch.meeting]
    collectives.member_lane[exchange.first_member + launch.rank] = lane
    collectives.member_time[exchange.first_member + launch.rank] = now
    exchange.arrived += 1
    if exchange.arrived < exchange.end_member - exchange.first_member:
        return -1
    time = 0.0
    latest = -1
    for k in range(exchange.first_member, exchange.end_member):
        time = max(time, devices.work[collectives.member_lane[k]].solo)
        if latest < 0 or collectives.member_time[k] > collectives.member_time[latest]:
            latest = k
    for k in range(exchange.first_member, exchange.end_member):
        member = devices.work[collectives.member_lane[k]]
        member.start = now
        member.solo = time
    last = lanes.rows[collectives.member_lane[latest]]
    exchange.cause = last.span_cause
    exchange.ready = last.ready
    exchange.stretch = time / exchange.solo
    return launch.meeting


@native
def follow_last(collectives: CollectiveTable, devices: DeviceTable, lane: Lane, number: int) -> None:
    """Give a rank that has waited for others the ready time and the cause of the last of them."""
    launch = devices.launches[devices.work[number].row]
    exchange = collectives.rows[launch.meeting]
    if is_later(devices.work[number].start, collectives.member_time[exchange.first_member + launch.rank]):
        lane.ready = exchange.ready
        lane.span_cause = exchange.cause


@native
def end_exchange(collectives: CollectiveTable, devices: DeviceTable, meeting: int) -> None:
    """Return the room of all ranks of a collective."""
    exchange = collectives.rows[meeting]
    for k in range(exchange.first_member, exchange.end_member):
        lane = collectives.member_lane[k]
        d = devices.work[lane].device
        if devices.rows[d].contention and devices.launches[devices.work[lane].row].blocks:
            leave(devices, d, lane)
