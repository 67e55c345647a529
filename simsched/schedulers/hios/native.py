"""HIOS, compiled: list evaluation, mappings by Algorithms 1 and 3, and stages by Algorithm 2."""

from math import inf
from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, native, piece
from simsched.schedulers.instance import EdgeEnd, transfer

NONE: Final = -1
BUDGET: Final = 1 << 22
"""Operators evaluated in one call of a piece, so that the user can interrupt."""


class MappedOperator(Row):
    """An operator's device, its end, and its place on paths."""

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
    n_states: i8  # mappings recorded for earlier operators
    ops: Rows[MappedOperator]
    in_ptr: Column[i8]
    inputs: Rows[EdgeEnd]  # by consumer
    out_ptr: Column[i8]
    outputs: Rows[EdgeEnd]  # by producer; Algorithm 1 as released sets mean us to -1 on used paths
    time: Column[f8]  # by device and operator
    latency: Column[f8]  # from each device to each other
    bandwidth: Column[f8]
    clock: Column[f8] = length("n_devices")  # when each device is free
    order: Column[i4]  # order in which operators run
    path: Column[i4] = length("n_ops")
    recorded: Column[f8] = length("n_states * n_ops * n_devices")  # ends by operator and device
    mapped: Column[i4] = length("n_states * 2 * n_ops * n_devices")  # by state, and by turns of `at`
    free: Column[f8] = length("n_states * 2 * n_devices * n_devices")


@native
def makespan(t: Mapping, limit: float) -> float:
    """Return the end of the mapped operators, infinity where it is not below `limit`.

    An operator starts after the earlier ones on its device and when its inputs are there; in the released code, when
    the devices of its inputs are free instead.
    """
    latest = 0.0
    for d in range(t.n_devices):
        t.clock[d] = 0.0
    for at in range(t.n_ops):
        i = t.order[at]
        op = t.ops[i]
        if op.device < 0:
            continue
        if t.released or i >= t.path[0]:  # operators before the path end as they did
            start = t.clock[op.device]
            for e in range(t.in_ptr[i], t.in_ptr[i + 1]):
                edge = t.inputs[e]
                source = t.ops[edge.op]
                if source.device >= 0:
                    if t.released:
                        there = t.clock[source.device]
                    else:
                        there = source.finish
                    us = transfer(edge, source.device, op.device, t.n_devices, t.latency, t.bandwidth)
                    start = max(start, there + us)
            op.finish = start + t.time[op.device * t.n_ops + i]
        t.clock[op.device] = op.finish
        latest = max(latest, op.finish)
        if latest >= limit:
            return inf
    return latest


@native
def path_from(t: Mapping, i: int) -> float:
    """Find the longest valid path from an operator on; return its length with the edge that leads there."""
    # the longest edges from and to the mapped part
    head = -1.0
    tail = -1.0
    length = -1.0
    then = NONE
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
            length = through
            then = edge.op
    alone = step.mean_us + max(tail, 0.0)
    if length < alone:
        length = alone
        then = NONE
    step.following = then
    step.goes_on = head < 0.0 and tail < 0.0  # only the first and the last may be next to the mapped part
    if step.goes_on:
        step.onward = length
    else:
        step.onward = alone
    return length + max(head, 0.0)


@native
def find_path(t: Mapping) -> None:
    """Write the longest valid path of the operators not mapped yet."""
    longest = -1.0
    first = NONE
    for i in range(t.n_ops - 1, -1, -1):
        if t.ops[i].device < 0:
            whole = path_from(t, i)
            if whole >= longest:
                longest = whole
                first = i
    t.n_path = 0
    i = first
    while i >= 0:
        t.path[t.n_path] = i
        if t.n_path == 0 or t.ops[i].goes_on:
            i = t.ops[i].following
        else:
            i = NONE
        t.n_path += 1
    t.n_open -= t.n_path


@native
def find_released_path(t: Mapping) -> None:
    """Take the edges of the longest path of them, and write the operators on it that are not mapped yet.

    The time of a path's first operator does not count.
    """
    first = NONE
    longest = -1.0
    for i in range(t.n_ops - 1, -1, -1):
        step = t.ops[i]
        step.onward = 0.0
        step.following = NONE
        for e in range(t.out_ptr[i], t.out_ptr[i + 1]):
            edge = t.outputs[e]
            through = edge.mean_us + t.ops[edge.op].mean_us + t.ops[edge.op].onward
            if edge.mean_us >= 0.0 and (step.following < 0 or through > step.onward):
                step.onward = through
                step.following = e
        if step.following >= 0 and step.n_inputs == 0 and step.onward >= longest:
            first = i
            longest = step.onward
    t.n_path = 0
    i = first
    e = 0
    while e >= 0:
        if t.ops[i].device < 0:
            t.path[t.n_path] = i
            t.n_path += 1
        e = t.ops[i].following
        if e >= 0:
            edge = t.outputs[e]
            i = edge.op
            edge.mean_us = -1.0
            t.ops[i].n_inputs -= 1
            t.n_open -= 1


