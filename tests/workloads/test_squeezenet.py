"""SqueezeNet with complex bypass and SqueezeNet 1.1 against counts and operators worked by hand."""

from collections import Counter

import pytest

from simsched.base.errors import GraphError
from simsched.model.graph import Kernel, OpGraph
from workloads.models.squeezenet import squeezenet, squeezenet1_1


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    return squeezenet()


def macs(graph):
    return sum(op.flops for op in graph.operators if op.kind == "conv") / 2


def test_operators(graph):
    """Stem 1 conv; 3 in each of 8 fire modules; 4 bypasses (fire 2, 4, 6 and 8, whose channels change); head 1:
    30. Pools in the stem, after fire 4, after fire 8 and in the head: 4. A join and a sum in each fire module.
    """
    assert Counter(op.kind for op in graph.operators) == {"conv": 30, "pool": 4, "concat": 8, "add": 8}
    assert [op.name for op in graph.operators if op.name.endswith("bypass")] == [
        f"fire{i}.bypass" for i in (2, 4, 6, 8)
    ]
    assert len(graph) == 50


def test_edges(graph):
    """Fire module with a convolution in the bypass 1 + 2 + 2 + 1 + 2 = 8, without 7; stem 1, pools 2, head 2:
    4 * 8 + 4 * 7 + 5 = 65. Into a block lead 2 for each fire module, 1 for each pool and the head: 65 - 19 = 46.
    """
    assert len(graph.edges) == 65
    assert sum(graph[e.src].block == graph[e.dst].block for e in graph.edges) == 46


def test_blocks(graph):
    assert [len(block) for block in graph.blocks] == [2, 6, 5, 6, 1, 5, 6, 5, 6, 1, 5, 2]


def test_width(graph):
    """Two expansions and the bypass are independent."""
    assert graph.width == 3


def test_multiply_adds(graph):
    """Stem 112^2 * 96 * 147 = 177,020,928. A fire module does in * s + 10 * s * e per pixel, a bypass in * 2e.
    55^2: (1,536 + 10,240 + 12,288) + (2,048 + 10,240) + (4,096 + 40,960 + 32,768) = 114,176 -> 345,382,400.
    27^2: (8,192 + 40,960) + (12,288 + 92,160 + 98,304) + (18,432 + 92,160) + (24,576 + 163,840 + 196,608)
    = 747,520 -> 544,942,080. 13^2: (32,768 + 163,840) + 512,000 = 708,608 -> 119,754,752.
    """
    assert macs(graph) == 177_020_928 + 345_382_400 + 544_942_080 + 119_754_752 == 1_187_100_160


def test_shapes_along_the_network(graph):
    sums = [op.output_shape[1:] for op in graph.operators if op.kind == "add"]
    assert sums == [
        (128, 55, 55), (128, 55, 55), (256, 55, 55), (256, 27, 27), (384, 27, 27), (384, 27, 27), (512, 27, 27),
        (512, 13, 13),
    ]  # fmt: skip
    assert graph["head.pool"].output_shape == (1, 1000, 1, 1)


def test_sum(graph):
    """128 * 55^2 = 387,200 elements: one addition each, 3 * 4 * 387,200 bytes, ceil(387,200 / 256) = 1,513 blocks."""
    total = graph["fire2.add"]
    assert [e.src for e in graph.edges if e.dst == "fire2.add"] == ["fire2.concat", "fire2.bypass"]
    assert (total.flops, total.nbytes) == (387_200, 4_646_400)
    assert total.kernels == (Kernel(1513, 256, 32, 0),)


def test_order_of_the_halves(graph):
    """The 3x3 half first in the network that IOS schedules, the 1x1 half in the release of the authors."""
    fire = graph.names.index("fire2.squeeze")
    assert graph.names[fire : fire + 6] == tuple(
        f"fire2.{part}" for part in ("squeeze", "expand3x3", "expand1x1", "concat", "bypass", "add")
    )
    later = squeezenet1_1()
    assert [e.src for e in later.edges if e.dst == "fire2.concat"] == ["fire2.expand1x1", "fire2.expand3x3"]


def test_version_1_1():
    """26 conv, 4 pools, 8 joins; edges 1 + 8 * 5 + 2 + 2. Multiply-adds: 111^2 * 64 * 27 = 21,290,688;
    55^2 * (11,264 + 12,288) = 71,244,800; 27^2 * (45,056 + 49,152) = 68,677,632;
    13^2 * (104,448 + 110,592 + 188,416 + 196,608 + 512,000) = 187,938,816.
    """
    graph = squeezenet1_1()
    assert Counter(op.kind for op in graph.operators) == {"conv": 26, "pool": 4, "concat": 8}
    assert (len(graph), len(graph.edges)) == (38, 45)
    assert [len(block) for block in graph.blocks] == [2, 4, 4, 1, 4, 4, 1, 4, 4, 4, 4, 2]
    assert macs(graph) == 21_290_688 + 71_244_800 + 68_677_632 + 187_938_816 == 349_151_936
    assert [graph[pool].output_shape[2] for pool in ("stem.pool", "pool3", "pool5")] == [55, 27, 13]


@pytest.mark.parametrize(
    ("network", "counts"),
    [
        (squeezenet, {"conv": 30, "relu": 30, "pool": 4, "concat": 8, "add": 8, "dropout": 1, "flatten": 1}),
        (squeezenet1_1, {"conv": 26, "relu": 26, "pool": 4, "concat": 8, "dropout": 1, "flatten": 1}),
    ],
)
def test_single_operators(network, counts):
    graph = network(granularity="operator")
    assert Counter(op.kind for op in graph.operators) == counts
    assert macs(graph) == macs(network())
    assert graph.names[-5:] == ("head.dropout", "head.conv", "head.conv.relu", "head.pool", "head.flatten")


@pytest.mark.parametrize(("network", "smallest"), [(squeezenet, 29), (squeezenet1_1, 17)])
def test_smallest_image(network, smallest):
    """29 -> 15 -> 7 -> 3 -> 1, rounding down; 17 -> 8 -> 4 -> 2 -> 1, the pools rounding up."""
    assert network(image_size=smallest)["fire9.concat"].output_shape == (1, 512, 1, 1)
    with pytest.raises(GraphError, match=f"image_size must be at least {smallest}, not {smallest - 1}"):
        network(image_size=smallest - 1)
