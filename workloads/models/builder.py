"""`Network`: builds the graph of a convolutional network, with shapes, costs and kernels.

A call adds one operator and returns its output, which later calls read. What it assumes, in one place:

Tensors
    (N, C, H, W), dense, in the number format of the network. Reading a tensor that another
    operator wrote adds one edge of the tensor's size; reading the network's input adds none.

FLOP
    A convolution counts 2 per multiply-add, the bias and the activation 0. A pool counts the whole
    window for each output, padding included. Moving data counts 0.

Bytes
    Inputs, weights (with bias) and output, each moved once.

Intensity
    A convolution is "compute", everything else "memory". That is a rule about the kind, not
    about a device: a roofline would put a convolution on either side, depending on the device.

Kernels (launch shapes of ordinary libraries, not of a particular release of one)
    A convolution is an implicit matrix product of M = N * H_out * W_out pixels and N = C_out
    channels (per group), in tiles of 64 x 64: ceil(M / 64) * ceil(N / 64) blocks of 256 threads,
    64 registers per thread and 8704 bytes of shared memory (two 64 x 17 tiles of fp32).
    Everything else has one thread per output element: blocks of 256 threads, 32 registers per
    thread, no shared memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from simsched.errors import GraphError
from simsched.graph import DTYPE_NBYTES, Edge, Kernel, Operator, OpGraph
from workloads.checks import whole

Shape = tuple[int, int, int, int]
Pair = int | tuple[int, int]

_TILE: Final = 64
_THREADS: Final = 256
_CONV_REGISTERS: Final = 64
_CONV_SHARED_MEMORY: Final = 8704
_REGISTERS: Final = 32
_LARGEST_GRID: Final = 2**31 - 1  # of a CUDA grid, along x


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operator's output, or (`producer` None) the network's input; `shape` is (N, C, H, W)."""

    producer: str | None
    shape: Shape


