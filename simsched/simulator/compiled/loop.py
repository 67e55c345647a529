"""The loop of the compiled engine."""

from math import inf
from typing import Final

from simsched.base.jit import piece
from simsched.simulator.compiled.events import go_on, leave, open_instant
from simsched.simulator.compiled.gpu import dispatch, end_cohorts, end_flows, share_links
from simsched.simulator.compiled.streams import LAUNCH_OVER, TURN, run_host, run_lane
from simsched.simulator.state import ASLEEP, COMPLETE, FULL, NEW, OVER, PHASES, RELEASE, RUNNING, STUCK, State

BUDGET: Final = 2**16
"""Events after which a run returns, so that an interruption by the user is heard."""
MOST_POINTS: Final = 64
"""Of a load curve that an event may add: a kernel by itself has been on the device for some waves."""


@piece("simulator")
def run_samples(s: State) -> None:
    """Run the samples, as far as a budget of events and the room for points reach; then go on where they ended."""
    if s.status == NEW:
        s.sample = 0
        reset(s)
    s.status, left = RUNNING, BUDGET
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


def _process(s: State, phase: int) -> None:
    """Let the first in the queue of a phase go on."""
    who = leave(s, phase)
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
    elif who == s.n_devices:
        end_flows(s)
    elif who <= 2 * s.n_devices:
        dispatch(s, who - s.n_devices - 1)
    else:
        share_links(s)


def _end(s: State) -> None:
    """End a sample in which nothing is left to happen."""
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


def reset(s: State) -> None:
    """Go back to before the start."""
    s.now = s.limit = s.makespan = 0.0
    s.count = s.n_later = s.n_spans = s.n_points = s.n_flows = s.n_loaded = s.sharing = 0
    for phase in range(PHASES):
        s.queues[phase] = -1
    for i in range(2 * s.n_timers):
        s.timers[i] = inf
    for i in range(2 * s.n_events + s.n_devices):
        event = s.events[i]
        event.time = inf if i < 2 * s.n_events else 0.0  # a device has nothing to do at first
        event.cause = event.waiters = -1
    for i in range(s.n_connections):
        connection = s.connections[i]
        connection.head = connection.tail = connection.first
        connection.waiters = -1
    for i in range(s.n_lanes):
        lane = s.lanes[i]
        lane.time = lane.free = 0.0
        lane.head = lane.tail = lane.first
        lane.state = ASLEEP
        lane.cause = lane.free_cause = lane.span_cause = -1
    for d in range(s.n_devices):
        device, room, free = s.devices[d], s.room[d], s.free[d]
        device.copy_load = device.last_time = 0.0
        device.outstanding = device.n_queue = device.n_running = device.n_resident = 0
        device.dispatching = device.freed = device.loaded = 0
        device.skipping = device.alone = device.last_row = -1
        free.warps, free.blocks = room.warps, room.blocks
        free.registers, free.shared_memory = room.registers, room.shared_memory
        if s.recording:  # it is idle at first
            device.point = s.n_points
            s.n_points += 1
            point = s.points[device.point]
            point.device, point.time = d, 0.0
            point.sm = point.dram = point.warps = point.active = 0.0
    for t in range(s.n_hosts):
        host = s.hosts[t]
        host.time, host.at, host.state, host.cause = 0.0, s.thread_ptr[t], TURN, -1
        go_on(s, RELEASE, s.n_lanes + t)
