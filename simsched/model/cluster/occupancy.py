"""How many blocks of a kernel an SM can hold: NVIDIA's occupancy calculation.

Registers are allocated per warp in units of 256 and live in four partitions of the SM; shared
memory is rounded up per block, on top of what the system reserves. The rules are those of the
occupancy calculator in the CUDA toolkit, for compute capability 3.7 to 9.0.
"""

from dataclasses import dataclass

from simsched.base.errors import ClusterError
from simsched.model.cluster.device import Device
from simsched.model.graph import Kernel

WARP = 32
_REGISTER_GRANULARITY = 256
_REGISTER_PARTITIONS = 4
_MAX_REGISTERS_PER_THREAD = 255


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one block of a kernel takes of an SM: warps, registers and bytes of shared memory."""

    warps: int
    registers: int
    shared_memory: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks of one kernel that an SM can hold, and the limit that says so."""

    blocks: int
    limited_by: str


def footprint(device: Device, kernel: Kernel) -> Footprint:
    """Return what one block takes, rounded up as the hardware allocates it."""
    warps = -(-kernel.threads // WARP)
    return Footprint(
        warps=warps,
        registers=warps * _round_up(kernel.registers * WARP, _REGISTER_GRANULARITY),
        shared_memory=_round_up(kernel.shared_memory + device.shared_memory_reserved, device.shared_memory_granularity),
    )


def occupancy(device: Device, kernel: Kernel) -> Occupancy:
    """Return how many blocks of `kernel` an SM of `device` holds at once.

    Returns
    -------
    Occupancy
        `limited_by` is ``"threads"``, ``"blocks"``, ``"registers"`` or ``"shared_memory"``; equal
        limits name the first of these.

    Raises
    ------
    ClusterError
        If not even one block fits.
    """
    need = footprint(device, kernel)
    per_warp = need.registers // need.warps
    limits = {
        "threads": (device.threads_per_sm // WARP) // need.warps,
        "blocks": device.blocks_per_sm,
        "registers": (device.registers_per_sm // _REGISTER_PARTITIONS // per_warp) * _REGISTER_PARTITIONS // need.warps,
        "shared_memory": device.shared_memory_per_sm // need.shared_memory
        if need.shared_memory
        else device.blocks_per_sm,
    }
    # a launch is verified as if its warps filled the register partitions evenly
    launched_registers = per_warp * _round_up(need.warps, _REGISTER_PARTITIONS)
    if kernel.registers > _MAX_REGISTERS_PER_THREAD or launched_registers > device.max_registers_per_block:
        limits["registers"] = 0
    if kernel.shared_memory > device.shared_memory_per_block:
        limits["shared_memory"] = 0
    limited_by = min(limits, key=lambda name: limits[name])
    if limits[limited_by] == 0:
        raise ClusterError(
            f"a block of {kernel.threads} threads, {kernel.registers} registers per thread and "
            f"{kernel.shared_memory} bytes of shared memory does not fit on an SM of {device.model} ({limited_by})"
        )
    return Occupancy(limits[limited_by], limited_by)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