@native
def put_path(t: Mapping, d: int) -> None:
    """Map the path to a device."""
    for k in range(t.n_path):
        t.ops[t.path[k]].device = d


@piece("HIOS schedulers")
def map_paths(t: Mapping) -> None:
    """Map path after path, each to the device of least makespan, for a while."""
    work = 0
    before = -1.0
    while t.n_open > 0 and work < BUDGET:
        if t.released:
            find_released_path(t)
        else:
            find_path(t)
        best = inf
        on = 0
        tried = NONE
        for d in range(t.n_devices if t.n_paths > 0 or t.released else 1):
            tried = d
            put_path(t, d)
            latest = makespan(t, inf if t.released else best)
            if latest < best or (t.released and latest == best):
                best = latest
                on = d
                if best == before and not t.released:
                    break  # after this operator, more operators end nothing sooner
        if tried != on:
            put_path(t, on)
            makespan(t, inf)
        before = best
        t.n_paths += 1
        work += t.n_ops * (1 + t.n_devices)


@native
def extend(t: Mapping, j: int, mapped: Column[i4], free: Column[f8]) -> int:
    """Record the next operator's earliest end on device `j`; return the earlier mapping that it extends."""
    i = t.at
    best = inf
    parent = 0
    last = t.in_ptr[i + 1]
    took = t.time[j * t.n_ops + i]
    if t.released:  # only the first producer counts, and the first operator takes no time
        last = min(t.in_ptr[i] + 1, last)
        took = took if i > 0 else 0.0
    for k in range(t.n_states):
        start = free[k * t.n_devices + j]
        for e in range(t.in_ptr[i], last):
            edge = t.inputs[e]
            on = mapped[k * t.n_ops + edge.op]
            there = t.recorded[edge.op * t.n_devices + on]  # whatever path leads through that state
            start = max(start, there + transfer(edge, on, j, t.n_devices, t.latency, t.bandwidth))
        if start + took < best:
            best = start + took
            parent = k
    t.recorded[i * t.n_devices + j] = best
    return parent


@piece("HIOS schedulers")
def record(t: Mapping) -> None:
    """Record operator after operator, for a while."""
    n = t.n_ops
    n_devices = t.n_devices
    work = 0
    while t.at < n and work < BUDGET:
        i = t.at
        now = t.at % 2
        after = (t.at + 1) % 2
        before = t.mapped[now * n * n_devices :]
        mapped = t.mapped[after * n * n_devices :]
        free_before = t.free[now * n_devices * n_devices :]
        free = t.free[after * n_devices * n_devices :]
        if t.released and i > 0:
            n_states = n_devices
        else:
            n_states = min(n_devices, i + 1)
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


class Stage(Row):
    """An operator, and the stage that begins with it."""

    time: f8  # that the stage takes
    end: f8
    first: i4  # operator of the stage that this one is in
    size: i4
    place: i4  # in the order
    previous: i4  # operator on the device, or -1
    mark: i4  # the last search that met it


class WindowTable(Table):
    """Operators device by device, and the window that slides over them."""

    n_ops: i8
    n_devices: i8  # devices with operators
    width: i8
    turn: i8
    first: i8  # operator in the window
    taken: i8  # operators to be one stage
    best_taken: i8
    stamp: i8  # of the search that marks
    n_merged: i8
    n_refused: i8
    answer: f8  # latency of the requested stage
    latency: f8  # of the whole
    best: f8
    best_time: f8
    stages: Rows[Stage]
    ptr: Column[i8]
    source: Column[i4]  # of each input
    us: Column[f8]
    order: Column[i4]  # topological
    turns: Column[i4]  # first operators of the windows, one after the other
    last: Column[i4]  # operator of each device
    followers: Column[i4] = length("n_ops")


@native
def stage_of(t: WindowTable, i: int) -> Stage:
    """Return the stage that an operator is in."""
    return t.stages[t.stages[i].first]


@native
def end_of(t: WindowTable, s: int) -> float:
    """Return a stage's end: it starts when the stage before it on its device and all inputs are done."""
    stage = t.stages[s]
    start = 0.0
    if stage.previous >= 0:
        start = stage_of(t, stage.previous).end
    for e in range(t.ptr[s], t.ptr[s + stage.size]):
        start = max(start, stage_of(t, t.source[e]).end + t.us[e])
    return start + stage.time


