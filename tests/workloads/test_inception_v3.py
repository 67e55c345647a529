"""Inception v3 against the counts in the literature and operators worked by hand."""

from collections import Counter

import pytest

from simsched.base.errors import GraphError
from simsched.model.graph import Kernel, OpGraph
from workloads.models.inception_v3 import inception_v3
from workloads.models.network import Network


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    return inception_v3()


def macs(graph):
    return sum(op.flops for op in graph.operators if op.kind == "conv") / 2


def test_operators(graph):
    """Stem 5 conv + 2 pool; A 7 + 1 + 1, three times; B 4 + 1 + 1; C 10 + 1 + 1, four times; D 6 + 1 + 1;
    E 9 + 1 + 1, twice; head 1 pool. Conv 5 + 21 + 4 + 40 + 6 + 18 = 94, pool 2 + 3 + 1 + 4 + 1 + 2 + 1 = 14.
    """
    assert Counter(op.kind for op in graph.operators) == {"conv": 94, "pool": 14, "concat": 11}
    assert len(graph) == 119


def test_edges(graph):
    """Stem 6; A 12 (4 into the block, 1 + 2 + 1 inside, 4 into the join), three times; B 8; C 15, four times;
    D 10; E 16 (4 + 6 + 6), twice; 1 into the head: 6 + 36 + 8 + 60 + 10 + 32 + 1 = 153.
    Inside a block: 153 less the 4 * 9 + 3 * 2 + 1 = 43 between blocks = 110.
    """
    assert len(graph.edges) == 153
    assert sum(graph[e.src].block == graph[e.dst].block for e in graph.edges) == 110
    assert len({(e.src, e.dst) for e in graph.edges}) == 153


def test_blocks(graph):
    assert [len(block) for block in graph.blocks] == [7, 9, 9, 9, 6, 12, 12, 12, 12, 8, 11, 11, 1]
    labels = list(dict.fromkeys(op.block for op in graph.operators))
    assert labels[0] == "stem"
    assert labels[-1] == "head"
    joins = [op for op in graph.operators if op.kind == "concat"]
    assert [op.block for op in joins] == labels[1:-1]


def test_every_block_has_one_way_in_and_one_way_out(graph):
    """All edges into a block come from the last operator of the block before it."""
    last = {block[-1] for block in graph.blocks}
    assert {e.src for e in graph.edges if graph[e.src].block != graph[e.dst].block} == last - {"head.pool"}


def test_order_is_as_given(graph):
    assert graph.order == graph.names
    assert graph.inputs == ("stem.conv1",)
    assert graph.outputs == ("head.pool",)


def test_multiply_adds(graph):
    assert macs(graph) == pytest.approx(5.711e9, rel=1e-3)


def test_parameters(graph):
    """The published network has 23.8 M weights, of which 2.05 M sit in the classifier: 21.8 M are left."""
    assert graph.weight_nbytes.sum() / 4 == pytest.approx(21.8e6, rel=5e-3)


def test_width(graph):
    """In an E block 1x1, both ends of each of the two forks and the pool are independent: 1 + 2 + 2 + 1 = 6."""
    assert graph.width == 6


def test_shapes_along_the_network(graph):
    """Channels of the joins: A 64 + 64 + 96 + 32 (then 64) = 256, 288, 288; B 384 + 96 + 288 = 768; C 4 * 192 = 768;
    D 320 + 192 + 768 = 1280; E 320 + 2 * 768 + 192 = 2048.
    """
    joins = {op.block: op.output_shape[1:] for op in graph.operators if op.kind == "concat"}
    assert list(joins.values()) == [
        (256, 35, 35), (288, 35, 35), (288, 35, 35), (768, 17, 17), (768, 17, 17), (768, 17, 17), (768, 17, 17),
        (768, 17, 17), (1280, 8, 8), (2048, 8, 8), (2048, 8, 8),
    ]  # fmt: skip
    assert graph["head.pool"].output_shape == (1, 2048, 1, 1)


