"""What issuing, ordering, barriers and captured graphs cost, by hand."""

import pytest
from hand_made import assert_times, hand_made, run
from small import operators

import simsched as ss

pytestmark = pytest.mark.usefixtures("both_engines")

TWO_KERNELS = ss.Operator("a", time=10.0, kernels=(ss.Kernel(1, share=0.5), ss.Kernel(1, share=0.5)))

# Chains ------------------------------------------------------------------------------------------


def test_launch_bound_chain():
    """The host issues at 4, 8, 12; each kernel of 1 us is over, and the gap of 1 us too, before the next is issued."""
    trace = run("a=1 b=1 c=1", "ab bc", "a b c", hand_made(launch=4.0, gap=1.0))
    assert_times(trace, a=(4, 5), b=(8, 9), c=(12, 13))


def test_gap_bound_chain():
    """Kernels of 10 us are issued in time: 4-14, a gap of 1, 15-25, 26-36."""
    trace = run("a=10 b=10 c=10", "ab bc", "a b c", hand_made(launch=4.0, gap=1.0))
    assert_times(trace, a=(4, 14), b=(15, 25), c=(26, 36))


def test_every_kernel_of_an_operator_is_launched():
    """Kernels of 5 us each, issued at 4 and 8, without a gap between them: 4-9, 9-14."""
    trace = run([TWO_KERNELS], [], "a", hand_made(launch=4.0, gap=1.0))
    assert [(s.start, s.end) for s in trace.spans if s.kind == "kernel"] == [(4, 9), (9, 14)]


# Events ------------------------------------------------------------------------------------------

OVERHEADS = {"launch": 4.0, "record": 1.0, "wait": 1.5, "hop": 2.0, "gap": 1.0}


def test_fork_and_join():
    """a (10) forks to b (20) on its own stream and to c (30) on another; d joins b and c.

    Host: launch a 0-4, record 4-5, launch b 5-9, wait 9-10.5, launch c 10.5-14.5, record 14.5-15.5,
    wait 15.5-17, launch d 17-21. a runs 4-14; b a gap later 15-35; c a hop later 16-46; d a hop
    after c at 48, which is later than a gap after b: 48-53.
    """
    trace = run("a=10 b=20 c=30 d=5", "ab ac bd cd", "a b c/1 d", hand_made(**OVERHEADS))
    assert_times(trace, a=(4, 14), b=(15, 35), c=(16, 46), d=(48, 53))


def test_an_event_of_long_ago_costs_no_hop():
    """As above, but c takes 1 us, 16-17: its hop is over at 19, b ends at 35, and d starts a gap later, at 36."""
    trace = run("a=10 b=20 c=1 d=5", "ab ac bd cd", "a b c/1 d", hand_made(**OVERHEADS))
    assert_times(trace, b=(15, 35), c=(16, 17), d=(36, 41))


def test_a_wait_holds_its_stream_only():
    """c waits for a (0-10) on stream 1, where d follows; b on stream 2 does not wait."""
    trace = run("a=10 b=3 c=1 d=1", "ac", "a c/1 d/1 b/2", hand_made())
    assert_times(trace, a=(0, 10), b=(0, 3), c=(10, 11), d=(11, 12))


def test_minimal_events_drop_what_is_implied():
    """c waits for b, and b for a, each on a stream of its own; literal plans make c wait for a as well.

    Host, minimal: launch a, record, wait, launch b, record, wait, launch c: 3 x 4 + 2 x 1 + 2 x 1.5 = 17;
    literal: a wait more, 18.5. The operators take no time, and the hops of a (7) and b (13.5) are over.
    """
    plan = ("a=0 b=0 c=0", "ab bc ac", "a b/1 c/2", hand_made(**OVERHEADS))
    assert_times(run(*plan), c=(17, 17))
    assert_times(run(*plan, lowered={"events": "literal"}), c=(18.5, 18.5))


def test_one_thread_or_one_per_device():
    """Two launches of 4 us: side by side with a thread per device, one after the other with one thread."""
    plan = ("a=10 b=10", "", "a b@1", hand_made(2, launch=4.0))
    assert_times(run(*plan), a=(4, 14), b=(4, 14))
    assert_times(run(*plan, lowered={"threads": "one"}), a=(4, 14), b=(8, 18))


# Stages ------------------------------------------------------------------------------------------


def test_barrier():
    """a (10) and b (20) run side by side; the barrier waits until 20 and costs 10; c (5) and d (6) start at 30.

    With launches of 4 us: they end at 4 and 8; b runs 8-28, the barrier 28-38, then launches to 42 and 46.
    """
    plan = ("a=10 b=20 c=5 d=6", "ac bd", "a b/1 c.1 d/1.1")
    trace = run(*plan, hand_made(barrier=10.0), "stages")
    assert_times(trace, a=(0, 10), b=(0, 20), c=(30, 35), d=(30, 36))
    assert trace.makespan == 36  # no barrier behind the last stage
    trace = run(*plan, hand_made(barrier=10.0, launch=4.0), "stages")
    assert_times(trace, a=(4, 14), b=(8, 28), c=(42, 47), d=(46, 52))


