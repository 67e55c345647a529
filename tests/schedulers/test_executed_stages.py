"""Stages with launches and barriers, by hand, and held against what is simulated; one stream among IOS's choices."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small import made
from strategies import graphs

import simsched as ss
import workloads
from simsched.rewriting import merge
from simsched.schedulers.stage_costs import ExecutedStage, executed_in_turn
from workloads.models.network import Network


def one_device(**replaced):
    """A device whose streams cost nothing, with launches of 4 us and barriers of 10 us."""
    free = {"gap": 0.0, "launch": 4.0, "launch_latency": 0.0, "barrier": 9.0, "barrier_many": 10.0}
    return ss.Cluster.preset("v100").replace_devices(**free | replaced)


def executed(graph, cluster):
    """Latency of executed stages on the first device."""
    return ExecutedStage(graph, cluster.devices[0], None, ss.StageLatency(graph, cluster))


def test_an_executed_stage_hides_launches_behind_kernels():
    """Kernels of 10 and 20 us hide two launches of 4; kernels of 1 and 2 us wait for theirs: 8 us.

    Several groups pay launch and barrier. 0 beside 1: two launches of 4 before 1, which takes 20, barrier 10. 4, 5 and
    6 of 10 us: the last is launched 8 us after the first, so they end at 4 + 8 + 10, and the barrier is 10 more.
    """
    graph = made("0=10 1=20 2=1 3=2 4=10 5=10 6=10")
    stage = executed(graph, one_device())
    assert [stage((("0", "1"),)), stage((("2", "3"),))] == [30.0, 8.0]
    assert [stage((("0",), ("1",))), stage((("4",), ("5",), ("6",)))] == [38.0, 32.0]
    assert executed(graph, one_device(gap=1.0))((("0",),)) == 11.0


@pytest.mark.parametrize("stages", [["01|2"], ["0|1|2"], ["0|1", "2"], ["012"]], ids=str)
def test_measured_stages_are_simulated_ones(stages):
    """A single stage takes its measured latency and the launch that no repetition hides, without the barrier that
    nothing comes after; a stage of one group that follows a stage of several has its launch to itself too."""
    graph, cluster = made("0=50 1=60 2=70"), one_device(record=0.0, wait=0.0, hop=0.0)
    groups = [tuple(tuple(group) for group in stage.split("|")) for stage in stages]
    rows = [
        ss.Placement(name, stream=g, stage=k, group=g)
        for k, stage in enumerate(groups)
        for g, group in enumerate(stage)
        for name in group
    ]
    makespan = ss.simulate(ss.Schedule(graph, rows, execution="stages"), cluster).makespan
    measured = executed(graph, cluster)
    extra = 4.0 if len(groups[-1]) == 1 else -10.0
    assert makespan == pytest.approx(sum(measured(stage) for stage in groups) + extra)


def wide(batch):
    """Two convolutions of one tensor that can be merged, joined."""
    net = Network("wide")
    x = net.conv("x", net.input(batch, 8, 8, 8), 8, 1)
    net.concat("join", [net.conv("a", x, 8, 1), net.conv("b", x, 8, 3, padding=1)])
    return net.graph()


def test_merged_operators_are_executed_as_one():
    """One convolution of one kernel, longer than its launch: its solo time and a gap."""
    graph, cluster = wide(1), one_device(gap=1.0, launch=0.5)
    rewritten, made_of = merge(graph, [("a", "b")])
    assert [*made_of] == [("a+b",)]
    alone = ss.StageLatency(rewritten, cluster)([["a+b"]])
    assert executed_in_turn([rewritten["a+b"]], [alone], cluster.devices[0]) == pytest.approx(alone + 1.0)


# One stream is among IOS's choices


def on_one_stream(graph):
    """Each operator a stage of its own, all on one stream."""
    rows = [ss.Placement(name, stage=k) for k, name in enumerate(graph.order)]
    return ss.Schedule(graph, rows, execution="stages")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=graphs(), launch=st.sampled_from([0.0, 2.0, 20.0]), barrier=st.sampled_from([0.0, 5.0, 100.0]))
def test_ios_never_loses_to_one_stream(graph, launch, barrier):
    cluster = ss.Cluster.preset("a40").replace_devices(launch=launch, barrier=barrier, barrier_many=1.5 * barrier)
    plan = ss.schedule(graph, cluster, "ios")
    alone = ss.simulate(on_one_stream(graph), cluster).makespan
    assert ss.simulate(plan, cluster).makespan <= alone * (1 + 1e-12)


def test_where_barriers_cost_more_than_streams_save_ios_takes_one_stream():
    graph = ss.OpGraph(
        [ss.Operator(name, time=50.0, utilization=0.4) for name in "abc"], [ss.Edge("a", "b"), ss.Edge("a", "c")]
    )
    dear, free = (ss.Cluster.preset("a40").replace_devices(barrier=us, barrier_many=us, launch=0.1) for us in (500, 0))
    assert (ss.schedule(graph, dear, "ios").n_streams, ss.schedule(graph, free, "ios").n_streams) == (1, 2)


@pytest.mark.parametrize("name", ["squeezenet", "googlenet", "nasnet_mobile"])
def test_ios_never_loses_to_one_stream_on_networks(name):
    graph, cluster = workloads.load(name), ss.Cluster.preset("h100")
    plan = ss.schedule(graph, cluster, "ios", r=1)
    assert ss.simulate(plan, cluster).makespan <= ss.simulate(on_one_stream(graph), cluster).makespan
