"""Graphs of one rank, whose collectives are symmetric: every scheduler places them on one device, for all ranks."""

import pytest
from quick import quick

import simsched as ss


def step(layers=3):
    """Layers of a product whose result is all-reduced beside a product that does not need it."""
    ops, edges = [], []
    for i in range(layers):
        ops += [
            ss.Operator(f"a{i}", flops=2e9, nbytes=2e7, kernels=(ss.Kernel(100),), dtype="fp16"),
            ss.Operator(f"r{i}", kind="all_reduce", collective=ss.Collective("all_reduce", 8e6, 8)),
            ss.Operator(f"b{i}", flops=2e9, nbytes=2e7, kernels=(ss.Kernel(100),), dtype="fp16"),
        ]
        edges += [ss.Edge(f"a{i}", f"r{i}", 8e6), ss.Edge(f"a{i}", f"b{i}", 8e6)]
        if i:
            edges += [ss.Edge(f"r{i - 1}", f"a{i}", 8e6), ss.Edge(f"b{i - 1}", f"a{i}", 8e6)]
    return ss.OpGraph(ops, edges)


GRAPH, EIGHT = step(), ss.Cluster.preset("h100", 8)


@pytest.mark.parametrize("name", ss.SCHEDULERS)
def test_one_device_stands_for_all_ranks(name):
    """The plan uses gpu0 alone, runs there as on a device by itself, and ends no earlier than the bound."""
    plan = ss.schedule(GRAPH, EIGHT, name, **quick(name, GRAPH))
    assert plan.devices_used == ("gpu0",)
    found = ss.simulate(plan, EIGHT)
    assert found.makespan == pytest.approx(ss.simulate(plan, EIGHT, engine="reference").makespan, rel=1e-9)
    alone = ss.Cluster.preset("h100")
    assert ss.simulate(ss.schedule(GRAPH, alone, name, **quick(name, GRAPH)), alone).makespan == pytest.approx(
        found.makespan, rel=1e-6
    )
    assert found.makespan >= ss.lower_bound(GRAPH, EIGHT) * (1 - 1e-9)


def test_a_second_stream_hides_collectives():
    """Beside the product that does not need it, an all-reduce of 50 us costs less than after it."""
    made = {name: ss.schedule(GRAPH, EIGHT, name) for name in ("sequential", "nimble")}
    times = {name: ss.simulate(plan, EIGHT).makespan for name, plan in made.items()}
    assert times["nimble"] < 0.9 * times["sequential"]


def test_searches_and_samples_take_them():
    plan = ss.schedule(GRAPH, EIGHT, "nimble")
    assert ss.Evaluator(plan, EIGHT).makespan == ss.simulate(plan, EIGHT).makespan
    drawn = ss.simulate_many(plan, EIGHT, 50, jitter=0.1, rng=0)
    assert drawn.std > 0
    latency = ss.StageLatency(GRAPH, EIGHT.without_overheads())
    both = latency([["r0"], ["r1"]])
    assert latency([["r0"]]) == pytest.approx(ss.roofline(GRAPH["r0"], EIGHT.devices[0]))
    assert latency([["r0"]]) < both < 2 * latency([["r0"]])
    together = ss.OpGraph([GRAPH["r0"], GRAPH["r1"]])
    side = ss.Schedule(together, [ss.Placement("r0"), ss.Placement("r1", stream=1)])
    assert both == pytest.approx(ss.simulate(side, EIGHT.without_overheads()).makespan)


@pytest.mark.parametrize("cluster", [EIGHT, ss.Cluster.preset("h100")], ids=["8", "1"])
def test_what_ifs_of_links_and_ranks_move_them(cluster):
    asked = ss.what_if(GRAPH, cluster, scheduler="sequential")
    assert asked.link(bandwidth=2.0).makespan < asked.makespan_before
    assert asked.set("link.start", 2.0).makespan > asked.makespan_before
    assert asked.set("ranks", 2).makespan < asked.makespan_before
    with pytest.raises(ss.SimschedError, match="'r0' is a collective, which stays an operator of its own"):
        _ = asked.fuse(["a0", "r0"]).makespan


def test_ranks_of_no_collective_cannot_be_others():
    plain = ss.OpGraph([ss.Operator("a", time=1.0)])
    with pytest.raises(ss.SimschedError, match="ranks: graph 'graph' has no symmetric collective"):
        _ = ss.what_if(plain, EIGHT).set("ranks", 4).makespan


def test_advice_on_a_graph_of_one_rank_has_no_replicas():
    """All eight GPUs run the graph: there is nothing to split it over, and no room for a copy."""
    found = ss.advise(GRAPH, EIGHT, schedulers=("nimble",))
    assert [row.name for row in found.rows] == [
        "eager",
        "one stream",
        "one stream captured",
        "streams",
        "streams captured",
    ]
    assert found.assumed["ranks"] == "8 that run this graph, each on a GPU of its own; one is simulated"
    notes = ss.what_if(GRAPH, EIGHT, scheduler="sequential").link(bandwidth=2.0).notes
    assert not any("links make no difference" in note for note in notes)
