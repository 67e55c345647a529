"""Operators that share the issue slots and the DRAM of a device, by hand."""

import pytest
from hand_made import assert_times, grid, hand_made, run, side_by_side

import simsched as ss

pytestmark = pytest.mark.usefixtures("both_engines")


def part(name, time, utilization=None, **fields):
    return ss.Operator(name, time=time, utilization=utilization, **fields)


# Without grids -----------------------------------------------------------------------------------


def test_two_full_operators():
    """At half speed each: the short one does its 10 us in 20; the long one then has 20 of 30 left: 40."""
    trace = side_by_side([part("short", 10.0, 1.0), part("long", 30.0, 1.0)], hand_made())
    assert_times(trace, short=(0, 20), long=(0, 40))


def test_two_halves_fit():
    """A load of 1 slows nobody."""
    assert_times(side_by_side([part("a", 10.0, 0.5), part("b", 30.0, 0.5)], hand_made()), a=(0, 10), b=(0, 30))


def test_partial_overload():
    """0.8 + 0.6 = 1.4: a's 10 us take 14, in which b does 10 of its 30; alone it needs 20 more: 34."""
    assert_times(side_by_side([part("a", 10.0, 0.8), part("b", 30.0, 0.6)], hand_made()), a=(0, 14), b=(0, 34))


def test_three_share():
    """Load 3: 3 x 10 = 30 for the first; then two with 10 and 20 left at load 2: 50; then 10 alone: 60."""
    trace = side_by_side([part("a", 10.0, 1.0), part("b", 20.0, 1.0), part("c", 30.0, 1.0)], hand_made())
    assert_times(trace, a=(0, 30), b=(0, 50), c=(0, 60))


def test_a_late_one():
    """b (u = 1, 10 us) starts behind p at 4; a has done 4 of 10, needs 12 more at half speed: 16. b has done 6: 20."""
    ops = [part("a", 10.0, 1.0), part("p", 4.0), part("b", 10.0, 1.0)]
    placements = [ss.Placement("a"), ss.Placement("p", stream=1), ss.Placement("b", stream=1)]
    assert_times(run(ops, [], placements, hand_made()), a=(0, 16), b=(4, 20))


def test_pure_latency_is_never_slowed():
    """Neither kernels nor utilization: such operators load nothing and feel nothing."""
    ops = [part("x", 10.0), part("y", 7.0), part("full", 5.0, 1.0), grid("grid", 10, 5.0)]
    assert_times(side_by_side(ops, hand_made()), x=(0, 10), y=(0, 7), full=(0, 10), grid=(0, 10))


def test_devices_do_not_share():
    """Full operators on two devices keep their times."""
    placements = [ss.Placement("a", "gpu0"), ss.Placement("b", "gpu1")]
    trace = run([part("a", 10.0, 1.0), part("b", 30.0, 1.0)], [], placements, hand_made(2))
    assert_times(trace, a=(0, 10), b=(0, 30))


def test_without_contention():
    """Every kernel at its solo rate, whatever the loads and the room."""
    ops = [part("a", 10.0, 1.0), part("b", 30.0, 1.0), grid("c", 1000, 7.0), grid("d", 1000, 8.0, nbytes=8e3)]
    assert_times(side_by_side(ops, hand_made(contention=False)), a=(0, 10), b=(0, 30), c=(0, 7), d=(0, 8))


# Issue slots, with grids -------------------------------------------------------------------------


def test_grids_share_the_issue_slots():
    """16 warps keep an SM busy. 10 blocks of 512 threads load 10 x 1 / 10 = 1; two such kernels fit, load 2.

    As with u = 1: 10 us end at 20, 30 us at 40.
    """
    ops = [grid("a", 10, 10.0, threads=512), grid("b", 10, 30.0, threads=512)]
    assert_times(side_by_side(ops, hand_made(saturating_warps=16.0)), a=(0, 20), b=(0, 40))


