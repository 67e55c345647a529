"""Kernels that libraries have for each generation of GPUs, by compute capability, and how fast they are.

Constants come from one H100 (1,325 operators alone; PyTorch 2.11, CUDA 13.0, cuDNN 9.19) unless a comment says
otherwise. Other generations have the same constants but for tiles, which are taken from NVIDIA's libraries there (names
of kernels in published profiler traces), and for exceptions in comments.
"""

from typing import Final, NamedTuple

from simsched.base.units import KIB

DRAM: Final = 0.75
"""Part of the bandwidth of DRAM that kernels reach which compute with their input."""


class Tile(NamedTuple):
    """The part of a product that one block computes, and the launch shape of its kernel."""

    rows: int
    columns: int
    threads: int
    registers: int
    shared_memory: int


class Engine(NamedTuple):
    """How kernels of one kind compute products.

    Parameters
    ----------
    tiles
        The tiles that they have.
    step
        Bytes of each row of a tile that one step of the sequence takes; 0 for one element.
    cycles
        Clock cycles of a step.
    output_cycles
        More clock cycles of a step for each output of a thread.
    efficiency
        Part of the peak rate of an SM that whole tiles reach.
    feed
        Bytes of its rows and columns that a block takes from L2 in a cycle.
    start
        Start and end of a kernel in us.
    fill
        Time in us that filling each wave after the first takes.
    loading
        Outputs along a side of a tile by which SIMT kernels need as long again for loading.
    dram
        Part of the bandwidth of DRAM that they reach.
    """

    tiles: tuple[Tile, ...]
    step: int
    cycles: float
    output_cycles: float
    efficiency: float
    feed: float
    start: float
    fill: float
    loading: float = 0.0
    dram: float = DRAM


class Generation(NamedTuple):
    """The kernels that libraries have from a compute capability on."""

    capability: tuple[int, int]
    tensor: Engine
    tensor_convolution: Engine
    tf32: Engine
    tf32_convolution: Engine
    simt: Engine
    simt_convolution: Engine
    slowness: float
    """Cycles of sequences, relative to those of an H100."""
    reach: float
    """Part of its rate that an SM reaches, relative to an A100."""
    starting: float = 1.0
    """Start and end of a kernel, relative to those of an H100."""
    winograd: float = 1.0
    """Time that an SM computes 3 x 3 convolutions of stride 1 without tensor cores, over that of plain ones."""


_HOPPER = (
    Tile(64, 8, 384, 168, 164 * KIB),
    Tile(64, 16, 384, 168, 180 * KIB),
    Tile(64, 32, 384, 168, 212 * KIB),
    Tile(64, 64, 384, 168, 226 * KIB),
    Tile(128, 64, 384, 168, 213268),
    Tile(128, 128, 384, 168, 213268),
    Tile(192, 128, 384, 168, 213220),
    Tile(256, 128, 384, 168, 213188),
)
_HOPPER_WIDE = (
    Tile(64, 64, 384, 168, 226 * KIB),
    Tile(128, 64, 384, 168, 226 * KIB),
    Tile(128, 128, 384, 168, 226 * KIB),
    Tile(256, 128, 384, 168, 226 * KIB),
)
_TENSOR = (
    Tile(64, 64, 128, 96, 48 * KIB),
    Tile(128, 64, 128, 128, 72 * KIB),
    Tile(128, 128, 256, 128, 64 * KIB),
    Tile(256, 128, 256, 220, 96 * KIB),
)
_HOPPER_CONVOLUTION = (*_HOPPER_WIDE, *_TENSOR)
"""cuDNN has kernels of the generation before beside those of this one."""
_SIMT = (
    Tile(32, 32, 64, 80, 6912),
    Tile(64, 64, 128, 128, 13056),
    Tile(128, 64, 128, 218, 19 * KIB),
    Tile(128, 128, 128, 255, 33792),
)
_SIMT_CONVOLUTION = (
    Tile(32, 32, 64, 92, 6656),
    Tile(128, 32, 128, 166, 16896),
    Tile(256, 64, 128, 255, 33 * KIB),
)
_OLDER_SIMT_CONVOLUTION = (
    Tile(128, 32, 128, 128, 16 * KIB),
    Tile(128, 64, 128, 128, 16 * KIB),
    Tile(128, 128, 256, 128, 32 * KIB),
)
"""Of cuDNN before Hopper, which has none that is smaller: as in a trace of a V100, the first one's threads assumed."""
_SIMT_ENGINE = Engine(_SIMT, 0, 25.0, 1.15, 1.04, 48.0, 2.3, 0.5, 24.0)
_SIMT_CONVOLUTION_ENGINE = Engine(_SIMT_CONVOLUTION, 0, 25.0, 1.15, 0.89, 48.0, 2.3, 4.0, 24.0)
# Before Hopper, by a trace of ResNet-50 on a V100 (batch 32): 1 x 1 convolutions reach 0.80 to 0.96 of the peak of an
# SM of 64 lanes by tiles of 128 x 64, and 0.96 by 128 x 128. For 128 x 32 it is a tenth less than measured, so that an
# H100, which has 128 lanes to feed, stays faster.
_OLDER_SIMT_CONVOLUTION_ENGINE = Engine(_OLDER_SIMT_CONVOLUTION, 0, 25.0, 1.15, 1.11, 48.0, 2.3, 4.0, 8.0)
_BULK_COPIES: Final = 0.84
"""Part of the bandwidth of DRAM that products of 16 bits and less reach from an H100 on, whose copies to shared memory
need no threads: fitted to products of few rows and more than 50 MB of weights of Llama-2-7B on an H100 (Vidur). On such
products of CodeLlama-34B, which were not fitted, the error falls from 0.10 to 0.05."""
_STARTING: Final = 1.3
"""Smallest elementwise kernels in traces of a V100 and two A100 take 1.07 to 1.5 times as long as on an H100."""
_FED_SIMT_CONVOLUTION_ENGINE = _OLDER_SIMT_CONVOLUTION_ENGINE._replace(
    efficiency=_SIMT_CONVOLUTION_ENGINE.efficiency,
    start=_STARTING * _SIMT_CONVOLUTION_ENGINE.start,
    loading=_SIMT_CONVOLUTION_ENGINE.loading,
)
_WINOGRAD: Final = 0.77
"""In that trace 0.63; but an H100, for which cuDNN chooses no such kernels, must stay the faster one."""
_OLDER = Engine(_TENSOR, 64, 160.0, 0.0, 0.78, 48.0, 2.1, 1.2)
_OLDER_CONVOLUTION = Engine(_TENSOR, 64, 230.0, 0.0, 0.75, 48.0, 2.1, 1.2)
_TF32 = _OLDER._replace(start=2.6)
_TF32_CONVOLUTION = _OLDER_CONVOLUTION._replace(start=2.6)


