"""Collectives: ranks wait for each other, then move bytes as one flow; both engines run this code."""

from typing import Final

from simsched.base.jit import native
from simsched.simulator.contention import is_later
from simsched.simulator.device import leave
from simsched.simulator.state import State

LEAST_STRETCH: Final = 1e-12
"""Smallest stretch of a collective that loads links, as a part of the time that the links need."""


@native
def arrive(s: State, lane: int) -> int:
    """Mark a rank as ready, whose blocks are resident; return its collective's number if it is the last rank, else -1.

    It is -1 as long as others are to come. The collective takes as long as the rank that takes longest alone.
    """
    work = s.work[lane]
    launch = s.launches[work.row]
    exchange = s.exchanges[launch.meeting]
    s.member_lane[exchange.first_member + launch.rank] = lane
    s.member_time[exchange.first_member + launch.rank] = s.now
    exchange.arrived += 1
    if exchange.arrived < exchange.end_member - exchange.first_member:
        return -1
    time = 0.0
    latest = -1
    for k in range(exchange.first_member, exchange.end_member):
        time = max(time, s.work[s.member_lane[k]].solo)
        if latest < 0 or s.member_time[k] > s.member_time[latest]:
            latest = k
    for k in range(exchange.first_member, exchange.end_member):
        member = s.work[s.member_lane[k]]
        member.start = s.now
        member.solo = time
    last = s.lanes[s.member_lane[latest]]
    exchange.cause = last.span_cause
    exchange.ready = last.ready
    exchange.stretch = time / exchange.solo
    return launch.meeting


@native
def follow_last(s: State, number: int) -> None:
    """Give a rank that has waited for others the ready time and the cause of the last of them."""
    lane = s.lanes[number]
    launch = s.launches[s.work[number].row]
    exchange = s.exchanges[launch.meeting]
    if is_later(s.work[number].start, s.member_time[exchange.first_member + launch.rank]):
        lane.ready = exchange.ready
        lane.span_cause = exchange.cause


@native
def end_exchange(s: State, meeting: int) -> None:
    """Return the room of all ranks of a collective."""
    exchange = s.exchanges[meeting]
    for k in range(exchange.first_member, exchange.end_member):
        lane = s.member_lane[k]
        d = s.lanes[lane].device
        if s.devices[d].contention and s.launches[s.work[lane].row].blocks:
            leave(s, d, lane)
