"""How busy the devices were: what `Trace` answers from its spans and loads."""

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from simsched.model.cluster import WARP, Device
from simsched.model.graph.columns import Floats, Ints
from simsched.model.trace.timeline import Load, Timeline


def lanes(starts: npt.ArrayLike, ends: npt.ArrayLike) -> Ints:
    """Return for each interval the lowest lane in which it overlaps no earlier one.

    Parameters
    ----------
    starts, ends
        Shape (n,), sorted by start. Intervals that only touch share a lane.

    >>> lanes([0.0, 2.0, 4.0, 5.0], [5.0, 4.0, 6.0, 7.0]).tolist()
    [0, 1, 1, 0]
    """
    start, end = np.asarray(starts), np.asarray(ends)
    found = np.zeros(len(start), np.int64)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for i, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heappush(free, heappop(busy)[1])
        found[i] = heappop(free) if free else len(busy)
        heappush(busy, (until, int(found[i])))
    return found


def load_curve(trace: Timeline, device: str) -> Load:
    """Return the load of a device from the first change to the makespan, where it ends with 0.

    Raises
    ------
    UnknownNameError
        If the cluster has no such device.
    """
    [(_, load)] = _loads(trace, device)
    n = int(np.searchsorted(load.time, trace.makespan))
    time = np.append(load.time[:n], trace.makespan)
    return Load(time, *(np.append(column[:n], 0.0) for column in (load.sm, load.dram, load.warps, load.active_sms)))


def mean_share(trace: Timeline, what: str, device: str | None, full: float | None) -> float:
    """Return the mean over the makespan of a load as a share of what the device has, in [0, 1].

    Parameters
    ----------
    trace
        Whose loads.
    what
        A column of `Load`.
    device
        Name of a device; None takes the mean over all devices of the cluster, idle ones too.
    full
        The value that counts as 1, more being cut off; None stands for the device's SMs.
    """
    if trace.makespan == 0:
        return 0.0
    shares = [
        _integral(trace, load.time, np.minimum(1.0, getattr(load, what) / (full or each.sms))) / trace.makespan
        for each, load in _loads(trace, device)
    ]
    return float(np.mean(shares))


def active_warps(trace: Timeline, device: str | None = None) -> float:
    """Return the mean over the makespan of the resident warps per SM; None: of all SMs of the cluster."""
    if trace.makespan == 0:
        return 0.0
    found = _loads(trace, device)
    warps = sum(_integral(trace, load.time, load.warps) for _, load in found)
    return warps / (trace.makespan * sum(each.sms for each, _ in found))


def achieved_occupancy(trace: Timeline, device: str | None = None) -> float:
    """Return the resident warps over the most that the active SMs could hold, in [0, 1].

    Notes
    -----
    Operators without a grid keep SMs active by their `utilization` but have no warps that anyone
    knows of: they lower the result. It is 0 if no operator has a grid.
    """
    warps = room = 0.0
    for each, load in _loads(trace, device):
        warps += _integral(trace, load.time, load.warps)
        room += _integral(trace, load.time, load.active_sms) * (each.threads_per_sm // WARP)
    return warps / room if room > 0 else 0.0


def _loads(trace: Timeline, device: str | None) -> list[tuple[Device, Load]]:
    """Return a device, or all of the cluster, each with its load."""
    devices = trace.cluster.devices if device is None else [trace.cluster[device]]
    return [(each, trace.loads[trace.cluster.index[each.name]]) for each in devices]


def _integral(trace: Timeline, time: Floats, value: Floats) -> float:
    """Return the integral up to the makespan of what has each value from its time on."""
    n = int(np.searchsorted(time, trace.makespan))
    return float(np.diff(time[:n], append=trace.makespan) @ value[:n])
