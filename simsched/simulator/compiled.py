"""The compiled engine: the model of `reference` with the same results, in machine code.

Processes have numbers: lanes, host threads, timers of devices, the timer of links, dispatchers of devices, the sharing
of links, and collectives, in this order. A process waits in one list, is in one queue of the present instant, or
continues at one later time. The state of a host or a lane is the place at which the process of the reference waits.

A host runs ahead of the clock: the times at which it issues depend only on its earlier instructions and on other
hosts, so it issues at once and stops only where it has to wait for a device. Where several threads act on one device,
the order between them matters: then each takes one step in an instant, as in the reference.
"""

from typing import Final

from simsched.base.jit import native, piece
from simsched.simulator.clock import COMPLETE, RELEASE, go_on, open_instant, set_timer
from simsched.simulator.dispatchers import dispatch, dispatch_later, end_cohorts, end_collective, share_links_later
from simsched.simulator.hosts import run_host
from simsched.simulator.lanes import run_lane
from simsched.simulator.links import begin_exchange, end_due_flows, share_flows, take_loads
from simsched.simulator.reset import reset
from simsched.simulator.state import FULL, LAUNCH_OVER, NEW, OVER, PHASES, RUNNING, STUCK, State

BUDGET: Final = 2**16
"""Events after which a run returns, so that it handles an interruption by the user."""
MOST_POINTS: Final = 64
"""Most points of a load curve that an event adds: a kernel that was alone on the device adds one for each wave."""


@piece("simulator")
def run_samples(s: State) -> None:
    """Run the samples until `BUDGET` events are over or points have no room; a further call continues them."""
    if s.status == NEW:
        reset(s)
    s.status = RUNNING
    left = BUDGET
    while s.status == RUNNING:
        phase = 0
        while phase < PHASES and s.queues[phase] < 0:
            phase += 1
        if phase == PHASES:
            if not open_instant(s):
                _end(s)
        elif left == 0:
            return
        elif s.recording and s.n_points + MOST_POINTS > s.point_room:
            s.status = FULL
        else:
            left -= 1
            _process(s, phase)


@native
def _process(s: State, phase: int) -> None:
    """Continue the first process in the queue of a phase."""
    last = s.queues[phase]
    who = s.next[last]
    s.next[last] = s.next[who]
    if who == last:
        s.queues[phase] = -1
    if who < s.n_lanes:
        if phase == COMPLETE and s.lanes[who].state == LAUNCH_OVER:
            go_on(s, RELEASE, who)
        else:
            run_lane(s, who)
        return
    who -= s.n_lanes
    if who < s.n_hosts:
        run_host(s, who)
        return
    who -= s.n_hosts
    if who < s.n_devices:
        end_cohorts(s, who)
    elif who == s.n_devices:  # the timer of links: flows are complete
        for k in range(end_due_flows(s)):
            if s.over[k] < s.n_lanes:
                go_on(s, RELEASE, s.over[k])
            else:
                end_collective(s, s.over[k] - s.n_lanes)
        share_links_later(s)
    elif who <= 2 * s.n_devices:
        dispatch(s, who - s.n_devices - 1)
    elif who > 2 * s.n_devices + 1:  # a collective begins or ends
        meeting = who - 2 * s.n_devices - 2
        if phase == COMPLETE:
            end_collective(s, meeting)
        else:
            begin_exchange(s, meeting)
            share_links_later(s)
    else:  # the sharing of links: rates of flows, and DRAM loads of their ends
        s.sharing = 0
        set_timer(s, s.n_devices, max(share_flows(s), s.now))
        for k in range(take_loads(s)):
            dispatch_later(s, s.over[k])


@native
def _end(s: State) -> None:
    """End a sample without further events."""
    for t in range(s.n_hosts):
        if s.hosts[t].at < s.thread_ptr[t + 1]:
            s.status = STUCK
    for i in range(s.n_lanes):
        if s.lanes[i].head < s.lanes[i].tail:
            s.status = STUCK
    if s.status == RUNNING:
        s.makespans[s.sample] = s.makespan
        s.sample += 1
        if s.sample < s.n_samples:
            reset(s)
        else:
            s.status = OVER
