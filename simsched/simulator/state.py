"""The memory of a run: `State`, its parts, and their rows.

A part is a table that one concern reads and writes: the clock, the program, the hosts, the events, the lanes, the
devices, the links, the collectives, the record and the samples. Functions take the parts that they touch.
"""

from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i1, i4, i8, length
from simsched.simulator.contention import MAX_COHORTS, Channel, Cohort, Crowd, FlowPath, LaneWork, Share

PHASES: Final = 5
"""Phases of an instant: each has a queue of the processes that continue in it."""
COHORTS: Final = MAX_COHORTS + 1
"""Cohorts for which a kernel has room: one more than it may have."""
NEW, RUNNING, OVER, STUCK, FULL = range(5)
"""Status of a run: not begun, running, complete, deadlocked, or out of room for points of load curves."""
TURN, BEGINNING, PAYING = range(3)
"""State of a host thread: at its next instruction, in the time before it, or in its host time."""
ASLEEP, NEXT, LAUNCH_PASS, LAUNCH_JOINED, LAUNCH_OVER = range(5)
WAIT_REACHED, WAIT_RELEASED, WAIT_PASS, COPY_READY, COPY_MOVE, COPY_OVER = range(5, 11)
"""State of a lane: nothing is issued to it, it takes up the next instruction, or the place where it waits in one."""


class LaunchDemand(Row):
    """Demand of a launch on its device, see `workload.demand`; registers, shared memory and warps are for a block."""

    solo: f8  # us
    unit: f8  # us of a block on an idle device
    units: f8  # time of the kernel alone, without its latency, in `unit`s
    sm_share: f8  # load of a resident block on its SM; without a grid, of the operator on each SM
    dram_share: f8  # load of a resident block on DRAM
    alpha: f8  # sensitivity to the SM load
    beta: f8  # sensitivity to the DRAM load
    traffic: f8  # us in which DRAM moves the bytes of a block, times `units`; 0 without a grid
    blocks: i8  # blocks of the grid; 0 without a grid
    residency: i8  # blocks that the device holds at once
    registers: i8
    shared_memory: i8
    warps: i4
    priority: i4
    meeting: i4  # its collective; -1: it is not part of one
    rank: i4  # its place among the ranks
    kind: i1  # class of interference: 0 compute, 1 memory, -1 none
    follows: i1  # it belongs to the operator of the launch before it


class CopyRoute(Row):
    """Route of copies from one device to another over the channels `route_channels[first:end]`."""

    latency: f8
    rate: f8
    first: i4
    end: i4


class ExchangeState(Row):
    """A collective: its load on links, and the number of ranks that have arrived."""

    latency: f8
    nbytes: f8  # bytes that each rank sends
    rate: f8  # most bytes per us that each rank sends
    solo: f8  # us that the links need
    stretch: f8  # its time divided by `solo`
    ready: f8  # us at which the last rank could start
    first: i4  # it crosses `channels[first:end]`
    end: i4
    first_member: i4  # its ranks are `member_lane[first_member:end_member]`
    end_member: i4
    arrived: i4
    cause: i4  # span for which the last rank has waited


class Room(Row):
    """Room for blocks on a device."""

    warps: i8
    blocks: i8
    registers: i8
    shared_memory: i8


class Later(Row):
    """A process that continues at a later time; on equal times the least key is first."""

    time: f8
    key: i8  # 8 x a running number + the phase
    process: i4


class Lane(Row):
    """A lane: a stream of a device. Numbers that are read together are side by side."""

    time: f8
    free: f8
    issued: f8
    ready: f8
    ended: f8  # us at which its last kernel ended
    gap: f8
    hop: f8
    launch_lag: f8
    copy_lag: f8
    head: i8
    tail: i8
    first: i8
    sms: i8  # number of SMs on which its kernels may have blocks
    state: i4
    device: i4
    connection: i4
    stream: i4
    cause: i4
    free_cause: i4
    span_cause: i4
    rooms: i4  # the room of its partition, -1 if it has none


class Host(Row):
    """A host thread."""

    time: f8
    start: f8
    cost: f8  # us of its present instruction
    at: i8
    state: i4
    cause: i4


