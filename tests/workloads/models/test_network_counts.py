"""Networks against counts worked by hand, and those that papers and torchvision state."""

from collections import Counter

import pytest
from small import macs, n_parameters

from simsched.base.errors import GraphError
from workloads import from_spec, load

# Of a network by units: kinds, edges, edges within blocks, and blocks; multiply-adds of its single operators.
COUNTS = {
    # Stem 5 conv + 2 pool; A 7 + 1 + 1, three times; B 4 + 1 + 1; C 10 + 1 + 1, four times; D 6 + 1 + 1; E 9 + 1 + 1,
    # twice; head 1 pool. Edges: stem 6; A 12 (4 into the block, 1 + 2 + 1 inside, 4 into the join), three times; B 8;
    # C 15, four times; D 10; E 16 (4 + 6 + 6), twice; 1 into the head: 153, less 4 * 9 + 3 * 2 + 1 between blocks.
    "inception_v3": (
        {"conv": 94, "pool": 14, "concat": 11},
        153,
        110,
        [7, 9, 9, 9, 6, 12, 12, 12, 12, 8, 11, 11, 1],
        5_711_168_096,
    ),
    # Stem 1 conv; 3 in each of 8 fire modules; 4 bypasses; head 1. Edges: a fire module with a convolution in the
    # bypass 1 + 2 + 2 + 1 + 2, without 7; stem 1, pools 2, head 2; between blocks 2 for each fire module, 1 for each
    # pool and the head. Stem 112^2 * 96 * 147; a fire module does in * s + 10 * s * e per pixel, a bypass in * 2e.
    "squeezenet": (
        {"conv": 30, "pool": 4, "concat": 8, "add": 8},
        65,
        65 - 19,
        [2, 6, 5, 6, 1, 5, 6, 5, 6, 1, 5, 2],
        177_020_928 + 345_382_400 + 544_942_080 + 119_754_752,
    ),
    # 111^2 * 64 * 27; 55^2 * (11,264 + 12,288); 27^2 * (45,056 + 49,152); 13^2 * (104,448 + 110,592 + 188,416 +
    # 196,608 + 512,000)
    "squeezenet1_1": (
        {"conv": 26, "pool": 4, "concat": 8},
        1 + 8 * 5 + 2 + 2,
        34,
        [2, 4, 4, 1, 4, 4, 1, 4, 4, 4, 4, 2],
        21_290_688 + 71_244_800 + 68_677_632 + 187_938_816,
    ),
    # Conv 3 + 9 * 6; pools 2 in the stem, 1 in each module, 2 between them, 1 in the head. Edges: stem 4; a module 4
    # into it, 3 inside, 4 into the join; 1 into each of 3 pools. Stem 112^2 * 64 * 147 + 56^2 * 64 * 64 + 56^2 * 64 *
    # 192 * 9; modules per pixel 494,080 on 28^2, 2,645,760 on 14^2, 2,321,408 on 7^2.
    "googlenet": (
        {"conv": 57, "pool": 14, "concat": 9},
        4 + 99 + 3,
        106 - 9 * 4 - 3,
        [5, 8, 8, 1, 8, 8, 8, 8, 8, 1, 8, 8, 1],
        477_675_520 + 387_358_720 + 518_568_960 + 113_748_992,
    ),
    # 16 bottlenecks of 3 conv and a sum, 4 of them with a conv beside; stem conv and pool; last pool. Edges: stem 1;
    # a bottleneck 3 + 2, with a conv beside 6; last pool 1; 33 between blocks. An activation for each normalisation
    # but the 16 + 4 before a sum, and one after each sum. Stem 112^2 * 64 * 147; per pixel of a stage's output
    # 212,992 on 56^2, 1,310,720 on 28^2, 7,471,104 on 14^2, 16,515,072 on 7^2.
    "resnet50": (
        {"conv": 53, "add": 16, "pool": 2},
        4 * 6 + 12 * 5 + 2,
        53,
        [2, 5, 4, 4, 5, 4, 4, 4, 5, 4, 4, 4, 4, 4, 5, 4, 4, 1],
        118_013_952 + 667_942_912 + 1_027_604_480 + 1_464_336_384 + 809_238_528,
    ),
    # Twice the channels in the middle, and 9 * w * w / 32 for the 3x3: 202,240, 1,384,448, 7,782,400 and 17,661,952.
    "resnext50": (
        {"conv": 53, "add": 16, "pool": 2},
        86,
        53,
        [2, 5, 4, 4, 5, 4, 4, 4, 5, 4, 4, 4, 4, 4, 5, 4, 4, 1],
        118_013_952 + 634_224_640 + 1_085_407_232 + 1_525_350_400 + 865_435_648,
    ),
    # A bottleneck: 32 * 2 + 1 convolutions, a join, a sum, 1 more with a convolution beside. Edges: 32 into it, 32
    # within the branches, 32 into the join, 1 after it, 2 into the sum, 1 more: 12 * 99 + 4 * 100 + 2.
    "resnext50,form=branches": (
        {"conv": 1045, "concat": 16, "add": 16, "pool": 2},
        1590,
        1590 - 33 * 16 - 1,
        [2, 68, 67, 67, 68, 67, 67, 67, 68, 67, 67, 67, 67, 67, 68, 67, 67, 1],
        4_228_431_872,
    ),
    # 58 layers: a sequential and a conv each; 58 - 4 joins in front of them and 4 after them; 3 transitions of a
    # sequential and a pool; stem conv and pool; head sequential and pool. Edges L * (L - 1) / 2 + 4 * L = 39 + 114 +
    # 372 + 184, others 1 + 3 * 2 + 2. Stem 112^2 * 64 * 147; a layer of c channels does 128 * c + 36,864 per pixel, c
    # grows by 32; transitions, before their pools, 56^2 * 256 * 128 + 28^2 * 512 * 256 + 14^2 * 1024 * 512.
    "densenet121": (
        {"conv": 59, "sequential": 62, "concat": 58, "pool": 5},
        39 + 114 + 372 + 184 + 9,
        652,
        [2, 18, 2, 36, 2, 72, 2, 48, 2],
        118_013_952 + 1_040_449_536 + 712_900_608 + 549_126_144 + 104_366_080 + 308_281_344,
    ),
    # Stem 1; stem cells 18 and 21; three cells behind a larger one 18; fifteen normal ones 16; reductions 19, twice;
    # activation, pool. IOS counts 34 identities: sums and concatenations that stand alone, and the ends of 22 cells.
    "nasnet_a_large": (
        {"sequential": 267, "pool": 71, "identity": 22, "add": 9, "concat": 3, "conv": 1, "relu": 1},
        576,
        524,
        [1, 18, 21, 18, *5 * [16], 19, 18, *5 * [16], 19, 18, *5 * [16], 1, 1],
        22_184_458_530,
    ),
    # Stem 1; stages 16 + 1, 32 + 1, thrice; head 3. Rings of n operators with 4 neighbours have 2 n edges, 224 in
    # all; 21 operators begin a stage, 12 end one; sum to ReLU, convolution, pool: 224 + 33 + 3.
    "randwire": (
        {"sequential": 112, "add": 4, "conv": 2, "relu": 1, "pool": 1},
        260,
        238,
        [1, 17, 33, 33, 33, 3],
        7_821_761_024,
    ),
    # A layer of 128 tokens: 4 products with 768 x 768 weights, 2 with 768 x 3072, 2 of 128 x 768 by 768 x 128; 12
    # layers, and the pooler's 768 x 768 for one token. Units: 6 + 2 products, a softmax, 2 norms.
    "bert_base": (
        {"embedding": 1, "linear": 73, "matmul": 24, "softmax": 12, "layer_norm": 24},
        181,
        132,
        [1, *12 * [11], 1],
        12 * (128 * (4 * 768**2 + 2 * 768 * 3072) + 2 * 128 * 128 * 768) + 768**2,
    ),
    # 39 + 39 look-ups; two joins and a sum for the weights and pairs; pairs; a join, 3 + 1 linear; the score.
    "deepfm": (
        {"embedding": 78, "concat": 3, "reduce_sum": 1, "sequential": 1, "linear": 4, "add": 1},
        127,
        7,
        [78, 4, 5, 1],
        390 * 400 + 2 * 400**2 + 400,
    ),
    # A layer: 3 products, 10 states, 10 outputs, a join: 24, ten times; and the classifier.
    "rnntc_sru": (
        {"linear": 31, "sequential": 200, "concat": 10},
        898,
        780,
        [*10 * [24], 1],
        10 * 3 * 10 * 1024**2 + 2 * 1024,
    ),
}
CONVOLUTIONAL = ("inception_v3", "squeezenet", "squeezenet1_1", "googlenet", "resnet50", "resnext50", "densenet121")


