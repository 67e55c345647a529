"""Algorithm 3: for each operator and device the mapping of all before it that ends it first."""

from math import inf

from simsched.base.jit import Column, f8, i4, piece
from simsched.schedulers.hios.placement import BUDGET, Mapping, transfer


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
            start = max(start, there + transfer(t, edge, on, j))
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
