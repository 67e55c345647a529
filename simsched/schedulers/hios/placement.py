"""Mappings of operators to devices, compiled: list evaluation, and Algorithms 1 and 3."""

from math import inf
from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, piece
from simsched.schedulers.instance import Edge, transfer

NONE: Final = -1
BUDGET: Final = 1 << 22
"""Operators evaluated in one call of a piece, so that the user can interrupt."""


class Operator(Row):
    """Where an operator runs, when it is over, and its place on paths."""

    finish: f8
    mean_us: f8  # over devices
    onward: f8  # the longest path from it on
    device: i4  # or -1
    following: i4  # operator on that path, or edge as released
    goes_on: i4  # whether the path may lead through it
    n_inputs: i4  # not taken yet


class Mapping(Table):
    """Operators, numbered by falling priority, and the devices that the algorithms give them."""

    n_ops: i8
    n_devices: i8
    released: i8  # whether to map as the released code does
    n_open: i8  # operators, or edges as released, still to map
    n_path: i8
    n_paths: i8
    at: i8  # the operator that is recorded next
    n_states: i8  # mappings recorded of those before it
    ops: Rows[Operator]
    in_ptr: Column[i8]
    inputs: Rows[Edge]  # by consumer
    out_ptr: Column[i8]
    outputs: Rows[Edge]  # by producer; for Algorithm 1; of the released code's paths, those taken have mean us -1
    time: Column[f8]  # of each device and operator
    latency: Column[f8]  # from each device to each other
    bandwidth: Column[f8]
    clock: Column[f8] = length("n_devices")  # when each device is free
    order: Column[i4]  # in which operators run
    path: Column[i4] = length("n_ops")
    recorded: Column[f8] = length("n_states * n_ops * n_devices")  # ends by operator and device
    mapped: Column[i4] = length("n_states * 2 * n_ops * n_devices")  # by state, and by turns of `at`
    free: Column[f8] = length("n_states * 2 * n_devices * n_devices")


def inputs_ready(t: Mapping, i: int) -> float:
    """Return when the device of an operator has all that it reads from mapped ones."""
    ready, d = 0.0, t.ops[i].device
    for e in range(t.in_ptr[i], t.in_ptr[i + 1]):
        edge = t.inputs[e]
        source = t.ops[edge.op]
        if source.device >= 0:
            there = t.clock[source.device] if t.released else source.finish
            ready = max(ready, there + transfer(edge, source.device, d, t.n_devices, t.latency, t.bandwidth))
    return ready


def makespan(t: Mapping, limit: float) -> float:
    """Return when those that are mapped are over, infinity where it is not below `limit`.

    An operator starts behind those before it on its device and when its inputs are there; as released, when the
    devices of its inputs are free instead.
    """
    latest = 0.0
    for d in range(t.n_devices):
        t.clock[d] = 0.0
    for at in range(t.n_ops):
        i = t.order[at]
        op = t.ops[i]
        if op.device < 0:
            continue
        if t.released or i >= t.path[0]:  # what is before the path ends as it did
            op.finish = max(t.clock[op.device], inputs_ready(t, i)) + t.time[op.device * t.n_ops + i]
        t.clock[op.device] = op.finish
        latest = max(latest, op.finish)
        if latest >= limit:
            return inf
    return latest


def path_from(t: Mapping, i: int) -> float:
    """Find the longest valid path from an operator on; return its length with the edge that leads there."""
    head, tail, length, then = -1.0, -1.0, -1.0, NONE  # the longest edges from and to the mapped part
    for e in range(t.in_ptr[i], t.in_ptr[i + 1]):
        edge = t.inputs[e]
        if t.ops[edge.op].device >= 0:
            head = max(head, edge.mean_us)
    step = t.ops[i]
    for e in range(t.out_ptr[i], t.out_ptr[i + 1]):
        edge = t.outputs[e]
        if t.ops[edge.op].device >= 0:
            tail = max(tail, edge.mean_us)
            continue
        through = step.mean_us + edge.mean_us + t.ops[edge.op].onward
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
    longest, first = -1.0, NONE
    for i in range(t.n_ops - 1, -1, -1):
        if t.ops[i].device < 0:
            whole = path_from(t, i)
            if whole >= longest:
                longest, first = whole, i
    t.n_path = 0
    i = first
    while i >= 0:
        t.path[t.n_path] = i
        i = t.ops[i].following if t.n_path == 0 or t.ops[i].goes_on else NONE
        t.n_path += 1
    t.n_open -= t.n_path


def find_first(t: Mapping) -> int:
    """Find the longest path of edges from each operator on; return where the longest of them begins.

    The time of a path's first operator does not count.
    """
    first, longest = NONE, -1.0
    for i in range(t.n_ops - 1, -1, -1):
        step = t.ops[i]
        step.onward, step.following = 0.0, NONE
        for e in range(t.out_ptr[i], t.out_ptr[i + 1]):
            edge = t.outputs[e]
            through = edge.mean_us + t.ops[edge.op].mean_us + t.ops[edge.op].onward
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
        e = t.ops[i].following
        if e >= 0:
            edge = t.outputs[e]
            i, edge.mean_us = edge.op, -1.0
            t.ops[i].n_inputs -= 1
            t.n_open -= 1


def put_path(t: Mapping, d: int) -> None:
    """Map the path to a device."""
    for k in range(t.n_path):
        t.ops[t.path[k]].device = d


@piece("HIOS schedulers")
def map_paths(t: Mapping) -> None:
    """Map path after path, each to the device of least makespan, for a while."""
    work, before = 0, -1.0
    while t.n_open > 0 and work < BUDGET:
        if t.released:
            take_path(t, find_first(t))
        else:
            find_path(t)
        best, on, tried = inf, 0, NONE
        for d in range(t.n_devices if t.n_paths > 0 or t.released else 1):
            tried = d
            put_path(t, d)
            latest = makespan(t, inf if t.released else best)
            if latest < best or (t.released and latest == best):
                best, on = latest, d
                if best == before and not t.released:
                    break  # behind what is there, more operators end nothing sooner
        if tried != on:
            put_path(t, on)
            makespan(t, inf)
        before = best
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