class Connection(Row):
    """A hardware queue: its instructions are `passing[first:tail]`."""

    first: i8
    head: i8
    tail: i8
    waiters: i4


class Event(Row):
    """Time of an event (infinity: not yet), the span that caused it, and the last process that waits for it."""

    time: f8
    cause: i4
    waiters: i4
    lane: i4  # lane that records it


class Item(Row):
    """An instruction on a lane; the code is 4 x its number + its action, the cause is the span of its host."""

    issued: f8
    argument: i4
    code: i4
    cause: i4


class DeviceState(Row):
    """A device: constants come first, then its state."""

    interleave: f8
    block_spread: f8
    kernel_latency: f8
    bandwidth: f8
    copy_rate: f8
    crowd_latency: f8
    graph_issue: f8  # 0 outside of captured graphs
    copy_engines: i8
    sms: i8
    resident_kernels: i8
    copy_load: f8
    new_load: f8
    last_time: f8
    next_start: f8  # us before which no further node of a captured graph starts
    n_moving: i8
    outstanding: i8
    point: i8
    contention: i4
    n_queue: i4
    n_running: i4
    n_resident: i4
    dispatching: i4
    freed: i4
    skipping: i4
    alone: i4  # lane of the kernel that is alone on the device, -1 if there is none
    last_row: i4
    loaded: i4


class SpanRecord(Row):
    """A row of a `Trace`: a span."""

    start: f8
    end: f8
    ready: f8
    solo: f8
    item: i4
    op: i4
    device: i4
    stream: i4
    cause: i4
    kind: i1


class LoadPoint(Row):
    """A point of a load curve."""

    time: f8
    sm: f8
    dram: f8
    warps: f8
    active: f8
    device: i4


class ClockTable(Table):
    """The present instant, the processes that continue in it or later, and the numbers that processes have.

    Lanes come first, then host threads, timers of devices, the timer of links, dispatchers of devices, the sharing of
    links, and collectives. A process waits in one list, is in one queue of the instant, or continues at a later time.
    """

    now: f8
    limit: f8  # events that are due by then belong to this instant
    count: i8
    n_later: i8
    n_processes: i8
    first_host: i8  # number of the process of the first host thread; the next four likewise
    first_timer: i8
    first_dispatcher: i8
    link_sharing: i8
    first_collective: i8
    n_timers: i8  # a power of 2 with room for the timers of devices and links
    later: Rows[Later] = length("n_processes")  # heap by time, then key
    queues: Column[i4] = length(f"{PHASES}")  # the last process of each phase of this instant, see `clock.join`
    next: Column[i4] = length("n_processes")  # of each process in a list: the next one
    timers: Column[f8] = length("2 * n_timers")  # tree of minima over the timers of devices and links


class ProgramTable(Table):
    """The program: a column for each attribute of an instruction."""

    n: i8
    captured: i8
    action: Column[i1]
    argument: Column[i4]
    place: Column[i4]  # device
    lane_of: Column[i4]  # -1: no lane
    join: Column[f8]  # us by which each launch starts late, as it waits for several others; in a captured graph
    launch_op: Column[i4]  # operator of each launch
    copy_op: Column[i4]  # operator of each copy


class HostTable(Table):
    """Host threads, and the time that they need for instructions."""

    n: i8
    ahead: i8  # only one thread acts on each device
    thread_ptr: Column[i8]
    cost: Column[f8]  # us of each action on each device
    barrier_many: Column[f8]  # us of a barrier after several busy streams, of each device
    lead: Column[f8]  # us of the host before each instruction, if some have times of their own
    own: Column[f8]  # then us of each instruction; NaN: the host time of its device
    rows: Rows[Host] = length("n")


class EventTable(Table):
    """Events: of the program, each reached and then each issued, and devices without outstanding kernels."""

    n: i8  # events of the program
    n_devices: i8
    rows: Rows[Event] = length("2 * n + n_devices")


