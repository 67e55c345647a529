"""Random graphs by the probability of an edge: the expected number of edges."""

import numpy as np
import pytest

from workloads import random_dags as dags


def test_edges_by_probability():
    """2,000 operators at 1/500: 1,999,000 / 500 = 3998 edges on average, standard deviation 63; both ends alike."""
    counts = [len(dags.random_erdos_renyi(2000, edge_probability=0.002, rng=seed).src) for seed in range(50)]
    assert np.mean(counts) == pytest.approx(3998, abs=5 * 63 / 50**0.5)
    assert np.std(counts) == pytest.approx(63, rel=0.5)
    graph = dags.random_erdos_renyi(100_000, 400_000, rng=0)
    # the mean of the lower of two uniform numbers is a third, of the higher two thirds
    assert graph.src.mean() == pytest.approx(100_000 / 3, rel=0.01)
    assert graph.dst.mean() == pytest.approx(200_000 / 3, rel=0.01)
