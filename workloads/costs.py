"""What an operator costs and what it launches: the rules that all networks and importers share.

FLOP
    2 per multiply-add, bias and fused activation 0. A pool counts its whole window for each output, padding
    included; an elementwise operator so many per output element as the caller says; moving data counts 0.

Bytes
    Inputs, weights and output, each moved once.

Kernels, on no device in particular
    *Matrix products*, a convolution being the implicit product of its N * H_out * W_out pixels by C_out
    channels (for each group): tiles of 64 x 64 outputs, a block of 256 threads each, 64 registers per thread.
    A step along the inner dimension stages 64 bytes of each row of the tile and 4 of padding in shared memory
    (16 fp32 values, 32 fp16 values): (64 + 64) * 68 = 8704 bytes. Of the columns of a tile
    only those of the group count: the efficiency of a depthwise convolution is a 64th.
    *Elementwise*, copies, pools: one thread per 4 bytes of output (per element where that is wider), blocks of
    256 threads, 32 registers per thread.
    *Rows* (softmax, normalisation over the last axis): one block of 256 threads and 1 KiB of shared memory per row.

Kernels on a device
    The largest tile of 128 x 128, 128 x 64, 64 x 64, 64 x 32 and 32 x 32 whose grid gives every SM a block, or
    else the smallest; 256 threads, for 32 x 32 128. The small tiles' threads share the inner dimension in four slices.
    A tile has columns of many groups, of which its block makes one after the other.
    Products that are no convolutions also cut it between blocks (split-K), into as many parts of at least 256 as give
    every SM `saturating_warps`; adding them up is left out. Elementwise threads take 4, 2 or 1 items of 4 bytes by the
    rule of the tiles.

Intensity
    On no device in particular a convolution or matrix product is "compute" and everything else "memory". On a
    device an operator is "compute" if its FLOP take longer than its bytes at the datasheet rates.

These are launch shapes as ordinary libraries choose them, not those of a particular release of one. Threads and
registers of the small tiles are those of cuBLAS's ``sgemm_64x32_sliced1x4`` and ``sgemm_32x32_sliced1x4`` in published
profiler traces of a V100 and an A100, where grids of products have parts of the inner dimension as their third extent.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from simsched.base.errors import GraphError, shown
from simsched.model.cluster import WARP, Cluster, Device
from simsched.model.graph import DTYPE_NBYTES, Kernel

ACTIVATION_FLOPS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "relu": 1, "relu6": 2, "leaky_relu": 2, "prelu": 2, "hard_sigmoid": 4, "sigmoid": 4, "tanh": 4, "silu": 5,
        "hard_swish": 5, "elu": 5, "selu": 6, "softplus": 6, "mish": 10, "gelu": 8,
    }
)  # fmt: skip
"""FLOP per element of each activation."""

ROW_FLOPS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "hardmax": 2, "softmax": 5, "log_softmax": 6, "lp_normalization": 4, "rms_norm": 4, "layer_norm": 8,
        "group_norm": 8, "instance_norm": 8, "mean_variance_normalization": 8,
    }
)  # fmt: skip
"""FLOP per element of what has a block of threads for each row."""

COMPUTES: Final = ("conv", "conv_transpose", "linear", "matmul", "attention", "lstm", "gru", "rnn")
"""Kinds whose intensity is "compute" on no device in particular."""

T = TypeVar("T")

_PORTABLE_RIDGE: Final = 16.0  # FLOP per byte, as of a V100 or an A100 in fp32
_THREADS: Final = 256
_REGISTERS: Final = 32
_ROW_SHARED_MEMORY: Final = 1024
_STAGED_NBYTES: Final = 68  # of a row of a tile, padding included
_WORD: Final = 4  # bytes that a thread handles at a time


class Tile(NamedTuple):
    """A block of a matrix product: `rows` x `columns` outputs."""

    rows: int
    columns: int
    threads: int
    registers: int


_TILES: Final = (
    Tile(128, 128, 256, 128),
    Tile(128, 64, 256, 96),
    Tile(64, 64, 256, 64),
    Tile(64, 32, 256, 82),
    Tile(32, 32, 128, 86),
)
_PORTABLE_TILE: Final = _TILES[2]
_SHORTEST_PART: Final = 256  # of the inner dimension of a product
_LARGEST_GRID: Final = 2**31 - 1


def keyed(rows: Mapping[T, str]) -> dict[str, T]:
    """Return a table by word of one that lists words.

    >>> keyed({1: "add sub", 2: "clip"})
    {'add': 1, 'sub': 1, 'clip': 2}
    """
    return {word: key for key, words in rows.items() for word in words.split()}


@lru_cache(maxsize=10_000)  # the layers of a network repeat
def make_kernel(
    blocks: int, threads: int, registers: int, shared_memory: int = 0, share: float = 1.0, efficiency: float = 1.0
) -> Kernel:
    """Return a kernel, the same object for the same values."""
    return Kernel(blocks, threads, registers, shared_memory, share, efficiency)


def launched(name: str, *kernels: Kernel | None) -> tuple[Kernel, ...]:
    """Return the kernels that there are of the operator `name`.

    Raises
    ------
    GraphError
        If one has more thread blocks than a grid can have.
    """
    found = tuple(kernel for kernel in kernels if kernel is not None)
    blocks = max((kernel.blocks for kernel in found), default=0)
    if blocks > _LARGEST_GRID:
        raise GraphError(f"{name}: {blocks} thread blocks are more than a grid can have; use smaller inputs")
    return found


class Work(NamedTuple):
    """What one kernel of an operator does.

    `flops` are FLOP, `n_weights` elements of parameters, `kernel` is None for an operator that
    launches nothing, such as a change of shape.
    """

    flops: float
    n_weights: int
    kernel: Kernel | None


NOTHING: Final = Work(0.0, 0, None)


class Cost(NamedTuple):
    """What an importer makes of an operator.

    `weight_nbytes` None stands for those of all its weights, `nbytes` None for these and all else that it reads and
    writes, `reads` None for all that are no weights. Of several `kernels` that of `work` is None.
    """

    kind: str
    work: Work
    attributes: Mapping[str, Any] = MappingProxyType({})
    nbytes: float | None = None
    weight_nbytes: float | None = None
    reads: tuple[Any, ...] | None = None
    kernels: tuple[Kernel, ...] = ()


class Costs:
    """The rules for one number format, on one device or on none in particular.

    Parameters
    ----------
    dtype
        One of `DTYPE_NBYTES`.
    device
        Name of a preset device, a `Device`, or None for rules that hold on no device in particular.

    Raises
    ------
    GraphError
        If the number format is not known, or `device` is nothing of the kind.
    UnknownNameError
        If there is no such preset.

    Examples
    --------
    A 3 x 3 convolution of 64 channels to 96 on 35 x 35 pixels: 20 tiles of 64 pixels by 2 of 64 channels.

    >>> Costs().conv((1, 96, 35, 35), 64, (3, 3)).kernel.blocks
    40
    >>> Costs(device="a100").conv((1, 96, 35, 35), 64, (3, 3)).kernel.blocks
    117
    """

    def __init__(self, dtype: str = "fp32", device: str | Device | None = None) -> None:
        if not isinstance(dtype, str) or dtype not in DTYPE_NBYTES:
            raise GraphError(f"unknown dtype {shown(dtype)}; known are: {', '.join(DTYPE_NBYTES)}")
        if isinstance(device, str):
            device = Cluster.preset(device).devices[0]
        elif device is not None and not isinstance(device, Device):
            raise GraphError(f"device must be the name of a preset or a Device, not {shown(device)}")
        self.dtype = dtype
        self.device = device
        self.width = DTYPE_NBYTES[dtype]
        self._sms = 0 if device is None else device.sms
        self._warps = 0.0 if device is None else device.sms * device.saturating_warps
        self._tiles = (_PORTABLE_TILE,) if device is None else _TILES
        self._on_a_device = device is not None
        self._ridge = _PORTABLE_RIDGE if device is None else device.peak_rate(dtype) / device.bandwidth

    def of(self, dtype: str) -> "Costs":
        """Return the rules for another number format on the same device."""
        return self if dtype == self.dtype else Costs(dtype, self.device)

    def conv(
        self, output: Sequence[int], in_channels: int, window: Sequence[int], *, groups: int = 1, bias: bool = True
    ) -> Work:
        """Return a convolution's work: `output` is (N, C, spatial...), `in_channels` those of all groups."""
        n, channels, *pixels = output
        per_output = in_channels // groups * prod(window)
        rows, each = n * prod(pixels), channels // groups
        batch, columns = (1, channels) if self._on_a_device else (groups, each)
        kernel = self._matrix_product(rows, columns, batch, counted=each if groups > 1 else 0)
        return Work(2.0 * prod(output) * per_output, channels * (per_output + bias), kernel)

    def conv_transpose(
        self, output: Sequence[int], image: Sequence[int], weights: Sequence[int], *, groups: int, bias: bool = True
    ) -> Work:
        """Return a transposed convolution's work: each pixel of the image goes through all weights of its channel.

        Shapes are (N, C, spatial...) and that of the weights (C, channels of the output in a group, spatial...). The
        kernel is the product that makes the output's pixels.
        """
        work = self.conv(output, image[1], weights[2:], groups=groups, bias=bias)
        return work._replace(flops=2.0 * prod(image) * prod(weights[1:]))

    def linear(self, rows: int, in_features: int, out_features: int, *, bias: bool = True) -> Work:
        """Return the work of a product with a matrix of weights."""
        kernel = self._matrix_product(rows, out_features, 1, in_features)
        return Work(2.0 * rows * in_features * out_features, (in_features + bias) * out_features, kernel)

    def matmul(self, batch: int, m: int, k: int, n: int) -> Work:
        """Return the work of `batch` products of (m, k) with (k, n), no operand being weights."""
        return Work(2.0 * batch * m * k * n, 0, self._matrix_product(m, n, batch, k))

    def pool(self, output: Sequence[int], window: Sequence[int]) -> Work:
        """Return the work of a pool."""
        return self.elementwise(output, flops=prod(window))

    def elementwise(self, output: Sequence[int], *, flops: float = 0.0, n_weights: int = 0) -> Work:
        """Return the work of one thread per output element, with so many `flops` each; a copy has none."""
        items = -(-prod(output) * self.width // max(_WORD, self.width))
        choices = (4, 2, 1) if self._on_a_device else (1,)
        per_thread = self._largest(lambda many: -(-items // (_THREADS * many)), choices)
        blocks = -(-items // (_THREADS * per_thread))
        return Work(float(prod(output) * flops), n_weights, make_kernel(blocks, _THREADS, _REGISTERS))

    def rows(self, output: Sequence[int], *, flops: float = 0.0, n_weights: int = 0) -> Work:
        """Return the work of one block per row of the last axis, with so many `flops` per element."""
        kernel = make_kernel(prod(output[:-1]), _THREADS, _REGISTERS, _ROW_SHARED_MEMORY)
        return Work(float(prod(output) * flops), n_weights, kernel)

    def intensity(self, kind_computes: bool, flops: float, nbytes: float) -> str:
        """Return "compute" or "memory" of an operator of a kind that computes, or moves, on no device in particular."""
        computes = flops > self._ridge * nbytes if self._on_a_device else kind_computes
        return "compute" if computes else "memory"

    def duration(self, flops: float, nbytes: float, efficiency: float = 1.0) -> float:
        """Return a number in proportion to the time of a kernel: its bytes, or more if its FLOP take longer."""
        return max(flops / efficiency / self._ridge, nbytes)

    def _matrix_product(self, rows: int, columns: int, batch: int, inner: int = 0, *, counted: int = 0) -> Kernel:
        """Return the kernel of `batch` products.

        `inner` is the dimension that may be cut, 0 if it may not. So many columns of a tile count at a time, 0 for all.
        """
        most = max(1, inner // _SHORTEST_PART)

        def blocks(tile: Tile) -> int:
            grid = batch * -(-rows // tile.rows) * -(-columns // tile.columns)
            return grid * min(most, max(1, round(self._warps * WARP / tile.threads / grid)))

        tile = self._largest(blocks, self._tiles)
        shared_memory = (tile.rows + tile.columns) * _STAGED_NBYTES
        efficiency = min(1.0, (counted or tile.columns) / tile.columns)
        return make_kernel(blocks(tile), tile.threads, tile.registers, shared_memory, efficiency=efficiency)

    def _largest(self, blocks: Callable[[T], int], choices: Sequence[T]) -> T:
        """Return the first choice that gives every SM a block, or else the last."""
        return next((choice for choice in choices if blocks(choice) >= self._sms), choices[-1])
