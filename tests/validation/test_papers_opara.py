"""Opara's and Nimble's claims: that each can be run, reads the figures as meant, and gives the worked examples."""

from itertools import pairwise
from math import isfinite

import pytest

import simsched as ss
from simsched.model.graph import Edge, Operator, OpGraph
from validation.papers import nimble, opara, opara_orders, opara_speedups
from validation.papers.claims import ACROSS_HARDWARE, Run
from validation.papers.nimble import fewest_syncs
from validation.papers.opara_runs import DEPTH_FIRST, GRAPH, NIMBLE, OPARA, PYTORCH, executed, network, planned

CLAIMS = {claim.key: claim for claim in (*opara.CLAIMS, *nimble.CLAIMS)}
QUICK = Run(quick=True)
SLOW = ("nimble-theorem",)  # some seconds, below on fewer graphs


def ours(key):
    return CLAIMS[key].measure(QUICK)


def verdict(key):
    return CLAIMS[key].verdict(ours(key))


def dag(edges, n):
    pairs = [edge.split("-") for edge in edges.split()]
    return OpGraph([Operator(str(i), time=1.0) for i in range(1, n + 1)], [Edge(a, b) for a, b in pairs])


@pytest.mark.parametrize("key", [key for key, claim in CLAIMS.items() if claim.measure and key not in SLOW])
def test_a_claim_can_be_run(key):
    found = ours(key)
    assert set(CLAIMS[key].published) <= set(found)
    assert all(isfinite(value) for value in found.values())


def test_keys_say_whose_claim_it_is():
    assert len(CLAIMS) == len(opara.CLAIMS) + len(nimble.CLAIMS) > 40
    assert all(key.startswith(f"{claim.paper.lower()}-") for key, claim in CLAIMS.items())


def test_what_cannot_be_run_says_why():
    kinds = ("not reproducible here: ", "source not available: ")
    missing = [claim for claim in CLAIMS.values() if claim.measure is None]
    assert len(missing) == 10
    assert all(claim.missing.startswith(kinds) for claim in missing)


# What was printed ---------------------------------------------------------------------------------


def test_bars_agree_with_the_texts():
    """Opara over the graph on GoogLeNet is 1.68x, over Nimble 1.29x in the text, 3.829 / 2.951 = 1.298 of bars; SM
    efficiency on DeepFM + 126 %: 12.15 / 5.37 = 2.263; order 1 over order 2 at batch 1, 1.44 / 1.08 = 4 / 3.
    """
    assert CLAIMS["opara-fig5a-graph"].published["GoogLeNet"] == pytest.approx(1.68, rel=0.01)
    assert CLAIMS["opara-fig5a-nimble"].published["GoogLeNet"] == pytest.approx(1.29, rel=0.01)
    assert CLAIMS["opara-fig5b-gain"].published["DeepFM"] == pytest.approx(2.26, rel=0.01)
    assert CLAIMS["opara-fig2-gain"].published["batch 1"] == pytest.approx(4 / 3)
    assert CLAIMS["opara-fig8-graph"].published["batch 1"] == pytest.approx(1.41, rel=0.001)
    assert CLAIMS["opara-fig9-nimble"].published["batch 4"] == pytest.approx(1.15, rel=0.01)


# What we come to ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    ["opara-example", "opara-streams-googlenet", "nimble-chains", "nimble-streams", "nimble-waits", "nimble-syncs"],
)
def test_counts_are_those_published(key):
    assert verdict(key) == "reproduced"


def test_the_example_of_thirteen_operators():
    """2 goes on from 1, so 3 and 4 open streams 1 and 2; 9 from 7, so 10 opens 3; 11 from 8, so 12 opens 4."""
    found = ours("opara-example")
    assert [name for name, stream in found.items() if stream == 0] == ["v1", "v2", "v5", "v7", "v9", "v13"]
    assert [name for name, stream in found.items() if stream == 1] == ["v3", "v6", "v8", "v11"]
    assert [found[name] for name in ("v4", "v10", "v12")] == [2, 3, 4]


def test_streams_of_transformers():
    """Query, key and value open two streams a layer: 2 x 6 and one for each of two tables in T5's encoder, 2 x 12 and
    one for each of three embeddings in BERT.
    """
    assert ours("opara-streams-t5")[OPARA] == 14
    assert ours("opara-streams-bert") == {"difference": 24, OPARA: 27, NIMBLE: 3}


