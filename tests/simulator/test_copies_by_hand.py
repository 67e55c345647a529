"""Copies between devices: links, copy engines, DRAM, exact times, and how plans issue them; by hand."""

from dataclasses import replace

import pytest
from hand_made import DEVICE, assert_times, copies, grid, hand_made, run
from small import edges, operators

import simsched as ss
from simsched.base.errors import ClusterError, SimulationError

pytestmark = pytest.mark.usefixtures("both_engines")

LINK = ss.Link(100.0, latency=2.0)
UNLINKED = ss.Cluster((DEVICE, replace(DEVICE, name="gpu1")))


def pair(edge="ab=1000", cluster=None):
    """a (10 us) on gpu0, then b (10 us) on gpu1."""
    return run("a=10 b=10", edge, "a b@1", cluster or hand_made(2, link=LINK))


def test_latency_and_bandwidth():
    """2 + 1000 / 100 = 12: 10-22."""
    trace = pair()
    assert copies(trace) == [(10, 22)]
    assert_times(trace, b=(22, 32))


def test_no_bytes_take_the_latency():
    """10-12."""
    trace = pair("ab")
    assert copies(trace) == [(10, 12)]
    assert_times(trace, b=(12, 22))


def test_exact_transfer():
    """5 us, whatever the bytes; and without any link."""
    assert_times(pair("ab=1e9:5"), b=(15, 25))
    assert_times(pair("ab=1e9:5", UNLINKED), b=(15, 25))
    assert_times(pair("ab=1e9:0", UNLINKED), b=(10, 20))


def test_no_way():
    with pytest.raises(ClusterError, match="no links lead from gpu0 to gpu1"):
        pair(cluster=UNLINKED)


def test_another_cluster():
    """A program names its devices; one made for two does not run on one."""
    schedule = ss.Schedule(ss.OpGraph(operators("a=1")), [ss.Placement("a")])
    with pytest.raises(SimulationError, match="made for devices gpu0, gpu1, not gpu0"):
        ss.simulate(schedule.lower(hand_made(2)), hand_made(1))


def test_exact_transfer_loads_no_link():
    """Beside an exact copy of 50 us the other has the link to itself: 10-22."""
    assert crossing(LINK, "ac=1e4:50 bd=1000") == [(10, 22), (10, 60)]


def test_a_route_through_a_switch():
    """Latencies 1 + 2 add up, the narrower link of 50 bytes per us counts: 3 + 20 = 23: 10-33."""
    links = (("gpu0", "switch", ss.Link(100.0, 1.0)), ("switch", "gpu1", ss.Link(50.0, 2.0)))
    assert copies(pair(cluster=replace(UNLINKED, links=links))) == [(10, 33)]


# Sharing -----------------------------------------------------------------------------------------


def crossing(link, edges="ac=1000 bd=1000", times="a=10 b=10 c=1 d=1", places="a b/1 c@1 d/1@1"):
    """Copies of a -> c from gpu0 to gpu1, and of b -> d beside it."""
    return copies(run(times, edges, places, hand_made(2, link=link)))


def test_two_copies_share_a_link():
    """Each moves 50 bytes per us: 10 + 2 + 1000 / 50 = 32."""
    assert crossing(LINK) == [(10, 32), (10, 32)]


def test_the_rest_goes_faster():
    """500 bytes at 50 per us: over at 22; of the other 1,000 bytes 500 are left, at 100 per us: 27."""
    assert crossing(LINK, "ac=1000 bd=500") == [(10, 22), (10, 27)]


def test_a_later_copy_joins():
    """From 10 alone: 400 bytes by 16; then the copy of b (4 us later, from 16 on) shares.

    The first has 600 left at 50: 28. The other has moved 600 by then, 400 left at 100: 32.
    """
    found = crossing(LINK, times="a=10 b=14 c=1 d=1")
    assert found == [(10, pytest.approx(28, rel=1e-9)), (14, pytest.approx(32, rel=1e-9))]


@pytest.mark.parametrize(("duplex", "end"), [(True, 22), (False, 32)])
def test_copies_in_both_directions(duplex, end):
    """Either direction has 100 bytes per us, or both share it: 50 each."""
    link = replace(LINK, duplex=duplex)
    assert crossing(link, places="a b/1@1 c@1 d/1") == [(10, end), (10, end)]


def test_max_min_over_two_links():
    """gpu0 - switch carries 100, switch - gpu1 only 30: the copy to gpu1 gets 30, that to gpu2 the other 70.

    300 bytes at 30 and 700 at 70: both 10-20.
    """
    devices = tuple(replace(DEVICE, name=f"gpu{i}") for i in range(3))
    links = tuple((f"gpu{i}", "switch", ss.Link(rate)) for i, rate in enumerate((100.0, 30.0, 100.0)))
    trace = run("a=10 b=10 c=1 d=1", "ac=300 bd=700", "a b/1 c@1 d@2", ss.Cluster(devices, links))
    assert copies(trace) == [pytest.approx((10, 20), rel=1e-9)] * 2


@pytest.mark.parametrize(("engines", "end"), [(1, 50), (2, 30), (9, 30)])
def test_copy_engines(engines, end):
    """Links of 100, an engine moves 50: 1,000 bytes to each of two devices take 20 us, or 40 with one engine."""
    cluster = hand_made(3, copy_engines=engines, copy_rate=50.0)
    assert copies(run("a=10 b=1 c=1", "ab ac", "a b@1 c@2", cluster, nbytes=1000.0)) == [(10, end), (10, end)]


