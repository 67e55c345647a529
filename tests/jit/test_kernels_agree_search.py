"""The walk of the search as Python, as unoptimised and as optimised machine code: the same to the last bit."""

import numpy as np
import pytest

import simsched as ss
import workloads
from simsched.base.jit.pieces import running
from simsched.model.costmodel import default_cost
from simsched.schedulers.search.candidate import Candidate
from simsched.schedulers.search.walk import Walk


def walked(how, captured):
    """Return what some walks make of a candidate at a temperature at which most changes are taken, and some are not."""
    graph = workloads.random_layered(n_ops=20, n_layers=4, comm_ratio=0.8, rng=5)
    cluster = ss.Cluster.preset("a40", 3)
    candidate = Candidate(ss.schedule(graph, cluster, "sequential"), cluster, 3)
    walk, rng, found = Walk(candidate, graph, cluster, default_cost, captured=captured), np.random.default_rng(7), []
    with running(how):
        for _ in range(6):
            makespan = walk.change(candidate.order[:9].copy(), 50.0, rng)
            walk.adapt(1.0)
            found.append((makespan, candidate.rows.tolist(), walk._moves.tolist()))
    return found


@pytest.mark.parametrize("captured", [False, True])
def test_walks_agree(captured):
    interpreted = walked("0", captured)
    assert walked("O0", captured) == interpreted
    assert walked("O3", captured) == interpreted
