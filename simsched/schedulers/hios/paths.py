"""Algorithm 1 in machine code: the longest valid path of what is left, and the device it goes to."""

from typing import Any

import numpy as np

from simsched.machine_code import compiled
from simsched.machine_columns import floats, ints
from simsched.schedulers.hios.layout import (
    BUDGET,
    DEVICE,
    DONE,
    FOLLOWING,
    GOES_ON,
    GOING_ON,
    IN_FROM,
    IN_MEAN,
    IN_PTR,
    INSERTS,
    LISTED,
    MEAN_TIME,
    N_DEVICES,
    N_LISTED,
    N_OPEN,
    N_PATHS,
    NONE,
    ONWARD,
    OPEN,
    OUT_MEAN,
    OUT_PTR,
    OUT_TO,
    PATH,
)
from simsched.schedulers.hios.placement import append_from, find_base, find_tails, insert_all


@compiled
def _longest_valid_path(t: Any) -> int:
    """Write the longest valid path of the operators not mapped yet; return how many are on it."""
    left, device, weight = ints(t[OPEN]), ints(t[DEVICE]), floats(t[MEAN_TIME])
    in_ptr, come_from, in_us = ints(t[IN_PTR]), ints(t[IN_FROM]), floats(t[IN_MEAN])
    out_ptr, lead_to, out_us = ints(t[OUT_PTR]), ints(t[OUT_TO]), floats(t[OUT_MEAN])
    onward, following, goes_on, path = floats(t[ONWARD]), ints(t[FOLLOWING]), ints(t[GOES_ON]), ints(t[PATH])
    longest, first = -1.0, NONE
    for at in range(t[N_OPEN] - 1, -1, -1):
        i = left[at]
        head, tail = -1.0, -1.0  # longest edges from and to the mapped part
        for e in range(out_ptr[i], out_ptr[i + 1]):
            if device[lead_to[e]] >= 0:
                tail = max(tail, out_us[e])
        for e in range(in_ptr[i], in_ptr[i + 1]):
            if device[come_from[e]] >= 0:
                head = max(head, in_us[e])
        alone = weight[i] + max(tail, 0.0)
        length, then = alone, NONE
        for e in range(out_ptr[i], out_ptr[i + 1]):
            j = lead_to[e]
            if device[j] < 0:
                through = weight[i] + out_us[e] + onward[j]
                if through > length or (through == length and (then < 0 or j < then)):
                    length, then = through, j
        following[i] = then
        goes_on[i] = head < 0.0 and tail < 0.0  # only the first and the last may be next to the mapped part
        onward[i] = length if goes_on[i] else alone
        whole = length + max(head, 0.0)
        if whole >= longest:
            longest, first = whole, i
    n = 0
    while first >= 0:
        path[n] = first
        first = following[first] if n == 0 or goes_on[first] else NONE
        n += 1
    return n


@compiled
def _list_path(t: Any, n_path: int) -> int:
    """Merge the path into the list of mapped operators and take it out of the open ones; return the first place."""
    listed, left, path = ints(t[LISTED]), ints(t[OPEN]), ints(t[PATH])
    at, k = t[N_LISTED] - 1, n_path - 1
    place = at + n_path
    t[N_LISTED] = place + 1
    while k >= 0:
        if at >= 0 and listed[at] > path[k]:
            listed[place] = listed[at]
            at -= 1
        else:
            listed[place] = path[k]
            k -= 1
        place -= 1
    kept, k = 0, 0
    for i in range(t[N_OPEN]):
        if k < n_path and left[i] == path[k]:
            k += 1
        else:
            left[kept] = left[i]
            kept += 1
    t[N_OPEN] = kept
    return place + 1  # type: ignore[no-any-return]


@compiled
def _try_device(t: Any, n_path: int, first: int, d: int, limit: float) -> float:
    """Return the makespan with the path on device `d`, or infinity if it is not below `limit`."""
    path, device = ints(t[PATH]), ints(t[DEVICE])
    for k in range(n_path):
        device[path[k]] = d
    if t[INSERTS]:
        return insert_all(t, limit)
    return append_from(t, first, limit)


@compiled
def map_paths(t: Any) -> int:
    """Map path after path; return the new status."""
    work = 0
    while t[N_OPEN] > 0:
        if work > BUDGET:
            return GOING_ON
        n_path = _longest_valid_path(t)
        first = _list_path(t, n_path)
        before = find_base(t, first)
        find_tails(t, first)
        n_candidates = t[N_DEVICES] if t[N_PATHS] > 0 else 1
        best, on, last = np.inf, 0, 0
        for d in range(n_candidates):
            makespan = _try_device(t, n_path, first, d, best)
            last = d
            if makespan < best:
                best, on = makespan, d
                if best == before and not t[INSERTS]:
                    break  # behind what is there, more operators end nothing sooner
        if last != on:
            _try_device(t, n_path, first, on, np.inf)
        t[N_PATHS] += 1
        work += t[N_OPEN] + (t[N_LISTED] - (0 if t[INSERTS] else first)) * n_candidates
    return DONE