def test_first_convolution(graph):
    """(299 - 3) // 2 + 1 = 149 pixels a side, M = 149^2 = 22,201, 3 * 3 * 3 = 27 weights per output.
    FLOP 2 * 22,201 * 32 * 27 = 38,363,328. Bytes 4 * (3 * 299^2 + (27 + 1) * 32 + 32 * 22,201)
    = 1,072,812 + 3,584 + 2,841,728 = 3,918,124. Grid ceil(22,201 / 64) * ceil(32 / 64) = 347 * 1.
    """
    conv = graph["stem.conv1"]
    assert conv.input_shapes == ((1, 3, 299, 299),)
    assert conv.output_shape == (1, 32, 149, 149)
    assert conv.flops == 38_363_328
    assert conv.weight_nbytes == 3_584
    assert conv.nbytes == 3_918_124
    assert conv.intensity == "compute"
    assert conv.kernels == (Kernel(347, 256, 64, 8704),)
    assert dict(conv.attributes) == {
        "kernel": [3, 3], "stride": [2, 2], "padding": [0, 0], "groups": 1, "out_channels": 32, "activation": "relu",
    }  # fmt: skip


def test_split_convolution(graph):
    """1x7 on 17 x 17 keeps the size: M = 289, 128 * 7 weights per output. 7x1 to 192: ceil(289 / 64) * 3 = 15 tiles."""
    conv = graph["mixed_6b.branch7x7_2"]
    assert (conv.attributes["kernel"], conv.attributes["padding"]) == ([1, 7], [0, 3])
    assert graph["mixed_6b.branch7x7_3"].kernels[0].blocks == 15
    assert conv.flops == 2 * 289 * 128 * 128 * 7


def test_first_pool(graph):
    """147 -> (147 - 3) // 2 + 1 = 73: 64 * 73^2 = 341,056 outputs of 9 operations = 3,069,504.
    Bytes 4 * (64 * 147^2 + 341,056) = 4 * 1,724,032 = 6,896,128. Grid ceil(341,056 / 256) = 1,333 (1,332.25).
    """
    pool = graph["stem.pool1"]
    assert pool.output_shape == (1, 64, 73, 73)
    assert pool.flops == 3_069_504
    assert pool.nbytes == 6_896_128
    assert pool.weight_nbytes == 0
    assert pool.intensity == "memory"
    assert pool.kernels == (Kernel(1333, 256, 32, 0),)
    assert dict(pool.attributes) == {"pool": "max", "kernel": [3, 3], "stride": [2, 2], "padding": [0, 0]}


def test_concatenation(graph):
    """64 + 64 + 96 + 32 = 256 channels of 35^2 = 1,225 pixels, in and out: 2 * 4 * 256 * 1,225 = 2,508,800 bytes."""
    concat = graph["mixed_5b.concat"]
    assert [shape[1] for shape in concat.input_shapes] == [64, 64, 96, 32]
    assert (concat.flops, concat.nbytes) == (0, 2_508_800)
    assert concat.kernels == (Kernel(1225, 256, 32, 0),)


def test_global_pool(graph):
    """Each of 2,048 outputs averages 8 * 8 values; ceil(2,048 / 256) = 8 blocks."""
    pool = graph["head.pool"]
    assert pool.attributes["pool"] == "global_avg"
    assert pool.flops == 2048 * 64
    assert pool.kernels[0].blocks == 8


def test_an_edge_weighs_as_much_as_the_tensor(graph):
    assert all(e.nbytes == graph[e.src].output_nbytes for e in graph.edges)


