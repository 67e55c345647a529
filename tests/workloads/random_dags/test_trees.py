"""Random in-trees and out-trees: degrees and connection."""

from hypothesis import given
from hypothesis import strategies as st
from small import in_degree, out_degree, pairs

from workloads import random_dags as dags


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
