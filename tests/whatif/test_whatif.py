"""What-if answers worked by hand, each also against a simulation of a cluster or a graph edited by hand."""

from dataclasses import replace

import pytest
from small import chain, made, one_stream, operators, placements

from simsched.base.errors import WhatIfError
from simsched.experiments.ranges import unsure_of
from simsched.experiments.whatif import absolute, parse_change, what_if
from simsched.model import Cluster, Operator, OpGraph, Schedule
from simsched.model.costmodel import USUAL, terms_on
from simsched.simulator import simulate

FREE = Cluster.preset("a100").without_overheads()
PAIR = Cluster.preset("a100", 2).without_overheads()


def convolutions(a, b, c):
    """One after the other, then a ReLU of 5 us."""
    return made([*operators(f"a={a} b={b} c={c}", kind="conv"), Operator("d", "relu", time=5.0)], "ab bc cd")


def test_quicker_operators_of_a_chain():
    """Convolutions of 10, 20 and 30 us and a ReLU of 5 us, one after the other: 65 us.

    Convolutions 1.25 times as quick take 8, 16 and 24 us: 48 + 5 = 53 us, all of it compute.
    """
    plan = one_stream(convolutions(10, 20, 30))
    asked = what_if(plan, FREE).operators(kind="conv", speed=1.25)
    assert (asked.makespan_before, asked.makespan, asked.difference) == (65.0, 53.0, -12.0)
    assert (asked.direct, asked.rescheduling) == (-12.0, 0.0)
    assert asked.speedup == 65 / 53
    assert (asked.blame_before["compute"], asked.blame["compute"]) == (65.0, 53.0)
    assert simulate(one_stream(convolutions(8, 16, 24)), FREE).makespan == 53.0
    assert what_if(plan, FREE).operators("c", "d", speed=2.0).makespan == 47.5  # 10 + 20 + 15 + 2.5
    assert what_if(plan, FREE).operators(speed=absolute(5.0)).makespan == 13.0


def fork(bandwidth=275e3, latency=2.0):
    """a of 10 us, then b of 5 us beside it on gpu0 and c of 20 us on gpu1, to which 2.75 MB go."""
    links = tuple((x, y, replace(link, bandwidth=bandwidth, latency=latency / 2)) for x, y, link in PAIR.links)
    graph = made("a=10 b=5 c=20", "ab ac", nbytes=2.75e6)
    return Schedule(graph, placements("a b c@1")), replace(PAIR, links=links)


def test_faster_links_of_a_fork_over_two_gpus():
    """The copy takes 2 us + 2.75 MB / 275 GB/s = 12 us, so c ends at 10 + 12 + 20 = 42 us.

    Links of twice the bandwidth: 2 + 5 = 7 us, c ends at 37 us. Half the latency besides: 6 us, 36 us. Absolutely,
    at 550 GB/s, 37 us again. The critical path goes through the copy: transfer 12 us, then 7 us.
    """
    plan, cluster = fork()
    asked = what_if(plan, cluster).link(bandwidth=2.0)
    assert (asked.makespan_before, asked.makespan, asked.direct) == (42.0, 37.0, -5.0)
    assert (asked.blame_before["transfer"], asked.blame["transfer"]) == (12.0, 7.0)
    assert asked.link(latency=0.5).makespan == 36.0
    assert what_if(plan, cluster).link(bandwidth=absolute(550e3)).makespan == 37.0
    assert simulate(*fork(bandwidth=550e3)).makespan == 37.0
    assert simulate(*fork(bandwidth=550e3, latency=1.0)).makespan == 36.0


def test_what_rescheduling_adds_to_a_faster_link():
    """Two operators of 10 us that read 2.75 MB from a of 1 us: one after the other on one GPU they end at 21 us.

    Over two GPUs the second would begin at 1 + 12 = 13 us and end at 23 us: HEFT keeps both on gpu0. A link 10 times as
    fast and without latency moves the tensor in 1 us: the second ends at 1 + 1 + 10 = 12 us. None of the 9 us come
    from the link by itself.
    """
    graph = made(operators("a=1 b=10 c=10", utilization=1.0), "ab ac", nbytes=2.75e6)
    asked = what_if(graph, PAIR, True, scheduler="heft", options={"streams": 1}).link(bandwidth=10.0, latency=0)
    assert asked.makespan_before == pytest.approx(21.0)
    assert asked.makespan == pytest.approx(12.0)
    assert asked.direct == 0.0
    assert asked.rescheduling == pytest.approx(-9.0)
    assert asked.plan.devices_used == ("gpu0", "gpu1")


