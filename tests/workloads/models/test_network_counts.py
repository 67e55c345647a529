"""Networks against counts worked by hand, and those that papers and torchvision state."""

import json
from collections import Counter
from pathlib import Path

import pytest
from small import works

from simsched.base.errors import FormatError, GraphError
from simsched.model.graph import Work
from workloads import from_spec, load
from workloads.models.googlenet import googlenet
from workloads.models.nasnet import nasnet_a_large, nasnet_mobile
from workloads.models.randwire import draw_wirings, randwire
from workloads.models.resnet import resnext50

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


def macs(graph, *kinds):
    return sum(op.flops for op in graph.operators if op.kind in kinds) / 2


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


def n_parameters(graph):
    """Normalisation holds 4 numbers per channel, of which mean and variance are statistics, not parameters."""
    return sum(op.weight_nbytes / 4 * (0.5 if op.kind == "batch_norm" else 1) for op in graph.operators)


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


def test_first_operators_of_inception():
    """(299 - 3) // 2 + 1 = 149 pixels a side, M = 149^2 = 22,201, 3 * 3 * 3 = 27 weights per output.
    FLOP 2 * 22,201 * 32 * 27 = 38,363,328. Bytes 4 * (3 * 299^2 + (27 + 1) * 32 + 32 * 22,201)
    = 1,072,812 + 3,584 + 2,841,728 = 3,918,124.
    Pool: 147 -> (147 - 3) // 2 + 1 = 73: 64 * 73^2 = 341,056 outputs of 9 operations; bytes 4 * (64 * 147^2 + 341,056)
    = 5,531,904 + 1,364,224 = 6,896,128. Join: 256 channels of 35^2 pixels, in and out: 2,508,800 bytes.
    """
    graph = load("inception_v3")
    conv, pool, concat = graph["stem.conv1"], graph["stem.pool1"], graph["mixed_5b.concat"]
    assert (conv.input_shapes, conv.output_shape) == (((1, 3, 299, 299),), (1, 32, 149, 149))
    assert (conv.flops, conv.weight_nbytes, conv.nbytes, conv.intensity) == (38_363_328, 3_584, 3_918_124, "compute")
    assert works(conv) == (
        Work(
            "convolution",
            "strided",
            38_363_328.0,
            1_072_812.0,
            3_584.0,
            2_841_728.0,
            rows=22_201,
            columns=32,
            inner=27,
            window=9,
            elements=3 * 299**2,
            tf32=True,
        ),
    )
    assert works(pool) == (
        Work("elementwise", "pool", 3_069_504.0, 5_531_904.0, 0.0, 1_364_224.0, rows=341_056, window=9),
    )
    window = {"kernel": [3, 3], "stride": [2, 2], "padding": [0, 0]}
    assert dict(conv.attributes) == window | {"groups": 1, "out_channels": 32, "activation": "relu"}
    assert (pool.flops, pool.weight_nbytes, pool.nbytes, pool.intensity) == (3_069_504, 0, 6_896_128, "memory")
    assert dict(pool.attributes) == window | {"pool": "max"}
    assert [shape[1] for shape in concat.input_shapes] == [64, 64, 96, 32]
    assert (concat.flops, concat.nbytes) == (0, 2_508_800)
    assert works(concat) == (Work("elementwise", "copy", 0.0, 1_254_400.0, 0.0, 1_254_400.0, rows=256 * 35**2),)
    assert all(e.nbytes == graph[e.src].output_nbytes for e in graph.edges)
    assert graph.width == 6  # in an E block 1x1, both ends of each of two forks, and the pool


def test_googlenet_of_the_paper():
    """5x5 windows add 16 weights per channel pair in the third branches: 28^2 * 16 * (16 * 32 + 32 * 96)
    + 14^2 * 16 * (16 * 48 + 2 * 24 * 64 + 32 * 64 + 32 * 128) + 7^2 * 16 * (32 * 128 + 48 * 128)
    = 44,957,696 + 31,309,824 + 8,028,160 = 84,295,680. The 3x3 pool leaves 7 x 7 pixels of 14 x 14, as the 2x2.
    """
    graph, paper = googlenet(), googlenet(form="paper")
    assert macs(paper, "conv") - macs(graph, "conv") == 84_295_680
    assert (paper["pool4"].flops, graph["pool4"].flops) == (832 * 49 * 9, 832 * 49 * 4)
    assert paper.edge_nbytes == pytest.approx(graph.edge_nbytes)


