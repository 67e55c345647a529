"""DenseNet-121 (Huang et al., 2017), inference."""

from typing import Final

from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.network import Network, Tensor

SMALLEST_IMAGE: Final = 29

_LAYERS: Final = (6, 12, 24, 16)  # of each dense block
_GROWTH: Final = 32  # channels that a layer adds
_BOTTLENECK: Final = 4 * _GROWTH  # channels between the two convolutions of a layer


@workload(Network)
def densenet121(net: Network, *, batch: int = 1, image_size: int = 224) -> OpGraph:
    """Return the graph of DenseNet-121.

    Parameters
    ----------
    batch
        Images at a time, at least 1.
    image_size
        Height and width of the images in pixels, at least 29: of a smaller one the last pool
        between dense blocks leaves nothing.
    dtype, granularity
        See `workloads.models.network.Network`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The network of [1]_ (growth 32, with bottlenecks, compression by half). A layer reads all that earlier layers
    of its dense block wrote, through its own concatenation, as in torchvision. A dense
    block ends in the concatenation of everything in it.

    A layer normalises and activates before each of its two convolutions. The second pair is part of
    the first convolution; the first pair cannot be folded into its weights, for the activation is between.
    So units are one operator for each concatenation and pool; for normalisation, activation and
    first convolution of a layer together ("sequential", as in a transition); for its second
    convolution; and for the last normalisation and activation. The first layer of a dense block
    has nothing to concatenate. That makes 184 operators (59 convolutions, 62 sequential, 58
    concatenations, 5 pools) and 718 edges, in blocks of 2 (stem, transitions, head) and 3 for each
    layer (dense blocks). At 224 pixels the convolutions do 2.833 G multiply-adds per image. Single
    operators include the classifier, and concatenations of one tensor: 431 operators.

    References
    ----------
    .. [1] Huang, Liu, van der Maaten, Weinberger, "Densely connected convolutional networks", CVPR
       2017, doi:10.1109/CVPR.2017.243.

    Examples
    --------
    >>> [len(block) for block in densenet121().blocks]
    [2, 18, 2, 36, 2, 72, 2, 48, 2]
    """
    x = net.images(batch, 3, image_size, least=SMALLEST_IMAGE)
    net.block = "stem"
    x = net.conv("stem.conv", x, 64, 7, stride=2, padding=3, norm=True)
    x = net.pool("stem.pool", x, "max", 3, stride=2, padding=1)
    for i, layers in enumerate(_LAYERS, start=1):
        x = _dense_block(net, f"dense{i}", x, layers)
        if i < len(_LAYERS):
            x = _transition(net, f"transition{i}", x)
    net.block = "head"
    with net.unit("head.norm", "sequential"):
        x = net.activation("head.relu", net.batch_norm("head.norm", x))
    return net.with_classifier(x)


def _dense_block(net: Network, block: str, x: Tensor, layers: int) -> Tensor:
    net.block = block
    features = [x]
    for i in range(layers):
        features.append(_layer(net, f"{block}.{i}", features))
    return net.concat(f"{block}.concat", features)


def _layer(net: Network, name: str, features: list[Tensor]) -> Tensor:
    lone = net.by_units and len(features) == 1
    if lone:
        x = features[0]
    else:
        x = net.concat(f"{name}.concat", features)
    with net.unit(f"{name}.conv1", "sequential"):
        x = net.activation(f"{name}.relu", net.batch_norm(f"{name}.norm", x))
        x = net.conv(f"{name}.conv1", x, _BOTTLENECK, 1, norm=True)
    return net.conv(f"{name}.conv2", x, _GROWTH, 3, padding=1, activation=None, bias=False)


def _transition(net: Network, block: str, x: Tensor) -> Tensor:
    net.block = block
    with net.unit(f"{block}.conv", "sequential"):
        y = net.activation(f"{block}.relu", net.batch_norm(f"{block}.norm", x))
        y = net.conv(f"{block}.conv", y, x.shape[1] // 2, 1, activation=None, bias=False)
    return net.pool(f"{block}.pool", y, "avg", 2, stride=2)
