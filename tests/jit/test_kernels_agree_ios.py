"""IOS as Python, as unoptimised and as optimised machine code: the same to the last bit."""

import pytest

import simsched as ss
import workloads
from simsched.base.jit.pieces import running
from simsched.model.graph import Edge, Operator, OpGraph
from simsched.schedulers.ios import ios, part
from simsched.schedulers.stage_costs import StageFormula


def long():
    """A chain of 66, which takes two words of a mask, and an operator beside it."""
    rows = [Operator(f"o{k}", time=1.0 + k % 7) for k in range(67)]
    return OpGraph(rows, [Edge(f"o{k}", f"o{k + 1}") for k in range(65)])


def found(how, stage_latency, options):
    """What three graphs come to: at random, with operators to merge, and with more than 63."""
    graphs = [workloads.random_layered(n_ops=12, n_layers=4, rng=0), workloads.load("squeezenet"), long()]
    plans = []
    with running(how):
        for graph in graphs:
            plan = ss.schedule(
                graph, ss.Cluster.preset("a100"), ios, blocks="none", stage_latency=stage_latency,
                **options,
            )  # fmt: skip
            plans.append((plan.placements, plan.estimate, {**plan.search, "time_s": 0.0}))
    return plans


def latency(groups, merged=False):
    return 0.1 + sum(map(len, groups)) ** 0.5 - merged


@pytest.mark.parametrize("stage_latency", [StageFormula(), latency], ids=["formula", "costs"])
@pytest.mark.parametrize(
    "options", [{"r": 2, "s": 2}, {"endings": "single_root", "r": 3}], ids=["exact", "single_root"]
)
def test_stages_agree(stage_latency, options, monkeypatch):
    """Memory grows and the clock is looked at time and again."""
    monkeypatch.setattr(part, "_FIRST_ROOM", 16)
    monkeypatch.setattr(part, "_STEPS", 997)
    interpreted = found("0", stage_latency, options)
    assert all(search["cut_blocks"] == [] for _, _, search in interpreted)
    assert any(search["merged_transitions"] > 0 for _, _, search in interpreted)
    assert found("O0", stage_latency, options) == interpreted
    assert found("O3", stage_latency, options) == interpreted