def test_one_engine_bounds_one_copy():
    """Two engines of 50 do not help a single copy: 2 + 20."""
    assert copies(pair(cluster=hand_made(2, link=LINK, copy_rate=50.0))) == [(10, 32)]


# DRAM --------------------------------------------------------------------------------------------


def test_copies_load_dram_at_both_ends():
    """10,000 bytes at 500 per us, 0-20, are half of the DRAM bandwidth at either end.

    Kernels on both devices that fill DRAM alone have the other half: m0's 10 us take 20; of m1's 30 us
    10 are done by 20, the rest alone. Compute (c) does not feel it.
    """
    rows = [grid("m0", 2, 10.0, nbytes=1e4), grid("m1", 2, 30.0, nbytes=3e4), grid("c", 2, 7.0, flops=1e3)]
    cluster = hand_made(2, link=ss.Link(500.0))
    trace = run(operators("s=0 r=1") + rows, edges("sr", 1e4), "s r@1 m0/1 m1/1@1 c/2@1", cluster)
    assert copies(trace) == [(0, 20)]
    assert_times(trace, m0=(0, 20), m1=(0, 40), c=(0, 7), r=(20, 21))


@pytest.mark.parametrize(("edge", "places"), [("sr=1e4", "s r@1 m@2"), ("sr=1e4:20", "s r@1 m/1")])
def test_copies_do_not_load_other_devices(edge, places):
    """The copy from gpu0 to gpu1 leaves gpu2 alone, and so does one of exact time gpu0."""
    rows = [*operators("s=0 r=1"), grid("m", 2, 10.0, nbytes=1e4)]
    assert_times(run(rows, edge, places, hand_made(3, link=ss.Link(500.0))), m=(0, 10))


# Plans -------------------------------------------------------------------------------------------


def test_one_copy_per_device_or_one_per_edge():
    """u feeds v and w on gpu1 and x on gpu2. Minimal: one copy to each device, 10-22.

    Literal: v's and w's copies follow each other on the stream to gpu1: 10-22, 22-34.
    """
    plan = ("u=10 v=1 w=1 x=1", edges("uv uw ux", 1000.0), "u v@1 w/1@1 x@2", hand_made(3, link=LINK))
    trace = run(*plan)
    assert copies(trace) == [(10, 22), (10, 22)]
    assert_times(trace, v=(22, 23), w=(22, 23), x=(22, 23))
    trace = run(*plan, lowered={"events": "literal"})
    assert copies(trace) == [(10, 22), (10, 22), (22, 34)]
    assert_times(trace, v=(22, 23), w=(34, 35), x=(22, 23))


def test_parallel_edges():
    """a -> b twice: equal tensors are copied once, others one after the other: 2 + 5, then 2 + 10."""
    assert_times(pair("ab=1000 ab=1000"), b=(22, 32))
    other = pair("ab=1000 ab=500")
    assert copies(other) == [(10, 17), (17, 29)]
    assert_times(other, b=(29, 39))


def test_parallel_edges_within_a_device():
    """No copy, one event: b follows a at once."""
    trace = run("a=10 b=1", "ab ab ab", "a b/1", hand_made(), nbytes=1000.0)
    assert copies(trace) == []
    assert_times(trace, b=(10, 11))


def test_copies_of_one_stream_keep_its_order():
    """a (0-10) and b (10-14) send 1,000 bytes each: the second copy waits for the first, 10-22, 22-34."""
    assert crossing(LINK, times="a=10 b=4 c=1 d=1", places="a b c@1 d/1@1") == [(10, 22), (22, 34)]


def test_host_costs_of_a_copy():
    """gpu0: launch a 0-4, record 4-5, wait 5-6, copy 6-9, record 9-10. a runs 4-14, a hop later the copy, 16-28.

    gpu1 may issue its wait when the record is issued, at 10-11, and launches b 11-15. b starts a hop after 28.
    """
    trace = pair(cluster=hand_made(2, link=LINK, launch=4.0, record=1.0, wait=1.0, copy=3.0, hop=2.0))
    assert copies(trace) == [(16, 28)]
    assert_times(trace, a=(4, 14), b=(30, 40))


def blocked(transfers, barrier=0.0):
    """a on gpu0 feeds b on gpu1; c and d are launched behind them on other streams of gpu1 and gpu0."""
    cluster = hand_made(2, link=LINK, barrier=barrier)
    return run("a=10 b=5 c=3 d=3", "ab=1000", "a b@1 c/1@1 d/1", cluster, lowered={"transfers": transfers})


def test_async_transfers_hold_no_host():
    """c and d are issued at once."""
    assert_times(blocked("async"), b=(22, 27), c=(0, 3), d=(0, 3))


def test_blocking_transfers_hold_the_hosts():
    """gpu0's host waits for a until 10 before it sends and goes on to d; gpu1's for the data until 22, then b and c."""
    assert_times(blocked("blocking"), a=(0, 10), b=(22, 27), c=(22, 25), d=(10, 13))


def test_blocking_transfers_cost_a_synchronisation():
    """A barrier of 4 us on either side: gpu0 sends at 14, 14-26; gpu1 launches at 30."""
    trace = blocked("blocking", barrier=4.0)
    assert copies(trace) == [(14, 26)]
    assert_times(trace, b=(30, 35), c=(30, 33), d=(14, 17))
