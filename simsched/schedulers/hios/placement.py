"""Mappings of operators to devices, compiled: list evaluation, and Algorithms 1 and 3."""

from math import inf
from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, piece
from simsched.schedulers.instance import Edge, transfer

NONE: Final = -1
BUDGET: Final = 1 << 22
"""Operators evaluated in one call of a piece, so that the user can interrupt."""


class Operator(Row):
    """Where an operator runs, and when it is over."""

    finish: f8
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


class Mapping(Table):
    """Operators, numbered by falling priority, and the devices that the algorithms give them."""

    n_ops: i8
    n_devices: i8
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
    outputs: Rows[Edge]  # by producer; for Algorithm 1; of the released code's paths, those taken have mean us -1
    time: Column[f8]  # of each device and operator
    latency: Column[f8]  # from each device to each other
    bandwidth: Column[f8]
    devices: Rows[Device] = length("n_devices")
    listed: Column[i4]  # operators that are mapped
    open: Column[i4]
    given: Column[i4]  # in the order of the graph
    path: Column[i4] = length("n_ops")
    recorded: Column[f8] = length("n_states * n_ops * n_devices")  # ends by operator and device
    mapped: Column[i4] = length("n_states * 2 * n_ops * n_devices")  # by state, and by turns of `at`
    free: Column[f8] = length("n_states * 2 * n_devices * n_devices")


def put_path(t: Mapping, d: int) -> None:
    """Map the path to a device."""
    for k in range(t.n_path):
        t.ops[t.path[k]].device = d


def inputs_ready(t: Mapping, i: int) -> float:
    """Return when the device of an operator has all that it reads from mapped ones."""
    ready, d = 0.0, t.ops[i].device
    for e in range(t.in_ptr[i], t.in_ptr[i + 1]):
        edge = t.inputs[e]
        source = t.ops[edge.op]
        if source.device >= 0:
            ready = max(ready, source.finish + transfer(edge, source.device, d, t.n_devices, t.latency, t.bandwidth))
    return ready


def append_from(t: Mapping, first: int, limit: float) -> float:
    """Evaluate the list from place `first` on; return its makespan, or infinity where it is not below `limit`."""
    makespan = 0.0
    for d in range(t.n_devices):
        t.devices[d].free = t.devices[d].base
        makespan = max(makespan, t.devices[d].base)
    for at in range(first, t.n_listed):
        i = t.listed[at]
        op = t.ops[i]
        device = t.devices[op.device]
        end = max(device.free, inputs_ready(t, i)) + t.time[op.device * t.n_ops + i]
        if end >= limit:
            return inf
        op.finish = device.free = end
        makespan = max(makespan, end)
    return makespan


def path_from(t: Mapping, i: int) -> float:
    """Find the longest valid path from an operator on; return its length with the edge that leads there."""
    head, tail, length, then = -1.0, -1.0, -1.0, NONE  # the longest edges from and to the mapped part
    for e in range(t.in_ptr[i], t.in_ptr[i + 1]):
        edge = t.inputs[e]
        if t.ops[edge.op].device >= 0:
            head = max(head, edge.mean_us)
    step = t.steps[i]
    for e in range(t.out_ptr[i], t.out_ptr[i + 1]):
        edge = t.outputs[e]
        if t.ops[edge.op].device >= 0:
            tail = max(tail, edge.mean_us)
            continue
        through = step.mean_us + edge.mean_us + t.steps[edge.op].onward
        if through > length or (through == length and edge.op < then):
            length, then = through, edge.op
    alone = step.mean_us + max(tail, 0.0)
    if length < alone:
        length, then = alone, NONE
    step.following = then
    step.goes_on = head < 0.0 and tail < 0.0  # only the first and the last may be next to the mapped part
    step.onward = length if step.goes_on else alone
    return length + max(head, 0.0)


def find_path(t: Mapping) -> None:
    """Write the longest valid path of the operators not mapped yet."""
    longest, i = -1.0, NONE
    for at in range(t.n_open - 1, -1, -1):
        whole = path_from(t, t.open[at])
        if whole >= longest:
            longest, i = whole, t.open[at]
    t.n_path = 0
    while i >= 0:
        t.path[t.n_path] = i
        i = t.steps[i].following if t.n_path == 0 or t.steps[i].goes_on else NONE
        t.n_path += 1


def list_path(t: Mapping) -> int:
    """Merge the path into the list of mapped operators and take it out of the open ones; return the first place."""
    at, k = t.n_listed - 1, t.n_path - 1
    t.n_listed += t.n_path
    while k >= 0:
        if at >= 0 and t.listed[at] > t.path[k]:
            t.listed[at + k + 1] = t.listed[at]
            at -= 1
        else:
            t.listed[at + k + 1] = t.path[k]
            k -= 1
    for each in range(t.n_open):
        if k + 1 < t.n_path and t.open[each] == t.path[k + 1]:
            k += 1
        else:
            t.open[each - k - 1] = t.open[each]
    t.n_open -= t.n_path
    return at + 1


def try_device(t: Mapping, first: int, d: int, limit: float) -> float:
    """Return the makespan with the path on device `d`, or infinity if it is not below `limit`."""
    put_path(t, d)
    return append_from(t, first, limit)


