"""The state of a run before its first instruction: both engines begin with it."""

from math import inf

from simsched.base.jit import native
from simsched.simulator.clock import RELEASE, go_on
from simsched.simulator.state import (
    ASLEEP,
    PHASES,
    TURN,
    ClockTable,
    CollectiveTable,
    DeviceTable,
    EventTable,
    HostTable,
    LaneTable,
    LinkTable,
    RecordTable,
    Room,
    State,
)


@native
def reset(run: State) -> None:
    """Set a run back to the time before its first instruction."""
    run.makespan = 0.0
    _reset_clock(run.clock)
    _reset_events(run.events)
    _reset_lanes(run.lanes)
    run.record.n_spans = run.record.n_points = 0
    _reset_devices(run.devices, run.record)
    _give_lanes_work(run.devices, run.lanes)
    _reset_links(run.links, run.collectives)
    _reset_hosts(run.hosts, run.clock)


@native
def _reset_clock(clock: ClockTable) -> None:
    clock.now = clock.limit = 0.0
    clock.count = clock.n_later = 0
    for phase in range(PHASES):
        clock.queues[phase] = -1
    for i in range(2 * clock.n_timers):
        clock.timers[i] = inf


@native
def _reset_events(events: EventTable) -> None:
    for i in range(2 * events.n + events.n_devices):
        event = events.rows[i]
        # The event that the last kernel of a device is over comes after the others: a device is idle at first.
        if i < 2 * events.n:
            event.time = inf
        else:
            event.time = 0.0
        event.cause = event.waiters = -1


@native
def _reset_lanes(lanes: LaneTable) -> None:
    for i in range(lanes.n_connections):
        connection = lanes.connections[i]
        connection.head = connection.tail = connection.first
        connection.waiters = -1
    for i in range(lanes.n):
        lane = lanes.rows[i]
        lane.time = lane.free = lane.ended = 0.0
        lane.head = lane.tail = lane.first
        lane.state = ASLEEP
        lane.cause = lane.free_cause = lane.span_cause = -1


@native
def _reset_devices(devices: DeviceTable, record: RecordTable) -> None:
    for d in range(devices.n):
        device = devices.rows[d]
        device.copy_load = device.last_time = device.next_start = 0.0
        device.outstanding = device.n_queue = device.n_running = device.n_resident = 0
        device.dispatching = device.freed = device.loaded = 0
        device.skipping = device.alone = device.last_row = -1
        if record.active:
            device.point = record.n_points
            record.n_points += 1
            point = record.points[device.point]
            point.device = d
            point.time = 0.0
            point.sm = point.dram = point.warps = point.active = 0.0
    for i in range(devices.n + devices.n_partitions):
        _empty(devices.room[i], devices.free[i])


@native
def _give_lanes_work(devices: DeviceTable, lanes: LaneTable) -> None:
    """Write the device, the SMs and the partition of each lane into its work, where devices and links read them."""
    for i in range(lanes.n):
        lane = lanes.rows[i]
        work = devices.work[i]
        work.device = lane.device
        work.sms = lane.sms
        work.rooms = lane.rooms


@native
def _reset_links(links: LinkTable, collectives: CollectiveTable) -> None:
    links.n_flows = links.n_loaded = links.sharing = 0
    for i in range(collectives.n):
        collectives.rows[i].arrived = 0


@native
def _reset_hosts(hosts: HostTable, clock: ClockTable) -> None:
    """Set each host thread before its first instruction, where it continues in the first instant."""
    for t in range(hosts.n):
        host = hosts.rows[t]
        host.time = 0.0
        host.at = hosts.thread_ptr[t]
        host.state = TURN
        host.cause = -1
        go_on(clock, RELEASE, clock.first_host + t)


@native
def _empty(room: Room, free: Room) -> None:
    """Make all room of a device or a partition free."""
    free.warps = room.warps
    free.blocks = room.blocks
    free.registers = room.registers
    free.shared_memory = room.shared_memory