@native
def evaluate(t: WindowTable, begin: int) -> float:
    """Find the ends of stages from a place in the order on; return when the last device is done.

    Stages that do not follow the stage of that place, wherever they are in the order, end as before.
    """
    makespan = 0.0
    for at in range(begin, t.n_ops):
        stage = t.stages[t.order[at]]
        if stage.first == t.order[at]:
            stage.end = end_of(t, stage.first)
    for d in range(t.n_devices):
        makespan = max(makespan, stage_of(t, t.last[d]).end)
    return makespan


@native
def reads_marked(t: WindowTable, s: int) -> bool:
    """Return whether a stage has an input from one that is marked."""
    for e in range(t.ptr[s], t.ptr[s + t.stages[s].size]):
        if stage_of(t, t.source[e]).mark == t.stamp:
            return True
    return False


@native
def can_merge(t: WindowTable, taken: int) -> bool:
    """Mark the successors of the first of `taken` operators up to the last; return whether none of these is marked.

    Successors by data, by another device's order, or by both in turn: an in-order execution would wait for ever if
    operators of one stage waited for each other.
    """
    first = t.first
    after = t.first + taken
    t.stamp += 1
    t.stages[first].mark = t.stamp
    for at in range(t.stages[first].place + 1, t.stages[after - 1].place + 1):
        s = t.order[at]
        stage = t.stages[s]
        if stage.first != s:
            continue
        follows = reads_marked(t, s)
        inside = first < s and s < after
        if follows and inside:
            return False
        if follows or inside or (stage.previous >= 0 and stage_of(t, stage.previous).mark == t.stamp):
            stage.mark = t.stamp
    return True


@native
def set_stage(t: WindowTable, size: int, us: float) -> None:
    """Make the first `size` operators of the window a stage that takes `us`, the others stages of their own."""
    for k in range(t.taken):
        if k < size:
            t.stages[t.first + k].first = t.first
        else:
            t.stages[t.first + k].first = t.first + k
    stage = t.stages[t.first]
    stage.size = size
    stage.time = us


@native
def rearrange(t: WindowTable, taken: int) -> None:
    """Put the joined stage into the order: after the stages that do not follow it, before its successors."""
    begin = t.stages[t.first].place
    end = t.stages[t.first + taken - 1].place
    at = begin
    n_followers = 0
    for place in range(begin, end + 1):
        stage = t.stages[t.order[place]]
        if stage.mark != t.stamp:
            t.order[at] = t.order[place]
            at += 1
        elif stage.first != t.first:
            t.followers[n_followers] = t.order[place]
            n_followers += 1
    for k in range(taken):
        t.order[at + k] = t.first + k
    for k in range(n_followers):
        t.order[at + taken + k] = t.followers[k]
    for place in range(begin, end + 1):
        t.stages[t.order[place]].place = place


@native
def can_widen(t: WindowTable) -> bool:
    """Return whether the window has room for the operator after it, and both are in no stage of several."""
    after = t.first + t.taken
    if t.taken >= t.width or after >= t.n_ops or t.stages[after].previous < 0:
        return False
    return stage_of(t, t.first).size == 1 and stage_of(t, after).size == 1


@native
def close(t: WindowTable) -> None:
    """Keep the best stage of the window, if any is better than none."""
    if t.best_taken > 1:
        can_merge(t, t.best_taken)
        set_stage(t, t.best_taken, t.best_time)
        t.latency = evaluate(t, t.stages[t.first].place)
        rearrange(t, t.best_taken)
        t.n_merged += 1
    t.turn += 1
    t.taken = 0


@piece("HIOS schedulers")
def run_alone(t: WindowTable) -> None:
    """Evaluate every operator as a separate stage."""
    t.latency = evaluate(t, 0)


@piece("HIOS schedulers")
def next_stage(t: WindowTable) -> None:
    """Continue to the next stage whose latency is needed, or to the end of the turns."""
    if t.taken > 0:  # the answer is known: the best stage of the window is the one of the least makespan so far
        alone = t.stages[t.first].time
        begin = t.stages[t.first].place
        set_stage(t, t.taken, t.answer)
        makespan = evaluate(t, begin)
        set_stage(t, 1, alone)
        evaluate(t, begin)
        if makespan < t.best:
            t.best = makespan
            t.best_time = t.answer
            t.best_taken = t.taken
    while t.turn < t.n_ops:
        if t.taken == 0:
            t.first = t.turns[t.turn]
            t.taken = 1
            t.best_taken = 1
            t.best = t.latency
        if can_widen(t):
            if can_merge(t, t.taken + 1):
                t.taken += 1
                return
            t.n_refused += 1
        close(t)
