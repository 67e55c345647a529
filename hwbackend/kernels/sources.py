"""The CUDA kernels: their source, how it is compiled, and what each takes of a processor."""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final, NamedTuple

NVRTC_OPTIONS: Final = ("--std=c++17",)
"""What `kernel_source` wants to be compiled with, besides the architecture."""

_SOURCES: Final = ("synth.cu", "products.cu", "rows.cu")


class Resources(NamedTuple):
    """What a kernel takes of an SM: registers of a thread, and bytes of shared memory of its own for a block."""

    registers: int
    shared_memory: int


KERNEL_RESOURCES: Final[Mapping[str, Resources]] = MappingProxyType(
    {
        "affine": Resources(22, 0),
        "combine": Resources(32, 0),
        "concat": Resources(24, 0),
        "gather": Resources(28, 0),
        "embed": Resources(24, 0),
        "conv_128x128": Resources(128, 16896),
        "conv_64x64": Resources(63, 8704),
        "conv_32x32": Resources(63, 4608),
        "depthwise": Resources(34, 0),
        "linear_128x128": Resources(128, 16896),
        "linear_64x64": Resources(63, 8704),
        "linear_32x32": Resources(63, 4608),
        "linear_few": Resources(24, 0),
        "matmul_128x128": Resources(128, 16896),
        "matmul_64x64": Resources(63, 8704),
        "matmul_32x32": Resources(64, 4608),
        "reduce": Resources(20, 0),
        "pool": Resources(34, 0),
        "softmax": Resources(25, 128),
        "normalize": Resources(26, 128),
        "synth": Resources(32, 4),
    }
)
"""Read from the binary that NVRTC 12.9 makes for sm_90. A device's own are those that its driver tells."""

KERNEL_NAMES: Final = tuple(KERNEL_RESOURCES)


def kernel_source() -> str:
    """Return the CUDA C++ source of all kernels."""
    return "\n".join(files("hwbackend.kernels").joinpath(name).read_text(encoding="utf-8") for name in _SOURCES)
