"""`Network`: builds the graph of a network, with shapes, costs and kernels.

A call adds one operator and returns its output, which later calls read. Tensors are dense, in the number
format of the network; images are (N, C, H, W), sequences (N, length, features). Reading a tensor that another
operator wrote adds one edge of the tensor's size, each time it is read; reading an input of the network adds
none. Costs and kernels follow `workloads.costs`.

The same calls build a network at either granularity:

"unit"
    What IOS schedules. A convolution or matrix product has its normalisation (folded into the weights), bias
    and activation in it. What is added within ``with net.unit(...)`` becomes one operator.
"operator"
    What torch.fx sees: convolution, normalisation and activation are operators of their own (``name``,
    ``name.norm``, ``name.relu``), and a unit is only a label.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from simsched.cluster import Device
from simsched.errors import GraphError
from simsched.graph import Edge, Kernel, Operator, OpGraph
from workloads.checks import whole
from workloads.costs import Costs, Work
from workloads.models.windows import Pair, sliding, window_output

Shape = tuple[int, ...]

GRANULARITIES: Final = ("unit", "operator")
_COMPUTES: Final = ("conv", "linear", "matmul")  # kinds whose intensity is "compute" on no device in particular
_ACTIVATION_FLOPS: Final = {"relu": 1, "sigmoid": 4, "tanh": 4, "gelu": 8}
_INDEX_NBYTES: Final = 8
_LARGEST_SIZE: Final = 2**31 - 1
_MOST_ELEMENTS: Final = 2**40  # of an input: more than any device holds
_LARGEST_GRID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operator's output, or (`producer` None) an input of the network; `part` is its place in an open unit."""

    producer: str | None
    shape: Shape
    part: int | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """One kernel's worth of a unit; `inputs` are earlier parts, or ~i for the unit's i-th input."""

    kind: str
    inputs: tuple[int, ...]
    work: Work
    nbytes: float
    output_shape: Shape
    attributes: dict[str, Any]

    def described(self) -> dict[str, Any]:
        return {"kind": self.kind, "inputs": self.inputs, "output_shape": self.output_shape} | self.attributes


