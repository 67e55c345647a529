"""GoogLeNet against counts and operators worked by hand."""

from collections import Counter

import pytest

from simsched.base.errors import GraphError
from simsched.model.graph import Kernel, OpGraph
from workloads.models.googlenet import googlenet


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    return googlenet()


def macs(graph):
    return sum(op.flops for op in graph.operators if op.kind == "conv") / 2


def test_operators(graph):
    """Conv 3 + 9 * 6 = 57; pools 2 in the stem, 1 in each module, 2 between them, 1 in the head: 14; 9 joins."""
    assert Counter(op.kind for op in graph.operators) == {"conv": 57, "pool": 14, "concat": 9}
    assert [len(block) for block in graph.blocks] == [5, 8, 8, 1, 8, 8, 8, 8, 8, 1, 8, 8, 1]


def test_edges(graph):
    """Stem 4; a module 4 into it, 3 inside, 4 into the join: 11; 1 into each of 3 pools: 4 + 99 + 3 = 106."""
    assert len(graph.edges) == 106
    assert sum(graph[e.src].block == graph[e.dst].block for e in graph.edges) == 106 - 9 * 4 - 3


def test_shapes_along_the_network(graph):
    """224 -> 112 -> 56 -> 28 in the stem, halved by the pools between the modules."""
    joins = [op.output_shape[1:] for op in graph.operators if op.kind == "concat"]
    assert joins == [
        (256, 28, 28), (480, 28, 28), (512, 14, 14), (512, 14, 14), (512, 14, 14), (528, 14, 14), (832, 14, 14),
        (832, 7, 7), (1024, 7, 7),
    ]  # fmt: skip


def test_multiply_adds(graph):
    """Stem 112^2 * 64 * 147 + 56^2 * 64 * 64 + 56^2 * 64 * 192 * 9 = 477,675,520. Modules, per pixel:
    28^2: 3a 192 * 208 + 9 * (96 * 128 + 16 * 32) = 155,136, 3b 338,944; sum 494,080 -> 387,358,720.
    14^2: 363,264 + 423,936 + 484,864 + 571,904 + 801,792 = 2,645,760 -> 518,568,960.
    7^2: 976,896 + 1,344,512 = 2,321,408 -> 113,748,992.
    """
    assert macs(graph) == 477_675_520 + 387_358_720 + 518_568_960 + 113_748_992 == 1_497_352_192


def test_form_of_the_paper(graph):
    """5x5 windows add 16 weights per channel pair in the third branches: 28^2 * 16 * (16 * 32 + 32 * 96)
    + 14^2 * 16 * (16 * 48 + 2 * 24 * 64 + 32 * 64 + 32 * 128) + 7^2 * 16 * (32 * 128 + 48 * 128)
    = 44,957,696 + 31,309,824 + 8,028,160 = 84,295,680. The 3x3 pool leaves 7 x 7 pixels of 14 x 14, as the 2x2.
    """
    paper = googlenet(form="paper")
    assert macs(paper) - macs(graph) == 84_295_680
    assert paper["inception3a.branch3_2"].attributes["kernel"] == [5, 5]
    assert (paper["pool4"].flops, graph["pool4"].flops) == (832 * 49 * 9, 832 * 49 * 4)
    assert paper.edge_nbytes == pytest.approx(graph.edge_nbytes)


def test_convolution_of_a_module(graph):
    """96 channels to 128 on 28 x 28: FLOP 2 * 784 * 128 * 96 * 9, ceil(784 / 64) * 2 = 26 tiles."""
    conv = graph["inception3a.branch2_2"]
    assert conv.flops == 2 * 784 * 128 * 96 * 9
    assert conv.weight_nbytes == 4 * 128 * (96 * 9 + 1)
    assert conv.kernels == (Kernel(26, 256, 64, 8704),)


def test_join_of_a_module(graph):
    """Branches in the order of the paper: 1x1, 3x3, 5x5, pool."""
    branches = ["inception4b.branch1", "inception4b.branch2_2", "inception4b.branch3_2", "inception4b.branch4"]
    assert [e.src for e in graph.edges if e.dst == "inception4b.concat"] == branches
    assert [shape[1] for shape in graph["inception4b.concat"].input_shapes] == [160, 224, 64, 64]


def test_all_pools_but_the_last_take_the_largest(graph):
    """Windows of the modules keep the size, those between them halve it, all rounding up."""
    *pools, last = [op.attributes for op in graph.operators if op.kind == "pool"]
    assert {(pool["pool"], pool["ceil_mode"]) for pool in pools} == {("max", True)}
    assert Counter(pool["stride"][0] for pool in pools) == {1: 9, 2: 4}
    assert last["pool"] == "global_avg"


def test_single_operators():
    """57 * 3 + 14 pools + 9 joins + flatten, dropout, linear: 197, in which the flatten stands before the dropout."""
    graph = googlenet(granularity="operator")
    assert Counter(op.kind for op in graph.operators) == {
        "conv": 57, "batch_norm": 57, "relu": 57, "pool": 14, "concat": 9, "flatten": 1, "dropout": 1, "linear": 1,
    }  # fmt: skip
    assert graph.names[-4:] == ("head.pool", "head.flatten", "head.dropout", "head.linear")
    assert macs(graph) == macs(googlenet())


def test_smallest_image():
    """15 -> 8 -> 4 -> 2 -> 1 -> 1 with pools that round up; the 3x3 pool of the paper needs 31."""
    assert googlenet(image_size=15)["inception5b.concat"].output_shape == (1, 1024, 1, 1)
    with pytest.raises(GraphError, match="image_size must be at least 15, not 14"):
        googlenet(image_size=14)
    assert googlenet(image_size=31, form="paper")["inception5b.concat"].output_shape == (1, 1024, 1, 1)
    with pytest.raises(GraphError, match="googlenet: image_size must be at least 31, not 30"):
        googlenet(image_size=30, form="paper")


def test_bad_form():
    with pytest.raises(GraphError, match="googlenet: form must be 'torchvision' or 'paper', not 'caffe'"):
        googlenet(form="caffe")