class LaneTable(Table):
    """Streams of devices, the instructions that are issued to them, and the hardware queues that they share."""

    n: i8
    n_items: i8
    n_connections: i8
    rows: Rows[Lane]
    items: Rows[Item] = length("n_items")  # instructions on each lane, with room for all of them
    connections: Rows[Connection]
    passing: Column[i4] = length("n_items if n_connections else 0")


class DeviceTable(Table):
    """Devices, the kernels on them, and the progress of the kernel or the copy of each lane."""

    n: i8
    n_partitions: i8
    n_lanes: i8
    n_works: i8  # number of lanes and collectives
    width: i8  # lanes that launch on a device
    n_results: i8  # length of `results`
    rows: Rows[DeviceState]
    launches: Rows[LaunchDemand]
    interference: Column[f8]  # 4 per device
    room: Rows[Room]  # of each device, then of each partition
    free: Rows[Room] = length("n + n_partitions")
    queued: Column[i4] = length("n * width")  # lanes whose kernels have blocks to issue, by order of dispatch
    running: Column[i4] = length("n * width")  # lanes whose kernels are on the device, by launch
    work: Rows[LaneWork] = length("n_works")  # of each lane, then of each collective: its flow
    cohorts: Rows[Cohort] = length(f"{COHORTS} * n_lanes")
    crowds: Rows[Crowd]  # of each device
    shares: Rows[Share] = length("n_lanes + 1")  # scratch memory: of the kernels on a device, and its copies
    results: Column[i4] = length("n_lanes")  # of some functions: lanes whose kernels end, or whose ranks become ready


class LinkTable(Table):
    """Links, the copies that cross them, and the flows that move at present.

    Channels are directions of links, then ports of devices, then copy engines of devices; the engine of each flow
    follows these.
    """

    n_devices: i8
    n_channels: i8
    most_flows: i8
    most_crossings: i8
    first_collective: i8  # number of the first flow that is a collective's; copies have the numbers of their lanes
    sharing: i8
    n_flows: i8
    n_loaded: i8
    copy_device: Column[i4]
    copy_nbytes: Column[f8]
    copy_exact: Column[f8]
    copy_route: Column[i4]
    routes: Rows[CopyRoute]
    route_channels: Column[i4]
    flows: Column[i4] = length("most_flows")  # numbers of flows, in the order in which they began
    channels: Rows[Channel]
    live: Column[i4] = length("n_channels + most_flows")
    crossings: Rows[FlowPath] = length("most_flows")  # by flow
    crossed: Column[i4] = length("most_crossings")
    weights: Column[f8] = length("most_crossings")  # bytes on a channel for each byte of the flow
    loaded: Column[i4] = length("n_devices")  # devices that copies load
    results: Column[i4] = length(
        "max(most_flows, n_devices)"
    )  # of some functions: flows that end, or devices with a new load


class CollectiveTable(Table):
    """Collectives of the graph, and the ranks that have arrived."""

    n: i8
    n_members: i8  # number of ranks of all collectives
    rows: Rows[ExchangeState]
    channels: Column[i4]
    weights: Column[f8]  # bytes on the channel for each byte of a rank
    member_lane: Column[i4] = length("n_members")  # of each rank that has arrived
    member_time: Column[f8] = length("n_members")  # us at which it arrived


class RecordTable(Table):
    """Spans and load curves, if they are recorded."""

    active: i8
    n_spans: i8
    n_points: i8
    point_room: i8
    spans: Rows[SpanRecord]
    points: Rows[LoadPoint]  # of the load curves of all devices, by time


class SampleTable(Table):
    """Samples of operator times, and the makespan of each."""

    at: i8  # the present one
    n: i8
    jittered: i8
    n_ops: i8
    factors: Column[f8]  # of the time of each operator, for each sample
    makespans: Column[f8]


class State(Table):
    """A run: its status, its makespan, and its parts."""

    status: i8
    makespan: f8
    clock: ClockTable
    program: ProgramTable
    hosts: HostTable
    events: EventTable
    lanes: LaneTable
    devices: DeviceTable
    links: LinkTable
    collectives: CollectiveTable
    record: RecordTable
    samples: SampleTable
