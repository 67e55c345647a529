"""HIOS as Python, as unoptimised and as optimised machine code: the same to the last bit."""

from dataclasses import replace
from itertools import product

import pytest

import simsched as ss
import workloads
from simsched.base.jit.pieces import running
from simsched.schedulers.hios import hios_lp, hios_mr

EQUAL = ss.Cluster.preset("a40", 3)
UNEQUAL = replace(EQUAL, devices=(*EQUAL.devices[:2], replace(EQUAL.devices[2], copy_rate=2e3)))


def mixed(seed):
    """A graph of which every other edge has bytes in place of a time."""
    graph = workloads.random_layered(n_ops=30, n_layers=6, n_edges=60, comm_ratio=0.4, rng=seed)
    bytes_ = [replace(edge, transfer=None, nbytes=1e6) if k % 2 else edge for k, edge in enumerate(graph.edges)]
    return ss.OpGraph(graph.operators, bytes_)


def planned(how, scheduler):
    """What small graphs come to by a scheduler, in all its modes."""
    found = []
    with running(how):
        for seed, cluster, mode in product((0, 1), (EQUAL, UNEQUAL), ("paper", "impl")):
            options = {"mode": mode, "w": 3, "stage_latency": "hios-sim"}
            plan = ss.schedule(mixed(seed), cluster, scheduler, **options)
            found.append((plan.placements, plan.estimate, dict(plan.search)))
    return found


@pytest.mark.parametrize("scheduler", [hios_lp, hios_mr])
def test_plans_agree(scheduler):
    interpreted = planned("0", scheduler)
    assert planned("O0", scheduler) == interpreted
    assert planned("O3", scheduler) == interpreted
    assert max(search["stages_merged"] for *_, search in interpreted) > 2
