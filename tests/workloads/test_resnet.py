"""ResNet-50 and ResNeXt-50 against counts and operators worked by hand."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsched.base.errors import GraphError
from simsched.model.graph import Kernel, OpGraph
from workloads.models.resnet import resnet50, resnext50

BLOCKS = [2, 5, 4, 4, 5, 4, 4, 4, 5, 4, 4, 4, 4, 4, 5, 4, 4, 1]


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    return resnet50()


@pytest.fixture(scope="module")
def branches() -> OpGraph:
    return resnext50(form="branches")


def macs(graph):
    return sum(op.flops for op in graph.operators if op.kind == "conv") / 2


def test_operators(graph):
    """16 bottlenecks of 3 conv and a sum, 4 of them with a conv beside; stem conv and pool; last pool."""
    assert Counter(op.kind for op in graph.operators) == {"conv": 53, "add": 16, "pool": 2}
    assert [len(block) for block in graph.blocks] == BLOCKS


def test_edges(graph):
    """Stem 1; a bottleneck 3 + 2, with a conv beside 6: 4 * 6 + 12 * 5; last pool 1: 86. Into blocks lead 2 for each
    bottleneck and 1 for the last pool: 86 - 33 = 53 inside.
    """
    assert len(graph.edges) == 86
    assert sum(graph[e.src].block == graph[e.dst].block for e in graph.edges) == 53


def test_multiply_adds(graph):
    """Stem 112^2 * 64 * 147 = 118,013,952. Per pixel of a stage's output, first bottleneck and others:
    56^2: (4,096 + 36,864 + 16,384 + 16,384) + 2 * (16,384 + 36,864 + 16,384) = 212,992 -> 667,942,912.
    28^2: (4 * 32,768 + 147,456 + 65,536 + 131,072) + 3 * 278,528 = 1,310,720 -> 1,027,604,480.
    14^2: (4 * 131,072 + 589,824 + 262,144 + 524,288) + 5 * 1,114,112 = 7,471,104 -> 1,464,336,384.
    7^2: (4 * 524,288 + 2,359,296 + 1,048,576 + 2,097,152) + 2 * 4,456,448 = 16,515,072 -> 809,238,528.
    """
    assert macs(graph) == 118_013_952 + 667_942_912 + 1_027_604_480 + 1_464_336_384 + 809_238_528 == 4_087_136_256


def test_first_bottleneck_of_a_stage(graph):
    """The 3x3 has the stride. The sum reads the convolutions before the shortcut: 2 * 4 * 512 * 28^2 + as much out."""
    assert graph["layer2.0.conv1"].output_shape == (1, 128, 56, 56)
    assert graph["layer2.0.conv2"].output_shape == (1, 128, 28, 28)
    assert [e.src for e in graph.edges if e.dst == "layer2.0.add"] == ["layer2.0.conv3", "layer2.0.downsample"]
    total = graph["layer2.0.add"]
    assert dict(total.attributes) == {"activation": "relu"}
    assert total.nbytes == 3 * 4 * 512 * 784
    assert total.kernels == (Kernel(512 * 784 // 256, 256, 32, 0),)


def test_activations(graph):
    """No activation between the last convolution of a bottleneck and the sum, nor beside it."""
    silent = {
        op.name.split(".")[-1] for op in graph.operators if op.kind == "conv" and "activation" not in op.attributes
    }
    assert silent == {"conv3", "downsample"}


def test_grouped_convolutions(graph):
    """Twice the channels in the middle, and 9 * w * w / 32 for the 3x3. Per pixel of a stage's output:
    56^2: (8,192 + 4,608 + 32,768 + 16,384) + 2 * (2 * 32,768 + 4,608) = 202,240 -> 634,224,640.
    28^2: (262,144 + 18,432 + 131,072 + 131,072) + 3 * 280,576 = 1,384,448 -> 1,085,407,232.
    14^2: (1,048,576 + 73,728 + 524,288 + 524,288) + 5 * 1,122,304 = 7,782,400 -> 1,525,350,400.
    7^2: (4,194,304 + 294,912 + 2,097,152 + 2,097,152) + 2 * 4,489,216 = 17,661,952 -> 865,435,648.
    """
    grouped = resnext50()
    assert macs(grouped) == 118_013_952 + 634_224_640 + 1_085_407_232 + 1_525_350_400 + 865_435_648 == 4_228_431_872
    assert grouped.names == graph.names
    assert [(e.src, e.dst) for e in grouped.edges] == [(e.src, e.dst) for e in graph.edges]
    assert [grouped[f"layer{i}.0.conv2"].output_shape[1] for i in (1, 2, 3, 4)] == [128, 256, 512, 1024]
    assert grouped["layer1.0.conv2"].attributes["groups"] == 32


def test_branches(branches):
    """A bottleneck: 32 * 2 + 1 convolutions, a join, a sum: 67, or 68 with a convolution beside. Edges: 32 into it,
    32 within the branches, 32 into the join, 1 after it, 2 into the sum: 99, or 100 with a convolution beside.
    12 * 99 + 4 * 100 + 2 = 1,590.
    """
    assert Counter(op.kind for op in branches.operators) == {"conv": 1045, "concat": 16, "add": 16, "pool": 2}
    assert [len(block) for block in branches.blocks] == [n + 63 if n > 2 else n for n in BLOCKS]
    assert len(branches.edges) == 1590


def test_branch(branches):
    """128 channels in 32 branches are 4 in each: 256 -> 4 -> 4, and 28^2 * 9 * 8 * 8 multiply-adds a stage later."""
    assert branches["layer1.1.branch31.conv1"].input_shapes == ((1, 256, 56, 56),)
    assert branches["layer1.1.branch31.conv2"].output_shape == (1, 4, 56, 56)
    assert branches["layer2.1.branch0.conv2"].flops == 2 * 784 * 9 * 8 * 8
    assert branches["layer1.1.concat"].output_shape == (1, 128, 56, 56)


def test_width_of_branches(branches):
    """32 branches and the convolution beside them."""
    assert branches.width == 33


def test_both_forms_do_the_same_work(branches):
    """A 3x3 of 32 groups is 32 convolutions of 1/32 of the channels, and a 1x1 is 32 of 1/32 of its outputs."""
    assert macs(branches) == macs(resnext50())
    assert branches.weight_nbytes.sum() == resnext50().weight_nbytes.sum()


@pytest.mark.parametrize(
    ("network", "convs", "joins"),
    [(resnet50, 53, 0), (resnext50, 53, 0), (lambda **given: resnext50(form="branches", **given), 1045, 16)],
    ids=["resnet50", "resnext50", "branches"],
)
def test_single_operators(network, convs, joins):
    """An activation for each normalisation but the 16 + 4 before a sum, and one after each sum: 20 less, 16 more."""
    graph = network(granularity="operator")
    found = Counter(op.kind for op in graph.operators)
    assert +found == +Counter(
        conv=convs, batch_norm=convs, relu=convs - 4, add=16, concat=joins, pool=2, flatten=1, linear=1
    )
    assert macs(graph) == macs(network())
    assert graph["head.linear"].flops == 2 * 2048 * 1000


@settings(max_examples=20)
@given(image_size=st.integers(1, 2000))
def test_image_is_halved_five_times(image_size):
    """Each time rounding up, so one pixel stays one pixel; the halves' ceilings are the ceiling of 1/32."""
    assert resnet50(image_size=image_size)["layer4.2.add"].output_shape == (1, 2048, *2 * (-(-image_size // 32),))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: resnet50(image_size=0), "resnet50: image_size must be at least 1, not 0"),
        (lambda: resnet50(batch=0), "resnet50: batch must be at least 1, not 0"),
        (lambda: resnext50(form="split"), "resnext50: form must be 'grouped' or 'branches', not 'split'"),
        (lambda: resnext50(granularity="layer"), "resnext50: granularity must be 'unit' or 'operator', not 'layer'"),
    ],
)
def test_bad_parameters(build, message):
    with pytest.raises(GraphError, match=message):
        build()
