"""Random graphs of Inception-like blocks: branches, their lengths and the work of a block."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from small import in_degree, out_degree

from workloads import random_dags as dags


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
