"""ResNet-50 (He et al., 2016) and ResNeXt-50 32x4d (Xie et al., 2017), inference."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

from simsched.base.codec import Among
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.network import Network, Tensor

CARDINALITY: Final = 32
FORMS: Final = ("grouped", "branches")

_STAGES: Final = ((64, 3), (128, 4), (256, 6), (512, 3))  # (channels of a bottleneck, bottlenecks)
_EXPANSION: Final = 4  # a bottleneck's output has so many times its channels
_WIDENING: Final = 2  # of ResNeXt: 32 branches of 4 channels where ResNet has 64

# adds the 1x1 and the 3x3 of a bottleneck: (network, block, input, channels, stride)
_Middle = Callable[[Network, str, Tensor, int, int], Tensor]


@workload(Network)
def resnet50(net: Network, *, batch: int = 1, image_size: int = 224) -> OpGraph:
    """Return the graph of ResNet-50.

    Parameters
    ----------
    batch
        Images at a time, at least 1.
    image_size
        Height and width of the images in pixels, at least 1.
    dtype, granularity
        See `workloads.models.network.Network`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The network of [1]_, with one change that torchvision made usual: where a stage halves the image, the 3x3
    convolution of the first bottleneck has the stride, not the 1x1 before it. So at 224 pixels the
    convolutions do 4.087 G multiply-adds per image, and 3.8 G in the paper.

    Units are one operator for each convolution and pool and each sum with its activation, up to the last
    pool: 71 operators (53 convolutions, 16 sums, 2 pools), 86 edges, a block for the stem (2 operators), for each
    bottleneck (5 for the first of a stage, else 4) and for the last pool. Single operators include the
    classifier: 175 operators.

    References
    ----------
    .. [1] He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016,
       doi:10.1109/CVPR.2016.90.

    Examples
    --------
    >>> resnet50()["layer4.2.add"].output_shape
    (1, 2048, 7, 7)
    """
    return _resnet(net, batch, image_size, _convolutions)


@workload(Network)
def resnext50(
    net: Network, *, batch: int = 1, image_size: int = 224, form: Annotated[str, Among(FORMS)] = "grouped"
) -> OpGraph:
    """Return the graph of ResNeXt-50 32x4d.

    Parameters
    ----------
    batch, image_size, dtype, granularity
        As for `resnet50`.
    form
        "grouped" has one 3x3 convolution of 32 groups in a bottleneck; "branches" has 32 branches of a
        1x1 and a 3x3 convolution each, whose outputs are concatenated.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The network of [1]_; the forms are (c) and (b) of its Figure 3. They compute the same, with as many weights
    and the same 4.228 G multiply-adds per image in convolutions, at 224 pixels; only
    the number of operators differs. Strides as in `resnet50`.

    Units: grouped 71 operators and 86 edges, as `resnet50`; in branches 1079 operators (1045
    convolutions, 16 concatenations, 16 sums, 2 pools) and 1590 edges, 68 operators in the first bottleneck of a
    stage and 67 in the others. Single operators: 175 and 3167.

    References
    ----------
    .. [1] Xie, Girshick, Dollar, Tu, He, "Aggregated residual transformations for deep neural
       networks", CVPR 2017, doi:10.1109/CVPR.2017.634.

    Examples
    --------
    >>> resnext50(form="branches").width
    33
    """
    grouped = partial(_convolutions, widening=_WIDENING, groups=CARDINALITY)
    return _resnet(net, batch, image_size, grouped if form == "grouped" else _branches)


def _resnet(net: Network, batch: int, image_size: int, middle: _Middle) -> OpGraph:
    x = net.images(batch, 3, image_size, least=1)
    net.block = "stem"
    x = net.conv("stem.conv", x, 64, 7, stride=2, padding=3, norm=True)
    x = net.pool("stem.pool", x, "max", 3, stride=2, padding=1)
    for stage, (channels, bottlenecks) in enumerate(_STAGES, start=1):
        for i in range(bottlenecks):
            x = _bottleneck(net, f"layer{stage}.{i}", x, channels, 2 if stage > 1 and i == 0 else 1, middle)
    net.block = "head"
    return net.with_classifier(x)


def _bottleneck(net: Network, block: str, x: Tensor, channels: int, stride: int, middle: _Middle) -> Tensor:
    net.block = block
    out_channels = channels * _EXPANSION
    y = middle(net, block, x, channels, stride)
    y = net.conv(f"{block}.conv3", y, out_channels, 1, activation=None, norm=True)
    if x.shape != y.shape:
        x = net.conv(f"{block}.downsample", x, out_channels, 1, stride=stride, activation=None, norm=True)
    return net.add(f"{block}.add", [y, x], activation="relu")


def _convolutions(
    net: Network, block: str, x: Tensor, channels: int, stride: int, *, widening: int = 1, groups: int = 1
) -> Tensor:
    y = net.conv(f"{block}.conv1", x, widening * channels, 1, norm=True)
    return net.conv(f"{block}.conv2", y, widening * channels, 3, stride=stride, padding=1, groups=groups, norm=True)


def _branches(net: Network, block: str, x: Tensor, channels: int, stride: int) -> Tensor:
    width = _WIDENING * channels // CARDINALITY
    ends = []
    for i in range(CARDINALITY):
        y = net.conv(f"{block}.branch{i}.conv1", x, width, 1, norm=True)
        ends.append(net.conv(f"{block}.branch{i}.conv2", y, width, 3, stride=stride, padding=1, norm=True))
    return net.concat(f"{block}.concat", ends)
