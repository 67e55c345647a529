"""The memory of list scheduling: a graph, the devices, and what is placed."""

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length


class Listed(Row):
    """An operator."""

    start: f8
    finish: f8
    seen: i8  # number of the last visit
    slot: i4  # its stream, numbered by device; -1 before it is placed
    missing: i4  # inputs that are not placed yet
    waited_for: i4  # whether another stream waits for it


class Device(Row):
    """A device."""

    idle: f8  # when its first stream is free
    row: i4  # of its times
    allowed: i4
    n_waiting: i4
    n_arrived: i4


class Stream(Row):
    """A stream of a device."""

    free: f8  # end of its last operator
    first: i4  # of its idle intervals, which lie side by side
    n_gaps: i4
    room: i4


class Gap(Row):
    """An idle interval."""

    start: f8
    end: f8


class Lists(Table):
    """Operators that are placed one by one."""

    n_ops: i8
    n_devices: i8
    n_streams: i8  # of each device
    limit: i8  # of the work in one call
    work: i8
    n_placed: i8  # 0: to begin anew
    n_ready: i8
    n_released: i8
    next_turn: i8
    gaps_end: i8
    stuck: i8  # an operator has no device that its inputs can get to
    insertion: i8
    in_turn: i8
    charged: i8
    # what a device charges in us, and until when its host is busy
    launch: f8
    record: f8
    wait: f8
    gap: f8
    hop: f8
    busy: f8
    # the best place for an operator so far
    best: f8
    start: f8
    end: f8
    issued: f8
    slot: i8
    at: i8  # place of the idle interval, -1 behind the last operator
    # the graph and the devices
    src: Column[i4]
    dst: Column[i4]
    order: Column[i4]
    out_ptr: Column[i8]
    out_edge: Column[i4]
    in_ptr: Column[i8]
    in_edge: Column[i4]
    kernels: Column[i4]
    exact: Column[f8]
    nbytes: Column[f8]
    latency: Column[f8]
    rate: Column[f8]
    time: Column[f8]
    devices: Rows[Device] = length("n_devices")
    # longest paths
    weight: Column[f8]
    beside: Column[f8]
    rank: Column[f8]
    ahead: Column[f8]
    # how operators are placed
    key: Column[f8]
    turn: Column[i4] = length("n_ops")
    draw_op: Column[f8]
    draw_stream: Column[f8]
    # what is placed
    ops: Rows[Listed] = length("n_ops")
    placed: Column[i4] = length("n_ops")
    released: Column[i8] = length("n_ops")
    streams: Rows[Stream] = length("n_devices * n_streams")
    gaps: Rows[Gap]
    heap: Column[i4]
    arrived: Column[i4]
    arrival: Column[f8]
