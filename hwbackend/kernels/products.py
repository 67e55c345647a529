"""Launches of matrix products: convolutions, linear layers, products of two tensors."""

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import Any, Final, NamedTuple

from hwbackend.kernels.arguments import Argument, CudaLaunch, Shape
from hwbackend.kernels.steps import THREADS, Step, Tensor, address_of


class Tile(NamedTuple):
    """Outputs that a block makes, and its threads; part of the name of a kernel."""

    rows: int
    columns: int
    threads: int

    def blocks(self, rows: int, columns: int) -> tuple[int, int]:
        """Return how many stand side by side, and how many below each other."""
        return -(-columns // self.columns), -(-rows // self.rows)

    @property
    def name(self) -> str:
        """What a kernel with this tile has in its name."""
        return f"{self.rows}x{self.columns}"


TILES: Final = (Tile(128, 128, 256), Tile(64, 64, 256), Tile(32, 32, 128))
_FEW_ROWS: Final = 4  # so many have a warp for each output instead of a tile
_WARP: Final = 32
_BIAS_SPREAD: Final = 0.1


class Windows(NamedTuple):
    """How windows slide over images: pairs (height, width); an image of one axis is one pixel high."""

    image: Shape
    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    output: Shape

    @property
    def arguments(self) -> Shape:
        """What kernels are told of it, in order."""
        return (*self.image, *self.kernel, *self.stride, *self.padding, *self.dilation)


def windows_of(step: Step) -> Windows:
    """Return the windows of a convolution or pool."""
    step.need_reads(1)
    image, output = step.reads[0].shape[2:], step.output.shape[2:]
    if len(image) != len(output) or len(image) not in (1, 2):
        raise step.error(f"the CUDA kernels slide over images of one or two axes, not from {image} to {output}")
    n, given = len(image), step.attributes
    kernel, stride, padding = (_pair(step, given, key, n, least) for key, least in _WINDOW)
    dilation = _pair(step, {"dilation": [1] * n, **given}, "dilation", n, 1)
    return Windows((1, *image)[-2:], kernel, stride, padding, dilation, (1, *output)[-2:])


_WINDOW: Final = (("kernel", 1), ("stride", 1), ("padding", 0))


def _pair(step: Step, given: Mapping[str, Any], key: str, n: int, least: int) -> Shape:
    """Return a setting of a window for two axes; of padding at both ends only that at the beginning matters."""
    values = given.get(key)
    lengths = (n, 2 * n) if key == "padding" else (n,)
    if not isinstance(values, list) or len(values) not in lengths:
        raise step.error(f"{key} must be {n} whole numbers, not {values!r}")
    if any(type(value) is not int or value < least for value in values):
        raise step.error(f"{key} must be {n} whole numbers of at least {least}, not {values!r}")
    return (least, *values[:n])[-2:]


def conv(step: Step) -> list[CudaLaunch]:
    """Convolve: a thread for each output if each channel is on its own, else tiles of a matrix product."""
    windows = windows_of(step)
    x, y = step.reads[0], step.output
    groups, inputs, outputs = step.attributes.get("groups", 1), x.shape[1], y.shape[1]
    if type(groups) is not int or groups < 1 or inputs % groups or outputs % groups or x.shape[0] != y.shape[0]:
        raise step.error(f"{groups!r} groups do not make {y.shape} of {x.shape}")
    per_output = inputs // groups * prod(windows.kernel)
    kernel = windows.kernel[-(len(x.shape) - 2) :]
    weight = step.parameter("weight", (outputs, inputs // groups, *kernel), 0.0, 1.0 / sqrt(per_output))
    bias = step.parameter("bias", (outputs,), 0.0, _BIAS_SPREAD)
    flops, moved = 2.0 * y.n * per_output, (x, weight, bias, y)
    tensors: tuple[Argument, ...] = (x.at, weight.at, bias.at, y.at)
    sizes: tuple[Argument | int, ...] = (inputs, outputs, *windows.output, *windows.arguments, step.activation())
    if groups == inputs:
        blocks, items = step.over_elements(y.n)
        return [step.launch("depthwise", (blocks,), THREADS, (*tensors, y.n, items, *sizes), flops=flops, moved=moved)]
    pixels = y.shape[0] * prod(windows.output)
    tile = tile_for(outputs // groups, pixels, groups, step.sms)
    grid = (*tile.blocks(outputs // groups, pixels), groups)
    arguments = (*tensors, y.shape[0], *sizes)
    return [step.launch(f"conv_{tile.name}", grid, tile.threads, arguments, flops=flops, moved=moved)]


def linear(step: Step) -> list[CudaLaunch]:
    """Multiply the last axis by weights."""
    step.need_reads(1)
    x, y = step.reads[0], step.output
    if not x.shape or not y.shape or x.n // x.shape[-1] != y.n // y.shape[-1]:
        raise step.error(f"no matrix of weights makes {y.shape} of {x.shape}")
    rows, depth, columns = x.n // x.shape[-1], x.shape[-1], y.shape[-1]
    weight = step.parameter("weight", (columns, depth), 0.0, 1.0 / sqrt(depth))
    bias = step.parameter("bias", (columns,), 0.0, _BIAS_SPREAD) if step.attributes.get("bias", True) else None
    if rows <= _FEW_ROWS:
        blocks = -(-y.n // (THREADS // _WARP))
        arguments = (x.at, weight.at, address_of(bias), y.at, rows, depth, columns, step.activation())
        moved = (x, weight, bias, y)
        return [step.launch("linear_few", (blocks,), THREADS, arguments, flops=2.0 * y.n * depth, moved=moved)]
    return [_product(step, "linear", x, weight, bias, (1, rows, depth, columns), 0)]


def matmul(step: Step) -> list[CudaLaunch]:
    """Multiply two stacks of matrices, or a stack by one matrix."""
    step.need_reads(2)
    a, b, y = *step.reads, step.output
    if "equation" in step.attributes or min(len(a.shape), len(b.shape)) < 2:
        raise step.error("the CUDA kernel multiplies (..., m, k) by (..., k, n)")
    (*stack, m, k), (*others, depth, n) = a.shape, b.shape
    if k != depth or y.shape != (*stack, m, n) or (prod(others) != 1 and others != stack):
        raise step.error(f"the product of {a.shape} and {b.shape} is not {y.shape}")
    if prod(others) == 1:
        return [_product(step, "matmul", a, b, None, (1, prod(stack) * m, k, n), 0)]
    return [_product(step, "matmul", a, b, None, (prod(stack), m, k, n), k * n)]


def _product(
    step: Step, kernel: str, a: Tensor, b: Tensor, bias: Tensor | None, sizes: Sequence[int], step_b: int
) -> CudaLaunch:
    """Launch a product; `sizes` are matrices in the stack, rows, depth and columns."""
    stack, rows, depth, columns = sizes
    y = step.output
    tile = tile_for(rows, columns, stack, step.sms)
    grid = (*tile.blocks(rows, columns), stack)
    arguments = (a.at, b.at, address_of(bias), y.at, rows, depth, columns, step_b, step.activation())
    flops = 2.0 * y.n * depth
    return step.launch(f"{kernel}_{tile.name}", grid, tile.threads, arguments, flops=flops, moved=(a, b, bias, y))


def tile_for(rows: int, columns: int, stack: int, sms: int) -> Tile:
    """Return the largest tile whose grid gives every processor a block, or else the smallest."""
    return next((tile for tile in TILES if stack * prod(tile.blocks(rows, columns)) >= sms), TILES[-1])
