"""Small random graphs whose structure is worked out by hand, and distributions that are known."""

import pytest
from small import pairs

from workloads import random_dags as dags

EVEN = {"time": (1.0, 1.0), "rng": 0}
TRANSFORMER = dags.random_transformer_like(1, 1, 2, 3, **EVEN)
INCEPTION = dags.random_inception_like(1, 2, 1, channels=4, image_size=2, **EVEN)


ALL_PAIRS = "0-1 0-2 0-3 0-4 1-2 1-3 1-4 2-3 2-4 3-4"
SMALL = {
    # numbers 0 1 2 / 3 4 5: two edges right in each row, three down, and two across from 0 and 1
    "wavefront of 2 x 3": (dags.random_wavefront(2, 3, **EVEN), "0-1 0-3 1-2 1-4 2-5 3-4 4-5"),
    "wavefront of 2 x 3, diagonals": (dags.random_wavefront(2, 3, 3, **EVEN), "0-1 0-3 0-4 1-2 1-4 1-5 2-5 3-4 4-5"),
    "wavefront of a row": (dags.random_wavefront(1, 3, **EVEN), "0-1 1-2"),
    # probability 0 is a chain, 1 a fork and a join; two operators are an edge
    "series": (dags.random_series_parallel(5, 0.0, rng=0), "0-1 1-2 2-3 3-4"),
    "parallel": (dags.random_series_parallel(5, 1.0, rng=0), "0-1 0-2 0-3 1-4 2-4 3-4"),
    "series or parallel": (dags.random_series_parallel(2, rng=0), "0-1"),
    # five operators have ten pairs; with probability 1 or 10 edges all of them, with 0 none
    "all edges": (dags.random_erdos_renyi(5, 10, rng=0), ALL_PAIRS),
    "all pairs": (dags.random_erdos_renyi(5, edge_probability=1.0, rng=0), ALL_PAIRS),
    "no edges": (dags.random_erdos_renyi(5, 0, rng=0), ""),
    "no pairs": (dags.random_erdos_renyi(5, edge_probability=0.0, rng=0), ""),
    # the first leads to all between, and the last reads from them; with all pairs, to one each
    "no edges, joined": (dags.random_erdos_renyi(4, 0, ends="joined", rng=0), "0-1 0-2 1-3 2-3"),
    "a pair, joined": (dags.random_erdos_renyi(4, 1, ends="joined", rng=0), "0-1 1-2 2-3"),
    # each is joined to its two neighbours: 0-1-2-3-4-5-0, the last edge leads from 0 to 5
    "ring": (dags.random_watts_strogatz(6, 2, 0.0, rng=0), "0-1 0-5 1-2 2-3 3-4 4-5"),
    # 0 embedding, 1 norm, 2 q, 3 k, 4 v, 5 scores, 6 softmax, 7 context, 8 concat, 9 projection, 10 add, 11 norm,
    # 12 product, 13 gelu, 14 product, 15 add: 1 + 6 + 9 operators, 9 + 10 edges
    "transformer": (
        TRANSFORMER,
        "0-1 0-10 1-2 1-3 1-4 2-5 3-5 4-7 5-6 6-7 7-8 8-9 9-10 10-11 10-15 11-12 12-13 13-14 14-15",
    ),
    # two branches, a convolution 1 x 1, and pool and convolution: 0 stem, 1 conv, 2 pool, 3 conv, 4 concat
    "inception": (INCEPTION, "0-1 0-2 1-4 2-3 3-4"),
}


@pytest.mark.parametrize("name", SMALL)
def test_edges_by_hand(name):
    graph, edges = SMALL[name]
    assert " ".join(f"{src}-{dst}" for src, dst in pairs(graph)) == edges


# Matrix factorizations ---------------------------------------------------------------------------


# Fourier transform -------------------------------------------------------------------------------


# Networks ----------------------------------------------------------------------------------------


def test_work_of_a_transformer():
    """Two tokens, width 3, in a head of all 3: q 2 * 2 * 3 * 3 = 36 FLOP, scores 2 * 2 * 2 * 3 = 24, feed-forward
    2 * 2 * 3 * 12 = 144. A norm writes 6 elements, as if 600 FLOP; scores are 4 elements of 4 bytes.
    """
    assert " ".join(op.kind for op in TRANSFORMER.operators) == (
        "embedding norm matmul matmul matmul matmul softmax matmul concat matmul add norm matmul gelu matmul add"
    )
    assert TRANSFORMER.flops[[1, 2, 5, 7, 9, 12, 14]].tolist() == [0, 36, 24, 24, 36, 144, 144]
    assert (144 * TRANSFORMER.time[[1, 2, 5, 12]]).tolist() == pytest.approx([600, 36, 24, 144])
    assert TRANSFORMER.edge_nbytes[TRANSFORMER.src == 5].tolist() == [16.0]
    assert TRANSFORMER.edge_nbytes[TRANSFORMER.src == 12].tolist() == [4 * 2 * 12.0]


def test_work_of_an_inception_block():
    """With 4 channels and 1 in branches, 2 x 2 pixels: stem 2 * 4 * 4 * 27 = 864 FLOP, 1 x 1 2 * 4 * 4 = 32, pool
    9 * 16 = 144 and 1600 as it moves 16 elements; 5 x 5 would be 2 * 4 * 25 = 200.
    """
    assert [op.kind for op in INCEPTION.operators] == ["conv", "conv", "pool", "conv", "concat"]
    assert INCEPTION.flops.tolist() == [864.0, 32.0, 144.0, 32.0, 0.0]
    assert (200 * INCEPTION.time).tolist() == pytest.approx([864.0, 32.0, 1600.0, 32.0, 1600.0])
    assert INCEPTION.edge_nbytes.tolist() == [64.0, 64.0, 16.0, 64.0, 16.0]


# Nested ------------------------------------------------------------------------------------------


# Trees -------------------------------------------------------------------------------------------


# Random pairs ------------------------------------------------------------------------------------
