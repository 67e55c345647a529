"""NASNet-A against the counts in the literature and cells worked by hand."""

from collections import Counter

import pytest

from simsched.base.errors import GraphError
from workloads.models.nasnet import autograph_nasnet_a, nasnet_a_large, nasnet_mobile


def macs(graph):
    """Multiply-adds of the convolutions; normalisation, pools and classifier are not counted."""
    return sum(op.flops for op in graph.operators if op.kind == "conv") / 2


@pytest.fixture(scope="module")
def graph():
    return nasnet_a_large()


def test_operators_and_edges(graph):
    """Stem 1; stem cells 18 and 21; three cells behind a larger one 18; fifteen normal ones 16; reductions 19, twice;
    activation, pool: 1 + 39 + 54 + 240 + 38 + 2 = 374.
    """
    assert (len(graph), len(graph.edges)) == (374, 576)
    sizes = [1, 18, 21, 18, *5 * [16], 19, 18, *5 * [16], 19, 18, *5 * [16], 1, 1]
    assert [len(block) for block in graph.blocks] == sizes
    assert sum(sizes) == 374


def test_kinds(graph):
    """Sums and concatenations that stand alone are what IOS calls identity, as are the ends of the 22 cells."""
    kinds = Counter(op.kind for op in graph.operators)
    assert kinds == {"sequential": 267, "pool": 71, "identity": 22, "add": 9, "concat": 3, "conv": 1, "relu": 1}
    assert kinds["identity"] + kinds["add"] + kinds["concat"] == 34


def test_parallel_edges_are_kept(graph):
    """The end of the second stem cell reads its second sum twice, and that of the first cell of each size its
    left input, once joined and once added. Four pairs are doubled: 576 - 4 = 572.
    """
    pairs = Counter((e.src, e.dst) for e in graph.edges)
    assert len(pairs) == 572
    assert {pair for pair, n in pairs.items() if n > 1} == {
        ("stem1.sum1", "stem1.join"),
        *((f"cell{i}.left", f"cell{i}.join") for i in (0, 6, 12)),
    }
    within = {pair for pair in pairs if graph[pair[0]].block == graph[pair[1]].block}
    assert len(within) == 520


def test_multiply_adds():
    single = nasnet_a_large(granularity="operator")
    assert sum(op.kind == "conv" for op in single.operators) == 488
    assert macs(single) == pytest.approx(22.18e9, rel=1e-3)


def test_the_published_network():
    """4032 channels at the end: six tensors of 4 * 168 joined. The paper prints 23.8 G and 88.9 M parameters, and
    implementations have 88,753,150; a normalisation holds four values per channel here, two of them parameters.
    """
    single = nasnet_a_large(granularity="operator", variant="paper")
    assert single["cell17.join"].output_shape == (1, 4032, 11, 11)
    assert macs(single) == pytest.approx(23.8e9, rel=2e-3)
    parameters = sum(op.weight_nbytes / (8 if op.kind == "batch_norm" else 4) for op in single.operators)
    assert parameters == 88_753_150


def test_the_mobile_network():
    """4 @ 1056: six tensors of 4 * 44 joined make 1056 channels; the paper prints 5.3 M parameters and 564 M
    multiply-adds, classifier included: 1056 * 1000.
    """
    single = nasnet_mobile(granularity="operator")
    assert single["cell11.join"].output_shape == (1, 1056, 7, 7)
    assert sum(op.weight_nbytes for op in single.operators) / 4 == pytest.approx(5.3e6, rel=0.01)
    assert macs(single) + 1056 * 1000 == pytest.approx(564e6, rel=1e-3)


def test_autograph_measured_224_pixels():
    graph = autograph_nasnet_a()
    assert graph["stem.conv"].output_shape == (1, 96, 111, 111)
    assert graph["stem.conv"].input_shapes == ((1, 3, 224, 224),)


def test_a_separable_unit(graph):
    """Activation, depthwise 5 x 5 and 1 x 1 over 168 channels of 42 x 42: three kernels whose shares add up to 1;
    168 * 25 and 168 * (168 + 1) weights, FLOP 42^2 * 168 * (1 + 2 * 25 + 2 * 168).
    """
    op = graph["cell1.0l.sep1"]
    assert op.output_shape == (1, 168, 42, 42)
    assert [part["kind"] for part in op.attributes["parts"]] == ["relu", "conv", "conv"]
    assert [part["inputs"] for part in op.attributes["parts"]] == [[-1], [0], [1]]
    assert len(op.kernels) == 3
    assert sum(kernel.share for kernel in op.kernels) == pytest.approx(1)
    assert [kernel.efficiency for kernel in op.kernels] == 3 * [pytest.approx(387 / (337 + 50 * 64))]  # 1/64 where deep
    assert op.weight_nbytes == 4 * (168 * 25 + 168 * 169)
    assert op.flops == 42 * 42 * 168 * (1 + 50 + 336)
    # each kernel reads and writes: 2 + 2 + 2 tensors, and the weights
    assert op.nbytes == 4 * (6 * 42 * 42 * 168) + op.weight_nbytes


def test_the_end_of_a_normal_cell(graph):
    """Five sums of two tensors of 168 channels, joined: ten edges, 840 channels."""
    op = graph["cell1.join"]
    assert [part["kind"] for part in op.attributes["parts"]] == [*5 * ["add"], "concat"]
    assert op.attributes["parts"][-1]["inputs"] == [0, 1, 2, 3, 4]
    assert sum(e.dst == "cell1.join" for e in graph.edges) == 10
    assert op.output_shape == (1, 840, 42, 42)


def test_bad_parameters():
    with pytest.raises(GraphError, match="variant must be 'ios' or 'paper', not 'torch'"):
        nasnet_a_large(variant="torch")
    with pytest.raises(GraphError, match="image_size must be at least 32, not 31"):
        nasnet_mobile(image_size=31)
    assert nasnet_mobile(image_size=32).outputs == ("head.pool",)
