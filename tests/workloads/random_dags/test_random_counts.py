"""Small random graphs whose structure is worked out by hand, and distributions that are known."""

from collections import Counter
from math import log2

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import pairs

from workloads import random_dags as dags

EVEN = {"time": (1.0, 1.0), "rng": 0}
TRANSFORMER = dags.random_transformer_like(1, 1, 2, 3, **EVEN)
INCEPTION = dags.random_inception_like(1, 2, 1, channels=4, image_size=2, **EVEN)


def in_degree(graph):
    return np.bincount(graph.dst, minlength=len(graph))


def out_degree(graph):
    return np.bincount(graph.src, minlength=len(graph))


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


def loops(tiles, symmetric):
    """The kernels of the algorithm in loops, column by column: kind, tiles that are read, tile that is written."""
    names = ("potrf", "trsm", "syrk", "gemm") if symmetric else ("getrf", "trsm", "gemm", "gemm")
    panel, solve, diagonal, update = names
    for k in range(tiles):
        yield panel, [(k, k)], (k, k)
        for i in range(k + 1, tiles):
            yield solve, [(k, k), (i, k)], (i, k)
        for j in range(k + 1, tiles):
            if symmetric:
                yield diagonal, [(j, k), (j, j)], (j, j)
            else:
                yield solve, [(k, k), (k, j)], (k, j)
            for i in range(j + 1 if symmetric else k + 1, tiles):
                yield update, [(i, k), (j, k) if symmetric else (k, j), (i, j)], (i, j)


