"""The state of a run before its first instruction: both engines begin with it."""

from math import inf

from simsched.base.jit import native
from simsched.simulator.clock import RELEASE, go_on
from simsched.simulator.state import ASLEEP, PHASES, TURN, Room, State


@native
def reset(s: State) -> None:
    """Set a run back to the time before its first instruction."""
    s.now = s.limit = s.makespan = 0.0
    s.count = s.n_later = s.n_spans = s.n_points = s.n_flows = s.n_loaded = s.sharing = 0
    for phase in range(PHASES):
        s.queues[phase] = -1
    for i in range(2 * s.n_timers):
        s.timers[i] = inf
    for i in range(2 * s.n_events + s.n_devices):
        event = s.events[i]
        # The event that the last kernel of a device is over comes after the others: a device is idle at first.
        if i < 2 * s.n_events:
            event.time = inf
        else:
            event.time = 0.0
        event.cause = event.waiters = -1
    for i in range(s.n_connections):
        connection = s.connections[i]
        connection.head = connection.tail = connection.first
        connection.waiters = -1
    for i in range(s.n_lanes):
        lane = s.lanes[i]
        lane.time = lane.free = lane.ended = 0.0
        lane.head = lane.tail = lane.first
        lane.state = ASLEEP
        lane.cause = lane.free_cause = lane.span_cause = -1
    for d in range(s.n_devices):
        device = s.devices[d]
        device.copy_load = device.last_time = device.next_start = 0.0
        device.outstanding = device.n_queue = device.n_running = device.n_resident = 0
        device.dispatching = device.freed = device.loaded = 0
        device.skipping = device.alone = device.last_row = -1
        if s.recording:
            device.point = s.n_points
            s.n_points += 1
            point = s.points[device.point]
            point.device = d
            point.time = 0.0
            point.sm = point.dram = point.warps = point.active = 0.0
    for i in range(s.n_devices + s.n_partitions):
        _empty(s.room[i], s.free[i])
    for i in range(s.n_exchanges):
        s.exchanges[i].arrived = 0
    for t in range(s.n_hosts):
        host = s.hosts[t]
        host.time = 0.0
        host.at = s.thread_ptr[t]
        host.state = TURN
        host.cause = -1
        go_on(s, RELEASE, s.n_lanes + t)


@native
def _empty(room: Room, free: Room) -> None:
    """Make all room of a device or a partition free."""
    free.warps = room.warps
    free.blocks = room.blocks
    free.registers = room.registers
    free.shared_memory = room.shared_memory
