"""Streams that are bound to SMs of their device: 10 SMs that hold a block each; worked by hand."""

import pytest
from hand_made import grid, hand_made, simulate
from small import made, placements

import simsched as ss
from hwbackend.synthetic_backend import SyntheticBackend

ENGINES = pytest.mark.parametrize("engine", ["reference", "compiled"])


def run_bound(ops, places, sms, engine):
    """Run operators with streams of gpu0 bound to SMs, by the number of the stream."""
    plan = ss.Schedule(ss.OpGraph(ops), placements(places)).with_partitions(sms)
    found = simulate(plan, hand_made(), engine=engine).operator_times()
    return {name: pytest.approx(times) for name, times in found.items()}


@ENGINES
def test_a_kernel_has_more_waves_on_fewer_sms(engine):
    """Ten blocks of 10 us, one on each SM: two waves on five SMs, five on two."""
    assert run_bound([grid("a", 10, 10.0)], "a", {0: 5}, engine) == {"a": (0.0, 20.0)}
    assert run_bound([grid("a", 10, 10.0)], "a", {0: 2}, engine) == {"a": (0.0, 50.0)}
    assert run_bound([grid("a", 10, 10.0)], "a", {0: 10}, engine) == {"a": (0.0, 10.0)}


@ENGINES
def test_partitions_do_not_hold_each_other_up(engine):
    """Each of two kernels has five SMs from 0 on; without partitions the second would wait until 10."""
    ops = [grid("a", 10, 10.0), grid("b", 10, 10.0)]
    assert run_bound(ops, "a b/1", {0: 5, 1: 5}, engine) == {"a": (0.0, 20.0), "b": (0.0, 20.0)}
    assert run_bound(ops, "a b/1", {}, engine) == {"a": (0.0, 10.0), "b": (10.0, 20.0)}


@ENGINES
def test_a_stream_without_a_partition_has_what_is_free(engine):
    """The first kernel has two SMs until 50; the second has eight at 0, and its last two blocks run from 10 to 20."""
    ops = [grid("a", 10, 10.0), grid("b", 10, 10.0)]
    assert run_bound(ops, "a b/1", {0: 2}, engine) == {"a": (0.0, 50.0), "b": (0.0, 20.0)}


@ENGINES
def test_a_kernel_that_dram_binds_needs_half_of_the_sms(engine):
    """It moves 1,000 bytes a us, all that DRAM can: on five SMs, too. On two, each of which draws twice its share, 400.

    One whose blocks do not fill the partition runs as without.
    """
    fields = {"nbytes": 10_000.0, "intensity": "memory"}
    assert run_bound([grid("a", 10, 10.0, **fields)], "a", {0: 5}, engine) == {"a": (0.0, 10.0)}
    assert run_bound([grid("a", 10, 10.0, **fields)], "a", {0: 2}, engine) == {"a": (0.0, 25.0)}
    assert run_bound([grid("a", 3, 10.0, **fields)], "a", {0: 5}, engine) == {"a": (0.0, 10.0)}


@ENGINES
def test_utilization_is_of_all_sms(engine):
    """What keeps all SMs busy takes twice as long on half of them; what keeps half of them busy does not."""
    assert run_bound([ss.Operator("a", time=10.0, utilization=1.0)], "a", {0: 5}, engine) == {"a": (0.0, 20.0)}
    assert run_bound([ss.Operator("a", time=10.0, utilization=0.5)], "a", {0: 5}, engine) == {"a": (0.0, 10.0)}


@ENGINES
def test_blocks_of_others_lie_outside_of_a_partition_while_there_is_room(engine):
    """Blocks of 512 threads, each half an SM's load; the partition's SM is full with two of them.

    Of the other stream 18 lie on the nine SMs outside, two on each. With 20 the partition would have a part of them.
    """
    ops = [grid("a", 2, 10.0, 512), grid("b", 18, 10.0, 512)]
    assert run_bound(ops, "a b/1", {0: 1}, engine) == {"a": (0.0, 10.0), "b": (0.0, 10.0)}


