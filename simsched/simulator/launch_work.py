"""The work of a launch, which its lane does next; both engines run this code."""

from sys import float_info
from typing import Final

from simsched.base.jit import native
from simsched.simulator.contention import LaneWork
from simsched.simulator.state import DeviceTable, LaunchDemand, SampleTable

LEAST_UNIT: Final = float_info.min
"""Shortest time of a block in us: the rate of a shorter one overflows."""
MOST_DRAWN: Final = 2.0
"""Most DRAM bandwidth of an SM, as a multiple of an even share: half of the SMs fill DRAM. Prior, 1.4 to 2.5."""


@native
def set_up(devices: DeviceTable, samples: SampleTable, lane: int, row: int, op: int, place: int, now: float) -> None:
    """Prepare the work of an operator's launch, the instruction at `place`, that has reached the head of its lane."""
    launch = devices.launches[row]
    work = devices.work[lane]
    device = devices.rows[work.device]
    work.row = row
    work.solo = launch.solo
    work.unit = launch.unit
    work.dram_share = launch.dram_share
    if samples.jittered:  # the sample scales its time
        work.solo *= samples.factors[samples.at * samples.n_ops + op]
    if launch.blocks:
        work.latency = min(device.kernel_latency, work.solo)
    else:
        work.latency = 0.0
    work.residency = launch.residency
    work.arrival = now
    work.place = place
    work.start = -1.0
    if samples.jittered:
        work.unit = work.solo - work.latency
        if launch.blocks:  # blocks that take longer load DRAM less
            most = float(min(launch.blocks, launch.residency))
            sms = float(device.sms)
            most = 1.0 / (most if launch.sm_share * most <= sms else sms / launch.sm_share)
            if work.unit > 0.0:
                work.dram_share = min(most, launch.traffic / work.unit)
            else:
                work.dram_share = 0.0
            work.unit /= launch.units
    if devices.n_partitions > 0 and work.rooms >= 0 and launch.blocks:
        _bind(work, launch, device.sms)


@native
def _bind(work: LaneWork, launch: LaunchDemand, sms: int) -> None:
    """Confine a kernel to the SMs of its partition, of all the SMs of the device.

    One that DRAM binds has fewer blocks there, and each of them takes up to `MOST_DRAWN` times its share of DRAM, as
    far as its issue slots let it.
    """
    work.residency = launch.residency // sms * work.sms
    if launch.kind == 1:
        part = float(min(launch.blocks, work.residency)) / float(min(launch.blocks, launch.residency))
        quicker = max(part, launch.alpha, 1.0 / MOST_DRAWN)
        work.unit *= quicker
        work.dram_share /= quicker