def _reaching(part: float, slowness: float, capability: tuple[int, int]) -> Generation:
    """Return a generation before the A100: its SMs reach a part of the A100's rate relative to peak."""

    def slower(engine: Engine) -> Engine:
        return engine._replace(efficiency=engine.efficiency * part, start=engine.start * _STARTING)

    return Generation(
        capability,
        tensor=slower(_OLDER),
        tensor_convolution=slower(_OLDER_CONVOLUTION),
        tf32=slower(_TF32),
        tf32_convolution=slower(_TF32_CONVOLUTION),
        simt=slower(_SIMT_ENGINE),
        simt_convolution=slower(_OLDER_SIMT_CONVOLUTION_ENGINE),
        slowness=slowness,
        reach=part,
        starting=_STARTING,
        winograd=_WINOGRAD,
    )


GENERATIONS: Final = (
    # an SM of these, at its own clock, computes no more than one of the next generation: they do not copy from DRAM to
    # shared memory beside the computation, and one of 3.7 has 192 lanes that few kernels fill
    _reaching(0.45, 1.1, (0, 0)),
    _reaching(0.92, 1.1, (7, 0)),
    _reaching(1.0, 1.0, (8, 0)),
    # 128 lanes an SM, which convolutions feed no better than on an H100
    _reaching(1.0, 1.0, (8, 6))._replace(simt_convolution=_FED_SIMT_CONVOLUTION_ENGINE),
    Generation(
        (9, 0),
        Engine((*_HOPPER, *_TENSOR), 128, 160.0, 0.0, 0.79, 52.0, 2.1, 1.2, dram=_BULK_COPIES),
        Engine(_HOPPER_CONVOLUTION, 128, 230.0, 0.0, 0.75, 48.0, 2.1, 1.2),
        Engine(_HOPPER_CONVOLUTION, 128, 200.0, 0.0, 0.8, 44.0, 2.6, 1.2),
        Engine(_HOPPER_CONVOLUTION, 128, 250.0, 0.0, 0.75, 44.0, 2.6, 1.2),
        _SIMT_ENGINE,
        _SIMT_CONVOLUTION_ENGINE,
        slowness=1.0,
        reach=1.0,
    ),
    # GeForce Blackwell: tensor cores of the kind before Hopper's, and as little shared memory as 8.6. Not measured
    _reaching(1.0, 1.0, (12, 0))._replace(simt_convolution=_FED_SIMT_CONVOLUTION_ENGINE),
)
"""By the least compute capability that has them."""
