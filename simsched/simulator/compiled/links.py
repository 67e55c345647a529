"""Copies of the compiled engine that move bytes."""

from simsched.simulator.compiled.events import go_on, set_timer
from simsched.simulator.compiled.gpu import dispatch_later
from simsched.simulator.links import begin_flow, end_due_flows, share_flows, take_loads
from simsched.simulator.state import RELEASE, SHARE, State


def start_flow(s: State, lane: int, copy: int) -> None:
    """Begin to move the bytes of the copy at the head of a lane."""
    begin_flow(s, lane, copy)
    _share_links_later(s)


def _share_links_later(s: State) -> None:
    if not s.sharing:
        s.sharing = 1
        go_on(s, SHARE, s.n_lanes + s.n_hosts + 2 * s.n_devices + 1)


def share_links(s: State) -> None:
    """Compute the rates of all copies, what they load at both ends, and set the timer."""
    s.sharing = 0
    set_timer(s, s.n_devices, max(share_flows(s), s.now))
    for k in range(take_loads(s)):
        dispatch_later(s, s.over[k])


def end_flows(s: State) -> None:
    """End the copies whose last byte has arrived."""
    for k in range(end_due_flows(s)):
        go_on(s, RELEASE, s.over[k])
    _share_links_later(s)