def test_no_barrier_between_single_groups_of_one_stream():
    """Three stages of one group on stream 0: 0-10, 10-20, 20-30; the stream orders them."""
    trace = run("a=10 b=10 c=10", "ab bc", "a b.1 c.2", hand_made(barrier=10.0), "stages")
    assert_times(trace, a=(0, 10), b=(10, 20), c=(20, 30))


def test_barrier_between_single_groups_of_two_streams():
    """Nothing else orders streams 0 and 1 in stages: 0-10, a barrier of 10, 20-30."""
    trace = run("a=10 b=10", "ab", "a b/1.1", hand_made(barrier=10.0), "stages")
    assert_times(trace, a=(0, 10), b=(20, 30))


def test_barrier_before_and_behind_two_groups():
    """One group, two groups, one group: a barrier on either side of the two. 0-10, 20-30 and 20-25, 40-50."""
    trace = run("a=10 b=10 c=5 d=10", "ab ac bd cd", "a b.1 c/1.1 d.2", hand_made(barrier=10.0), "stages")
    assert_times(trace, a=(0, 10), b=(20, 30), c=(20, 25), d=(40, 50))


def test_barriers_are_of_one_device():
    """gpu1 needs no barrier: its stages run 0-10 and 10-20, while gpu0 waits for 30 and the barrier of 10."""
    plan = ("a=10 b=30 c=10 d=5 e=10", "", "a b/1 c@1 d.1 e@1.1")
    assert_times(run(*plan, hand_made(2, barrier=10.0), "stages"), c=(0, 10), d=(40, 45), e=(10, 20))


# Captured graphs ---------------------------------------------------------------------------------


def test_captured_graph():
    """One launch of 6, roots at once; c joins a (6-16) and b (6-26) a latency of 1 later: 27-32."""
    cluster = hand_made(graph_launch=6.0, graph_node=1.0, launch=50.0, record=50.0, wait=50.0, gap=50.0, hop=50.0)
    trace = run("a=10 b=20 c=5", "ac bc", "a b/1 c", cluster, "graph")
    assert_times(trace, a=(6, 16), b=(6, 26), c=(27, 32))
    assert_times(run("a=10 b=20 c=5", "ac bc", "a b/1 c/2", cluster, "graph"), c=(27, 32))


def test_captured_chain():
    """6, then kernels of 10 with a latency of 1 between operators, none between the kernels of one: 6-16, 17-27."""
    cluster = hand_made(graph_launch=6.0, graph_node=1.0, launch=50.0)
    assert_times(run([TWO_KERNELS, *operators("b=10")], "ab", "a b", cluster, "graph"), a=(6, 16), b=(17, 27))


def test_captured_copy_is_a_node():
    """a 6-16, a latency of 1, the copy of 1,000 bytes at 100 per us 17-27, a latency of 1, b 28-38."""
    cluster = hand_made(2, graph_launch=6.0, graph_node=1.0, launch=50.0, copy=50.0)
    assert_times(run("a=10 b=10", "ab", "a b@1", cluster, "graph", nbytes=1000.0), a=(6, 16), b=(28, 38))


# Hardware connections ------------------------------------------------------------------------------


@pytest.mark.parametrize(("connections", "start"), [(1, 10), (2, 0), (32, 0)])
def test_streams_that_share_a_queue(connections, start):
    """Issued are a1, a2 on stream 0 and b on stream 1: with one queue b gets through when a2 has begun, at 10."""
    trace = run("a1=10 a2=10 b=3", "", "a1 a2 b/1", hand_made(connections=connections))
    assert_times(trace, a1=(0, 10), a2=(10, 20), b=(start, start + 3))


def test_queues_are_taken_in_turn():
    """With two queues stream 2 shares that of stream 0, stream 1 has the other."""
    trace = run("a1=10 a2=10 b=3 c=3", "", "a1 a2 b/1 c/2", hand_made(connections=2))
    assert_times(trace, b=(0, 3), c=(10, 13))


def test_a_wait_blocks_its_queue():
    """y on stream 1 waits for x (0-10); z on stream 2 was issued behind it: in one queue it starts at 10, else at 0."""
    plan = ("x=10 y=5 z=3", "xy", "x y/1 z/2")
    assert_times(run(*plan, hand_made(connections=1)), y=(10, 15), z=(10, 13))
    assert_times(run(*plan, hand_made(connections=3)), y=(10, 15), z=(0, 3))
    assert_times(run(*plan, hand_made(connections=1, contention=False)), z=(0, 3))
