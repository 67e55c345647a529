"""`Network`: builds the graph of a network, with shapes, costs and works.

A call adds one operator and returns its output, which later calls read. Tensors are dense, in the number
format of the network; images are (N, C, H, W), sequences (N, length, features). Reading a tensor that another
operator wrote adds one edge of the tensor's size, each time it is read; reading an input of the network adds
none. Costs and works follow `workloads.costs`.

The same calls build a network at either granularity:

"unit"
    The operators that IOS schedules. A convolution or matrix product has its normalisation (folded into the weights),
    bias and activation in it. The parts added within ``with net.unit(...)`` become one operator.
"operator"
    The operators that torch.fx sees: convolution, normalisation and activation are separate (``name``,
    ``name.norm``, ``name.relu``), and a unit is only a label.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from simsched.base.errors import GraphError
from simsched.base.numeric import is_count
from simsched.model.graph import OpGraph, Work
from workloads.checks import one_of, whole
from workloads.costs import ACTIVATION_FLOPS, INDEX_NBYTES, conv_layout
from workloads.models.builder import LARGEST_SIZE, NetworkBuilder, Shape, Tensor

__all__ = ["Network", "Pair", "Tensor"]

Pair = int | tuple[int, int]

_NORMS: Final = {"layer_norm": 2, "rms_norm": 1}  # weights per feature


class Network(NetworkBuilder):
    """A network under construction.

    Parameters
    ----------
    name
        Of the graph.
    dtype
        Number format of every tensor, one of `DTYPE_NBYTES`.
    granularity
        "unit" or "operator".

    Attributes
    ----------
    block
        Label that operators added from now on carry; None for none.

    Raises
    ------
    GraphError
        If a value is out of range, shapes do not fit, or an operator's name occurs twice.

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

    def images(self, batch: int, channels: int, size: int, *, least: int) -> Tensor:
        """Return an input of square images of at least `least` pixels a side."""
        batch = whole(self.name, "batch", batch, most=LARGEST_SIZE)
        return self.input(batch, channels, *2 * (whole(self.name, "image_size", size, least=least, most=LARGEST_SIZE),))

    def sequences(self, batch: int, length: int, *features: int, most: int = LARGEST_SIZE) -> Tensor:
        """Return an input of sequences of up to `most` tokens, each an index, or a vector of so many `features`."""
        batch = whole(self.name, "batch", batch, most=LARGEST_SIZE)
        return self.input(batch, whole(self.name, "sequence_length", length, most=most), *features)

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
        bias: bool = True,
    ) -> Tensor:
        """Add a convolution with its bias, if `bias`, or batch normalisation, and its activation if any."""
        self._need_rank(name, x, 4)
        n, channels, _, _ = x.shape
        out_channels = whole(name, "out_channels", out_channels)
        groups = whole(name, "groups", groups)
        if channels % groups or out_channels % groups:
            raise GraphError(f"{name}: groups = {groups} does not divide {channels} channels into {out_channels}")
        window, step, margin = _sliding(name, kernel, stride, padding)
        shape = (n, out_channels, *_window_output(name, x.shape, window, step, margin))
        attributes = {
            "kernel": window,
            "stride": step,
            "padding": margin,
            "groups": groups,
            "out_channels": out_channels,
        }
        work = self.costs.conv(
            shape,
            x.shape,
            window,
            groups=groups,
            bias=self.by_units if norm else bias,
            adds_bias=bias and not norm and not self.by_units,
            layout=conv_layout(step, margin),
        )
        return self._with_epilogue(name, "conv", [x], shape, work, attributes, activation, norm)

    def separable(self, name: str, x: Tensor, out_channels: int, kernel: int, *, stride: int = 1) -> Tensor:
        """Add a depthwise and a 1x1 convolution with batch normalisation, without activation."""
        channels = x.shape[1]
        padding = kernel // 2
        x = self.conv(
            f"{name}.depth",
            x,
            channels,
            kernel,
            stride=stride,
            padding=padding,
            groups=channels,
            activation=None,
            bias=False,
        )
        return self.conv(f"{name}.point", x, out_channels, 1, activation=None, norm=True)

    def linear(
        self, name: str, x: Tensor, out_features: int, *, activation: str | None = None, bias: bool = True
    ) -> Tensor:
        """Add a product of the last axis with weights, with bias and activation if any."""
        out_features = whole(name, "out_features", out_features)
        *lead, features = x.shape
        work = self.costs.linear(prod(lead), features, out_features, bias=bias, adds_bias=bias and not self.by_units)
        attributes = {"in_features": features, "out_features": out_features, "bias": bias}
        return self._with_epilogue(name, "linear", [x], (*lead, out_features), work, attributes, activation, False)

    def matmul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """Add the products of two stacks of matrices, (..., m, k) by (..., k, n)."""
        if min(len(a.shape), len(b.shape)) < 2 or (*a.shape[:-2], a.shape[-1]) != b.shape[:-1]:
            raise GraphError(f"{name}: cannot multiply {a.shape} by {b.shape}")
        *lead, m, k = a.shape
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
        window, step, margin = _sliding(name, kernel, stride, padding)
        output = _window_output(name, x.shape, window, step, margin, ceil_mode)
        attributes: dict[str, Any] = {"pool": pool, "kernel": window, "stride": step, "padding": margin}
        if ceil_mode:
            attributes["ceil_mode"] = True
        shape = (*x.shape[:2], *output)
        return self.add_operator(name, "pool", [x], shape, self.costs.pool(shape, window), attributes)

    def global_pool(self, name: str, x: Tensor, pool: str = "avg") -> Tensor:
        """Add the average, or the maximum ("max"), of each channel: a pool whose window covers the whole image."""
        self._need_rank(name, x, 4)
        window = x.shape[2:]
        shape = (*x.shape[:2], 1, 1)
        attributes = {"pool": f"global_{pool}", "kernel": window, "stride": (1, 1), "padding": (0, 0)}
        return self.add_operator(name, "pool", [x], shape, self.costs.global_pool(shape, window), attributes)

    def concat(self, name: str, xs: Sequence[Tensor], *, axis: int = 1) -> Tensor:
        """Add the concatenation of tensors along an axis, a copy of all their bytes."""
        if not xs:
            raise GraphError(f"{name}: there is nothing to concatenate")
        first = xs[0].shape
        axis = whole(name, "axis", axis, least=0, most=len(first) - 1)
        for x in xs:
            if (x.shape[:axis], x.shape[axis + 1 :]) != (first[:axis], first[axis + 1 :]):
                raise GraphError(f"{name}: cannot concatenate {x.shape} to {first}: they differ beyond axis {axis}")
        shape = (*first[:axis], sum(x.shape[axis] for x in xs), *first[axis + 1 :])
        work = self.costs.elementwise(shape, rule="copy")
        return self.add_operator(name, "concat", xs, shape, work, {"axis": axis})

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
        """Add an activation, one of `ACTIVATION_FLOPS`: "relu", "gelu", ..."""
        _need_activation(name, kind)
        return self.add_operator(name, kind, [x], x.shape, self.costs.activation(kind, x.shape))

    def batch_norm(self, name: str, x: Tensor) -> Tensor:
        """Add a batch normalisation in inference: a scale and a shift per channel."""
        self._need_rank(name, x, 4)
        return self.add_operator(name, "batch_norm", [x], x.shape, self.costs.batch_norm(x.shape))

    def layer_norm(self, name: str, x: Tensor, *, kind: str = "layer_norm") -> Tensor:
        """Add a normalisation over the last axis: "layer_norm" (scale and shift), or "rms_norm" (scale)."""
        per_feature = _NORMS[one_of(name, "kind", kind, tuple(_NORMS))]
        *lead, features = x.shape
        work = self.costs.rows(kind, prod(lead), features, n_weights=per_feature * features)
        return self.add_operator(name, kind, [x], x.shape, work)

    def softmax(self, name: str, x: Tensor) -> Tensor:
        """Add a softmax over the last axis."""
        work = self.costs.rows("softmax", prod(x.shape[:-1]), x.shape[-1])
        return self.add_operator(name, "softmax", [x], x.shape, work)

    def embedding(self, name: str, indices: Tensor, rows: int, features: int) -> Tensor:
        """Add a look-up: a row of a (rows, features) table for each index; only the rows looked up are moved."""
        rows, features = (whole(name, what, n) for what, n in (("rows", rows), ("features", features)))
        shape = (*indices.shape, features)
        n = prod(indices.shape)
        work = self.costs.gather(n, features, indices=float(n * INDEX_NBYTES))
        return self.add_operator(
            name,
            "embedding",
            [indices],
            shape,
            work,
            {"rows": rows, "features": features},
            is_counted=True,
            weight_nbytes=float(rows * features * self.costs.width),
        )

    def view(self, name: str, x: Tensor, shape: Sequence[int], *, kind: str = "view") -> Tensor:
        """Return a tensor in another shape or order of axes, or after a dropout: nothing is computed or moved.

        A single operator that launches nothing and takes no time; with units no operator is added.
        """
        if not _is_shape(shape) or prod(shape) != prod(x.shape):
            raise GraphError(f"{name}: {x.shape} cannot become {tuple(shape)}")
        return self._seen_as(name, kind, x, tuple(shape))

    def slice(self, name: str, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Return a part of a tensor, read where it lies: as `view`, and with units an edge of that part only."""
        if not _is_shape(shape) or prod(shape) > prod(x.shape):
            raise GraphError(f"{name}: {tuple(shape)} is no part of {x.shape}")
        return self._seen_as(name, "slice", x, tuple(shape))

    def reduce(self, name: str, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Add sums of elements: each output element sums ``prod(x.shape) / prod(shape)`` inputs."""
        if not _is_shape(shape) or prod(x.shape) % prod(shape):
            raise GraphError(f"{name}: {x.shape} cannot be summed up to {tuple(shape)}")
        work = self.costs.reduction(prod(shape), prod(x.shape) // prod(shape), flops=float(prod(x.shape)))
        return self.add_operator(name, "reduce_sum", [x], tuple(shape), work)

    def copy(self, name: str, x: Tensor, shape: Sequence[int], *, kind: str = "copy", permutes: bool = False) -> Tensor:
        """Add a copy that reads as many bytes as it writes: a part cut out, or, if it `permutes`, other axes first."""
        work = self.costs.copy(shape, rule="permute" if permutes else "copy")
        return self.add_operator(name, kind, [x], tuple(shape), work, is_counted=True)

    def with_classifier(self, x: Tensor, *, dropout: bool = False) -> OpGraph:
        """Return the graph with a head for 1000 class scores of images: pool, flatten and linear.

        With units nothing follows the pool, where the units of IOS end. Else there may be a dropout after it.
        """
        x = self.global_pool("head.pool", x)
        if not self.by_units:
            if dropout:
                x = self.view("head.dropout", x, x.shape, kind="dropout")
            x = self.view("head.flatten", x, (x.shape[0], prod(x.shape[1:])), kind="flatten")
            self.linear("head.linear", x, 1000)
        return self.graph()

    def _seen_as(self, name: str, kind: str, x: Tensor, shape: Shape) -> Tensor:
        if self.by_units:
            return Tensor(x.producer, shape, x.part)
        return self.add_operator(name, kind, [x], shape, None)

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
        """Add an operator and its immediate successors, in it or after it."""
        if self.by_units:
            if activation is not None:
                _need_activation(name, activation)
                attributes["activation"] = activation
            return self.add_operator(name, kind, xs, shape, work, attributes)
        x = self.add_operator(name, kind, xs, shape, work, attributes)
        if norm:
            x = self.batch_norm(f"{name}.norm", x)
        if activation is None:
            return x
        return self.activation(f"{name}.{activation}", x, activation)

    def _need_rank(self, name: str, x: Tensor, rank: int) -> None:
        if len(x.shape) != rank:
            raise GraphError(f"{name}: needs a tensor of {rank} axes, not of shape {x.shape}")


def _is_shape(shape: Sequence[int]) -> bool:
    return all(is_count(size, 1) for size in shape)


def _need_activation(name: str, activation: str) -> None:
    if activation not in ACTIVATION_FLOPS:
        raise GraphError(f"{name}: unknown activation {activation!r}; known are: {', '.join(ACTIVATION_FLOPS)}")


def _sliding(name: str, kernel: Pair, stride: Pair, padding: Pair) -> tuple[tuple[int, int], ...]:
    """Return the three as pairs (height, width)."""
    pairs = []
    for what, value, least in (("kernel", kernel, 1), ("stride", stride, 1), ("padding", padding, 0)):
        if isinstance(value, tuple) and len(value) == 2:
            height, width = value
        else:
            height = width = value
        pairs.append((whole(name, what, height, least=least), whole(name, what, width, least=least)))
    return tuple(pairs)


def _window_output(
    name: str,
    shape: tuple[int, ...],
    window: tuple[int, int],
    step: tuple[int, int],
    margin: tuple[int, int],
    ceil_mode: bool = False,
) -> tuple[int, int]:
    """Return height and width of the output of a sliding window."""
    sizes = []
    for size, w, s, m in zip(shape[2:], window, step, margin, strict=True):
        length = (size + 2 * m - w + (s - 1 if ceil_mode else 0)) // s + 1
        # a window that begins in the padding at the end is left out
        sizes.append(length - 1 if ceil_mode and (length - 1) * s >= size + m else length)
    if min(sizes) < 1:
        raise GraphError(
            f"{name}: a window of {window[0]} x {window[1]} does not fit into {shape[2]} x {shape[3]}; use a larger one"
        )
    return sizes[0], sizes[1]