def test_branches_of_resnext():
    """A 3x3 of 32 groups is 32 convolutions of 1/32 of the channels: as many weights, 32 branches and one beside."""
    grouped, branches = resnext50(), resnext50(form="branches")
    assert (branches.weight_nbytes.sum(), branches.width) == (grouped.weight_nbytes.sum(), 33)
    assert grouped["layer1.0.conv2"].attributes["groups"] == 32
    assert branches["layer2.1.branch0.conv2"].flops == 2 * 784 * 9 * 8 * 8


def test_parallel_edges_of_nasnet_are_kept():
    """The end of the second stem cell reads its second sum twice, and that of the first cell of each size its
    left input, once joined and once added.
    """
    pairs = Counter((e.src, e.dst) for e in nasnet_a_large().edges)
    assert {pair for pair, n in pairs.items() if n > 1} == {
        ("stem1.sum1", "stem1.join"),
        *((f"cell{i}.left", f"cell{i}.join") for i in (0, 6, 12)),
    }


def test_nasnet_as_published():
    """4032 channels at the end, six tensors of 4 * 168 joined: the paper prints 23.8 G and 88.9 M parameters, and
    implementations have 88,753,150. Of the mobile one 5.3 M parameters and 564 M multiply-adds, classifier included.
    """
    large, mobile = nasnet_a_large(granularity="operator", variant="paper"), nasnet_mobile(granularity="operator")
    assert large["cell17.join"].output_shape == (1, 4032, 11, 11)
    assert macs(large, "conv") == pytest.approx(23.8e9, rel=2e-3)
    assert n_parameters(large) == 88_753_150
    assert mobile["cell11.join"].output_shape == (1, 1056, 7, 7)
    assert n_parameters(mobile) == pytest.approx(5.3e6, rel=0.01)
    assert macs(mobile, "conv", "linear") == pytest.approx(564e6, rel=1e-3)
    assert load("autograph_nasnet_a")["stem.conv"].input_shapes == ((1, 3, 224, 224),)


def test_separable_unit_of_nasnet():
    """Activation, depthwise 5 x 5 and 1 x 1 over 168 channels of 42 x 42: three works;
    168 * 25 and 168 * (168 + 1) weights, FLOP 42^2 * 168 * (1 + 2 * 25 + 2 * 168). Each work reads and writes.
    """
    op = nasnet_a_large()["cell1.0l.sep1"]
    parts = [(part["kind"], part["inputs"]) for part in op.attributes["parts"]]
    assert parts == [("relu", [-1]), ("conv", [0]), ("conv", [1])]
    assert [(work.rule, work.batch, work.columns, work.inner) for work in op.works] == [
        ("map", 1, 1, 1),
        ("strided", 168, 1, 25),
        ("plain", 1, 168, 168),
    ]
    assert op.weight_nbytes == 4 * (168 * 25 + 168 * 169)
    assert op.flops == 42 * 42 * 168 * (1 + 50 + 336)
    assert op.nbytes == 4 * (6 * 42 * 42 * 168) + op.weight_nbytes


def test_a_layer_of_a_transformer():
    """Query, key, value; scores; softmax; context; output; norm; inner; outer; norm. As single operators 4 + 2 linear,
    2 matmul; heads are split by a view and a transposition each, and joined by a transposition, a copy and a view.
    """
    graph, single = load("tiny_transformer"), load("tiny_transformer", granularity="operator")
    block, part = zip(*(op.name.split(".")[1:] for op in graph.operators), strict=True)
    assert block == 8 * ("attention",) + 3 * ("feed_forward",)
    assert " ".join(part) == "query key value scores softmax context output norm inner outer norm"
    reads = [e.src for e in graph.edges if e.dst == "layer0.attention.scores"]
    assert reads == ["layer0.attention.query", "layer0.attention.key"]
    assert graph["layer0.feed_forward.inner"].attributes["activation"] == "gelu"
    assert {op.kind for op in single.operators if not op.works} == {"view", "transpose", "dropout"}
    assert all(op.time == 0 for op in single.operators if not op.works)


def test_positions_of_t5_are_shared_by_all_layers():
    readers = [e.dst for e in load("t5_small_encoder").edges if e.src == "embeddings.positions.expand"]
    assert readers == [f"layer{i}.attention.scores" for i in range(6)]


