"""A device as kernel libraries see it: its generation, and the blocks that its SMs hold."""

from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from simsched.base.errors import ClusterError
from simsched.base.units import KIB
from simsched.model.cluster import WARP, Device, occupancy
from simsched.model.graph import Kernel
from simsched.model.libraries.generations import GENERATIONS, Engine, Generation

MOST_BLOCKS: Final = 2**31 - 1
"""Blocks that a grid may have."""
_TENSOR_DTYPES = ("fp16", "bf16", "tf32", "fp8", "int8")

STREAMED: Final = 0.88
"""Part of the bandwidth of DRAM that pure copies reach."""
_ISSUED: Final = 128.0
"""Threads whose instructions an SM issues in a cycle: four warps, whatever it has of fp32 lanes."""
L2_CYCLE: Final = 24.0
"""Bytes that an SM takes from L2 in a cycle."""
DRAM_LATENCY: Final = 1.7
"""Time in us by which the first data of a kernel come later from DRAM than from L2."""
_KEPT = 0.35
_LOST = 1.0
"""Of L2: a kernel finds activations up to the first size there; of more than the second it finds none."""
WRITTEN: Final = 2.0
"""Bytes of L2 that a written byte takes, next to one that is read."""


class TooManyBlocks(Exception):  # noqa: N818 - it is no error until a work is named
    """A kernel needs more blocks than a grid may have."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self.blocks = blocks


class BlockShape(NamedTuple):
    """A launch shape, and the number of such blocks that an SM holds."""

    threads: int
    registers: int
    shared_memory: int
    held: int


class Chip:
    """A device with values derived from its fields; equal devices of any name share one."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.generation = generation(device)
        self.sms = device.sms
        self.clock = device.clock
        self.l2 = device.l2
        self.lanes = _ISSUED * self.generation.reach
        self.cycle = self.generation.slowness / device.clock
        """Time in us of a cycle of a sequence that takes one cycle on the newest generation."""
        self.l2_rate = device.sms * device.clock * L2_CYCLE / self.generation.slowness
        self._blocks: dict[tuple[int, int, int], BlockShape] = {}

    def block(self, threads: int, registers: int, shared_memory: int = 0) -> BlockShape | None:
        """Return a launch shape with the blocks that an SM holds, or None where not one fits."""
        key = (threads, registers, shared_memory)
        shape = self._blocks.get(key)
        if shape is None:
            try:
                held = occupancy(self.device, Kernel(1, threads, registers, shared_memory)).blocks
            except ClusterError:
                held = 0
            shape = self._blocks[key] = BlockShape(threads, registers, shared_memory, held)
        return shape if shape.held else None

    def fitting(self, threads: int, registers: int, shared_memory: int = 0) -> BlockShape:
        """Return a launch shape that fits: with no more shared memory than a block may have, and fewer threads."""
        shared_memory = min(shared_memory, self.device.shared_memory_per_block)
        block = self.block(threads, registers, shared_memory)
        while block is None and threads > WARP:
            threads = max(WARP, threads // 2)
            block = self.block(threads, registers, shared_memory)
        while block is None and (registers > 1 or shared_memory):
            registers = max(1, registers // 2)
            shared_memory = shared_memory // 2
            block = self.block(threads, registers, shared_memory)
        return block or BlockShape(WARP, 1, 0, 1)  # such a device holds no kernel at all

    def tensor(self, dtype: str) -> bool:
        """Return whether tensor cores compute a number format."""
        return dtype in _TENSOR_DTYPES and self.device.peak.get(dtype, 0.0) > self.device.peak["fp32"]

    def engine(self, dtype: str) -> Engine:
        """Return the kernels for products in a number format."""
        if not self.tensor(dtype):
            return self.generation.simt
        if dtype == "tf32":
            return self.generation.tf32
        return self.generation.tensor

    def rate(self, dtype: str) -> float:
        """Return the FLOP per us of one SM at the peak."""
        return self.device.peak_rate(dtype) / self.sms

    def part_in_l2(self, nbytes: float) -> float:
        """Return the part of some bytes that L2 still holds when they are read again."""
        if not self.l2:
            return 0.0
        return min(1.0, max(0.0, (_LOST - nbytes / self.l2) / (_LOST - _KEPT)))

    def move_time(self, nbytes: float, traffic: float, efficiency: float = STREAMED) -> float:
        """Return the time in us to move bytes through L2, some of them from and to DRAM."""
        return max(traffic / (self.device.bandwidth * efficiency), nbytes / self.l2_rate)


def generation(device: Device) -> Generation:
    """Return the kernels of a device: by its compute capability, or else by its limits."""
    if device.capability:
        major, minor = device.capability.split(".")
        at = (int(major), int(minor))
    elif not any(device.peak.get(dtype, 0.0) > device.peak["fp32"] for dtype in _TENSOR_DTYPES):
        if device.shared_memory_per_block > 98 * KIB:
            at = (8, 0)
        else:
            at = (0, 0)
    elif device.shared_memory_per_block >= 200 * KIB:
        at = (9, 0)
    else:
        if device.shared_memory_per_block > 98 * KIB:
            at = (8, 0)
        else:
            at = (7, 0)
    return next(generation_ for generation_ in reversed(GENERATIONS) if generation_.capability <= at)


@lru_cache(maxsize=256)
def chip_of(device: Device) -> Chip:
    """Return a device with values derived from its fields; its name and its host do not matter."""
    return _chip(replace(device, name="any", model="any"))


@lru_cache(maxsize=256)
def _chip(device: Device) -> Chip:
    return Chip(device)


def parts(total: int, size: int) -> int:
    """Return the number of parts of a size that cover a total."""
    return -(-total // size)


def count_blocks(blocks: int) -> int:
    """Return a number of blocks that a grid may have; raise `TooManyBlocks` if it may not."""
    if blocks > MOST_BLOCKS:
        raise TooManyBlocks(blocks)
    return blocks
