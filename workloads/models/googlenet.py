"""GoogLeNet (Szegedy et al., 2015), inference, without auxiliary heads."""

from typing import Annotated, Final

from simsched.base.codec import Among
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.network import Network, Tensor

SMALLEST_IMAGES: Final = {"torchvision": 15, "paper": 31}  # of each form

# output channels: 1x1; 1x1 and 3x3; 1x1 and 5x5; 1x1 after the pool
_INCEPTIONS: Final = {
    "inception3a": (64, 96, 128, 16, 32, 32),
    "inception3b": (128, 128, 192, 32, 96, 64),
    "inception4a": (192, 96, 208, 16, 48, 64),
    "inception4b": (160, 112, 224, 24, 64, 64),
    "inception4c": (128, 128, 256, 24, 64, 64),
    "inception4d": (112, 144, 288, 32, 64, 64),
    "inception4e": (256, 160, 320, 32, 128, 128),
    "inception5a": (256, 160, 320, 32, 128, 128),
    "inception5b": (384, 192, 384, 48, 128, 128),
}


@workload(Network)
def googlenet(
    net: Network, *, batch: int = 1, image_size: int = 224, form: Annotated[str, Among(SMALLEST_IMAGES)] = "torchvision"
) -> OpGraph:
    """Return the graph of GoogLeNet.

    Parameters
    ----------
    batch
        Images at a time, at least 1.
    image_size
        Height and width of the images in pixels, at least 15 (31 in the form of the paper): of a
        smaller one a pool leaves nothing.
    dtype, granularity
        See `workloads.models.network.Network`.
    form
        "torchvision" has 3x3 windows in the third branches and 2x2 in the last max-pool; "paper" has
        5x5 and 3x3.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The network of [1]_. In both forms convolutions are normalised, as torchvision does it, instead of the
    local response normalisations of the paper.

    Units are one operator for each convolution, pool and concatenation, up to the last
    pool: 80 operators (57 convolutions, 14 pools, 9 concatenations), 106 edges, in blocks of 5 (stem), 8 (each
    inception module) and 1 (each pool between them, and the last). At 224 pixels 1.497 G multiply-adds per image,
    in the form of the paper 1.582 G. Single operators include the classifier: 197 operators.

    References
    ----------
    .. [1] Szegedy, Liu, Jia, Sermanet, Reed, Anguelov, Erhan, Vanhoucke, Rabinovich, "Going deeper
       with convolutions", CVPR 2015, doi:10.1109/CVPR.2015.7298594.

    Examples
    --------
    >>> googlenet(batch=4)["inception5b.concat"].output_shape
    (4, 1024, 7, 7)
    """
    as_printed = form == "paper"
    x = _stem(net, net.images(batch, 3, image_size, least=SMALLEST_IMAGES[form]))
    for block, channels in _INCEPTIONS.items():
        x = _inception(net, block, x, channels, window=5 if as_printed else 3)
        if block == "inception3b":
            x = _pool_between(net, "pool3", x, 3)
        if block == "inception4e":
            x = _pool_between(net, "pool4", x, 3 if as_printed else 2)
    net.block = "head"
    x = net.global_pool("head.pool", x)
    if not net.by_units:
        x = net.view("head.flatten", x, x.shape[:2], kind="flatten")
        x = net.view("head.dropout", x, x.shape, kind="dropout")
        net.linear("head.linear", x, 1000)
    return net.graph()


def _stem(net: Network, x: Tensor) -> Tensor:
    net.block = "stem"
    x = net.conv("stem.conv1", x, 64, 7, stride=2, padding=3, norm=True)
    x = net.pool("stem.pool1", x, "max", 3, stride=2, ceil_mode=True)
    x = net.conv("stem.conv2", x, 64, 1, norm=True)
    x = net.conv("stem.conv3", x, 192, 3, padding=1, norm=True)
    return net.pool("stem.pool2", x, "max", 3, stride=2, ceil_mode=True)


def _inception(net: Network, block: str, x: Tensor, channels: tuple[int, ...], *, window: int) -> Tensor:
    net.block = block
    c1, c2a, c2b, c3a, c3b, c4 = channels
    one = net.conv(f"{block}.branch1", x, c1, 1, norm=True)
    two = net.conv(f"{block}.branch2_1", x, c2a, 1, norm=True)
    two = net.conv(f"{block}.branch2_2", two, c2b, 3, padding=1, norm=True)
    three = net.conv(f"{block}.branch3_1", x, c3a, 1, norm=True)
    three = net.conv(f"{block}.branch3_2", three, c3b, window, padding=window // 2, norm=True)
    pool = net.pool(f"{block}.pool", x, "max", 3, padding=1, ceil_mode=True)
    four = net.conv(f"{block}.branch4", pool, c4, 1, norm=True)
    return net.concat(f"{block}.concat", [one, two, three, four])


def _pool_between(net: Network, name: str, x: Tensor, window: int) -> Tensor:
    net.block = name
    return net.pool(name, x, "max", window, stride=2, ceil_mode=True)
