"""Leftover dispatch block by block, by hand: ten slots for blocks of 1,024 threads."""

import pytest
from hand_made import assert_times, grid, hand_made, run, side_by_side, time_limit

import simsched as ss

pytestmark = pytest.mark.usefixtures("both_engines")

# Leftover ----------------------------------------------------------------------------------------


def test_the_last_wave_leaves_room():
    """a: 15 blocks, two waves of 10 us. From 10 on it holds five slots: b, of five blocks, starts then."""
    assert_times(side_by_side([grid("a", 15, 20.0), grid("b", 5, 7.0)], hand_made()), a=(0, 20), b=(10, 17))


def test_what_fits_now_starts_now():
    """b of ten blocks and 7 us gets five slots at 10, and at 17 issues the rest on those it frees: 24."""
    assert_times(side_by_side([grid("a", 15, 20.0), grid("b", 10, 7.0)], hand_made()), a=(0, 20), b=(10, 24))


def test_leftover_from_the_start():
    """a holds four slots for 10 us; b's ten blocks of 8 us: six at 0, four at 8: 16."""
    assert_times(side_by_side([grid("a", 4, 10.0), grid("b", 10, 8.0)], hand_made()), a=(0, 10), b=(0, 16))


def test_slots_of_others_are_taken_as_they_come_free():
    """a: nine slots for 4 us. b, 10 blocks of 10 us: one at 0, nine at 4: ends at 14, not at 20."""
    assert_times(side_by_side([grid("a", 9, 4.0), grid("b", 10, 10.0)], hand_made()), a=(0, 4), b=(0, 14))


def test_the_head_of_the_queue_refills_first():
    """a: 40 blocks, four waves of 10 us; b gets nothing before a has issued all, and a leaves it nothing: 40."""
    assert_times(side_by_side([grid("a", 40, 40.0), grid("b", 5, 5.0)], hand_made()), a=(0, 40), b=(40, 45))


def test_full_kernels_follow_each_other():
    """Five kernels of ten blocks and 10 us, all ready at 0, in the order of the operators."""
    ops = [grid(f"k{i}", 10, 10.0) for i in range(5)]
    assert_times(side_by_side(ops, hand_made()), **{f"k{i}": (10 * i, 10 * i + 10) for i in range(5)})


def test_head_of_line_blocking():
    """a takes all shared memory for 10 us; b waits for it; c needs none and would fit, but stands behind b.

    At 10 b (32 of 64 KiB: two per SM) issues all, then c in what is left: b 10-20, c 10-15.
    """
    ops = [grid(name, 10, 10.0, threads=512, shared_memory=nbytes) for name, nbytes in (("a", 65536), ("b", 32768))]
    ops.append(grid("c", 10, 5.0, threads=256))
    assert_times(side_by_side(ops, hand_made()), a=(0, 10), b=(10, 20), c=(10, 15))


def test_arrival_decides_before_the_order_of_operators():
    """late stands first in the graph but arrives at 1, behind early: early gets the slots at 10, late at 20."""
    ops = [grid("late", 10, 10.0), grid("a", 10, 10.0), grid("early", 10, 10.0), ss.Operator("p", time=1.0)]
    assert_times(run(ops, [], "a early/1 p/2 late/2", hand_made()), a=(0, 10), early=(10, 20), late=(20, 30))


# Interleaving ------------------------------------------------------------------------------------


