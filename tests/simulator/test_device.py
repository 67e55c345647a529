"""Leftover dispatch block by block, by hand: ten slots for blocks of 1,024 threads."""

import pytest
from hand_made import case, hand_made, operators, side_by_side, time_limit

pytestmark = pytest.mark.usefixtures("both_engines")

HALF = hand_made(interleave=0.5)
LIGHT = hand_made(saturating_warps=128.0)
"""A block of 1,024 threads loads its SM by a quarter: what shares an SM slows nobody."""
LIMITS = {
    # 1,024 threads / 512 = 2 per SM
    "threads": (512, {}, 20),
    # 4 per SM, though threads would allow 32
    "blocks": (32, {}, 40),
    # 128 x 32 = 4,096 registers per warp: 4 warps in each quarter of 65,536, 16 in all, 2 blocks of 8
    "registers": (256, {"registers": 128}, 20),
    # 65,536 / 21,760 (21,700 rounded up to a multiple of 256) = 3
    "shared memory": (256, {"shared_memory": 21_700}, 30),
}
"""Threads and other needs of a block, and how many fit."""


def room(limit, more, time):
    """A kernel of 10 us and as many blocks as fit and some more, and one of a single such block, with its time."""
    threads, needs, fit = LIMITS[limit]
    return operators(f"a=10#{fit + more}x{threads} b={time}#1x{threads}", **needs)


def priority(at, high="5#10"):
    """`low` with 40 blocks (four waves of 10 us) from 0; `high` with blocks of 5 us arrives at `at`."""
    return f"low=40#40 p={at} high={high}"