@pytest.mark.parametrize("batch", [2, 16])
def test_batch_scales_work_and_not_weights(graph, batch):
    """FLOP and activations grow by the batch: bytes(b) = b * (bytes(1) - weights) + weights, operator by operator."""
    more = inception_v3(batch=batch)
    assert more.flops == pytest.approx(batch * graph.flops)
    assert more.weight_nbytes == pytest.approx(graph.weight_nbytes)
    assert more.nbytes == pytest.approx(batch * (graph.nbytes - graph.weight_nbytes) + graph.weight_nbytes)
    assert more["stem.conv1"].kernels[0].blocks == -(-batch * 22_201 // 64)


def test_half_precision_halves_the_bytes(graph):
    half = inception_v3(dtype="fp16")
    assert half.nbytes == pytest.approx(graph.nbytes / 2)
    assert half.edge_nbytes == pytest.approx(graph.edge_nbytes / 2)
    assert {op.dtype for op in half.operators} == {"fp16"}


def test_smallest_image():
    """75 -> 37 -> 35 -> 35 -> 17 -> 17 -> 15 -> 7 in the stem, 7 -> 3 in 6a, 3 -> 1 in 7a."""
    assert inception_v3(image_size=75)["mixed_7c.concat"].output_shape == (1, 2048, 1, 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"batch": 1.5}, "batch must be a whole number, not 1.5"),
        ({"batch": True}, "batch must be a whole number, not True"),
        ({"image_size": 74}, "image_size must be at least 75, not 74"),
        ({"dtype": "fp23"}, "unknown dtype 'fp23'; known are: fp64, fp32"),
        ({"image_size": 10**200}, "image_size must be at most 2147483647, not 1000"),
        ({"batch": 10**9}, r"an input of shape \(1000000000, 3, 299, 299\) is more than any device holds"),
        (
            {"batch": 3 * 10**6},
            "stem.pool1: .* thread blocks are more than a grid can have; use a smaller batch or image",
        ),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(GraphError, match=message) as caught:
        inception_v3(**parameters)
    assert "\n" not in str(caught.value)


def test_json_round_trip(graph, tmp_path):
    path = tmp_path / "inception.json"
    graph.save(str(path))
    assert OpGraph.load(str(path)) == graph


def test_grouped_convolution():
    """64 channels to 64 in 64 groups: 9 weights per output, (9 + 1) * 64 weights, a tile column for each group."""
    net = Network("depthwise")
    net.conv("dw", net.input(1, 64, 8, 8), 64, 3, padding=1, groups=64)
    conv = net.graph()["dw"]
    assert conv.flops == 2 * 64 * 64 * 9
    assert conv.weight_nbytes == 4 * 640
    assert conv.kernels[0].blocks == 64


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda net, x: net.conv("c", x, 8, 9), "c: a window of 9 x 9 does not fit into 8 x 8"),
        (lambda net, x: net.conv("c", x, 8, 3, stride=0), "c: stride must be at least 1"),
        (lambda net, x: net.conv("c", x, 8, 1, groups=2), "c: groups = 2 does not divide 3 channels"),
        (lambda net, x: net.pool("p", x, "min", 2), "p: pool must be 'max' or 'avg'"),
        (lambda net, x: net.concat("i", [x, net.pool("p", x, "max", 2)]), "i: cannot concatenate"),
        (lambda net, x: net.concat("i", []), "i: there is nothing to concatenate"),
    ],
)
def test_builder_refuses(build, message):
    net = Network("bad")
    with pytest.raises(GraphError, match=message):
        build(net, net.input(1, 3, 8, 8))


def test_single_operators():
    """94 convolutions, each with a normalisation and an activation; 14 pools; 11 + 4 concatenations (each fork of
    the last two blocks ends in one of its own); dropout, flatten, linear: 282 + 14 + 15 + 3 = 314.
    """
    graph = inception_v3(granularity="operator")
    assert Counter(op.kind for op in graph.operators) == {
        "conv": 94, "batch_norm": 94, "relu": 94, "pool": 14, "concat": 15, "dropout": 1, "flatten": 1, "linear": 1,
    }  # fmt: skip
    assert macs(graph) == macs(inception_v3())
    assert graph["head.linear"].flops == 2 * 2048 * 1000


def test_launch_shapes_on_a_device():
    """On an H200 (132 SMs) a 1x1 convolution of 35 x 35 pixels to 64 channels: tiles of 128 x 128 make 10 x 1
    blocks, 128 x 64 10, 64 x 64 20, 64 x 32 40, none of them 132; so 32 x 32: 39 x 2 = 78 blocks.
    """
    conv = inception_v3(device="h200")["mixed_5b.branch1x1"]
    assert conv.kernels == (Kernel(78, 128, 86, 64 * 68),)
    with pytest.raises(LookupError, match="unknown device 'h300'; known are: k80"):
        inception_v3(device="h300")