def test_a_kernel_that_saturates_alone_keeps_its_time():
    """40 blocks of 256 threads load 40 x 8/16/10 = 2 alone, so a unit is 5 us at D = 1 and 10 us alone.

    Two of 20 blocks load 1 each, unit 10 us; together 2: both end at 20, as two of 40 in turn would.
    """
    cluster = hand_made(saturating_warps=16.0)
    assert_times(side_by_side([grid("a", 40, 10.0, threads=256)], cluster), a=(0, 10))
    both = [grid("a", 20, 10.0, threads=256), grid("b", 20, 10.0, threads=256)]
    assert_times(side_by_side(both, cluster), a=(0, 20), b=(0, 20))


def test_a_grid_beside_a_utilization():
    """5 blocks of 1,024 threads load 0.5, the other 0.9: 1.4. a takes 14, in which b does 10 of 20; then 10: 24."""
    assert_times(side_by_side([grid("a", 5, 10.0), part("b", 20.0, 0.9)], hand_made()), a=(0, 14), b=(0, 24))


def test_the_last_wave_slows_less():
    """a: 15 blocks, two waves of unit 5, and b with u = 0.5 and 30 us beside it.

    a's first wave: load 1 + 0.5, D = 1.5, 7.5 us, in which b does 5. Second wave: 0.5 + 0.5, 5 us:
    a ends at 12.5. b has 20 left: 32.5.
    """
    assert_times(side_by_side([grid("a", 15, 10.0), part("b", 30.0, 0.5)], hand_made()), a=(0, 12.5), b=(0, 32.5))


# DRAM --------------------------------------------------------------------------------------------


def test_dram_is_shared():
    """6,000 bytes in 10 us are 0.6 of 1,000 bytes per us; two load 1.2: 12 us."""
    ops = [grid(name, 5, 10.0, nbytes=6e3) for name in "ab"]
    assert_times(side_by_side(ops, hand_made()), a=(0, 12), b=(0, 12))


def test_dram_that_suffices():
    """0.5 + 0.5 slows nobody."""
    assert_times(side_by_side([grid(name, 5, 10.0, nbytes=5e3) for name in "ab"], hand_made()), a=(0, 10), b=(0, 10))


def test_compute_does_not_feel_dram():
    """c moves no bytes and has FLOP: its part of the roofline at DRAM is 0. The others load DRAM 2: 20 us."""
    ops = [grid("a", 2, 10.0, nbytes=1e4), grid("b", 2, 10.0, nbytes=1e4), grid("c", 2, 10.0, flops=1e3)]
    assert_times(side_by_side(ops, hand_made()), a=(0, 20), b=(0, 20), c=(0, 10))


def test_part_of_the_roofline_is_the_sensitivity():
    """c: 10,000 FLOP at 1,000 per us are 10 us, 5,000 bytes 5 us: its sensitivity to DRAM is 0.5.

    DRAM load: a and b 0.75 each, c 0.5: 2. D = 2 for a and b (20 us), 1 - 0.5 + 0.5 x 2 = 1.5 for c
    (15 us). From 15 on the load is 1.5: a and b have done 7.5 of 10, need 2.5 x 1.5 = 3.75: 18.75.
    """
    ops = [
        grid("a", 2, 10.0, nbytes=7.5e3),
        grid("b", 2, 10.0, nbytes=7.5e3),
        grid("c", 2, 10.0, flops=1e4, nbytes=5e3),
    ]
    assert_times(side_by_side(ops, hand_made()), a=(0, 18.75), b=(0, 18.75), c=(0, 15))


def test_traffic_belongs_to_the_blocks_that_are_resident():
    """a: 15 blocks, 10 us, 10,000 bytes: a full wave loads DRAM 1, a half one 0.5; so does b, of 3 blocks, over 10 us.

    m = 10 for both; b's 3 blocks of 32 threads fit beside a only when threads are left: a has 1,024 per
    SM, so b waits for a's last wave at 5: DRAM 0.5 + 1 = 1.5. a: 5 x 1.5 = 7.5: 12.5. b has done 5 of 10: 17.5.
    """
    ops = [grid("a", 15, 10.0, nbytes=1e4), grid("b", 3, 10.0, threads=32, nbytes=1e4)]
    assert_times(side_by_side(ops, hand_made()), a=(0, 12.5), b=(5, 17.5))


