"""Inception v3 (Szegedy et al., 2016), inference, without auxiliary head."""

from typing import Final

from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.network import Network, Pair, Tensor

SMALLEST_IMAGE: Final = 75


@workload(Network)
def inception_v3(net: Network, *, batch: int = 1, image_size: int = 299) -> OpGraph:
    """Return the graph of Inception v3.

    Parameters
    ----------
    batch
        Images at a time, at least 1.
    image_size
        Height and width of the images in pixels, at least 75: of a smaller one the last
        reduction leaves nothing.
    dtype, granularity
        See `workloads.models.network.Network`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The network of [1]_. Units are the same as in IOS [2]_, which ends at the last pool: each convolution with its bias
    and activation (batch normalisation is folded into the weights) is one operator, and so are each
    pool and each concatenation that ends an inception block. That makes 119 operators (94
    convolutions, 14 pools, 11 concatenations), 153 edges (one per tensor that
    a consumer reads) and, at 299 pixels, 5.711 G multiply-adds per image. The `block` labels
    cut it into 13 units of 7, 9, 9, 9, 6, 12, 12, 12, 12, 8, 11, 11 and 1 operators.

    Single operators include the classifier (dropout, flatten, linear), one concatenation more in each
    fork of the last two blocks, and normalisation and activation on their own: 314 operators.

    Operators are in topological order, branch by branch. The pools inside inception blocks
    average, also in the last one. Costs and kernels follow `workloads.costs`.

    References
    ----------
    .. [1] Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the Inception architecture for
       computer vision", CVPR 2016, doi:10.1109/CVPR.2016.308.
    .. [2] Ding, Zhu, Jia, Pekhimenko, Han, "IOS: Inter-operator scheduler for CNN acceleration",
       MLSys 2021, arXiv:2011.01302.

    Examples
    --------
    >>> inception_v3(batch=8, dtype="fp16")["head.pool"].output_shape
    (8, 2048, 1, 1)
    """
    x = _stem(net, net.images(batch, 3, image_size, least=SMALLEST_IMAGE))
    for block, pool_channels in (("mixed_5b", 32), ("mixed_5c", 64), ("mixed_5d", 64)):
        x = _block_a(net, block, x, pool_channels)
    x = _block_b(net, "mixed_6a", x)
    for block, channels in (("mixed_6b", 128), ("mixed_6c", 160), ("mixed_6d", 160), ("mixed_6e", 192)):
        x = _block_c(net, block, x, channels)
    x = _block_d(net, "mixed_7a", x)
    for block in ("mixed_7b", "mixed_7c"):
        x = _block_e(net, block, x)
    net.block = "head"
    return net.with_classifier(x, dropout=True)


def _stem(net: Network, x: Tensor) -> Tensor:
    net.block = "stem"
    x = net.conv("stem.conv1", x, 32, 3, stride=2, norm=True)
    x = net.conv("stem.conv2", x, 32, 3, norm=True)
    x = net.conv("stem.conv3", x, 64, 3, padding=1, norm=True)
    x = net.pool("stem.pool1", x, "max", 3, stride=2)
    x = net.conv("stem.conv4", x, 80, 1, norm=True)
    x = net.conv("stem.conv5", x, 192, 3, norm=True)
    return net.pool("stem.pool2", x, "max", 3, stride=2)


def _block_a(net: Network, block: str, x: Tensor, pool_channels: int) -> Tensor:
    """Add a block with a 5x5 branch and one of two 3x3 in its place (35 x 35 pixels)."""
    net.block = block
    one = _chain(net, f"{block}.branch1x1", x, (64, 1))
    five = _chain(net, f"{block}.branch5x5", x, (48, 1), (64, 5))
    double = _chain(net, f"{block}.branch3x3dbl", x, (64, 1), (96, 3), (96, 3))
    return net.concat(f"{block}.concat", [one, five, double, _pool_branch(net, block, x, pool_channels)])


def _block_b(net: Network, block: str, x: Tensor) -> Tensor:
    """Add the reduction from 35 x 35 to 17 x 17 pixels."""
    net.block = block
    three = _chain(net, f"{block}.branch3x3", x, (384, 3, 2))
    double = _chain(net, f"{block}.branch3x3dbl", x, (64, 1), (96, 3), (96, 3, 2))
    return net.concat(f"{block}.concat", [three, double, net.pool(f"{block}.pool", x, "max", 3, stride=2)])


def _block_c(net: Network, block: str, x: Tensor, channels: int) -> Tensor:
    """Add a block whose 7x7 windows are split into 1x7 and 7x1 (17 x 17 pixels)."""
    net.block = block
    row = (1, 7)
    column = (7, 1)
    c = channels
    one = _chain(net, f"{block}.branch1x1", x, (192, 1))
    seven = _chain(net, f"{block}.branch7x7", x, (c, 1), (c, row), (192, column))
    double = _chain(net, f"{block}.branch7x7dbl", x, (c, 1), (c, column), (c, row), (c, column), (192, row))
    return net.concat(f"{block}.concat", [one, seven, double, _pool_branch(net, block, x, 192)])


def _block_d(net: Network, block: str, x: Tensor) -> Tensor:
    """Add the reduction from 17 x 17 to 8 x 8 pixels."""
    net.block = block
    three = _chain(net, f"{block}.branch3x3", x, (192, 1), (320, 3, 2))
    seven = _chain(net, f"{block}.branch7x7x3", x, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2))
    return net.concat(f"{block}.concat", [three, seven, net.pool(f"{block}.pool", x, "max", 3, stride=2)])


def _block_e(net: Network, block: str, x: Tensor) -> Tensor:
    """Add a block whose 3x3 branches fork into 1x3 and 3x1; the concatenation reads both (8 x 8 pixels)."""
    net.block = block
    one = _chain(net, f"{block}.branch1x1", x, (320, 1))
    three = net.conv(f"{block}.branch3x3_1", x, 384, 1, norm=True)
    three_fork = _fork(net, f"{block}.branch3x3_2", three)
    double = _chain(net, f"{block}.branch3x3dbl", x, (448, 1), (384, 3))
    double_fork = _fork(net, f"{block}.branch3x3dbl_3", double)
    return net.concat(f"{block}.concat", [one, *three_fork, *double_fork, _pool_branch(net, block, x, 192)])


def _fork(net: Network, name: str, x: Tensor) -> tuple[Tensor, ...]:
    """Add a 1x3 and a 3x1 convolution, and the concatenation that reads them, unless the block has one."""
    row = _chain(net, f"{name}a", x, (384, (1, 3)))
    column = _chain(net, f"{name}b", x, (384, (3, 1)))
    if net.by_units:
        return (row, column)
    return (net.concat(f"{name}.concat", [row, column]),)


def _pool_branch(net: Network, block: str, x: Tensor, channels: int) -> Tensor:
    return _chain(net, f"{block}.branch_pool", net.pool(f"{block}.pool", x, "avg", 3, padding=1), (channels, 1))


def _chain(net: Network, name: str, x: Tensor, *steps: tuple[int, Pair] | tuple[int, Pair, int]) -> Tensor:
    """Add a chain of convolutions: channels, window, and a stride where the size changes."""
    for i, (channels, window, *strides) in enumerate(steps, 1):
        if len(steps) == 1:
            label = name
        else:
            label = f"{name}_{i}"
        if isinstance(window, tuple):
            height, width = window
        else:
            height = width = window
        stride, padding = (strides[0], 0) if strides else (1, (height // 2, width // 2))
        x = net.conv(label, x, channels, window, stride=stride, padding=padding, norm=True)
    return x
