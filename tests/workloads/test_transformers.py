"""Transformer encoders against published sizes and a layer worked by hand."""

from collections import Counter

import pytest

from simsched.base.errors import GraphError
from workloads.models.bert import autograph_bert, bert_base, bert_large
from workloads.models.t5 import t5_base_encoder, t5_small_encoder
from workloads.models.tiny import tiny_transformer

MULTIPLY = ("linear", "matmul")


def parameters(graph):
    return graph.weight_nbytes.sum() / 4


def macs(graph):
    return sum(op.flops for op in graph.operators if op.kind in MULTIPLY) / 2


@pytest.mark.parametrize("granularity", ["unit", "operator"])
@pytest.mark.parametrize(
    ("network", "count"),
    [
        (bert_base, 109_482_240),
        (bert_large, 335_141_888),
        (t5_small_encoder, 35_330_816),
        (t5_base_encoder, 109_628_544),
    ],
)
def test_parameters(network, count, granularity):
    assert parameters(network(granularity=granularity)) == count


def test_multiply_adds_of_bert():
    """A layer of 128 tokens: 4 products with 768 x 768 weights, 2 with 768 x 3072, 2 of 128 x 768 by 768 x 128;
    12 layers, and the pooler's 768 x 768 for one token.
    """
    layer = 128 * (4 * 768**2 + 2 * 768 * 3072) + 2 * 128 * 128 * 768
    assert macs(bert_base()) == 12 * layer + 768**2 == 11_174_215_680


def test_a_layer_by_units():
    """Query, key, value; scores; softmax; context; output; norm; inner; outer; norm."""
    graph = tiny_transformer()
    assert [op.name.removeprefix("layer0.") for op in graph.operators] == [
        "attention.query", "attention.key", "attention.value", "attention.scores", "attention.softmax",
        "attention.context", "attention.output", "attention.norm", "feed_forward.inner", "feed_forward.outer",
        "feed_forward.norm",
    ]  # fmt: skip
    assert [(e.src, e.dst) for e in graph.edges if e.dst.endswith(".scores")] == [
        ("layer0.attention.query", "layer0.attention.scores"),
        ("layer0.attention.key", "layer0.attention.scores"),
    ]
    assert graph["layer0.attention.scores"].input_shapes == ((1, 4, 16, 16), (1, 4, 16, 16))
    assert graph["layer0.feed_forward.inner"].attributes["activation"] == "gelu"


def test_a_layer_by_single_operators():
    """4 + 2 linear, 2 matmul; heads are split by a view and a transposition each (3 * 2), and joined by a
    transposition, a copy and a view; scale, mask, softmax, GELU; 3 dropouts, 2 sums, 2 norms.
    """
    graph = tiny_transformer(granularity="operator")
    assert Counter(op.kind for op in graph.operators) == {
        "linear": 6, "matmul": 2, "view": 4, "transpose": 4, "copy": 1, "mul": 1, "softmax": 1, "gelu": 1,
        "dropout": 3, "add": 3, "layer_norm": 2,
    }  # fmt: skip
    moved = {op.kind for op in graph.operators if not op.kernels}
    assert moved == {"view", "transpose", "dropout"}
    assert all(op.time == 0 for op in graph.operators if not op.kernels)


def test_positions_are_shared_by_all_layers():
    graph = t5_small_encoder()
    readers = [e.dst for e in graph.edges if e.src == "embeddings.positions.expand"]
    assert readers == [f"layer{i}.attention.scores" for i in range(6)]


def test_autograph_bert():
    """8 layers of attention: four products of 1024 rows with 1024 x 1024 weights, and for each of 16 * 16 heads two
    of 64 x 64 by 64 x 64.
    """
    assert macs(autograph_bert()) == 8 * (4 * 1024**3 + 2 * 256 * 64**3)
    assert len(autograph_bert(layers=2).blocks) == 2


def test_half_precision_and_batch():
    graph, twice = bert_base(), bert_base(batch=2, dtype="fp16")
    assert macs(twice) == 2 * macs(graph)
    assert twice.weight_nbytes.sum() == graph.weight_nbytes.sum() / 2


@pytest.mark.parametrize("length", [0, 513])
def test_bert_knows_512_positions(length):
    with pytest.raises(GraphError, match="sequence_length must be at"):
        bert_base(sequence_length=length)
