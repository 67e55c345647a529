"""Networks of a few operators, for tests, tutorials and worked examples."""

from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.models.bert import encoder_layer
from workloads.models.network import Network


@workload(Network)
def tiny_inception(net: Network, *, batch: int = 1, image_size: int = 32) -> OpGraph:
    """Return a convolution, one block of four branches that are joined, and a global pool.

    Parameters are the same as for `workloads.models.inception_v3.inception_v3`; images of at least 3 pixels.

    Examples
    --------
    >>> tiny_inception()
    OpGraph('tiny_inception', 10 operators, 12 edges)
    """
    net.block = "stem"
    x = net.conv("stem", net.images(batch, 3, image_size, least=3), 32, 3, stride=2, padding=1, norm=True)
    net.block = "block"
    one = net.conv("one", x, 16, 1, norm=True)
    three = net.conv("three_2", net.conv("three_1", x, 16, 1, norm=True), 24, 3, padding=1, norm=True)
    five = net.conv("five_2", net.conv("five_1", x, 8, 1, norm=True), 16, 5, padding=2, norm=True)
    pool = net.conv("pool_2", net.pool("pool_1", x, "max", 3, stride=1, padding=1), 8, 1, norm=True)
    x = net.concat("join", [one, three, five, pool])
    net.block = "head"
    net.global_pool("head", x)
    return net.graph()


@workload(Network)
def tiny_resnet(net: Network, *, batch: int = 1, image_size: int = 32) -> OpGraph:
    """Return a convolution and two residual blocks, the second with a convolution in its shortcut.

    Examples
    --------
    >>> tiny_resnet()
    OpGraph('tiny_resnet', 9 operators, 10 edges)
    """
    net.block = "stem"
    x = net.conv("stem", net.images(batch, 3, image_size, least=3), 16, 3, padding=1, norm=True)
    for i, (channels, stride) in enumerate(((16, 1), (32, 2))):
        name = net.block = f"block{i}"
        y = net.conv(f"{name}.1", x, channels, 3, stride=stride, padding=1, norm=True)
        y = net.conv(f"{name}.2", y, channels, 3, padding=1, activation=None, norm=True)
        if stride > 1:
            x = net.conv(f"{name}.shortcut", x, channels, 1, stride=stride, activation=None, norm=True)
        x = net.add(f"{name}.sum", [y, x], activation="relu")
    net.block = "head"
    net.global_pool("head", x)
    return net.graph()


@workload(Network)
def tiny_transformer(net: Network, *, batch: int = 1, sequence_length: int = 16) -> OpGraph:
    """Return one layer of a transformer encoder: 64 features, 4 heads.

    Examples
    --------
    >>> tiny_transformer()
    OpGraph('tiny_transformer', 11 operators, 11 edges)
    """
    encoder_layer(net, "layer0", net.sequences(batch, sequence_length, 64), heads=4)
    return net.graph()