@pytest.mark.parametrize("network", COUNTS)
def test_counts_by_hand(network):
    """Vertices and edges of Inception v3 and SqueezeNet are those of LIOS (Table IV), blocks and multiply-adds of
    these, RandWire and NASNet those of IOS's released networks. Multiply-adds of single operators, classifier apart.
    """
    kinds, edges, within, blocks, multiply_adds = COUNTS[network]
    graph, single = from_spec(network), from_spec(network, granularity="operator")
    assert Counter(op.kind for op in graph.operators) == kinds
    assert (len(graph.edges), [len(block) for block in graph.blocks]) == (edges, blocks)
    assert sum(graph[e.src].block == graph[e.dst].block for e in graph.edges) == within
    assert macs(single, *(["conv"] if "conv" in kinds else ["linear", "matmul"])) == multiply_adds
    assert graph.weight_nbytes.sum() <= single.weight_nbytes.sum()


@pytest.mark.parametrize(
    ("network", "parameters", "giga_macs"),
    [
        ("inception_v3", 23_834_568, 5.713),
        ("googlenet", 6_624_904, 1.498),
        ("resnet50", 25_557_032, 4.089),
        ("resnext50", 25_028_904, 4.230),
        ("squeezenet1_1", 1_235_496, 0.349),
        ("densenet121", 7_978_856, 2.834),
        ("bert_base", 109_482_240, None),
        ("bert_large", 335_141_888, None),
        ("t5_small_encoder", 35_330_816, None),
        ("t5_base_encoder", 109_628_544, None),
        ("deepfm", 39 * 25_000 * 11 + 390 * 400 + 400 + 2 * (400 * 400 + 400) + 401, None),
        ("rnntc_sru", 10 * (3 * 1024**2 + 2 * 1024) + 2050, None),
    ],
)
def test_parameters(network, parameters, giga_macs):
    """As torchvision documents its networks (GoogLeNet and Inception v3 without their auxiliary heads), with
    multiply-adds, and as published of the others; of DeepFM 39 tables of 25,000 rows of 10 + 1 and four layers.
    """
    graph = load(network, granularity="operator")
    assert n_parameters(graph) == parameters
    assert giga_macs is None or macs(graph, "conv", "linear") == pytest.approx(giga_macs * 1e9, rel=1e-3)


