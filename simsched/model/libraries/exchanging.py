"""The kernel of a collective: its blocks move data between devices, and keep their places until all have come."""

from typing import Final

from simsched.base.units import KIB
from simsched.model.cluster import Device
from simsched.model.graph import Collective
from simsched.model.libraries.launch import Launch

_CHANNELS: Final = {7: 12, 8: 24}
"""Most blocks by the first number of the compute capability, from that on: as NCCL says that it uses on such nodes."""
_FEWEST_CHANNELS: Final = 2
_CHANNEL_NBYTES: Final = 32 * KIB
"""Bytes from which another block pays: prior, 16 to 64 KiB."""
_THREADS = 544
_REGISTERS = 96
_SHARED_MEMORY = 80 * KIB


def exchanging(collective: Collective, device: Device) -> Launch:
    """Return the kernel of a collective on a device, without terms: its time follows from links.

    It has a block for each 32 KiB, at most 24 on an A100 and newer devices, 12 on a V100, 2 on older ones.
    """
    major = int(device.capability.partition(".")[0] or 0)
    most = max((n for least, n in _CHANNELS.items() if major >= least), default=_FEWEST_CHANNELS)
    return Launch(
        blocks=min(most, max(1, int(collective.bytes) // _CHANNEL_NBYTES)),
        threads=_THREADS,
        registers=_REGISTERS,
        shared_memory=min(_SHARED_MEMORY, device.shared_memory_per_block - device.shared_memory_reserved),
        efficiency=1.0,
        chain=0.0,
        flops=0.0,
        traffic=0.0,
        tensor=False,
        start=0.0,
        chained=0.0,
        compute=0.0,
        memory=0.0,
        tail=0.0,
    )
