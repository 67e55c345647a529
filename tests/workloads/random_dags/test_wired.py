"""Random small-world graphs: degrees, and the share of rewired edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import in_degree, out_degree, pairs

from workloads import random_dags as dags


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