class _Unit:
    """A unit being filled."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.inputs: list[Tensor] = []
        self.parts: list[_Part] = []

    def reads(self, x: Tensor) -> int:
        """Return how a part refers to a tensor: an earlier part, or ~i for the i-th input."""
        if x.producer == self.name and x.part is not None:
            return x.part
        self.inputs.append(x)
        return ~(len(self.inputs) - 1)


class Network:
    """A network under construction.

    Parameters
    ----------
    name
        Of the graph.
    dtype
        Number format of every tensor, one of `DTYPE_NBYTES`.
    granularity
        "unit" or "operator".
    device
        Name of the preset device whose launch rules hold, or None for those of `workloads.costs` on no
        device in particular.

    Attributes
    ----------
    block
        Label that operators added from now on carry; None for none.

    Raises
    ------
    GraphError
        If a value is out of range, shapes do not fit, or an operator's name stands twice.

    Examples
    --------
    >>> def tiny(granularity):
    ...     net = Network("tiny", granularity=granularity)
    ...     image = net.input(1, 3, 8, 8)
    ...     wide = net.conv("wide", image, 16, 3, padding=1, norm=True)
    ...     with net.unit("deep", "sequential"):
    ...         deep = net.conv("deep.point", net.activation("deep.relu", wide), 16, 1, activation=None)
    ...     net.concat("both", [wide, deep])
    ...     return net.graph()
    >>> tiny("unit").names
    ('wide', 'deep', 'both')
    >>> tiny("operator").names
    ('wide', 'wide.norm', 'wide.relu', 'deep.relu', 'deep.point', 'both')
    """

    def __init__(
        self, name: str, dtype: str = "fp32", granularity: str = "unit", device: str | Device | None = None
    ) -> None:
        if granularity not in GRANULARITIES:
            raise GraphError(f"{name}: granularity must be 'unit' or 'operator', not {granularity!r}")
        self.name = name
        self.costs = Costs(dtype, device)
        self.by_units = granularity == "unit"
        self.block: str | None = None
        self._operators: list[Operator] = []
        self._edges: list[Edge] = []
        self._open: _Unit | None = None
        self._output: dict[str | None, int] = {}  # operator -> its last part, which is what others may read

    def input(self, *shape: int) -> Tensor:
        """Return an input of the network, such as (batch, channels, height, width)."""
        sizes = tuple(whole(self.name, "size of an input", size, most=_LARGEST_SIZE) for size in shape)
        if prod(sizes) > _MOST_ELEMENTS:
            raise GraphError(f"{self.name}: an input of shape {sizes} is more than any device holds")
        return Tensor(None, sizes)

    def images(self, batch: int, channels: int, size: int, *, least: int) -> Tensor:
        """Return an input of square images of at least `least` pixels a side."""
        batch = whole(self.name, "batch", batch, most=_LARGEST_SIZE)
        return self.input(
            batch, channels, *2 * (whole(self.name, "image_size", size, least=least, most=_LARGEST_SIZE),)
        )

    @contextmanager
    def unit(self, name: str, kind: str) -> Iterator[None]:
        """Make one operator of all that is added inside; its output is that of the last.

        Its `attributes["parts"]` list them in order: kind, attributes, `output_shape` and `inputs`, which
        are the numbers of earlier parts, or ~i (that is -1 - i) for input i of the operator. Each part
        launches its own kernels and moves its own bytes. A unit of one part is that part, under the
        name of the unit. At granularity "operator" this does nothing.
        """
        if not self.by_units:
            yield
            return
        if self._open is not None:
            raise GraphError(f"{name}: unit {self._open.name} is still open")
        self._open = unit = _Unit(name, kind)
        try:
            yield
        finally:
            self._open = None
        if not unit.parts:
            raise GraphError(f"{name}: the unit is empty")
        self._close(unit)

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
        activation: str | None = "relu",
        norm: bool = False,
    ) -> Tensor:
        """Add a convolution with its bias or batch normalisation, and its activation if any."""
        self._need_rank(name, x, 4)
        n, channels, _, _ = x.shape
        whole(name, "out_channels", out_channels)
        if whole(name, "groups", groups) > 1 and (channels % groups or out_channels % groups):
            raise GraphError(f"{name}: groups = {groups} does not divide {channels} channels into {out_channels}")
        window, step, margin = sliding(name, kernel, stride, padding)
        shape = (n, out_channels, *window_output(name, x.shape, window, step, margin))
        attributes = {
            "kernel": window, "stride": step, "padding": margin, "groups": groups, "out_channels": out_channels,
        }  # fmt: skip
        work = self.costs.conv(shape, channels, window, groups=groups, bias=self.by_units or not norm)
        return self._with_epilogue(name, "conv", [x], shape, work, attributes, activation, norm)

    def linear(
        self, name: str, x: Tensor, out_features: int, *, activation: str | None = None, bias: bool = True
    ) -> Tensor:
        """Add a product of the last axis with weights, with bias and activation if any."""
        whole(name, "out_features", out_features)
        *lead, features = x.shape
        work = self.costs.linear(prod(lead), features, out_features, bias=bias)
        attributes = {"in_features": features, "out_features": out_features, "bias": bias}
        return self._with_epilogue(name, "linear", [x], (*lead, out_features), work, attributes, activation, False)

    def matmul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """Add the products of two stacks of matrices, (..., m, k) by (..., k, n)."""
        *lead, m, k = a.shape
        if (*lead, k) != b.shape[:-1]:
            raise GraphError(f"{name}: cannot multiply {a.shape} by {b.shape}")
        n = b.shape[-1]
        return self.add_operator(name, "matmul", [a, b], (*lead, m, n), self.costs.matmul(prod(lead), m, k, n))

    def pool(
        self,
        name: str,
        x: Tensor,
        pool: str,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Add a pool, `pool` being "max" or "avg"; `ceil_mode` rounds the output up (a last, partial window)."""
        self._need_rank(name, x, 4)
        if pool not in ("max", "avg"):
            raise GraphError(f"{name}: pool must be 'max' or 'avg', not {pool!r}")
        window, step, margin = sliding(name, kernel, stride, padding)
        output = window_output(name, x.shape, window, step, margin, ceil_mode)
        attributes: dict[str, Any] = {"pool": pool, "kernel": window, "stride": step, "padding": margin}
        if ceil_mode:
            attributes["ceil_mode"] = True
        shape = (*x.shape[:2], *output)
        return self.add_operator(name, "pool", [x], shape, self.costs.pool(shape, window), attributes)

    def global_pool(self, name: str, x: Tensor) -> Tensor:
        """Add the average over all of each channel, a pool whose window is the whole image."""
        self._need_rank(name, x, 4)
        n, channels, *image = x.shape
        window = (image[0], image[1])
        shape = (n, channels, 1, 1)
        attributes = {"pool": "global_avg", "kernel": window, "stride": (1, 1), "padding": (0, 0)}
        return self.add_operator(name, "pool", [x], shape, self.costs.pool(shape, window), attributes)

    def concat(self, name: str, xs: Sequence[Tensor], *, axis: int = 1) -> Tensor:
        """Add the concatenation of tensors along an axis, a copy of all their bytes."""
        if not xs:
            raise GraphError(f"{name}: there is nothing to concatenate")
        first = xs[0].shape
        for x in xs:
            if len(x.shape) != len(first) or any(
                a != b for i, (a, b) in enumerate(zip(x.shape, first, strict=True)) if i != axis
            ):
                raise GraphError(f"{name}: cannot concatenate {x.shape} to {first}: they differ beyond axis {axis}")
        shape = (*first[:axis], sum(x.shape[axis] for x in xs), *first[axis + 1 :])
        return self.add_operator(name, "concat", xs, shape, self.costs.elementwise(shape), {"axis": axis})

    def add(self, name: str, xs: Sequence[Tensor], *, activation: str | None = None) -> Tensor:
        """Add the sum of tensors of one shape."""
        return self.elementwise(name, "add", xs, flops=max(1, len(xs) - 1), activation=activation)

    def elementwise(
        self, name: str, kind: str, xs: Sequence[Tensor], *, flops: float = 1.0, activation: str | None = None
    ) -> Tensor:
        """Add an operator that makes each output element of one element of every input."""
        if not xs:
            raise GraphError(f"{name}: there is nothing to read")
        for x in xs:
            if x.shape != xs[0].shape:
                raise GraphError(f"{name}: the shapes {x.shape} and {xs[0].shape} differ")
        shape = xs[0].shape
        work = self.costs.elementwise(shape, flops=flops)
        return self._with_epilogue(name, kind, xs, shape, work, {}, activation, False)

    def activation(self, name: str, x: Tensor, kind: str = "relu") -> Tensor:
        """Add an activation: "relu", "sigmoid", "tanh" or "gelu"."""
        if kind not in _ACTIVATION_FLOPS:
            raise GraphError(f"{name}: unknown activation {kind!r}; known are: {', '.join(_ACTIVATION_FLOPS)}")
        work = self.costs.elementwise(x.shape, flops=_ACTIVATION_FLOPS[kind])
        return self.add_operator(name, kind, [x], x.shape, work)

    def batch_norm(self, name: str, x: Tensor) -> Tensor:
        """Add a batch normalisation in inference: a scale and a shift per channel."""
        work = self.costs.elementwise(x.shape, flops=2, n_weights=4 * x.shape[1])
        return self.add_operator(name, "batch_norm", [x], x.shape, work)

    def layer_norm(self, name: str, x: Tensor, *, kind: str = "layer_norm") -> Tensor:
        """Add a normalisation over the last axis: "layer_norm" (scale and shift), or "rms_norm" (scale)."""
        per_feature, flops = {"layer_norm": (2, 8), "rms_norm": (1, 4)}[kind]
        work = self.costs.rows(x.shape, flops=flops, n_weights=per_feature * x.shape[-1])
        return self.add_operator(name, kind, [x], x.shape, work)

    def softmax(self, name: str, x: Tensor) -> Tensor:
        """Add a softmax over the last axis."""
        return self.add_operator(name, "softmax", [x], x.shape, self.costs.rows(x.shape, flops=5))

    def embedding(self, name: str, indices: Tensor, rows: int, features: int) -> Tensor:
        """Add a look-up: a row of a (rows, features) table for each index; only the rows looked up are moved."""
        shape = (*indices.shape, features)
        work = self.costs.elementwise(shape, n_weights=rows * features)
        nbytes = 2.0 * prod(shape) * self.costs.width + prod(indices.shape) * _INDEX_NBYTES
        return self.add_operator(
            name, "embedding", [indices], shape, work, {"rows": rows, "features": features}, nbytes=nbytes
        )

    def view(self, name: str, x: Tensor, shape: Sequence[int], *, kind: str = "view") -> Tensor:
        """Add a change of shape (or a dropout in inference), which launches nothing and takes no time."""
        if prod(shape) != prod(x.shape):
            raise GraphError(f"{name}: {x.shape} cannot become {tuple(shape)}")
        return self.add_operator(name, kind, [x], tuple(shape), Work(0.0, 0, None), nbytes=0.0)

    def copy(self, name: str, x: Tensor, shape: Sequence[int], *, kind: str = "copy") -> Tensor:
        """Add a copy that reads as many bytes as it writes: a transposition, a part cut out."""
        work = self.costs.elementwise(shape)
        nbytes = 2.0 * prod(shape) * self.costs.width
        return self.add_operator(name, kind, [x], tuple(shape), work, nbytes=nbytes)

    def classifier(self, name: str, x: Tensor, classes: int, *, dropout: bool = False) -> Tensor:
        """Add what makes class scores of pooled images: flatten and linear, after a dropout if there is one."""
        if dropout:
            x = self.view(f"{name}.dropout", x, x.shape, kind="dropout")
        x = self.view(f"{name}.flatten", x, (x.shape[0], prod(x.shape[1:])), kind="flatten")
        return self.linear(f"{name}.linear", x, classes)

    def add_operator(
        self,
        name: str,
        kind: str,
        xs: Sequence[Tensor],
        shape: Shape,
        work: Work,
        attributes: dict[str, Any] | None = None,
        *,
        nbytes: float | None = None,
    ) -> Tensor:
        """Add an operator of any kind; `nbytes` defaults to inputs, weights and output."""
        width = self.costs.width
        if nbytes is None:
            nbytes = float((sum(prod(x.shape) for x in xs) + work.n_weights + prod(shape)) * width)
        if work.kernel is not None and work.kernel.blocks > _LARGEST_GRID:
            blocks = work.kernel.blocks
            raise GraphError(
                f"{name}: {blocks} thread blocks are more than a grid can have; use a smaller batch or image"
            )
        for x in xs:
            if x.part is not None and x.part != self._output.get(x.producer, x.part):
                raise GraphError(f"{name}: cannot read from within unit {x.producer}, only its last output")
        unit = self._open or _Unit(name, kind)
        inputs = tuple(unit.reads(x) for x in xs)
        unit.parts.append(_Part(kind, inputs, work, nbytes, shape, attributes or {}))
        if unit is self._open:
            return Tensor(unit.name, shape, len(unit.parts) - 1)
        self._close(unit)
        return Tensor(name, shape, 0)

    def graph(self) -> OpGraph:
        """Return what was built, operators in the order in which they were added."""
        return OpGraph(self._operators, self._edges, self.name)

    def _with_epilogue(
        self,
        name: str,
        kind: str,
        xs: Sequence[Tensor],
        shape: Shape,
        work: Work,
        attributes: dict[str, Any],
        activation: str | None,
        norm: bool,
    ) -> Tensor:
        """Add an operator and what follows it at once, in it or after it."""
        if self.by_units:
            if activation is not None:
                attributes["activation"] = activation
            return self.add_operator(name, kind, xs, shape, work, attributes)
        x = self.add_operator(name, kind, xs, shape, work, attributes)
        if norm:
            x = self.batch_norm(f"{name}.norm", x)
        return x if activation is None else self.activation(f"{name}.{activation}", x, activation)

    def _close(self, unit: _Unit) -> None:
        """Add the operator that a unit's parts make."""
        parts, width = unit.parts, self.costs.width
        self._output[unit.name] = len(parts) - 1
        flops, nbytes = sum(part.work.flops for part in parts), sum(part.nbytes for part in parts)
        computes = any(part.kind in _COMPUTES for part in parts)
        kernels = self._kernels(unit)
        first = parts[0]
        self._operators.append(
            Operator(
                unit.name,
                kind=first.kind if len(parts) == 1 else unit.kind,
                flops=flops,
                nbytes=nbytes,
                weight_nbytes=float(sum(part.work.n_weights for part in parts) * width),
                time=None if kernels else 0.0,
                kernels=kernels,
                intensity=self.costs.intensity(computes, flops, nbytes),
                dtype=self.costs.dtype,
                attributes=first.attributes if len(parts) == 1 else {"parts": [part.described() for part in parts]},
                input_shapes=tuple(x.shape for x in unit.inputs),
                output_shape=parts[-1].output_shape,
                block=self.block,
            )
        )
        for x in unit.inputs:
            if x.producer is not None:
                self._edges.append(Edge(x.producer, unit.name, nbytes=float(prod(x.shape) * width)))

    def _kernels(self, unit: _Unit) -> tuple[Kernel, ...]:
        """Return the kernels of the parts, each with its share of the operator's time."""
        launched = [
            (part.work.kernel, self.costs.duration(part.work.flops, part.nbytes))
            for part in unit.parts
            if part.work.kernel is not None
        ]
        if len(launched) < 2:
            return tuple(kernel for kernel, _ in launched)
        total = sum(duration for _, duration in launched)
        return tuple(replace(kernel, share=duration / total) for kernel, duration in launched)

    def _need_rank(self, name: str, x: Tensor, rank: int) -> None:
        if len(x.shape) != rank:
            raise GraphError(f"{name}: needs a tensor of {rank} axes, not of shape {x.shape}")
