"""SqueezeNet (Iandola et al., 2016) with complex bypass, and SqueezeNet 1.1; inference."""

from typing import Final

from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.network import Network, Tensor

SMALLEST_IMAGE: Final = 29
SMALLEST_IMAGE_1_1: Final = 17

# output channels of the squeeze convolution and of each of the two expand convolutions, from fire2 on
_FIRES: Final = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))


@workload(Network)
def squeezenet(net: Network, *, batch: int = 1, image_size: int = 224) -> OpGraph:
    """Return the graph of SqueezeNet 1.0 with complex bypass, as IOS schedules it.

    Parameters
    ----------
    batch
        Images at a time, at least 1.
    image_size
        Height and width of the images in pixels, at least 29: of a smaller one the last pool
        between fire modules leaves nothing.
    dtype, granularity
        See `workloads.models.network.Network`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The network of [1]_, section 6: a fire module adds its input to its output, through a 1x1
    convolution where the channels differ. Padding as in IOS [2]_: 3 at the 7x7 convolution, so that
    112 pixels a side are left of 224, then 55, 27 and 13; pools round down. As there, the
    convolution of a bypass has an activation, and the 3x3 half of a fire module comes first.

    Units are one operator for each convolution, pool, concatenation and sum: 50 operators (30
    convolutions, 4 pools, 8 concatenations, 8 sums), 65 edges and, at 224 pixels, 1.187 G
    multiply-adds per image, in blocks of 2, 6, 5, 6, 1, 5, 6, 5, 6, 1, 5 and 2 operators. Single
    operators add the 30 activations, the dropout before the last convolution and a flatten.

    References
    ----------
    .. [1] Iandola, Han, Moskewicz, Ashraf, Dally, Keutzer, "SqueezeNet: AlexNet-level accuracy with
       50x fewer parameters and <0.5MB model size", 2016, arXiv:1602.07360.
    .. [2] Ding, Zhu, Jia, Pekhimenko, Han, "IOS: Inter-operator scheduler for CNN acceleration",
       MLSys 2021, arXiv:2011.01302.

    Examples
    --------
    >>> squeezenet(batch=8)
    OpGraph('squeezenet', 50 operators, 65 edges)
    """
    x = net.images(batch, 3, image_size, least=SMALLEST_IMAGE)
    net.block = "stem"
    x = net.conv("stem.conv", x, 96, 7, stride=2, padding=3)
    return _squeezenet(net, x, pools=(4, 8), windows=(3, 1), bypassed=True, ceil_mode=False)


@workload(Network)
def squeezenet1_1(net: Network, *, batch: int = 1, image_size: int = 224) -> OpGraph:
    """Return the graph of SqueezeNet 1.1, without bypass.

    Parameters
    ----------
    batch, dtype, granularity
        As for `squeezenet`; "operator" has the operators that torch.fx sees of torchvision's network.
    image_size
        Height and width of the images in pixels, at least 17: of a smaller one the last pool
        between fire modules leaves nothing.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The later release of the authors of [1]_, who published it with their code only: a 3x3
    convolution of 64 channels in front, and pools after fire modules 3 and 5. Of 224 pixels 111,
    55, 27 and 13 are left; pools round up.

    Units: 38 operators (26 convolutions, 4 pools, 8 concatenations), 45 edges; at 224
    pixels 0.349 G multiply-adds per image. Single operators: 66.

    References
    ----------
    .. [1] Iandola, Han, Moskewicz, Ashraf, Dally, Keutzer, "SqueezeNet: AlexNet-level accuracy with
       50x fewer parameters and <0.5MB model size", 2016, arXiv:1602.07360.

    Examples
    --------
    >>> squeezenet1_1()["fire9.concat"].output_shape
    (1, 512, 13, 13)
    """
    x = net.images(batch, 3, image_size, least=SMALLEST_IMAGE_1_1)
    net.block = "stem"
    x = net.conv("stem.conv", x, 64, 3, stride=2)
    return _squeezenet(net, x, pools=(3, 5), windows=(1, 3), bypassed=False, ceil_mode=True)


def _squeezenet(
    net: Network, x: Tensor, *, pools: tuple[int, int], windows: tuple[int, int], bypassed: bool, ceil_mode: bool
) -> OpGraph:
    """Add the fire modules, with pools after some and perhaps bypasses, the classes' convolution and their average."""
    x = net.pool("stem.pool", x, "max", 3, stride=2, ceil_mode=ceil_mode)
    for i, (squeeze, expand) in enumerate(_FIRES, start=2):
        net.block = block = f"fire{i}"
        y = _fire(net, block, x, squeeze, expand, windows)
        if bypassed:
            if x.shape == y.shape:
                bypass = x
            else:
                bypass = net.conv(f"{block}.bypass", x, 2 * expand, 1)
            y = net.add(f"{block}.add", [y, bypass])
        x = y
        if i in pools:
            net.block = f"pool{i}"
            x = net.pool(f"pool{i}", x, "max", 3, stride=2, ceil_mode=ceil_mode)
    net.block = "head"
    x = net.view("head.dropout", x, x.shape, kind="dropout")
    x = net.global_pool("head.pool", net.conv("head.conv", x, 1000, 1))
    net.view("head.flatten", x, x.shape[:2], kind="flatten")
    return net.graph()


def _fire(net: Network, block: str, x: Tensor, squeeze: int, expand: int, windows: tuple[int, int]) -> Tensor:
    x = net.conv(f"{block}.squeeze", x, squeeze, 1)
    halves = [net.conv(f"{block}.expand{w}x{w}", x, expand, w, padding=w // 2) for w in windows]
    return net.concat(f"{block}.concat", halves)