class Network:
    """A network under construction.

    Parameters
    ----------
    name
        Of the graph.
    dtype
        Number format of every tensor, one of `DTYPE_NBYTES`.

    Attributes
    ----------
    block
        Label that operators added from now on carry; None for none.

    Examples
    --------
    >>> net = Network("tiny")
    >>> image = net.input(1, 3, 8)
    >>> wide = net.conv("wide", image, 16, 3, padding=1)
    >>> both = net.identity("both", [wide, net.pool("pool", wide, "avg", 3, padding=1)])
    >>> both.shape, net.graph()
    ((1, 32, 8, 8), OpGraph('tiny', 3 operators, 3 edges))
    """

    def __init__(self, name: str, dtype: str = "fp32") -> None:
        if dtype not in DTYPE_NBYTES:
            raise GraphError(f"{name}: unknown dtype {dtype!r}; known are: {', '.join(DTYPE_NBYTES)}")
        self.name = name
        self.dtype = dtype
        self.block: str | None = None
        self._operators: list[Operator] = []
        self._edges: list[Edge] = []

    def input(self, batch: int, channels: int, size: int) -> Tensor:
        """Return the network's input: square images, shape (batch, channels, size, size)."""
        return Tensor(None, (batch, channels, size, size))

    def conv(
        self,
        name: str,
        x: Tensor,
        out_channels: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        groups: int = 1,
        activation: str = "relu",
    ) -> Tensor:
        """Add a convolution fused with its bias and activation.

        Notes
        -----
        Kernel rule: groups * ceil(N * H_out * W_out / 64) * ceil(C_out / groups / 64) blocks of
        256 threads, 64 registers per thread, 8704 bytes of shared memory.
        """
        n, channels, _, _ = x.shape
        whole(name, "out_channels", out_channels)
        if whole(name, "groups", groups) > 1 and (channels % groups or out_channels % groups):
            raise GraphError(f"{name}: groups = {groups} does not divide {channels} channels into {out_channels}")
        window, step, margin = _sliding(name, kernel, stride, padding)
        height, width = _window_output(name, x.shape, window, step, margin)
        shape = (n, out_channels, height, width)
        weights_per_output = channels // groups * prod(window)
        n_weights = out_channels * weights_per_output + out_channels
        blocks = groups * _ceil_div(n * height * width, _TILE) * _ceil_div(out_channels // groups, _TILE)
        return self._add(
            name,
            "conv",
            [x],
            shape,
            Kernel(_grid(name, blocks), _THREADS, _CONV_REGISTERS, _CONV_SHARED_MEMORY),
            flops=2.0 * prod(shape) * weights_per_output,
            n_weights=n_weights,
            attributes={
                "kernel": list(window),
                "stride": list(step),
                "padding": list(margin),
                "groups": groups,
                "out_channels": out_channels,
                "activation": activation,
            },
        )

    def pool(self, name: str, x: Tensor, pool: str, kernel: Pair, *, stride: Pair = 1, padding: Pair = 0) -> Tensor:
        """Add a pool, `pool` being "max" or "avg".

        Notes
        -----
        Kernel rule: one thread per output element, blocks of 256 threads, 32 registers per thread.
        """
        if pool not in ("max", "avg"):
            raise GraphError(f"{name}: pool must be 'max' or 'avg', not {pool!r}")
        window, step, margin = _sliding(name, kernel, stride, padding)
        height, width = _window_output(name, x.shape, window, step, margin)
        return self._add_pool(name, x, pool, (*x.shape[:2], height, width), window, step, margin)

    def global_pool(self, name: str, x: Tensor) -> Tensor:
        """Add the average over all of each channel, a pool whose window is the whole image.

        Notes
        -----
        Kernel rule: one thread per output element, as for `pool`.
        """
        n, channels, height, width = x.shape
        return self._add_pool(name, x, "global_avg", (n, channels, 1, 1), (height, width), (1, 1), (0, 0))

    def identity(self, name: str, xs: Sequence[Tensor]) -> Tensor:
        """Add the concatenation of tensors along their channels, a copy of all their bytes.

        Notes
        -----
        Kernel rule: one thread per output element, blocks of 256 threads, 32 registers per thread.
        """
        if not xs:
            raise GraphError(f"{name}: there is nothing to concatenate")
        n, _, height, width = xs[0].shape
        for x in xs:
            if (x.shape[0], *x.shape[2:]) != (n, height, width):
                raise GraphError(
                    f"{name}: cannot concatenate {x.shape} to {xs[0].shape}: they differ beyond the channels"
                )
        shape = (n, sum(x.shape[1] for x in xs), height, width)
        return self._add(name, "identity", xs, shape, _elementwise(name, shape), flops=0.0, n_weights=0, attributes={})

    def graph(self) -> OpGraph:
        """Return what was built, operators in the order in which they were added."""
        return OpGraph(self._operators, self._edges, self.name)

    def _add_pool(
        self,
        name: str,
        x: Tensor,
        pool: str,
        shape: Shape,
        window: tuple[int, int],
        step: tuple[int, int],
        margin: tuple[int, int],
    ) -> Tensor:
        attributes = {"pool": pool, "kernel": list(window), "stride": list(step), "padding": list(margin)}
        flops = float(prod(shape) * prod(window))
        return self._add(
            name, "pool", [x], shape, _elementwise(name, shape), flops=flops, n_weights=0, attributes=attributes
        )

    def _add(
        self,
        name: str,
        kind: str,
        xs: Sequence[Tensor],
        shape: Shape,
        kernel: Kernel,
        *,
        flops: float,
        n_weights: int,
        attributes: dict[str, Any],
    ) -> Tensor:
        width = DTYPE_NBYTES[self.dtype]
        n_elements = sum(prod(x.shape) for x in xs) + n_weights + prod(shape)
        self._operators.append(
            Operator(
                name,
                kind=kind,
                flops=flops,
                nbytes=float(n_elements * width),
                weight_nbytes=float(n_weights * width),
                kernels=(kernel,),
                intensity="compute" if kind == "conv" else "memory",
                dtype=self.dtype,
                attributes=attributes,
                input_shapes=tuple(x.shape for x in xs),
                output_shape=shape,
                block=self.block,
            )
        )
        for x in xs:
            if x.producer is not None:
                self._edges.append(Edge(x.producer, name, nbytes=float(prod(x.shape) * width)))
        return Tensor(name, shape)


def _sliding(name: str, kernel: Pair, stride: Pair, padding: Pair) -> tuple[tuple[int, int], ...]:
    """Return the three as pairs (height, width)."""
    pairs = []
    for what, value, least in (("kernel", kernel, 1), ("stride", stride, 1), ("padding", padding, 0)):
        height, width = (value, value) if isinstance(value, int) else value
        pairs.append((whole(name, what, height, least=least), whole(name, what, width, least=least)))
    return tuple(pairs)


def _window_output(
    name: str, shape: Shape, window: tuple[int, int], step: tuple[int, int], margin: tuple[int, int]
) -> tuple[int, int]:
    """Return height and width of what a sliding window makes of a tensor, rounded down."""
    height, width = ((size + 2 * m - w) // s + 1 for size, w, s, m in zip(shape[2:], window, step, margin, strict=True))
    if min(height, width) < 1:
        raise GraphError(
            f"{name}: a window of {window[0]} x {window[1]} does not fit into {shape[2]} x {shape[3]}; use a larger one"
        )
    return height, width


def _elementwise(name: str, shape: Shape) -> Kernel:
    return Kernel(_grid(name, _ceil_div(prod(shape), _THREADS)), _THREADS, _REGISTERS)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _grid(name: str, blocks: int) -> int:
    if blocks > _LARGEST_GRID:
        raise GraphError(f"{name}: {blocks} thread blocks are more than a grid can have; use a smaller batch or image")
    return blocks
