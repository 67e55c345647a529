"""A GPU and a link of the simulator's model, and the number of a kernel's blocks that a GPU can hold."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import Annotated, Final, NamedTuple

from simsched.base.codec import Amount, Bytes, Checked, Fraction, Name, Part, Range, Rate, Size, aside
from simsched.base.errors import ClusterError, brief_text
from simsched.model.cluster.topology import Topology
from simsched.model.graph import Kernel

WARP: Final = 32
# units in which a warp gets registers, and parts of an SM that hold them
_REGISTER_GRANULARITY: Final = 256
_REGISTER_PARTITIONS: Final = 4
_MAX_REGISTERS_PER_THREAD: Final = 255
LARGEST_SPREAD: Final = 0.5
"""Most that the times of a kernel's blocks may vary by: the early ones end after some time."""


@dataclass(frozen=True, slots=True)
class Device(Checked):
    """A GPU: its limits, its rates, and the cost of each action on it.

    Parameters
    ----------
    name
        Unique within its cluster; placements name it.
    model
        Name of the product or preset.
    sms
        Streaming multiprocessors.
    threads_per_sm, blocks_per_sm, registers_per_sm, shared_memory_per_sm
        Capacity of an SM (shared memory in bytes).
    shared_memory_per_block
        Most bytes of shared memory a block may ask for (opt-in limit).
    shared_memory_reserved, shared_memory_granularity
        Bytes the system adds to each block, and the unit of allocation.
    clock
        SM clock in cycles per us (MHz).
    peak
        FLOP per us for each dtype, tensor cores included where the dtype uses them.
    bandwidth, memory, l2
        DRAM bytes per us, DRAM bytes, and L2 bytes.
    copy_engines, copy_rate
        Engines that drive copies to other devices, and the bytes per us one of them moves at most; the only number
        of a device that may be infinite.
    resident_kernels
        Kernels that may have blocks on the device at once.
    connections
        Hardware queues; stream s uses queue ``s % connections`` (CUDA_DEVICE_MAX_CONNECTIONS).
    launch, record, wait, copy
        Host time in us to issue a kernel, an event record, an event wait, a copy.
    launch_latency
        Time in us from the beginning of a `launch` or `copy` call to the start of the kernel or copy, on an idle
        device. The part after the call passes while the host continues. A captured graph has only `graph_launch`.
    barrier, barrier_many
        Host time in us of a stage barrier once its streams have drained: if at most one was busy when the host reached
        it, and if several were.
    gap
        Device time in us between two kernels of one stream.
    hop
        Device time in us from the end of the recorded work to the release of a waiting stream.
    graph_launch, graph_node
        Host time in us to launch a captured graph, and device time in us between a node and one
        that depends on it.
    graph_issue, graph_join
        Device time in us between the starts of two nodes of a captured graph, and time in us by which a node starts
        later that waits for several others.
    crowd_latency
        Time in us that a kernel takes longer if it starts while others are on the device.
    interference
        ``interference[i][j]`` is the relative slowdown of a kernel of class i (0 compute,
        1 memory) while one of class j has blocks on the device, too.
    interleave
        Share, in [0, 1], of the block slots a kernel frees that go to the next kernel in the
        queue; 0 is strict leftover dispatch.
    saturating_warps
        Resident warps that keep the issue slots of an SM busy.
    least_sm_share
        Part of the issue slots that even a kernel bound by DRAM takes, relative to its warps' maximum, in [0, 1].
    block_spread
        Standard deviation of the times of a kernel's blocks that were issued together, over their mean, in [0, 0.5].
    kernel_latency
        Device time in us of a kernel that loads nothing: from the end of its last block to its own.
    contention
        False lets every kernel run at its solo rate, without residency limits.
    max_registers_per_block
        Most registers that the threads of a block may have together.
    capability
        Compute capability, such as ``"9.0"``: it decides which kernels libraries have for the device. Empty if unknown;
        then the preset with the most similar limits gives it.
    topology
        The links of its cluster, which sets it: times of collectives depend on them. Files do not have it.
    """

    SUBJECT = "device {0.name!r}"
    ERROR = ClusterError
    RETIRED = dict.fromkeys(
        ("sm_sensitivity", "dram_sensitivity"), "leave it out; excess load of SMs and of DRAM shows in full"
    )
    name: Name
    model: str
    sms: Size
    threads_per_sm: Size
    blocks_per_sm: Size
    registers_per_sm: Size
    shared_memory_per_sm: Bytes
    shared_memory_per_block: Bytes
    shared_memory_reserved: Bytes
    shared_memory_granularity: Annotated[int, Range(0, above=True), Fraction()]
    clock: Rate
    peak: Mapping[str, Rate] = field(hash=False)
    bandwidth: Rate
    memory: Rate
    l2: Amount
    copy_engines: Size
    copy_rate: Annotated[float, Range(0, above=True, infinite=True)] = inf
    resident_kernels: Size = 128
    connections: Size = 32
    launch: Amount = 4.0
    record: Amount = 1.0
    wait: Amount = 1.3
    copy: Amount = 4.5
    barrier: Amount = 10.0
    barrier_many: Amount = 14.0
    gap: Amount = 0.9
    hop: Amount = 2.0
    graph_launch: Amount = 6.0
    graph_node: Amount = 0.3
    graph_issue: Amount = 0.4
    graph_join: Amount = 1.0
    crowd_latency: Amount = 0.35
    launch_latency: Amount = 0.0
    interference: tuple[tuple[Amount, Amount], tuple[Amount, Amount]] = ((0.1, 0.1), (0.1, 0.1))
    interleave: Part = 0.0
    saturating_warps: Rate = 24.0
    least_sm_share: Part = 0.1
    block_spread: Annotated[float, Range(0, LARGEST_SPREAD)] = 0.15
    kernel_latency: Amount = 0.0
    contention: bool = True
    max_registers_per_block: Size = field(default=65536)
    capability: str = ""
    topology: Topology | None = aside()

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.capability and not re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}", self.capability):
            raise self.refusal(f"capability must be major.minor, such as 9.0, not {brief_text(self.capability)}")
        if "fp32" not in self.peak:
            raise self.refusal(f"peak must name fp32, not {', '.join(self.peak) or 'nothing'}")

    def within(self, topology: Topology) -> "Device":
        """Return the device of a cluster with such links; all else is shared."""
        if self.topology == topology:
            return self
        copy = object.__new__(Device)
        for entry in fields(Device):
            object.__setattr__(copy, entry.name, getattr(self, entry.name))
        object.__setattr__(copy, "topology", topology)
        return copy

    def peak_rate(self, dtype: str) -> float:
        """Return the FLOP per us for a dtype; a dtype without hardware support runs as fp32."""
        return self.peak.get(dtype, self.peak["fp32"])

    def on_the_way(self, call: float) -> float:
        """Return the us from the end of a host's call of some us until the device gets its work."""
        return max(0.0, self.launch_latency - call)


