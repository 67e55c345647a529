"""Algorithm 1 as the released code has it: paths of edges, and clocks of devices for finish times."""

from math import inf

from simsched.base.jit import piece
from simsched.schedulers.hios.placement import BUDGET, NONE, Mapping, put_path, transfer


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
            if not edge.taken and (step.following < 0 or through > step.onward):
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
            i, edge.taken = edge.op, 1
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
                start = max(start, t.devices[on].free + transfer(t, edge, on, d))
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