def test_a_sequential_graph_has_one_stream_and_no_launches():
    """Three operators of 10 us: 6 us for the graph, 0.9 us before the second and the third."""
    cluster = ss.Cluster.preset("a100")
    plan = planned(dag("1-2 2-3", 3), cluster, GRAPH)
    assert (plan.execution, plan.n_streams, plan.scheduler) == ("graph", 1, "sequential")
    device = cluster.devices[0]
    expected = device.graph_launch + 3 * 1.0 + 2 * device.graph_node
    assert ss.simulate(plan, cluster).makespan == pytest.approx(expected)
    assert planned(plan.graph, cluster, PYTORCH).execution == "events"
    launched = planned(plan.graph, cluster, PYTORCH)
    assert launched.execution == "events"
    assert executed(launched, "graph") == plan


def test_depth_first_goes_down_a_branch():
    """Every operator of GoogLeNet but the first follows one that it reads from, or opens a branch or joins them."""
    cluster = ss.Cluster.preset("rtx2080super")
    graph = network("GoogLeNet", "rtx2080super")
    plan = planned(graph, cluster, DEPTH_FIRST)
    launched = [row.op for row in plan.placements]
    readers = {(edge.src, edge.dst) for edge in graph.edges}
    jumps = [b for a, b in pairwise(launched) if (a, b) not in readers]
    assert len(jumps) == 9 * 3  # three more branches of each of nine modules
    by_need = planned(graph, cluster, OPARA)
    assert {row.op: row.stream for row in by_need.placements} == {row.op: row.stream for row in plan.placements}
    assert [row.op for row in by_need.placements] != launched


def test_unlike_operators_side_by_side():
    """What begins second, when the first convolution has no more blocks to issue and still runs; it gains nothing, but
    for a part of the slots that come free before."""
    for beside, second in ((True, "relu 1"), (False, "conv 1")):
        kernels = [span for span in opara_orders.paired(beside).spans if span.kind == "kernel"]
        assert [span.op for span in kernels[:2]] == ["conv 0", second]
        assert kernels[1].start < kernels[0].end
    unlike, alike = (opara_orders.paired(beside, interleave=0.5).makespan for beside in (True, False))
    assert unlike < alike
    assert opara_orders.paired(beside=True).makespan > opara_orders.paired(beside=False).makespan


def test_orders_count_where_streams_share_queues():
    """What the difference from Fig. 2 is put down to: none over 32 queues, a quarter and more over 2."""
    found = ours("opara-fig2-gain")
    assert found["batch 1 (32 queues)"] == pytest.approx(1.0, abs=0.005)
    assert found["batch 1 (2 queues)"] > 1.25


def test_orders_hardly_count_where_each_stream_has_a_queue():
    found = ours("opara-fig2-latency")
    for batch in (1, 2, 4, 8):
        assert found[f"bound ({batch})"] <= found[f"order 1 ({batch})"]
        assert found[f"order 2 ({batch})"] == pytest.approx(found[f"order 1 ({batch})"], rel=0.02)


def test_tiles_explain_most_sm_efficiencies():
    """In tiles of 64 x 64 eight of the twelve are within 25 %: all but BERT's two and the graphs of two networks."""
    published = CLAIMS["opara-fig5b-percent"].published
    tiled = opara_speedups.tiled_efficiencies()
    far = [name for name, value in published.items() if not ACROSS_HARDWARE({"": value}, {"": tiled[name]})]
    graphs = [f"{name} ({GRAPH})" for name in ("GoogLeNet", "Inception-v3", "BERT")]
    assert far == [*graphs, f"BERT ({OPARA})"]


def test_opara_keeps_every_output():
    """GoogLeNet: weights of 26.6 MB and outputs of 49.3 MB; Inception-v3: more weights than its bar is high."""
    found = ours("opara-fig5b-megabytes")
    assert found["GoogLeNet (Opara)"] == pytest.approx(75.9, abs=0.1)
    weights = sum(op.weight_nbytes for op in network("Inception-v3", "rtx2080super").operators) / 1e6
    assert weights == pytest.approx(95.5, abs=0.1)
    assert weights > CLAIMS["opara-fig5b-megabytes"].published["Inception-v3 (CUDA Graph)"]


def test_fewest_syncs():
    """A fork needs one wait, a join of three two; of 1-2 2-3 1-3 the last edge is implied."""
    assert fewest_syncs(dag("1-2 1-3", 3)) == 1
    assert fewest_syncs(dag("1-4 2-4 3-4", 4)) == 2
    assert fewest_syncs(dag("1-2 2-3 1-3", 3)) == 0
    assert fewest_syncs(dag("1-3 1-4 2-3 2-4", 4)) == 2


def test_fewest_syncs_are_those_of_the_plan():
    assert verdict("nimble-theorem") == "reproduced"