OVERHEADS: Final = (
    "launch",
    "record",
    "wait",
    "copy",
    "barrier",
    "barrier_many",
    "gap",
    "hop",
    "graph_launch",
    "graph_node",
    "graph_issue",
    "graph_join",
    "launch_latency",
    "crowd_latency",
)
"""The fields of a `Device` that are costs in us of issuing and ordering work."""


class Footprint(NamedTuple):
    """One block's use of an SM: warps, registers and bytes of shared memory."""

    warps: int
    registers: int
    shared_memory: int


class Occupancy(NamedTuple):
    """Blocks of one kernel that an SM can hold, and the limit that decides it."""

    blocks: int
    limited_by: str


def footprint(device: Device, kernel: Kernel) -> Footprint:
    """Return one block's use of an SM, rounded up as the hardware allocates it."""
    warps = -(-kernel.threads // WARP)
    return Footprint(
        warps=warps,
        registers=warps * _round_up(kernel.registers * WARP, _REGISTER_GRANULARITY),
        shared_memory=_round_up(kernel.shared_memory + device.shared_memory_reserved, device.shared_memory_granularity),
    )


def occupancy(device: Device, kernel: Kernel) -> Occupancy:
    """Return how many blocks of `kernel` an SM of `device` holds at once: NVIDIA's occupancy calculation.

    Registers are allocated per warp in units of 256 and live in four partitions of the SM; shared memory is rounded up
    per block, in addition to the system's own. The rules follow the occupancy calculator in the CUDA toolkit, for
    compute capability 3.7 to 9.0.

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
    }
    if need.shared_memory:
        limits["shared_memory"] = device.shared_memory_per_sm // need.shared_memory
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
