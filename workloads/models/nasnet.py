"""NASNet-A (Zoph et al., 2018), inference, without auxiliary head."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

from simsched.base.codec import Among
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.network import Network, Tensor

_REPEATS_LARGE: Final = 6
_REPEATS_MOBILE: Final = 4
SMALLEST_IMAGE: Final = 32  # five times halved
Variant = Annotated[str, Among(("ios", "paper"))]


@workload(Network)
def nasnet_a_large(net: Network, *, batch: int = 1, image_size: int = 331, variant: Variant = "ios") -> OpGraph:
    """Return the graph of NASNet-A (6 @ 4032), the large one, for 331 pixels.

    Parameters
    ----------
    batch
        Images at a time, at least 1.
    image_size
        Height and width of the images in pixels, at least 32, which five reductions leave a pixel of. AutoGraph
        uses 224.
    dtype, granularity
        See `workloads.models.network.Network`.
    variant
        "ios" for the network that IOS measured, "paper" for the architecture as published.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The network of [1]_, Fig. 4 and appendix. Units are the same as in IOS [2]_, which ends at the last pool: an
    activation with the next convolution (separable or 1x1) is one operator of kind "sequential" and two or
    three kernels; all sums and the concatenation that end a cell are one "identity". That makes 374 operators
    (267 sequential, 71 pools, 34 sums and concatenations, one convolution, one activation), 576 edges - one for
    each tensor read, so that a cell's end that reads one tensor twice has two - and, at 331 pixels, 22.18 G
    multiply-adds per image. The `block` labels cut it into 25: the stem convolution, 2 + 20 cells, the last
    activation and the last pool.

    The network that IOS measured departs from [1]_ in five places: a normal cell does not pass on its left
    input (5 tensors joined, not 6), the first cell of each size reads its right input instead of the left one
    for the second branch of its second sum, the two halves of the second stem cell's right input are added, not joined,
    the first stem cell adds the average of its first sum to that sum, not to the second, and the end of a
    reduction adds up the second sum again. The variant "paper" does none of it: 589 edges, 23.8 G multiply-adds.
    In both, a tensor is brought to half its height and width by one strided 1x1 convolution for each half of the
    channels, instead of two shifted pools.

    Single operators have normalisation on its own and end with dropout, flatten and linear.

    References
    ----------
    .. [1] Zoph, Vasudevan, Shlens, Le, "Learning transferable architectures for scalable image recognition",
       CVPR 2018, doi:10.1109/CVPR.2018.00907.
    .. [2] Ding, Zhu, Jia, Pekhimenko, Han, "IOS: Inter-operator scheduler for CNN acceleration",
       MLSys 2021, arXiv:2011.01302.

    Examples
    --------
    >>> nasnet_a_large()
    OpGraph('nasnet_a_large', 374 operators, 576 edges)
    """
    return _nasnet(net, batch, image_size, variant, stem_filters=96, filters=168, repeats=_REPEATS_LARGE)


@workload(Network)
def nasnet_mobile(net: Network, *, batch: int = 1, image_size: int = 224, variant: Variant = "paper") -> OpGraph:
    """Return the graph of NASNet-A (4 @ 1056), the mobile one, for 224 pixels.

    Parameters and units are the same as for `nasnet_a_large`; IOS did not use this network, so the
    architecture is the published one: 278 operators, 433 edges, 0.564 G multiply-adds and 5.3 M parameters.

    Examples
    --------
    >>> nasnet_mobile().outputs
    ('head.pool',)
    """
    return _nasnet(net, batch, image_size, variant, stem_filters=32, filters=44, repeats=_REPEATS_MOBILE)


@workload(Network, granularity="operator")
def autograph_nasnet_a(net: Network, *, batch: int = 1, image_size: int = 224) -> OpGraph:
    """Return NASNet-A (6 @ 4032) at 224 pixels, as AutoGraph measured it, by single operators.

    Examples
    --------
    >>> autograph_nasnet_a().name
    'autograph_nasnet_a'
    """
    return _nasnet(net, batch, image_size, "paper", stem_filters=96, filters=168, repeats=_REPEATS_LARGE)


def _nasnet(
    net: Network, batch: int, image_size: int, variant: str, *, stem_filters: int, filters: int, repeats: int
) -> OpGraph:
    published = variant == "paper"
    image = net.images(batch, 3, image_size, least=SMALLEST_IMAGE)
    net.block = "stem"
    stem = net.conv("stem.conv", image, stem_filters, 3, stride=2, activation=None, norm=True)
    before = stem
    x = _first_stem_cell(net, stem, filters // 4, published)
    before, x = x, _second_stem_cell(net, x, before, filters // 2, published)
    n_cells = 0
    for scale in (1, 2, 4):
        width = scale * filters
        if scale > 1:  # the cell after a reduction reads the input of the reduction, which is twice as large
            x = _reduction_cell(net, f"reduction{scale // 2}", x, before, width, published)
        for i in range(repeats):
            before, x = x, _normal_cell(net, f"cell{n_cells + i}", x, before, width, published, is_first=i == 0)
        n_cells += repeats
    net.block = "head"
    x = net.activation("head.relu", x)
    net.block = "head.pool"
    return net.with_classifier(x, dropout=True)


def _first_stem_cell(net: Network, x: Tensor, width: int, published: bool) -> Tensor:
    name = net.block = "stem0"
    left = _squeeze(net, f"{name}.left", x, width)
    _, c0, c1, c2, pool, c4 = _reducing_combinations(net, name, left, x, width, between=width)
    return _join(net, name, [[c1], c2, [pool, c1 if published else c0], c4])


def _second_stem_cell(net: Network, x: Tensor, before: Tensor, width: int, published: bool) -> Tensor:
    name = net.block = "stem1"
    left = _squeeze(net, f"{name}.left", x, width)
    right = _halve(net, f"{name}.right", before, width, net.concat if published else net.add)
    _, _, c1, c2, pool, c4 = _reducing_combinations(net, name, left, right, width)
    return _join(net, name, [[c1], c2, [pool, c1], c4])


def _normal_cell(
    net: Network, name: str, x: Tensor, before: Tensor, width: int, published: bool, *, is_first: bool
) -> Tensor:
    """Add a normal cell; the second input of the first of a size has twice the height and width of its first."""
    net.block = name
    if is_first:
        left = _halve(net, f"{name}.left", before, width, join=net.concat)
    else:
        left = _squeeze(net, f"{name}.left", before, width)
    right = _squeeze(net, f"{name}.right", x, width)
    if is_first and not published:
        second = right
    else:
        second = left
    c0 = [_branch(net, f"{name}.0l", right, 5, width), _branch(net, f"{name}.0r", left, 3, width)]
    c1 = [_branch(net, f"{name}.1l", left, 5, width), _branch(net, f"{name}.1r", second, 3, width)]
    c2 = [_pool(net, f"{name}.2l", right, "avg", 1), left]
    c3 = [_pool(net, f"{name}.3{side}", left, "avg", 1) for side in "lr"]
    c4 = [_branch(net, f"{name}.4l", right, 3, width), right]
    return _join(net, name, [*([[left]] if is_first or published else []), c0, c1, c2, c3, c4])


def _reduction_cell(net: Network, name: str, x: Tensor, before: Tensor, width: int, published: bool) -> Tensor:
    net.block = name
    left = _squeeze(net, f"{name}.left", before, width)
    right = _squeeze(net, f"{name}.right", x, width)
    terms, _, c1, c2, pool, c4 = _reducing_combinations(net, name, right, left, width)
    return _join(net, name, [[c1] if published else terms, c2, [c1, pool], c4])


def _reducing_combinations(
    net: Network, name: str, near: Tensor, far: Tensor, width: int, *, between: int | None = None
) -> tuple[list[Tensor], Tensor, Tensor, list[Tensor], Tensor, list[Tensor]]:
    """Add the pairs of branches that halve the image: terms of the second sum, both sums, third, pool, fifth pair."""
    branch = partial(_branch, net, out_channels=width, stride=2)
    wide = partial(branch, between=between)
    c0 = net.add(f"{name}.sum0", [branch(f"{name}.0l", near, 5), wide(f"{name}.0r", far, 7)])
    terms = [_pool(net, f"{name}.1l", near, "max", 2), wide(f"{name}.1r", far, 7)]
    c1 = net.add(f"{name}.sum1", terms)
    c2 = [_pool(net, f"{name}.2l", near, "avg", 2), wide(f"{name}.2r", far, 5)]
    pool = _pool(net, f"{name}.3r", c0, "avg", 1)
    return terms, c0, c1, c2, pool, [_branch(net, f"{name}.4l", c0, 3, width), _pool(net, f"{name}.4r", near, "max", 2)]


def _halve(net: Network, name: str, x: Tensor, width: int, join: Callable[[str, list[Tensor]], Tensor]) -> Tensor:
    """Squeeze a tensor to half its height and width, twice, and join the two."""
    return join(name, [_squeeze(net, f"{name}{i}", x, width // 2, stride=2) for i in (1, 2)])


def _squeeze(net: Network, name: str, x: Tensor, channels: int, *, stride: int = 1) -> Tensor:
    """Add an activation and the 1x1 convolution after it."""
    with net.unit(name, "sequential"):
        x = net.activation(f"{name}.relu", x)
        return net.conv(f"{name}.conv", x, channels, 1, stride=stride, activation=None, norm=True)


def _branch(
    net: Network, name: str, x: Tensor, window: int, out_channels: int, *, stride: int = 1, between: int | None = None
) -> Tensor:
    """Add two activations, each with a separable convolution; `between` channels flow from one to the other."""
    for i, (channels, step) in enumerate(((between or x.shape[1], stride), (out_channels, 1)), 1):
        part = f"{name}.sep{i}"
        with net.unit(part, "sequential"):
            x = net.separable(part, net.activation(f"{part}.relu", x), channels, window, stride=step)
    return x


def _pool(net: Network, name: str, x: Tensor, pool: str, stride: int) -> Tensor:
    return net.pool(name, x, pool, 3, stride=stride, padding=1)


def _join(net: Network, name: str, terms: list[list[Tensor]]) -> Tensor:
    """Add the concatenation of the sums of the terms."""
    with net.unit(f"{name}.join", "identity"):
        sums = [xs[0] if len(xs) == 1 else net.add(f"{name}.join{i}", xs) for i, xs in enumerate(terms)]
        return net.concat(f"{name}.join", sums)
