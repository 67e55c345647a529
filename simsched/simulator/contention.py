"""The arithmetic of sharing a device: one module for both engines.

Every function here takes and returns plain numbers or numpy arrays and uses no Python object, so
that the reference engine runs it as it stands and a compiler can take it as it stands.

A resident block of a kernel loads two resources, the issue slots of the SMs and DRAM, each
counted as a share of the device. Where a load exceeds 1 the kernels slow each other down in
proportion to how sensitive they are to that resource.
"""

from math import ceil, floor, inf
from typing import Any

from simsched.units import TIE

SATURATED = 1.0 + 1e-9
"""A load above this counts as saturation, where interference begins."""
MAX_COHORTS = 4
"""Groups of blocks of a kernel that end together; more are merged."""


def slowdown(alpha: float, beta: float, sm_load: float, dram_load: float) -> float:
    """Return how much longer a block takes than on an idle device, at least 1.

    Parameters
    ----------
    alpha, beta
        Sensitivity to the SM load and to the DRAM load, in [0, 1].
    sm_load, dram_load
        Total loads on the device; 1 is all of it.
    """
    return max(1.0, 1.0 - alpha + alpha * sm_load, 1.0 - beta + beta * dram_load)


def solo_units(blocks: int, residency: int, sm_share: float, dram_share: float, alpha: float, beta: float) -> float:
    """Return the time of a kernel alone, in units of the time of one of its blocks on an idle device.

    Parameters
    ----------
    blocks
        Blocks in the grid; 0 for an operator without a grid, which is one piece of work.
    residency
        Blocks that the device holds at once.
    sm_share, dram_share
        What one resident block loads.
    alpha, beta
        Sensitivities, see `slowdown`.

    Notes
    -----
    Waves of `residency` blocks follow each other; the last has what is left over.
    """
    if blocks == 0:
        return slowdown(alpha, beta, sm_share, dram_share)
    waves = ceil(blocks / residency)
    last = blocks - (waves - 1) * residency
    full = slowdown(alpha, beta, residency * sm_share, residency * dram_share)
    return (waves - 1) * full + slowdown(alpha, beta, last * sm_share, last * dram_share)


def whole_cycles(unissued: int, resident: int) -> int:
    """Return the refills of all resident blocks that can be passed over before the last, partial one."""
    return max(0, ceil(unissued / resident) - 1)


def waves_over(due: float, cycles: int, progress: float, tolerance: float) -> tuple[int, bool]:
    """Return how many waves a cohort has had since its refills were passed over, and if one ends just now.

    Parameters
    ----------
    due
        Progress at which the last of its `cycles` passed-over refills is over.
    progress, tolerance
        Where the kernel is, and what counts as the same place.
    """
    since = progress - (due - 1.0 - cycles)
    waves = floor(since + tolerance)
    return waves, waves >= 1 and since - waves <= tolerance


def same_due(a: float, b: float) -> bool:
    """Return whether blocks that are over at progress a and at progress b form one cohort."""
    return abs(a - b) <= TIE * max(1.0, b)


def is_closer(gap: float, least: float) -> bool:
    """Return whether two cohorts are closer to each other than the closest so far, by more than rounding."""
    return gap < least - 1e-6


def finish_time(anchor: float, progress: float, rate: float, due: float) -> float:
    """Return when work `due` is reached from `progress` at time `anchor` with a constant rate."""
    return anchor + (due - progress) / rate


def end_of_instant(now: float) -> float:
    """Return the last time that belongs to the instant `now`."""
    return now * (1.0 + TIE)


def is_later(time: float, other: float) -> bool:
    """Return whether a time is of a later instant than another."""
    return time > end_of_instant(other)


def is_over(finish: float, now: float) -> bool:
    """Return whether something that ends at `finish` belongs to the instant `now`."""
    return finish <= end_of_instant(now)


def max_min_rates(
    n_flows: int, flow_ptr: Any, flow_channel: Any, capacity: Any, left: Any, users: Any, live: Any, rate: Any
) -> None:
    """Compute the max-min fair rate of each flow.

    Parameters
    ----------
    n_flows, flow_ptr, flow_channel
        Flow f crosses channels ``flow_channel[flow_ptr[f]:flow_ptr[f + 1]]``.
    capacity
        Bytes per us of each channel.
    left, users, live
        Room for work, a number per channel; `users` holds zeros, before and after.
    rate
        Where the rates go, bytes per us, a number per flow.

    Notes
    -----
    Progressive filling: the channel with the least capacity per flow fixes the rate of its flows
    (of equal ones the channel that was first used), then the rest is shared anew. Time is
    O(channels in use x crossings), whatever else there is.
    """
    n_live = 0
    for k in range(flow_ptr[0], flow_ptr[n_flows]):
        channel = flow_channel[k]
        if capacity[channel] < inf:
            if users[channel] == 0:
                live[n_live] = channel
                left[channel] = capacity[channel]
                n_live += 1
            users[channel] += 1
    for flow in range(n_flows):
        rate[flow] = -1.0
    while True:
        tightest = -1
        share = inf
        for i in range(n_live):
            channel = live[i]
            if users[channel] > 0 and left[channel] / users[channel] < share:
                share = left[channel] / users[channel]
                tightest = channel
        if tightest < 0:  # the flows that are left cross only unlimited channels
            break
        for flow in range(n_flows):
            if rate[flow] >= 0.0:
                continue
            for k in range(flow_ptr[flow], flow_ptr[flow + 1]):
                if flow_channel[k] == tightest:
                    rate[flow] = share
                    break
            if rate[flow] >= 0.0:
                for k in range(flow_ptr[flow], flow_ptr[flow + 1]):
                    channel = flow_channel[k]
                    if capacity[channel] < inf:
                        left[channel] = max(0.0, left[channel] - share)
                        users[channel] -= 1
    for flow in range(n_flows):
        if rate[flow] < 0.0:
            rate[flow] = inf
    for i in range(n_live):
        users[live[i]] = 0