@pytest.mark.parametrize("tiles", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_factorizations_depend_as_the_algorithm_does(tiles, symmetric):
    """Run through the loops: an edge leads from the last kernel that wrote a tile to each that reads it."""
    graph = dags.random_cholesky(tiles, **EVEN) if symmetric else dags.random_lu(tiles, **EVEN)
    writer, found, kernels = {}, set(), []
    for number, (kind, reads, tile) in enumerate(loops(tiles, symmetric)):
        kernels.append(kind)
        found |= {(writer[at], number) for at in reads if at in writer}
        writer[tile] = number
    assert [op.kind for op in graph.operators] == kernels
    assert pairs(graph) == sorted(found)
    assert graph.depth == 3 * tiles - 2


def test_cholesky_counts():
    """t = 4: 4 POTRF, 6 TRSM, 6 SYRK, 4 GEMM, together 4 * 5 * 6 / 6 = 20; 4 * 3 * 5 / 2 = 30 edges."""
    graph = dags.random_cholesky(4, tile=10, **EVEN)
    assert (len(graph), len(graph.edges)) == (20, 30)
    flops = {op.kind: op.flops for op in graph.operators}
    assert flops == pytest.approx({"potrf": 1000 / 3, "trsm": 1000.0, "syrk": 1000.0, "gemm": 2000.0})
    assert {op.kind: op.time for op in graph.operators} == {"potrf": 1 / 6, "trsm": 0.5, "syrk": 0.5, "gemm": 1.0}
    assert set(graph.edge_nbytes) == {400.0}
    # 10 x 10 tiles of 4 x 4: together n^3 / 3 for n = 40, but for terms of n^2 * tile: 4/3 + 6 + 6 + 8 thousands
    assert graph.flops.sum() == pytest.approx(40**3 / 3)


# Fourier transform -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 4, 8, 64])
def test_fft_counts(n):
    """n log2 n butterflies; every output depends on every input, by exactly one path."""
    levels = round(log2(n))
    graph, recursive = dags.random_fft(n, "butterfly", **EVEN), dags.random_fft(n, **EVEN)
    assert (len(graph), len(graph.src)) == (n * levels, 2 * n * (levels - 1))
    assert (len(recursive), len(recursive.src)) == (2 * n - 1 + n * levels, 2 * n - 2 + 2 * n * levels)
    assert Counter(op.kind for op in recursive.operators) == {"call": 2 * n - 1, "butterfly": n * levels}
    assert (graph.depth, recursive.depth) == (levels, 2 * levels + 1)
    assert (len(recursive.inputs), len(recursive.outputs), len(graph.outputs)) == (1, n, n)
    paths = np.zeros((len(recursive), n), int)  # from each leaf
    paths[n - 1 : 2 * n - 1] = np.eye(n, dtype=int)
    for u, v in pairs(recursive):
        if v >= 2 * n - 1:
            paths[v] += paths[u]
    assert (paths[-n:] == 1).all()


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


@given(n_blocks=st.integers(1, 6), most=st.integers(2, 6), length=st.integers(1, 5), seed=st.integers(0, 999))
def test_inception_blocks(n_blocks, most, length, seed):
    """Every concatenation ends 2 to `most` branches, chains from the concatenation before, one with a pool."""
    graph = dags.random_inception_like(n_blocks, most, length, rng=seed)
    concats = [i for i, op in enumerate(graph.operators) if op.kind == "concat"]
    assert len(concats) == n_blocks == Counter(op.kind for op in graph.operators)["pool"]
    degree = in_degree(graph)
    assert all(2 <= degree[i] <= most for i in concats)
    assert (np.delete(degree, [0, *concats]) == 1).all()
    assert [out_degree(graph)[i] for i in [0, *concats[:-1]]] == [degree[i] for i in concats]
    assert graph.depth <= 1 + n_blocks * (max(length, 2) + 1)
    inner = graph.flops[(degree == 1) & (np.array([op.kind == "conv" for op in graph.operators]))]
    sides = {round(f / (2 * 56**2 * 64 * 64), 9) for f in inner}
    assert sides <= {1.0, 9.0, 25.0, 4.0}, "1 x 1 reads four times the channels"


# Nested ------------------------------------------------------------------------------------------


@given(n_ops=st.integers(3, 80), max_width=st.integers(1, 30), seed=st.integers(0, 999))
def test_fork_join(n_ops, max_width, seed):
    """Hubs and operators with one hub on either side; the width of a section is 1 to `max_width`, or 0 in the last."""
    graph = dags.random_fork_join(n_ops, max_width, rng=seed)
    at, widths = 0, []
    while at < n_ops - 1:
        reached = graph.dst[graph.src == at].tolist()
        hub = reached[-1] + 1 if reached[-1] < n_ops - 1 else n_ops - 1
        inner = [i for i in reached if i < hub]
        assert all(graph.src[graph.dst == i].tolist() == [at] for i in inner)
        assert all(graph.dst[graph.src == i].tolist() == [hub] for i in inner)
        widths.append(len(inner))
        at = hub
    assert len(widths) + 1 + sum(widths) == n_ops
    assert all(1 <= width <= max_width for width in widths[:-1])
    assert widths[-1] <= max_width


def test_fork_join_widths_are_uniform():
    """A hundred thousand operators in sections of 1 to 4: 28,571 sections, a quarter of each width."""
    graph = dags.random_fork_join(100_000, 4, rng=0)
    counts = Counter(out_degree(graph)[(out_degree(graph) != 1) | (in_degree(graph) != 1)].tolist())
    assert all(abs(counts[width] - 28571 / 4) < 5 * 80 for width in (2, 3, 4))


def reduced(graph):
    """Reduce a two-terminal graph: operators with one edge in and one out, then parallel edges, again and again."""
    multi = nx.MultiDiGraph(pairs(graph))
    changed = True
    while changed:
        changed = False
        for i in list(multi):
            if multi.in_degree(i) == multi.out_degree(i) == 1:
                multi.add_edge(*multi.predecessors(i), *multi.successors(i))
                multi.remove_node(i)
                changed = True
        simple = nx.MultiDiGraph(nx.DiGraph(multi))
        changed |= simple.number_of_edges() < multi.number_of_edges()
        multi = simple
    return list(multi.edges())


@given(n_ops=st.integers(2, 60), parallel=st.floats(0, 1), seed=st.integers(0, 999))
def test_series_parallel_reduces_to_one_edge(n_ops, parallel, seed):
    graph = dags.random_series_parallel(n_ops, parallel, rng=seed)
    assert reduced(graph) == [(0, n_ops - 1)]
    assert nx.transitive_reduction(nx.DiGraph(pairs(graph))).number_of_edges() == len(graph.src)


# Trees -------------------------------------------------------------------------------------------


@given(n_ops=st.integers(2, 80), most=st.integers(1, 6), seed=st.integers(0, 999))
def test_trees(n_ops, most, seed):
    """All but the root have one parent, all that have children have up to `most`, and the in-tree is the out-tree."""
    out = dags.random_out_tree(n_ops, most, rng=seed)
    assert (in_degree(out) == ([0] + [1] * (n_ops - 1))).all()
    assert out_degree(out).max() <= most
    n_parents = (out_degree(out) > 0).sum()
    assert (out_degree(out)[:n_parents] > 0).all(), "level by level: the sinks are the last"
    into = dags.random_in_tree(n_ops, most, rng=seed)
    assert sorted((n_ops - 1 - v, n_ops - 1 - u) for u, v in pairs(into)) == pairs(out)


# Random pairs ------------------------------------------------------------------------------------


def test_edges_by_probability():
    """2,000 operators at 1/500: 1,999,000 / 500 = 3998 edges on average, standard deviation 63; both ends alike."""
    counts = [len(dags.random_erdos_renyi(2000, edge_probability=0.002, rng=seed).src) for seed in range(50)]
    assert np.mean(counts) == pytest.approx(3998, abs=5 * 63 / 50**0.5)
    assert np.std(counts) == pytest.approx(63, rel=0.5)
    graph = dags.random_erdos_renyi(100_000, 400_000, rng=0)
    # the mean of the lower of two uniform numbers is a third, of the higher two thirds
    assert graph.src.mean() == pytest.approx(100_000 / 3, rel=0.01)
    assert graph.dst.mean() == pytest.approx(200_000 / 3, rel=0.01)


@given(n_ops=st.integers(8, 40), rewiring=st.floats(0, 1), seed=st.integers(0, 999))
def test_small_world(n_ops, rewiring, seed):
    """As many edges as the ring has, none twice, and every operator keeps the two edges that start at it."""
    graph = dags.random_watts_strogatz(n_ops, 4, rewiring, rng=seed)
    assert len(set(pairs(graph))) == 2 * n_ops
    assert (in_degree(graph) + out_degree(graph)).min() >= 2


def test_share_of_rewired_edges():
    """Of 20,000 edges 30 % leave the ring: 6,000, standard deviation 65; far ends are uniform: a mean of 0.5."""
    graph = dags.random_watts_strogatz(10_000, 4, 0.3, rng=0)
    every = dags.random_watts_strogatz(10_000, 4, 1.0, rng=0)
    some, all_ = ((each.dst - each.src) % 10_000 for each in (graph, every))
    far, all_far = (np.minimum(distance, 10_000 - distance) > 2 for distance in (some, all_))
    assert far.sum() == pytest.approx(6000, abs=5 * 65)
    assert some[far].mean() == pytest.approx(10_000 / 3, rel=0.03), "of two uniform numbers, a third apart"
    assert all_far.sum() > 20_000 - 30, "20,000 * 4 / 10,000 = 8 that come back by chance"
