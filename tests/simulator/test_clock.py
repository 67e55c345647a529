"""Times within a relative 1e-9, and at most 1 us, are one instant, and what happens in it has an order."""

import pytest
from hand_made import case, hand_made, run, side_by_side, time_limit

from simsched.simulator.contention import TIE

pytestmark = pytest.mark.usefixtures("both_engines")

OPS, EDGES = "a=0.1 b=0.2 c=0.3 d=0.15 e=0.15 f=0.1 g=0.1 h=0.1 i=0.30000000015", "ab de fg gh"
PLACES, LAST = "a b c/1 d/2 e/2 f/3 g/3 h/3 i/4", "bcehi"
"""Five chains of 0.3 us, though 0.1 + 0.2, 0.3, 0.15 + 0.15, 0.1 + 0.1 + 0.1 and the last are no equal floats."""


@pytest.mark.parametrize("order", ["01234", "43210", "20413"])
@pytest.mark.parametrize("execution", ["events", "graph"])
def test_arrivals_in_one_instant_go_by_launch(order, execution):
    """Five kernels that fill the GPU for 10 us arrive at 0.3, whichever float is least: in launch order."""
    ops = OPS + "".join(f" k{i}=10#10" for i in range(5))
    edges = EDGES + "".join(f" {end}-k{i}" for i, end in enumerate(LAST))
    places = PLACES + "".join(f" k{i}/{i}" for i in order)
    found = run(ops, edges, places, hand_made(), execution).operator_times()
    assert [found[f"k{i}"][0] for i in order] == pytest.approx([0.3, 10.3, 20.3, 30.3, 40.3], rel=1e-9)
    assert len({found[name][1] for name in LAST}) == 1  # all ended in the same instant


@pytest.mark.parametrize("execution", ["events", "graph"])
def test_copies_that_begin_in_one_instant_take_turns_by_launch(execution):
    """Five copies of 10 us from 0.3 on, of one engine: in the order of their issue, whichever float is least."""
    ops = OPS + "".join(f" k{i}=1#1" for i in range(5))
    edges = EDGES + "".join(f" {end}-k{i}=1000" for i, end in enumerate(LAST))
    places = PLACES + "".join(f" k{i}/{i}@1" for i in range(5))
    found = run(ops, edges, places, hand_made(2, copy_engines=1), execution).operator_times()
    assert [found[f"k{i}"][0] for i in range(5)] == pytest.approx([10.3, 20.3, 30.3, 40.3, 50.3], rel=1e-9)


JOIN = " ".join(f"{end}j" for end in LAST)
CASES = {
    # All five join at 0.3: one instant, the join lasts 10 us.
    "a join of equal ends": case(OPS + " j=10", None, PLACES + " j", f"{EDGES} {JOIN}", j=(0.3, 10.3)),
    # a and b (five blocks, 0.1 + 0.2 us and 0.3 us) make room for c's ten blocks in one instant: one wave, 0.3-7.3.
    "two that end together free their slots together": case(
        "p=0.1 q=0.2 a=0.2#5 b=0.3#5 c=7#10", None, "p a b/1 q/2 c/2", a=(0.1, 0.3), b=(0, 0.3), c=(0.3, 7.3)
    ),
}


@pytest.mark.parametrize("check", CASES.values(), ids=CASES)
def test_by_hand(check):
    check()


def test_what_ends_on_the_verge_of_an_instant():
    """The last float within 1e-9 belongs to the instant for the clock and for the device: both end, neither twice.

    Kernels of t and `late` us, and a copy of `late` us beside an operator of t.
    """
    t, late = 0.03, 0.03 * (1 + TIE)
    assert late > t + TIE * t  # though both are as late in exact numbers
    with time_limit(5):
        kernels = side_by_side(f"a={t!r} b={late!r}%0.5", hand_made()).operator_times()
        copy = run(f"a={t!r} b=0 c=1", "bc", "a b/1 c@1", hand_made(2), nbytes=late * 100.0).operator_times()
    assert [end for _, end in kernels.values()] == pytest.approx([t, t], rel=2e-9)
    assert copy["c"] == pytest.approx((t, t + 1), rel=2e-9)


@pytest.mark.parametrize("long", [1e3, 1e6, 0.99e9, 1e9, 1.01e9, 1e10, 1e12])
def test_what_is_longer_than_an_instant_takes_its_time(long):
    """After `long` us three operators of 1.01 instants, 1e-9 of the present and at most 1 us: none of them vanishes."""
    short = 1.01 * min(TIE * long, 1.0)
    trace = run(f"long={long} a={short!r} b={short!r} c={short!r}", [], "long a b c", hand_made())
    ends = [end - long for _, end in trace.operator_times().values()]
    assert ends == pytest.approx([0.0, short, 2 * short, 3 * short], abs=0.01 * short)
    assert [span.op for span in trace.spans] == ["long", "a", "b", "c"]


def test_a_stage_after_three_hours():
    """Launches, barriers: 2 us. Host 0-2, long 2-1e10 + 2, barrier to + 4, launches to + 6 and + 8, y to + 10."""
    cluster = hand_made(launch=2.0, barrier=2.0)
    trace = run("long=1e10 x=2 y=2", "long-x long-y", "long x.1 y/1.1", cluster, "stages")
    assert {op: end - 1e10 for op, (_, end) in trace.operator_times().items()} == {"long": 2.0, "x": 8.0, "y": 10.0}


@pytest.mark.parametrize(
    ("plan", "us"),
    [
        # two kernels of three waves of 2 us each, whether their blocks mix or not
        (("long=1e10 a=6#30 b=6#30", "long-a long-b", "long a b/1", hand_made()), 12),
        (("long=1e10 a=6#30 b=6#30", "long-a long-b", "long a b/1", hand_made(interleave=0.5)), 12),
        # a copy of 2 us, an operator of 3 us
        (("long=1e10 next=3", "long-next=200", "long next@1", hand_made(2)), 5),
    ],
)
def test_after_three_hours(plan, us):
    """1e10 us, and what follows."""
    assert run(*plan).makespan - 1e10 == pytest.approx(us, abs=1e-4)