def two(interleave, a, b):
    """Kernels of `a` and `b` blocks of 10 us on a device with that interleave."""
    ops = [grid("a", a, -(-a // 10) * 10.0), grid("b", b, -(-b // 10) * 10.0)]
    return side_by_side(ops, hand_made(interleave=interleave))


def test_strict_leftover():
    """a's 20 blocks in two full waves, then b."""
    assert_times(two(0.0, 20, 10), a=(0, 20), b=(20, 30))


def test_interleave_half():
    """At 10 a frees ten slots: five go to b, five to a. At 20 five blocks are left of each: all fit. Both end at 30."""
    assert_times(two(0.5, 20, 10), a=(0, 30), b=(10, 30))


def test_interleave_all():
    """At 10 all ten slots go to b, 10-20; then a goes on: 20-30."""
    assert_times(two(1.0, 20, 10), a=(0, 30), b=(10, 20))


def test_interleave_of_what_is_needed():
    """b has three blocks: of the five slots offered at 10 it takes three, and a seven. a: 10 + 7 + 3 blocks, 30."""
    assert_times(two(0.5, 20, 3), a=(0, 30), b=(10, 20))


def test_interleave_stays_a_half():
    """Of the ten slots that come free at each multiple of 10 five go to each kernel, whoever freed them.

    a (40 blocks): ten from 0, then five every 10 us: 10 + 6 x 5, over at 70. b (40): five from 10 to
    70, 30 in all, and the last ten from 70 to 80.
    """
    assert_times(two(0.5, 40, 40), a=(0, 70), b=(10, 80))


def test_higher_priority_is_not_interleaved():
    """Pending blocks of the higher priority (lower number) go first: high 0-40, low only then, 40-60."""
    ops = [grid("low", 20, 20.0), grid("high", 40, 40.0)]
    assert_times(run(ops, [], "low!1 high/1", hand_made(interleave=0.5)), high=(0, 40), low=(40, 60))


# Priority ----------------------------------------------------------------------------------------


def prioritised(at, blocks=10, first=1, **fields):
    """`low` with 40 blocks (four waves of 10 us) from 0; `high` with blocks of 5 us arrives at `at`."""
    ops = [grid("low", 40, 40.0), ss.Operator("p", time=at), grid("high", blocks, -(-blocks // 10) * 5.0)]
    return run(ops, [], f"low!{first} p/1 high/1", hand_made(**fields))


@pytest.mark.parametrize(("at", "start"), [(3.0, 10), (9.9, 10), (13.0, 20), (29.0, 30)])
def test_priority_takes_the_slots_freed_next(at, start):
    """All ten slots go to high at the next end of a wave; low goes on 5 us later and ends at 45."""
    assert_times(prioritised(at), high=(start, start + 5), low=(0, 45))


@pytest.mark.parametrize("at", [10.0, 20.0, 30.0])
def test_priority_at_the_very_end_of_a_wave(at):
    """Completions come before dispatch: the slots that come free at the instant of the arrival go to high."""
    assert_times(prioritised(at), high=(at, at + 5), low=(0, 45))


@pytest.mark.parametrize("at", [10.0, 20.0])
def test_interleave_at_the_very_end_of_a_wave(at):
    """Of the ten slots freed at the instant of the arrival, five go to the one that has just arrived (one of 5 blocks).

    low: ten blocks a wave up to `at`, five at `at`, which leaves (40 - at) - 5. The five slots of high
    come free at `at` + 5 and low takes them; from then on it issues five every 5 us.
    With at = 10: 25 left; 5 each at 15, 20, 25, 30, 35: ends at 45. With at = 20: 15 left; 25, 30, 35: 45.
    """
    trace = prioritised(at, blocks=5, first=0, interleave=0.5)
    assert_times(trace, high=(at, at + 5), low=(0, 45))


def test_priority_of_few_blocks():
    """high needs four slots at 10; low gets six, and four more at 15, when high is over.

    low: 10 at 0, 6 at 10, 4 at 15, 6 at 20, 4 at 25, 6 at 30, 4 at 35: all 40 issued, the last end at 45.
    """
    assert_times(prioritised(3.0, blocks=4), high=(10, 15), low=(0, 45))


def test_equal_priority_waits():
    """high arrives with the priority of low: low issues its last wave at 30 and leaves nothing; high 40-45."""
    assert_times(prioritised(3.0, first=0), high=(40, 45), low=(0, 40))


def test_priority_does_not_preempt():
    """low's single wave 0-10 runs to its end; high, there from 1 on, 10-15."""
    ops = [grid("low", 10, 10.0), ss.Operator("p", time=1.0), grid("high", 10, 5.0)]
    assert_times(run(ops, [], "low!5 p/1 high/1", hand_made()), low=(0, 10), high=(10, 15))


# Residency ---------------------------------------------------------------------------------------

LIMITS = {
    # 1,024 threads / 512 = 2 per SM
    "threads": ({"threads": 512}, 20),
    # 4 per SM, though threads would allow 32
    "blocks": ({"threads": 32}, 40),
    # 128 x 32 = 4,096 registers per warp: 4 warps in each quarter of 65,536, 16 in all, 2 blocks of 8
    "registers": ({"threads": 256, "registers": 128}, 20),
    # 65,536 / 21,760 (21,700 rounded up to a multiple of 256) = 3
    "shared memory": ({"threads": 256, "shared_memory": 21_700}, 30),
}


@pytest.mark.parametrize(("shape", "m"), LIMITS.values(), ids=LIMITS)
def test_residency(shape, m):
    """m - 1 blocks leave room for one more block of the kind; m blocks do not."""
    room = [grid("a", m - 1, 10.0, **shape), grid("b", 1, 5.0, **shape)]
    assert_times(side_by_side(room, hand_made()), a=(0, 10), b=(0, 5))
    full = [grid("a", m, 10.0, **shape), grid("b", 1, 5.0, **shape)]
    assert_times(side_by_side(full, hand_made()), a=(0, 10), b=(10, 15))


@pytest.mark.parametrize(("shape", "m"), LIMITS.values(), ids=LIMITS)
def test_waves(shape, m):
    """m + 1 blocks are two waves: of 10 us the first half leaves no room, b starts at 5."""
    ops = [grid("a", m + 1, 10.0, **shape), grid("b", 1, 2.0, **shape)]
    assert_times(side_by_side(ops, hand_made()), a=(0, 10), b=(5, 7))


def test_resident_kernels():
    """Two kernels at once: of four with one block and 10, 4, 5, 6 us the third starts at 4 and the fourth at 9."""
    ops = [grid("a", 1, 10.0), grid("b", 1, 4.0), grid("c", 1, 5.0), grid("d", 1, 6.0)]
    assert_times(side_by_side(ops, hand_made(resident_kernels=2)), a=(0, 10), b=(0, 4), c=(4, 9), d=(9, 15))


def test_a_kernel_without_a_place_holds_up_no_other():
    """One kernel at once. high arrives at 3 beside low, whose second wave of ten blocks is not out yet.

    high cannot become resident before low is over, so low goes on: 0-20; then high, 20-25.
    """
    ops = [grid("low", 20, 20.0), ss.Operator("p", time=3.0), grid("high", 10, 5.0)]
    trace = run(ops, [], "low!1 p/1 high/1", hand_made(resident_kernels=1))
    assert_times(trace, low=(0, 20), high=(20, 25))


# Speed -------------------------------------------------------------------------------------------


def test_whole_waves_are_passed_over():
    """10^12 blocks, 10^11 waves, alone and beside a kernel that has all its blocks out: no event per wave."""
    with time_limit(5):
        assert_times(side_by_side([grid("a", 10**12, 1e6)], hand_made(interleave=0.5)), a=(0, 1e6))
        trace = side_by_side([grid("b", 5, 10.0), grid("a", 10**12, 1e6)], hand_made(interleave=0.5))
    assert trace.operator_times()["b"] == pytest.approx((0, 10))
