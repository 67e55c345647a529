"""Task graphs of the fast Fourier transform: counts of operators and edges."""

from collections import Counter
from math import log2

import numpy as np
import pytest
from small import pairs

from workloads import random_dags as dags

EVEN = {"time": (1.0, 1.0), "rng": 0}


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
