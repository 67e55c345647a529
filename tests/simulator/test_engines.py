"""Choosing an engine through `simulate`."""

import pytest

import simsched as ss
import workloads


@pytest.mark.parametrize("scheduler", ["greedy", "lios"])
def test_both_engines_give_one_trace(scheduler):
    graph, cluster = workloads.load("inception_v3"), ss.Cluster.preset("a100")
    plan = ss.schedule(graph, cluster, scheduler)
    reference = ss.simulate(plan, cluster, engine="reference")
    compiled = ss.simulate(plan, cluster, engine="compiled")
    assert compiled.spans == reference.spans
    assert compiled.critical_path() == reference.critical_path()


def test_unknown_engine():
    graph, cluster = ss.OpGraph([ss.Operator("a", time=1.0)]), ss.Cluster.preset("a100")
    with pytest.raises(ss.SimschedError, match="unknown engine 'gpu'; known are: reference, compiled"):
        ss.simulate(ss.schedule(graph, cluster, "lios"), cluster, engine="gpu")


def test_links_whose_capacities_are_whole_numbers_share_fractions():
    """Three copies into one link of 100: 33.3 each, whether the bandwidth is given as 100 or as 100.0."""
    ends = []
    for bandwidth in (100, 100.0):
        devices = ss.Cluster.preset("a100", 4).without_overheads().replace_devices(copy_rate=1000).devices
        wires = tuple((device.name, "hub", ss.Link(bandwidth)) for device in devices)
        ops = [ss.Operator(name, time=1.0) for name in "abcd"]
        graph = ss.OpGraph(ops, [ss.Edge(name, "d", 1000.0) for name in "abc"])
        plan = ss.Schedule(graph, [ss.Placement(name, f"gpu{i}") for i, name in enumerate("abcd")])
        ends.append(ss.simulate(plan, ss.Cluster(devices, wires)).makespan)
    assert ends == pytest.approx([32.0, 32.0])  # 1 us, then 1000 bytes at 33.3 per us, then 1 us