def map_path(t: Mapping, first: int, n_devices: int) -> None:
    """Put the path on the device of least makespan."""
    best, on = inf, 0
    for d in range(n_devices):
        makespan = try_device(t, first, d, best)
        if makespan < best:
            best, on = makespan, d
            if best == t.makespan:
                break  # behind what is there, more operators end nothing sooner
    if t.ops[t.path[0]].device != on:
        try_device(t, first, on, inf)
    t.makespan = best
    t.n_paths += 1


@piece("HIOS schedulers")
def map_paths(t: Mapping) -> None:
    """Map path after path, for a while."""
    work = 0
    while t.n_open > 0 and work < BUDGET:
        find_path(t)
        first = list_path(t)
        for d in range(t.n_devices):
            t.devices[d].base = 0.0
        for at in range(first):
            op = t.ops[t.listed[at]]
            t.devices[op.device].base = op.finish
        map_path(t, first, t.n_devices if t.n_paths > 0 else 1)
        work += t.n_open + t.n_listed * t.n_devices


def find_first(t: Mapping) -> int:
    """Find the longest path of edges from each operator on; return where the longest of them begins.

    The time of a path's first operator does not count.
    """
    first, longest = NONE, -1.0
    for i in range(t.n_ops - 1, -1, -1):
        step = t.steps[i]
        step.onward, step.following = 0.0, NONE
        for e in range(t.out_ptr[i], t.out_ptr[i + 1]):
            edge = t.outputs[e]
            through = edge.mean_us + t.steps[edge.op].mean_us + t.steps[edge.op].onward
            if edge.mean_us >= 0.0 and (step.following < 0 or through > step.onward):
                step.onward, step.following = through, e
        if step.following >= 0 and step.n_inputs == 0 and step.onward >= longest:
            first, longest = i, step.onward
    return first


def take_path(t: Mapping, first: int) -> None:
    """Take the edges of the path from an operator on, and write those on it that are not mapped yet."""
    t.n_path, i, e = 0, first, 0
    while e >= 0:
        if t.ops[i].device < 0:
            t.path[t.n_path] = i
            t.n_path += 1
        e = t.steps[i].following
        if e >= 0:
            edge = t.outputs[e]
            i, edge.mean_us = edge.op, -1.0
            t.steps[i].n_inputs -= 1
            t.n_open -= 1


def clocks(t: Mapping) -> float:
    """Return the makespan if operators run in the given order, each when the devices of its inputs are free."""
    makespan = 0.0
    for d in range(t.n_devices):
        t.devices[d].free = 0.0
    for at in range(t.n_ops):
        i = t.given[at]
        d = t.ops[i].device
        if d < 0:
            continue
        start = t.devices[d].free
        for e in range(t.in_ptr[i], t.in_ptr[i + 1]):
            edge = t.inputs[e]
            on = t.ops[edge.op].device
            if on >= 0:
                start = max(start, t.devices[on].free + transfer(edge, on, d, t.n_devices, t.latency, t.bandwidth))
        t.devices[d].free = start + t.time[d * t.n_ops + i]
        makespan = max(makespan, t.devices[d].free)
    return makespan


@piece("HIOS schedulers")
def map_edges(t: Mapping) -> None:
    """Map path after path of the edges that are left, for a while."""
    work = 0
    while t.n_open > 0 and work < BUDGET:
        take_path(t, find_first(t))
        best, on = inf, 0
        for d in range(t.n_devices if t.n_path > 0 else 0):
            put_path(t, d)
            makespan = clocks(t)
            if makespan <= best:
                best, on = makespan, d
        put_path(t, on)
        t.n_paths += 1
        work += t.n_ops * (1 + t.n_devices)


def extend(t: Mapping, j: int, mapped: Column[i4], free: Column[f8]) -> int:
    """Write when the next operator ends first on device `j`; return after which mapping of those before it."""
    i, best, parent = t.at, inf, 0
    last, took = t.in_ptr[i + 1], t.time[j * t.n_ops + i]
    if t.released:  # only the first producer counts, and the first operator takes no time
        last, took = min(t.in_ptr[i] + 1, last), took if i > 0 else 0.0
    for k in range(t.n_states):
        start = free[k * t.n_devices + j]
        for e in range(t.in_ptr[i], last):
            edge = t.inputs[e]
            on = mapped[k * t.n_ops + edge.op]
            there = t.recorded[edge.op * t.n_devices + on]  # whatever path leads through that state
            start = max(start, there + transfer(edge, on, j, t.n_devices, t.latency, t.bandwidth))
        if start + took < best:
            best, parent = start + took, k
    t.recorded[i * t.n_devices + j] = best
    return parent


@piece("HIOS schedulers")
def record(t: Mapping) -> None:
    """Record operator after operator, for a while."""
    n, n_devices, work = t.n_ops, t.n_devices, 0
    while t.at < n and work < BUDGET:
        i, now, after = t.at, t.at % 2, (t.at + 1) % 2
        before, mapped = t.mapped[now * n * n_devices :], t.mapped[after * n * n_devices :]
        free_before, free = t.free[now * n_devices * n_devices :], t.free[after * n_devices * n_devices :]
        n_states = n_devices if t.released and i > 0 else min(n_devices, i + 1)
        for j in range(n_states):
            parent = extend(t, j, before, free_before)
            for k in range(i):
                mapped[j * n + k] = before[parent * n + k]
            mapped[j * n + i] = j
            for d in range(n_devices):
                free[j * n_devices + d] = free_before[parent * n_devices + d]
            free[j * n_devices + j] = t.recorded[i * n_devices + j]
        t.n_states = n_states
        t.at += 1
        work += i * n_states
