"""Operators that share the issue slots and the DRAM of a device, by hand."""

import pytest
from hand_made import case, grid, hand_made, operators, side_by_side
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import simsched as ss
from simsched.simulator.demand import demand

pytestmark = pytest.mark.usefixtures("both_engines")


KAPPA = ((0.5, 0.25), (0.5, 0.1))
"""Compute beside compute 0.5, compute beside memory 0.25, memory beside compute 0.5, memory beside memory 0.1."""
KEEN, BUSY = hand_made(interference=KAPPA), hand_made(saturating_warps=16.0)
CROWDED = hand_made(crowd_latency=2.0)
KEEN_AND_BUSY = hand_made(interference=KAPPA, saturating_warps=16.0)

CASES = {
    # Without grids ---------------------------------------------------------------------------------
    # At half speed each: the short one does its 10 us in 20; the long one then has 20 of 30 left: 40.
    "two full operators": case("short=10%1 long=30%1", short=(0, 20), long=(0, 40)),
    # A load of 1 slows nobody, be it of issue slots or of DRAM; kernels interfere whatever the load. Memory beside
    # memory takes 1.1 times as long: a ends at 11, b has done 10 of 30. Compute beside compute 1.5 times: 15, and 20 us
    # more.
    "two halves fit": case("a=10%0.5 b=30%0.5", KEEN, a=(0, 10), b=(0, 30)),
    "two halves of DRAM fit": case(
        [grid("a", 5, 10.0, nbytes=5e3), grid("b", 5, 30.0, nbytes=15e3)], KEEN, a=(0, 11), b=(0, 31)
    ),
    "two halves of a grid fit": case(operators("a=10#5 b=30#5", flops=1.0), KEEN, a=(0, 15), b=(0, 35)),
    # 0.8 + 0.6 = 1.4: a's 10 us take 14, in which b does 10 of its 30; alone it needs 20 more: 34.
    "partial overload": case("a=10%0.8 b=30%0.6", a=(0, 14), b=(0, 34)),
    # Load 3: 3 x 10 = 30 for the first; then two with 10 and 20 left at load 2: 50; then 10 alone: 60.
    "three": case("a=10%1 b=20%1 c=30%1", a=(0, 30), b=(0, 50), c=(0, 60)),
    # b starts behind p at 4; a has done 4 of 10, needs 12 more at half speed: 16. b has done 6: 20.
    "a late one": case("a=10%1 p=4 b=10%1", None, "a p/1 b/1", a=(0, 16), b=(4, 20)),
    # Neither kernels nor utilization: such operators load nothing and feel nothing.
    "pure latency": case("x=10 y=7 full=5%1 grid=5#10", x=(0, 10), y=(0, 7), full=(0, 10), grid=(0, 10)),
    "two devices": case("a=10%1 b=30%1", hand_made(2), "a b@1", a=(0, 10), b=(0, 30)),
    # Every kernel at its solo rate, whatever the loads and the room.
    "without contention": case(
        [*operators("a=10%1 b=30%1 c=7#1000"), grid("d", 1000, 8.0, nbytes=8e3)],
        hand_made(contention=False),
        a=(0, 10),
        b=(0, 30),
        c=(0, 7),
        d=(0, 8),
    ),
    # Issue slots, with grids -----------------------------------------------------------------------
    # 16 warps keep an SM busy. 10 blocks of 512 threads load 10 x 1 / 10 = 1; two such kernels fit, load 2.
    # As with u = 1: 10 us end at 20, 30 us at 40.
    "grids": case("a=10#10x512 b=30#10x512", BUSY, a=(0, 20), b=(0, 40)),
    # 40 blocks of 256 threads load 40 x 8/16/10 = 2 alone, so a unit is 5 us at D = 1 and 10 us alone.
    "a kernel that saturates alone": case("a=10#40x256", BUSY, a=(0, 10)),
    # Two of 20 blocks load 1 each, unit 10 us; together 2: both end at 20, as two of 40 in turn would.
    "two that saturate together": case("a=10#20x256 b=10#20x256", BUSY, a=(0, 20), b=(0, 20)),
    # b loads every SM by 0.9, the 5 blocks of a load 5 of 10 SMs by 1: a has 1.9 there, b 0.9 + 0.5 in the mean.
    # a ends at 19; b has done 19 / 1.4 of 20, the rest alone.
    "a grid beside a utilization": case("a=10#5 b=20%0.9", a=(0, 19), b=(0, 19 + 20 - 19 / 1.4)),
    # a: 15 blocks, two waves of unit 5. First wave: load 1 + 0.5, D = 1.5, 7.5 us, in which b does 5. Second wave, on 5
    # of 10 SMs: there the load is still 1.5, so a ends at 15; in the mean it is 1, so b does 7.5, has 17.5 left: 32.5.
    "the last wave slows less": case("a=10#15 b=30%0.5", a=(0, 15), b=(0, 32.5)),
    # DRAM ------------------------------------------------------------------------------------------
    # 6,000 bytes in 10 us are 0.6 of 1,000 bytes per us; two load 1.2: 12 us.
    "DRAM": case(operators("a=10#5 b=10#5", nbytes=6e3), a=(0, 12), b=(0, 12)),
    # c moves no bytes and has FLOP: its part of the roofline at DRAM is 0. The others load DRAM 2: 20 us.
    "compute does not feel DRAM": case(
        [*operators("a=10#2 b=10#2", nbytes=1e4), grid("c", 2, 10.0, flops=1e3)], a=(0, 20), b=(0, 20), c=(0, 10)
    ),
    # c: 10,000 FLOP at 1,000 per us are 10 us, 5,000 bytes 5 us: its sensitivity to DRAM is 0.5.
    # DRAM load: a and b 0.75 each, c 0.5. At a pressure of 2.5 c is slowed by 1.25 to 0.4, a and b by 2.5 to 0.3 each:
    # all of DRAM. c ends at 12.5; a and b have done 5 of 10, the rest at a load of 1.5 takes 7.5: 20.
    "part of the roofline is the sensitivity": case(
        [*operators("a=10#2 b=10#2", nbytes=7.5e3), grid("c", 2, 10.0, flops=1e4, nbytes=5e3)],
        a=(0, 20),
        b=(0, 20),
        c=(0, 12.5),
    ),
    # a: 15 blocks, 10 us, 10,000 bytes: a full wave loads DRAM 1, a half one 0.5; so does b, of 3 blocks, over 10 us.
    # m = 10 for both; b's 3 blocks of 32 threads fit beside a only when threads are left: a has 1,024 per
    # SM, so b waits for a's last wave at 5: DRAM 0.5 + 1 = 1.5. a: 5 x 1.5 = 7.5: 12.5. b has done 5 of 10: 17.5.
    "traffic of the blocks that are resident": case(
        operators("a=10#15 b=10#3x32", nbytes=1e4), a=(0, 12.5), b=(5, 17.5)
    ),
    # m could fill half of the issue slots with its 8 warps of 16 on each SM, takes a share of that; c fills all. m is
    # not slowed by that. With 0.5 of the half it leaves c 0.75: 10 us become 13.3.
    **{
        f"bound by DRAM, with a share of {share}": case(
            [grid("m", 10, 30.0, threads=256, nbytes=1e4), grid("c", 10, 10.0, threads=512, flops=1.0)],
            hand_made(least_sm_share=share, saturating_warps=16.0),
            m=(0, 30),
            c=(0, end),
        )
        for share, end in ((0.0, 10.0), (0.5, 10 / 0.75))
    },
    # Both move 0.6 of DRAM's bytes, in 0.6 of their time: at 1.2 of DRAM 0.6 x 1.2 < 1 slows nobody, but there is no
    # more than 1. At a pressure of 2 both are slowed by 0.6 x 2.
    "nobody is slowed at first": case(operators("a=10#2 b=10#2", flops=1e4, nbytes=6e3), a=(0, 12), b=(0, 12)),
    # Interference ----------------------------------------------------------------------------------
    # A kernel that saturates the issue slots alone (load 4) has no one to interfere with.
    "interference needs company": case(
        [grid("a", 40, 10.0, threads=256, flops=1.0)], hand_made(interference=KAPPA, saturating_warps=4.0), a=(0, 10)
    ),
    # Two compute kernels of load 1 each: D = 2, times 1.5: 30 us.
    "interference of one class": case(
        operators("a=10#10x512 b=10#10x512", flops=1.0), KEEN_AND_BUSY, a=(0, 30), b=(0, 30)
    ),
    # c: compute, load 1, 20 us. m: memory, DRAM 0.5, issue slots 10 x 0.1 x 0.1 = 0.1 (the least), 10 us.
    # The issue slots are saturated: m is not slowed by that and leaves c 0.9. c: D = 1.25 / 0.9. m feels DRAM only
    # (0.5) and the penalty: 1.5, ends at 15. c has done 15 x 0.9 / 1.25 = 10.8; the rest of 20 alone: 24.2.
    "interference between classes": case(
        [grid("c", 10, 20.0, threads=512, flops=1.0), grid("m", 10, 10.0, threads=512, nbytes=5e3)],
        KEEN_AND_BUSY,
        c=(0, 24.2),
        m=(0, 15),
    ),
    # DRAM 0.6 + 0.6 = 1.2, times 1.1: 13.2 us.
    "interference of memory with memory": case(operators("a=10#5 b=10#5", nbytes=6e3), KEEN, a=(0, 13.2), b=(0, 13.2)),
    # Utilizations of 1 with a stated intensity have a class: D = 2 x 1.25 for compute, 2 x 1.5 for memory.
    # a (compute, 10 us) ends at 25; b (memory, 20 us) has done 25 / 3, the rest alone: 25 + 20 - 25 / 3.
    "interference takes the stated class": case(
        operators("a=10%1", intensity="compute") + operators("b=20%1", intensity="memory"),
        KEEN,
        a=(0, 25),
        b=(0, 45 - 25 / 3),
    ),
    # Utilizations without an intensity have no class: D = 2 only.
    "no class, no interference": case("a=10%1 b=10%1", KEEN, a=(0, 20), b=(0, 20)),
    # Utilizations of 0.5 (load 1: not saturated) or 1 (load 2).
    "interference below one": case(operators("a=10%0.5 b=10%0.5", intensity="compute"), KEEN, a=(0, 15), b=(0, 15)),
    "interference above one": case(operators("a=10%1 b=10%1", intensity="compute"), KEEN, a=(0, 30), b=(0, 30)),
    # a's first wave fills the device: b waits for room, and interferes from 5 on, when it has blocks there. 5 us of a
    # are left, and b takes 10: a does them by 5 + 7.5, b has done 5 and the rest alone.
    "interference begins with blocks": case(operators("a=10#15 b=10#5", flops=1.0), KEEN, a=(0, 12.5), b=(5, 17.5)),
    # A kernel that starts beside others --------------------------------------------------------------
    # b starts in the same instant, behind a: it takes 2 us longer. What has no grid is no crowd, and is in none.
    "a crowd of two": case("a=10#5 b=10#5", CROWDED, a=(0, 10), b=(0, 12)),
    "a crowd without grids": case(
        "a=10%0.2 b=10%0.2 c=10#5x256 d=10", CROWDED, a=(0, 10), b=(0, 10), c=(0, 10), d=(0, 10)
    ),
    # a leaves b 39 of 40 places: two waves, of 5 us and 1 us more each.
    "a crowd of two waves": case(
        "a=100#1x32 b=10#78x256", hand_made(crowd_latency=2.0, saturating_warps=128.0), a=(0, 100), b=(0, 12)
    ),
    # b waits for a's slots and starts when a has ended; then c beside b.
    "one after the other is no crowd": case("a=10#10 b=10#8 c=10#2", CROWDED, a=(0, 10), b=(10, 20), c=(10, 22)),
    "a crowd of one stream": case("a=10#5 b=10#5", CROWDED, "a b", "ab", a=(0, 10), b=(10, 20)),
    # b's time without its latency of 1 is 3 us; with 2 us more, 5: 0-5, and its latency, in which c starts alone.
    "a crowd and latencies": case(
        "a=4#1 b=4#1 p=5 c=4#1",
        hand_made(crowd_latency=2.0, kernel_latency=1.0),
        "a b/1 p/2 c/2",
        a=(0, 4),
        b=(0, 6),
        c=(5, 9),
    ),
    "without contention there is no crowd": case(
        "a=10#5 b=10#5", hand_made(crowd_latency=2.0, contention=False), a=(0, 10), b=(0, 10)
    ),
    # Blocks by SM ----------------------------------------------------------------------------------
    # Each reaches 0.9 of the FLOP rate with 8 of the 32 warps that keep an SM busy; by warps they would reach 2.7.
    # Together they take 2.7 times as long.
    "three that each have a block on every SM": case(
        operators("a=10#10x256 b=10#10x256 c=10#10x256", flops=9e3), a=(0, 27), b=(0, 27), c=(0, 27)
    ),
    # 6 and 6 blocks on 10 SMs: on 2 of them two lie together, at 0.75 + 0.75: 15 us, where the mean load is 0.9.
    "two that meet on some SMs": case("a=10#6x768 b=10#6x768", hand_made(threads_per_sm=2048), a=(0, 15), b=(0, 15)),
    "two that do not meet": case("a=10#5x768 b=10#5x768", hand_made(threads_per_sm=2048), a=(0, 10), b=(0, 10)),
    # a and b fill the device for 8 us each and take 2 us more: b's blocks start when a's have ended.
    "latency of a kernel loads nothing": case("a=10#10 b=10#10", hand_made(kernel_latency=2.0), a=(0, 10), b=(8, 18)),
    "kernels of latency alone": case("c=1.5#10 d=1.5#10", hand_made(kernel_latency=2.0), c=(0, 1.5), d=(0, 1.5)),
    # 12 blocks of half an SM, 8 of a whole one on 10 SMs: mean loads 0.6 and 0.8, on the fullest SMs 1 and 1.5.
    # By these they would issue 0.6 / 1 + 0.8 / 1.5 = 17 / 15 of what there is: both take 17 / 15 times as long still. a
    # ends at 11.33; b has done 11.33 / 17 = 2 / 3 by then, and the rest alone.
    "fullest SMs that would issue too much": case("a=10#12x256 b=10#8x512", BUSY, a=(0, 34 / 3), b=(0, 44 / 3)),
}


