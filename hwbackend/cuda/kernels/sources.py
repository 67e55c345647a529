"""The CUDA kernels: their source, how to compile it, and the resources that each takes of a processor."""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final, NamedTuple

from simsched.model.graph import Kernel

NVRTC_OPTIONS: Final = ("--std=c++17",)
"""Options for the compiler of `kernel_source`, besides the architecture."""


class Resources(NamedTuple):
    """Registers of a thread, and bytes of static shared memory of a block."""

    registers: int
    shared_memory: int


KERNEL_RESOURCES: Final[Mapping[str, Resources]] = MappingProxyType(
    {
        "synth": Resources(32, 4),
        "synth_64": Resources(59, 4),
        "synth_128": Resources(128, 4),
        "synth_168": Resources(168, 4),
        "synth_255": Resources(252, 4),
    }
)
"""Resources in the binary of NVRTC 12.9 for sm_90. The driver of a device reports the device's own: NVRTC 12.8 gives
half of the registers for sm_75."""

MOST_THREADS: Final[Mapping[str, int]] = MappingProxyType(
    {"synth": 1024, "synth_64": 1024, "synth_128": 512, "synth_168": 384, "synth_255": 256}
)
"""Threads that a block of each kernel may have, as its launch bounds say."""

KERNEL_NAMES: Final = tuple(KERNEL_RESOURCES)


def kernel_source() -> str:
    """Return the CUDA C++ source of all kernels."""
    return files("hwbackend.cuda.kernels").joinpath("synth.cu").read_text(encoding="utf-8")


def variant_of(kernel: Kernel, resources: Mapping[str, Resources] = KERNEL_RESOURCES) -> str:
    """Return the name of the compiled kernel with the fewest registers that are at least those of `kernel`.

    Where no compiled kernel that may have as many threads has so many registers, it is the one with the most.
    """
    fitting = [name for name in KERNEL_NAMES if MOST_THREADS[name] >= kernel.threads]
    enough = [name for name in fitting if resources[name].registers >= kernel.registers]
    if enough:
        return min(enough, key=lambda name: resources[name].registers)
    return max(fitting, key=lambda name: resources[name].registers)
