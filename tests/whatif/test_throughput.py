"""Requests per second with several in flight."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import chain, made, one_stream, operators, placements
from strategies import clusters, graphs

import simsched as ss
from simsched.base.errors import WhatIfError
from simsched.experiments.whatif.throughput import repeat, steady_period, throughput
from simsched.model import Work
from simsched.simulator.demand import placed_operator_times

A100 = ss.Cluster.preset("a100")
BARE = A100.without_overheads()
schedulers = st.sampled_from(["heft", "greedy", "nimble"])


@pytest.mark.parametrize("execution", ["events", "graph", "stages"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_pure_latency_is_served_k_at_a_time(k, execution):
    """A chain of 30 and 20 us that loads nothing, nothing else costs anything: k requests per 50 us."""
    found = throughput(one_stream(chain(30.0, 20.0), execution=execution), BARE, k)
    assert found.requests_per_s == pytest.approx(k / 50e-6)
    assert found.latency_us == pytest.approx(50.0)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_full_device_is_shared(k):
    """Operators that each fill the device: 1 / T whatever k, and each of k requests takes k T."""
    found = throughput(one_stream(chain(30.0, 20.0, utilization=1.0)), BARE, k)
    assert found.period_us == pytest.approx(50.0)
    assert found.latency_us == pytest.approx(50.0 * k)


def test_a_host_that_cannot_keep_up():
    """Three operators of 1 us, a launch of 4 us each: 12 us of host per request, whatever is in flight."""
    cluster = BARE.replace_devices(launch=4.0)
    for k in (1, 2, 7):
        assert throughput(one_stream(chain(1.0, 1.0, 1.0)), cluster, k).period_us == pytest.approx(12.0)


@pytest.mark.parametrize(("gpu", "n_launches"), [("h100", 4), ("k80", 1)])
def test_every_kernel_of_a_request_is_launched(gpu, n_launches):
    """A convolution of half precision, of which an H100 turns three tensors round: 900 us of host for each launch."""
    work = Work(
        "convolution",
        "strided",
        1e6,
        8e5,
        3e5,
        8e5,
        rows=3136,
        columns=128,
        inner=1152,
        window=9,
        elements=401408,
        images=4,
    )
    plan = one_stream(ss.OpGraph([ss.Operator("conv", works=(work,), dtype="fp16")]))
    cluster = ss.Cluster.preset(gpu).without_overheads().replace_devices(launch=900.0)
    for k in (1, 2, 5):
        found = throughput(plan, cluster, k)
        assert found.period_us == pytest.approx(n_launches * 900.0)


def test_a_captured_graph_is_launched_once_per_request():
    """Two operators of 1 us with graph_node 0.5: 1 + 0.5 + 1 + 0.5 us per request on the device, and 6 us to launch it.

    With one in flight the host hides behind nothing: it launches ahead, so that the period is the larger of the two.
    """
    plan = one_stream(chain(1.0, 1.0), execution="graph")
    cluster = BARE.replace_devices(graph_launch=6.0, graph_node=0.5)
    assert [throughput(plan, cluster, k).period_us for k in (1, 2)] == [pytest.approx(6.0)] * 2
    quick = BARE.replace_devices(graph_launch=2.0, graph_node=0.5)
    assert [throughput(plan, quick, k).period_us for k in (1, 2)] == [pytest.approx(3.0), pytest.approx(2.0)]
    nodes = BARE.replace_devices(graph_launch=0.5, graph_node=0.5)  # no more than these: 3 us for four in flight
    assert throughput(plan, nodes, 4).period_us == pytest.approx(0.75)


def test_slots_share_hardware_queues():
    """Two slots of 30 and 20 us. With a queue for each 25 us per request.

    In one queue the 30 us of a request wait behind the 20 us of the one before, which begin after its own 30: these
    never overlap, so 30 us per request.
    """
    plan = one_stream(chain(30.0, 20.0))
    periods = [throughput(plan, BARE.replace_devices(connections=n), 2).period_us for n in (2, 1)]
    assert periods == [pytest.approx(25.0), pytest.approx(30.0)]


def test_joining_streams_is_paid_for():
    """Operators a and b of 10 us on two streams, launch 0, hop 2 us: the next request waits for both.

    The stream of b, last in launch order, waits for a (hop), then the stream of a waits for it (hop): a of the next
    request begins 10 + 2 + 2 after a, b after 10 + 2; its end comes 12 after, so it is a that counts: 14 us.
    """
    plan = ss.Schedule(made("a=10 b=10"), placements("a b/1"))
    assert throughput(plan, BARE.replace_devices(hop=2.0)).period_us == pytest.approx(14.0)
    assert throughput(plan, BARE.replace_devices(record=1.0, wait=20.0)).period_us == pytest.approx(2 * 1.0 + 2 * 20.0)


def test_stages_overlap_at_their_ends_alone():
    """Stages of 10 us and 10 us behind a barrier of 5, on two streams: with two in flight last and first run together.

    Request r: stage 1, barrier, stage 2; stage 1 of request r + 1 is issued beside stage 2: 10 + 5 us per request.
    """
    graph, rows = made("a=10 b=10 c=10 d=10", "ac bd"), placements("a b/1 c.1 d/1.1")
    plan, cluster = ss.Schedule(graph, rows, "stages"), BARE.replace_devices(barrier_many=5.0)
    assert throughput(plan, cluster, 1).period_us == pytest.approx(25.0)
    assert throughput(plan, cluster, 2).period_us == pytest.approx(15.0)


def test_two_devices_are_a_pipeline():
    """30 us on one device, 20 us on the other, a copy of 1000 bytes at 100 bytes/us: 60 us, or the slowest device.

    Each fills its device. With one in flight 30 + 10 + 20; with three the first device is busy all the time: 30.
    """
    plan = ss.Schedule(made(operators("a=30 b=20", utilization=1.0), "ab=1000"), placements("a b@1"))
    cluster = ss.Cluster.preset("k80", 2).without_overheads().replace_links(bandwidth=100.0, latency=0.0)
    assert throughput(plan, cluster, 1).period_us == pytest.approx(60.0)
    assert throughput(plan, cluster, 3).period_us == pytest.approx(30.0)


@settings(max_examples=12)
@given(graph=graphs(max_ops=6, timed=True), cluster=clusters(max_gpus=2), name=schedulers)
def test_one_in_flight_without_overheads_is_the_makespan(graph, cluster, name):
    """Nothing is waited for but the request itself: the period is its makespan."""
    cluster = cluster.without_overheads()
    plan = ss.schedule(graph, cluster, name)
    makespan = ss.simulate(plan, cluster).makespan
    if makespan == 0:
        with pytest.raises(WhatIfError, match="take no time"):
            throughput(plan, cluster)
    else:
        assert throughput(plan, cluster).period_us == pytest.approx(makespan, rel=1e-6)


@settings(max_examples=12)
@given(graph=graphs(max_ops=5), cluster=clusters(max_gpus=2), k=st.integers(1, 3), name=schedulers)
def test_requests_follow_each_other_on_both_engines(graph, cluster, k, name):
    """Request r + k begins when request r has ended, whichever engine runs it."""
    program = ss.schedule(graph, cluster, name).lower(cluster)
    times, graph_launch = placed_operator_times(program, cluster, None), 5.0 if name == "nimble" else None
    many = repeat(program, times, np.arange(k) * 9.0, 7, graph_launch)
    trace = ss.simulate(many, cluster)
    assert ss.simulate(many, cluster, engine="reference").makespan == pytest.approx(trace.makespan)
    times, n = np.array(list(trace.operator_times().values())), len(graph)
    for r in range(7 - k):
        assert times[(r + k) * n : (r + k + 1) * n, 0].min() >= times[r * n : (r + 1) * n, 1].max() * (1 - 1e-9)


def test_periods_that_do_not_repeat():
    """Three in flight, request i of 20 ends at i^2: thirds of 6 requests, from the ends 7^2 to 13^2 to 19^2.

    120 and 192 us are not alike: (361 - 49) / 12 = 26 us, not settled. At 100 i + (i^2 mod 7) they are 1301 - 700 =
    601 and 1904 - 1301 = 603, at 200 i 1201 and 1203: 2 us are more than 0.3 % of the one, less than that of the other.
    """
    i = np.arange(20.0)
    assert steady_period(i**2, 3) == (26.0, False)
    assert steady_period(100 * i + i**2 % 7, 3) == (pytest.approx(1204 / 12), False)
    assert steady_period(200 * i + i**2 % 7, 3) == (pytest.approx(2404 / 12), True)


def test_patterns_of_periods():
    """Gaps of 10 and 30 us in turn: 40 us per two."""
    ends = np.cumsum(np.tile([10.0, 30.0], 10))
    assert steady_period(ends, 1) == (20.0, True)
    late = np.array([0.0, 1.0, 3.0, 7.0, 20.0, 21.0, 31.0, 41.0, 51.0, 61.0])  # alike from the last third on
    assert steady_period(late, 1) == (10.0, True)


def test_what_never_settles_is_given_up_and_told(monkeypatch):
    """If nothing were alike: two instructions per request, no more than 65,536 in all, so 32,768 requests."""
    module = sys.modules[throughput.__module__]
    plan = one_stream(chain(30.0, 20.0))
    assert throughput(plan, BARE).settled
    monkeypatch.setattr(module, "_EXACT", -1.0)
    monkeypatch.setattr(module, "_SETTLED", -1.0)
    found = throughput(plan, BARE)
    assert (found.requests, found.settled, found.period_us) == (2**15, False, pytest.approx(50.0))
    assert "the period had not settled" in repr(found)
