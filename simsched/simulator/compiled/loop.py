"""The loop of the compiled engine."""

from typing import Any

import numpy as np

from simsched.machine_columns import ints
from simsched.simulator.compiled.events import go_on, open_instant
from simsched.simulator.compiled.gpu import dispatch, end_cohorts
from simsched.simulator.compiled.hosts import run_host
from simsched.simulator.compiled.layout import COMPLETE, FULL, OVER, PHASES, RELEASE, RUNNING, STUCK
from simsched.simulator.compiled.links import end_flows, share_links
from simsched.simulator.compiled.streams import LAUNCH_OVER, run_lane
from simsched.simulator.compiled.tables import (
    compiled,
    connection_at,
    device_at,
    event_at,
    free_at,
    host_at,
    lane_at,
    makespan_at,
    next_at,
    queue_at,
    room_at,
    run_at,
    thread_ptr_at,
    timer_at,
)


@compiled
def _reset(s: Any) -> None:
    """Go back to before the start."""
    s.now = s.limit = s.makespan = 0.0
    s.count = s.n_later = s.n_spans = s.n_points = s.n_flows = s.n_loaded = s.sharing = 0
    for phase in range(PHASES):
        queue_at(s, phase).head = -1
    for i in range(2 * s.n_timers):
        timer_at(s, i).v = np.inf
    for i in range(s.n_events):
        event = event_at(s, i)
        event.issued = event.reached = np.inf
        event.issue_waiters = event.reach_waiters = -1
    users = ints(s.channel_users)
    for i in range(s.n_capacity + s.n_most_flows):
        users[i] = 0
    for i in range(s.n_connections):
        connection = connection_at(s, i)
        connection.head = connection.tail = connection.first
        connection.waiters = -1
    for i in range(s.n_lanes):
        lane = lane_at(s, i)
        lane.time = lane.free = 0.0
        lane.head = lane.tail = lane.first
        lane.state, lane.asleep = 0, 1
        lane.cause = lane.free_cause = lane.span_cause = -1
    for d in range(s.n_devices):
        device = device_at(s, d)
        device.copy_load = device.drained = device.last_time = device.sm = device.dram = device.warps = (
            device.active
        ) = 0.0
        device.outstanding = device.n_queue = device.n_running = device.n_resident = 0
        device.dispatching = device.freed = device.loaded = 0
        device.point = device.skipping = device.last_kernel = device.last_row = device.waiters = -1
    for i in range(4 * s.n_devices):
        free_at(s, i).v = room_at(s, i).v
    for t in range(s.n_hosts):
        host = host_at(s, t)
        host.time, host.at, host.state, host.cause = 0.0, thread_ptr_at(s, t).v, 0, -1
        go_on(s, RELEASE, s.n_lanes + t)
    s.status = RUNNING


@compiled
def _end(s: Any) -> int:
    """Return whether all is done when nothing is left to happen."""
    for t in range(s.n_hosts):
        if host_at(s, t).at < thread_ptr_at(s, t + 1).v:
            return STUCK
    for i in range(s.n_lanes):
        if lane_at(s, i).head < lane_at(s, i).tail:
            return STUCK
    return OVER


def run_samples(address: int) -> None:
    """Run the samples of the run at an address, as far as its budget of events and its room for points reach."""
    s = run_at(address)
    left = s.budget
    while s.sample < s.n_samples:
        if not s.begun:
            _reset(s)
            s.begun = 1
        while s.status == RUNNING or s.status == FULL:
            phase = 0
            while phase < PHASES and queue_at(s, phase).head < 0:
                phase += 1
            if phase == PHASES:
                if not open_instant(s):
                    s.status = _end(s)
                continue
            if left == 0:
                return
            if s.recording and s.n_points >= s.point_room:
                s.status = FULL
                return
            left -= 1
            s.n_steps += 1
            queue = queue_at(s, phase)
            who = queue.head
            queue.head = next_at(s, who).v
            if who < s.n_lanes:
                if phase == COMPLETE and lane_at(s, who).state == LAUNCH_OVER:
                    go_on(s, RELEASE, who)
                else:
                    run_lane(s, who)
                continue
            who -= s.n_lanes
            if who < s.n_hosts:
                run_host(s, who)
                continue
            who -= s.n_hosts
            if who < s.n_devices:
                end_cohorts(s, who)
            elif who == s.n_devices:
                end_flows(s)
            elif who <= 2 * s.n_devices:
                dispatch(s, who - s.n_devices - 1)
            else:
                share_links(s)
        if s.status != OVER:
            return
        makespan_at(s, s.sample).v = s.makespan
        s.sample += 1
        s.begun = 0
