"""DenseNet-121 against counts and operators worked by hand."""

from collections import Counter

import pytest

from simsched.base.errors import GraphError
from simsched.model.graph import OpGraph
from workloads.models.densenet import densenet121


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    return densenet121()


@pytest.fixture(scope="module")
def single() -> OpGraph:
    return densenet121(granularity="operator")


def test_operators(graph):
    """58 layers: a sequential and a conv each; 58 - 4 joins in front of them and 4 after them; 3 transitions of a
    sequential and a pool; stem conv and pool; head sequential and pool.
    """
    assert Counter(op.kind for op in graph.operators) == {"conv": 59, "sequential": 62, "concat": 58, "pool": 5}
    assert [len(block) for block in graph.blocks] == [2, 18, 2, 36, 2, 72, 2, 48, 2]


def test_edges(graph):
    """Layer i > 0 reads i + 1 tensors into its join and has 2 edges more; layer 0 has 2; the last join reads L + 1:
    L * (L - 1) / 2 + 4 * L = 39 + 114 + 372 + 184 for 6, 12, 24 and 16 layers. Others 1 + 3 * 2 + 2. Sum 718.
    """
    assert len(graph.edges) == 39 + 114 + 372 + 184 + 9 == 718


def test_single_operators(single):
    """7 in a layer, 1 join after each dense block, stem 4, transitions 4 each, head norm, relu, pool, flatten, linear:
    406 + 4 + 4 + 12 + 5 = 431. Edges L * (L - 1) / 2 + 8 * L + 1 = 64 + 163 + 469 + 249; others 3 + 12 + 5. Sum 965.
    """
    assert Counter(op.kind for op in single.operators) == {
        "conv": 120, "batch_norm": 121, "relu": 121, "concat": 62, "pool": 5, "flatten": 1, "linear": 1,
    }  # fmt: skip
    assert len(single.edges) == 64 + 163 + 469 + 249 + 20 == 965


def test_multiply_adds(single):
    """Stem 112^2 * 64 * 147 = 118,013,952. A layer of c channels does 128 * c + 36,864 per pixel; c grows by 32.
    56^2 * (128 * 864 + 6 * 36,864) = 1,040,449,536; 28^2 * (128 * 3,648 + 12 * 36,864) = 712,900,608;
    14^2 * (128 * 14,976 + 24 * 36,864) = 549,126,144; 7^2 * (128 * 12,032 + 16 * 36,864) = 104,366,080.
    Transitions, before their pools: 56^2 * 256 * 128 + 28^2 * 512 * 256 + 14^2 * 1024 * 512 = 308,281,344.
    """
    layers = 1_040_449_536 + 712_900_608 + 549_126_144 + 104_366_080
    macs = sum(op.flops for op in single.operators if op.kind == "conv") / 2
    assert macs == 118_013_952 + layers + 308_281_344 == 2_833_137_664


def test_shapes_along_the_network(graph):
    """64 + 6 * 32 = 256, halved; 128 + 12 * 32 = 512; 256 + 24 * 32 = 1,024; 512 + 16 * 32 = 1,024."""
    ends = [graph[f"dense{i}.concat"].output_shape[1:] for i in (1, 2, 3, 4)]
    assert ends == [(256, 56, 56), (512, 28, 28), (1024, 14, 14), (1024, 7, 7)]


def test_first_convolution_of_a_layer(graph):
    """96 channels of 56^2 = 3,136 pixels are 301,056 elements: 2 FLOP each to normalise, 1 to activate; then
    2 * 3,136 * 128 * 96 for the convolution. Weights: 4 * 96 to normalise, (96 + 1) * 128. Bytes: twice
    2 * 301,056 elements, 301,056 + 128 * 3,136 for the convolution, and the weights.
    """
    unit = graph["dense1.1.conv1"]
    assert [part["kind"] for part in unit.attributes["parts"]] == ["batch_norm", "relu", "conv"]
    assert unit.input_shapes == ((1, 96, 56, 56),)
    assert unit.output_shape == (1, 128, 56, 56)
    assert unit.flops == 3 * 301_056 + 2 * 3136 * 128 * 96
    assert unit.weight_nbytes == 4 * (4 * 96 + 97 * 128)
    assert unit.nbytes == 4 * (5 * 301_056 + 128 * 3136 + 4 * 96 + 97 * 128)
    assert [kernel.blocks for kernel in unit.kernels] == [1176, 1176, 98]
    assert unit.intensity == "compute"


def test_second_convolution_of_a_layer(graph):
    """128 to 32 channels, 3x3; what follows normalises for itself: no bias, no activation."""
    conv = graph["dense1.1.conv2"]
    assert conv.weight_nbytes == 4 * 32 * 128 * 9
    assert "activation" not in conv.attributes


def test_what_a_layer_reads(graph, single):
    """Everything before it in its dense block, in order; one tensor alone is joined in single operators only."""

    def read(g, name):
        return [e.src for e in g.edges if e.dst == name]

    assert read(graph, "dense2.2.concat") == ["transition1.pool", "dense2.0.conv2", "dense2.1.conv2"]
    assert read(graph, "dense2.0.conv1") == ["transition1.pool"]
    assert read(single, "dense2.0.concat") == ["transition1.pool"]


def test_pools(graph):
    """The stem takes the largest of 3 x 3, the transitions average 2 x 2."""
    pools = [(op.attributes["pool"], op.attributes["kernel"]) for op in graph.operators if op.kind == "pool"]
    assert pools == [("max", [3, 3]), *3 * [("avg", [2, 2])], ("global_avg", [7, 7])]


def test_smallest_image():
    """29 -> 15 -> 8 in the stem, 4, 2, 1 after the transitions."""
    assert densenet121(image_size=29)["dense4.concat"].output_shape == (1, 1024, 1, 1)
    with pytest.raises(GraphError, match="image_size must be at least 29, not 28"):
        densenet121(image_size=28)
