"""The arithmetic of sharing a device: one text for both engines.

The reference engine calls these functions as they stand, the compiled engine compiles them.

A resident block of a kernel loads two resources, the issue slots of the SMs and DRAM, each
counted as a share of the device. Where a load exceeds 1 the kernels slow each other down in
proportion to how sensitive they are to that resource.
"""

from math import ceil, floor, inf
from typing import Final

from simsched.jit import Column, Row, Rows, f8, i4
from simsched.units import TIE, TIE_LIMIT

SATURATED: Final = 1.0 + 1e-9
"""A load above this counts as saturation, where interference begins."""
MAX_COHORTS: Final = 4
"""Groups of blocks of a kernel that end together; more are merged."""
SAME_PLACE: Final = 1e-3
"""Of a block: an instant is never so long that it takes in two waves."""


class Channel(Row):
    """A direction of a link, or copy engines: what flows share; `left` and `users` (0 between calls) are for work."""

    capacity: f8  # bytes per us
    left: f8
    users: i4


class Crossing(Row):
    """A flow as its channels see it: it crosses `crossed[first:end]`, at a rate in bytes per us."""

    rate: f8
    first: i4
    end: i4


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
    waves = ceil(float(blocks) / float(residency))
    last = blocks - (waves - 1) * residency
    full = slowdown(alpha, beta, residency * sm_share, residency * dram_share)
    return (waves - 1) * full + slowdown(alpha, beta, last * sm_share, last * dram_share)


def whole_cycles(unissued: int, resident: int) -> int:
    """Return the refills of all resident blocks that can be passed over before the last, partial one."""
    return max(0, ceil(float(unissued) / float(resident)) - 1)


def waves_over(due: float, cycles: int, progress: float, now: float, rate: float) -> tuple[int, bool]:
    """Return how many waves a cohort has had since its refills were passed over, and if one ends just now.

    Parameters
    ----------
    due
        Progress at which the last of its `cycles` passed-over refills is over.
    progress, now, rate
        Where the kernel is, when, and how fast.
    """
    tolerance = min(SAME_PLACE, TIE * max(1.0, min(now, TIE_LIMIT) * rate))
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
    return min(now * (1.0 + TIE), now + TIE * TIE_LIMIT)


def is_later(time: float, other: float) -> bool:
    """Return whether a time is of a later instant than another."""
    return time > end_of_instant(other)


def max_min_rates(
    n_flows: int, flows: Rows[Crossing], crossed: Column[i4], channels: Rows[Channel], live: Column[i4]
) -> None:
    """Compute the max-min fair rate of each flow.

    Parameters
    ----------
    n_flows
        How many of `flows` there are.
    crossed
        Numbers of channels, for all flows.
    live
        Room for work, a number per channel.

    Notes
    -----
    Progressive filling: the channel with the least capacity per flow fixes the rate of its flows
    (of equal ones the channel that was first used), then the rest is shared anew. Time is
    O(channels in use x crossings), whatever else there is.
    """
    n_live = 0
    for f in range(n_flows):
        flow = flows[f]
        flow.rate = -1.0
        for k in range(flow.first, flow.end):
            channel = channels[crossed[k]]
            if channel.capacity < inf:
                if channel.users == 0:
                    live[n_live] = crossed[k]
                    channel.left = channel.capacity
                    n_live += 1
                channel.users += 1
    while True:
        tightest = _tightest(n_live, live, channels)
        if tightest < 0:  # the flows that are left cross only unlimited channels
            break
        share = channels[tightest].left / channels[tightest].users
        for f in range(n_flows):
            flow = flows[f]
            if flow.rate < 0.0 and _crosses(flow, crossed, tightest):
                flow.rate = share
                for k in range(flow.first, flow.end):
                    channel = channels[crossed[k]]
                    if channel.capacity < inf:
                        channel.left = max(0.0, channel.left - share)
                        channel.users -= 1
    for f in range(n_flows):
        if flows[f].rate < 0.0:
            flows[f].rate = inf
    for i in range(n_live):
        channels[live[i]].users = 0


def _tightest(n_live: int, live: Column[i4], channels: Rows[Channel]) -> int:
    """Return the channel with the least capacity per flow, -1 if no flow is left."""
    tightest, share = -1, inf
    for i in range(n_live):
        channel = channels[live[i]]
        if channel.users > 0 and channel.left / channel.users < share:
            tightest, share = live[i], channel.left / channel.users
    return tightest


def _crosses(flow: Crossing, crossed: Column[i4], channel: int) -> bool:
    for k in range(flow.first, flow.end):
        if crossed[k] == channel:
            return True
    return False
