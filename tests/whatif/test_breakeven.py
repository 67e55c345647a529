"""Where the better plan changes."""

import numpy as np
import pytest
from small import made, placements

import simsched as ss
from simsched.experiments.whatif.breakeven import breakeven

TWO = ss.Cluster.preset("k80", 2).without_overheads().replace_links(bandwidth=1600.0, latency=0.0)
FORK = made("a=50 b=50 join=0", "a-join b-join=20000")
SPLIT = ss.Schedule(FORK, placements("a b@1 join"))


def sequential(graph, cluster):
    return ss.schedule(graph, cluster, "sequential")


def test_a_fork_over_two_devices_pays_from_a_bandwidth_on():
    """One device: 50 + 50 us. Two: 50 us and a copy of 20,000 / B us. Even at B = 400, a quarter of 1600."""
    found = breakeven("link.bandwidth", sequential(FORK, TWO), SPLIT, TWO)
    (crossing,) = found.crossings
    assert crossing.factor == pytest.approx(0.25, rel=2e-6)
    assert crossing.value == pytest.approx(400.0, rel=2e-6)
    assert (crossing.better_below, crossing.better_above) == ("sequential", "custom")
    assert len(found.factors) == 49
    assert found.b_us[0] == pytest.approx(50 + 20_000 / 25)
    factors, one, two, better = map(list, zip(*found.table().rows, strict=True))
    assert factors[:2] + factors[-1:] == ["0.01562", "0.03125", "64"]  # an octave a row
    assert (one[0], two[0], len(better)) == ("100.0 us", "850.0 us", 13)
    assert found.table().best == -1  # no row is set off
    assert better == ["sequential"] * 4 + ["equal"] + ["custom"] * 8
    (again,) = breakeven("link.bandwidth", SPLIT, sequential(FORK, TWO), TWO).crossings
    assert again.value == pytest.approx(400.0, rel=2e-6)
    assert (again.better_below, again.better_above) == ("sequential", "custom")


def test_two_streams_stop_paying_from_a_launch_cost_on():
    """Operators a, b, c of 3, 6 and 0 us, c behind both; records and waits of 1 us, launches of x.

    One stream: a ends at x + 3, b at max(x + 3, 2x) + 6, c is launched at 3x: S = max(x + 9, 2x + 6, 3x).
    Two, c with b: launch a, record, launch b, wait, launch c: b runs from 2x + 1 on: T = max(2x + 7, 3x + 2).
    S = T at x + 9 = 2x + 7: x = 2.
    """
    graph = made("a=3 b=6 c=0", "ac bc")
    cluster = ss.Cluster.preset("a100").without_overheads().replace_devices(launch=1.0, record=1.0, wait=1.0)
    two = ss.Schedule(graph, placements("a b/1 c/1"))
    found = breakeven("overhead.launch", two, sequential(graph, cluster), cluster)
    (crossing,) = found.crossings
    assert crossing.value == pytest.approx(2.0, rel=2e-6)
    assert (crossing.better_below, crossing.better_above) == ("custom", "sequential")


def test_equal_plans_never_cross():
    """The same work under two names, over the whole range: exactly equal, no crossing."""
    found = breakeven("overhead.launch", sequential(FORK, TWO), sequential(FORK, TWO), TWO.replace_devices(launch=1.0))
    assert found.crossings == ()
    assert found.names == ("sequential", "sequential (2)")
    assert found.sentences()[0].endswith("both are equal")
    assert {row[3] for row in found.table().rows} == {"equal"}


def test_plans_that_come_to_be_equal_do_not_cross():
    """a and b of 3 us in a row, on one stream or with a hop of 5 us between two: x + 6 against x + 11.

    Launches of x can take so long that b is launched behind the hop: from 2x = x + 8 on both end at 2x + 3.
    """
    graph = made("a=3 b=3", "ab")
    cluster = ss.Cluster.preset("a100").without_overheads().replace_devices(launch=1.0, hop=5.0)
    two = ss.Schedule(graph, placements("a b/1"))
    found = breakeven("overhead.launch", sequential(graph, cluster), two, cluster)
    assert found.crossings == ()
    assert (found.a_us[0], found.b_us[0]) == (1 / 64 + 6, 1 / 64 + 11)
    assert np.isclose(found.a_us, found.b_us, rtol=1e-9).tolist() == (found.factors > 7.99).tolist()
    assert "sequential is never worse" in found.sentences()[0]


def test_schedulers_schedule_anew():
    """HEFT runs both sides on streams of one device while the link is slow: 50 us whatever the bandwidth."""
    found = breakeven("link.bandwidth", SPLIT, "heft", TWO)
    assert found.b_us.tolist() == [50.0] * 49
    assert found.crossings == ()
    named = breakeven("link.bandwidth", "sequential", "heft", TWO, graph=FORK)
    assert named.b_us.tolist() == found.b_us.tolist()
