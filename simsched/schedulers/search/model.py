"""A quick model of a candidate's makespan, compiled into `core`: operators share a device in proportion.

An operator starts when the one before it on its stream and all it reads from are over and there, and the host has
launched it. What runs on a device at once slows down alike by the sum of the loads, if that is above 1.
"""

from typing import Any

import numpy as np

from simsched.machine_code import compiled
from simsched.machine_columns import floats, longs
from simsched.schedulers.search.layout import (
    BEHIND,
    DEVICE,
    EXACT,
    GAP,
    HOP,
    IN_PTR,
    ISSUE,
    ISSUED,
    LAST,
    LATENCY,
    LEFT,
    LOAD,
    LOADED,
    MISSING,
    N_DEVICES,
    N_OPS,
    N_STREAMS,
    NBYTES,
    ORDER,
    OUT_PTR,
    OUT_TO,
    RATE,
    READY,
    ROW,
    RUNNING,
    STREAM,
    TIME,
    WAITING,
)


@compiled
def _line_up(t: Any) -> int:
    """Put every operator behind the one before it on its stream; return how many wait for none."""
    n, n_devices, n_streams = t[N_OPS], t[N_DEVICES], t[N_STREAMS]
    order, device, stream, in_ptr = longs(t[ORDER]), longs(t[DEVICE]), longs(t[STREAM]), longs(t[IN_PTR])
    missing, behind, last, waiting = longs(t[MISSING]), longs(t[BEHIND]), longs(t[LAST]), longs(t[WAITING])
    ready, issue, issued, loaded = floats(t[READY]), floats(t[ISSUE]), floats(t[ISSUED]), floats(t[LOADED])
    row = longs(t[ROW])
    for d in range(n_devices):
        issued[d] = loaded[d] = 0.0
    for lane in range(n_devices * n_streams):
        last[lane] = -1
    n_waiting = 0
    for k in range(n):
        v = order[k]
        d = device[v]
        lane = d * n_streams + stream[v]
        issued[d] += issue[row[d] * n + v]
        ready[v] = issued[d]
        missing[v] = in_ptr[v + 1] - in_ptr[v]
        behind[v] = -1
        if last[lane] >= 0:
            behind[last[lane]] = v
            missing[v] += 1
        last[lane] = v
        if missing[v] == 0:
            waiting[n_waiting] = v
            n_waiting += 1
    return n_waiting


@compiled
def _release(t: Any, u: int, now: float, n_waiting: int) -> int:
    """Tell those that wait for an operator that it is over; return how many now wait for their time alone."""
    device, stream = longs(t[DEVICE]), longs(t[STREAM])
    missing, behind, waiting, ready = longs(t[MISSING]), longs(t[BEHIND]), longs(t[WAITING]), floats(t[READY])
    ptr, to, exact, nbytes = longs(t[OUT_PTR]), longs(t[OUT_TO]), floats(t[EXACT]), floats(t[NBYTES])
    latency, rate = floats(t[LATENCY]), floats(t[RATE])
    here, gap, hop = device[u], floats(t[GAP])[device[u]], floats(t[HOP])
    for k in range(ptr[u], ptr[u + 1]):
        v = to[k]
        there = device[v]
        arrival = now
        if there != here:
            pair = here * t[N_DEVICES] + there
            arrival += hop[there] + (exact[k] if exact[k] >= 0.0 else latency[pair] + nbytes[k] / rate[pair])
        elif stream[v] != stream[u]:
            arrival += hop[here]
        ready[v] = max(ready[v], arrival)
        missing[v] -= 1
        if missing[v] == 0:
            waiting[n_waiting] = v
            n_waiting += 1
    v = behind[u]
    if v >= 0:
        ready[v] = max(ready[v], now + gap)
        missing[v] -= 1
        if missing[v] == 0:
            waiting[n_waiting] = v
            n_waiting += 1
    return n_waiting


@compiled
def makespan_of(t: Any) -> float:
    """Return the makespan in us of the candidate by the model; inf where a copy has no way."""
    n, device, row = t[N_OPS], longs(t[DEVICE]), longs(t[ROW])
    time, load, left, loaded = floats(t[TIME]), floats(t[LOAD]), floats(t[LEFT]), floats(t[LOADED])
    ready, waiting, running = floats(t[READY]), longs(t[WAITING]), longs(t[RUNNING])
    n_waiting, n_running = _line_up(t), 0
    now = 0.0
    while n_waiting > 0 or n_running > 0:
        then = np.inf
        for k in range(n_waiting):
            then = min(then, ready[waiting[k]])
        for k in range(n_running):
            u = running[k]
            then = min(then, now + left[u] * max(1.0, loaded[device[u]]))
        if then == np.inf:
            return np.inf
        later = then * (1.0 + 1e-9)
        n_over = 0
        for k in range(n_running):
            u = running[k]
            slower = max(1.0, loaded[device[u]])
            if now + left[u] * slower <= later:
                running[k] = -1 - u
                n_over += 1
            else:
                left[u] -= (then - now) / slower
        now = then
        at = 0
        for k in range(n_running if n_over > 0 else 0):
            u = running[k]
            if u >= 0:
                running[at] = u
                at += 1
                continue
            u = -1 - u
            loaded[device[u]] -= load[row[device[u]] * n + u]
            n_waiting = _release(t, u, now, n_waiting)
        n_running -= n_over
        k = 0
        while k < n_waiting:
            v = waiting[k]
            if ready[v] > later:
                k += 1
                continue
            n_waiting -= 1
            waiting[k] = waiting[n_waiting]
            here = row[device[v]] * n + v
            left[v] = time[here]
            loaded[device[v]] += load[here]
            running[n_running] = v
            n_running += 1
    return now