# Interference ------------------------------------------------------------------------------------

KAPPA = ((0.5, 0.25), (0.5, 0.1))
"""Compute beside compute 0.5, compute beside memory 0.25, memory beside compute 0.5, memory beside memory 0.1."""


def test_interference_needs_saturation():
    """Two compute kernels of load 0.5 each: a load of 1 is not saturated."""
    ops = [grid(name, 5, 10.0, flops=1.0) for name in "ab"]
    assert_times(side_by_side(ops, hand_made(interference=KAPPA)), a=(0, 10), b=(0, 10))


def test_interference_needs_company():
    """A kernel that saturates the issue slots alone (load 4) has no one to interfere with."""
    op = grid("a", 40, 10.0, threads=256, flops=1.0)
    assert_times(side_by_side([op], hand_made(interference=KAPPA, saturating_warps=4.0)), a=(0, 10))


def test_interference_of_one_class():
    """Two compute kernels of load 1 each on SMs that 16 warps keep busy: D = 2, times 1.5: 30 us."""
    ops = [grid(name, 10, 10.0, threads=512, flops=1.0) for name in "ab"]
    cluster = hand_made(interference=KAPPA, saturating_warps=16.0)
    assert_times(side_by_side(ops, cluster), a=(0, 30), b=(0, 30))


def test_interference_between_classes():
    """c: compute, load 1, 20 us. m: memory, DRAM 0.5, issue slots 10 x 0.1 x 0.1 = 0.1 (the least), 10 us.

    The issue slots are saturated, 1.1. c: D = 1.1 x 1.25 = 1.375. m feels DRAM only (0.5) and the
    penalty: 1.5, ends at 15. c has done 15 / 1.375 = 10.9090..; the rest of 20 alone: 24.0909...
    """
    ops = [grid("c", 10, 20.0, threads=512, flops=1.0), grid("m", 10, 10.0, threads=512, nbytes=5e3)]
    trace = side_by_side(ops, hand_made(interference=KAPPA, saturating_warps=16.0))
    assert_times(trace, c=(0, 15 + 20 - 15 / 1.375), m=(0, 15))


def test_interference_of_memory_with_memory():
    """DRAM 0.6 + 0.6 = 1.2, times 1.1: 13.2 us."""
    ops = [grid(name, 5, 10.0, nbytes=6e3) for name in "ab"]
    assert_times(side_by_side(ops, hand_made(interference=KAPPA)), a=(0, 13.2), b=(0, 13.2))


def test_interference_takes_the_stated_class():
    """Utilizations of 1 with a stated intensity have a class: D = 2 x 1.25 for compute, 2 x 1.5 for memory.

    a (compute, 10 us) ends at 25; b (memory, 20 us) has done 25 / 3, the rest alone: 25 + 20 - 25 / 3.
    """
    ops = [part("a", 10.0, 1.0, intensity="compute"), part("b", 20.0, 1.0, intensity="memory")]
    trace = side_by_side(ops, hand_made(interference=KAPPA))
    assert_times(trace, a=(0, 25), b=(0, 45 - 25 / 3))


def test_no_class_no_interference():
    """Utilizations without an intensity have no class: D = 2 only."""
    trace = side_by_side([part("a", 10.0, 1.0), part("b", 10.0, 1.0)], hand_made(interference=KAPPA))
    assert_times(trace, a=(0, 20), b=(0, 20))


@pytest.mark.parametrize("load", [0.5, 1.0])
def test_interference_begins_above_one(load):
    """Utilizations of 0.5 (load 1: not saturated) or 1 (load 2)."""
    ops = [part(name, 10.0, load, intensity="compute") for name in "ab"]
    end = 10.0 if load == 0.5 else 30.0
    assert_times(side_by_side(ops, hand_made(interference=KAPPA)), a=(0, end), b=(0, end))
