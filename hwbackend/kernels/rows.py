"""Launches of kernels that go over windows or rows: pools, sums, softmax, normalisations."""

from math import prod
from typing import Final

from hwbackend.kernels.arguments import CudaLaunch
from hwbackend.kernels.products import windows_of
from hwbackend.kernels.steps import THREADS, Step, Tensor

_WARP: Final = 32
_POOLS: Final = ("max", "avg", "global_max", "global_avg")
_NORM_FLOPS: Final = {"layer_norm": 8, "rms_norm": 4}
_SOFTMAX_FLOPS: Final = 5


def pool(step: Step) -> list[CudaLaunch]:
    """Pool: a warp for each channel if the window is the whole image, else a thread for each output."""
    kind = step.attributes.get("pool")
    if kind not in _POOLS:
        raise step.error(f"there is no CUDA kernel for pool {kind!r}; known are: {', '.join(_POOLS)}")
    windows, x, y = windows_of(step), step.reads[0], step.output
    if x.shape[:2] != y.shape[:2]:
        raise step.error(f"no pool makes {y.shape} of {x.shape}")
    largest, area = kind.endswith("max"), prod(windows.kernel)
    times, flops = 1.0 if largest else 1.0 / area, float(area * y.n)
    if windows.kernel == windows.image and windows.padding == (0, 0) and windows.output == (1, 1):
        return [_reduce(step, x, y.n, area, largest, times, flops)]
    blocks, items = step.over_elements(y.n)
    arguments = (
        x.at,
        y.at,
        y.n,
        items,
        *windows.output,
        *windows.arguments,
        int(largest),
        times,
        step.activation(),
    )
    return [step.launch("pool", (blocks,), THREADS, arguments, flops=flops, moved=(x, y))]


def reduce_sum(step: Step) -> list[CudaLaunch]:
    """Add up the elements of each row, a row being what the input has for each element of the output."""
    step.need_reads(1)
    x, y = step.reads[0], step.output
    if x.n % y.n:
        raise step.error(f"{x.shape} cannot be summed up to {y.shape}")
    return [_reduce(step, x, y.n, x.n // y.n, False, 1.0, float(x.n))]


def _reduce(step: Step, x: Tensor, rows: int, length: int, largest: bool, times: float, flops: float) -> CudaLaunch:
    y = step.output
    blocks = -(-rows // (THREADS // _WARP))
    arguments = (x.at, y.at, rows, length, int(largest), times, step.activation())
    return step.launch("reduce", (blocks,), THREADS, arguments, flops=flops, moved=(x, y))


def softmax(step: Step) -> list[CudaLaunch]:
    """Softmax over the last axis."""
    rows, length = _rows(step)
    x, y = step.reads[0], step.output
    arguments = (x.at, y.at, length, step.activation())
    flops = float(_SOFTMAX_FLOPS * y.n)
    return [step.launch("softmax", (rows,), _threads(length), arguments, flops=flops, moved=(x, y))]


def normalize(step: Step) -> list[CudaLaunch]:
    """Normalise over the last axis, with a scale and, if the mean is taken off, a shift for each feature."""
    rows, length = _rows(step)
    x, y, centred = step.reads[0], step.output, step.kind == "layer_norm"
    scale = step.parameter("scale", (length,), 1.0, 0.1)
    shift = step.parameter("shift", (length,), 0.0, 0.1) if centred else None
    arguments = (x.at, scale.at, None if shift is None else shift.at, y.at, length, int(centred), step.activation())
    flops, moved = float(_NORM_FLOPS[step.kind] * y.n), (x, scale, shift, y)
    return [step.launch("normalize", (rows,), _threads(length), arguments, flops=flops, moved=moved)]


def _rows(step: Step) -> tuple[int, int]:
    step.need_reads(1)
    x, y = step.reads[0], step.output
    if not y.shape or x.shape != y.shape:
        raise step.error(f"the shapes {x.shape} and {y.shape} differ")
    return prod(y.shape[:-1]), y.shape[-1]


def _threads(length: int) -> int:
    """Return as many whole warps as have something to do, up to 256 threads."""
    return min(THREADS, _WARP * -(-length // _WARP))
