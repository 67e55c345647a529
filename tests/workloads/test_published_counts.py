"""Counts that papers state of convolutional networks, and torchvision of its own."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_counts import stream_counts

from simsched.base.errors import GraphError
from simsched.model.graph import Edge, Operator, OpGraph
from workloads.models.densenet import densenet121
from workloads.models.googlenet import googlenet
from workloads.models.inception_v3 import inception_v3
from workloads.models.resnet import resnet50, resnext50
from workloads.models.squeezenet import squeezenet, squeezenet1_1

NETWORKS = {
    network.__name__: network
    for network in (inception_v3, squeezenet, squeezenet1_1, googlenet, resnet50, resnext50, densenet121)
}
each_network = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


def macs(graph, *kinds):
    return sum(op.flops for op in graph.operators if op.kind in kinds) / 2


def n_parameters(graph):
    """Normalisation holds 4 numbers per channel, of which mean and variance are statistics, not parameters."""
    return sum(op.weight_nbytes / 4 * (0.5 if op.kind == "batch_norm" else 1) for op in graph.operators)


def traced(graph):
    """Return the graph with an operator for its input and one for its output, as torch.fx traces it."""
    reads = Counter(edge.dst for edge in graph.edges)
    readers = [op.name for op in graph.operators if reads[op.name] < len(op.input_shapes)]
    operators = [Operator("placeholder"), *graph.operators, Operator("output")]
    edges = [*(Edge("placeholder", name) for name in readers), *graph.edges, Edge(graph.names[-1], "output")]
    return OpGraph(operators, edges, graph.name)


@pytest.mark.parametrize(
    ("network", "operators", "edges", "within_blocks", "sizes", "giga_macs"),
    [
        (inception_v3, 119, 153, 110, [7, 9, 9, 9, 6, 12, 12, 12, 12, 8, 11, 11, 1], 5.711),
        (squeezenet, 50, 65, 46, [2, 6, 5, 6, 1, 5, 6, 5, 6, 1, 5, 2], 1.187),
    ],
)
def test_units_of_ios(network, operators, edges, within_blocks, sizes, giga_macs):
    """Vertices and edges as LIOS (Table IV) counts them; blocks and multiply-adds as IOS's released networks."""
    graph = network()
    assert (len(graph), len(graph.edges)) == (operators, edges)
    assert sum(graph[e.src].block == graph[e.dst].block for e in graph.edges) == within_blocks
    assert [len(block) for block in graph.blocks] == sizes
    assert macs(graph, "conv") == pytest.approx(giga_macs * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("network", "traced_size", "parameters", "giga_macs"),
    [
        (inception_v3, 316, 23_834_568, 5.713),
        (googlenet, 199, 6_624_904, 1.498),
        (resnet50, 177, 25_557_032, 4.089),
        (resnext50, 177, 25_028_904, 4.230),
        (squeezenet1_1, 68, 1_235_496, 0.349),
        (densenet121, 433, 7_978_856, 2.834),
    ],
)
def test_torchvision(network, traced_size, parameters, giga_macs):
    """Vertices of the torch.fx trace; parameters and multiply-adds, classifier included, as torchvision documents them
    (its GoogLeNet and Inception v3 without their auxiliary heads).
    """
    graph = network(granularity="operator")
    assert len(traced(graph)) == traced_size
    assert n_parameters(graph) == parameters
    assert macs(graph, "conv", "linear") == pytest.approx(giga_macs * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("network", "counts"),
    [
        (googlenet, (199, 28, 28, 4, 54, 54, 54)),
        (inception_v3, (316, 36, 36, 6, 70, 70, 70)),
        (resnet50, (177, 5, 5, 2, 8, 8, 8)),
        (squeezenet1_1, (68, 9, 9, 2, 16, 16, 16)),
        (densenet121, (433, 1, 1, 1, 0, 0, 0)),
    ],
)
def test_streams_of_opara_and_nimble(network, counts):
    """Vertices, streams of Opara, chains and streams of Nimble, waits of Opara and of Nimble, least waits, as both
    make them of torchvision's networks. GoogLeNet: each of 9 modules opens 3 chains, 1 + 27, and waits for 3 into
    and 3 out of them, 54; the chains of a module can go on in those of the one before, 1 + 3 streams.
    """
    assert stream_counts(traced(network(granularity="operator"))) == counts


@each_network
@pytest.mark.parametrize("granularity", ["unit", "operator"])
def test_blocks_are_a_chain(network, granularity):
    """One way in and one way out: every edge into a block comes from the last operator of the block before it."""
    graph = network(granularity=granularity)
    assert graph.order == graph.names
    block_of = {name: i for i, block in enumerate(graph.blocks) for name in block}
    for edge in graph.edges:
        if block_of[edge.src] != block_of[edge.dst]:
            assert edge.src == graph.blocks[block_of[edge.dst] - 1][-1]
    assert (len(graph.inputs), len(graph.outputs)) == (1, 1)


@each_network
def test_batch_scales_work_and_not_weights(network):
    """bytes(b) = b * (bytes(1) - weights) + weights, operator by operator; FLOP and edges grow by the batch."""
    one, more = network(granularity="operator"), network(granularity="operator", batch=3)
    moves = one.nbytes > 0  # a change of shape moves nothing
    assert more.flops == pytest.approx(3 * one.flops)
    assert more.weight_nbytes == pytest.approx(one.weight_nbytes)
    assert more.nbytes[moves] == pytest.approx((3 * (one.nbytes - one.weight_nbytes) + one.weight_nbytes)[moves])
    assert more.edge_nbytes == pytest.approx(3 * one.edge_nbytes)


@each_network
def test_json_round_trip(network, tmp_path):
    path = tmp_path / "network.json"
    network().save(str(path))
    assert OpGraph.load(str(path)) == network()


@each_network
@settings(max_examples=20)
@given(
    name=st.sampled_from(["batch", "image_size"]),
    value=st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.integers(max_value=0), st.integers(2**31)),
)
def test_bad_sizes(network, name, value):
    with pytest.raises(GraphError, match=f"^{network.__name__}: {name} must be ") as caught:
        network(**{name: value})
    assert "\n" not in str(caught.value)
