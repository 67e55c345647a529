"""Copies between devices: links, copy engines, DRAM, exact times, and how plans issue them; by hand."""

from dataclasses import replace

import pytest
from hand_made import DEVICE, case, grid, hand_made, operators

import simsched as ss
from simsched.base.errors import ClusterError

pytestmark = pytest.mark.usefixtures("both_engines")

LINK = ss.Link(100.0, latency=2.0)
UNLINKED = ss.Cluster((DEVICE, replace(DEVICE, name="gpu1")))
SWITCH = replace(UNLINKED, links=(("gpu0", "switch", ss.Link(100.0, 1.0)), ("switch", "gpu1", ss.Link(50.0, 2.0))))
WIDE = ss.Link(500.0)


def star(*rates):
    """A device behind a link of each of the rates, and a switch between them."""
    links = tuple((f"gpu{i}", "switch", ss.Link(rate)) for i, rate in enumerate(rates))
    return ss.Cluster(tuple(replace(DEVICE, name=name) for name, _, _ in links), links)


def near(*pair):
    return pytest.approx(pair, rel=1e-9)


def pair(edge="ab=1000", cluster=None, ops="a=10 b=10", **expected):
    """a (10 us) on gpu0, then b (10 us) on gpu1."""
    return case(ops, cluster or hand_made(2, link=LINK), "a b@1", edge, **expected)


def crossing(
    sent,
    edges="ac=1000 bd=1000",
    ops="a=10 b=10 c=1 d=1",
    places="a b/1 c@1 d/1@1",
    link=LINK,
    cluster=None,
    **expected,
):
    """Copies of a -> c from gpu0 to gpu1, and of b -> d beside it."""
    return case(ops, cluster or hand_made(2, link=link), places, edges, sent=sent, **expected)


def costs(**more):
    return hand_made(2, link=LINK, launch=4.0, record=1.0, wait=1.0, copy=3.0, **more)


def blocked(transfers, barrier=0.0, **expected):
    """a on gpu0 feeds b on gpu1; c and d are launched behind them on other streams of gpu1 and gpu0."""
    cluster = hand_made(2, link=LINK, barrier=barrier)
    return case("a=10 b=5 c=3 d=3", cluster, "a b@1 c/1@1 d/1", "ab=1000", lowered={"transfers": transfers}, **expected)