LOW_FIRST, EQUAL = "low!1 p/1 high/1", "low p/1 high/1"
CASES = {
    # Leftover --------------------------------------------------------------------------------------
    # a: 15 blocks, two waves of 10 us. From 10 on it holds five slots: b, of five blocks, starts then.
    "the last wave leaves room": case("a=20#15 b=7#5", a=(0, 20), b=(10, 17)),
    # b of ten blocks and 7 us gets five slots at 10, and at 17 issues the rest on those it frees: 24.
    "what fits now starts now": case("a=20#15 b=7#10", a=(0, 20), b=(10, 24)),
    # a holds four slots for 10 us; b's ten blocks of 8 us: six at 0, four at 8: 16.
    "leftover from the start": case("a=10#4 b=8#10", a=(0, 10), b=(0, 16)),
    # a: nine slots for 4 us. b, 10 blocks of 10 us: one at 0, nine at 4: ends at 14, not at 20.
    "slots of others are taken as they come free": case("a=4#9 b=10#10", a=(0, 4), b=(0, 14)),
    # a: 40 blocks, four waves of 10 us; b gets nothing before a has issued all, and a leaves it nothing: 40.
    "the head of the queue refills first": case("a=40#40 b=5#5", a=(0, 40), b=(40, 45)),
    # All ready at 0: in the order of the operators.
    "full kernels follow each other": case(
        "a=10#10 b=10#10 c=10#10 d=10#10", a=(0, 10), b=(10, 20), c=(20, 30), d=(30, 40)
    ),
    # a takes all shared memory for 10 us; b waits for it; c needs none and would fit, but stands behind b.
    # At 10 b (32 of 64 KiB: two per SM) issues all, then c in what is left: b 10-20, c 10-15.
    "head of line": case(
        [
            *operators("a=10#10x512", shared_memory=65536),
            *operators("b=10#10x512", shared_memory=32768),
            *operators("c=5#10x256"),
        ],
        a=(0, 10),
        b=(10, 20),
        c=(10, 15),
    ),
    # late stands first in the graph but arrives at 1, behind early: early gets the slots at 10, late at 20.
    "arrival before the order of operators": case(
        "late=10#10 a=10#10 early=10#10 p=1", None, "a early/1 p/2 late/2", a=(0, 10), early=(10, 20), late=(20, 30)
    ),
    # Interleaving ----------------------------------------------------------------------------------
    # a's 20 blocks in two full waves, then b.
    "strict leftover": case("a=20#20 b=10#10", a=(0, 20), b=(20, 30)),
    # At 10 a frees ten slots: five go to b, five to a. At 20 five blocks are left of each: all fit. Both end at 30.
    "interleave half": case("a=20#20 b=10#10", HALF, a=(0, 30), b=(10, 30)),
    # At 10 all ten slots go to b, 10-20; then a goes on: 20-30.
    "interleave all": case("a=20#20 b=10#10", hand_made(interleave=1.0), a=(0, 30), b=(10, 20)),
    # b has three blocks: of the five slots offered at 10 it takes three, and a seven. a: 10 + 7 + 3 blocks, 30.
    "interleave of what is needed": case("a=20#20 b=10#3", HALF, a=(0, 30), b=(10, 20)),
    # Of the ten slots that come free at each multiple of 10 five go to each kernel, whoever freed them.
    # a (40 blocks): ten from 0, then five every 10 us: 10 + 6 x 5, over at 70. b (40): five from 10 to
    # 70, 30 in all, and the last ten from 70 to 80.
    "interleave stays a half": case("a=40#40 b=40#40", HALF, a=(0, 70), b=(10, 80)),
    # Pending blocks of the higher priority (lower number) go first: high 0-40, low only then, 40-60.
    "higher priority is not interleaved": case(
        "low=20#20 high=40#40", HALF, "low!1 high/1", high=(0, 40), low=(40, 60)
    ),
    # Priority --------------------------------------------------------------------------------------
    # All ten slots go to high at the next end of a wave; low goes on 5 us later and ends at 45. Completions come before
    # dispatch: at the very end of a wave the slots that come free at the instant of the arrival go to high.
    **{
        f"high arrives at {at}": case(priority(at), None, LOW_FIRST, high=(start, start + 5), low=(0, 45))
        for at, start in ((3.0, 10), (9.9, 10), (10.0, 10), (13.0, 20), (20.0, 20), (29.0, 30), (30.0, 30))
    },
    # Of the ten slots freed at the instant of the arrival, five go to the one that has just arrived (one of 5 blocks).
    # low: ten blocks a wave up to `at`, five at `at`, which leaves (40 - at) - 5. The five slots of high
    # come free at `at` + 5 and low takes them; from then on it issues five every 5 us.
    # With at = 10: 25 left; 5 each at 15, 20, 25, 30, 35: ends at 45. With at = 20: 15 left; 25, 30, 35: 45.
    **{
        f"interleave at the end of a wave, {at}": case(priority(at, "5#5"), HALF, EQUAL, high=(at, at + 5), low=(0, 45))
        for at in (10, 20)
    },
    # high needs four slots at 10; low gets six, and four more at 15, when high is over.
    # low: 10 at 0, 6 at 10, 4 at 15, 6 at 20, 4 at 25, 6 at 30, 4 at 35: all 40 issued, the last end at 45.
    "priority of few blocks": case(priority(3, "5#4"), None, LOW_FIRST, high=(10, 15), low=(0, 45)),
    # high arrives with the priority of low: low issues its last wave at 30 and leaves nothing; high 40-45.
    "equal priority waits": case(priority(3), None, EQUAL, high=(40, 45), low=(0, 40)),
    # low's single wave 0-10 runs to its end; high, there from 1 on, 10-15.
    "priority does not preempt": case("low=10#10 p=1 high=5#10", None, "low!5 p/1 high/1", low=(0, 10), high=(10, 15)),
    # Residency -------------------------------------------------------------------------------------
    # m - 1 blocks leave room for one more block of the kind; m blocks do not; m + 1 blocks are two waves: of 10 us the
    # first half leaves no room, b starts at 5.
    **{f"{limit}: a block less than fit": case(room(limit, -1, 5), a=(0, 10), b=(0, 5)) for limit in LIMITS},
    **{f"{limit}: as many as fit": case(room(limit, 0, 5), a=(0, 10), b=(10, 15)) for limit in LIMITS},
    **{f"{limit}: two waves": case(room(limit, 1, 2), a=(0, 10), b=(5, 7)) for limit in LIMITS},
    # Room by SM ------------------------------------------------------------------------------------
    # 640 threads of 1,024 leave no SM room for 512 more, of which it would hold two. a is on four SMs: of b's fifteen
    # blocks twelve find room on the other six, and three when those end. In a pool all fifteen would fit.
    "kernels that share no SM": case("a=100#4x640 b=10#15x512", LIGHT, a=(0, 100), b=(0, 20)),
    # Three of 5, 5 and 5 blocks that share no SM: the third waits for the first.
    "a third that shares no SM waits": case(
        "a=10#5x640 b=20#5x640 c=10#5x640", LIGHT, a=(0, 10), b=(0, 20), c=(10, 20)
    ),
    # a and b are on ten SMs; blocks of 256 threads fit beside them, one each, and four on none: c starts at once.
    "room beside kernels that share no SM": case("a=10#5x640 b=20#5x640 c=10#10x256", LIGHT, c=(0, 10)),
    # As by threads, so by registers (100 x 512 + 40 x 512 of 65,536) and shared memory (40 + 30 of 64 KiB). Of b's
    # nine blocks eight have room on four SMs, the ninth waits: 0-20.
    **{
        f"kernels that share no SM by {what}": case(
            [*operators("a=100#6x512", **first), *operators("b=10#9x512", **second)], LIGHT, a=(0, 100), b=(0, 20)
        )
        for what, first, second in (
            ("registers", {"registers": 96}, {"registers": 64}),
            ("shared memory", {"shared_memory": 40960}, {"shared_memory": 32768}),
        )
    },
    # a's first wave is on all SMs: b has to wait, though a pool would have room. At 10 a has five blocks left.
    "a full wave that shares no SM": case("a=20#15x640 b=5#5x512", LIGHT, a=(0, 20), b=(10, 15)),
    # Two kernels at once: of four with one block and 10, 4, 5, 6 us the third starts at 4 and the fourth at 9.
    "resident kernels": case(
        "a=10#1 b=4#1 c=5#1 d=6#1", hand_made(resident_kernels=2), a=(0, 10), b=(0, 4), c=(4, 9), d=(9, 15)
    ),
    # One kernel at once. high arrives at 3 beside low, whose second wave of ten blocks is not out yet.
    # high cannot become resident before low is over, so low goes on: 0-20; then high, 20-25.
    "a kernel without a place holds up no other": case(
        "low=20#20 p=3 high=5#10", hand_made(resident_kernels=1), LOW_FIRST, low=(0, 20), high=(20, 25)
    ),
}


@pytest.mark.parametrize("check", CASES.values(), ids=CASES)
def test_by_hand(check):
    check()


def test_whole_waves_are_passed_over():
    """10^12 blocks, 10^11 waves, alone and beside a kernel that has all its blocks out: no event per wave."""
    with time_limit(5):
        case("a=1e6#1000000000000", HALF, a=(0, 1e6))()
        trace = side_by_side("b=10#5 a=1e6#1000000000000", HALF)
    assert trace.operator_times()["b"] == pytest.approx((0, 10))
