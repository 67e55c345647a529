"""The latency of a stage alone: closed forms, and what `simulate` says of the stage as a schedule."""

import numpy as np
import pytest
from small import made, operators

import simsched as ss
import workloads
from simsched.base.errors import ClusterError, SimulationError, UnknownNameError
from simsched.simulator import StageLatency

FREE = dict.fromkeys(("launch", "record", "wait", "copy", "barrier", "launch_latency"), 0.0)


@pytest.mark.parametrize("connections", [32, 3, 1])
def test_what_simulate_says(connections):
    graph, cluster = workloads.load("inception_v3"), ss.Cluster.preset("v100").replace_devices(connections=connections)
    latency, rng, names = StageLatency(graph, cluster), np.random.default_rng(connections), list(graph.names)
    for _ in range(60):
        chosen = rng.choice(len(names), rng.integers(1, 12), replace=False)
        groups = [[names[i] for i in part] for part in np.array_split(chosen, rng.integers(1, len(chosen) + 1))]
        alone = ss.OpGraph([graph[names[i]] for i in sorted(chosen)])
        plan = [ss.Placement(name, stream=k, group=k) for k, group in enumerate(groups) for name in group]
        expected = ss.simulate(ss.Schedule(alone, plan, "stages"), cluster.replace_devices(**FREE)).makespan
        assert latency(groups) == pytest.approx(expected, rel=1e-12)


def test_one_operator_takes_its_time_alone():
    graph, cluster = workloads.load("inception_v3"), ss.Cluster.preset("a100")
    latency = StageLatency(graph, cluster)
    for op in graph.operators:
        assert latency([[op.name]]) == pytest.approx(ss.default_cost(op, cluster.devices[0]), rel=1e-9)


def test_several_kernels_priorities_devices_and_costs():
    a = ss.Operator("a", time=10.0, kernels=(ss.Kernel(10, share=0.25), ss.Kernel(10, share=0.75)))
    graph, cluster = made([a, *operators("b=4 z=0")]), ss.Cluster.preset("a100", 2).replace_devices(gap=1.0)
    latency = StageLatency(graph, cluster, device="gpu1")
    assert latency([["a"]]) == 10.0
    assert latency([["a", "b"]]) == 15.0  # a gap between operators, none between kernels of one
    assert latency([["a"], ["b"], ["z"]]) == 10.0
    assert latency([]) == 0.0
    assert StageLatency(graph, cluster, lambda op, device: 7.0)([["b"]]) == 7.0


def test_refusals():
    graph, cluster = made("a=1 b=1"), ss.Cluster.preset("a100")
    latency = StageLatency(graph, cluster)
    with pytest.raises(UnknownNameError, match="unknown operator 'x'"):
        latency([["a"], ["x"]])
    with pytest.raises(SimulationError, match="'a' stands twice"):
        latency([["a"], ["b", "a"]])
    with pytest.raises(UnknownNameError, match="gpu9"):
        StageLatency(graph, cluster, device="gpu9")
    large = ss.OpGraph([ss.Operator("k", time=1.0, kernels=(ss.Kernel(1, shared_memory=10**7),))])
    with pytest.raises(ClusterError, match="'k'"):
        StageLatency(large, cluster)
    assert latency([["a"], ["b"]]) == 1.0  # nothing is left of what was refused
