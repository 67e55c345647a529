"""Algorithm 3 in machine code: for each operator and device the mapping of all before it that ends it first."""

from typing import Any

import numpy as np

from simsched.machine_code import compiled
from simsched.machine_columns import floats, ints
from simsched.schedulers.hios.layout import (
    AT,
    BANDWIDTH,
    BUDGET,
    DEVICE,
    DONE,
    FREE_IN,
    GOING_ON,
    IN_FROM,
    IN_NBYTES,
    IN_PTR,
    IN_US,
    LATENCY,
    MAPPED,
    N_DEVICES,
    N_OPS,
    PARENT,
    PHASE,
    RECORDED,
    RELEASED_RECORD,
    TIME,
)
from simsched.schedulers.hios.placement import transfer


@compiled
def _n_states(t: Any, i: int) -> int:
    """Return how many states operator `i` has; before the first there is one."""
    n_devices: int = t[N_DEVICES]
    if t[PHASE] == RELEASED_RECORD and i > 0:
        return n_devices
    return max(1, min(n_devices, i + 1))


@compiled
def _extend(t: Any, i: int, j: int, mapped: Any, free: Any) -> None:
    """Write when operator `i` ends first on device `j`, and after which mapping of those before it."""
    n, n_devices = t[N_OPS], t[N_DEVICES]
    recorded, time = floats(t[RECORDED]), floats(t[TIME])
    ptr, come_from = ints(t[IN_PTR]), ints(t[IN_FROM])
    us, nbytes, latency, bandwidth = floats(t[IN_US]), floats(t[IN_NBYTES]), floats(t[LATENCY]), floats(t[BANDWIDTH])
    best, parent = np.inf, 0
    released = t[PHASE] == RELEASED_RECORD  # only the first producer counts, and the first operator takes no time
    last = min(ptr[i] + 1, ptr[i + 1]) if released else ptr[i + 1]
    for k in range(_n_states(t, i - 1)):
        start = free[k * n_devices + j]
        for e in range(ptr[i], last):
            on = mapped[k * n + come_from[e]]
            there = recorded[come_from[e] * n_devices + on]  # whatever path leads through that state
            if on != j:
                there += transfer(us, nbytes, latency, bandwidth, e, on * n_devices + j)
            start = max(start, there)
        end = start + (0.0 if released and i == 0 else time[j * n + i])
        if end < best:
            best, parent = end, k
    recorded[i * n_devices + j] = best
    ints(t[PARENT])[j] = parent


@compiled
def record(t: Any) -> int:
    """Record state after state, and take the mapping of least makespan; return the new status."""
    n, n_devices = t[N_OPS], t[N_DEVICES]
    mapped, free = ints(t[MAPPED]), floats(t[FREE_IN])
    recorded, parent = floats(t[RECORDED]), ints(t[PARENT])
    work = 0
    while t[AT] < n:
        if work > BUDGET:
            return GOING_ON
        i = t[AT]
        now, after = i % 2, (i + 1) % 2  # the mappings are copied from the one half to the other
        states, words = n * n_devices, n_devices * n_devices
        n_states = _n_states(t, i)
        for j in range(n_states):
            _extend(t, i, j, ints(t[MAPPED] + 4 * now * states), floats(t[FREE_IN] + 8 * now * words))
        for j in range(n_states):
            source, target = now * states + parent[j] * n, after * states + j * n
            for k in range(i):
                mapped[target + k] = mapped[source + k]
            mapped[target + i] = j
            source, target = now * words + parent[j] * n_devices, after * words + j * n_devices
            for d in range(n_devices):
                free[target + d] = free[source + d]
            free[target + j] = recorded[i * n_devices + j]
        work += i * n_states
        t[AT] += 1
    half, best, of = n % 2, np.inf, 0
    for j in range(_n_states(t, n - 1)):
        makespan = recorded[(n - 1) * n_devices + j]
        for d in range(0 if t[PHASE] == RELEASED_RECORD else n_devices):
            makespan = max(makespan, free[(half * n_devices + j) * n_devices + d])
        if makespan < best:
            best, of = makespan, j
    for i in range(n):
        ints(t[DEVICE])[i] = mapped[(half * n_devices + of) * n + i]
    return DONE