@ENGINES
def test_a_collective_has_as_many_blocks_as_its_partition_holds(engine):
    """Of ten blocks two have places on two SMs; eight SMs are left for a kernel of eight blocks."""
    collective = ss.Collective("all_reduce", 1000.0, 2, algorithm="ring")
    ops = [
        ss.Operator("r", time=30.0, collective=collective, kernels=(ss.Kernel(10, threads=1024),)),
        grid("b", 8, 10.0),
    ]
    assert run_bound(ops, "r b/1", {0: 2}, engine) == {"r": (0.0, 30.0), "b": (0.0, 10.0)}


def test_files_and_searches_keep_partitions():
    cluster = hand_made()
    plan = ss.Schedule(ss.OpGraph([grid("a", 10, 10.0)]), placements("a"), partitions=[ss.Partition("gpu0", 0, 5)])
    assert ss.Schedule.from_dict(plan.to_dict()) == plan
    assert plan != plan.like(partitions=())
    program = plan.lower(cluster)
    assert ss.Program.from_dict(program.to_dict()) == program
    assert ss.simulate(ss.Program.from_dict(program.to_dict()), cluster).makespan == pytest.approx(20.0)
    search = ss.Evaluator(plan, cluster)
    assert search.makespan == pytest.approx(20.0)
    assert search.schedule().partitions == plan.partitions
    assert search.move("a", stream=1) == pytest.approx(10.0)


def test_what_if_binds_streams():
    plan = ss.Schedule(ss.OpGraph([grid("a", 10, 10.0)]), placements("a"))
    asked = ss.what_if(plan, hand_made())
    assert asked.set("stream.0.sms", 5).makespan == pytest.approx(20.0)
    assert asked.set("stream.3.sms", 5).makespan == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ([("gpu0", 0, 5), ("gpu0", 0, 5)], "partition of stream 0 on 'gpu0': it stands twice; give the stream one"),
        ([("gpu0", 0, 6), ("gpu0", 1, 5)], "partition of stream 1 on 'gpu0': 11 SMs of 10 are taken in all"),
        ([("gpu1", 0, 5)], "partition of stream 0 on 'gpu1': the cluster has no such device; known are: gpu0"),
    ],
)
def test_partitions_that_cannot_be_are_refused(partitions, message):
    plan = ss.Schedule(made("a=1"), placements("a"), partitions=[ss.Partition(*each) for each in partitions])
    with pytest.raises(ss.SimschedError, match=message):
        plan.check(hand_made())
    with pytest.raises(ss.SimschedError, match=message):
        ss.simulate(ss.Schedule(made("a=1"), placements("a")).lower(hand_made()).bound_to(plan.partitions), hand_made())


def test_half_of_an_h100_for_a_stream():
    """With the sheet's numbers: a kernel of as many blocks as there are SMs takes two waves on half of them."""
    cluster = ss.Cluster.preset("h100").without_overheads()
    sms = cluster.devices[0].sms
    kernel = ss.Kernel(sms, threads=1024, shared_memory=200 * 1024)
    plan = ss.Schedule(ss.OpGraph([ss.Operator("a", time=10.0, kernels=(kernel,))]), placements("a"))
    assert ss.simulate(plan.with_partitions({0: sms // 2}), cluster).makespan == pytest.approx(20.0, rel=0.1)


def test_what_runs_no_partitions_refuses_them():
    """Backends, and several requests in flight, each on streams of its own."""
    plan = ss.Schedule(ss.OpGraph([grid("a", 10, 10.0)]), placements("a")).with_partitions({0: 5})
    assert ss.throughput(plan, hand_made()).period_us == pytest.approx(20.0)
    with pytest.raises(ss.SimschedError, match="bound to SMs serve one request at a time"):
        ss.throughput(plan, hand_made(), 2)
    with pytest.raises(ss.SimschedError, match="runs no streams that are bound to SMs"):
        SyntheticBackend().replay(plan)
