"""Mappings of operators to devices, and their list evaluation: by falling priority, each when its inputs are there."""

from math import inf
from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, piece

NONE: Final = -1
BUDGET: Final = 1 << 22
"""Operators evaluated in one call of a piece, so that the user can interrupt."""
_ROUNDING: Final = 1e-9  # sums in another order differ by less


class Edge(Row):
    """An edge, as one of its ends sees it."""

    us: f8  # between any two devices, -1 where that depends on them
    nbytes: f8
    mean_us: f8  # over pairs of devices
    op: i4  # at the other end
    taken: i4  # by a path of the released code


class Operator(Row):
    """Where and when an operator runs."""

    start: f8
    finish: f8
    tail: f8  # what takes longest after it
    device: i4  # or -1


class Step(Row):
    """An operator as a step of a path."""

    mean_us: f8  # over devices
    onward: f8  # the longest path from it on
    following: i4  # operator on that path, or edge as released
    goes_on: i4  # whether the path may lead through it
    n_inputs: i4  # not taken yet


class Device(Row):
    """A device, and when it is free."""

    free: f8
    base: f8  # before the path
    n_ops: i4


class Mapping(Table):
    """Operators, numbered by falling priority, and the devices that the algorithms give them."""

    n_ops: i8
    n_devices: i8
    inserts: i8  # whether an operator may start in a gap
    released: i8  # whether to record as the released code does
    n_open: i8  # operators, or edges as released, still to map
    n_listed: i8
    n_path: i8
    n_paths: i8
    at: i8  # the operator that is recorded next
    n_states: i8  # mappings recorded of those before it
    makespan: f8
    ops: Rows[Operator]
    steps: Rows[Step]
    in_ptr: Column[i8]
    inputs: Rows[Edge]  # by consumer
    out_ptr: Column[i8]
    outputs: Rows[Edge]  # by producer; for Algorithm 1
    time: Column[f8]  # of each device and operator
    latency: Column[f8]  # from each device to each other
    bandwidth: Column[f8]
    devices: Rows[Device] = length("n_devices")
    listed: Column[i4]  # operators that are mapped
    open: Column[i4]
    given: Column[i4]  # in the order of the graph
    path: Column[i4] = length("n_ops")
    begins: Column[f8] = length("inserts * n_ops * n_devices")  # of what runs on each device, one after the other
    ends: Column[f8] = length("inserts * n_ops * n_devices")
    recorded: Column[f8] = length("n_states * n_ops * n_devices")  # ends by operator and device
    mapped: Column[i4] = length("n_states * 2 * n_ops * n_devices")  # by state, and by turns of `at`
    free: Column[f8] = length("n_states * 2 * n_devices * n_devices")


def put_path(t: Mapping, d: int) -> None:
    """Map the path to a device."""
    for k in range(t.n_path):
        t.ops[t.path[k]].device = d


def transfer(t: Mapping, edge: Edge, a: int, b: int) -> float:
    """Return the us of an edge from a device to another, or to itself."""
    if a == b:
        return 0.0
    if edge.us >= 0.0:
        return edge.us
    pair = a * t.n_devices + b
    return t.latency[pair] + edge.nbytes / t.bandwidth[pair]


def inputs_ready(t: Mapping, i: int) -> float:
    """Return when the device of an operator has all that it reads from mapped ones."""
    ready, d = 0.0, t.ops[i].device
    for e in range(t.in_ptr[i], t.in_ptr[i + 1]):
        edge = t.inputs[e]
        source = t.ops[edge.op]
        if source.device >= 0:
            ready = max(ready, source.finish + transfer(t, edge, source.device, d))
    return ready


def prepare(t: Mapping, first: int) -> None:
    """Write when each device is free before place `first`, and what takes longest after each operator from there on.

    That is by data and by the order of its device. Operators that are mapped later add to it: with one of them the
    makespan is no less.
    """
    for d in range(t.n_devices):
        t.devices[d].base = t.devices[d].free = 0.0
    for at in range(first):
        op = t.ops[t.listed[at]]
        t.devices[op.device].base = op.finish
    for at in range(first, t.n_listed):
        t.ops[t.listed[at]].tail = 0.0
    for at in range(t.n_listed - 1, first - 1, -1):
        i = t.listed[at]
        op = t.ops[i]
        if op.device < 0:
            continue
        device = t.devices[op.device]
        op.tail = max(op.tail, device.free)
        device.free = t.time[op.device * t.n_ops + i] + op.tail
        for e in range(t.in_ptr[i], t.in_ptr[i + 1]):
            edge = t.inputs[e]
            source = t.ops[edge.op]
            if source.device >= 0:
                source.tail = max(source.tail, transfer(t, edge, source.device, op.device) + device.free)


def append_from(t: Mapping, first: int, limit: float) -> float:
    """Evaluate the list from place `first` on; return its makespan, or infinity where it cannot be below `limit`."""
    makespan, too_long = 0.0, limit * (1.0 + _ROUNDING)
    for d in range(t.n_devices):
        t.devices[d].free = t.devices[d].base
        makespan = max(makespan, t.devices[d].base)
    for at in range(first, t.n_listed):
        i = t.listed[at]
        op = t.ops[i]
        device = t.devices[op.device]
        end = max(device.free, inputs_ready(t, i)) + t.time[op.device * t.n_ops + i]
        if end >= limit or end + op.tail > too_long:
            return inf
        op.finish = device.free = end
        makespan = max(makespan, end)
    return makespan


def insert_all(t: Mapping, limit: float) -> float:
    """Evaluate the list, each operator in the first gap of its device that is long enough; as `append_from`."""
    for d in range(t.n_devices):
        t.devices[d].n_ops = 0
    makespan = 0.0
    for at in range(t.n_listed):
        insert(t, t.listed[at])
        makespan = max(makespan, t.ops[t.listed[at]].finish)
        if makespan >= limit:
            return inf
    return makespan


def insert(t: Mapping, i: int) -> None:
    """Put an operator into the first gap that is long enough."""
    op = t.ops[i]
    device, row = t.devices[op.device], op.device * t.n_ops
    begins, ends, n, took = t.begins[row:], t.ends[row:], device.n_ops, t.time[row + i]
    start, k, high = inputs_ready(t, i), 0, n
    while k < high:  # the first that ends after the inputs are there
        middle = (k + high) // 2
        if ends[middle] > start:
            high = middle
        else:
            k = middle + 1
    while k < n and start + took > begins[k]:
        start = max(start, ends[k])
        k += 1
    for later in range(n, k, -1):
        begins[later], ends[later] = begins[later - 1], ends[later - 1]
    begins[k] = op.start = start
    ends[k] = op.finish = start + took
    device.n_ops += 1


@piece("HIOS schedulers")
def insert_mapped(t: Mapping) -> None:
    """List all operators, which are mapped, with insertion."""
    t.n_listed = t.n_ops
    insert_all(t, inf)
