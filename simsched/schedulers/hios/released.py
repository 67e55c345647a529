"""Algorithm 1 as the released code has it, in machine code: paths of edges, and clocks of devices for finish times."""

from typing import Any

import numpy as np

from simsched.machine_code import compiled
from simsched.machine_columns import floats, ints
from simsched.schedulers.hios.layout import (
    BANDWIDTH,
    BUDGET,
    DEVICE,
    DONE,
    FOLLOWING,
    FREE,
    GIVEN,
    GOING_ON,
    IN_FROM,
    IN_NBYTES,
    IN_PTR,
    IN_US,
    LATENCY,
    LEFT_IN,
    MEAN_TIME,
    N_DEVICES,
    N_OPEN,
    N_OPS,
    N_PATHS,
    NONE,
    ONWARD,
    OUT_MEAN,
    OUT_PTR,
    OUT_TO,
    PATH,
    TAKEN_OUT,
    TIME,
)
from simsched.schedulers.hios.placement import transfer


@compiled
def _peel(t: Any) -> int:
    """Take the edges of the longest path of those left out; return how many operators on it are not mapped yet.

    They are written to `PATH`. The time of a path's first operator does not count.
    """
    weight, onward, following = floats(t[MEAN_TIME]), floats(t[ONWARD]), ints(t[FOLLOWING])
    ptr, lead_to, us = ints(t[OUT_PTR]), ints(t[OUT_TO]), floats(t[OUT_MEAN])
    taken, left_in, device, path = ints(t[TAKEN_OUT]), ints(t[LEFT_IN]), ints(t[DEVICE]), ints(t[PATH])
    first, longest = NONE, -1.0
    for i in range(t[N_OPS] - 1, -1, -1):
        onward[i], following[i] = 0.0, NONE
        for e in range(ptr[i], ptr[i + 1]):
            if taken[e] == 0:
                through = us[e] + weight[lead_to[e]] + onward[lead_to[e]]
                if following[i] < 0 or through > onward[i]:
                    onward[i], following[i] = through, e
        if following[i] >= 0 and left_in[i] == 0 and onward[i] >= longest:
            first, longest = i, onward[i]
    n = 0
    while first >= 0:
        if device[first] < 0:
            path[n] = first
            n += 1
        e = following[first]
        first = NONE
        if e >= 0:
            taken[e] = 1
            t[N_OPEN] -= 1
            first = lead_to[e]
            left_in[first] -= 1
    return n


@compiled
def _clocks(t: Any) -> float:
    """Return the makespan if operators run in the given order, each when the devices of its inputs are free."""
    n, n_devices = t[N_OPS], t[N_DEVICES]
    given, device, time, clock = ints(t[GIVEN]), ints(t[DEVICE]), floats(t[TIME]), floats(t[FREE])
    ptr, come_from = ints(t[IN_PTR]), ints(t[IN_FROM])
    us, nbytes, latency, bandwidth = floats(t[IN_US]), floats(t[IN_NBYTES]), floats(t[LATENCY]), floats(t[BANDWIDTH])
    for d in range(n_devices):
        clock[d] = 0.0
    for at in range(n):
        i = given[at]
        d = device[i]
        if d < 0:
            continue
        start = clock[d]
        for e in range(ptr[i], ptr[i + 1]):
            on = device[come_from[e]]
            if on >= 0 and on != d:
                pair = on * n_devices + d
                start = max(start, clock[on] + transfer(us, nbytes, latency, bandwidth, e, pair))
        clock[d] = start + time[d * n + i]
    makespan = 0.0
    for d in range(n_devices):
        makespan = max(makespan, clock[d])
    return makespan


@compiled
def map_edges(t: Any) -> int:
    """Map path after path until no edge is left; return the new status."""
    path, device, work = ints(t[PATH]), ints(t[DEVICE]), 0
    while t[N_OPEN] > 0:
        if work > BUDGET:
            return GOING_ON
        n_path = _peel(t)
        best, on = np.inf, 0
        for d in range(t[N_DEVICES] if n_path > 0 else 0):
            for k in range(n_path):
                device[path[k]] = d
            makespan = _clocks(t)
            if makespan <= best:
                best, on = makespan, d
        for k in range(n_path):
            device[path[k]] = on
        t[N_PATHS] += 1
        work += t[N_OPS] * (1 + t[N_DEVICES])
    for i in range(t[N_OPS]):
        device[i] = max(device[i], 0)  # those without edges
    return DONE
