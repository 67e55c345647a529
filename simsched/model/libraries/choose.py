"""The kernels that libraries choose for a work on a device, and each kernel's time alone."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from simsched.base.errors import GraphError
from simsched.model.cluster import WARP, Device
from simsched.model.graph import Kernel, Work
from simsched.model.libraries.attention import attention
from simsched.model.libraries.case import WorkCase
from simsched.model.libraries.chip import MOST_BLOCKS, Chip, TooManyBlocks, chip_of, parts
from simsched.model.libraries.convolutions import convolution
from simsched.model.libraries.elementwise import batch_norm, elementwise
from simsched.model.libraries.gathers import gather
from simsched.model.libraries.generations import DRAM
from simsched.model.libraries.launch import Launch
from simsched.model.libraries.products import product
from simsched.model.libraries.recurrence import recurrence
from simsched.model.libraries.rows import reduction, rows

_FAMILIES: Final[Mapping[str, Callable[[WorkCase], tuple[Launch, ...]]]] = {
    "product": product,
    "convolution": convolution,
    "elementwise": elementwise,
    "batch_norm": batch_norm,
    "rows": rows,
    "reduction": reduction,
    "gather": gather,
    "attention": attention,
    "recurrence": recurrence,
}
_START: Final = 2.1
_UNSHAPED_RATE: Final = 0.75
_FULL_BLOCK_WARPS: Final = 4.0


def choose(
    work: Work, dtype: str, device: Device, *, weights_cached: float, name: str = "the work", cold: bool = False
) -> tuple[Launch, ...]:
    """Return the kernels for one work in the order in which they are launched, never none.

    Parameters
    ----------
    work
        The computation.
    dtype
        Its number format; in fp32 a work may allow tf32.
    device
        The device; its name does not matter.
    weights_cached
        Whether parameters are found in L2, or the part of them that is.
    name
        The work in errors.
    cold
        Whether nothing at all is found in L2: kernels that run after others had L2 for themselves.

    Raises
    ------
    GraphError
        If a kernel needs more blocks than a grid may have.
    """
    try:
        return _choose(work, dtype, chip_of(device), float(weights_cached), cold)
    except TooManyBlocks as error:
        raise GraphError(
            f"{name} needs {error.blocks:,} blocks of a kernel, and a grid has at most {MOST_BLOCKS:,}: divide it"
        ) from None


@lru_cache(maxsize=1 << 15)
def _choose(work: Work, dtype: str, chip: Chip, cached: float, cold: bool) -> tuple[Launch, ...]:
    return _FAMILIES[work.family](WorkCase(work, dtype, chip, cached, cold))


def given_terms(kernel: Kernel, flops: float, nbytes: float, dtype: str, device: Device) -> Launch:
    """Return the terms of a kernel whose launch shape was measured or given.

    It takes no less than its waves of chains, and than the FLOP of ceil(blocks / SMs) blocks at the peak of one SM.
    """
    chip = chip_of(device)
    tensor = chip.tensor(dtype)
    block = chip.fitting(kernel.threads, kernel.registers, kernel.shared_memory)
    q = parts(kernel.blocks, chip.sms)
    waves = parts(q, block.held)
    if tensor:
        engine = chip.generation.tensor
    else:
        engine = chip.generation.simt
    warps = kernel.blocks * parts(kernel.threads, WARP)
    part = min(1.0, warps / (_FULL_BLOCK_WARPS * chip.sms))
    return Launch(
        kernel.blocks,
        kernel.threads,
        kernel.registers,
        kernel.shared_memory,
        efficiency=kernel.efficiency,
        chain=kernel.chain,
        flops=flops,
        traffic=nbytes,
        tensor=tensor,
        start=_START * chip.generation.starting,
        chained=waves * kernel.chain / chip.clock,
        compute=q * (flops / kernel.blocks) / (chip.rate(dtype) * min(1.0, engine.efficiency) * kernel.efficiency),
        memory=nbytes / (chip.device.bandwidth * DRAM * part),
        tail=0.0,
    )


def unshaped_terms(flops: float, nbytes: float, dtype: str, device: Device) -> Launch:
    """Return the terms of an operator with unknown kernels: it has 0 blocks."""
    chip = chip_of(device)
    return Launch(
        0,
        0,
        0,
        0,
        efficiency=1.0,
        chain=0.0,
        flops=flops,
        traffic=nbytes,
        tensor=chip.tensor(dtype),
        start=_START * chip.generation.starting,
        chained=0.0,
        compute=flops / (chip.device.peak_rate(dtype) * _UNSHAPED_RATE),
        memory=nbytes / (chip.device.bandwidth * DRAM),
        tail=0.0,
    )
