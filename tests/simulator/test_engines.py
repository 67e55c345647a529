"""Choosing an engine through `simulate`."""

import numpy as np
import pytest
from small import made, placements

import simsched as ss
import workloads

PLAN, CLUSTER = ss.Schedule(made("a=1"), placements("a")), ss.Cluster.preset("a100")


def test_the_compiled_engine_is_the_usual_one():
    """Its trace makes spans when they are asked for; the reference makes them at once."""
    found = {engine: "start" in vars(ss.simulate(PLAN, CLUSTER, engine=engine)) for engine in ("auto", "reference")}
    assert found == {"auto": False, "reference": True}


def test_a_schedule_is_lowered_once():
    first = PLAN.lower(CLUSTER)
    assert ss.simulate(PLAN, CLUSTER).program is ss.simulate(PLAN, CLUSTER).program is first
    assert PLAN.lower(CLUSTER, events="literal") is not first
    assert ss.simulate(PLAN, CLUSTER.without_overheads()).makespan < ss.simulate(PLAN, CLUSTER).makespan
    with pytest.raises(ValueError, match="read-only"):
        first.action[0] = 1


def test_a_cluster_of_many_nodes():
    """64 devices behind NVSwitches and a network between nodes of 8: copies inside and between nodes."""
    cluster = ss.Cluster.preset("h100", n_gpus=64)
    graph = workloads.random_layered(n_ops=300, n_layers=10, rng=3)
    moved = ss.OpGraph(graph.operators, [ss.Edge(e.src, e.dst, 1e5 * (1 + i % 7)) for i, e in enumerate(graph.edges)])
    plan = ss.schedule(moved, cluster, "round-robin")
    compiled, reference = (ss.simulate(plan, cluster, engine=engine) for engine in ("compiled", "reference"))
    assert compiled.makespan == pytest.approx(reference.makespan, rel=1e-9)
    np.testing.assert_allclose(compiled.end, reference.end, rtol=1e-9)


def test_unknown_engine():
    with pytest.raises(ss.SimschedError, match="unknown engine 'gpu'; known are: auto, compiled, reference"):
        ss.simulate(PLAN, CLUSTER, engine="gpu")


def test_links_whose_capacities_are_whole_numbers_share_fractions():
    """Three copies into one link of 100: 33.3 each, whether the bandwidth is given as 100 or as 100.0."""
    ends = []
    for bandwidth in (100, 100.0):
        devices = ss.Cluster.preset("a100", 4).without_overheads().replace_devices(copy_rate=1000).devices
        wires = tuple((device.name, "hub", ss.Link(bandwidth)) for device in devices)
        plan = ss.Schedule(made("a=1 b=1 c=1 d=1", "ad bd cd", nbytes=1000.0), placements("a b@1 c@2 d@3"))
        ends.append(ss.simulate(plan, ss.Cluster(devices, wires)).makespan)
    assert ends == pytest.approx([32.0, 32.0])  # 1 us, then 1000 bytes at 33.3 per us, then 1 us