@pytest.mark.parametrize("check", CASES.values(), ids=CASES)
def test_by_hand(check):
    check()


def test_blocks_end_spread():
    """Of 10 blocks 3 end late, by 1.5 x 0.1 x 9 / 12 of their time, 0.1125; alone the kernel still takes its time.

    Beside b, whose 10 blocks wait for room, the first 7 of b start when 7 of a have ended, 3 / 7 of that early: a block
    of a takes 10 / 1.1125 us.
    """
    late = 0.1125
    trace = side_by_side("a=10#10 b=10#10", hand_made(block_spread=0.1))
    assert trace.operator_times()["a"] == pytest.approx((0, 10))
    assert trace.operator_times()["b"][0] == pytest.approx(10 / (1 + late) * (1 - late * 3 / 7))


# Peaks -------------------------------------------------------------------------------------------


def excess(op, cluster):
    """By how much an operator that runs alone exceeds the rates of the device, or of an SM that its blocks are on."""
    program = ss.Schedule(ss.OpGraph([op]), [ss.Placement(op.name)]).lower(cluster)
    asked = demand(program, cluster, None)
    calculating = op.flops / 1000 / op.time * float(asked["units"][0] / asked["blocks"][0]) * 10
    held = -(-min(asked["blocks"][0], asked["residency"][0]) // 10)
    return max(
        calculating / max(1 / held, float(asked["sm_share"][0])),
        float(asked["traffic"][0] / op.time / asked["dram_share"][0]),
    )


@st.composite
def mixes(draw):
    """Operators with kernels on a device, none of which exceeds a rate when it is alone."""
    cluster = hand_made(block_spread=draw(st.sampled_from([0.0, 0.08, 0.3])), saturating_warps=draw(st.floats(4, 64)))
    ops = []
    for i in range(draw(st.integers(2, 6))):
        blocks, time, threads = draw(st.integers(1, 60)), draw(st.floats(1, 100)), draw(st.sampled_from([32, 128, 512]))
        flops, nbytes = (draw(st.floats(0.001, 1)) * min(1, blocks / 10) * 1000 * time for _ in range(2))
        part = 1.0
        for _ in range(3):
            op = grid(f"o{i}", blocks, time, threads, flops=flops * part, nbytes=nbytes * part)
            part /= max(1.0, excess(op, cluster))
        assume(excess(op, cluster) <= 1 + 1e-9)
        ops.append(op)
    return cluster, ops


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(mix=mixes())
def test_no_mix_exceeds_a_peak(mix):
    """FLOP and bytes over the time from the first start to the last end, whatever ran beside what."""
    cluster, ops = mix
    trace = side_by_side(ops, cluster)
    for total in (sum(op.flops for op in ops), sum(op.nbytes for op in ops)):
        assert total / trace.makespan <= 1000 * (1 + 1e-6)


def test_small_grids_exceed_no_peak():
    """8 blocks that move 800 bytes per us and 6 that move 600: 2,200 bytes take 2.2 us at 1,000 per us, not less."""
    ops = [grid("a", 8, 2.0, 32, flops=1000, nbytes=1600), grid("b", 6, 1.0, 32, flops=600, nbytes=600)]
    assert side_by_side(ops, hand_made(saturating_warps=4.0, block_spread=0.0)).makespan >= 2.2 * (1 - 1e-6)
