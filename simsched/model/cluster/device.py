"""A GPU and a link, as the simulator sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from types import MappingProxyType
from typing import Any

from simsched.base.errors import ClusterError
from simsched.base.numeric import is_count, is_number

Interference = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: its limits, its rates, and what each action on it costs.

    Parameters
    ----------
    name
        Unique within its cluster; placements name it.
    model
        Name of the product or preset.
    sms
        Streaming multiprocessors.
    threads_per_sm, blocks_per_sm, registers_per_sm, shared_memory_per_sm
        What an SM can hold at once (shared memory in bytes).
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
        Time in us from the beginning of a `launch` or `copy` call to the start of what it issues, on an idle device.
        What it exceeds the call by passes while the host goes on. A captured graph has none beside `graph_launch`.
    barrier
        Host time in us of a stage barrier once its streams have drained.
    gap
        Device time in us between two kernels of one stream.
    hop
        Device time in us from the end of the recorded work to the release of a waiting stream.
    graph_launch, graph_node
        Host time in us to launch a captured graph, and device time in us between a node and one
        that depends on it.
    interference
        ``interference[i][j]`` is the relative slowdown of a kernel of class i (0 compute,
        1 memory) while one of class j runs beside it on a saturated resource.
    interleave
        Share, in [0, 1], of the block slots a kernel frees that go to the next kernel in the
        queue; 0 is strict leftover dispatch.
    saturating_warps
        Resident warps that keep the issue slots of an SM busy.
    least_sm_share
        Part of the issue slots that even a kernel bound by DRAM takes, of what its warps could, in [0, 1].
    block_spread
        Standard deviation of the times of a kernel's blocks that were issued together, over their mean, in [0, 0.5].
    kernel_latency
        Device time in us of a kernel that loads nothing: from the end of its last block to its own.
    contention
        False lets every kernel run at its solo rate, without residency limits.
    """

    name: str
    model: str
    sms: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_memory_per_sm: int
    shared_memory_per_block: int
    shared_memory_reserved: int
    shared_memory_granularity: int
    clock: float
    peak: Mapping[str, float] = field(hash=False)
    bandwidth: float
    memory: float
    l2: float
    copy_engines: int
    copy_rate: float = inf
    resident_kernels: int = 128
    connections: int = 32
    launch: float = 4.0
    record: float = 1.0
    wait: float = 1.3
    copy: float = 4.5
    barrier: float = 10.0
    gap: float = 0.9
    hop: float = 2.0
    graph_launch: float = 6.0
    graph_node: float = 0.9
    launch_latency: float = 0.0
    interference: Interference = ((0.06, 0.03), (0.03, 0.06))
    interleave: float = 0.0
    saturating_warps: float = 24.0
    least_sm_share: float = 0.1
    block_spread: float = 0.08
    kernel_latency: float = 0.0
    contention: bool = True
    max_registers_per_block: int = field(default=65536)

    def __post_init__(self) -> None:
        for name in ("copy_rate", *_COUNTS, *_RATES, *_TIMES, *_PARTS):
            self._require(name, is_number(getattr(self, name)), "must be a number")
        for name in _COUNTS:
            self._require(name, getattr(self, name) >= 1, "must be at least 1")
            self._require(name, is_count(getattr(self, name)), "must be a whole number")
        for name in _RATES:
            self._require(name, 0 < getattr(self, name) < inf, "must be positive and finite")
        self._require("copy_rate", self.copy_rate > 0, "must be positive")
        for name in _TIMES:
            self._require(name, 0 <= getattr(self, name) < inf, "must be finite and not negative")
        self._require("block_spread", self.block_spread <= LARGEST_SPREAD, f"must be at most {LARGEST_SPREAD}")
        for name in _PARTS:
            self._require(name, 0 <= getattr(self, name) <= 1, "must be in [0, 1]")
        self._require(
            "interference",
            len(self.interference) == 2
            and all(isinstance(row, Sequence) and len(row) == 2 for row in self.interference),
            "must be 2 x 2",
        )
        self._require(
            "interference",
            all(is_number(x) and 0 <= x < inf for row in self.interference for x in row),
            "must be finite and not negative",
        )
        self._require(
            "peak",
            "fp32" in self.peak and all(is_number(x) and 0 < x < inf for x in self.peak.values()),
            "must be positive and finite, and name fp32",
        )
        object.__setattr__(self, "peak", MappingProxyType(dict(self.peak)))

    def _require(self, name: str, holds: bool, phrase: str) -> None:
        if not holds:
            raise ClusterError(f"device {self.name!r}: {name} {phrase}, not {getattr(self, name)!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        # a mapping proxy cannot be pickled, and studies send clusters to other processes
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return (_rebuild, ({**values, "peak": dict(self.peak)},))

    def peak_rate(self, dtype: str) -> float:
        """Return the FLOP per us for a dtype; one without hardware of its own runs as fp32."""
        return self.peak.get(dtype, self.peak["fp32"])

    def on_the_way(self, call: float) -> float:
        """Return what passes in us from the end of a host's call of some us until the device knows what it issues."""
        return max(0.0, self.launch_latency - call)


_COUNTS = (
    "sms",
    "threads_per_sm",
    "blocks_per_sm",
    "registers_per_sm",
    "copy_engines",
    "resident_kernels",
    "connections",
    "max_registers_per_block",
)
_RATES = ("clock", "bandwidth", "memory", "saturating_warps", "shared_memory_granularity")
_TIMES = (
    "launch", "record", "wait", "copy", "barrier", "gap", "hop", "graph_launch", "graph_node", "launch_latency",
    "kernel_latency",
    "l2", "shared_memory_per_sm", "shared_memory_per_block", "shared_memory_reserved",
)  # fmt: skip
_PARTS = ("interleave", "least_sm_share", "block_spread")
LARGEST_SPREAD = 0.5
"""Most that the times of a kernel's blocks may vary by: the early ones end after some time."""
OVERHEADS = _TIMES[:10]
"""The fields of a `Device` that are costs in us of issuing and ordering work."""


_PLAIN = tuple(f.name for f in fields(Device) if f.name not in ("name", "peak", "interference"))


def traits(device: Device) -> tuple[Any, ...]:
    """Return all of a device but its name, to be compared and hashed."""
    values = [getattr(device, name) for name in _PLAIN]
    return (*values, tuple(sorted(device.peak.items())), tuple(map(tuple, device.interference)))


def _rebuild(values: dict[str, Any]) -> Device:
    return Device(**values)


@dataclass(frozen=True, slots=True)
class Link:
    """A connection between two devices, or between a device and a switch.

    Parameters
    ----------
    bandwidth
        Bytes per us, in each direction if duplex.
    latency
        Time in us that a copy spends before its first byte moves.
    duplex
        Whether each direction has the bandwidth to itself.
    """

    bandwidth: float
    latency: float = 0.0
    duplex: bool = True

    def __post_init__(self) -> None:
        if not is_number(self.bandwidth) or not 0 < self.bandwidth < inf:
            raise ClusterError(f"link: bandwidth must be positive and finite, not {self.bandwidth!r}")
        if not is_number(self.latency) or not 0 <= self.latency < inf:
            raise ClusterError(f"link: latency must be finite and not negative, not {self.latency!r}")
