"""Where the simulator charges nothing that a scheduler's own model leaves out, its estimate is what is simulated."""

import pytest

import simsched as ss
import workloads


@pytest.mark.parametrize("n_gpus", [2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_inter_lp_on_the_layered_dag(n_gpus, seed):
    """No overheads, one operator at a time on each device, exact transfers that load nothing: two evaluations of one
    schedule, the scheduler's list of finish times and the simulator's events."""
    graph = workloads.random_layered(n_ops=100, n_layers=10, comm_ratio=0.8, rng=seed)
    cluster = ss.Cluster.preset("a40", n_gpus).without_overheads()
    plan = ss.schedule(graph, cluster, "inter-lp")
    assert ss.simulate(plan, cluster).makespan == pytest.approx(plan.estimate, rel=1e-9)


@pytest.mark.parametrize("streams", [1, 3, 8])
def test_lios_without_contention(streams):
    """LIOS counts neither launches nor contention."""
    graph = workloads.load("inception_v3")
    cluster = ss.Cluster.preset("a100").without_overheads().replace_devices(contention=False)
    plan = ss.schedule(graph, cluster, "lios", streams=streams)
    assert ss.simulate(plan, cluster).makespan == pytest.approx(plan.estimate, rel=1e-9)
