"""What issuing, ordering, barriers and captured graphs cost, and what the critical path is blamed on, by hand."""

from math import nan

import pytest
from hand_made import case, hand_made, operators, run

import simsched as ss

pytestmark = pytest.mark.usefixtures("both_engines")

TWO_KERNELS = [ss.Operator("a", time=10.0, kernels=(ss.Kernel(1, share=0.5), ss.Kernel(1, share=0.5)))]
QUICK, SLOW = hand_made(launch=4.0, gap=1.0), hand_made(launch=4.0, record=1.0, wait=1.5, hop=2.0, gap=1.0)
BARRIER = hand_made(barrier=7.0, barrier_many=10.0)
SLOW_BARRIER = hand_made(barrier=7.0, barrier_many=10.0, launch=4.0)
CAPTURED = hand_made(graph_launch=6.0, graph_node=1.0, launch=50.0, record=50.0, wait=50.0, gap=50.0, hop=50.0)
JOINED, SERIAL = (
    hand_made(graph_launch=6.0, graph_node=1.0, **more) for more in ({"graph_join": 3.0}, {"graph_issue": 2.0})
)
CASES = {
    # Chains ----------------------------------------------------------------------------------------
    # The host issues at 4, 8, 12; each kernel of 1 us is over, and the gap of 1 us too, before the next is issued.
    "a launch-bound chain": case(
        "a=1 b=1 c=1",
        QUICK,
        "a b c",
        "ab bc",
        a=(4, 5),
        b=(8, 9),
        c=(12, 13),
        blame={"launch": 12.0, "compute": 1.0},
        path="c",
    ),
    # Kernels of 10 us are issued in time: 4-14, a gap of 1, 15-25, 26-36.
    "a gap-bound chain": case(
        "a=10 b=10 c=10",
        QUICK,
        "a b c",
        "ab bc",
        a=(4, 14),
        b=(15, 25),
        c=(26, 36),
        blame={"launch": 4.0, "compute": 30.0, "dependency": 2.0},
        path="abc",
    ),
    # Events ----------------------------------------------------------------------------------------
    # a (10) forks to b (20) on its own stream and to c (30) on another; d joins b and c.
    # Host: launch a 0-4, record 4-5, launch b 5-9, wait 9-10.5, launch c 10.5-14.5, record 14.5-15.5,
    # wait 15.5-17, launch d 17-21. a runs 4-14; b a gap later 15-35; c a hop later 16-46; d a hop
    # after c at 48, which is later than a gap after b: 48-53.
    "fork and join": case(
        "a=10 b=20 c=30 d=5",
        SLOW,
        "a b c/1 d",
        "ab ac bd cd",
        a=(4, 14),
        b=(15, 35),
        c=(16, 46),
        d=(48, 53),
        blame={"launch": 4.0, "compute": 45.0, "dependency": 4.0},
    ),
    # As above, but c takes 1 us, 16-17: its hop is over at 19, b ends at 35, and d starts a gap later, at 36.
    "an event of long ago costs no hop": case(
        "a=10 b=20 c=1 d=5", SLOW, "a b c/1 d", "ab ac bd cd", b=(15, 35), c=(16, 17), d=(36, 41)
    ),
    # c waits for a (0-10) on stream 1, where d follows; b on stream 2 does not wait.
    "a wait holds its stream only": case(
        "a=10 b=3 c=1 d=1", None, "a c/1 d/1 b/2", "ac", a=(0, 10), b=(0, 3), c=(10, 11), d=(11, 12)
    ),
    # c waits for b, and b for a, each on a stream of its own; literal plans make c wait for a as well.
    # Host, minimal: launch a, record, wait, launch b, record, wait, launch c: 3 x 4 + 2 x 1 + 2 x 1.5 = 17;
    # literal: a wait more, 18.5. The operators take no time, and the hops of a (7) and b (13.5) are over.
    **{
        f"{events} events": case(
            "a=0 b=0 c=0",
            SLOW,
            "a b/1 c/2",
            "ab bc ac",
            lowered={"events": events},
            c=(at, at),
            blame={"launch": 12.0, "sync": at - 12},
        )
        for events, at in (("minimal", 17), ("literal", 18.5))
    },
    # Two launches of 4 us: side by side with a thread per device, one after the other with one thread.
    **{
        f"threads: {threads}": case(
            "a=10 b=10",
            hand_made(2, launch=4.0),
            "a b@1",
            lowered={"threads": threads},
            a=(4, 14),
            b=(start, start + 10),
        )
        for threads, start in (("device", 4), ("one", 8))
    },
    # Stages ----------------------------------------------------------------------------------------
    # a (10) and b (20) run side by side; the barrier waits until 20 and costs 10, as it is of two streams; c (5) and
    # d (6) start at 30.
    # No barrier behind the last stage.
    "a barrier": case(
        "a=10 b=20 c=5 d=6",
        BARRIER,
        "a b/1 c.1 d/1.1",
        "ac bd",
        "stages",
        a=(0, 10),
        b=(0, 20),
        c=(30, 35),
        d=(30, 36),
        blame={"compute": 26.0, "sync": 10.0},
        path="bd",
    ),
    # With launches of 4 us: they end at 4 and 8; b runs 8-28, the barrier 28-38, then launches to 42 and 46.
    "a barrier and launches": case(
        "a=10 b=20 c=5 d=6",
        hand_made(barrier_many=10.0, launch=4.0),
        "a b/1 c.1 d/1.1",
        "ac bd",
        "stages",
        a=(4, 14),
        b=(8, 28),
        c=(42, 47),
        d=(46, 52),
        blame={"launch": 16.0, "compute": 26.0, "sync": 10.0},
    ),
    # Three stages of one group on stream 0: 0-10, 10-20, 20-30; the stream orders them.
    "no barrier between single groups of one stream": case(
        "a=10 b=10 c=10", BARRIER, "a b.1 c.2", "ab bc", "stages", a=(0, 10), b=(10, 20), c=(20, 30)
    ),
    # Nothing else orders streams 0 and 1 in stages. One stream was busy before the barrier: 0-10, 7 us, 17-27.
    "a barrier between single groups of two streams": case(
        "a=10 b=10", BARRIER, "a b/1.1", "ab", "stages", a=(0, 10), b=(17, 27)
    ),
    # One group, two groups, one group: a barrier of one stream before the two, of two streams behind them. 0-10, 7 us,
    # 17-27 and 17-22, 10 us, 37-47.
    "a barrier before and behind two groups": case(
        "a=10 b=10 c=5 d=10",
        BARRIER,
        "a b.1 c/1.1 d.2",
        "ab ac bd cd",
        "stages",
        a=(0, 10),
        b=(17, 27),
        c=(17, 22),
        d=(37, 47),
    ),
    # Only streams count that launched since the barrier before: two, then one. 0-10, 10 us, 20-30, 7 us, 37-47.
    "a barrier behind one group after two": case(
        "a=10 b=10 c=10 d=10", BARRIER, "a b/1 c.1 d/1.2", "ac bc cd", "stages", a=(0, 10), c=(20, 30), d=(37, 47)
    ),
    # Only streams count that are not over when the host comes to the barrier, at 8: a runs 4-5, b 8-28, 7 us: 35, then
    # launches to 39 and 43.
    "a barrier behind a stream that is over": case(
        "a=1 b=20 c=5 d=6", SLOW_BARRIER, "a b/1 c.1 d/1.1", "ac bd", "stages", c=(39, 44), d=(43, 49)
    ),
    # With a of 5 us, until 9, both do: 10 us.
    "a barrier behind a stream that is nearly over": case(
        "a=5 b=20 c=5 d=6", SLOW_BARRIER, "a b/1 c.1 d/1.1", "ac bd", "stages", c=(42, 47), d=(46, 52)
    ),
    # A barrier that has a time of its own takes that: 0-10, 3 us, 13-23.
    "a barrier of its own time": case(
        "a=10 b=10 c=10", BARRIER, "a b/1 c.1", "ac bc", "stages", timed=(None, [nan, nan, 3.0, nan]), c=(13, 23)
    ),
    # gpu1 needs no barrier: its stages run 0-10 and 10-20, while gpu0 waits for 30 and the barrier of 10.
    "barriers are of one device": case(
        "a=10 b=30 c=10 d=5 e=10",
        hand_made(2, barrier=7.0, barrier_many=10.0),
        "a b/1 c@1 d.1 e@1.1",
        "",
        "stages",
        c=(0, 10),
        d=(40, 45),
        e=(10, 20),
    ),
    # Captured graphs -------------------------------------------------------------------------------
    # One launch of 6, roots at once; c joins a (6-16) and b (6-26) a latency of 1 later: 27-32.
    **{
        f"a captured graph, {places}": case(
            "a=10 b=20 c=5",
            CAPTURED,
            places,
            "ac bc",
            "graph",
            a=(6, 16),
            b=(6, 26),
            c=(27, 32),
            blame={"launch": 6.0, "compute": 25.0, "dependency": 1.0},
        )
        for places in ("a b/1 c", "a b/1 c/2")
    },
    # 6, then kernels of 10 with a latency of 1 between operators, none between the kernels of one: 6-16, 17-27.
    "a captured chain": case([*TWO_KERNELS, *operators("b=10")], CAPTURED, "a b", "ab", "graph", a=(6, 16), b=(17, 27)),
    # A node that waits for several others starts 3 us later still: c joins a (6-16) and b (6-26), 26 + 1 + 3 = 30.
    **{
        f"a captured join, {places}": case("a=10 b=20 c=5", JOINED, places, "ac bc", "graph", c=(30, 35))
        for places in ("a b/1 c", "a b/1 c/2")
    },
    # b and c wait for one each: 6-16, 17-27. In a stream of its own a graph is a chain: no join, 6-16, 17-37, 38-43.
    "a captured fork is no join": case("a=10 b=10 c=10", JOINED, "a b/1 c/2", "ab ac", "graph", b=(17, 27), c=(17, 27)),
    "a captured chain has no join": case("a=10 b=20 c=5", JOINED, "a b c", "ac bc", "graph", c=(38, 43)),
    # Only the first kernel of an operator waits: two of 5 us from 30 on.
    "the second kernel of a join is late with the first": case(
        [*operators("b=10 c=20"), *TWO_KERNELS], JOINED, "b c/1 a", "ba ca", "graph", a=(30, 40)
    ),
    # Outside of captured graphs waits cost their hop alone.
    "a join of streams costs its hop": case("a=10 b=20 c=5", hand_made(graph_join=3.0), "a b/1 c", "ac bc", c=(20, 25)),
    # Nodes start 2 us apart: 6, 8, 10. d waits for a (6-16) and starts at 17, when nobody has started for long.
    "captured nodes start one after the other": case(
        "a=10#1 b=10#1 c=10#1 d=10#1",
        SERIAL,
        "a b/1 c/2 d",
        "ad",
        "graph",
        a=(6, 16),
        b=(8, 18),
        c=(10, 20),
        d=(17, 27),
    ),
    # Of equal arrival the higher priority starts first; of kernels 0.5 us long none starts sooner than 2 us after.
    "captured nodes start by priority": case(
        "a=10#1 b=0.5#1 c=10#1", SERIAL, "a!1 b/1!1 c/2", "", "graph", a=(8, 18), b=(10, 10.5), c=(6, 16)
    ),
    # A node that waits to start keeps those behind it from starting, and nobody from refilling: a's second wave of ten
    # blocks is issued at 11, by priority; b, which needs a place of its own, starts at 16.
    "a captured node waits for room, too": case("a=10#20 b=10#1", SERIAL, "a b/1", "", "graph", a=(6, 16), b=(16, 26)),
    # Each device starts its own; a stream issues as fast as its host.
    "devices start nodes by themselves": case(
        "a=10#1 b=10#1", hand_made(2, graph_issue=2.0), "a b@1", "", "graph", a=(0, 10), b=(0, 10)
    ),
    "kernels of streams start together": case("a=10#1 b=10#1", hand_made(graph_issue=2.0), a=(0, 10), b=(0, 10)),
    # What has no grid needs no place, and starts at once.
    "operators without grids start together": case(
        "a=10%0.5 b=10%0.5", SERIAL, "a b/1", "", "graph", a=(6, 16), b=(6, 16)
    ),
    # a 6-16, a latency of 1, the copy of 1,000 bytes at 100 per us 17-27, a latency of 1, b 28-38.
    "a captured copy is a node": case(
        "a=10 b=10",
        hand_made(2, graph_launch=6.0, graph_node=1.0, launch=50.0, copy=50.0),
        "a b@1",
        "ab=1000",
        "graph",
        a=(6, 16),
        b=(28, 38),
    ),
    # Hardware connections --------------------------------------------------------------------------
    # Issued are a1, a2 on stream 0 and b on stream 1: with one queue b gets through when a2 has begun, at 10.
    **{
        f"{n} queues": case(
            "a1=10 a2=10 b=3", hand_made(connections=n), "a1 a2 b/1", a1=(0, 10), a2=(10, 20), b=(start, start + 3)
        )
        for n, start in ((1, 10), (2, 0), (32, 0))
    },
    # With two queues stream 2 shares that of stream 0, stream 1 has the other.
    "queues are taken in turn": case(
        "a1=10 a2=10 b=3 c=3", hand_made(connections=2), "a1 a2 b/1 c/2", b=(0, 3), c=(10, 13)
    ),
    # y on stream 1 waits for x (0-10); z on stream 2 was issued behind it: in one queue it starts at 10, else at 0.
    **{
        f"a wait and {fields}": case(
            "x=10 y=5 z=3", hand_made(**fields), "x y/1 z/2", "xy", y=(10, 15), z=(start, start + 3)
        )
        for start, fields in (
            (10, {"connections": 1}),
            (0, {"connections": 3}),
            (0, {"connections": 1, "contention": False}),
        )
    },
    # What is blamed --------------------------------------------------------------------------------
    # long would take 30 alone and takes 40 beside short.
    "a contended pair": case("short=10%1 long=30%1", blame={"compute": 30.0, "contention": 10.0}),
    # b is ready at 0, gets slots at 20 and ends at 25; the path does not lead through a.
    "waiting for slots": case("a=20#20 b=5#10", blame={"compute": 5.0, "contention": 20.0}, path="b"),
    # Operators of no time: launch a 0-4, record 4-5, wait 5-6, launch b 6-10, and b is there.
    "records and waits of the host": case(
        "a=0 b=0", hand_made(launch=4.0, record=1.0, wait=1.0), "a b/1", "ab", blame={"launch": 8.0, "sync": 2.0}
    ),
}


@pytest.mark.parametrize("check", CASES.values(), ids=CASES)
def test_by_hand(check):
    check()


def test_every_kernel_of_an_operator_is_launched():
    """Kernels of 5 us each, issued at 4 and 8, without a gap between them: 4-9, 9-14."""
    trace = run(TWO_KERNELS, [], "a", QUICK)
    assert [(s.start, s.end) for s in trace.spans if s.kind == "kernel"] == [(4, 9), (9, 14)]