def test_bert_of_autograph():
    """8 layers of attention: four products of 1024 rows with 1024 x 1024 weights, and for each of 16 * 16 heads two
    of 64 x 64 by 64 x 64.
    """
    assert macs(load("autograph_bert"), "linear", "matmul") == 8 * (4 * 1024**3 + 2 * 256 * 64**3)
    assert len(load("autograph_bert", layers=2).blocks) == 2


def test_a_look_up_of_deepfm_moves_the_rows_it_reads():
    """A row of 10 fp32 read and written, 2 * 40 bytes, and an index of 8 bytes; the table is kept, not moved."""
    op = load("deepfm", batch=100)["vector0"]
    assert (op.nbytes, op.weight_nbytes) == (8800, 4 * 250_000)
    parts = "reduce_sum square square reduce_sum sub reduce_sum"
    assert " ".join(part["kind"] for part in load("deepfm")["pairs"].attributes["parts"]) == parts


def test_states_of_sru_form_a_chain_and_outputs_do_not():
    """The forget gate is read twice by a cell that has a state before it: for the candidate's share and the state's,
    a token of 1024 fp32 each.
    """
    graph = load("rnntc_sru", layers=1, sequence_length=3)
    reads = {name: [e.src for e in graph.edges if e.dst == name] for name in graph.names}
    assert reads["layer0.step0.state"] == ["layer0.forget", "layer0.candidate"]
    assert reads["layer0.step1.state"] == ["layer0.forget", "layer0.candidate", "layer0.forget", "layer0.step0.state"]
    assert reads["layer0.step2.output"] == ["layer0.step2.state", "layer0.reset", "layer0.reset"]
    assert {e.nbytes for e in graph.edges if e.dst == "layer0.step1.state"} == {4096}
    assert graph.depth == 7  # gates, three states, output, join, classifier


# RandWire ----------------------------------------------------------------------------------------

# wirings that others released, as data; they are not part of this project
RELEASED = Path(__file__).resolve().parents[4] / "shared" / "data" / "randwire_graphs.json"


def ends(wiring):
    """Operators that read the input of the stage, and operators that nothing in it reads."""
    src, dst = {a for a, _ in wiring.edges}, {b for _, b in wiring.edges}
    return wiring.nodes - len(dst), wiring.nodes - len(src)


def test_ends_of_the_stages():
    """As many operators begin each stage as in the network that IOS measured, so the multiply-adds are the same."""
    assert [ends(wiring) for wiring in draw_wirings()] == [(6, 1), (4, 5), (5, 2), (6, 4)]


def test_seeds():
    assert randwire(seed=3) == randwire(seed=3) != randwire(seed=4)
    assert load("randwire", seed=4) == randwire(seed=4)
    assert len(randwire(seed=4)) == 120


def write(path, stages):
    path.write_text(json.dumps({"stages": stages}))
    return str(path)


LINE = {"nodes": 2, "edges": [[0, 1]]}


def test_wiring_from_a_file(tmp_path):
    """Four stages of a line of two: 1 + 4 * 3 + 3 operators, and one edge into each."""
    path = write(tmp_path / "w.json", [LINE] * 4)
    graph = randwire(graphs=path, image_size=64)
    assert (len(graph), len(graph.edges)) == (16, 15)
    assert load("randwire", graphs=path, image_size=64) == graph


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([LINE] * 3, "stages must be a list of 4"),
        ([LINE] * 3 + [{"nodes": 2, "edges": [[1, 0]]}], "must lead from a lower to a higher number below 2"),
        ([LINE] * 3 + [{"nodes": 2, "edges": [[0, 1], [0, 1]]}], "an edge stands twice"),
        ([LINE] * 3 + [{"nodes": 2, "edges": [[0, True]]}], r"edges\[0\]\[1\] must be a whole number"),
    ],
)
def test_bad_files(stages, message, tmp_path):
    with pytest.raises(FormatError, match=message):
        randwire(graphs=write(tmp_path / "w.json", stages))


@pytest.mark.skipif(not RELEASED.exists(), reason="the released wirings are not part of this project")
def test_released_wirings():
    """The network that IOS measured: 120 operators, 260 edges, 7.822 G multiply-adds, width of its stages 8, 8, 7."""
    graph = randwire(graphs=str(RELEASED))
    assert (len(graph), len(graph.edges), graph.width) == (120, 260, 8)
    assert macs(randwire(graphs=str(RELEASED), granularity="operator"), "conv") == pytest.approx(7.822e9, rel=1e-3)
