"""Algorithm 1: the longest valid path of what is left, and the device it goes to."""

from math import inf

from simsched.base.jit import piece
from simsched.schedulers.hios.placement import BUDGET, NONE, Mapping, append_from, insert_all, prepare, put_path


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
    return insert_all(t, limit) if t.inserts else append_from(t, first, limit)


def map_path(t: Mapping, first: int, n_devices: int) -> None:
    """Put the path on the device of least makespan."""
    best, on = inf, 0
    for d in range(n_devices):
        makespan = try_device(t, first, d, best)
        if makespan < best:
            best, on = makespan, d
            if best == t.makespan and not t.inserts:
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
        prepare(t, first)
        map_path(t, first, t.n_devices if t.n_paths > 0 else 1)
        work += t.n_open + t.n_listed * t.n_devices