CASES = {
    # 2 + 1000 / 100 = 12: 10-22.
    "latency and bandwidth": pair(sent=[(10, 22)], b=(22, 32)),
    "no bytes take the latency": pair("ab", sent=[(10, 12)], b=(12, 22)),
    # 5 us, whatever the bytes; and without any link.
    "an exact transfer": pair("ab=1e9:5", b=(15, 25)),
    "an exact transfer without a link": pair("ab=1e9:5", UNLINKED, b=(15, 25)),
    "an exact transfer of no time": pair("ab=1e9:0", UNLINKED, b=(10, 20)),
    # Beside an exact copy of 50 us the other has the link to itself: 10-22.
    "an exact transfer loads no link": crossing([(10, 22), (10, 60)], "ac=1e4:50 bd=1000"),
    # Latencies 1 + 2 add up, the narrower link of 50 bytes per us counts: 3 + 20 = 23: 10-33.
    "a route through a switch": pair(cluster=SWITCH, sent=[(10, 33)]),
    # Sharing ---------------------------------------------------------------------------------------
    # Each moves 50 bytes per us: 10 + 2 + 1000 / 50 = 32; alone each would take 12 us.
    "two share a link": crossing([(10, 32), (10, 32)], blame={"compute": 11.0, "transfer": 12.0, "contention": 10.0}),
    # 500 bytes at 50 per us: over at 22; of the other 1,000 bytes 500 are left, at 100 per us: 27.
    "the rest goes faster": crossing([(10, 22), (10, 27)], "ac=1000 bd=500"),
    # From 10 alone: 400 bytes by 16; then the copy of b (4 us later, from 16 on) shares.
    # The first has 600 left at 50: 28. The other has moved 600 by then, 400 left at 100: 32.
    "a later copy joins": crossing([near(10, 28), near(14, 32)], ops="a=10 b=14 c=1 d=1"),
    # Either direction has 100 bytes per us, or both share it: 50 each.
    **{
        f"both directions, duplex {duplex}": crossing(
            [(10, end), (10, end)], places="a b/1@1 c@1 d/1", link=replace(LINK, duplex=duplex)
        )
        for duplex, end in ((True, 22), (False, 32))
    },
    # gpu0 - switch carries 100, switch - gpu1 only 30: the copy to gpu1 gets 30, that to gpu2 the other 70.
    # 300 bytes at 30 and 700 at 70: both 10-20.
    "max-min over two links": case(
        "a=10 b=10 c=1 d=1",
        star(100.0, 30.0, 100.0),
        "a b/1 c@1 d@2",
        "ac=300 bd=700",
        sent=[near(10, 20), near(10, 20)],
    ),
    # Three copies of 1,000 bytes into one link: 33.3 each, also where its capacity is a whole number.
    "three into one link": case(
        "a=1 b=1 c=1 d=1", star(100, 100, 100, 100), "a b@1 c@2 d@3", "ad=1000 bd=1000 cd=1000", d=(31, 32)
    ),
    # Links of 100, an engine moves 50: 1,000 bytes to each of two devices take 20 us; of one engine the second copy
    # waits for the first.
    **{
        f"{n} copy engines": case(
            "a=10 b=1 c=1",
            hand_made(3, copy_engines=n, copy_rate=50.0),
            "a b@1 c@2",
            "ab=1000 ac=1000",
            sent=[(10, 30), (10, end)],
        )
        for n, end in ((1, 50), (2, 30), (9, 30))
    },
    # The copy of b, from 12 on, is the second on the one engine, whichever the shorter is: 10-20, 20-21.
    "copies have an engine in the order in which they begin": crossing(
        [(10, 20), (12, 21)], "ac=1000 bd=100", "a=10 b=12 c=1 d=1", cluster=hand_made(2, copy_engines=1)
    ),
    # Of three copies two move, at 50 each as they share the link: 1,000 and 500 bytes. The short one is over at 20.
    # From then on the third (500 bytes) and the rest of the first (500) take 10 us.
    "two of three copies move": case(
        "a=10 b=10 c=10 d=1 e=1 f=1",
        hand_made(2, copy_engines=2),
        "a b/1 c/2 d@1 e/1@1 f/2@1",
        "ad=1000 be=500 cf=500",
        sent=[near(10, 20), near(10, 30), near(10, 30)],
    ),
    # A copy that waits for its engine loads no DRAM: m has all of it but what one copy moves, a tenth.
    "a copy without an engine loads nothing": case(
        [*operators("a=0 b=0 c=1 d=1"), grid("m", 2, 9.0, nbytes=9e3)],
        hand_made(2, copy_engines=1),
        "a b/1 c@1 d/1@1 m/2",
        "ac=1000 bd=1000",
        sent=[(0, 10), (0, 20)],
        m=(0, 10),
    ),
    # Two engines of 50 do not help a single copy: 2 + 20.
    "one engine bounds one copy": pair(cluster=hand_made(2, link=LINK, copy_rate=50.0), sent=[(10, 32)]),
    # DRAM ------------------------------------------------------------------------------------------
    # 10,000 bytes at 500 per us, 0-20, are half of the DRAM bandwidth at either end.
    # Kernels on both devices that fill DRAM alone have the other half: m0's 10 us take 20; of m1's 30 us
    # 10 are done by 20, the rest alone. Compute (c) does not feel it.
    "copies load DRAM at both ends": case(
        [
            *operators("s=0 r=1"),
            grid("m0", 2, 10.0, nbytes=1e4),
            grid("m1", 2, 30.0, nbytes=3e4),
            grid("c", 2, 7.0, flops=1e3),
        ],
        hand_made(2, link=WIDE),
        "s r@1 m0/1 m1/1@1 c/2@1",
        "sr=1e4",
        sent=[(0, 20)],
        m0=(0, 20),
        m1=(0, 40),
        c=(0, 7),
        r=(20, 21),
    ),
    # The copy from gpu0 to gpu1 leaves gpu2 alone, and so does one of exact time gpu0.
    **{
        f"a copy {edge} leaves m in {places}": case(
            [*operators("s=0 r=1"), grid("m", 2, 10.0, nbytes=1e4)], hand_made(3, link=WIDE), places, edge, m=(0, 10)
        )
        for edge, places in (("sr=1e4", "s r@1 m@2"), ("sr=1e4:20", "s r@1 m/1"))
    },
    # Plans -----------------------------------------------------------------------------------------
    # u feeds v and w on gpu1 and x on gpu2. Minimal: one copy to each device, 10-22.
    # Literal: v's and w's copies follow each other on the stream to gpu1: 10-22, 22-34.
    **{
        f"{events} copies": case(
            "u=10 v=1 w=1 x=1",
            hand_made(3, link=LINK),
            "u v@1 w/1@1 x@2",
            "uv uw ux",
            nbytes=1000.0,
            lowered={"events": events},
            sent=[(10, 22), (10, 22), *again],
            v=(22, 23),
            w=(at, at + 1),
            x=(22, 23),
        )
        for events, again, at in (("minimal", [], 22), ("literal", [(22, 34)], 34))
    },
    # a -> b twice: equal tensors are copied once, others one after the other: 2 + 5, then 2 + 10.
    "equal edges": pair("ab=1000 ab=1000", b=(22, 32)),
    "parallel edges": pair("ab=1000 ab=500", sent=[(10, 17), (17, 29)], b=(29, 39)),
    # No copy, one event: b follows a at once.
    "parallel edges within a device": case("a=10 b=1", None, "a b/1", "ab ab ab", nbytes=1000.0, sent=[], b=(10, 11)),
    # a (0-10) and b (10-14) send 1,000 bytes each: the second copy waits for the first, 10-22, 22-34.
    "copies of one stream keep its order": crossing(
        [(10, 22), (22, 34)], ops="a=10 b=4 c=1 d=1", places="a b c@1 d/1@1"
    ),
    # gpu0: launch a 0-4, record 4-5, wait 5-6, copy 6-9, record 9-10. a runs 4-14, a hop later the copy, 16-28.
    # gpu1 may issue its wait when the record is issued, at 10-11, and launches b 11-15. b starts a hop after 28.
    "host costs of a copy": pair(
        cluster=costs(hop=2.0),
        sent=[(16, 28)],
        a=(4, 14),
        b=(30, 40),
        path="ab",
        blame={"launch": 4.0, "compute": 20.0, "transfer": 12.0, "dependency": 4.0},
    ),
    # a takes no time: launch 0-4, record 4-5, wait 5-6, copy issued 6-9, copied 9-21, b 21-31.
    "a copy issued late": pair(
        cluster=costs(), ops="a=0 b=10", blame={"launch": 7.0, "sync": 2.0, "transfer": 12.0, "compute": 10.0}
    ),
    # c and d are issued at once.
    "async transfers hold no host": blocked("async", b=(22, 27), c=(0, 3), d=(0, 3)),
    # gpu0's host waits for a until 10 before it sends and goes on to d; gpu1's for the data until 22, then b and c.
    "blocking transfers hold the hosts": blocked("blocking", a=(0, 10), b=(22, 27), c=(22, 25), d=(10, 13)),
    # A barrier of 4 us on either side: gpu0 sends at 14, 14-26; gpu1 launches at 30.
    "blocking transfers cost a synchronisation": blocked(
        "blocking",
        4.0,
        sent=[(14, 26)],
        b=(30, 35),
        c=(30, 33),
        d=(14, 17),
        blame={"compute": 15.0, "transfer": 12.0, "sync": 8.0},
    ),
}


@pytest.mark.parametrize("check", CASES.values(), ids=CASES)
def test_by_hand(check):
    check()


def test_no_way():
    with pytest.raises(ClusterError, match="no links lead from gpu0 to gpu1"):
        pair(cluster=UNLINKED)()