def test_a_launch_bound_network():
    """Ten kernels of 1 us on one stream, each issued in 6 us, known 2 us later, with 0.9 us between two at least.

    Kernel k begins at 6 k + 2 us: the last ends at 63 us. Calls that take no time, of which the device knows 8 us
    later: 8 + 10 x 1 + 9 x 0.9 = 26.1 us, and 18.1 us if it knows at once. As a captured graph: 6 us of launch, then
    10 x 1 + 9 x 0.3 = 18.7 us. Launches of 3 us are known 5 us later, the last of them at 35 us: 36 us.
    """
    graph, cluster = chain(*[1.0] * 10), Cluster.preset("a100")
    asked = what_if(one_stream(graph), cluster)
    free, captured = asked.overhead(launch=0, launch_latency=0), asked.execution("graph")
    assert asked.makespan == pytest.approx(63.0)
    assert asked.overhead(launch=0).makespan == pytest.approx(26.1)
    assert free.makespan == pytest.approx(18.1)
    assert captured.makespan == pytest.approx(18.7)
    assert asked.overhead(launch=absolute(3.0)).makespan == asked.overhead(launch=0.5).makespan == pytest.approx(36.0)
    assert asked.overhead(0).makespan == 10.0
    assert (asked.blame["launch"], free.blame["launch"]) == (pytest.approx(62.0), 0.0)
    by_hand = cluster.replace_devices(launch=0.0, launch_latency=0.0)
    assert free.makespan == simulate(one_stream(graph), by_hand).makespan
    assert captured.makespan == simulate(one_stream(graph, execution="graph"), cluster).makespan
    assert captured.plan.execution == "graph"


def test_fusing_a_launch_bound_chain():
    """Four operators of 1 us that have no FLOP: fused by pairs there are two of 2 us, known at 8 and 14 us: 16 us."""
    asked = what_if(one_stream(chain(*[1.0] * 4)), Cluster.preset("a100")).fuse(["o0", "o1"]).fuse(["o2", "o3"])
    assert (asked.makespan_before, asked.makespan) == (pytest.approx(27.0), pytest.approx(16.0))
    assert asked.graph.names == ("o0+o1", "o2+o3")


def test_what_fusing_saves_of_a_pair_bound_by_dram():
    """A copy and a ReLU of 0.622 MB in, 0.622 MB out each: each moves 1.244 MB.

    Fused they move 1.244 MB, not 2.488: the tensor between is neither written nor read. By the roofline that takes half
    as long as the two together, so of the 8 us that they were measured to take, 4 us are left.
    """
    graph = made(operators("copy=4 relu=4", nbytes=1.244e6), "copy-relu=0.622e6")
    asked = what_if(graph, FREE).fuse(["copy", "relu"])
    assert asked.makespan_before == 8.0
    assert asked.makespan == pytest.approx(4.0)
    assert asked.graph["copy+relu"].nbytes == 1.244e6


def test_another_card():
    """An operator bound by DRAM, roofline 2.73 + 1 us on an A100: on an H100 of 3352 GB/s 2.1 + 1555 / 3352 us.

    Measured to take twice as long, it goes on doing so. One of the same time without FLOP and bytes stays.
    """
    rows = [Operator("moves", time=7.46, nbytes=0.75 * 1.555e6), Operator("waits", time=7.46)]
    asked = what_if(one_stream(made(rows, "moves-waits")), FREE).device("h100")
    assert asked.makespan == pytest.approx(2 * (2.1 + 1555 / 3352) + 7.46)
    assert asked.cluster.devices[0].launch == 0.0
    assert asked.notes == (
        "1 of 2 operators have a time but neither FLOP nor bytes, 'waits' for one: no rate of a device changes it",
    )


def test_half_the_sms():
    """An operator of FLOP alone, 18 us of roofline and 2.73 us to start: 54 SMs take 2.73 + 36 us."""
    flops = 18.0 * 0.75 * FREE.devices[0].peak_rate("fp32")
    asked = what_if(OpGraph([Operator("a", flops=flops)]), FREE)
    assert asked.makespan == pytest.approx(20.73)
    assert asked.device(sms=0.5).makespan == pytest.approx(38.73)
    assert asked.device(clock=0.5).makespan == asked.device(peak=0.5).makespan == pytest.approx(38.73)
    assert asked.device(sms=absolute(54.0)).cluster.devices[0].sms == 54
    assert asked.device(bandwidth=2.0).makespan == asked.makespan


def test_slower_memory_of_an_estimated_operator():
    """An operator bound by DRAM takes start + tail + memory term: twice the term adds that term; given times stay."""
    cluster = Cluster.preset("a100").without_overheads()
    graph = OpGraph([Operator("a", nbytes=1e9), Operator("b", time=50.0)], [])
    terms = terms_on(graph, cluster.devices[0])
    answer = what_if(one_stream(graph), cluster).set("memory_factor", 2.0).answer()
    assert answer.makespan - answer.makespan_before == pytest.approx(terms.memory[0], rel=1e-9)
    with pytest.raises(WhatIfError, match="memory_factor changes estimated times, and no operator has one"):
        what_if(made("a=5"), cluster).set("memory_factor", 2.0).answer()


@pytest.mark.parametrize("gpus", [1, 2])
def test_each_parameter_that_ranges_name_can_be_set_by_that_name(gpus):
    """So that a reader of "depends most on ..." can ask what that parameter does."""
    cluster = Cluster.preset("a100", gpus)
    graph = OpGraph([Operator("a", nbytes=1e9)])
    for unsure in unsure_of(cluster):
        change = parse_change(f"{unsure.name}*=1.5")
        question = what_if(graph, cluster).set(change.parameter, change.given)
        assert question.makespan > 0
        assert question.revision.rates != USUAL or question.cluster != cluster or unsure.name == "interference"