@pytest.mark.parametrize("network", CONVOLUTIONAL)
@pytest.mark.parametrize("granularity", ["unit", "operator"])
def test_blocks_are_a_chain(network, granularity):
    """One way in and one way out: every edge into a block comes from the last operator of the block before it."""
    graph = load(network, granularity=granularity)
    assert (graph.order, len(graph.inputs), len(graph.outputs)) == (graph.names, 1, 1)
    block_of = {name: i for i, block in enumerate(graph.blocks) for name in block}
    for edge in graph.edges:
        if block_of[edge.src] != block_of[edge.dst]:
            assert edge.src == graph.blocks[block_of[edge.dst] - 1][-1]


@pytest.mark.parametrize("network", [*CONVOLUTIONAL, "tiny_transformer"])
def test_batch_scales_work_and_not_weights(network):
    """bytes(b) = b * (bytes(1) - weights) + weights, operator by operator; half precision halves them."""
    one, more = load(network, granularity="operator"), load(network, granularity="operator", batch=3)
    moves = one.nbytes > 0  # a change of shape moves nothing
    assert more.flops == pytest.approx(3 * one.flops)
    assert more.weight_nbytes == pytest.approx(one.weight_nbytes)
    assert more.nbytes[moves] == pytest.approx((3 * (one.nbytes - one.weight_nbytes) + one.weight_nbytes)[moves])
    assert more.edge_nbytes == pytest.approx(3 * one.edge_nbytes)
    assert load(network, granularity="operator", dtype="fp16").nbytes == pytest.approx(one.nbytes / 2)


@pytest.mark.parametrize(
    ("network", "smallest", "last"),
    [
        ("inception_v3", 75, "mixed_7c.concat"),  # 75 -> 37 -> 35 -> 17 -> 15 -> 7 in the stem, 3 in 6a, 1 in 7a
        ("squeezenet", 29, "fire9.concat"),  # 29 -> 15 -> 7 -> 3 -> 1, rounding down
        ("squeezenet1_1", 17, "fire9.concat"),  # 17 -> 8 -> 4 -> 2 -> 1, the pools rounding up
        ("googlenet", 15, "inception5b.concat"),  # 15 -> 8 -> 4 -> 2 -> 1 -> 1
        ("googlenet,form=paper", 31, "inception5b.concat"),
        ("resnet50", 1, "layer4.2.add"),
        ("densenet121", 29, "dense4.concat"),  # 29 -> 15 -> 8 in the stem, 4, 2, 1 after the transitions
        ("nasnet_mobile", 32, "cell11.join"),
    ],
)
def test_smallest_image(network, smallest, last):
    assert from_spec(network, image_size=smallest)[last].output_shape[2:] == (1, 1)
    name = network.split(",")[0]
    with pytest.raises(GraphError, match=f"{name}: image_size must be at least {smallest}, not {smallest - 1}"):
        from_spec(network, image_size=smallest - 1)


# What one network has and others have not -----------------------------------------------------------


# RandWire ----------------------------------------------------------------------------------------
