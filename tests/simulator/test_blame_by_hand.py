"""What the time on the critical path is blamed on, for runs worked by hand."""

import pytest
from hand_made import assert_blame, grid, hand_made, run, side_by_side
from small import operators

import simsched as ss

pytestmark = pytest.mark.usefixtures("both_engines")

LINK = ss.Link(100.0, latency=2.0)


def test_launch_bound_chain():
    """Launches 0-4, 4-8, 8-12, then c 12-13: the host all the way, and one kernel."""
    trace = run("a=1 b=1 c=1", "ab bc", "a b c", hand_made(launch=4.0, gap=1.0))
    assert_blame(trace, launch=12.0, compute=1.0)
    assert trace.critical_path().operators == ("c",)


def test_gap_bound_chain():
    """Launch 0-4, a 4-14, gap, b 15-25, gap, c 26-36."""
    trace = run("a=10 b=10 c=10", "ab bc", "a b c", hand_made(launch=4.0, gap=1.0))
    assert_blame(trace, launch=4.0, compute=30.0, dependency=2.0)
    assert trace.critical_path().operators == ("a", "b", "c")


def test_contended_pair():
    """long would take 30 alone and takes 40 beside short."""
    pair = operators("short=10 long=30", utilization=1.0)
    assert_blame(side_by_side(pair, hand_made()), compute=30.0, contention=10.0)


def test_waiting_for_slots():
    """b is ready at 0, gets slots at 20 and ends at 25; the path does not lead through a."""
    trace = side_by_side([grid("a", 20, 20.0), grid("b", 10, 5.0)], hand_made())
    assert_blame(trace, compute=5.0, contention=20.0)
    assert trace.critical_path().operators == ("b",)


def test_events_and_a_hop():
    """Launch 0-4; a 4-14; a hop of 2; b on the other stream 16-26."""
    trace = run("a=10 b=10", "ab", "a b/1", hand_made(launch=4.0, record=1.0, wait=1.0, hop=2.0))
    assert_blame(trace, launch=4.0, compute=20.0, dependency=2.0)


def test_records_and_waits_of_the_host():
    """Operators of no time: launch a 0-4, record 4-5, wait 5-6, launch b 6-10, and b is there."""
    trace = run("a=0 b=0", "ab", "a b/1", hand_made(launch=4.0, record=1.0, wait=1.0))
    assert_blame(trace, launch=8.0, sync=2.0)


def test_two_devices_and_a_copy():
    """Launch 0-4, a 4-14, hop to 16, copy 16-28, hop to 30, b 30-40 (see the test of host costs of a copy)."""
    cluster = hand_made(2, link=LINK, launch=4.0, record=1.0, wait=1.0, copy=3.0, hop=2.0)
    trace = run("a=10 b=10", "ab", "a b@1", cluster, nbytes=1000.0)
    assert_blame(trace, launch=4.0, compute=20.0, transfer=12.0, dependency=4.0)
    assert trace.critical_path().operators == ("a", "b")


def test_a_copy_issued_late():
    """a takes no time: launch 0-4, record 4-5, wait 5-6, copy issued 6-9, copied 9-21, b 21-31."""
    cluster = hand_made(2, link=LINK, launch=4.0, record=1.0, wait=1.0, copy=3.0)
    trace = run("a=0 b=10", "ab", "a b@1", cluster, nbytes=1000.0)
    assert_blame(trace, launch=7.0, sync=2.0, transfer=12.0, compute=10.0)


def test_copies_that_share_a_link():
    """Both copies 10-32 where 12 us would do: transfer 12, contention 10; then c 32-42."""
    trace = run("a=10 b=10 c=10 d=10", "ac bd", "a b/1 c@1 d/1@1", hand_made(2, link=LINK), nbytes=1000.0)
    assert_blame(trace, compute=20.0, transfer=12.0, contention=10.0)


def test_barrier():
    """Launches 0-8, b 8-28, barrier 28-38, launch c 38-42, c 42-47."""
    trace = run("a=10 b=20 c=5", "ac bc", "a b/1 c.1", hand_made(launch=4.0, barrier=10.0), "stages")
    assert_blame(trace, launch=12.0, compute=25.0, sync=10.0)
    assert trace.critical_path().operators == ("b", "c")


def test_captured_graph():
    """6, a 6-16, a latency of 1, b 17-27."""
    trace = run("a=10 b=10", "ab", "a b/1", hand_made(graph_launch=6.0, graph_node=1.0), "graph")
    assert_blame(trace, launch=6.0, compute=20.0, dependency=1.0)


def test_blocking_transfers():
    """a 0-10, gpu0's host 10-14, copy 14-26, gpu1's host 26-30, b 30-35: the hosts' 8 us are synchronisation."""
    cluster = hand_made(2, link=LINK, barrier=4.0)
    trace = run("a=10 b=5", "ab", "a b@1", cluster, lowered={"transfers": "blocking"}, nbytes=1000.0)
    assert_blame(trace, compute=15.0, transfer=12.0, sync=8.0)
