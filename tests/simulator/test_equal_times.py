"""Times within a relative 1e-9, and at most 1 us, are one instant, and what happens in it has an order."""

from random import Random

import pytest
from hand_made import assert_times, grid, hand_made, run, side_by_side, time_limit
from small import operators

import simsched as ss
from simsched.simulator.contention import TIE

pytestmark = pytest.mark.usefixtures("both_engines")

CHAINS = {"0": (0.1, 0.2), "1": (0.3,), "2": (0.15, 0.15), "3": (0.1, 0.1, 0.1), "4": (0.3 * (1 + 5e-10),)}
"""Five chains of 0.3 us, though not of equal floats."""


def chains(order=CHAINS):
    """Chains on a stream each, in the given order, as operators, edges and placements."""
    operators, edges, placements, last = [], [], [], {}
    for key in order:
        for i, time in enumerate(CHAINS[key]):
            name = f"c{key}.{i}"
            operators.append(ss.Operator(name, time=time))
            if i:
                edges.append(ss.Edge(last[key], name))
            placements.append(ss.Placement(name, stream=int(key)))
            last[key] = name
    return operators, edges, placements, last


def test_the_chains_differ_in_the_last_digits():
    sums = {sum(times) for times in CHAINS.values()}
    assert len(sums) > 2
    assert max(sums) - min(sums) <= 0.3e-9


@pytest.mark.parametrize("order", ["01234", "43210", "20413"])
@pytest.mark.parametrize("execution", ["events", "graph"])
def test_arrivals_in_one_instant_go_by_launch(order, execution):
    """Five kernels that fill the GPU for 10 us arrive at 0.3, whichever float is least: in launch order."""
    operators, edges, placements, last = chains()
    operators += [grid(f"k{key}", 10, 10.0) for key in "01234"]
    edges += [ss.Edge(last[key], f"k{key}") for key in "01234"]
    placements += [ss.Placement(f"k{key}", stream=int(key)) for key in order]
    trace = run(operators, edges, placements, hand_made(), execution=execution)
    starts = [trace.operator_times()[f"k{key}"][0] for key in order]
    assert starts == pytest.approx([0.3, 10.3, 20.3, 30.3, 40.3], rel=1e-9)
    assert len({trace.operator_times()[last[key]][1] for key in CHAINS}) == 1  # all ended in the same instant


def test_a_join_of_equal_ends():
    """All five join at 0.3: one instant, the join lasts 10 us."""
    operators, edges, placements, last = chains()
    operators.append(ss.Operator("join", time=10.0))
    edges += [ss.Edge(name, "join") for name in last.values()]
    trace = run(operators, edges, [*placements, ss.Placement("join", stream=0)], hand_made())
    assert_times(trace, join=(0.3, 10.3))


def test_two_that_end_together_free_their_slots_together():
    """a and b (five blocks, 0.1 + 0.2 us and 0.3 us) make room for c's ten blocks in one instant: one wave, 0.3-7.3."""
    ops = [*operators("p=0.1 q=0.2"), grid("a", 5, 0.2), grid("b", 5, 0.3), grid("c", 10, 7.0)]
    assert_times(run(ops, [], "p a b/1 q/2 c/2", hand_made()), a=(0.1, 0.3), b=(0, 0.3), c=(0.3, 7.3))


def on_the_verge():
    """A time t and the float just above ``t + 1e-9 t`` that still is at most ``t (1 + 1e-9)``."""
    rng = Random(0)
    while True:
        t = rng.uniform(1.0, 2.0)
        late = t * (1 + TIE)
        if late > t + TIE * t and 1 / (1 / late) == late and late * 100.0 / 100.0 == late:
            return t, late


def test_a_kernel_that_ends_on_the_verge_of_an_instant():
    """The last float within 1e-9 belongs to the instant for the clock and for the device: both end, neither twice."""
    t, late = on_the_verge()
    with time_limit(5):
        trace = side_by_side([ss.Operator("a", time=t), ss.Operator("b", time=late, utilization=0.5)], hand_made())
    ends = [end for _, end in trace.operator_times().values()]
    assert ends == pytest.approx([t, t], rel=2e-9)


def test_a_copy_that_ends_on_the_verge_of_an_instant():
    """The same for a copy of `late` us beside an operator of t."""
    t, late = on_the_verge()
    with time_limit(5):
        trace = run(f"a={t!r} b=0 c=1", "bc", "a b/1 c@1", hand_made(2), nbytes=late * 100.0)
    assert trace.operator_times()["c"] == pytest.approx((t, t + 1), rel=2e-9)


@pytest.mark.parametrize("long", [1e3, 1e6, 0.99e9, 1e9, 1.01e9, 1e10, 1e12])
def test_what_is_longer_than_an_instant_takes_its_time(long):
    """After `long` us three operators of 1.01 instants, 1e-9 of the present and at most 1 us: none of them vanishes."""
    short = 1.01 * min(TIE * long, 1.0)
    ops = [ss.Operator("long", time=long), *(ss.Operator(f"o{i}", time=short) for i in range(3))]
    trace = run(ops, [], [ss.Placement(op.name) for op in ops], hand_made())
    ends = [end - long for _, end in trace.operator_times().values()]
    assert ends == pytest.approx([0.0, short, 2 * short, 3 * short], abs=0.01 * short)
    assert [span.op for span in trace.spans] == [op.name for op in ops]


def test_a_stage_after_three_hours():
    """Launches, barriers: 2 us. Host 0-2, long 2-1e10 + 2, barrier to + 4, launches to + 6 and + 8, y to + 10."""
    cluster = hand_made(launch=2.0, barrier=2.0)
    trace = run("long=1e10 x=2 y=2", "long-x long-y", "long x.1 y/1.1", cluster, "stages")
    assert {op: end - 1e10 for op, (_, end) in trace.operator_times().items()} == {"long": 2.0, "x": 8.0, "y": 10.0}


@pytest.mark.parametrize("interleave", [0.0, 0.5])
def test_waves_after_three_hours(interleave):
    """Two kernels of three waves of 2 us each after 1e10 us: 1e10 + 12, whether their blocks mix or not."""
    ops = [*operators("long=1e10"), grid("a", 30, 6.0), grid("b", 30, 6.0)]
    trace = run(ops, "long-a long-b", "long a b/1", hand_made(interleave=interleave))
    assert trace.makespan - 1e10 == pytest.approx(12.0, abs=1e-4)


def test_copies_after_three_hours():
    """1e10 us, a copy of 2 us, an operator of 3 us."""
    trace = run("long=1e10 next=3", "long-next=200", "long next@1", hand_made(2))
    assert trace.makespan - 1e10 == pytest.approx(5.0, abs=1e-4)
