"""The list evaluation in machine code: operators by falling priority, each when its device and its inputs are there."""

from typing import Any, Final

import numpy as np

from simsched.machine_code import compiled
from simsched.machine_columns import floats, ints
from simsched.schedulers.hios.layout import (
    BANDWIDTH,
    BASE,
    BEGINS,
    COUNT,
    DEVICE,
    ENDS,
    FINISH,
    FREE,
    IN_FROM,
    IN_NBYTES,
    IN_PTR,
    IN_US,
    LATENCY,
    LISTED,
    N_DEVICES,
    N_LISTED,
    N_OPS,
    START,
    TAIL,
    TIME,
)

_ROUNDING: Final = 1e-9  # sums in another order differ by less


@compiled
def transfer(us: Any, nbytes: Any, latency: Any, bandwidth: Any, e: int, pair: int) -> float:
    """Return the us of an edge between a pair of different devices."""
    fixed = us[e]
    if fixed >= 0.0:
        return fixed  # type: ignore[no-any-return]
    return latency[pair] + nbytes[e] / bandwidth[pair]  # type: ignore[no-any-return]


@compiled
def find_base(t: Any, first: int) -> float:
    """Write when each device is free of what is listed before place `first`; return the makespan of all mapped."""
    base, listed, device, finish = floats(t[BASE]), ints(t[LISTED]), ints(t[DEVICE]), floats(t[FINISH])
    for d in range(t[N_DEVICES]):
        base[d] = 0.0
    makespan = 0.0
    for at in range(t[N_LISTED]):
        i = listed[at]
        if device[i] >= 0:
            makespan = max(makespan, finish[i])
            if at < first:
                base[device[i]] = finish[i]
    return makespan


@compiled
def find_tails(t: Any, first: int) -> None:
    """Write how long all takes from the end of each operator on, by data and by the order of its device.

    Operators that are mapped later add to that: with one of them the makespan is no less.
    """
    n, n_devices = t[N_OPS], t[N_DEVICES]
    listed, device, tail, ahead = ints(t[LISTED]), ints(t[DEVICE]), floats(t[TAIL]), floats(t[FREE])
    ptr, come_from, time = ints(t[IN_PTR]), ints(t[IN_FROM]), floats(t[TIME])
    us, nbytes, latency, bandwidth = floats(t[IN_US]), floats(t[IN_NBYTES]), floats(t[LATENCY]), floats(t[BANDWIDTH])
    for d in range(n_devices):
        ahead[d] = 0.0
    for at in range(first, t[N_LISTED]):
        tail[listed[at]] = 0.0
    for at in range(t[N_LISTED] - 1, first - 1, -1):
        i = listed[at]
        d = device[i]
        if d < 0:
            continue
        tail[i] = max(tail[i], ahead[d])
        ahead[d] = time[d * n + i] + tail[i]
        for e in range(ptr[i], ptr[i + 1]):
            j = come_from[e]
            if device[j] >= 0 and device[j] != d:
                pair = device[j] * n_devices + d
                tail[j] = max(tail[j], transfer(us, nbytes, latency, bandwidth, e, pair) + ahead[d])


@compiled
def append_from(t: Any, first: int, limit: float) -> float:
    """Evaluate the list from place `first` on; return its makespan, or infinity where it cannot be below `limit`."""
    n, n_devices = t[N_OPS], t[N_DEVICES]
    listed, device, finish = ints(t[LISTED]), ints(t[DEVICE]), floats(t[FINISH])
    ptr, come_from, time = ints(t[IN_PTR]), ints(t[IN_FROM]), floats(t[TIME])
    us, nbytes, latency, bandwidth = floats(t[IN_US]), floats(t[IN_NBYTES]), floats(t[LATENCY]), floats(t[BANDWIDTH])
    free, base, tail = floats(t[FREE]), floats(t[BASE]), floats(t[TAIL])
    too_long = limit * (1.0 + _ROUNDING)
    for d in range(n_devices):
        free[d] = base[d]
    for at in range(first, t[N_LISTED]):
        i = listed[at]
        d = device[i]
        start = free[d]
        for e in range(ptr[i], ptr[i + 1]):
            j = come_from[e]
            if device[j] >= 0 and device[j] != d:
                there = finish[j] + transfer(us, nbytes, latency, bandwidth, e, device[j] * n_devices + d)
                start = max(start, there)
        end = start + time[d * n + i]
        if end >= limit or end + tail[i] > too_long:
            return np.inf
        finish[i] = end
        free[d] = end
    makespan = 0.0
    for d in range(n_devices):
        makespan = max(makespan, free[d])
    return makespan


@compiled
def insert_all(t: Any, limit: float) -> float:
    """Evaluate the list, each operator in the first gap of its device that is long enough; as `append_from`."""
    n, n_devices = t[N_OPS], t[N_DEVICES]
    listed, device, begin_of, finish = ints(t[LISTED]), ints(t[DEVICE]), floats(t[START]), floats(t[FINISH])
    ptr, come_from, time = ints(t[IN_PTR]), ints(t[IN_FROM]), floats(t[TIME])
    us, nbytes, latency, bandwidth = floats(t[IN_US]), floats(t[IN_NBYTES]), floats(t[LATENCY]), floats(t[BANDWIDTH])
    begins, ends, count = floats(t[BEGINS]), floats(t[ENDS]), ints(t[COUNT])
    for d in range(n_devices):
        count[d] = 0
    makespan = 0.0
    for at in range(t[N_LISTED]):
        i = listed[at]
        d = device[i]
        start = 0.0
        for e in range(ptr[i], ptr[i + 1]):
            j = come_from[e]
            if device[j] >= 0:
                there = finish[j]
                if device[j] != d:
                    there += transfer(us, nbytes, latency, bandwidth, e, device[j] * n_devices + d)
                start = max(start, there)
        row, used, need = d * n, count[d], time[d * n + i]
        low, high = 0, used
        while low < high:  # the first that ends after the inputs are there
            middle = (low + high) // 2
            if ends[row + middle] > start:
                high = middle
            else:
                low = middle + 1
        while low < used and start + need > begins[row + low]:
            start = max(start, ends[row + low])
            low += 1
        end = start + need
        if end >= limit:
            return np.inf
        for k in range(used, low, -1):
            begins[row + k], ends[row + k] = begins[row + k - 1], ends[row + k - 1]
        begins[row + low], ends[row + low] = start, end
        count[d] = used + 1
        begin_of[i], finish[i] = start, end
        makespan = max(makespan, end)
    return makespan
